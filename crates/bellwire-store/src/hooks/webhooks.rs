//! Webhooks: settings and state.

use serde_json::Value;
use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use crate::outcomes::alerts::{self, Alert, AlertKind};
use crate::results::WriteOutcome;
use crate::transactions::begin;
use bellwire_core::clock::Timestamp;
use bellwire_core::hook::{WebhookDisabledReason, WebhookKinds, WebhookState};
use bellwire_core::id::{AppId, WebhookId};
use bellwire_rules::policy::breaker::Snapshot;

pub const WEBHOOKS_MAX: i64 = 10;

#[derive(Debug, Clone)]
pub struct Webhook {
    pub id: WebhookId,
    pub name: String,
    /// Encrypted URL of the receiver.
    pub url: Vec<u8>,
    /// Event types, by the names of [`EventType`](bellwire_core::event_type::EventType).
    pub events: Vec<String>,
    pub max_events: i32,
    pub policy: Option<Value>,
    pub state: WebhookState,
    pub disabled_why: Option<WebhookDisabledReason>,
    pub former_until: Option<Timestamp>,
    pub breaker: String,
    pub open_until: Option<Timestamp>,
    pub failing_since: Option<Timestamp>,
    pub dropped: i64,
    /// Requests that wait to be sent.
    pub pending: i64,
    /// Failed requests, which can be replayed.
    pub failed: i64,
    pub created_at: Timestamp,
    /// Creator, by [`Who::name`](crate::keys::audit::Who::name).
    pub created_by: String,
    pub changed_at: Timestamp,
    /// Name of the last editor. `None`: no change, or the server disabled the webhook.
    pub changed_by: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddWebhookResult {
    Done,
    /// The app has [`WEBHOOKS_MAX`] webhooks.
    TooMany,
}

#[derive(Debug)]
pub struct WebhookFields {
    pub name: String,
    /// Encrypted URL of the receiver.
    pub url: Vec<u8>,
    pub events: Vec<String>,
    pub heard: WebhookKinds,
    pub max_events: i32,
    pub policy: Option<Value>,
    /// Reason why the webhook is disabled. `None`: it is enabled.
    pub disabled_why: Option<WebhookDisabledReason>,
    /// Calling teammate or key, by [`Who::name`](crate::keys::audit::Who::name).
    pub by: String,
}

pub async fn add(
    conn: &mut PgConnection, app: AppId, id: WebhookId, said: &WebhookFields, secret: &[u8], now: Timestamp,
) -> sqlx::Result<AddWebhookResult> {
    lock_app(conn, app).await?;
    let done = rows_affected!(
        &mut *conn,
        "INSERT INTO webhooks (id, app, name, url, events, heard, max_events, policy, state, secret, heard_from, breaker_at,
                               created_at, changed_at, created_by)
         SELECT $1, $2, $3, $4, $5, $6, $7, $8, 'active', $9, $10, $10, $10, $10, $12
         WHERE (SELECT count(*) FROM webhooks WHERE app = $2) < $11",
        (id.0, app.0, said.name, said.url, &said.events, said.heard.0, said.max_events, said.policy, secret, now),
        (WEBHOOKS_MAX, said.by)
    )?;
    if done == 0 {
        return Ok(AddWebhookResult::TooMany);
    }
    hear(conn, app).await?;
    Ok(AddWebhookResult::Done)
}

/// Locks an app's webhooks against concurrent changes.
async fn lock_app(conn: &mut PgConnection, app: AppId) -> sqlx::Result<()> {
    fetch_one!(conn, scalar, "SELECT id FROM apps WHERE id = $1 FOR NO KEY UPDATE", (app.0)).map(drop)
}

/// Updates the union of event types that an app's active webhooks subscribe to.
async fn hear(conn: &mut PgConnection, app: AppId) -> sqlx::Result<()> {
    execute!(
        conn,
        "UPDATE apps SET heard = coalesce((SELECT bit_or(heard) FROM webhooks WHERE app = $1 AND state = 'active'), 0)
         WHERE id = $1",
        (app.0)
    )
}

/// Returns an app's webhooks, the newest first, or only one.
pub async fn list(executor: impl PgExecutor<'_>, app: AppId, only: Option<WebhookId>) -> sqlx::Result<Vec<Webhook>> {
    fetch_all!(
        executor,
        Webhook,
        r#"SELECT id AS "id: WebhookId", name, url, events, max_events, policy, state AS "state: WebhookState",
                  disabled_why AS "disabled_why: WebhookDisabledReason", former_until, breaker, open_until,
                  failing_since, dropped, created_at, created_by, changed_at, changed_by,
                  (SELECT count(*) FROM webhook_deliveries d WHERE d.webhook = w.id AND d.state = 'pending') AS "pending!",
                  (SELECT count(*) FROM webhook_deliveries d WHERE d.webhook = w.id AND d.state = 'failed') AS "failed!"
           FROM webhooks w WHERE app = $1 AND ($2::uuid IS NULL OR id = $2) ORDER BY id DESC"#,
        (app.0, only.map(|id| id.0))
    )
}

pub async fn find(executor: impl PgExecutor<'_>, app: AppId, id: WebhookId) -> sqlx::Result<Option<Webhook>> {
    Ok(list(executor, app, Some(id)).await?.pop())
}

/// Changes a webhook. One that is enabled again gets events from then on, and its breaker is half open.
pub async fn change(
    conn: &mut PgConnection, app: AppId, id: WebhookId, said: &WebhookFields, now: Timestamp,
) -> sqlx::Result<WriteOutcome> {
    lock_app(conn, app).await?;
    let done = rows_affected!(
        &mut *conn,
        "UPDATE webhooks SET name = $3, url = $4, events = $5, heard = $6, max_events = $7, policy = $8, disabled_why = $9,
           changed_at = $10, changed_by = $11, state = CASE WHEN $9::text IS NULL THEN 'active' ELSE 'disabled' END,
           heard_from = CASE WHEN state = 'active' THEN heard_from ELSE $10 END,
           failing_since = CASE WHEN state = 'active' THEN failing_since END,
           breaker = CASE WHEN state = 'active' THEN breaker ELSE 'closed' END,
           open_until = CASE WHEN state = 'active' THEN open_until END,
           open_ms = CASE WHEN state = 'active' THEN open_ms ELSE 0 END,
           breaker_at = CASE WHEN state = 'active' THEN breaker_at ELSE greatest($10, breaker_at + interval '1 microsecond') END
         WHERE app = $1 AND id = $2",
        (app.0, id.0, said.name, said.url, &said.events, said.heard.0, said.max_events, said.policy),
        (said.disabled_why.map(WebhookDisabledReason::name), now, said.by)
    )?;
    hear(conn, app).await?;
    Ok(WriteOutcome::by(done))
}

/// Deletes a webhook and its requests.
pub async fn remove(conn: &mut PgConnection, app: AppId, id: WebhookId) -> sqlx::Result<WriteOutcome> {
    lock_app(conn, app).await?;
    let done = rows_affected!(&mut *conn, "DELETE FROM webhooks WHERE app = $1 AND id = $2", (app.0, id.0))?;
    hear(conn, app).await?;
    Ok(WriteOutcome::by(done))
}

/// Sets a new secret. The current one also signs until `until`. An earlier one becomes invalid.
pub async fn rotate(
    conn: &mut PgConnection, app: AppId, id: WebhookId, secret: &[u8], former_until: Timestamp, by: &str,
    now: Timestamp,
) -> sqlx::Result<WriteOutcome> {
    let done = rows_affected!(
        conn,
        "UPDATE webhooks SET former_secret = CASE WHEN $4::timestamptz > $5 THEN secret END,
           former_until = CASE WHEN $4 > $5 THEN $4 END, secret = $3, changed_at = $5, changed_by = $6 WHERE app = $1 AND id = $2",
        (app.0, id.0, secret, former_until, now, by)
    )?;
    Ok(WriteOutcome::by(done))
}

/// A webhook with due requests.
#[derive(Debug, Clone)]
pub struct WebhookTarget {
    pub id: WebhookId,
    pub app: AppId,
    pub max_retries: i16,
    /// Encrypted URL of the receiver.
    pub url: Vec<u8>,
    pub policy: Option<Value>,
    /// Encrypted secret for signatures.
    pub secret: Vec<u8>,
    /// Encrypted previous secret, while it is still valid.
    pub former_secret: Option<Vec<u8>>,
    pub breaker: String,
    pub open_until: Option<Timestamp>,
    pub open_ms: i32,
    pub breaker_at: Timestamp,
    pub failing_since: Option<Timestamp>,
}

impl WebhookTarget {
    pub fn breaker(&self) -> Option<Snapshot> {
        Snapshot::from_row(&self.breaker, self.open_until, self.open_ms, self.breaker_at)
    }
}

pub async fn due(pool: &PgPool, now: Timestamp) -> sqlx::Result<Vec<WebhookTarget>> {
    fetch_all!(
        pool,
        WebhookTarget,
        r#"SELECT w.id AS "id: WebhookId", w.app AS "app: AppId", a.max_retries, w.url, w.policy, w.secret,
                  CASE WHEN w.former_until > $1 THEN w.former_secret END AS former_secret, w.breaker, w.open_until, w.open_ms,
                  w.breaker_at, w.failing_since
           FROM webhooks w JOIN apps a ON a.id = w.app
           WHERE w.state = 'active' AND a.deleting_at IS NULL
             AND EXISTS (SELECT FROM webhook_deliveries d WHERE d.webhook = w.id AND d.state = 'pending' AND d.due_at <= $1)"#,
        (now)
    )
}

/// Stores the state of a webhook's breaker for other replicas, unless a later state is stored.
pub async fn share_breaker(pool: &PgPool, id: WebhookId, breaker: Snapshot) -> sqlx::Result<()> {
    execute!(
        pool,
        "UPDATE webhooks SET breaker = $2, open_until = $3, open_ms = $4, breaker_at = $5 WHERE id = $1 AND breaker_at < $5",
        (id.0, breaker.state.name(), breaker.open_until(), breaker.open_ms(), breaker.changed_at)
    )
}

/// Stores the start of a webhook's failures. `None`: the last request succeeded.
pub async fn set_failing(pool: &PgPool, id: WebhookId, since: Option<Timestamp>) -> sqlx::Result<()> {
    execute!(
        pool,
        "UPDATE webhooks SET failing_since = CASE WHEN $2::timestamptz IS NOT NULL THEN coalesce(failing_since, $2) END
         WHERE id = $1 AND failing_since IS DISTINCT FROM $2",
        (id.0, since)
    )
}

/// Disables an active webhook, and raises an alert.
pub async fn disable(
    pool: &PgPool, app: AppId, id: WebhookId, why: WebhookDisabledReason, now: Timestamp,
) -> sqlx::Result<()> {
    let mut tx = begin(pool).await?;
    lock_app(&mut tx, app).await?;
    let done = rows_affected!(
        &mut *tx,
        "UPDATE webhooks SET state = 'disabled', disabled_why = $2, changed_at = $3 WHERE id = $1 AND state = 'active'",
        (id.0, why.name(), now)
    )?;
    if done == 0 {
        return Ok(());
    }
    hear(&mut tx, app).await?;
    let detail = match why {
        WebhookDisabledReason::Gone => "a webhook was disabled: its receiver responded 410: it is gone for good",
        WebhookDisabledReason::Failing | WebhookDisabledReason::Asked => {
            "a webhook was disabled: its receiver has taken nothing for days. Enable it once it works again"
        }
    };
    let subject = id.to_string();
    alerts::raise(&mut tx, &Alert { app: Some(app), kind: AlertKind::Webhook, subject: &subject, detail }, now).await?;
    tx.commit().await
}

pub async fn remove_all(conn: &mut PgConnection, app: AppId) -> sqlx::Result<()> {
    execute!(conn, "DELETE FROM webhooks WHERE app = $1", (Uuid::from(app)))
}
