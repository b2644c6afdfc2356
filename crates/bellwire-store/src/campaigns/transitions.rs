//! State changes of campaigns and of their messages. A request changes the campaign's row. Existing messages are then changed
//! one by one to the campaign's current state; several replicas may do so at the same time.

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::scheduler::forget_parts;
use crate::operations::retrying::retrying;
use crate::queue::steering::{self, Steered};
use crate::queue::stops::Stop;
use crate::transactions::begin;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, CampaignId, MessageId};
use bellwire_rules::campaign::state::{CampaignOrder, CampaignState, OrderResult};

const LISTED_AT_ONCE: i64 = 100;
const LOOKED_AT_ONCE: i64 = 2_000;

/// Changes the state of a campaign in the caller's transaction. `None`: the app has no such campaign. [`follow_through`]
/// changes its existing messages afterwards.
pub async fn turn(
    conn: &mut PgConnection, app: AppId, id: CampaignId, order: CampaignOrder, now: Timestamp,
) -> sqlx::Result<Option<OrderResult>> {
    let row = query!(
        r#"SELECT state AS "state: CampaignState", changed_at FROM campaigns WHERE id = $1 AND app = $2 FOR NO KEY UPDATE"#,
        (id.0, app.0)
    );
    let Some(row) = row.fetch_optional(&mut *conn).await? else { return Ok(None) };
    // A statement of its own: one that waited for the lock would not see the message that was made meanwhile.
    let has_begun = fetch_one!(
        &mut *conn,
        scalar,
        r#"SELECT EXISTS (SELECT FROM campaign_parts WHERE campaign = $1 AND message IS NOT NULL)
               OR EXISTS (SELECT FROM messages WHERE campaign = $1) AS "has_begun!""#,
        (id.0)
    )?;
    let turn = row.state.after(order, has_begun);
    let OrderResult::To(state) = turn else { return Ok(Some(turn)) };
    let is_on = matches!(state, CampaignState::Scheduled | CampaignState::Sending);
    execute!(
        &mut *conn,
        "UPDATE campaigns SET state = $2, next_at = $3, unsteered = $4, changed_at = $5,
           started_at = CASE WHEN $6 THEN $5 ELSE started_at END WHERE id = $1",
        (id.0, state.name(), is_on.then_some(now), has_begun, now, order == CampaignOrder::Start)
    )?;
    match order {
        CampaignOrder::Start | CampaignOrder::Pause => {}
        CampaignOrder::Resume => put_off_decisions(conn, id, row.changed_at, now).await?,
        CampaignOrder::Cancel => {
            forget_parts(conn, id).await?;
            execute!(conn, "UPDATE campaign_runs SET decide_at = NULL WHERE campaign = $1", (id.0))?;
        }
    }
    Ok(Some(turn))
}

/// Delays the decisions of A/B tests by the length of the pause.
async fn put_off_decisions(
    conn: &mut PgConnection, id: CampaignId, paused_at: Timestamp, now: Timestamp,
) -> sqlx::Result<()> {
    execute!(
        conn,
        "UPDATE campaign_runs SET decide_at = decide_at + greatest($3::timestamptz - $2, interval '0')
         WHERE campaign = $1 AND decide_at IS NOT NULL",
        (id.0, paused_at, now)
    )
}

/// Returns a page of campaigns with ids above `after` whose messages do not have their state yet.
pub async fn unsteered(pool: &PgPool, after: CampaignId) -> sqlx::Result<Vec<CampaignId>> {
    fetch_all!(
        pool,
        scalar,
        r#"SELECT id AS "id: CampaignId" FROM campaigns WHERE unsteered AND id > $1 ORDER BY id LIMIT $2"#,
        (after.0, LISTED_AT_ONCE)
    )
}

/// Pauses, resumes or cancels the messages of a campaign that was changed or has expired. Called by the request, by its
/// repeats, and by maintenance in case the request was interrupted. Returns the stops for this process's dispatch.
pub async fn follow_through(pool: &PgPool, id: CampaignId, now: Timestamp) -> sqlx::Result<Vec<Stop>> {
    let turned = query!(
        r#"SELECT app AS "app: AppId", state AS "state: CampaignState", expired, changed_at FROM campaigns WHERE id = $1 AND unsteered"#,
        (id.0)
    );
    let Some(turned) = turned.fetch_optional(pool).await? else { return Ok(Vec::new()) };
    let (mut stops, mut below) = (Vec::new(), Some(Uuid::max()));
    while let Some(end) = below {
        let looked_at = look_at(pool, id, end).await?;
        for message in looked_at.moving {
            stops.extend(follow(pool, turned.app, id, message, now).await?);
        }
        below = looked_at.last;
    }
    // Unless it was turned again meanwhile: then its messages are still to follow that.
    execute!(
        pool,
        "UPDATE campaigns SET unsteered = false WHERE id = $1 AND state = $2 AND expired = $3 AND changed_at = $4",
        (id.0, turned.state.name(), turned.expired, turned.changed_at)
    )?;
    Ok(stops)
}

struct LookedAt {
    moving: Vec<MessageId>,
    /// Oldest message read. `None`: no older ones.
    last: Option<Uuid>,
}

/// Reads the newest messages of a campaign with ids below `end` that still have content, as all with waiting deliveries do.
async fn look_at(pool: &PgPool, id: CampaignId, end: Uuid) -> sqlx::Result<LookedAt> {
    let rows = fetch_all!(
        pool,
        r#"SELECT id, ((SELECT true FROM cursors WHERE message = m.id LIMIT 1) IS NOT NULL
             OR (SELECT true FROM batches WHERE message = m.id LIMIT 1) IS NOT NULL
             OR (SELECT true FROM queue WHERE message = m.id LIMIT 1) IS NOT NULL) AS "is_moving!"
           FROM (SELECT id FROM messages WHERE campaign = $1 AND id < $2 AND content IS NOT NULL ORDER BY id DESC LIMIT $3) m ORDER BY id DESC"#,
        (id.0, end, LOOKED_AT_ONCE)
    )?;
    let is_full = i64::try_from(rows.len()) == Ok(LOOKED_AT_ONCE);
    let last = rows.last().map(|row| row.id).filter(|_| is_full);
    let moving = rows.into_iter().filter(|row| row.is_moving).map(|row| MessageId(row.id)).collect();
    Ok(LookedAt { moving, last })
}

/// Changes a message to the current state of its locked campaign. `None`: the message has the state already, or has ended.
async fn follow(
    pool: &PgPool, app: AppId, id: CampaignId, message: MessageId, now: Timestamp,
) -> sqlx::Result<Option<Stop>> {
    retrying(|| async move {
        let mut tx = begin(pool).await?;
        let campaign =
            query!(r#"SELECT state AS "state: CampaignState", expired FROM campaigns WHERE id = $1 FOR SHARE"#, (id.0));
        let Some(campaign) = campaign.fetch_optional(&mut *tx).await? else { return Ok(None) };
        let order = match campaign.state {
            state if campaign.expired || state == CampaignState::Cancelled => steering::MessageOrder::Cancel,
            CampaignState::Paused => steering::MessageOrder::Pause,
            _ => steering::MessageOrder::Resume,
        };
        match steering::steer_within(&mut tx, app, message, order, now).await? {
            Steered::Now { stop, .. } => tx.commit().await.map(|()| Some(stop)),
            Steered::Unknown | Steered::Done | Steered::Cancelled | Steered::Already => Ok(None),
        }
    })
    .await
}
