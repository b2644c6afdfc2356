//! Stored data about one delivery, for [`explain`](bellwire_rules::explain).

use std::time::Duration;

use serde_json::Value;
use sqlx::types::Json;
use sqlx::{PgConnection, PgPool};

use crate::audience::segment_filter;
use crate::operations::workers;
use crate::outcomes::deliveries::{self, AttemptRow};
use crate::outcomes::receipts::{self, ReceiptRow};
use crate::queue::flows::{self, Flow};
use crate::queue::lanes::{self, OriginRow};
use crate::queue::subscription_holds;
use crate::transactions::begin_with;
use bellwire_core::clock::{Timestamp, first_uuid_of};
use bellwire_core::delivery::Ending;
use bellwire_core::engagement_stats::Habits;
use bellwire_core::id::{AppId, LaneId, MessageId, SubscriptionId};
use bellwire_core::lane::Gateway;
use bellwire_core::message::MessageState;
use bellwire_core::subscription::SubscriptionState;
use bellwire_rules::explain::Letter;
use bellwire_segment::{AudienceFilter, FilterVerdict};

/// Search periods for a dead letter before its id: the id contains the time of failure, which is shortly after the logged
/// response. A longer period is tried only if the shorter one found nothing, because a campaign may leave thousands of dead
/// letters a second, and all of a period are read.
const LETTER_WITHIN: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(5), Duration::from_secs(30)];
/// Begins a snapshot for all reads: a delivery that changes meanwhile is neither seen twice nor missed.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

#[derive(Debug)]
pub struct StoredStory {
    pub row: StoryRow,
    /// Attempts in order.
    pub attempts: Vec<AttemptRow>,
    /// Receipts from its browser in order of time.
    pub reports: Vec<ReceiptRow>,
    /// Last dead letter of the delivery.
    pub letter: Option<Letter>,
    pub origins: Vec<OriginRow>,
    /// End of the hold of its subscription, possibly in the past.
    pub subscription_held_until: Option<Timestamp>,
    /// Flow control of the app as a whole and of the lane.
    pub flows: Vec<Flow>,
    /// Whether any worker is alive.
    pub worker_lives: bool,
    /// Current result of the message's filter for the subscription, and the person's engagement. `None`: the message has no
    /// filter.
    pub judged: Option<(FilterVerdict, Habits)>,
}

impl StoredStory {
    /// Whether neither the subscription nor a delivery to it exists.
    pub fn is_empty(&self) -> bool {
        let row = &self.row;
        row.subscription_state.is_none()
            && row.retries.is_none()
            && row.batch_due_at.is_none()
            && self.attempts.is_empty()
            && self.letter.is_none()
    }
}

/// A message, a subscription of its app, and the waiting delivery. Values of objects that do not exist are `None`.
#[derive(Debug)]
pub struct StoryRow {
    pub tier: i16,
    pub state: MessageState,
    pub audience: Value,
    pub filter: Option<Json<AudienceFilter>>,
    pub assigned_at: Option<Timestamp>,
    pub ttl_s: i32,
    pub message_policy: Option<Value>,
    pub replay_of: Option<MessageId>,
    /// Message that it removes from browsers. `None`: an ordinary message.
    pub withdraws: Option<MessageId>,
    pub withdrawn_at: Option<Timestamp>,
    /// Message that removes it from browsers.
    pub removal: Option<MessageId>,
    pub content_deleted: bool,
    pub enveloped: bool,
    pub accepted_at: Timestamp,
    pub expires_at: Timestamp,
    pub app_timezone: String,
    pub quiet_hours: Option<Value>,
    pub topic: Option<String>,
    pub topic_policy: Option<Value>,
    pub tier_policy: Option<Value>,
    pub off_peak: Option<Value>,
    pub gateway: Option<Gateway>,
    pub lane: Option<LaneId>,
    pub subscription_state: Option<SubscriptionState>,
    pub since: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// Expiry of the subscription in its browser.
    pub ends_at: Option<Timestamp>,
    pub timezone: Option<String>,
    pub subscription_policy: Option<Value>,
    /// Encrypted address of the subscription.
    pub address: Option<Vec<u8>>,
    pub replaced_by: Option<SubscriptionId>,
    pub is_successor: Option<bool>,
    pub is_past: bool,
    pub joined_at: Option<Timestamp>,
    pub retries: Option<i32>,
    /// Due time. `None`: parked, because the message is paused.
    pub due_at: Option<Timestamp>,
    pub scheduled_at: Option<Timestamp>,
    pub failed_at: Option<Timestamp>,
    pub leased: Option<bool>,
    pub leases: Option<i16>,
    pub has_turn: Option<bool>,
    pub batch_recipients: Option<i32>,
    pub batch_due_at: Option<Timestamp>,
    pub cursor_after: Option<SubscriptionId>,
    /// Due time of the fan-out cursor. `None`: the message is paused.
    pub cursor_due_at: Option<Timestamp>,
}

/// Reads the data. `None`: the app has no such message.
pub async fn read(
    pool: &PgPool, app: AppId, message: MessageId, subscription: SubscriptionId, now: Timestamp,
) -> sqlx::Result<Option<StoredStory>> {
    let mut tx = begin_with(pool, BEGIN).await?;
    let Some(row) = read_row(&mut tx, app, message, subscription).await? else { return Ok(None) };
    let ids = [subscription];
    let attempts = deliveries::attempts(&mut *tx, message, &ids).await?;
    let reports = receipts::of(&mut *tx, message, &ids).await?;
    let letter = letter(&mut tx, app, message, subscription, attempts.last()).await?;
    let origins = match row.lane {
        Some(lane) => lanes::states(&mut *tx, &[lane]).await?,
        None => Vec::new(),
    };
    let subscription_held_until = subscription_holds::ends_at(&mut tx, subscription).await?;
    let mut flows: Vec<Flow> = flows::find(&mut *tx, app, None).await?.into_iter().collect();
    if let Some(lane) = row.lane {
        flows.extend(flows::find(&mut *tx, app, Some(lane)).await?);
    }
    let worker_lives = workers::any(&mut *tx, now).await?;
    let judged = match &row.filter {
        Some(filter) => {
            segment_filter::verdict_of(&mut tx, app, (&filter.0, row.assigned_at), subscription, now).await?
        }
        None => None,
    };
    tx.commit().await?;
    Ok(Some(StoredStory {
        row,
        attempts,
        reports,
        letter,
        origins,
        subscription_held_until,
        flows,
        worker_lives,
        judged,
    }))
}

/// Whether a filter accepts a subscription now.
pub async fn is_taken(
    pool: &PgPool, app: AppId, filter: &AudienceFilter, subscription: SubscriptionId, now: Timestamp,
) -> sqlx::Result<bool> {
    let mut conn = pool.acquire().await?;
    let verdict = segment_filter::verdict_of(&mut conn, app, (filter, None), subscription, now).await?;
    Ok(verdict.is_some_and(|(verdict, _)| verdict.is_taken()))
}

async fn read_row(
    conn: &mut PgConnection, app: AppId, message: MessageId, subscription: SubscriptionId,
) -> sqlx::Result<Option<StoryRow>> {
    fetch_optional!(
        conn,
        StoryRow,
        r#"
        SELECT m.tier, m.state AS "state: MessageState", m.audience, m.filter AS "filter: Json<AudienceFilter>", m.assigned_at,
               m.ttl_s, m.policy AS message_policy,
               m.replay_of AS "replay_of: MessageId", m.withdraws AS "withdraws: MessageId", w.at AS "withdrawn_at?",
               w.removal AS "removal?: MessageId",
               m.content IS NULL AS "content_deleted!", m.enveloped, m.accepted_at, m.expires_at,
               a.timezone AS app_timezone, a.quiet_hours, t.name AS "topic?", t.policy AS topic_policy,
               ts.policy AS "tier_policy?", ts.off_peak, g.gateway AS "gateway?: Gateway", s.lane AS "lane?: LaneId",
               s.state AS "subscription_state?: SubscriptionState", s.since AS "since?", s.ended_at, s.expires_at AS "ends_at?",
               s.timezone AS "timezone?", s.policy AS subscription_policy, s.address AS "address?",
               s.replaced_by AS "replaced_by: SubscriptionId",
               s.origin_id <> s.id AS is_successor,
               coalesce(q.life < s.revived OR q.life < s.life AND m.audience ?| ARRAY['users', 'subscriptions'], false)
                   AS "is_past!",
               tm.joined_at AS "joined_at?", q.retries AS "retries?", nullif(q.due_at, 'infinity') AS due_at,
               q.scheduled_at AS "scheduled_at?", q.failed_at, q.lease IS NOT NULL AS leased, q.leases AS "leases?",
               q.has_turn AS "has_turn?", p.recipients AS batch_recipients, p.due_at AS "batch_due_at?",
               c.after AS "cursor_after?: SubscriptionId", nullif(c.due_at, 'infinity') AS cursor_due_at
        FROM messages m
        JOIN apps a ON a.id = m.app
        LEFT JOIN topics t ON t.id = m.topic
        LEFT JOIN withdrawals w ON w.message = m.id
        LEFT JOIN tier_settings ts ON ts.app = m.app AND ts.tier = m.tier
        LEFT JOIN subscriptions s ON s.shard = $4 AND s.id = $3 AND s.app = m.app
        LEFT JOIN lanes g ON g.id = s.lane
        LEFT JOIN topic_members tm ON tm.shard = $4 AND tm.subscription = $3 AND tm.topic = m.topic
        LEFT JOIN queue q ON q.shard = $4 AND q.subscription = $3 AND q.message = m.id
        LEFT JOIN LATERAL (
            SELECT cardinality(recipients) AS recipients, due_at FROM batches
            WHERE message = m.id AND $3 = ANY(recipients) LIMIT 1) p ON true
        LEFT JOIN cursors c ON c.message = m.id AND c.lane = s.lane
        WHERE m.id = $2 AND m.app = $1
        "#,
        (app.0, message.0, subscription.0, subscription.shard())
    )
}

/// Returns the dead letter of an ending: among the open ones, or by the time of failure. A campaign may have left a million
/// dead letters, and closed ones have no index by subscription.
async fn letter(
    conn: &mut PgConnection, app: AppId, message: MessageId, subscription: SubscriptionId, last: Option<&AttemptRow>,
) -> sqlx::Result<Option<Letter>> {
    let leaves_letter = |last: &&AttemptRow| {
        matches!(Ending::from_code(last.ending), Some(Ending::Gone | Ending::Expired | Ending::Dead))
    };
    let died_at = last.filter(leaves_letter).map(|last| last.at);
    if last.is_some() && died_at.is_none() {
        return Ok(None);
    }
    let open = fetch_optional!(
        &mut *conn,
        Letter,
        r#"SELECT id, reason, retries, policy, state, at, settled_at, replay AS "replay: MessageId" FROM dead_letters
           WHERE app = $1 AND message = $2 AND subscription = $3 AND state = 'open' ORDER BY id DESC LIMIT 1"#,
        (app.0, message.0, subscription.0)
    )?;
    let mut found = open;
    for within in LETTER_WITHIN {
        let Some(died_at) = died_at.filter(|_| found.is_none()) else { break };
        let closed = fetch_optional!(
            &mut *conn,
            Letter,
            r#"SELECT id, reason, retries, policy, state, at, settled_at, replay AS "replay: MessageId" FROM dead_letters
               WHERE app = $1 AND message = $2 AND subscription = $3 AND id >= $4 AND id < $5 ORDER BY id DESC LIMIT 1"#,
            (app.0, message.0, subscription.0, first_uuid_of(died_at - within), first_uuid_of(died_at + within))
        )?;
        found = closed;
    }
    Ok(found)
}
