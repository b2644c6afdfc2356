//! Running fan-outs during a replacement. Their cursors may have passed both subscriptions, one, or none, depending on the
//! order of ids. So the successor is excluded from fan-outs that have yet to pass it, and deliveries for either subscription
//! are enqueued once.

use std::collections::{BTreeMap, HashMap};

use chrono::TimeDelta;
use sqlx::PgConnection;
use sqlx::types::Json;

use super::{Heir, Successor};
use crate::audience::subscriptions::row::SubscriptionRow;
use crate::audience::{membership, segment_filter};
use crate::connections::engine;
use crate::outcomes::ledger::enqueue::NewRow;
use crate::queue::claims::walk;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, LaneId, MessageId, SubscriptionId};
use bellwire_segment::AudienceFilter;
use bellwire_vault::Vault;
use bellwire_vault::retry_token::Queued;

/// A message to enqueue for the successor directly, because its fan-out now excludes the successor.
pub(super) struct Ahead {
    pub message: MessageId,
    /// Code of the tier, [`Tier::code`](bellwire_core::delivery::Tier::code).
    tier: i16,
}

impl Ahead {
    pub(super) fn row(&self, vault: &Vault, (new, lane): (Successor, LaneId), now: Timestamp) -> NewRow {
        let queued = Queued { message: self.message, subscription: new.id, retries: 0, scheduled_at: now };
        NewRow {
            subscription: new.id,
            message: self.message,
            lane,
            tier: self.tier,
            retries: 0,
            due_at: now,
            parked: false,
            scheduled_at: now,
            lease: None,
            leases: 0,
            token: queued.sign(vault).to_vec(),
            failed_at: None,
            has_turn: false,
            life: new.life,
        }
    }
}

/// Excludes the successor from all running fan-outs that have not passed it. Returns the messages to enqueue for it instead:
/// those that have not passed the old subscription, or were about to pass an already registered successor. Some of them may
/// have reached the successor already. Scheduled messages find it when they are due.
pub(super) async fn take_out(
    conn: &mut PgConnection, app: AppId, old: &SubscriptionRow, heir: Heir<'_>, now: Timestamp,
) -> sqlx::Result<Vec<Ahead>> {
    let under_way = under_way(conn, old, heir.row, now).await?;
    begin_after(conn, heir.row, &under_way).await?;
    let mut tiers = BTreeMap::new();
    for of in [Some(old), heir.is_known.then_some(heir.row)].into_iter().flatten() {
        let to_come: Vec<_> = under_way.iter().filter(|fan_out| fan_out.comes_to(of)).collect();
        let topics = if to_come.iter().any(|fan_out| fan_out.topic.is_some()) {
            membership::joined(conn, of.id).await?
        } else {
            HashMap::new()
        };
        for fan_out in to_come.into_iter().filter(|fan_out| fan_out.is_for(of, &topics)) {
            let takes = match &fan_out.filter {
                Some(filter) => {
                    let filter = (&filter.0, fan_out.assigned_at);
                    segment_filter::takes_successor(conn, app, filter, of.id, heir.row.id, now).await?
                }
                None => true,
            };
            if takes {
                tiers.insert(fan_out.message, fan_out.tier);
            }
        }
    }
    Ok(tiers.into_iter().map(|(message, tier)| Ahead { message, tier }).collect())
}

/// A message that is being fanned out in a lane.
struct FanOut {
    message: MessageId,
    lane: LaneId,
    after: SubscriptionId,
    topic: Option<i32>,
    tier: i16,
    accepted_at: Timestamp,
    assigned_at: Option<Timestamp>,
    filter: Option<Json<AudienceFilter>>,
}

impl FanOut {
    /// Whether its cursor has yet to reach a subscription.
    fn comes_to(&self, row: &SubscriptionRow) -> bool {
        self.lane == row.lane && walk::is_ahead(self.after, row.id)
    }

    /// Whether a subscription with these topics is in its audience. The filter is not evaluated.
    fn is_for(&self, row: &SubscriptionRow, topics: &HashMap<i32, Timestamp>) -> bool {
        let is_in = |topic| topics.get(&topic).is_some_and(|joined_at| *joined_at <= self.accepted_at);
        row.since <= self.accepted_at && self.topic.is_none_or(is_in)
    }
}

/// Returns messages whose cursors have yet to pass one of the two subscriptions, by lane, and locks the cursors until the end
/// of the transaction. The subscriptions were locked before. That causes no deadlock, because a worker that takes a batch reads
/// subscriptions without locks.
async fn under_way(
    conn: &mut PgConnection, old: &SubscriptionRow, new: &SubscriptionRow, now: Timestamp,
) -> sqlx::Result<Vec<FanOut>> {
    macro_rules! under_way {
        ($comes_to:literal $(, $shard:expr)*) => {
            query!(
                FanOut,
                r#"SELECT c.message AS "message: MessageId", c.lane AS "lane: LaneId", c.after AS "after: SubscriptionId", c.topic,
                          m.tier, m.accepted_at, m.assigned_at, m.filter AS "filter: Json<AudienceFilter>"
                   FROM cursors c JOIN messages m ON m.id = c.message AND m.accepted_at <= $5
                   WHERE "# + $comes_to + " ORDER BY c.message, c.lane FOR UPDATE OF c",
                (old.lane.0, old.id.0, new.lane.0, new.id.0, now $(, $shard)*)
            )
        };
    }
    if engine::is_distributed() {
        // See `walk`: an id ends in its shard.
        return under_way!(
            "(c.lane = $1 AND (get_byte(uuid_send(c.after), 15) & 63, c.after) < ($6, $2)
              OR c.lane = $3 AND (get_byte(uuid_send(c.after), 15) & 63, c.after) < ($7, $4))",
            i32::from(old.id.shard()),
            i32::from(new.id.shard())
        )
        .fetch_all(conn)
        .await;
    }
    under_way!("(c.lane = $1 AND c.after < $2 OR c.lane = $3 AND c.after < $4)").fetch_all(conn).await
}

/// Sets `since` of a subscription after the last message whose fan-out has yet to reach it.
async fn begin_after(conn: &mut PgConnection, new: &SubscriptionRow, under_way: &[FanOut]) -> sqlx::Result<()> {
    let accepted = under_way.iter().filter(|fan_out| fan_out.comes_to(new)).map(|fan_out| fan_out.accepted_at);
    let Some(last) = accepted.max() else { return Ok(()) };
    execute!(
        conn,
        "UPDATE subscriptions SET since = greatest(since, $3) WHERE shard = $1 AND id = $2",
        (new.id.shard(), new.id.0, last + TimeDelta::microseconds(1))
    )
}
