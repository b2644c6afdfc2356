//! Endings that touch more than their own delivery: a gone subscription is pruned with everything that waits for it,
//! and whatever failed leaves a dead letter. Both are written in the transaction of the settling that found them, in
//! [the order of locks](super).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::model::clock::{Timestamp, uuid_of};
use crate::model::delivery::Ending;
use crate::model::id::{DeadLetterId, SubscriptionId};
use crate::store::outcomes::events::{self, Body, Event};
use crate::store::outcomes::settle::{Fate, Settlement};
use crate::store::outcomes::tally::Tally;
use crate::store::queue::unsent::{Waiting, log_unsent};
use crate::store::{audience::refusals, audience::subscriptions};

/// Whether an ending leaves a dead letter.
fn leaves_letter(fate: &Fate) -> bool {
    matches!(fate, Fate::Ended(Ending::Gone | Ending::Expired | Ending::Dead, _))
}

/// Whether an ending needs more than its own row: then its settling is a transaction of several statements.
pub(crate) fn is_special(settlement: &Settlement) -> bool {
    leaves_letter(&settlement.fate) || settlement.sla_missed_s.is_some()
}

/// Whether an ending changes its subscription.
pub(crate) fn changes_subscription(settlement: &Settlement) -> bool {
    matches!(settlement.fate, Fate::Ended(Ending::Gone, _)) || refusals::counts(settlement)
}

/// Locks the subscriptions that these endings change.
pub(crate) async fn lock<'a>(
    connection: &mut PgConnection,
    settlements: impl Iterator<Item = &'a Settlement>,
) -> sqlx::Result<()> {
    let changed: Vec<SubscriptionId> =
        settlements.filter(|settlement| changes_subscription(settlement)).map(|s| s.subscription).collect();
    if changed.is_empty() { Ok(()) } else { subscriptions::lock_in_order(connection, changed.into_iter()).await }
}

/// Stores the dead letters, prunes the subscriptions that are gone, writes the tally, and tells of it all.
pub(crate) async fn write<'a>(
    connection: &mut PgConnection,
    settlements: impl Iterator<Item = &'a Settlement>,
    mut tally: Tally,
    now: Timestamp,
) -> sqlx::Result<()> {
    let (mut letters, mut gone, mut told) = (Letters::default(), Vec::new(), Vec::new());
    for settlement in settlements.filter(|settlement| is_special(settlement)) {
        if let Some(sla_s) = settlement.sla_missed_s {
            told.push(Event::sla_missed(settlement.app, settlement.tier, sla_s, settlement.message, 1));
        }
        if !leaves_letter(&settlement.fate) {
            continue;
        }
        let id = letters.push(settlement, now);
        match &settlement.fate {
            Fate::Ended(Ending::Gone, _) => gone.push((settlement.subscription.0, settlement.life)),
            Fate::Ended(Ending::Dead, Some(death)) => {
                let body = Body::DeadLetterCreated { reason: death.reason.name().to_owned(), dead_letter: id };
                told.push(Event { app: settlement.app, body, n: 1 });
            }
            _ => {}
        }
    }
    letters.bury(connection).await?;
    gone.sort_unstable_by_key(|(subscription, life)| (*subscription, Reverse(*life)));
    gone.dedup_by_key(|(subscription, _)| *subscription);
    if !gone.is_empty() {
        told.extend(prune(connection, &gone, &mut tally, now).await?);
    }
    tally.write(connection, now).await?;
    events::record(connection, told, now).await
}

/// Marks subscriptions gone, ends everything else that waits for them and that nobody holds, takes them out of their
/// topics, which are remembered, and stops whatever is in some worker's memory. Ids in ascending order, each with the life
/// that the delivery was for: one that came back since is not gone. Returns what is to be told of it.
async fn prune(
    connection: &mut PgConnection,
    gone: &[(Uuid, i32)],
    tally: &mut Tally,
    now: Timestamp,
) -> sqlx::Result<Vec<Event>> {
    let (ids, lives): (Vec<Uuid>, Vec<i32>) = gone.iter().copied().unzip();
    let rows = sqlx::query!(
        r#"
        WITH ended AS (
            UPDATE subscriptions s SET state = 'gone', ended_at = $2
            FROM (SELECT get_byte(uuid_send(id), 15) & 63 AS shard, id, life
                  FROM unnest($1::uuid[], $3::integer[]) AS u (id, life)) g
            WHERE s.shard = g.shard AND s.id = g.id AND s.state IN ('active', 'suspended') AND s.revived <= g.life
            RETURNING s.shard, s.id, s.lane, s.life
        ),
        stopped AS (INSERT INTO stops (at, kind, target, life) SELECT $2, 'gone', id, life FROM ended),
        left_topics AS (
            DELETE FROM topic_members t USING ended e WHERE t.shard = e.shard AND t.subscription = e.id
            RETURNING t.shard, t.subscription, t.topic, t.joined_at
        ),
        remembered AS (
            INSERT INTO former_topic_members (shard, subscription, topic, joined_at) SELECT * FROM left_topics
            ON CONFLICT DO NOTHING
        ),
        dropped AS (
            DELETE FROM queue q USING ended e
            WHERE q.shard = e.shard AND q.subscription = e.id AND (q.lease IS NULL OR q.due_at <= $2)
            RETURNING q.shard, q.subscription, q.message, q.lane, q.tier, q.retries
        )
        SELECT NULL::smallint AS shard, id AS "subscription!", NULL::uuid AS message, lane AS "lane!",
               NULL::smallint AS tier, NULL::integer AS retries FROM ended
        UNION ALL SELECT shard, subscription, message, lane, tier, retries FROM dropped
        "#,
        &ids,
        now,
        &lives,
    )
    .fetch_all(&mut *connection)
    .await?;
    let (mut lost, mut dropped) = (BTreeMap::new(), Vec::new());
    for row in rows {
        match (row.shard, row.message, row.tier, row.retries) {
            (Some(shard), Some(message), Some(tier), Some(retries)) => {
                dropped.push(Waiting { shard, subscription: row.subscription, message, lane: row.lane, tier, retries });
            }
            _ => *lost.entry(row.lane).or_insert(0) += 1,
        }
    }
    log_unsent(connection, dropped, Ending::Gone, "subscription gone", tally, now).await?;
    events::subscriptions_gone(connection, &lost.into_iter().collect::<Vec<_>>()).await
}

/// Letters to be stored, column by column.
#[derive(Default)]
struct Letters<'a> {
    ids: Vec<Uuid>,
    apps: Vec<Uuid>,
    shards: Vec<i16>,
    messages: Vec<Uuid>,
    subscriptions: Vec<Uuid>,
    lanes: Vec<i32>,
    tiers: Vec<i16>,
    reasons: Vec<&'static str>,
    statuses: Vec<Option<i16>>,
    details: Vec<Option<&'a str>>,
    retries: Vec<i32>,
    policies: Vec<Option<&'a Value>>,
    ats: Vec<Timestamp>,
}

impl<'a> Letters<'a> {
    /// Adds the dead letter of a settlement that [leaves one](leaves_letter), and returns its id.
    fn push(&mut self, settlement: &'a Settlement, now: Timestamp) -> DeadLetterId {
        let last = settlement.attempts.last();
        let at = last.map_or(now, |attempt| attempt.at);
        let (id, reason, detail, policy) = match &settlement.fate {
            Fate::Ended(_, Some(death)) => {
                (death.id, death.reason.name(), death.detail.as_deref(), death.policy.as_ref())
            }
            // Without a POST the reason says it all.
            Fate::Ended(ending, None) => {
                let answered = last.filter(|attempt| attempt.status.is_some());
                (uuid_of(at), ending.name(), answered.and_then(|attempt| attempt.reason.as_deref()), None)
            }
            _ => (uuid_of(at), Ending::Dead.name(), None, None),
        };
        self.ids.push(id);
        self.apps.push(settlement.app.0);
        self.shards.push(settlement.subscription.shard());
        self.messages.push(settlement.message.0);
        self.subscriptions.push(settlement.subscription.0);
        self.lanes.push(settlement.lane.0);
        self.tiers.push(settlement.tier.code());
        self.reasons.push(reason);
        self.statuses.push(last.and_then(|attempt| attempt.status).and_then(|status| i16::try_from(status).ok()));
        self.details.push(detail);
        self.retries.push(last.map_or(0, |attempt| i32::try_from(attempt.number).unwrap_or(i32::MAX)));
        self.policies.push(policy);
        self.ats.push(at);
        DeadLetterId(id)
    }

    /// Stores them. What is gone or expired has no way back, and its dead letter is closed from the start.
    async fn bury(&self, connection: &mut PgConnection) -> sqlx::Result<()> {
        if self.ids.is_empty() {
            return Ok(());
        }
        sqlx::query!(
            r#"
            INSERT INTO dead_letters
                (app, id, shard, message, subscription, lane, tier, reason, status, detail, retries, policy, at, state)
            SELECT l.*, CASE WHEN l.reason IN ('gone', 'expired') THEN 'closed' ELSE 'open' END
            FROM unnest($1::uuid[], $2::uuid[], $3::smallint[], $4::uuid[], $5::uuid[], $6::integer[], $7::smallint[],
                        $8::text[], $9::smallint[], $10::text[], $11::integer[], $12::jsonb[], $13::timestamptz[])
                AS l (app, id, shard, message, subscription, lane, tier, reason, status, detail, retries, policy, at)
            "#,
            &self.apps,
            &self.ids,
            &self.shards,
            &self.messages,
            &self.subscriptions,
            &self.lanes,
            &self.tiers,
            &self.reasons as &[&str],
            &self.statuses as &[Option<i16>],
            &self.details as &[Option<&str>],
            &self.retries,
            &self.policies as &[Option<&Value>],
            &self.ats,
        )
        .execute(connection)
        .await
        .map(drop)
    }
}

/// The dead letters of rows that [`log_unsent`] ended as gone or expired: closed from the start.
pub(crate) async fn bury_unsent(
    connection: &mut PgConnection,
    rows: &[Waiting],
    ending: Ending,
    now: Timestamp,
) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        INSERT INTO dead_letters (app, id, shard, message, subscription, lane, tier, reason, retries, at, state)
        SELECT m.app, l.id, l.shard, l.message, l.subscription, l.lane, l.tier, $8, l.retries, $9, 'closed'
        FROM unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::uuid[], $5::integer[], $6::smallint[], $7::integer[])
            AS l (id, shard, message, subscription, lane, tier, retries)
        JOIN messages m ON m.id = l.message
        "#,
        &rows.iter().map(|_| uuid_of(now)).collect::<Vec<_>>(),
        &rows.iter().map(|row| row.shard).collect::<Vec<_>>(),
        &rows.iter().map(|row| row.message).collect::<Vec<_>>(),
        &rows.iter().map(|row| row.subscription).collect::<Vec<_>>(),
        &rows.iter().map(|row| row.lane).collect::<Vec<_>>(),
        &rows.iter().map(|row| row.tier).collect::<Vec<_>>(),
        &rows.iter().map(|row| row.retries).collect::<Vec<_>>(),
        ending.name(),
        now,
    )
    .execute(connection)
    .await
    .map(drop)
}
