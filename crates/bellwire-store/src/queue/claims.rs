//! Claims: finds due lanes, claims queue rows, takes batches, and leases lost batches again.
//!
//! These statements run on connections that allow only index plans (see [`crate::connect`]), because tables that fill and empty
//! within seconds have no usable statistics. Rows are selected by an array of `ctid`, because `IN (SELECT … LIMIT n)` may
//! return more than `n` under some plans.

mod batches;
mod citus;
mod cursors;
mod cut;
pub mod due;
mod filtered;
mod recipient;
pub mod walk;

use std::collections::HashSet;
use std::time::Duration;

use sqlx::PgPool;
use uuid::Uuid;

use crate::connections::engine;
pub use batches::{Batch, renew_batches, split_batch};
pub use batches::{TakeBatchResult, lease_lost_batch, take_batch};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{MessageId, SubscriptionId};
use bellwire_core::message::MessageState;
use bellwire_core::subscription::SubscriptionState;
use bellwire_rules::policy::precedence::LETS_PASS;
use bellwire_vault::Vault;
use bellwire_vault::retry_token::Queued;
pub use cursors::{next_cursor, postpone_cursor};
pub use due::{DueLane, WorkTable};
pub use due::{DueSpan, due_lanes};
use recipient::RecipientRow;
pub use recipient::{Recipient, Sendability};

/// Duration of a lease. A crashed worker loses its claims at its end.
pub const LEASE: Duration = Duration::from_secs(30);
/// Validity of a throttle's slot. A delivery that misses its slot, because no worker ran, requests another one, so that waiting
/// deliveries do not leave all at once.
const TURN_KEPT: Duration = Duration::from_secs(1);

/// A queue row under this worker's lease.
#[derive(Debug)]
pub struct ClaimedRow {
    /// Recipient of the delivery.
    pub recipient: Recipient,
    /// Message of the delivery.
    pub message: MessageId,
    /// Number of failed attempts before.
    pub retries: u32,
    /// Planned time of the attempt.
    pub scheduled_at: Timestamp,
    /// Number of claims, this one included.
    pub leases: i16,
    /// Signature of the row: see [`bellwire_vault::retry_token`].
    pub token: Vec<u8>,
    /// Time at which the previous attempt failed.
    pub failed_at: Option<Timestamp>,
    /// Whether its subscription's throttle has assigned the current time as its slot.
    pub has_turn: bool,
    /// Whether the attempt is in the log already.
    pub is_recorded: bool,
    /// Whether its lane and tier are still those of subscription and message.
    pub is_in_place: bool,
}

/// Declares a statement that claims rows by precedence, and selects `$select` from `claimed`.
macro_rules! claimed {
    ($query:ident, [$($row:ident)?], $select:literal, $span:ident, $limit:ident, $lease:ident, $until:ident) => {
        sqlx::$query!(
            $($row,)?
            r#"
        WITH first AS (
            SELECT ctid AS place, due_at, retries > 0 AND NOT has_turn AS lets_pass,
                   due_at + CASE WHEN has_turn THEN 0 ELSE $9::float8 * retries / (retries + 1) END * interval '1 second' AS rank
            FROM queue WHERE lane = $1 AND tier = $2 AND due_at BETWEEN $8 AND $4
            ORDER BY due_at LIMIT $3 FOR UPDATE SKIP LOCKED
        ),
        passing AS (
            SELECT ctid AS place,
                   due_at + CASE WHEN has_turn THEN 0 ELSE $9 * retries / (retries + 1) END * interval '1 second' AS rank
            FROM queue
            WHERE ctid = ANY (ARRAY(
                    SELECT ctid FROM queue WHERE lane = $1 AND tier = $2 AND due_at BETWEEN (SELECT max(due_at) FROM first) AND $4
                           AND due_at < (SELECT max(rank) FROM first WHERE lets_pass)
                    ORDER BY due_at LIMIT $3 * 4))
              AND lane + 0 = $1 AND tier + 0 = $2 AND due_at + interval '0' <= $4 -- what no index helps to look for
              AND due_at + CASE WHEN has_turn THEN 0 ELSE $9 * retries / (retries + 1) END * interval '1 second'
                  < (SELECT max(rank) FROM first WHERE lets_pass)
            ORDER BY rank LIMIT $3 * 2 FOR UPDATE SKIP LOCKED
        ),
        claimed AS (
            UPDATE queue SET lease = $5, leases = leases + 1, due_at = $6,
                             has_turn = has_turn AND lease IS NULL AND due_at > $7
            WHERE ctid = ANY (ARRAY(
                SELECT place FROM (SELECT place, rank FROM first UNION SELECT place, rank FROM passing) AS candidates
                ORDER BY rank LIMIT $3))
            RETURNING shard, subscription, message, lane, tier, retries, scheduled_at, leases, token, failed_at, has_turn, life
        )
        "# + $select,
            $span.lane.0,
            $span.tier.code(),
            i64::try_from($limit).unwrap_or(i64::MAX),
            $span.now,
            $lease,
            $until,
            $span.now - TURN_KEPT,
            $span.since,
            LETS_PASS.as_secs_f64(),
        )
    };
}
use claimed;

/// Claims up to `limit` due rows of a lane and tier under `lease` until `until`, in order of
/// [precedence](bellwire_rules::policy::precedence): those due for longest, except that retried rows let newer ones pass. These
/// are searched among four times as many rows, if any was tried before. A row with a throttle slot, which expires, lets no row
/// pass. The function is long because of its statement.
pub async fn claim_rows(
    pool: &PgPool, span: DueSpan, limit: usize, lease: Uuid, until: Timestamp,
) -> sqlx::Result<Vec<ClaimedRow>> {
    if engine::is_distributed() {
        return citus::claim_rows(pool, span, limit, lease, until).await;
    }
    let rows = claimed!(
        query,
        [],
        r#"
        SELECT c.subscription AS "subscription!", c.message AS "message!", c.retries AS "retries!", c.scheduled_at AS "scheduled_at!",
               c.leases AS "leases!", c.token AS "token!", c.failed_at, c.has_turn AS "has_turn!", c.life AS "life!",
               s.origin_id AS "origin_id?", s.address AS "address?", s.state AS "state?: SubscriptionState", s.policy, s.muted_until, s.timezone,
               s.user_id, s.proven AS "proven?", m.state AS "message_state!: MessageState", s.replaced_by IS NOT NULL AS "has_successor!",
               coalesce(c.life < s.revived OR c.life < s.life AND m.audience ?| ARRAY['users', 'subscriptions'], false)
                   AS "is_past!",
               coalesce(s.lane = c.lane, true) AND m.tier = c.tier AS "is_in_place!",
               EXISTS (SELECT FROM attempts a WHERE a.message = c.message AND a.subscription = c.subscription
                       AND a.attempt = c.retries AND a.shard = c.shard) AS "is_recorded!"
        FROM claimed c
        JOIN messages m ON m.id = c.message
        LEFT JOIN subscriptions s ON s.shard = c.shard AND s.id = c.subscription
        "#,
        span,
        limit,
        lease,
        until
    )
    .fetch_all(pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| ClaimedRow {
            recipient: RecipientRow {
                id: row.subscription,
                origin_id: row.origin_id,
                address: row.address,
                state: row.state,
                has_successor: row.has_successor,
                is_past: row.is_past,
                policy: row.policy,
                muted_until: row.muted_until,
                timezone: row.timezone,
                user_id: row.user_id,
                proven: row.proven,
                life: Some(row.life),
            }
            .of(row.message_state),
            message: MessageId(row.message),
            retries: u32::try_from(row.retries).unwrap_or(0),
            scheduled_at: row.scheduled_at,
            leases: row.leases,
            token: row.token,
            failed_at: row.failed_at,
            has_turn: row.has_turn,
            is_recorded: row.is_recorded,
            is_in_place: row.is_in_place,
        })
        .collect())
}

/// Claimed rows that were not processed, because the database could not be read.
#[derive(Debug)]
pub enum Unopened {
    Rows(Vec<(SubscriptionId, MessageId)>),
    Batch(Uuid),
}

/// Requeues rows claimed under `lease`: they are due now, and the claim is not counted.
pub async fn give_back(pool: &PgPool, lease: Uuid, unopened: &Unopened, now: Timestamp) -> sqlx::Result<()> {
    match unopened {
        Unopened::Batch(batch) => {
            execute!(
                pool,
                "UPDATE batches SET due_at = $3, leases = leases - 1 WHERE id = $1 AND lease = $2",
                (batch, lease, now)
            )?
        }
        Unopened::Rows(rows) => {
            execute!(
                pool,
                "UPDATE queue q SET lease = NULL, leases = leases - 1, due_at = $5
                 FROM unnest($1::smallint[], $2::uuid[], $3::uuid[]) AS g (shard, subscription, message)
                 WHERE q.shard = g.shard AND q.subscription = g.subscription AND q.message = g.message AND q.lease = $4",
                rows,
                |(subscription, message)| (subscription.shard(), *subscription, *message),
                (lease, now)
            )?
        }
    };
    Ok(())
}

/// Renews the leases of rows. Rows that are being settled are skipped, because no other worker can claim them.
pub async fn renew_rows(
    pool: &PgPool, held: &[(SubscriptionId, MessageId, Uuid)], until: Timestamp,
) -> sqlx::Result<()> {
    execute!(
        pool,
        "UPDATE queue SET due_at = $5 WHERE ctid = ANY (ARRAY(
           SELECT q.ctid FROM unnest($1::smallint[], $2::uuid[], $3::uuid[], $4::uuid[]) AS h (shard, subscription, message, lease)
           JOIN queue q ON q.shard = h.shard AND q.subscription = h.subscription AND q.message = h.message AND q.lease = h.lease
           FOR UPDATE OF q SKIP LOCKED))",
        held,
        |(subscription, message, lease)| (subscription.shard(), *subscription, *message, *lease),
        (until)
    )
}

/// Reads rows with outdated tokens again, and signs them. Returns the pairs of subscription and message that this worker may
/// still send.
pub async fn sign_again(
    pool: &PgPool, vault: &Vault, lease: Uuid, late: &[Queued],
) -> sqlx::Result<Vec<(SubscriptionId, MessageId)>> {
    let active = fetch_all!(
        pool,
        scalar,
        r#"/* read_active */
           SELECT s.id AS "id: SubscriptionId" FROM unnest($1::smallint[], $2::uuid[]) AS l (shard, id)
           JOIN subscriptions s ON s.shard = l.shard AND s.id = l.id WHERE s.state = 'active' AND s.shard = ANY ($1)"#,
        late,
        |queued| (queued.subscription.shard(), queued.subscription)
    )?;
    let active: HashSet<SubscriptionId> = active.into_iter().collect();
    let late: Vec<&Queued> = late.iter().filter(|queued| active.contains(&queued.subscription)).collect();
    let signed = fetch_all!(
        pool,
        r#"
        UPDATE queue q SET token = l.token
        FROM unnest($1::smallint[], $2::uuid[], $3::uuid[], $4::bytea[]) AS l (shard, subscription, message, token)
        JOIN messages m ON m.id = l.message
        WHERE q.shard = l.shard AND q.subscription = l.subscription AND q.message = l.message AND q.lease = $5
          AND m.state = 'sending'
        RETURNING q.subscription, q.message
        "#,
        late,
        |queued| (queued.subscription.shard(), queued.subscription, queued.message, queued.sign(vault).to_vec()),
        (lease)
    )?;
    Ok(signed.into_iter().map(|row| (SubscriptionId(row.subscription), MessageId(row.message))).collect())
}
