//! Progress of a campaign: results of its deliveries by variant and push service, and receipts. The counts of each message are
//! summed, so the cost does not depend on the number of recipients.

use std::cmp::Reverse;
use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;

use crate::outcomes::notes::CHARTED_ABOVE;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::{Ending, ReceiptKind};
use bellwire_core::id::{AppId, CampaignId, MessageId};
use bellwire_core::lane::Gateway;

const RUNS_SHOWN: i64 = 50;

/// Results of a variant's deliveries at one push service.
#[derive(Debug, Clone)]
pub struct Outcomes {
    /// Number of the run. 0: all runs.
    pub run: i32,
    /// Index of the variant in the plan.
    pub variant: i16,
    pub gateway: Gateway,
    pub targeted: i64,
    pub accepted: i64,
    pub gone: i64,
    pub expired: i64,
    pub dead: i64,
    pub cancelled: i64,
    pub capped: i64,
    /// Recipients excluded by a sunset rule. They are not targeted.
    pub sunset: i64,
}

/// Reads the results of a campaign's deliveries. Waiting deliveries are those targeted that have not ended.
pub async fn outcomes(pool: &PgPool, id: CampaignId) -> sqlx::Result<Vec<Outcomes>> {
    fetch_all!(
        pool,
        Outcomes,
        r#"SELECT 0 AS "run!", m.variant AS "variant!", l.gateway AS "gateway: Gateway", sum(c.targeted)::bigint AS "targeted!", sum(c.accepted)::bigint AS "accepted!",
             sum(c.gone)::bigint AS "gone!", sum(c.expired)::bigint AS "expired!", sum(c.dead)::bigint AS "dead!",
             sum(c.cancelled)::bigint AS "cancelled!", sum(c.capped)::bigint AS "capped!", sum(c.sunset)::bigint AS "sunset!"
           FROM messages m JOIN message_counts c ON c.message = m.id JOIN lanes l ON l.id = c.lane
           WHERE m.campaign = $1 GROUP BY m.variant, l.gateway ORDER BY m.variant, l.gateway"#,
        (id.0)
    )
}

#[derive(Debug, Clone, Copy)]
pub struct Reports {
    /// Number of the run. 0: all runs.
    pub run: i32,
    /// Index of the variant in the plan.
    pub variant: i16,
    pub acknowledged: i64,
    pub displayed: i64,
    pub clicked: i64,
    pub closed: i64,
}

pub async fn reports(pool: &PgPool, id: CampaignId) -> sqlx::Result<Vec<Reports>> {
    fetch_all!(
        pool,
        Reports,
        r#"SELECT 0 AS "run!", m.variant AS "variant!", sum(r.acknowledged)::bigint AS "acknowledged!", sum(r.displayed)::bigint AS "displayed!",
             sum(r.clicked)::bigint AS "clicked!", sum(r.closed)::bigint AS "closed!"
           FROM messages m JOIN receipt_counts r ON r.message = m.id WHERE m.campaign = $1 GROUP BY m.variant"#,
        (id.0)
    )
}

/// Progress of a campaign's messages.
#[derive(Debug, Clone, Copy)]
pub struct CampaignReach {
    pub messages: i64,
    /// Estimated number of deliveries.
    pub estimate: i64,
    /// Whether fan-out of all created messages is complete.
    pub expanded: bool,
    /// Messages not created yet, of runs that have begun.
    pub to_make: i64,
    /// Due time of the last message.
    pub last_due_at: Option<Timestamp>,
}

pub async fn reach(pool: &PgPool, id: CampaignId) -> sqlx::Result<CampaignReach> {
    fetch_one!(
        pool,
        CampaignReach,
        r#"SELECT m.messages AS "messages!", m.estimate AS "estimate!", m.expanded AS "expanded!", p.to_make AS "to_make!", p.last_due_at
           FROM (SELECT count(*) AS messages, coalesce(sum(audience_estimate), 0)::bigint AS estimate,
                   coalesce(bool_and((SELECT true FROM cursors WHERE message = m.id LIMIT 1) IS NULL), true) AS expanded
                 FROM messages m WHERE campaign = $1) m,
                (SELECT count(*) AS to_make, max(due_at) AS last_due_at FROM campaign_parts
                 WHERE campaign = $1 AND message IS NULL) p"#,
        (id.0)
    )
}

/// Progress of a campaign in a list.
#[derive(Debug, Clone)]
pub struct ListedProgress {
    pub campaign: CampaignId,
    /// Estimated number of deliveries.
    pub estimate: i64,
    /// Whether fan-out of all created messages is complete.
    pub expanded: bool,
    /// Messages not created yet, of runs that have begun.
    pub to_make: i64,
    pub targeted: i64,
    pub accepted: i64,
    pub gone: i64,
    pub expired: i64,
    pub dead: i64,
    pub cancelled: i64,
    pub capped: i64,
    pub sunset: i64,
}

pub async fn standings(pool: &PgPool, ids: &[CampaignId]) -> sqlx::Result<Vec<ListedProgress>> {
    fetch_all!(
        pool,
        ListedProgress,
        r#"SELECT k.id AS "campaign!: CampaignId", m.estimate AS "estimate!", m.expanded AS "expanded!", p.to_make AS "to_make!",
             c.targeted AS "targeted!", c.accepted AS "accepted!", c.gone AS "gone!", c.expired AS "expired!", c.dead AS "dead!",
             c.cancelled AS "cancelled!", c.capped AS "capped!", c.sunset AS "sunset!"
           FROM unnest($1::uuid[]) AS k (id),
             LATERAL (SELECT coalesce(sum(audience_estimate), 0)::bigint AS estimate,
                 coalesce(bool_and((SELECT true FROM cursors WHERE message = m.id LIMIT 1) IS NULL), true) AS expanded
               FROM messages m WHERE campaign = k.id) m,
             LATERAL (SELECT count(*) AS to_make FROM campaign_parts WHERE campaign = k.id AND message IS NULL) p,
             LATERAL (SELECT coalesce(sum(targeted), 0)::bigint AS targeted, coalesce(sum(accepted), 0)::bigint AS accepted,
                 coalesce(sum(gone), 0)::bigint AS gone, coalesce(sum(expired), 0)::bigint AS expired,
                 coalesce(sum(dead), 0)::bigint AS dead, coalesce(sum(cancelled), 0)::bigint AS cancelled,
                 coalesce(sum(capped), 0)::bigint AS capped, coalesce(sum(sunset), 0)::bigint AS sunset
               FROM messages m JOIN message_counts n ON n.message = m.id WHERE m.campaign = k.id) c"#,
        (ids as &[CampaignId])
    )
}

/// Number of a message's deliveries that ended since a minute began.
#[derive(Debug, Clone, Copy)]
pub struct EndedRow {
    pub accepted_at: Timestamp,
    pub n: i64,
}

/// Returns a campaign's deliveries that ended since a minute began, by message. Only large messages are recorded by minute.
pub async fn ended_since(pool: &PgPool, id: CampaignId, minute: Timestamp) -> sqlx::Result<Vec<EndedRow>> {
    fetch_all!(
        pool,
        EndedRow,
        r#"SELECT ended.accepted_at AS "accepted_at!", sum(ended.n)::bigint AS "n!" FROM (
             SELECT m.id, m.accepted_at, u.n FROM messages m
             JOIN rollups r ON r.step = 1 AND r.message = m.id AND r.start >= $2, unnest(r.facts, r.ns) AS u (fact, n)
             WHERE m.campaign = $1 AND m.audience_estimate > $3 AND u.fact <= $4 AND u.fact <> $5
             UNION ALL
             SELECT m.id, m.accepted_at, n.n FROM rollup_notes n JOIN messages m ON m.id = n.message
             WHERE m.campaign = $1 AND n.minute >= $2 AND n.fact <= $4 AND n.fact <> $5) ended
           GROUP BY ended.id, ended.accepted_at"#,
        (
            id.0,
            minute,
            CHARTED_ABOVE,
            Ending::Capped.code(),
            // the last of them
            Ending::Retry.code()
        )
    )
}

/// A push service with held deliveries. The cause is a hold or open breaker of a lane, a paused flow, or the runaway guard.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub struct CampaignHold {
    /// Name of the push service.
    pub gateway: Gateway,
    /// Time at which the longest hold ends. Null: it ends when an operator or the app resumes sending.
    pub until: Option<DateTime<Utc>>,
}

/// Returns the push services with held deliveries of a campaign, the longest hold first.
pub async fn held(pool: &PgPool, id: CampaignId, tier: i16, now: Timestamp) -> sqlx::Result<Vec<CampaignHold>> {
    fetch_all!(
        pool,
        CampaignHold,
        r#"SELECT l.gateway AS "gateway: Gateway", nullif(max(h.until), 'infinity') AS until
           FROM (
             SELECT c.lane FROM messages m JOIN message_counts c ON c.message = m.id
             WHERE m.campaign = $1 AND c.targeted > c.accepted + c.gone + c.expired + c.dead + c.cancelled + c.capped
             UNION SELECT c.lane FROM messages m JOIN cursors c ON c.message = m.id WHERE m.campaign = $1) w
           JOIN lanes l ON l.id = w.lane,
           LATERAL (
             SELECT greatest(held_until, key_held_until, CASE WHEN breaker = 'open' AND breaker_of IS NULL THEN open_until END)
               FROM lane_states WHERE lane = l.id
             UNION ALL
             SELECT 'infinity' FROM flows f
             WHERE f.app = l.app AND (f.lane IS NULL OR f.lane = l.id) AND (f.paused OR $2 = ANY (f.held_tiers))) h (until)
           WHERE h.until > $3 GROUP BY l.gateway ORDER BY max(h.until) DESC, l.gateway"#,
        (id.0, tier, now)
    )
}

#[derive(Debug, Clone)]
pub struct RunRow {
    pub run: i32,
    pub at: Timestamp,
    pub decide_at: Option<Timestamp>,
    /// Index of the winning variant.
    pub winner: Option<i16>,
    /// Probability that the best variant is better than every other.
    pub confidence: Option<f64>,
}

/// Returns the last runs of a campaign, the latest first.
pub async fn runs(pool: &PgPool, id: CampaignId) -> sqlx::Result<Vec<RunRow>> {
    fetch_all!(
        pool,
        RunRow,
        "SELECT run, at, decide_at, winner, confidence FROM campaign_runs WHERE campaign = $1 ORDER BY run DESC LIMIT $2",
        (id.0, RUNS_SHOWN)
    )
}

/// Results of deliveries to browsers of one language.
#[derive(Debug, Serialize, ToSchema)]
pub struct CampaignLocaleReports {
    /// Locale of the browsers. Null: not reported.
    pub locale: Option<String>,
    /// Deliveries accepted by push services.
    pub accepted: i64,
    /// Number of displays.
    pub displayed: i64,
    /// Number of clicks.
    pub clicked: i64,
}

/// Reads the results of a campaign's deliveries by locale, the most frequent first. Each attempt is read, which takes seconds
/// for a million. The locale of subscriptions deleted by retention is unknown.
pub async fn by_locale(
    pool: &PgPool, app: AppId, id: CampaignId, limit: usize,
) -> sqlx::Result<Vec<CampaignLocaleReports>> {
    let messages = messages_of(pool, app, id).await?;
    let accepted = query!(
        r#"SELECT s.locale AS "locale?", count(*) AS "n!" FROM attempts a
             LEFT JOIN subscriptions s ON s.shard = a.shard AND s.id = a.subscription
           WHERE a.message = ANY ($1) AND a.ending = 1 GROUP BY s.locale"#,
        (&messages as &[MessageId])
    );
    let reported = query!(
        r#"SELECT s.locale AS "locale?", r.kind, count(*) AS "n!" FROM receipts r
             LEFT JOIN subscriptions s ON s.shard = r.shard AND s.id = r.subscription
           WHERE r.message = ANY ($1) AND r.kind < 3 GROUP BY s.locale, r.kind"#,
        (&messages as &[MessageId])
    );
    let mut by_locale: HashMap<Option<String>, CampaignLocaleReports> = HashMap::new();
    let mut of = |locale: Option<String>, accepted, displayed, clicked| {
        let none = CampaignLocaleReports { locale: locale.clone(), accepted: 0, displayed: 0, clicked: 0 };
        let sum = by_locale.entry(locale).or_insert(none);
        (sum.accepted, sum.displayed, sum.clicked) =
            (sum.accepted + accepted, sum.displayed + displayed, sum.clicked + clicked);
    };
    for row in accepted.fetch_all(pool).await? {
        of(row.locale, row.n, 0, 0);
    }
    for row in reported.fetch_all(pool).await? {
        let (displayed, clicked) = displayed_and_clicked(row.kind, row.n);
        of(row.locale, 0, displayed, clicked);
    }
    let mut all: Vec<CampaignLocaleReports> = by_locale.into_values().collect();
    all.sort_unstable_by_key(|of| (Reverse(of.accepted), of.locale.is_none(), of.locale.clone()));
    all.truncate(limit);
    Ok(all)
}

/// Receipts of a campaign's deliveries by one push service.
#[derive(Debug)]
pub struct OfGateway {
    pub gateway: Gateway,
    pub accepted: i64,
    pub displayed: i64,
    pub clicked: i64,
}

/// Reads the receipts of a campaign's deliveries by push service, the one with most accepted deliveries first. Each receipt is
/// read. Those of subscriptions deleted by retention are omitted.
pub async fn by_gateway(pool: &PgPool, app: AppId, id: CampaignId) -> sqlx::Result<Vec<OfGateway>> {
    let messages = messages_of(pool, app, id).await?;
    let reported = query!(
        r#"SELECT s.lane, r.kind, count(*) AS "n!" FROM receipts r
             JOIN subscriptions s ON s.shard = r.shard AND s.id = r.subscription
           WHERE r.message = ANY ($1) AND r.kind < 3 GROUP BY s.lane, r.kind"#,
        (&messages as &[MessageId])
    );
    let (mut lanes, mut displayed, mut clicked) = (Vec::new(), Vec::new(), Vec::new());
    for row in reported.fetch_all(pool).await? {
        let of = displayed_and_clicked(row.kind, row.n);
        lanes.push(row.lane);
        displayed.push(of.0);
        clicked.push(of.1);
    }
    fetch_all!(
        pool,
        OfGateway,
        r#"SELECT l.gateway AS "gateway: Gateway", sum(t.accepted)::bigint AS "accepted!", sum(t.displayed)::bigint AS "displayed!",
             sum(t.clicked)::bigint AS "clicked!"
           FROM (
             SELECT lane, accepted, 0 AS displayed, 0 AS clicked FROM message_counts WHERE message = ANY ($1)
             UNION ALL
             SELECT lane, 0, displayed, clicked FROM unnest($2::integer[], $3::bigint[], $4::bigint[])
               AS r (lane, displayed, clicked)) t
           JOIN lanes l ON l.id = t.lane GROUP BY l.gateway ORDER BY 2 DESC, 1"#,
        (&messages as &[MessageId], &lanes, &displayed, &clicked)
    )
}

async fn messages_of(pool: &PgPool, app: AppId, id: CampaignId) -> sqlx::Result<Vec<MessageId>> {
    fetch_all!(
        pool,
        scalar,
        r#"SELECT id AS "id: MessageId" FROM messages WHERE campaign = $1 AND app = $2"#,
        (id.0, app.0)
    )
}

/// Splits `n` receipts of a kind into displayed and clicked ones.
fn displayed_and_clicked(kind: i16, n: i64) -> (i64, i64) {
    match kind == ReceiptKind::Displayed.code() {
        true => (n, 0),
        false => (0, n),
    }
}
