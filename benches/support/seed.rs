//! Subscriptions by COPY: a million of them through the API would take longer than what is to be measured.

use std::ops::Range;

use bellwire_core::base64url;
use bellwire_core::clock::Clock;
use bellwire_core::id::{AppId, SubscriptionId};
use bellwire_simulator::gateways::{Options, Simulator, Verify};
use bellwire_store::outcomes::copy::Rows;
use bellwire_store::{keys::vapid_keys, queue::lanes};
use bellwire_vault::{self as vault, Purpose, Vault};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::harness::SAMPLE;

/// Gateways that subscriptions are spread over: a key has as many lanes.
pub const GATEWAYS: u32 = 4;
const CHUNK: u32 = 10_000;
const COPY: &str = "COPY subscriptions (shard, id, app, lane, state, origin_id, since, endpoint_mac, address, \
                    token_version, last_seen, created_at) FROM STDIN (FORMAT binary)";

/// Seeded subscriptions.
pub struct Audience {
    /// All subscriptions.
    pub all: Vec<SubscriptionId>,
    /// Those whose requests the simulator opens and records.
    pub sampled: Vec<SubscriptionId>,
}

/// Adds `n` subscriptions of the simulator to an app, over four gateways in turn.
pub async fn subscriptions(pool: &PgPool, vault: &Vault, app: AppId, n: u32) -> Audience {
    let seeder = Seeder::start(pool, vault).await;
    let audience = seeder.subscribe(app, 0..n).await;
    seeder.finish().await;
    audience
}

/// Adds subscriptions to any number of apps.
pub struct Seeder<'a> {
    pool: &'a PgPool,
    vault: &'a Vault,
    clock: Clock,
    /// The simulator derives subscriptions from its seed, so a twin of it in this process mints the same ones.
    twin: Simulator,
}

impl<'a> Seeder<'a> {
    /// To be ended by [`finish`](Self::finish).
    pub async fn start(pool: &'a PgPool, vault: &'a Vault) -> Self {
        let twin = Simulator::start(Options { verify: Verify::Sample(SAMPLE), ..Options::default() }).await;
        // They were reached before, like nearly all of a base: the first acceptance of each would cost a write more.
        let proven = sqlx::query("ALTER TABLE subscriptions ALTER COLUMN proven SET DEFAULT true");
        proven.execute(pool).await.expect("a default");
        Self { pool, vault, clock: Clock::system(), twin: twin.expect("a simulator starts") }
    }

    /// Adds the simulator's subscriptions of these numbers to an app, under its active key, over four gateways in turn.
    pub async fn subscribe(&self, app: AppId, numbers: Range<u32>) -> Audience {
        let key = vapid_keys::active(self.pool, app).await.expect("an app has a key");
        let mut connection = self.pool.acquire().await.expect("a connection");
        let mut gateways = Vec::new();
        for host in self.twin.hosts().into_iter().take(GATEWAYS as usize) {
            let lane =
                lanes::ensure(&mut connection, app, key.id, host.gateway, self.clock.now()).await.expect("a lane");
            gateways.push((host.host, lane));
        }
        let (mut all, mut sampled) = (Vec::with_capacity(numbers.len()), Vec::new());
        for start in numbers.clone().step_by(CHUNK as usize) {
            let end = numbers.end.min(start + CHUNK);
            let mut rows = Rows::new(12, (end - start) as usize * 5);
            for number in start..end {
                let (host, lane) = &gateways[number as usize % gateways.len()];
                let minted = self.twin.mint(host, number, Some(&key.public_key)).expect("a host of the simulator");
                let id = SubscriptionId::new(self.clock.uuid(), (number % 64) as u8);
                let [p256dh, auth] =
                    [&minted.p256dh, &minted.auth].map(|text| base64url::decode_any(text).expect("base64url"));
                let address = [p256dh.as_slice(), &auth, minted.endpoint.as_bytes()].concat();
                let now = self.clock.now();
                rows.row()
                    .smallint(id.shard())
                    .uuid(id.0)
                    .uuid(app.0)
                    .integer(lane.0)
                    .text_or_null(Some("active"))
                    .uuid(id.0)
                    .timestamp(now)
                    .bytes(&self.vault.mac(Purpose::Endpoint, &[app.0.as_bytes(), minted.endpoint.as_bytes()]))
                    .bytes(&self.vault.seal(vault::ADDRESS, id.0, &address))
                    .integer(1)
                    .timestamp(now)
                    .timestamp(now);
                all.push(id);
                if self.twin.sampled(host, number).expect("a host of the simulator") {
                    sampled.push(id);
                }
            }
            rows.send(&mut connection, COPY).await.expect("the rows are right");
        }
        Audience { all, sampled }
    }

    /// Notes how many there are, where no trigger saw it.
    async fn count(&self) {
        let triggers = "SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'subscriptions'::regclass AND tgname = 'subscriptions_gained')";
        if sqlx::query_scalar(triggers).fetch_one(self.pool).await.expect("an answer") {
            return;
        }
        let there = "SELECT lane, count(*) FROM subscriptions WHERE state = 'active' GROUP BY lane";
        let there: Vec<(i32, i64)> = sqlx::query_as(there).fetch_all(self.pool).await.expect("counts");
        for (lane, n) in there {
            let note = "INSERT INTO audience_changes (topic, lane, n)
                        SELECT 0, $1, $2 - coalesce((SELECT sum(n) FROM audiences WHERE topic = 0 AND lane = $1), 0)";
            sqlx::query(note).bind(lane).bind(n).execute(self.pool).await.expect("a note");
        }
    }

    /// Lets what was added look as if it had been there for hours.
    pub async fn finish(self) {
        self.count().await;
        settle_down(&mut self.pool.acquire().await.expect("a connection"), "subscriptions").await;
    }
}

/// Brings a freshly filled table into the state after some hours, and starts a new log. Runs on the connection that filled the table, after
/// it reports its statistics; otherwise autovacuum would repeat the work during the measurement.
async fn settle_down(connection: &mut PgConnection, table: &'static str) {
    let told = "SELECT pg_stat_force_next_flush()".to_owned();
    for statement in [told, format!("VACUUM ANALYZE {table}"), "CHECKPOINT".to_owned()] {
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut *connection).await.expect("maintenance of a table");
    }
}

/// Puts `n` deliveries into the queue that wait for their next attempt until tomorrow, of earlier messages to the
/// subscribers of an app.
pub async fn retries(pool: &PgPool, app: AppId, n: u32) {
    let now = Clock::system().now();
    let mut connection = pool.acquire().await.expect("a connection");
    let per_message: i64 = sqlx::query_scalar("SELECT count(*) FROM subscriptions WHERE app = $1")
        .bind(app.0)
        .fetch_one(&mut *connection)
        .await
        .expect("a count");
    for _ in 0..i64::from(n) / per_message.max(1) {
        let message = Uuid::now_v7();
        let insert = "WITH message AS (
                INSERT INTO messages (id, app, tier, state, audience, content, ttl_s, urgency, audience_estimate,
                                      accepted_at, expires_at)
                SELECT $1, app, tier, 'sending', audience, content, 172800, urgency, $3, $4, $4 + interval '2 days'
                FROM messages WHERE app = $2 ORDER BY id DESC LIMIT 1 RETURNING tier),
            counted AS (
                INSERT INTO message_counts (message, lane, targeted)
                SELECT $1, lane, count(*) FROM subscriptions WHERE app = $2 GROUP BY lane)
            INSERT INTO queue (shard, subscription, message, lane, tier, retries, due_at, scheduled_at)
            SELECT shard, id, $1, lane, tier, 1, due, due
            FROM (SELECT *, $4 + interval '1 day' * (1 + random()) AS due FROM subscriptions WHERE app = $2) s, message";
        let query = sqlx::query(insert).bind(message).bind(app.0).bind(per_message).bind(now);
        query.execute(&mut *connection).await.expect("the rows are right");
    }
    settle_down(&mut connection, "queue").await;
}
