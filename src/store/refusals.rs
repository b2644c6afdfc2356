//! Subscriptions that gateways refuse for good without saying that they are gone: a few of them 400 for ever. After five
//! refusals in a row, one that was never accepted is suspended: kept, but not sent to until its browser comes back.

use std::time::Duration;

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::settle::{Fate, Settlement};
use super::stops::StopKind;
use super::unsent::{cancel_subscription, stop};
use crate::classify::DeadReason;
use crate::clock::Timestamp;
use crate::delivery::Ending;

/// Refusals in a row that suspend. The index `subscriptions_refused` and the statement below know it, too.
pub const REFUSALS_MAX: i16 = 5;
/// A key of which nothing was accepted for so long is failing as a whole: its refusals say nothing of subscriptions.
const KEY_WINDOW: Duration = Duration::from_secs(3600);
/// Subscriptions that one sweep looks at.
const CHUNK: i64 = 100;
/// Messages that are searched for an acceptance. With more of them it is taken for granted: better to go on sending to a
/// dead subscription than to drop a live one.
const MESSAGES_MAX: i64 = 10_000;

/// Counts the refusals among these endings, and forgives those who were accepted after all. Writes nothing in the usual
/// case, in which everybody is accepted who always was.
pub async fn count<'a>(conn: &mut PgConnection, settlements: impl Iterator<Item = &'a Settlement>) -> sqlx::Result<()> {
    let (mut refused, mut forgiven) = (Vec::new(), Vec::new());
    for settlement in settlements {
        match &settlement.fate {
            Fate::Ended(Ending::Dead, Some(death)) if is_refusal(death.reason) => {
                refused.push(settlement.subscription.0)
            }
            Fate::Ended(Ending::Accepted, _) if settlement.refusals > 0 => forgiven.push(settlement.subscription.0),
            _ => {}
        }
    }
    if refused.is_empty() && forgiven.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        r#"
        WITH given AS (
            SELECT id, 1 AS refused FROM unnest($1::uuid[]) AS r (id) UNION SELECT id, 0 FROM unnest($2::uuid[]) AS f (id)
        ),
        locked AS (
            SELECT s.ctid AS row, g.refused FROM given g
            JOIN subscriptions s ON s.id = g.id AND s.shard = get_byte(uuid_send(g.id), 15) & 63
            ORDER BY s.shard, s.id FOR NO KEY UPDATE OF s
        )
        UPDATE subscriptions s SET refusals = CASE l.refused WHEN 1 THEN least(s.refusals + 1, 1000) ELSE 0 END
        FROM locked l WHERE s.ctid = l.row
        "#,
        &refused,
        &forgiven
    )
    .execute(conn)
    .await
    .map(drop)
}

/// Whether [`count`] changes anything for an ending.
pub fn counts(settlement: &Settlement) -> bool {
    let refused = matches!(&settlement.fate, Fate::Ended(Ending::Dead, Some(death)) if is_refusal(death.reason));
    refused || concerns(settlement)
}

/// Whether an acceptance needs [`count`], as refusals always do.
pub fn concerns(settlement: &Settlement) -> bool {
    settlement.refusals > 0 && matches!(settlement.fate, Fate::Ended(Ending::Accepted, _))
}

/// Answers that would come again for this subscription whatever is sent: 4xx that no retry follows, but for those that
/// blame the payload.
fn is_refusal(reason: &str) -> bool {
    [DeadReason::BadRequest, DeadReason::Unauthorized, DeadReason::NonRetryable, DeadReason::Http4xx]
        .into_iter()
        .any(|refusal| refusal.name() == reason)
}

/// Suspends a chunk of those that were refused five times in a row and never accepted, unless their whole VAPID key is
/// failing. Answers how many it looked at, which are not looked at again before the next refusals.
pub async fn suspend(pool: &PgPool, now: Timestamp) -> sqlx::Result<usize> {
    let suspects = sqlx::query!(
        r#"
        SELECT s.shard, s.id, s.app, s.created_at FROM subscriptions s JOIN lanes l ON l.id = s.lane
        WHERE s.refusals >= 5 AND s.state = 'active' AND EXISTS (
            SELECT FROM lanes k JOIN rollups r ON r.lane = k.id AND r.minute >= $1 AND r.ending = 1
            WHERE k.vapid_key = l.vapid_key)
        ORDER BY s.shard, s.id LIMIT $2
        "#,
        now - KEY_WINDOW,
        CHUNK
    )
    .fetch_all(pool)
    .await?;
    for suspect in &suspects {
        let innocent = was_accepted(pool, suspect.app, suspect.shard, suspect.id, suspect.created_at).await?;
        let mut tx = pool.begin().await?;
        let state = if innocent { None } else { Some("suspended") };
        let changed = sqlx::query!(
            "UPDATE subscriptions SET refusals = 0, state = coalesce($3, state),
               ended_at = CASE WHEN $3::text IS NULL THEN ended_at ELSE $4 END
             WHERE shard = $1 AND id = $2 AND state = 'active' AND refusals >= 5",
            suspect.shard,
            suspect.id,
            state,
            now
        )
        .execute(&mut *tx)
        .await?;
        if changed.rows_affected() == 1 && !innocent {
            stop(&mut tx, StopKind::Unsubscribe, suspect.id, now).await?;
            cancel_subscription(&mut tx, suspect.shard, suspect.id, "suspended", now).await?;
        }
        tx.commit().await?;
    }
    Ok(suspects.len())
}

async fn was_accepted(pool: &PgPool, app: Uuid, shard: i16, id: Uuid, since: Timestamp) -> sqlx::Result<bool> {
    let found = sqlx::query!(
        r#"
        WITH sent AS MATERIALIZED (
            SELECT id FROM messages WHERE app = $1 AND accepted_at >= $2 ORDER BY id DESC LIMIT $3
        )
        SELECT (SELECT count(*) FROM sent) AS "messages!", EXISTS (
            SELECT FROM sent JOIN attempts a ON a.message = sent.id AND a.subscription = $4 AND a.shard = $5 AND a.ending = 1
        ) AS "accepted!"
        "#,
        app,
        since,
        MESSAGES_MAX,
        id,
        shard
    )
    .fetch_one(pool)
    .await?;
    Ok(found.accepted || found.messages == MESSAGES_MAX)
}
