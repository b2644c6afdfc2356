//! How single runs of a campaign went: the same figures as of [all of them together](super::progress), by run. They are added up from
//! what is counted for each message of a run, so they cost the same however many recipients there are, and go with their messages
//! when retention deletes these.

use sqlx::PgPool;
use sqlx::types::Json;

use super::progress::{Outcomes, Reports, RunRow};
use crate::campaign::parts::Narrow;
use crate::model::clock::Timestamp;
use crate::model::id::{CampaignId, MessageId};
use crate::model::lane::Gateway;
use crate::store::keyset::{Keyset, paged};

/// Runs of a campaign by their numbers, the nearest to the page's key first.
pub(crate) async fn page(pool: &PgPool, id: CampaignId, page: Keyset) -> sqlx::Result<Vec<RunRow>> {
    paged!(
        page,
        query_as!(
            RunRow,
            ["SELECT run, at, decide_at, winner, confidence FROM campaign_runs WHERE campaign = $1 AND run" < "$2 ORDER BY run" DESC "LIMIT $3"],
            id.0,
            page.number(),
            page.limit
        )
        .fetch_all(pool)
    )
}

/// Messages of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunMessages {
    pub run: i32,
    /// Those that were made and are kept still.
    pub made: i64,
    /// Those that are still to be made.
    pub to_make: i64,
}

/// How many messages these runs have. Those that have none are left out.
pub(crate) async fn messages(pool: &PgPool, id: CampaignId, runs: &[i32]) -> sqlx::Result<Vec<RunMessages>> {
    sqlx::query_as!(
        RunMessages,
        r#"SELECT run, count(message) AS "made!", count(*) FILTER (WHERE message IS NULL) AS "to_make!"
           FROM campaign_parts WHERE campaign = $1 AND run = ANY ($2) GROUP BY run"#,
        id.0,
        runs
    )
    .fetch_all(pool)
    .await
}

/// What became of the deliveries of these runs, each with its run.
pub(crate) async fn outcomes(pool: &PgPool, id: CampaignId, runs: &[i32]) -> sqlx::Result<Vec<(i32, Outcomes)>> {
    let rows = sqlx::query!(
        r#"SELECT p.run, m.variant AS "variant!", l.gateway AS "gateway: Gateway", sum(c.targeted)::bigint AS "targeted!",
             sum(c.accepted)::bigint AS "accepted!", sum(c.gone)::bigint AS "gone!", sum(c.expired)::bigint AS "expired!",
             sum(c.dead)::bigint AS "dead!", sum(c.cancelled)::bigint AS "cancelled!", sum(c.capped)::bigint AS "capped!",
             sum(c.sunset)::bigint AS "sunset!"
           FROM campaign_parts p JOIN messages m ON m.id = p.message JOIN message_counts c ON c.message = m.id
             JOIN lanes l ON l.id = c.lane
           WHERE p.campaign = $1 AND p.run = ANY ($2) GROUP BY p.run, m.variant, l.gateway"#,
        id.0,
        runs
    )
    .fetch_all(pool)
    .await?;
    let outcomes = rows.into_iter().map(|row| {
        let outcomes = Outcomes {
            variant: row.variant,
            gateway: row.gateway,
            targeted: row.targeted,
            accepted: row.accepted,
            gone: row.gone,
            expired: row.expired,
            dead: row.dead,
            cancelled: row.cancelled,
            capped: row.capped,
            sunset: row.sunset,
        };
        (row.run, outcomes)
    });
    Ok(outcomes.collect())
}

/// What browsers reported of these runs, each with its run.
pub(crate) async fn reports(pool: &PgPool, id: CampaignId, runs: &[i32]) -> sqlx::Result<Vec<(i32, Reports)>> {
    let rows = sqlx::query!(
        r#"SELECT p.run, m.variant AS "variant!", sum(r.acknowledged)::bigint AS "acknowledged!",
             sum(r.displayed)::bigint AS "displayed!", sum(r.clicked)::bigint AS "clicked!", sum(r.closed)::bigint AS "closed!"
           FROM campaign_parts p JOIN messages m ON m.id = p.message JOIN receipt_counts r ON r.message = m.id
           WHERE p.campaign = $1 AND p.run = ANY ($2) GROUP BY p.run, m.variant"#,
        id.0,
        runs
    )
    .fetch_all(pool)
    .await?;
    let reports = rows.into_iter().map(|row| {
        let reports = Reports {
            variant: row.variant,
            acknowledged: row.acknowledged,
            displayed: row.displayed,
            clicked: row.clicked,
            closed: row.closed,
        };
        (row.run, reports)
    });
    Ok(reports.collect())
}

/// What a message is within a run.
#[derive(Debug)]
pub(crate) struct PartRow {
    pub campaign: CampaignId,
    pub run: i32,
    pub variant: i16,
    /// Who of the audience it is for.
    pub narrow: Json<Narrow>,
}

/// What a message is within its campaign. None: it is of none, or that was deleted.
pub(crate) async fn part_of(pool: &PgPool, message: MessageId) -> sqlx::Result<Option<PartRow>> {
    sqlx::query_as!(
        PartRow,
        r#"SELECT campaign AS "campaign: CampaignId", run, variant, narrow AS "narrow: Json<Narrow>"
           FROM campaign_parts WHERE message = $1"#,
        message.0
    )
    .fetch_optional(pool)
    .await
}

/// When the messages of the same run and variant are due, and whom each is for.
pub(crate) async fn parts_beside(pool: &PgPool, part: &PartRow) -> sqlx::Result<Vec<(Timestamp, Json<Narrow>)>> {
    let rows = sqlx::query!(
        r#"SELECT due_at, narrow AS "narrow: Json<Narrow>" FROM campaign_parts
           WHERE campaign = $1 AND run = $2 AND variant = $3 ORDER BY due_at"#,
        part.campaign.0,
        part.run,
        part.variant
    );
    Ok(rows.fetch_all(pool).await?.into_iter().map(|row| (row.due_at, row.narrow)).collect())
}
