//! Claims rows on Citus, where subscriptions and attempts are on other machines: reads claimed rows with their local messages,
//! and then their recipients by key, from the shards that contain them.

use std::collections::{HashMap, HashSet};

use sqlx::PgPool;
use uuid::Uuid;

use super::due::DueSpan;
use super::recipient::RecipientRow;
use super::{ClaimedRow, LETS_PASS, TURN_KEPT, Unopened, claimed, give_back};
use crate::connections::engine::{shard_column, shards_of};
use crate::outcomes::ledger::log::logged;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{LaneId, MessageId, SubscriptionId};
use bellwire_core::message::MessageState;
use bellwire_core::subscription::SubscriptionState;

struct Claimed {
    subscription: SubscriptionId,
    message: MessageId,
    lane: LaneId,
    retries: i32,
    scheduled_at: Timestamp,
    leases: i16,
    token: Vec<u8>,
    failed_at: Option<Timestamp>,
    has_turn: bool,
    life: i32,
    message_state: MessageState,
    /// Whether its message named subscriptions or users.
    is_named: bool,
    is_in_tier: bool,
}

/// A recipient, with the other values that decide about sending.
struct RecipientRead {
    found: RecipientRow,
    lane: LaneId,
    life: i32,
    revived: i32,
}

/// Implements [`super::claim_rows`] on Citus.
pub(super) async fn claim_rows(
    pool: &PgPool, span: DueSpan, limit: usize, lease: Uuid, until: Timestamp,
) -> sqlx::Result<Vec<ClaimedRow>> {
    let claimed = claim(pool, span, limit, lease, until).await?;
    if claimed.is_empty() {
        return Ok(Vec::new());
    }
    let attempts: Vec<_> = claimed.iter().map(|row| (row.message, row.subscription, row.retries)).collect();
    let read = async { Ok::<_, sqlx::Error>((recipients(pool, &claimed).await?, logged(pool, &attempts).await?)) };
    let (recipients, logged) = match read.await {
        Ok(read) => read,
        Err(error) => {
            let rows = claimed.iter().map(|row| (row.subscription, row.message)).collect();
            // If this fails, too, the lease runs out.
            drop(give_back(pool, lease, &Unopened::Rows(rows), span.now).await);
            return Err(error);
        }
    };
    let open = |row: Claimed| {
        let is_recorded = logged.contains(&(row.message, row.subscription, row.retries));
        let recipient = recipients.get(&row.subscription);
        row.open(recipient, is_recorded)
    };
    Ok(claimed.into_iter().map(open).collect())
}

async fn claim(
    pool: &PgPool, span: DueSpan, limit: usize, lease: Uuid, until: Timestamp,
) -> sqlx::Result<Vec<Claimed>> {
    claimed!(
        query_as,
        [Claimed],
        r#"
        SELECT c.subscription AS "subscription!: SubscriptionId", c.message AS "message!: MessageId", c.lane AS "lane!: LaneId",
               c.retries AS "retries!", c.scheduled_at AS "scheduled_at!", c.leases AS "leases!", c.token AS "token!", c.failed_at,
               c.has_turn AS "has_turn!", c.life AS "life!", m.state AS "message_state!: MessageState",
               coalesce(m.audience ?| ARRAY['users', 'subscriptions'], false) AS "is_named!", m.tier = c.tier AS "is_in_tier!"
        FROM claimed c JOIN messages m ON m.id = c.message
        "#,
        span,
        limit,
        lease,
        until
    )
    .fetch_all(pool)
    .await
}

async fn recipients(pool: &PgPool, claimed: &[Claimed]) -> sqlx::Result<HashMap<SubscriptionId, RecipientRead>> {
    let ids: HashSet<SubscriptionId> = claimed.iter().map(|row| row.subscription).collect();
    let ids: Vec<SubscriptionId> = ids.into_iter().collect();
    let rows = fetch_all!(
        pool,
        r#"
        SELECT s.id AS "id: SubscriptionId", s.origin_id, s.address, s.state AS "state: SubscriptionState", s.policy, s.muted_until, s.timezone, s.user_id, s.proven,
               s.replaced_by IS NOT NULL AS "has_successor!", s.lane AS "lane: LaneId", s.life, s.revived
        FROM unnest($1::smallint[], $2::uuid[]) AS k (shard, id) JOIN subscriptions s ON s.shard = k.shard AND s.id = k.id
        WHERE s.shard = ANY ($3)
        "#,
        (&shard_column(&ids), &ids as &[SubscriptionId], &shards_of(&ids))
    )?;
    let read = rows.into_iter().map(|row| {
        let found = RecipientRow {
            id: row.id.0,
            origin_id: Some(row.origin_id),
            address: Some(row.address),
            state: Some(row.state),
            has_successor: row.has_successor,
            is_past: false,
            policy: row.policy,
            muted_until: row.muted_until,
            timezone: row.timezone,
            user_id: row.user_id,
            proven: Some(row.proven),
            life: None,
        };
        (row.id, RecipientRead { found, lane: row.lane, life: row.life, revived: row.revived })
    });
    Ok(read.collect())
}

impl Claimed {
    /// Combines the row with its recipient. `None`: the subscription no longer exists.
    fn open(self, of: Option<&RecipientRead>, is_recorded: bool) -> ClaimedRow {
        let mut found = of.map_or_else(|| RecipientRow::deleted(self.subscription), |of| of.found.clone());
        found.is_past = of.is_some_and(|of| self.life < of.revived || self.life < of.life && self.is_named);
        found.life = Some(self.life);
        ClaimedRow {
            recipient: found.of(self.message_state),
            message: self.message,
            retries: u32::try_from(self.retries).unwrap_or(0),
            scheduled_at: self.scheduled_at,
            leases: self.leases,
            token: self.token,
            failed_at: self.failed_at,
            has_turn: self.has_turn,
            is_recorded,
            is_in_place: self.is_in_tier && of.is_none_or(|of| of.lane == self.lane),
        }
    }
}
