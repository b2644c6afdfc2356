//! How a delivery that waits in `queue` ends without another POST: its row goes, and attempts, account and figures say so.
//! What a worker holds under a lease that lasts is left to that worker, who is told by a stop: what it has sent already
//! ends by its answer, the rest is not sent.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::model::clock::Timestamp;
use crate::model::delivery::Ending;
use crate::model::id::SubscriptionId;
use crate::store::outcomes::endings::bury_unsent;
use crate::store::outcomes::slas;
use crate::store::outcomes::tally::Tally;
use crate::store::queue::stops::{StopKind, stop_subscription};

/// A row taken out of `queue`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Its subscription's shard.
    pub shard: i16,
    /// Half of what the delivery is.
    pub subscription: Uuid,
    /// The other half.
    pub message: Uuid,
    /// Where it waited.
    pub lane: i32,
    /// [`crate::model::delivery::Tier::code`].
    pub tier: i16,
    /// Attempts that a retry followed.
    pub retries: i32,
}

/// Writes how these rows, which the same transaction has taken out of `queue`, ended: cancelled, gone, expired, or
/// accepted after all. Gone and expired ones leave letters. Locks what [comes last](super): nothing but events may follow.
pub(crate) async fn settle_unsent(
    conn: &mut PgConnection,
    rows: Vec<Waiting>,
    ending: Ending,
    reason: &str,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let mut tally = Tally::default();
    let late = match ending {
        Ending::Expired => rows.iter().map(|row| (row.message, row.lane)).unzip(),
        _ => (Vec::new(), Vec::new()),
    };
    log_unsent(conn, rows, ending, reason, &mut tally, now).await?;
    tally.write(conn, now).await?;
    slas::missed(conn, &late.0, &late.1, now).await
}

/// [`settle_unsent`] but for the tally, which the transaction writes later.
pub(crate) async fn log_unsent(
    conn: &mut PgConnection,
    mut rows: Vec<Waiting>,
    ending: Ending,
    reason: &str,
    tally: &mut Tally,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    rows.sort_unstable_by_key(|row| (row.message, row.subscription));
    let column = |value: fn(&Waiting) -> Uuid| rows.iter().map(value).collect::<Vec<_>>();
    sqlx::query!(
        "INSERT INTO attempts (message, subscription, attempt, shard, at, ending, reason)
         SELECT message, subscription, attempt, shard, $5, $6, $7
         FROM unnest($1::uuid[], $2::uuid[], $3::integer[], $4::smallint[]) AS t (message, subscription, attempt, shard)
         ON CONFLICT DO NOTHING",
        &column(|row| row.message),
        &column(|row| row.subscription),
        &rows.iter().map(|row| row.retries).collect::<Vec<_>>(),
        &rows.iter().map(|row| row.shard).collect::<Vec<_>>(),
        now,
        ending.code(),
        reason
    )
    .execute(&mut *conn)
    .await?;
    for row in &rows {
        tally.ended_unsent(row.message, row.lane, row.tier, ending);
    }
    match ending {
        Ending::Gone | Ending::Expired => bury_unsent(conn, &rows, ending, now).await,
        _ => Ok(()),
    }
}

/// Ends everything that waits for a subscription and that nobody holds.
pub(crate) async fn cancel_subscription(
    conn: &mut PgConnection,
    shard: i16,
    subscription: Uuid,
    reason: &str,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let mut tally = Tally::default();
    log_cancelled(conn, shard, subscription, reason, &mut tally, now).await?;
    tally.write(conn, now).await
}

/// [`cancel_subscription`] but for the tally, which the transaction writes later.
pub(crate) async fn log_cancelled(
    conn: &mut PgConnection,
    shard: i16,
    subscription: Uuid,
    reason: &str,
    tally: &mut Tally,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let rows = sqlx::query_as!(
        Waiting,
        "DELETE FROM queue WHERE shard = $1 AND subscription = $2 AND (lease IS NULL OR due_at <= $3)
         RETURNING shard, subscription, message, lane, tier, retries",
        shard,
        subscription,
        now
    )
    .fetch_all(&mut *conn)
    .await?;
    log_unsent(conn, rows, Ending::Cancelled, reason, tally, now).await
}

/// Ends what waits for a locked subscription and was meant for its user until now, who has left this browser, tells all
/// workers, and remembers that they did: what has died by then is not replayed. Messages to a topic or to everybody stay.
pub(crate) async fn cancel_previous_users(
    conn: &mut PgConnection,
    shard: i16,
    subscription: Uuid,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    stop_subscription(&mut *conn, StopKind::User, SubscriptionId(subscription), now).await?;
    let rows = sqlx::query_as!(
        Waiting,
        "WITH left_it AS (UPDATE subscriptions SET user_left_at = $3, life = life + 1 WHERE shard = $1 AND id = $2)
         DELETE FROM queue q USING messages m WHERE q.shard = $1 AND q.subscription = $2 AND m.id = q.message
           AND m.audience ?| ARRAY['users', 'subscriptions'] AND (q.lease IS NULL OR q.due_at <= $3)
         RETURNING q.shard, q.subscription, q.message, q.lane, q.tier, q.retries",
        shard,
        subscription,
        now
    )
    .fetch_all(&mut *conn)
    .await?;
    settle_unsent(conn, rows, Ending::Cancelled, "another user", now).await
}
