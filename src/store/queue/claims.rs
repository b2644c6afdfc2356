//! How work leaves the database: finding due lanes, claiming queue rows, taking batches, leasing lost batches again.
//!
//! These statements run on connections that plan by index only (see [`crate::store::connect`]): tables that fill and empty
//! within seconds have no statistics worth planning by. Rows are picked by `ctid` out of an array, because
//! `IN (SELECT … LIMIT n)` may pick more than `n` under some plans.

mod batches;

use std::time::Duration;

pub(crate) use batches::{Batch, next_cursor, postpone_cursor, renew_batches, split_batch};
pub use batches::{Taken, lease_lost_batch, take_batch};
use serde_json::Value;
use sqlx::PgPool;
use uuid::Uuid;

use crate::model::clock::Timestamp;
use crate::model::delivery::Tier;
use crate::model::id::{AppId, LaneId, MessageId, SubscriptionId};
use crate::model::message::MessageState;
use crate::model::subscription::SubscriptionState;
use crate::policy::token::Queued;
use crate::vault::Vault;

/// How long a claim is its worker's. A worker that dies loses its claims after this.
pub const LEASE: Duration = Duration::from_secs(30);
/// A turn that a throttle gave is good for so long. What has missed it, because no worker was there, asks for another one;
/// so what waited does not leave in one instant.
const TURN_KEPT: Duration = Duration::from_secs(1);

/// A (lane, tier) that has something to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueLane {
    /// The app it belongs to.
    pub app: AppId,
    /// Which lane.
    pub lane: LaneId,
    /// Which tier of it.
    pub tier: Tier,
    /// Where the work lies.
    pub sources: Sources,
}

/// The three tables that work is claimed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Deliveries that wait alone.
    Queue,
    /// Batches whose worker died.
    Batches,
    /// Messages still being fanned out.
    Cursors,
}

/// Of each [source](Source) that has something due, since when the first of it has been.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sources {
    /// Of [`Source::Queue`].
    pub queue: Option<Timestamp>,
    /// Of [`Source::Batches`].
    pub batches: Option<Timestamp>,
    /// Of [`Source::Cursors`].
    pub cursors: Option<Timestamp>,
}

impl Sources {
    /// Those of either.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let first = |one: Option<Timestamp>, other| one.into_iter().chain(other).min();
        Self {
            queue: first(self.queue, other.queue),
            batches: first(self.batches, other.batches),
            cursors: first(self.cursors, other.cursors),
        }
    }

    /// One by one, in the order in which they are drawn from: what has begun goes before what has not.
    pub fn iter(self) -> impl Iterator<Item = (Source, Timestamp)> {
        let all = [(Source::Queue, self.queue), (Source::Batches, self.batches), (Source::Cursors, self.cursors)];
        all.into_iter().filter_map(|(source, since)| Some((source, since?)))
    }
}

/// What is claimed of a lane and tier: what fell due within a time.
///
/// Its beginning is where the last look found the first. What lies before is dead: rows that were claimed or have ended, but
/// that a long snapshot, a backup's say, keeps Postgres from removing, so that each claim would walk over all of them. What
/// falls due earlier after all, since it was moved here or its commit was late, is what the next look finds first.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// Which lane.
    pub lane: LaneId,
    /// Which tier of it.
    pub tier: Tier,
    /// Its beginning.
    pub since: Timestamp,
    /// Its end: now.
    pub now: Timestamp,
}

impl Span {
    /// Everything that is due.
    pub fn all(lane: LaneId, tier: Tier, now: Timestamp) -> Self {
        Self { lane, tier, since: Timestamp::UNIX_EPOCH, now }
    }
}

/// Everything that is due, by tier, found by one skip scan of each table: a probe of the index for each (lane, tier) that
/// has rows at all, however many rows there are.
pub async fn due_lanes(pool: &PgPool, now: Timestamp) -> sqlx::Result<Vec<DueLane>> {
    let found = sqlx::query!(
        r#"
        WITH RECURSIVE
        q AS (
            (SELECT lane, tier, due_at FROM queue ORDER BY lane, tier, due_at LIMIT 1)
            UNION ALL
            SELECT n.lane, n.tier, n.due_at FROM q, LATERAL (
                SELECT lane, tier, due_at FROM queue WHERE (lane, tier) > (q.lane, q.tier)
                ORDER BY lane, tier, due_at LIMIT 1) n
        ),
        p AS (
            (SELECT lane, tier, due_at FROM batches ORDER BY lane, tier, due_at LIMIT 1)
            UNION ALL
            SELECT n.lane, n.tier, n.due_at FROM p, LATERAL (
                SELECT lane, tier, due_at FROM batches WHERE (lane, tier) > (p.lane, p.tier)
                ORDER BY lane, tier, due_at LIMIT 1) n
        ),
        c AS (
            (SELECT lane, tier, due_at FROM cursors ORDER BY lane, tier, due_at LIMIT 1)
            UNION ALL
            SELECT n.lane, n.tier, n.due_at FROM c, LATERAL (
                SELECT lane, tier, due_at FROM cursors WHERE (lane, tier) > (c.lane, c.tier)
                ORDER BY lane, tier, due_at LIMIT 1) n
        ),
        due AS (
            SELECT 0 AS source, lane, tier, due_at FROM q WHERE due_at <= $1
            UNION ALL SELECT 1, lane, tier, due_at FROM p WHERE due_at <= $1
            UNION ALL SELECT 2, lane, tier, due_at FROM c WHERE due_at <= $1
        )
        SELECT l.app, d.lane AS "lane!", d.tier AS "tier!", min(d.due_at) FILTER (WHERE d.source = 0) AS queue,
               min(d.due_at) FILTER (WHERE d.source = 1) AS batches, min(d.due_at) FILTER (WHERE d.source = 2) AS cursors
        FROM due d JOIN lanes l ON l.id = d.lane
        GROUP BY d.tier, d.lane, l.app ORDER BY d.tier, d.lane
        "#,
        now
    )
    .fetch_all(pool)
    .await?;
    Ok(found
        .into_iter()
        .filter_map(|row| {
            // Nothing checks the tier of a row that somebody wrote by hand. It is nobody's, and stops nobody's work.
            Some(DueLane {
                app: AppId(row.app),
                lane: LaneId(row.lane),
                tier: Tier::from_code(row.tier)?,
                sources: Sources { queue: row.queue, batches: row.batches, cursors: row.cursors },
            })
        })
        .collect())
}

/// Whether a claimed delivery may be sent, as the database stood when it was claimed. Whatever changes later comes
/// as a [stop](crate::store::queue::stops).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its subscription is active and its message is sending.
    Sendable,
    /// Its message is paused: park it.
    Paused,
    /// Its message was cancelled, its subscription unsubscribed, suspended or erased, or it was meant for an earlier life
    /// of it.
    Cancelled,
    /// Its subscription is gone or expired.
    Gone,
    /// Another subscription has taken the place of its own: it is for that one.
    Replaced,
}

/// What decides over the standing of a delivery.
struct Circumstances {
    /// The message's state.
    message: MessageState,
    /// The subscription's, if it exists.
    subscription: Option<SubscriptionState>,
    /// Whether another one is known to have taken its place.
    has_successor: bool,
    /// Whether the delivery was for an earlier life of it.
    is_past: bool,
}

impl Circumstances {
    /// From the names that the statements of the hot path read.
    fn read(message: &str, subscription: Option<&str>, has_successor: bool, is_past: bool) -> Self {
        const CHECKED: &str = "checked by the table";
        Self {
            message: MessageState::from_name(message).expect(CHECKED),
            subscription: subscription.map(|name| SubscriptionState::from_name(name).expect(CHECKED)),
            has_successor,
            is_past,
        }
    }
}

fn standing(circumstances: &Circumstances) -> Standing {
    use SubscriptionState::{Active, Expired, Gone, Replaced, Suspended, Unsubscribed};
    match (circumstances.message, circumstances.subscription) {
        (MessageState::Cancelled, _) => Standing::Cancelled,
        _ if circumstances.is_past => Standing::Cancelled,
        (_, Some(Gone | Expired)) => Standing::Gone,
        (_, Some(Replaced)) if circumstances.has_successor => Standing::Replaced,
        (_, None | Some(Unsubscribed | Replaced | Suspended)) => Standing::Cancelled,
        (MessageState::Paused, Some(Active)) => Standing::Paused,
        (MessageState::Scheduled | MessageState::Sending, Some(Active)) => Standing::Sendable,
    }
}

/// Whom a delivery goes to. The address is still sealed.
#[derive(Debug)]
pub struct Recipient {
    /// The subscription.
    pub subscription: SubscriptionId,
    /// The first id of this browser, from which the delivery's id is derived.
    pub origin_id: Uuid,
    /// Sealed p256dh, auth and endpoint; empty where there is nothing to send.
    pub address: Vec<u8>,
    /// Whether it may be sent.
    pub standing: Standing,
    /// Its subscription's own delivery policy.
    pub policy: Option<Value>,
    /// Its time zone (IANA), if its browser told.
    pub timezone: Option<String>,
    /// Whether a push service has accepted a push to it before.
    pub proven: bool,
    /// The life of the subscription that it is for.
    pub life: i32,
}

/// A queue row under our lease.
#[derive(Debug)]
pub struct ClaimedRow {
    /// Whom it goes to.
    pub recipient: Recipient,
    /// What is sent.
    pub message: MessageId,
    /// Attempts that a retry followed.
    pub retries: u32,
    /// When the policy wanted it sent.
    pub scheduled_at: Timestamp,
    /// How often it was claimed, this time included.
    pub leases: i16,
    /// Signs it: see [`crate::policy::token`].
    pub token: Vec<u8>,
    /// When the attempt before failed.
    pub failed_at: Option<Timestamp>,
    /// Whether its subscription's throttle has let it through for now.
    pub has_turn: bool,
    /// Whether the attempt that it asks for was made already.
    pub is_recorded: bool,
    /// Whether it waits in its subscription's lane and at its message's tier.
    pub is_in_place: bool,
}

/// Claims up to `limit` due rows of a lane and tier under `lease` until `until`.
pub async fn claim_rows(
    pool: &PgPool,
    span: Span,
    limit: usize,
    lease: Uuid,
    until: Timestamp,
) -> sqlx::Result<Vec<ClaimedRow>> {
    let rows = sqlx::query!(
        r#"
        WITH claimed AS (
            UPDATE queue SET lease = $5, leases = leases + 1, due_at = $6,
                             has_turn = has_turn AND lease IS NULL AND due_at > $7
            WHERE ctid = ANY (ARRAY(
                SELECT ctid FROM queue WHERE lane = $1 AND tier = $2 AND due_at BETWEEN $8 AND $4
                ORDER BY due_at LIMIT $3 FOR UPDATE SKIP LOCKED))
            RETURNING shard, subscription, message, lane, tier, retries, scheduled_at, leases, token, failed_at, has_turn, life
        )
        SELECT c.subscription, c.message, c.retries, c.scheduled_at, c.leases, c.token, c.failed_at, c.has_turn, c.life,
               s.origin_id AS "origin_id?", s.address AS "address?", s.state AS "subscription_state?", s.policy, s.timezone,
               s.proven AS "proven?", m.state AS message_state, s.replaced_by IS NOT NULL AS "has_successor!",
               coalesce(c.life < s.revived OR c.life < s.life AND m.audience ?| ARRAY['users', 'subscriptions'], false)
                   AS "is_past!",
               coalesce(s.lane = c.lane, true) AND m.tier = c.tier AS "is_in_place!",
               EXISTS (SELECT FROM attempts a WHERE a.message = c.message AND a.subscription = c.subscription
                       AND a.attempt = c.retries AND a.shard = c.shard) AS "is_recorded!"
        FROM claimed c
        JOIN messages m ON m.id = c.message
        LEFT JOIN subscriptions s ON s.shard = c.shard AND s.id = c.subscription
        "#,
        span.lane.0,
        span.tier.code(),
        i64::try_from(limit).unwrap_or(i64::MAX),
        span.now,
        lease,
        until,
        span.now - TURN_KEPT,
        span.since,
    )
    .fetch_all(pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| ClaimedRow {
            recipient: Recipient {
                subscription: SubscriptionId(row.subscription),
                origin_id: row.origin_id.unwrap_or_default(),
                address: row.address.unwrap_or_default(),
                standing: standing(&Circumstances::read(
                    &row.message_state,
                    row.subscription_state.as_deref(),
                    row.has_successor,
                    row.is_past,
                )),
                policy: row.policy,
                timezone: row.timezone,
                proven: row.proven.unwrap_or(false),
                life: row.life,
            },
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

/// What was claimed, but not opened, since the database could not be asked about it.
#[derive(Debug)]
pub(crate) enum Unopened {
    /// These deliveries, as queue rows.
    Rows(Vec<(SubscriptionId, MessageId)>),
    /// A batch.
    Batch(Uuid),
}

/// Gives back what was claimed under `lease`: it is due now, and the claim does not count.
pub(crate) async fn give_back(pool: &PgPool, lease: Uuid, unopened: &Unopened, now: Timestamp) -> sqlx::Result<()> {
    match unopened {
        Unopened::Batch(batch) => {
            sqlx::query!(
                "UPDATE batches SET due_at = $3, leases = leases - 1 WHERE id = $1 AND lease = $2",
                batch,
                lease,
                now
            )
            .execute(pool)
            .await?
        }
        Unopened::Rows(rows) => {
            sqlx::query!(
                "UPDATE queue q SET lease = NULL, leases = leases - 1, due_at = $5
                 FROM unnest($1::smallint[], $2::uuid[], $3::uuid[]) AS g (shard, subscription, message)
                 WHERE q.shard = g.shard AND q.subscription = g.subscription AND q.message = g.message AND q.lease = $4",
                &rows.iter().map(|(subscription, _)| subscription.shard()).collect::<Vec<_>>(),
                &rows.iter().map(|(subscription, _)| subscription.0).collect::<Vec<_>>(),
                &rows.iter().map(|(_, message)| message.0).collect::<Vec<_>>(),
                lease,
                now
            )
            .execute(pool)
            .await?
        }
    };
    Ok(())
}

/// Renews the leases of rows. One that is just being settled is left alone: nobody else can claim it.
pub(crate) async fn renew_rows(
    pool: &PgPool,
    held: &[(SubscriptionId, MessageId, Uuid)],
    until: Timestamp,
) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE queue SET due_at = $5 WHERE ctid = ANY (ARRAY(
           SELECT q.ctid FROM unnest($1::smallint[], $2::uuid[], $3::uuid[], $4::uuid[]) AS h (shard, subscription, message, lease)
           JOIN queue q ON q.shard = h.shard AND q.subscription = h.subscription AND q.message = h.message AND q.lease = h.lease
           FOR UPDATE OF q SKIP LOCKED))",
        &held.iter().map(|(subscription, ..)| subscription.shard()).collect::<Vec<_>>(),
        &held.iter().map(|(subscription, ..)| subscription.0).collect::<Vec<_>>(),
        &held.iter().map(|(_, message, _)| message.0).collect::<Vec<_>>(),
        &held.iter().map(|(.., lease)| *lease).collect::<Vec<_>>(),
        until
    )
    .execute(pool)
    .await
    .map(drop)
}

/// Reads the state of rows again whose tokens are late, and signs them anew. Returns which (subscription, message) are
/// still ours to send: neither stopped nor taken over meanwhile.
pub(crate) async fn sign_again(
    pool: &PgPool,
    vault: &Vault,
    lease: Uuid,
    late: &[Queued],
) -> sqlx::Result<Vec<(SubscriptionId, MessageId)>> {
    let column = |value: fn(&Queued) -> Uuid| late.iter().map(value).collect::<Vec<_>>();
    let signed = sqlx::query!(
        r#"
        UPDATE queue q SET token = l.token
        FROM unnest($1::smallint[], $2::uuid[], $3::uuid[], $4::bytea[]) AS l (shard, subscription, message, token)
        JOIN messages m ON m.id = l.message
        JOIN subscriptions s ON s.shard = l.shard AND s.id = l.subscription
        WHERE q.shard = l.shard AND q.subscription = l.subscription AND q.message = l.message AND q.lease = $5
          AND m.state = 'sending' AND s.state = 'active'
        RETURNING q.subscription, q.message
        "#,
        &late.iter().map(|queued| queued.subscription.shard()).collect::<Vec<_>>(),
        &column(|queued| queued.subscription.0),
        &column(|queued| queued.message.0),
        &late.iter().map(|queued| queued.sign(vault).to_vec()).collect::<Vec<_>>(),
        lease
    )
    .fetch_all(pool)
    .await?;
    Ok(signed.into_iter().map(|row| (SubscriptionId(row.subscription), MessageId(row.message))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_first_decides_and_only_what_waits_for_a_browser_that_has_a_successor_is_handed_on() {
        for (message, subscription, has_successor, is_past, expected) in [
            ("sending", Some("active"), false, false, Standing::Sendable),
            ("paused", Some("active"), false, false, Standing::Paused),
            ("cancelled", Some("gone"), false, false, Standing::Cancelled),
            ("sending", None, false, false, Standing::Cancelled),
            ("sending", Some("unsubscribed"), false, false, Standing::Cancelled),
            ("paused", Some("suspended"), false, false, Standing::Cancelled),
            ("paused", Some("gone"), false, false, Standing::Gone),
            ("sending", Some("expired"), false, false, Standing::Gone),
            ("paused", Some("replaced"), true, false, Standing::Replaced),
            ("sending", Some("replaced"), false, false, Standing::Cancelled), // before successors were remembered
            ("cancelled", Some("replaced"), true, false, Standing::Cancelled),
            ("sending", Some("replaced"), true, true, Standing::Cancelled),
            ("sending", Some("active"), false, true, Standing::Cancelled),
        ] {
            let circumstances = Circumstances::read(message, subscription, has_successor, is_past);
            assert_eq!(standing(&circumstances), expected, "{message} {subscription:?} {has_successor} {is_past}");
        }
    }
}
