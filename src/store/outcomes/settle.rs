//! How work comes back: what became of a batch or of queue rows is written once, behind a fence.
//!
//! Each settling begins by deleting (or, for a row that stays, updating) what was leased, under its lease. Only what
//! that touched is written. Zero touched after a lost connection means that the first try was committed, or that
//! another worker took over: either way somebody else's account of it stands, and ours is dropped and counted.

mod rows;

use std::collections::BTreeMap;

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

pub use rows::settle_rows;

use crate::classify::DeadReason;
use crate::model::clock::Timestamp;
use crate::model::delivery::{Ending, Tier};
use crate::model::id::{AppId, LaneId, MessageId, SubscriptionId};
use crate::policy::token::Queued;
use crate::store::outcomes::copy::Rows;
use crate::store::outcomes::tally::{Tally, minute};
use crate::store::{audience::refusals, outcomes::endings};
use crate::vault::Vault;

/// One POST and its outcome, or an ending without a POST.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// 0 for the first POST of the delivery.
    pub number: u32,
    /// When the answer was known.
    pub at: Timestamp,
    /// What it meant.
    pub ending: Ending,
    /// HTTP status; `None` without an answer or a POST.
    pub status: Option<u16>,
    /// From the start of the POST to the answer; `None` without a POST.
    pub took_ms: Option<u32>,
    /// Why, for everything but an acceptance: at most 500 octets, without NUL.
    pub reason: Option<Box<str>>,
}

/// When a delivery that stays in the queue may be claimed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// At this time.
    At(Timestamp),
    /// At this time, which its subscription's throttle has given it as its turn.
    Turn(Timestamp),
    /// At this time, when its lane should be open again. The policy wanted it sent now, by which it is known: should the
    /// lane open sooner, [`recall`](crate::store::queue::recall) finds it.
    Reopening(Timestamp),
    /// When its message is resumed.
    Parked,
}

impl Due {
    /// The column `due_at`, but for what is parked, which is due at infinity.
    fn time(self, now: Timestamp) -> Timestamp {
        match self {
            Due::At(at) | Due::Turn(at) | Due::Reopening(at) => at,
            Due::Parked => now,
        }
    }

    fn is_turn(self) -> bool {
        matches!(self, Due::Turn(_))
    }
}

/// Where a delivery stands after its turn.
#[derive(Debug, Clone)]
pub enum Fate {
    /// Over. The last attempt says how; `dead` why, if it died.
    Ended(Ending, Option<Box<Death>>),
    /// It has to be attempted again, with so many attempts that a retry followed.
    Retry {
        /// Attempts made.
        retries: u32,
        /// When the policy wants the next one.
        due: Timestamp,
    },
    /// It did not have its turn: no attempt was made, none is counted.
    Deferred(Due),
    /// Only in a batch: the POST is under way. It becomes a row that is leased under the batch's lease.
    InFlight {
        /// Attempts made so far.
        retries: u32,
        /// When that lease runs out.
        lease_until: Timestamp,
    },
}

/// Why a delivery died, for its dead letter.
#[derive(Debug, Clone)]
pub struct Death {
    /// The dead letter's id.
    pub id: Uuid,
    /// Why.
    pub reason: DeadReason,
    /// The gateway's words.
    pub detail: Option<Box<str>>,
    /// The policy in force.
    pub policy: Option<serde_json::Value>,
}

/// What became of one delivery.
#[derive(Debug, Clone)]
pub struct Settlement {
    /// To whom.
    pub subscription: SubscriptionId,
    /// What.
    pub message: MessageId,
    /// Whose.
    pub app: AppId,
    /// Its lane.
    pub lane: LaneId,
    /// Its tier.
    pub tier: Tier,
    /// The life of its subscription that it is for.
    pub life: i32,
    /// Whether its subscription is known to be proven: see [`refusals`].
    pub proven: bool,
    /// If it was accepted later than its app wants, or never will be: within how many seconds that should have been.
    pub sla_missed_s: Option<u32>,
    /// What was tried, in order; empty for a delivery without a turn.
    pub attempts: Vec<Attempt>,
    /// Where it stands.
    pub fate: Fate,
}

impl Settlement {
    /// What the token of its queue row signs.
    fn queued(&self, retries: u32, scheduled_at: Timestamp) -> Queued {
        Queued { message: self.message, subscription: self.subscription, retries, scheduled_at }
    }

    /// When the attempt that a retry follows failed.
    fn failed_at(&self) -> Option<Timestamp> {
        match self.fate {
            Fate::Retry { .. } => self.attempts.last().map(|attempt| attempt.at),
            _ => None,
        }
    }
}

/// A settled queue row, with the lease it was claimed under.
#[derive(Debug, Clone)]
pub struct RowSettlement {
    /// The fence.
    pub lease: Uuid,
    /// What became of it.
    pub settlement: Settlement,
}

/// Whether the fence let a settling through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fenced {
    /// It was ours, and is written.
    Written,
    /// It was not ours any more; nothing was written.
    Out,
}

/// Settles a batch whole: closes it, logs every attempt, counts, prunes, and turns whatever is not over into rows. Where that
/// changes subscriptions it counts last (see [the order of locks](super)), otherwise at once, which saves statements.
pub(crate) async fn settle_batch(
    pool: &PgPool,
    vault: &Vault,
    batch: Uuid,
    lease: Uuid,
    settlements: &[Settlement],
    now: Timestamp,
) -> sqlx::Result<Fenced> {
    let Some(first) = settlements.first() else { return Ok(Fenced::Out) };
    let counted_last = settlements.iter().any(endings::changes_subscription);
    let mut tx = pool.begin().await?;
    let count =
        |ending| settlements.iter().filter(|s| matches!(&s.fate, Fate::Ended(e, _) if *e == ending)).count() as i64;
    let (rolled, ns) = rollup(settlements);
    let fenced = sqlx::query_scalar!(
        r#"
        WITH fence AS (DELETE FROM batches WHERE id = $1 AND lease = $2 RETURNING message, lane, tier),
        counted AS (
            UPDATE message_counts AS c
            SET accepted = c.accepted + $3, gone = c.gone + $4, expired = c.expired + $5, dead = c.dead + $6,
                cancelled = c.cancelled + $7, capped = c.capped + $8
            FROM fence WHERE c.message = fence.message AND c.lane = fence.lane AND NOT $12
            RETURNING c.lane
        ),
        rolled AS (
            INSERT INTO rollups AS r (minute, lane, tier, ending, n)
            SELECT $9, fence.lane, fence.tier, e.ending, e.n
            FROM fence, unnest($10::smallint[], $11::bigint[]) AS e (ending, n),
                 (SELECT count(*) FROM counted) AS after -- the account first
            WHERE NOT $12 ORDER BY e.ending
            ON CONFLICT (minute, lane, tier, ending) DO UPDATE SET n = r.n + excluded.n
        )
        SELECT count(*) AS "n!" FROM fence
        "#,
        batch,
        lease,
        count(Ending::Accepted),
        count(Ending::Gone),
        count(Ending::Expired),
        count(Ending::Dead),
        count(Ending::Cancelled),
        count(Ending::Capped),
        minute(now),
        &rolled,
        &ns,
        counted_last,
    )
    .fetch_one(&mut *tx)
    .await?;
    if fenced == 0 {
        return Ok(Fenced::Out);
    }
    log_attempts(&mut tx, settlements).await?;
    queue_rest(&mut tx, vault, first, lease, settlements, now).await?;
    let tally = if counted_last { Tally::of(settlements.iter()) } else { Tally::default() };
    endings::lock(&mut tx, settlements.iter()).await?;
    refusals::count(&mut tx, settlements.iter(), now).await?;
    endings::write(&mut tx, settlements.iter(), tally, now).await?; // last: see there
    tx.commit().await?;
    Ok(Fenced::Written)
}

/// Attempts by ending, as two arrays in the order of the rollups' key.
fn rollup<'a>(settlements: impl IntoIterator<Item = &'a Settlement>) -> (Vec<i16>, Vec<i64>) {
    let mut by_ending = BTreeMap::new();
    for attempt in settlements.into_iter().flat_map(|settlement| &settlement.attempts) {
        *by_ending.entry(attempt.ending.code()).or_insert(0i64) += 1;
    }
    by_ending.into_iter().unzip()
}

async fn log_attempts(connection: &mut PgConnection, settlements: &[Settlement]) -> sqlx::Result<()> {
    let mut rows = Rows::new(9, settlements.len());
    let mut any = false;
    for settlement in settlements {
        for attempt in &settlement.attempts {
            any = true;
            rows.row()
                .uuid(settlement.message.0)
                .uuid(settlement.subscription.0)
                .integer(stored(attempt.number))
                .smallint(settlement.subscription.shard())
                .timestamp(attempt.at)
                .smallint(attempt.ending.code())
                .smallint_or_null(attempt.status.map(stored_status))
                .integer_or_null(attempt.took_ms.map(stored))
                .text_or_null(attempt.reason.as_deref());
        }
    }
    if !any {
        return Ok(());
    }
    const COPY: &str = "COPY attempts (message, subscription, attempt, shard, at, ending, status, took_ms, reason) \
                        FROM STDIN (FORMAT binary)";
    rows.send(connection, COPY).await
}

/// A number as Postgres's `integer` holds it; what does not fit is as good as the largest.
fn stored(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn stored_status(status: u16) -> i16 {
    i16::try_from(status).unwrap_or(i16::MAX)
}

/// Inserts a queue row for every delivery of a batch that is not over.
async fn queue_rest(
    connection: &mut PgConnection,
    vault: &Vault,
    batch: &Settlement,
    lease: Uuid,
    settlements: &[Settlement],
    now: Timestamp,
) -> sqlx::Result<()> {
    let mut rest = Rest::default();
    for settlement in settlements {
        rest.push(vault, settlement, lease, now);
    }
    if rest.subscriptions.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        r#"
        INSERT INTO queue (shard, subscription, message, lane, tier, retries, due_at, scheduled_at, lease, leases, token,
                           failed_at, has_turn, life)
        SELECT r.shard, r.subscription, $1, $2, $3, r.retries,
               -- Whoever settles may have slept through the resume.
               CASE WHEN r.parked AND (SELECT state FROM messages WHERE id = $1) = 'paused' THEN 'infinity' ELSE r.due END,
               r.scheduled, r.lease, CASE WHEN r.lease IS NULL THEN 0 ELSE 1 END, r.token, r.failed_at, r.has_turn, r.life
        FROM unnest($4::smallint[], $5::uuid[], $6::integer[], $7::timestamptz[], $8::boolean[], $9::timestamptz[],
                    $10::uuid[], $11::bytea[], $12::timestamptz[], $13::boolean[], $14::integer[])
            AS r (shard, subscription, retries, due, parked, scheduled, lease, token, failed_at, has_turn, life)
        "#,
        batch.message.0,
        batch.lane.0,
        batch.tier.code(),
        &rest.shards,
        &rest.subscriptions,
        &rest.retries,
        &rest.dues,
        &rest.parked,
        &rest.scheduled,
        &rest.leases as &[Option<Uuid>],
        &rest.tokens,
        &rest.failed_at as &[Option<Timestamp>],
        &rest.has_turn,
        &rest.lives,
    )
    .execute(connection)
    .await
    .map(drop)
}

/// The arrays of [`queue_rest`]: a row an element.
#[derive(Default)]
struct Rest {
    shards: Vec<i16>,
    subscriptions: Vec<Uuid>,
    retries: Vec<i32>,
    dues: Vec<Timestamp>,
    parked: Vec<bool>,
    scheduled: Vec<Timestamp>,
    leases: Vec<Option<Uuid>>,
    tokens: Vec<Vec<u8>>,
    failed_at: Vec<Option<Timestamp>>,
    has_turn: Vec<bool>,
    lives: Vec<i32>,
}

impl Rest {
    fn push(&mut self, vault: &Vault, settlement: &Settlement, lease: Uuid, now: Timestamp) {
        let (retries, due, scheduled, leased) = match settlement.fate {
            Fate::Ended(..) => return,
            Fate::Retry { retries, due } => (retries, Due::At(due), due, None),
            Fate::Deferred(due @ Due::Reopening(_)) => (0, due, now, None),
            Fate::Deferred(due) => (0, due, due.time(now), None),
            Fate::InFlight { retries, lease_until } => (retries, Due::At(lease_until), now, Some(lease)),
        };
        self.shards.push(settlement.subscription.shard());
        self.subscriptions.push(settlement.subscription.0);
        self.retries.push(stored(retries));
        self.dues.push(due.time(now));
        self.parked.push(due == Due::Parked);
        self.scheduled.push(scheduled);
        self.leases.push(leased);
        self.tokens.push(settlement.queued(retries, scheduled).sign(vault).to_vec());
        self.failed_at.push(settlement.failed_at());
        self.has_turn.push(due.is_turn());
        self.lives.push(settlement.life);
    }
}
