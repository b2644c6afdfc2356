//! What moves campaigns on: orders, and the scheduler's steps. A step locks its campaign and skips those that another replica
//! has locked; whatever it makes commits with where the campaign then stands, so that a crash between any two lines leaves
//! nothing half done, and nothing is done twice.

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::campaign::parts::{Narrow, Part};
use crate::campaign::plan::Pace;
use crate::campaign::state::{Order, State, Turn};
use crate::campaign::winner::{Count, Verdict};
use crate::model::clock::Timestamp;
use crate::model::id::{AppId, CampaignId, MessageId};
use crate::store::queue::steering;
use crate::store::queue::stops::Stop;

/// Messages of a campaign that are looked at, the newest first: more than can be under way.
const MESSAGES_LOOKED_AT: i64 = 2_000;
/// Campaigns whose messages are steered in one round.
const STEERED_AT_ONCE: i64 = 100;

/// Turns a campaign within the caller's transaction. None: the app has no such campaign. Messages that were made already follow
/// by [`follow_through`].
pub(crate) async fn turn(
    conn: &mut PgConnection,
    app: AppId,
    id: CampaignId,
    order: Order,
    now: Timestamp,
) -> sqlx::Result<Option<Turn>> {
    let row = sqlx::query!(
        r#"SELECT state AS "state: State",
             EXISTS (SELECT FROM campaign_parts WHERE campaign = c.id AND message IS NOT NULL) AS "has_begun!"
           FROM campaigns c WHERE id = $1 AND app = $2 FOR NO KEY UPDATE"#,
        id.0,
        app.0
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let turn = row.state.after(order, row.has_begun);
    let Turn::To(state) = turn else { return Ok(Some(turn)) };
    let is_on = matches!(state, State::Scheduled | State::Sending);
    sqlx::query!(
        "UPDATE campaigns SET state = $2, next_at = $3, unsteered = $4, changed_at = $5,
           started_at = CASE WHEN $6 THEN $5 ELSE started_at END WHERE id = $1",
        id.0,
        state.name(),
        is_on.then_some(now),
        row.has_begun,
        now,
        order == Order::Start
    )
    .execute(&mut *conn)
    .await?;
    if order == Order::Cancel {
        forget_parts(conn, id).await?;
        sqlx::query!("UPDATE campaign_runs SET decide_at = NULL WHERE campaign = $1", id.0).execute(conn).await?;
    }
    Ok(Some(turn))
}

/// Forgets the messages that are still to be made.
pub(crate) async fn forget_parts(conn: &mut PgConnection, id: CampaignId) -> sqlx::Result<()> {
    let forgotten = sqlx::query!("DELETE FROM campaign_parts WHERE campaign = $1 AND message IS NULL", id.0);
    forgotten.execute(conn).await.map(drop)
}

/// Pauses, resumes or cancels the messages of campaigns that were turned, of all or of one: called by the request that turned it,
/// and by maintenance, should that have died. Returns what this process's dispatch has to obey.
pub(crate) async fn follow_through(pool: &PgPool, one: Option<CampaignId>, now: Timestamp) -> sqlx::Result<Vec<Stop>> {
    let turned = sqlx::query!(
        r#"SELECT id AS "id: CampaignId", app AS "app: AppId", state AS "state: State" FROM campaigns
           WHERE unsteered AND ($1::uuid IS NULL OR id = $1) ORDER BY id LIMIT $2"#,
        one.map(|id| id.0),
        STEERED_AT_ONCE
    )
    .fetch_all(pool)
    .await?;
    let mut stops = Vec::new();
    for campaign in turned {
        let order = match campaign.state {
            State::Paused => steering::Order::Pause,
            State::Cancelled => steering::Order::Cancel,
            State::Draft | State::Scheduled | State::Sending | State::Done => steering::Order::Resume,
        };
        for message in moving(pool, campaign.id).await? {
            stops.extend(steering::follow(pool, campaign.app, message, order, now).await?);
        }
        // Unless it was turned again meanwhile: then its messages are still to follow that.
        sqlx::query!(
            "UPDATE campaigns SET unsteered = false WHERE id = $1 AND state = $2",
            campaign.id.0,
            campaign.state.name()
        )
        .execute(pool)
        .await?;
    }
    Ok(stops)
}

/// Its messages that have deliveries to make.
async fn moving(pool: &PgPool, id: CampaignId) -> sqlx::Result<Vec<MessageId>> {
    sqlx::query_scalar!(
        r#"SELECT id AS "id: MessageId" FROM (
             SELECT id FROM messages WHERE campaign = $1 ORDER BY id DESC LIMIT $2) m
           WHERE (SELECT true FROM cursors WHERE message = m.id LIMIT 1) IS NOT NULL
              OR (SELECT true FROM batches WHERE message = m.id LIMIT 1) IS NOT NULL
              OR (SELECT true FROM queue WHERE message = m.id LIMIT 1) IS NOT NULL
           ORDER BY id"#,
        id.0,
        MESSAGES_LOOKED_AT
    )
    .fetch_all(pool)
    .await
}

/// A campaign that is due, locked.
#[derive(Debug)]
pub(crate) struct Due {
    pub id: CampaignId,
    pub app: AppId,
    /// Sealed.
    pub plan: Vec<u8>,
    /// How many runs have begun.
    pub runs: i32,
    /// When it was started.
    pub started_at: Timestamp,
    /// The time that its last run was for.
    pub last_at: Option<Timestamp>,
    /// The app's time zone.
    pub timezone: String,
}

/// Locks a campaign that is due, and that no other replica is at. None: there is none.
pub(crate) async fn lock_due(conn: &mut PgConnection, now: Timestamp) -> sqlx::Result<Option<Due>> {
    sqlx::query_as!(
        Due,
        r#"SELECT c.id AS "id: CampaignId", c.app AS "app: AppId", c.plan, c.runs, coalesce(c.started_at, c.created_at) AS "started_at!",
             (SELECT at FROM campaign_runs r WHERE r.campaign = c.id AND r.run = c.runs) AS last_at, a.timezone
           FROM campaigns c JOIN apps a ON a.id = c.app
           WHERE c.next_at <= $1 AND a.deleting_at IS NULL ORDER BY c.next_at LIMIT 1 FOR NO KEY UPDATE OF c SKIP LOCKED"#,
        now
    )
    .fetch_optional(conn)
    .await
}

/// Begins a run with the messages that it ends in. Returns its number.
pub(crate) async fn begin_run(
    conn: &mut PgConnection,
    due: &Due,
    at: Timestamp,
    root: Uuid,
    decide_at: Option<Timestamp>,
    parts: &[Part],
) -> sqlx::Result<i32> {
    let run = due.runs + 1;
    sqlx::query!(
        "WITH counted AS (UPDATE campaigns SET runs = $2 WHERE id = $1)
         INSERT INTO campaign_runs (campaign, run, at, root, decide_at) VALUES ($1, $2, $3, $4, $5)",
        due.id.0,
        run,
        at,
        root,
        decide_at
    )
    .execute(&mut *conn)
    .await?;
    add_parts(conn, due.id, run, parts).await?;
    Ok(run)
}

/// Adds messages to make to a run.
pub(crate) async fn add_parts(conn: &mut PgConnection, id: CampaignId, run: i32, parts: &[Part]) -> sqlx::Result<()> {
    let narrow: Vec<_> = parts.iter().map(|part| sqlx::types::Json(&part.narrow)).collect();
    sqlx::query!(
        "INSERT INTO campaign_parts (campaign, run, part, due_at, variant, narrow)
         SELECT $1, $2, (SELECT count(*) FROM campaign_parts WHERE campaign = $1 AND run = $2) + t.n, t.due_at, t.variant, t.narrow
         FROM unnest($3::timestamptz[], $4::smallint[], $5::jsonb[]) WITH ORDINALITY AS t (due_at, variant, narrow, n)",
        id.0,
        run,
        &parts.iter().map(|part| part.due_at).collect::<Vec<_>>(),
        &parts.iter().map(|part| number(part.variant)).collect::<Vec<_>>(),
        &narrow as &[sqlx::types::Json<&Narrow>]
    )
    .execute(conn)
    .await
    .map(drop)
}

fn number(variant: usize) -> i16 {
    i16::try_from(variant).unwrap_or(i16::MAX)
}

/// A message that is to be made now.
#[derive(Debug)]
pub(crate) struct DuePart {
    pub run: i32,
    pub part: i32,
    pub variant: i16,
    pub narrow: sqlx::types::Json<Narrow>,
    /// What the ids of its deliveries are derived from.
    pub root: Uuid,
}

/// The messages of a locked campaign that are due, the first first.
pub(crate) async fn due_parts(
    conn: &mut PgConnection,
    id: CampaignId,
    limit: i64,
    now: Timestamp,
) -> sqlx::Result<Vec<DuePart>> {
    sqlx::query_as!(
        DuePart,
        r#"SELECT p.run, p.part, p.variant, p.narrow AS "narrow: sqlx::types::Json<Narrow>", r.root
           FROM campaign_parts p JOIN campaign_runs r ON r.campaign = p.campaign AND r.run = p.run
           WHERE p.campaign = $1 AND p.message IS NULL AND p.due_at <= $2 ORDER BY p.due_at, p.part LIMIT $3"#,
        id.0,
        now,
        limit
    )
    .fetch_all(conn)
    .await
}

/// Notes that a message was made, and whose it is.
pub(crate) async fn part_made(
    conn: &mut PgConnection,
    id: CampaignId,
    part: &DuePart,
    message: MessageId,
) -> sqlx::Result<()> {
    sqlx::query!(
        "WITH made AS (UPDATE campaign_parts SET message = $4 WHERE campaign = $1 AND run = $2 AND part = $3)
         UPDATE messages SET campaign = $1, variant = $5, root = $6 WHERE id = $4",
        id.0,
        part.run,
        part.part,
        message.0,
        part.variant,
        part.root
    )
    .execute(conn)
    .await
    .map(drop)
}

/// Notes that there is nobody whom a message could be made for.
pub(crate) async fn part_dropped(conn: &mut PgConnection, id: CampaignId, part: &DuePart) -> sqlx::Result<()> {
    sqlx::query!("DELETE FROM campaign_parts WHERE campaign = $1 AND run = $2 AND part = $3", id.0, part.run, part.part)
        .execute(conn)
        .await
        .map(drop)
}

/// Sets the pace of a message's fan-out: each lane has its share of it, as its audience is counted now. `share` of the audience
/// is meant, in ten-thousandths.
pub(crate) async fn set_pace(conn: &mut PgConnection, message: MessageId, pace: Pace, share: i64) -> sqlx::Result<()> {
    let lanes = sqlx::query!(
        r#"SELECT c.lane, coalesce(sum(a.n), 0)::bigint AS "n!"
           FROM cursors c LEFT JOIN audiences a ON a.lane = c.lane AND a.topic = coalesce(c.topic, 0)
           WHERE c.message = $1 GROUP BY c.lane ORDER BY c.lane"#,
        message.0
    )
    .fetch_all(&mut *conn)
    .await?;
    let meant = |n: i64| n * share / i64::from(crate::campaign::plan::WHOLE);
    let total = lanes.iter().map(|lane| meant(lane.n)).sum();
    sqlx::query!(
        "UPDATE cursors c SET pace_us = t.pace_us FROM unnest($2::integer[], $3::bigint[]) AS t (lane, pace_us)
         WHERE c.message = $1 AND c.lane = t.lane",
        message.0,
        &lanes.iter().map(|lane| lane.lane).collect::<Vec<_>>(),
        &lanes.iter().map(|lane| pace.of_lane(meant(lane.n), total)).collect::<Vec<_>>()
    )
    .execute(conn)
    .await
    .map(drop)
}

/// A test that is to be decided.
#[derive(Debug)]
pub(crate) struct Undecided {
    pub run: i32,
    /// What was counted of each variant, by its place.
    pub counts: Vec<Count>,
}

/// A test of a locked campaign whose time has come.
pub(crate) async fn undecided(
    conn: &mut PgConnection,
    id: CampaignId,
    variants: usize,
    now: Timestamp,
) -> sqlx::Result<Option<Undecided>> {
    let run = sqlx::query_scalar!(
        "SELECT run FROM campaign_runs WHERE campaign = $1 AND decide_at <= $2 ORDER BY run LIMIT 1",
        id.0,
        now
    );
    let Some(run) = run.fetch_optional(&mut *conn).await? else { return Ok(None) };
    let rows = sqlx::query!(
        r#"SELECT p.variant, coalesce(sum(c.accepted), 0)::bigint AS "accepted!", coalesce(sum(r.clicked), 0)::bigint AS "clicked!"
           FROM campaign_parts p
             LEFT JOIN LATERAL (SELECT sum(accepted) AS accepted FROM message_counts WHERE message = p.message) c ON true
             LEFT JOIN receipt_counts r ON r.message = p.message
           WHERE p.campaign = $1 AND p.run = $2 GROUP BY p.variant"#,
        id.0,
        run
    )
    .fetch_all(conn)
    .await?;
    let mut counts = vec![Count { accepted: 0, clicked: 0 }; variants];
    for row in rows {
        if let Some(count) = usize::try_from(row.variant).ok().and_then(|place| counts.get_mut(place)) {
            *count = Count { accepted: row.accepted, clicked: row.clicked };
        }
    }
    Ok(Some(Undecided { run, counts }))
}

/// Writes down what a test came to.
pub(crate) async fn decided(
    conn: &mut PgConnection,
    id: CampaignId,
    run: i32,
    verdict: Option<Verdict>,
    winner: Option<usize>,
) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE campaign_runs SET decide_at = NULL, winner = $3, confidence = $4 WHERE campaign = $1 AND run = $2",
        id.0,
        run,
        winner.map(number),
        verdict.map(|verdict| verdict.confidence)
    )
    .execute(conn)
    .await
    .map(drop)
}

/// When the last run of another campaign of the app was for. None: it has not run.
pub(crate) async fn last_run_of(
    conn: &mut PgConnection,
    app: AppId,
    id: CampaignId,
) -> sqlx::Result<Option<Timestamp>> {
    let at = sqlx::query_scalar!(
        r#"SELECT max(r.at) FROM campaign_runs r JOIN campaigns c ON c.id = r.campaign WHERE c.id = $1 AND c.app = $2"#,
        id.0,
        app.0
    );
    at.fetch_one(conn).await
}

/// What of a campaign is still to come.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// When the next message is to be made.
    pub part_at: Option<Timestamp>,
    /// When the next test is to be decided.
    pub decide_at: Option<Timestamp>,
    /// Whether a message of the last run was made.
    pub has_begun: bool,
    /// Whether messages have deliveries to make.
    pub is_moving: bool,
}

/// What of a locked campaign is still to come.
pub(crate) async fn ahead(conn: &mut PgConnection, id: CampaignId) -> sqlx::Result<Ahead> {
    sqlx::query_as!(
        Ahead,
        r#"SELECT (SELECT min(due_at) FROM campaign_parts WHERE campaign = c.id AND message IS NULL) AS part_at,
             (SELECT min(decide_at) FROM campaign_runs WHERE campaign = c.id) AS decide_at,
             EXISTS (SELECT FROM campaign_parts WHERE campaign = c.id AND run = c.runs AND message IS NOT NULL) AS "has_begun!",
             EXISTS (SELECT FROM (SELECT id FROM messages WHERE campaign = c.id ORDER BY id DESC LIMIT $2) m
                     WHERE (SELECT true FROM cursors WHERE message = m.id LIMIT 1) IS NOT NULL
                        OR (SELECT true FROM batches WHERE message = m.id LIMIT 1) IS NOT NULL
                        OR (SELECT true FROM queue WHERE message = m.id LIMIT 1) IS NOT NULL) AS "is_moving!"
           FROM campaigns c WHERE id = $1"#,
        id.0,
        MESSAGES_LOOKED_AT
    )
    .fetch_one(conn)
    .await
}

/// Writes down where a locked campaign stands, and when it is to be looked at again.
pub(crate) async fn set_out(
    conn: &mut PgConnection,
    id: CampaignId,
    state: State,
    next_at: Option<Timestamp>,
    now: Timestamp,
) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE campaigns SET state = $2, next_at = $3, changed_at = CASE WHEN state = $2 THEN changed_at ELSE $4 END
         WHERE id = $1",
        id.0,
        state.name(),
        next_at,
        now
    )
    .execute(conn)
    .await
    .map(drop)
}
