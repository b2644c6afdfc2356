//! Steps of the scheduler. A step locks its campaign and skips those that another replica has locked. Its results commit
//! together with the new state of the campaign. So a crash leaves no half-done step, and no step runs twice.

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, CampaignId, MessageId};
use bellwire_rules::campaign::parts::{CampaignPart, Narrow};
use bellwire_rules::campaign::plan::{WHOLE, share_of, spread_over};
use bellwire_rules::campaign::state::CampaignState;
use bellwire_rules::campaign::winner::{VariantCount, WinnerVerdict};

/// Maximum messages of a campaign that are read, newest first: more than can be active.
const MESSAGES_LOOKED_AT: i64 = 2_000;

/// Deletes the messages of a campaign that are not created yet.
pub async fn forget_parts(conn: &mut PgConnection, id: CampaignId) -> sqlx::Result<()> {
    execute!(conn, "DELETE FROM campaign_parts WHERE campaign = $1 AND message IS NULL", (id.0))
}

#[derive(Debug)]
pub struct DueCampaign {
    pub id: CampaignId,
    pub app: AppId,
    /// Encrypted plan of the campaign.
    pub plan: Vec<u8>,
    pub runs: i32,
    pub started_at: Timestamp,
    pub timezone: String,
}

/// Returns the due time of the next campaign. It is in the past if messages do not have the state of their campaign yet.
/// `None`: no campaign is planned.
pub async fn next_due(pool: &PgPool) -> sqlx::Result<Option<Timestamp>> {
    fetch_one!(
        pool,
        scalar,
        r#"SELECT CASE WHEN EXISTS (SELECT FROM campaigns WHERE unsteered) THEN 'epoch'
             ELSE (SELECT min(next_at) FROM campaigns) END"#
    )
}

/// Locks a due campaign that no other replica has locked. `None`: there is none.
pub async fn lock_due(conn: &mut PgConnection, now: Timestamp) -> sqlx::Result<Option<DueCampaign>> {
    fetch_optional!(
        conn,
        DueCampaign,
        r#"SELECT c.id AS "id: CampaignId", c.app AS "app: AppId", c.plan, c.runs, coalesce(c.started_at, c.created_at) AS "started_at!",
             a.timezone
           FROM campaigns c JOIN apps a ON a.id = c.app
           WHERE c.next_at <= $1 AND a.deleting_at IS NULL ORDER BY c.next_at LIMIT 1 FOR NO KEY UPDATE OF c SKIP LOCKED"#,
        (now)
    )
}

/// Schedules the next step of a locked campaign for this time.
pub async fn put_off(conn: &mut PgConnection, id: CampaignId, until: Timestamp) -> sqlx::Result<()> {
    execute!(conn, "UPDATE campaigns SET next_at = $2 WHERE id = $1", (id.0, until))
}

/// Ends a locked campaign that has expired: no more messages are created, and [`super::transitions::follow_through`] cancels
/// the running ones.
pub async fn expire(conn: &mut PgConnection, id: CampaignId) -> sqlx::Result<()> {
    forget_parts(conn, id).await?;
    execute!(conn, "UPDATE campaigns SET expired = true, unsteered = true WHERE id = $1 AND NOT expired", (id.0))
}

/// Returns the scheduled time of the last run. It is read after locking the campaign, so that a run just begun by another
/// replica is seen.
pub async fn last_at(conn: &mut PgConnection, due: &DueCampaign) -> sqlx::Result<Option<Timestamp>> {
    fetch_optional!(conn, scalar, "SELECT at FROM campaign_runs WHERE campaign = $1 AND run = $2", (due.id.0, due.runs))
}

/// Begins a run with its messages. Returns its number.
pub async fn begin_run(
    conn: &mut PgConnection, due: &DueCampaign, at: Timestamp, root: Uuid, decide_at: Option<Timestamp>,
    parts: &[CampaignPart],
) -> sqlx::Result<i32> {
    let run = due.runs + 1;
    execute!(
        &mut *conn,
        "WITH counted AS (UPDATE campaigns SET runs = $2 WHERE id = $1)
         INSERT INTO campaign_runs (campaign, run, at, root, decide_at) VALUES ($1, $2, $3, $4, $5)",
        (due.id.0, run, at, root, decide_at)
    )?;
    add_parts(conn, due.id, run, parts).await?;
    Ok(run)
}

pub async fn add_parts(conn: &mut PgConnection, id: CampaignId, run: i32, parts: &[CampaignPart]) -> sqlx::Result<()> {
    let narrow: Vec<_> = parts.iter().map(|part| sqlx::types::Json(&part.narrow)).collect();
    execute!(
        conn,
        "INSERT INTO campaign_parts (campaign, run, part, due_at, variant, narrow)
         SELECT $1, $2, (SELECT coalesce(max(part), 0) FROM campaign_parts WHERE campaign = $1 AND run = $2) + t.n, t.due_at, t.variant, t.narrow
         FROM unnest($3::timestamptz[], $4::smallint[], $5::jsonb[]) WITH ORDINALITY AS t (due_at, variant, narrow, n)",
        (id.0, run),
        parts,
        |part| (part.due_at, number(part.variant)),
        (&narrow as &[sqlx::types::Json<&Narrow>])
    )
}

fn number(variant: usize) -> i16 {
    i16::try_from(variant).unwrap_or(i16::MAX)
}

/// A message that is due to be created.
#[derive(Debug)]
pub struct DuePart {
    pub run: i32,
    pub part: i32,
    pub variant: i16,
    pub narrow: sqlx::types::Json<Narrow>,
    /// UUID from which the ids of its deliveries are derived.
    pub root: Uuid,
    /// Time as of which its recipients are assigned: the start of the run.
    pub assigned_at: Timestamp,
}

/// Returns the first due message of a locked campaign.
pub async fn due_part(conn: &mut PgConnection, id: CampaignId, now: Timestamp) -> sqlx::Result<Option<DuePart>> {
    fetch_optional!(
        conn,
        DuePart,
        r#"SELECT p.run, p.part, p.variant, p.narrow AS "narrow: sqlx::types::Json<Narrow>", r.root, r.at AS assigned_at
           FROM campaign_parts p JOIN campaign_runs r ON r.campaign = p.campaign AND r.run = p.run
           WHERE p.campaign = $1 AND p.message IS NULL AND p.due_at <= $2 ORDER BY p.due_at, p.run, p.part LIMIT 1"#,
        (id.0, now)
    )
}

/// Records that a message was created, with its id.
pub async fn part_made(
    conn: &mut PgConnection, id: CampaignId, part: &DuePart, message: MessageId,
) -> sqlx::Result<()> {
    execute!(
        conn,
        "WITH made AS (UPDATE campaign_parts SET message = $4 WHERE campaign = $1 AND run = $2 AND part = $3)
         UPDATE messages SET campaign = $1, variant = $5, root = $6, assigned_at = $7 WHERE id = $4",
        (id.0, part.run, part.part, message.0, part.variant, part.root, part.assigned_at)
    )
}

/// Records that a message was omitted, because it would have no recipients.
pub async fn part_dropped(conn: &mut PgConnection, id: CampaignId, part: &DuePart) -> sqlx::Result<()> {
    execute!(
        conn,
        "DELETE FROM campaign_parts WHERE campaign = $1 AND run = $2 AND part = $3",
        (id.0, part.run, part.part)
    )
}

/// Spreads the fan-out of a message over `seconds` in each lane, by the current size of its audience. `share` is its part of
/// the audience, in ten-thousandths.
pub async fn spread(conn: &mut PgConnection, message: MessageId, seconds: u32, share: i64) -> sqlx::Result<()> {
    let lanes = fetch_all!(
        &mut *conn,
        r#"SELECT c.lane, coalesce(sum(a.n), 0)::bigint AS "n!"
           FROM cursors c LEFT JOIN audiences a ON a.lane = c.lane AND a.topic = coalesce(c.topic, 0)
           WHERE c.message = $1 GROUP BY c.lane ORDER BY c.lane"#,
        (message.0)
    )?;
    let meant = |n: i64| n * share / i64::from(WHOLE);
    execute!(
        conn,
        "UPDATE cursors c SET pace_us = t.pace_us FROM unnest($2::integer[], $3::bigint[]) AS t (lane, pace_us)
         WHERE c.message = $1 AND c.lane = t.lane",
        (message.0),
        lanes,
        |lane| (lane.lane, spread_over(seconds, meant(lane.n)))
    )
}

/// Divides the send rate of a locked campaign among all of its cursors in proportion to their remaining audiences. Repeating it
/// passes the rate of finished cursors to the others.
pub async fn share_pace(conn: &mut PgConnection, id: CampaignId, per_minute: u32) -> sqlx::Result<()> {
    // In a fixed order, since a pause of a single message locks its cursors, too.
    let cursors = fetch_all!(
        &mut *conn,
        r#"SELECT c.message, c.lane, c.pace_us,
             (SELECT coalesce(sum(n), 0)::bigint FROM audiences WHERE lane = c.lane AND topic = coalesce(c.topic, 0))
               * coalesce((p.narrow->'share'->>'to')::bigint - (p.narrow->'share'->>'from')::bigint, $3) AS "weight!"
           FROM (SELECT id FROM messages WHERE campaign = $1 ORDER BY id DESC LIMIT $2) m
             JOIN campaign_parts p ON p.message = m.id JOIN cursors c ON c.message = m.id
           ORDER BY c.message, c.lane FOR UPDATE OF c"#,
        (id.0, MESSAGES_LOOKED_AT, i64::from(WHOLE))
    )?;
    let weights: Vec<i64> = cursors.iter().map(|cursor| cursor.weight).collect();
    let paces = share_of(per_minute, &weights);
    let changed = cursors.iter().zip(&paces).filter(|(cursor, pace)| cursor.pace_us != Some(pace.us));
    let (mut messages, mut lanes, mut us, mut waits) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (cursor, pace) in changed {
        messages.push(cursor.message);
        lanes.push(cursor.lane);
        us.push(pace.us);
        waits.push(if cursor.pace_us.is_none() { pace.begins_after_us } else { 0 });
    }
    if messages.is_empty() {
        return Ok(());
    }
    execute!(
        conn,
        "UPDATE cursors c SET pace_us = t.pace_us, due_at = c.due_at + t.wait_us * interval '1 microsecond'
         FROM unnest($1::uuid[], $2::integer[], $3::bigint[], $4::bigint[]) AS t (message, lane, pace_us, wait_us)
         WHERE c.message = t.message AND c.lane = t.lane",
        (&messages, &lanes, &us, &waits)
    )
}

/// An A/B test that is due for a decision.
#[derive(Debug)]
pub struct Undecided {
    pub run: i32,
    /// Counts by index of the variant.
    pub counts: Vec<VariantCount>,
}

/// Returns a test of a locked campaign that is due for a decision.
pub async fn undecided(
    conn: &mut PgConnection, id: CampaignId, variants: usize, now: Timestamp,
) -> sqlx::Result<Option<Undecided>> {
    let run = query!(
        scalar,
        "SELECT run FROM campaign_runs WHERE campaign = $1 AND decide_at <= $2 ORDER BY run LIMIT 1",
        (id.0, now)
    );
    let Some(run) = run.fetch_optional(&mut *conn).await? else { return Ok(None) };
    let rows = fetch_all!(
        conn,
        r#"SELECT p.variant, coalesce(sum(c.accepted), 0)::bigint AS "accepted!", coalesce(sum(r.clicked), 0)::bigint AS "clicked!"
           FROM campaign_parts p
             LEFT JOIN LATERAL (SELECT sum(accepted) AS accepted FROM message_counts WHERE message = p.message) c ON true
             LEFT JOIN receipt_counts r ON r.message = p.message
           WHERE p.campaign = $1 AND p.run = $2 GROUP BY p.variant"#,
        (id.0, run)
    )?;
    let mut counts = vec![VariantCount { accepted: 0, clicked: 0 }; variants];
    for row in rows {
        if let Some(count) = usize::try_from(row.variant).ok().and_then(|place| counts.get_mut(place)) {
            *count = VariantCount { accepted: row.accepted, clicked: row.clicked };
        }
    }
    Ok(Some(Undecided { run, counts }))
}

/// Stores the result of a test.
pub async fn decided(
    conn: &mut PgConnection, id: CampaignId, run: i32, verdict: Option<WinnerVerdict>, winner: Option<usize>,
) -> sqlx::Result<()> {
    execute!(
        conn,
        "UPDATE campaign_runs SET decide_at = NULL, winner = $3, confidence = $4 WHERE campaign = $1 AND run = $2",
        (id.0, run, winner.map(number), verdict.map(|verdict| verdict.confidence))
    )
}

/// State of the run that a follow-up follows.
#[derive(Debug)]
pub struct FollowedRun {
    /// Whether the followed campaign may still run.
    pub is_on: bool,
    /// Scheduled time of the run. `None`: no run yet.
    pub at: Option<Timestamp>,
}

/// Returns the run that a follow-up started at `since` follows: the followed campaign's last run until then, or else its first.
/// Nothing follows a run all of whose messages are withdrawn. `None`: the followed campaign does not exist.
pub async fn followed(
    conn: &mut PgConnection, app: AppId, id: CampaignId, since: Timestamp,
) -> sqlx::Result<Option<FollowedRun>> {
    fetch_optional!(
        conn,
        FollowedRun,
        r#"SELECT c.state NOT IN ('cancelled', 'done') AND NOT coalesce(r.withdrawn, false) AS "is_on!",
             CASE WHEN NOT r.withdrawn THEN r.at END AS at
           FROM campaigns c LEFT JOIN LATERAL (
             SELECT r.at, (SELECT coalesce(bool_and(w.message IS NOT NULL), false)
                           FROM campaign_parts p LEFT JOIN withdrawals w ON w.message = p.message
                           WHERE p.campaign = r.campaign AND p.run = r.run AND p.message IS NOT NULL) AS withdrawn
             FROM campaign_runs r WHERE r.campaign = c.id
             ORDER BY r.at <= $3 DESC, CASE WHEN r.at <= $3 THEN r.run ELSE -r.run END DESC LIMIT 1) r ON true
           WHERE c.id = $1 AND c.app = $2"#,
        (id.0, app.0, since)
    )
}

/// Remaining work of a campaign.
#[derive(Debug)]
pub struct Ahead {
    pub part_at: Option<Timestamp>,
    pub decide_at: Option<Timestamp>,
    /// Whether a message of the last run was created.
    pub has_begun: bool,
    /// Whether messages have deliveries that are not created yet.
    pub is_moving: bool,
}

/// Returns the remaining work of a locked campaign.
pub async fn ahead(conn: &mut PgConnection, id: CampaignId) -> sqlx::Result<Ahead> {
    fetch_one!(
        conn,
        Ahead,
        r#"SELECT (SELECT min(due_at) FROM campaign_parts WHERE campaign = c.id AND message IS NULL) AS part_at,
             (SELECT min(decide_at) FROM campaign_runs WHERE campaign = c.id) AS decide_at,
             EXISTS (SELECT FROM campaign_parts WHERE campaign = c.id AND run = c.runs AND message IS NOT NULL) AS "has_begun!",
             EXISTS (SELECT FROM (SELECT id FROM messages WHERE campaign = c.id ORDER BY id DESC LIMIT $2) m
                     WHERE (SELECT true FROM cursors WHERE message = m.id LIMIT 1) IS NOT NULL
                        OR (SELECT true FROM batches WHERE message = m.id LIMIT 1) IS NOT NULL
                        OR (SELECT true FROM queue WHERE message = m.id LIMIT 1) IS NOT NULL) AS "is_moving!"
           FROM campaigns c WHERE id = $1"#,
        (id.0, MESSAGES_LOOKED_AT)
    )
}

/// Stores the state of a locked campaign, and the time of its next step.
pub async fn set_out(
    conn: &mut PgConnection, id: CampaignId, state: CampaignState, next_at: Option<Timestamp>, now: Timestamp,
) -> sqlx::Result<()> {
    execute!(
        conn,
        "UPDATE campaigns SET state = $2, next_at = $3, changed_at = CASE WHEN state = $2 THEN changed_at ELSE $4 END
         WHERE id = $1",
        (id.0, state.name(), next_at, now)
    )
}
