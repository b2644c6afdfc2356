//! Time of the server for every page of the admin page, with ten million deliveries in the database: all requests of a page, in parallel as
//! the page sends them. `scripts/bench pages`
//!
//! `N` (200,000) subscriptions of half as many people, `MESSAGES` (50) of two days to all of them, and 2,000 to single people. One delivery
//! in ten has a receipt, one in a hundred is dead. One campaign waits for retries, the charts have a month of data, and the audit log has
//! 100,000 entries. `ROUNDS` (20) of each page.

use std::time::{Duration, Instant};

use bellwire_core::clock::{Clock, Timestamp};
use bellwire_core::id::{AppId, MessageId};
use bellwire_vault as vault;
use chrono::TimeDelta;
use futures_util::future::join_all;
use serde_json::json;
use sqlx::PgPool;
use sqlx::postgres::PgConnection;

use crate::metrics;
use crate::support::harness::Harness;
use crate::support::table::{Bar, heading, number, percentiles};
use crate::support::{seed, setting};

/// Milliseconds of the server's time that a page may take.
const PAGE_MS: f64 = 300.0;
/// Messages to one person each.
const SINGLE: i64 = 2_000;
const AUDITED: i64 = 100_000;

pub async fn run() {
    let (n, messages, rounds) = (setting("N", 200_000), setting("MESSAGES", 50), setting("ROUNDS", 20));
    let harness = Harness::open().await;
    let app = harness.app("shop").await;
    let audience = seed::subscriptions(&harness.pool, &harness.vault, app, n).await;
    let now = Clock::system().now();
    let campaign = fill(&harness.pool, app, i64::from(messages), now).await;
    seal(&harness, app).await;
    metrics::fill(&harness.pool, now).await;
    heading(&format!("{} deliveries in the database", number(f64::from(n) * f64::from(messages))));
    let known = Known { now, campaign, subscription: audience.all[n as usize / 2].to_string() };
    for (page, paths) in pages(&known, &harness).await {
        let mut took_ms = Vec::new();
        for _ in 0..rounds {
            let began = Instant::now();
            join_all(paths.iter().map(|path| harness.api.get(path))).await;
            took_ms.push(began.elapsed().as_secs_f64() * 1e3);
        }
        percentiles(page, &mut took_ms, [Bar::None, Bar::AtMost(PAGE_MS)]);
    }
}

/// Ids in the addresses of pages.
struct Known {
    now: Timestamp,
    /// The campaign that still waits for retries.
    campaign: MessageId,
    subscription: String,
}

/// Requests of each page of the admin page.
async fn pages(known: &Known, harness: &Harness) -> Vec<(&'static str, Vec<String>)> {
    let Known { now, campaign, subscription } = known;
    let app = "/v1/apps/shop";
    let back = |hours: i64| (*now - TimeDelta::hours(hours)).format("%Y-%m-%dT%H:%M:%SZ").to_string();
    let span = |hours: i64| format!("since={}&until={}", back(hours), back(0));
    let month = format!("{}&step=1d", span(29 * 24));
    let letters = harness.api.get(&format!("{app}/dead-letters?state=open&limit=1")).await;
    let letter = letters["data"][0]["id"].as_str().expect("an open dead letter").to_owned();
    let lanes = harness.api.get("/v1/gateways?app=shop").await;
    let lane = lanes["data"][0]["lane"].as_i64().expect("a lane");
    let about = |of: &str| {
        vec![
            format!("{of}/metrics?{}&step=1m&measures=accepted,gone,expired,dead,cancelled,capped", span(1)),
            format!("{of}/metrics?{}&measures=latency_p50,latency_p90,latency_p95,latency_p99,accepted", span(1)),
            format!("{of}/metrics?{}&measures=accepted,receipts_asked,displayed,clicked", span(24)),
            format!("{of}/flow"),
            "/v1/gateways?limit=250".to_owned(),
            "/v1/alerts?limit=50".to_owned(),
            format!("{app}/dead-letters/groups?by=reason&state=open"),
            format!("{of}/metrics/reliability"),
            format!("{of}/metrics/reliability?until={}", back(1)),
        ]
    };
    let to = format!("{app}/messages/{campaign}/deliveries/{subscription}");
    let of_app = |paths: &[&str]| paths.iter().map(|path| format!("{app}/{path}")).collect::<Vec<_>>();
    vec![
        ("Overview of all apps", about("/v1")),
        ("Overview of an app", about(app)),
        ("Messages", of_app(&["messages?limit=25", "topics?limit=250"])),
        ("Messages that are done", of_app(&["messages?limit=25&state=done"])),
        ("Messages of a tier that has none", of_app(&["messages?limit=25&tier=engagement"])),
        ("A message under way", of_app(&[&format!("messages/{campaign}"), &format!("messages/{campaign}/content")])),
        ("Composer", of_app(&["calendar", "policies/presets", "topics?limit=250"])),
        (
            "Deliveries of a person",
            of_app(&["deliveries?user_id=user-7&limit=50", "subscriptions?user_id=user-7&limit=20"]),
        ),
        (
            "Deliveries of a device that died",
            of_app(&[&format!("deliveries?subscription={subscription}&state=dead&limit=50")]),
        ),
        ("Deliveries of a message", of_app(&[&format!("deliveries?message={campaign}&limit=50")])),
        (
            "Waiting deliveries of a message",
            of_app(&[&format!("deliveries?message={campaign}&state=retrying&limit=50")]),
        ),
        (
            "One delivery",
            vec![
                format!("{to}/explain"),
                to,
                format!("{app}/deliveries?message={campaign}&subscription={subscription}"),
                format!("{app}/subscriptions/{subscription}"),
            ],
        ),
        (
            "Lanes",
            vec![
                "/v1/gateways?limit=100".to_owned(),
                format!("/v1/metrics?{}&measures=attempts,error_rate&by=lane", span(1)),
            ],
        ),
        (
            "One lane",
            vec![
                format!("/v1/gateways/{lane}"),
                format!("/v1/gateways/{lane}/flow"),
                format!("{app}/metrics?{}&measures=attempts&by=status&lane={lane}", span(1)),
            ],
        ),
        (
            "Dead letters",
            vec![
                format!("{app}/dead-letters/groups?by=reason&state=open"),
                format!("{app}/dead-letters/groups?by=reason&state=open&since={}", back(24)),
                format!("{app}/dead-letters/groups?by=reason&state=open&since={}&until={}", back(48), back(24)),
                format!("{app}/dead-letters?state=open&reason=retries_exhausted&limit=50"),
            ],
        ),
        ("One dead letter", of_app(&[&format!("dead-letters/{letter}")])),
        (
            "Subscribers",
            vec![
                format!("{app}/metrics?{month}&measures=subscriptions_won,subscriptions_active"),
                format!("{app}/metrics?{month}&measures=subscriptions_lost&by=reason"),
                format!(
                    "{app}/metrics?{}&measures=subscriptions_active,subscriptions_won,subscriptions_lost&by=gateway",
                    span(29 * 24)
                ),
                format!("{app}/vapid-keys?limit=50"),
                "/v1/gateways?limit=250".to_owned(),
                format!("{app}/subscriptions?limit=50"),
            ],
        ),
        ("Subscribers with a tag that few have", of_app(&["subscriptions?tag=rare&limit=50"])),
        (
            "One person",
            of_app(&["subscriptions?user_id=user-7&limit=50", "deliveries?user_id=user-7&limit=8", "calendar"]),
        ),
        ("Policies", of_app(&["policies", "policies/presets", "flow"])),
        (
            "Settings",
            vec![
                "/v1/apps".to_owned(),
                app.to_owned(),
                format!("{app}/vapid-keys"),
                format!("{app}/api-keys"),
                format!("{app}/identity-keys"),
                format!("{app}/calendar"),
            ],
        ),
        ("Audit log", vec!["/v1/audit-log?limit=50".to_owned(), format!("{app}/audit-log?limit=50")]),
        ("Checks", vec!["/v1/checks".to_owned()]),
    ]
}

/// Writes what two busy days leave. Returns the campaign that still waits for retries.
async fn fill(pool: &PgPool, app: AppId, messages: i64, now: Timestamp) -> MessageId {
    let mut connection = pool.acquire().await.expect("a connection");
    sqlx::query("SET statement_timeout = 0").execute(&mut *connection).await.expect("it is ours");
    let per_message = sqlx::query(
        "UPDATE subscriptions s SET user_id = 'user-' || (n / 2), tags = CASE WHEN n % 20000 = 0 THEN ARRAY['rare'] ELSE ARRAY['reader'] END
         FROM (SELECT shard, id, row_number() OVER (ORDER BY id) AS n FROM subscriptions WHERE app = $1) numbered
         WHERE s.shard = numbered.shard AND s.id = numbered.id",
    );
    per_message.bind(app.0).execute(&mut *connection).await.expect("people");
    write(&mut connection, app, messages, now).await;
    for table in
        ["subscriptions", "messages", "message_counts", "attempts", "receipts", "dead_letters", "queue", "audit_log"]
    {
        let vacuum = format!("VACUUM ANALYZE {table}");
        sqlx::query(sqlx::AssertSqlSafe(vacuum)).execute(&mut *connection).await.expect("a vacuum");
    }
    sqlx::query("CHECKPOINT").execute(&mut *connection).await.expect("a checkpoint");
    let newest = "SELECT id FROM messages WHERE app = $1 AND audience_estimate > 1 ORDER BY id DESC LIMIT 1";
    let newest = sqlx::query_scalar(newest).bind(app.0).fetch_one(&mut *connection).await;
    MessageId(newest.expect("a campaign"))
}

/// Gives every campaign sealed content that can be opened: the content of a message without recipients.
async fn seal(harness: &Harness, app: AppId) {
    let content =
        json!({"title": "Fresh in the shop", "body": "Half price until Sunday", "url": "https://example.com/new"});
    let sent = harness.send(app, &json!({"to": {"users": ["nobody"]}, "content": content})).await;
    let sealed: Vec<u8> = sqlx::query_scalar("SELECT content FROM messages WHERE id = $1")
        .bind(sent.0)
        .fetch_one(&harness.pool)
        .await
        .expect("it was just sent");
    let content = harness.vault.open(vault::CONTENT, sent.0, &sealed).expect("our own key");
    let campaigns = sqlx::query_scalar("SELECT id FROM messages WHERE app = $1 AND audience_estimate > 1").bind(app.0);
    for id in campaigns.fetch_all(&harness.pool).await.expect("campaigns") {
        let id: uuid::Uuid = id;
        let sealed = harness.vault.seal(vault::CONTENT, id, &content);
        let written = sqlx::query("UPDATE messages SET content = $2 WHERE id = $1").bind(id).bind(sealed);
        written.execute(&harness.pool).await.expect("a row");
    }
}

/// Rows of messages and of what became of them, from ids made for their times: UUIDv7 by hand, since Postgres 15 makes none.
async fn write(connection: &mut PgConnection, app: AppId, messages: i64, now: Timestamp) {
    let id_at =
        "(lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || substr(md5(at::text || n), 1, 3)
                  || '8' || substr(md5(n::text), 1, 15))::uuid";
    let statements = [
        format!(
            "INSERT INTO messages (id, app, tier, state, audience, content, ttl_s, urgency, audience_estimate, accepted_at, expires_at)
             SELECT {id_at}, $1, 1 + (n > 0)::integer, 'sending', CASE WHEN n > 0 THEN '{{\"all\": true}}' ELSE '{{\"users\": [\"user-7\"]}}' END::jsonb,
                    '\\x00', 172800, 2, CASE WHEN n > 0 THEN (SELECT count(*) FROM subscriptions WHERE app = $1) ELSE 1 END,
                    at, at + interval '2 days'
             FROM (SELECT n, $2::timestamptz - interval '40 hours' * abs(n) / CASE WHEN n > 0 THEN $3 ELSE {SINGLE} END AS at
                   FROM generate_series(-{SINGLE}, $3) AS n WHERE n <> 0) AS times"
        ),
        // The newest has 95 in 100 waiting, each other one a dead one in a hundred.
        "INSERT INTO attempts (message, subscription, attempt, shard, at, ending, status, took_ms, reason)
         SELECT m.id, s.id, 0, s.shard, m.accepted_at + interval '1 s',
                CASE WHEN m.id = (SELECT id FROM messages WHERE app = $1 AND audience_estimate > 1 ORDER BY id DESC LIMIT 1) AND s.n % 20 <> 0 THEN 2
                     WHEN s.n % 100 = 1 THEN 5 ELSE 1 END,
                CASE WHEN s.n % 100 = 1 THEN 503 ELSE 201 END, 40, CASE WHEN s.n % 100 = 1 THEN 'try later' END
         FROM messages m
              JOIN (SELECT *, row_number() OVER (ORDER BY id) AS n FROM subscriptions WHERE app = $1) s
                ON m.audience_estimate > 1 OR s.user_id = 'user-7'
         WHERE m.app = $1 AND $2::timestamptz IS NOT NULL AND $3::bigint > 0 ORDER BY m.id, s.id"
            .to_owned(),
        "INSERT INTO queue (shard, subscription, message, lane, tier, retries, due_at, scheduled_at, token)
         SELECT a.shard, a.subscription, a.message, s.lane, 2, 1, due, due, '\\x00'
         FROM (SELECT *, $2::timestamptz + interval '1 day' * (1 + random()) AS due FROM attempts
               WHERE ending = 2 AND $3::bigint > 0) a
              JOIN subscriptions s ON s.shard = a.shard AND s.id = a.subscription WHERE s.app = $1"
            .to_owned(),
        "INSERT INTO message_counts (message, lane, targeted, accepted, dead)
         SELECT a.message, s.lane, count(*), count(*) FILTER (WHERE a.ending = 1), count(*) FILTER (WHERE a.ending = 5)
         FROM attempts a JOIN subscriptions s ON s.shard = a.shard AND s.id = a.subscription
         WHERE s.app = $1 AND $2::timestamptz IS NOT NULL AND $3::bigint > 0 GROUP BY a.message, s.lane"
            .to_owned(),
        "WITH reported AS (
           INSERT INTO receipts (message, subscription, kind, shard, at)
           SELECT message, subscription, 1, shard, at + interval '1 min' FROM attempts
           WHERE ending = 1 AND get_byte(uuid_send(subscription), 14) % 10 = 0 RETURNING message)
         INSERT INTO receipt_counts (message, acknowledged, displayed)
         SELECT r.message, count(*), count(*) FROM reported r JOIN messages m ON m.id = r.message
         WHERE m.app = $1 AND $2::timestamptz IS NOT NULL AND $3::bigint > 0 GROUP BY r.message"
            .to_owned(),
        "INSERT INTO dead_letters (shard, id, app, message, subscription, lane, tier, reason, status, detail, retries, at)
         SELECT a.shard, (substr(a.message::text, 1, 18) || substr(gen_random_uuid()::text, 19))::uuid, $1, a.message, a.subscription, s.lane, 2,
                CASE WHEN get_byte(uuid_send(a.subscription), 13) % 3 = 0 THEN 'forbidden' ELSE 'retries_exhausted' END, 503, 'try later', 5, a.at
         FROM attempts a JOIN subscriptions s ON s.shard = a.shard AND s.id = a.subscription
         WHERE a.ending = 5 AND s.app = $1 AND $2::timestamptz IS NOT NULL AND $3::bigint > 0"
            .to_owned(),
        format!(
            "INSERT INTO audit_log (id, at, app, actor_kind, action, target, n, detail)
             SELECT {id_at}, at, $1, 'local', 'message.paused', 'msg', 1, '{{}}'
             FROM (SELECT n, $2::timestamptz - n * interval '1 s' AS at FROM generate_series(1, {AUDITED}) AS n
                   WHERE $3::bigint > 0) AS times"
        ),
    ];
    for statement in statements {
        let query = sqlx::query(sqlx::AssertSqlSafe(statement)).bind(app.0).bind(now).bind(messages);
        query.execute(&mut *connection).await.expect("the rows are right");
    }
    // What was just written is not charted yet: folding would go on for minutes beside what is measured.
    tokio::time::sleep(Duration::from_secs(2)).await;
}
