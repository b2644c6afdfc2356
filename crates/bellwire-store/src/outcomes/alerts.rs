//! Alerts for operators.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{PgConnection, PgExecutor, PgPool};
use utoipa::ToSchema;

use crate::keyset::{Keyset, paged};
use bellwire_core::clock::{Timestamp, uuid_of};
use bellwire_core::id::{AlertId, AppId};
use bellwire_core::named;

named! {
    /// Kind of an alert. An alert is open until an operator resolves it. Repeated occurrences are
    /// counted; after that, the next one opens a new alert.
    #[schema(as = AlertKind)]
    pub enum AlertKind {
        /// Push services refuse a VAPID key. Dispatch raises it and holds the key's lane; deliveries wait.
        KeyRefused = "key_refused",
        /// A push service suddenly reports many working subscriptions of a lane as gone. Dispatch raises it and holds the lane;
        /// nothing is pruned without a confirmation.
        MassGone = "mass_gone",
        /// A delivery's row was changed outside Bellwire. Dispatch raises it when it claims the row, which becomes a dead
        /// letter.
        Tampered = "tampered",
        /// A delivery that had ended was inserted again. Dispatch raises it when it claims the row, which becomes a dead
        /// letter.
        Replayed = "replayed",
        /// A reliability metric misses its target. Maintenance raises it, without further effect.
        Sli = "sli",
        /// An app sent far more than its size explains. Maintenance raises it when it holds the app, and releasing the app
        /// resolves it.
        Runaway = "runaway",
        /// A webhook was disabled because it failed for days or its receiver is gone, or its events are dropped because too
        /// many wait. The task that sends its requests or packs its events raises it.
        Webhook = "webhook",
        /// The accelerated encryption computed another result than AWS-LC. The worker raises it, and from then on encrypts
        /// payloads one by one.
        Sealing = "sealing",
        /// The outbound proxy has let no connection to a push service through for a minute. The worker raises it; deliveries
        /// wait.
        Egress = "egress",
    }
}

/// An alert to raise.
#[derive(Debug, Clone, Copy)]
pub struct Alert<'a> {
    /// App of the alert. `None`: the whole server.
    pub app: Option<AppId>,
    /// Kind of the alert.
    pub kind: AlertKind,
    /// Subject: a key, message, lane or reliability metric. At most one open alert exists for a kind and subject. Never a
    /// secret.
    pub subject: &'a str,
    /// Description to display. Never a secret.
    pub detail: &'a str,
}

/// Raises an alert, or counts another occurrence of an open one. Returns whether the alert is new; it is then logged.
pub async fn raise(conn: &mut PgConnection, alert: &Alert<'_>, now: Timestamp) -> sqlx::Result<bool> {
    let n = fetch_one!(
        conn,
        scalar,
        "INSERT INTO alerts AS a (id, app, kind, subject, detail, first_at, last_at) VALUES ($1, $2, $3, $4, $5, $6, $6)
         ON CONFLICT (kind, subject) WHERE resolved_at IS NULL
         DO UPDATE SET n = a.n + 1, detail = excluded.detail, last_at = excluded.last_at RETURNING n",
        (uuid_of(now), alert.app.map(|app| app.0), alert.kind.name(), alert.subject, alert.detail, now)
    )?;
    if n == 1 {
        tracing::error!(kind = alert.kind.name(), subject = alert.subject, "alert: {}", alert.detail);
    }
    Ok(n == 1)
}

/// Alert for operators.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AlertResponse)]
pub struct AlertRow {
    /// Id of the alert.
    pub id: AlertId,
    /// App of the alert. Null: it concerns the whole server.
    pub app: Option<AppId>,
    /// Kind of the alert.
    pub kind: AlertKind,
    /// Subject of the alert: a key, message, lane or metric.
    pub subject: String,
    /// Description of the problem, as text to display.
    pub detail: String,
    /// Number of occurrences since the alert was opened.
    pub n: i64,
    /// Time at which the alert was opened.
    pub first_at: DateTime<Utc>,
    /// Time of the last occurrence.
    pub last_at: DateTime<Utc>,
    /// Time at which the alert was resolved. Null: it is open.
    pub resolved_at: Option<DateTime<Utc>>,
}

/// Returns alerts beyond the page's key: open ones first, each group from the newest alert. A key that no alert has means the
/// end of the list.
pub async fn list(pool: &PgPool, page: Keyset) -> sqlx::Result<Vec<AlertRow>> {
    paged!(pool, page, AlertRow,
        [r#"SELECT a.id, a.app AS "app: AppId", a.kind AS "kind: AlertKind", a.subject, a.detail, a.n, a.first_at, a.last_at,
           a.resolved_at FROM alerts a
         WHERE coalesce((a.resolved_at IS NULL, a.id)"# < "(SELECT last.resolved_at IS NULL, last.id FROM alerts last WHERE last.id = $1), true)
         ORDER BY a.resolved_at IS NULL" DESC ", a.id" DESC "LIMIT $2"],
        (page.beyond, page.limit)
    )
}

/// Resolves an alert, so that its next occurrence opens a new one. `None`: it does not exist. A resolved alert is unchanged.
pub async fn resolve(executor: impl PgExecutor<'_>, id: AlertId, now: Timestamp) -> sqlx::Result<Option<AlertRow>> {
    fetch_optional!(
        executor,
        AlertRow,
        r#"UPDATE alerts SET resolved_at = coalesce(resolved_at, $2) WHERE id = $1
         RETURNING id, app AS "app: AppId", kind AS "kind: AlertKind", subject, detail, n, first_at, last_at, resolved_at"#,
        (id.0, now)
    )
}

pub async fn resolve_all(
    executor: impl PgExecutor<'_>, kind: AlertKind, subject: &str, now: Timestamp,
) -> sqlx::Result<()> {
    execute!(
        executor,
        "UPDATE alerts SET resolved_at = $3 WHERE kind = $1 AND subject = $2 AND resolved_at IS NULL",
        (kind.name(), subject, now)
    )
}

pub async fn open(pool: &PgPool) -> sqlx::Result<[(AlertKind, i64); AlertKind::ALL.len()]> {
    let found = fetch_all!(
        pool,
        r#"SELECT kind AS "kind: AlertKind", count(*) AS "n!" FROM alerts WHERE resolved_at IS NULL GROUP BY kind"#
    )?;
    Ok(AlertKind::ALL.map(|kind| (kind, found.iter().find(|row| row.kind == kind).map_or(0, |row| row.n))))
}
