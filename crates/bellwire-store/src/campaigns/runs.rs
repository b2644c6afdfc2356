//! Results of single runs of a campaign, with the same figures as [the whole campaign](super::progress). The counts of each
//! message are summed, so the cost does not depend on the number of recipients. They are available until retention deletes the
//! messages.

use sqlx::PgPool;
use sqlx::types::Json;

use super::progress::{Outcomes, Reports, RunRow};
use crate::keyset::{Keyset, paged};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{CampaignId, MessageId};
use bellwire_core::lane::Gateway;
use bellwire_rules::campaign::parts::Narrow;

/// Returns runs of a campaign, the nearest number to the page's key first.
pub async fn page(pool: &PgPool, id: CampaignId, page: Keyset) -> sqlx::Result<Vec<RunRow>> {
    paged!(pool, page, RunRow,
        ["SELECT run, at, decide_at, winner, confidence FROM campaign_runs WHERE campaign = $1 AND run" < "$2 ORDER BY run" DESC "LIMIT $3"],
        (id.0, page.number(), page.limit)
    )
}

#[derive(Debug, Clone, Copy)]
pub struct RunMessages {
    pub run: i32,
    /// Messages created and still stored.
    pub made: i64,
    /// Messages not created yet.
    pub to_make: i64,
}

/// Returns the number of messages of these runs. Runs without messages are omitted.
pub async fn messages(pool: &PgPool, id: CampaignId, runs: &[i32]) -> sqlx::Result<Vec<RunMessages>> {
    fetch_all!(
        pool,
        RunMessages,
        r#"SELECT run, count(message) AS "made!", count(*) FILTER (WHERE message IS NULL) AS "to_make!"
           FROM campaign_parts WHERE campaign = $1 AND run = ANY ($2) GROUP BY run"#,
        (id.0, runs)
    )
}

pub async fn outcomes(pool: &PgPool, id: CampaignId, runs: &[i32]) -> sqlx::Result<Vec<Outcomes>> {
    fetch_all!(
        pool,
        Outcomes,
        r#"SELECT p.run, m.variant AS "variant!", l.gateway AS "gateway: Gateway", sum(c.targeted)::bigint AS "targeted!",
             sum(c.accepted)::bigint AS "accepted!", sum(c.gone)::bigint AS "gone!", sum(c.expired)::bigint AS "expired!",
             sum(c.dead)::bigint AS "dead!", sum(c.cancelled)::bigint AS "cancelled!", sum(c.capped)::bigint AS "capped!",
             sum(c.sunset)::bigint AS "sunset!"
           FROM campaign_parts p JOIN messages m ON m.id = p.message JOIN message_counts c ON c.message = m.id
             JOIN lanes l ON l.id = c.lane
           WHERE p.campaign = $1 AND p.run = ANY ($2) GROUP BY p.run, m.variant, l.gateway"#,
        (id.0, runs)
    )
}

pub async fn reports(pool: &PgPool, id: CampaignId, runs: &[i32]) -> sqlx::Result<Vec<Reports>> {
    fetch_all!(
        pool,
        Reports,
        r#"SELECT p.run, m.variant AS "variant!", sum(r.acknowledged)::bigint AS "acknowledged!",
             sum(r.displayed)::bigint AS "displayed!", sum(r.clicked)::bigint AS "clicked!", sum(r.closed)::bigint AS "closed!"
           FROM campaign_parts p JOIN messages m ON m.id = p.message JOIN receipt_counts r ON r.message = m.id
           WHERE p.campaign = $1 AND p.run = ANY ($2) GROUP BY p.run, m.variant"#,
        (id.0, runs)
    )
}

#[derive(Debug)]
pub struct PartRow {
    pub campaign: CampaignId,
    pub run: i32,
    pub variant: i16,
    pub narrow: Json<Narrow>,
}

/// Returns the position of a message in its campaign. `None`: it belongs to no campaign, or the campaign was deleted.
pub async fn part_of(pool: &PgPool, message: MessageId) -> sqlx::Result<Option<PartRow>> {
    fetch_optional!(
        pool,
        PartRow,
        r#"SELECT campaign AS "campaign: CampaignId", run, variant, narrow AS "narrow: Json<Narrow>"
           FROM campaign_parts WHERE message = $1"#,
        (message.0)
    )
}

/// Returns times and recipients of the other messages of the same run and variant.
pub async fn parts_beside(pool: &PgPool, part: &PartRow) -> sqlx::Result<Vec<(Timestamp, Json<Narrow>)>> {
    let rows = fetch_all!(
        pool,
        r#"SELECT due_at, narrow AS "narrow: Json<Narrow>" FROM campaign_parts
           WHERE campaign = $1 AND run = $2 AND variant = $3 ORDER BY due_at"#,
        (part.campaign.0, part.run, part.variant)
    )?;
    Ok(rows.into_iter().map(|row| (row.due_at, row.narrow)).collect())
}
