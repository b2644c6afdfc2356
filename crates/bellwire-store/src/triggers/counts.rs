//! Counts of entries, by campaign and hour.

use std::collections::BTreeMap;

use chrono::{DurationRound as _, TimeDelta};
use serde::Serialize;
use sqlx::{PgConnection, PgExecutor, PgPool};
use utoipa::ToSchema;

use bellwire_core::clock::Timestamp;
use bellwire_core::id::CampaignId;

/// Rows of one hour, over which transactions spread.
const PARTS: u8 = 16;

/// People who entered a campaign because of events: `entered = waiting + cancelled + held_out + excluded + expired + sent`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = TriggerCounts)]
pub struct EntryCounts {
    /// People who began to wait.
    pub entered: i64,
    /// People who wait for their message.
    pub waiting: i64,
    /// Waits that an event of `unless`, the end of the campaign or an erasure ended.
    pub cancelled: i64,
    /// Events that `at_most` refused.
    pub limited: i64,
    /// People in the control group.
    pub held_out: i64,
    /// People who were not in the audience when the message was due, had no active browser, or had not got the followed message or
    /// had reacted to it.
    pub excluded: i64,
    /// People whose message was due for longer than its time to live, such as during a pause.
    pub expired: i64,
    /// Messages created. `total` has their deliveries.
    pub sent: i64,
}

/// Adds numbers to those of the current hour.
pub async fn add(
    conn: &mut PgConnection, counts: &BTreeMap<CampaignId, EntryCounts>, now: Timestamp,
) -> sqlx::Result<()> {
    let counts: Vec<(&CampaignId, &EntryCounts)> =
        counts.iter().filter(|(_, counts)| **counts != EntryCounts::default()).collect();
    if counts.is_empty() {
        return Ok(());
    }
    let hour = now.duration_trunc(TimeDelta::hours(1)).unwrap_or(now);
    let part = i16::from(rand::random::<u8>() % PARTS);
    execute!(
        conn,
        "INSERT INTO trigger_counts AS c (campaign, hour, part, entered, cancelled, limited, held_out, excluded, expired, sent)
         SELECT t.campaign, $1, $2, t.entered, t.cancelled, t.limited, t.held_out, t.excluded, t.expired, t.sent
         FROM unnest($3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[])
           AS t (campaign, entered, cancelled, limited, held_out, excluded, expired, sent)
         ORDER BY t.campaign
         ON CONFLICT (campaign, hour, part) DO UPDATE SET entered = c.entered + excluded.entered,
           cancelled = c.cancelled + excluded.cancelled, limited = c.limited + excluded.limited,
           held_out = c.held_out + excluded.held_out, excluded = c.excluded + excluded.excluded,
           expired = c.expired + excluded.expired, sent = c.sent + excluded.sent",
        (hour, part),
        counts,
        |(campaign, n)| (campaign.0, n.entered, n.cancelled, n.limited, n.held_out, n.excluded, n.expired, n.sent)
    )
}

/// Returns the counts of a campaign in one snapshot.
pub async fn of_campaign(executor: impl PgExecutor<'_>, id: CampaignId) -> sqlx::Result<EntryCounts> {
    fetch_one!(
        executor,
        EntryCounts,
        r#"SELECT coalesce(sum(entered), 0)::bigint AS "entered!",
             coalesce(sum(entered - cancelled - held_out - excluded - expired - sent), 0)::bigint AS "waiting!",
             coalesce(sum(cancelled), 0)::bigint AS "cancelled!", coalesce(sum(limited), 0)::bigint AS "limited!",
             coalesce(sum(held_out), 0)::bigint AS "held_out!", coalesce(sum(excluded), 0)::bigint AS "excluded!",
             coalesce(sum(expired), 0)::bigint AS "expired!", coalesce(sum(sent), 0)::bigint AS "sent!"
           FROM trigger_counts WHERE campaign = $1"#,
        (id.0)
    )
}

/// Number of people who wait in a campaign, counted one by one. For tests of the account.
pub async fn waiting(pool: &PgPool, id: CampaignId) -> sqlx::Result<i64> {
    fetch_one!(
        pool,
        scalar,
        r#"SELECT count(*) AS "n!" FROM trigger_entries WHERE campaign = $1 AND due_at IS NOT NULL"#,
        (id.0)
    )
}
