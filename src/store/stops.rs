//! Stops: what must not be sent any more, read by every worker several times a second.

use std::time::Duration;

use sqlx::PgPool;
use uuid::Uuid;

use crate::clock::Timestamp;

/// What a stop says about its target, a message or a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopKind {
    /// The subscription ended.
    Unsubscribe,
    /// The message was cancelled.
    Cancel,
    /// The message is paused.
    Pause,
    /// The message may be sent again.
    Resume,
}

impl StopKind {
    /// The name in the database.
    pub fn name(self) -> &'static str {
        match self {
            StopKind::Unsubscribe => "unsubscribe",
            StopKind::Cancel => "cancel",
            StopKind::Pause => "pause",
            StopKind::Resume => "resume",
        }
    }
}

/// One stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop {
    /// Its id.
    pub id: Uuid,
    /// What it says.
    pub kind: StopKind,
    /// A subscription, or a message.
    pub target: Uuid,
}

/// How far back stops are read. Far longer than the transaction that writes one takes to commit.
pub const LOOK_BACK: Duration = Duration::from_secs(5);

/// The stops of the last [`LOOK_BACK`], the oldest first.
pub async fn recent(pool: &PgPool, now: Timestamp) -> sqlx::Result<Vec<Stop>> {
    let rows = sqlx::query!("SELECT id, kind, target FROM stops WHERE at > $1 ORDER BY at, id", now - LOOK_BACK)
        .fetch_all(pool)
        .await?;
    Ok(rows
        .into_iter()
        .filter_map(|row| {
            let kinds = [StopKind::Unsubscribe, StopKind::Cancel, StopKind::Pause, StopKind::Resume];
            let kind = kinds.into_iter().find(|kind| kind.name() == row.kind)?;
            Some(Stop { id: row.id, kind, target: row.target })
        })
        .collect())
}
