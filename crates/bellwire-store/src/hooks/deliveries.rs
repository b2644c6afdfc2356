//! Requests to receivers of webhooks: claimed under a lease, settled under its fence, stored until they are accepted or too
//! old.

use std::time::Duration;

use serde_json::Value;
use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use crate::audience::subscriptions::row::{SubscriptionKeys, left_by_users};
use crate::keyset::{Keyset, paged};
use bellwire_core::clock::{Timestamp, first_uuid_of};
use bellwire_core::hook::DeliveryState;
use bellwire_core::id::{AppId, SubscriptionId, WebhookDeliveryId, WebhookId};
use bellwire_vault::{Vault, WEBHOOK_BODY};

/// Rows that retention deletes at a time, each with its attempts.
const CHUNK: i64 = 2_000;

/// A request under this process's lease.
#[derive(Debug)]
pub struct Claimed {
    pub id: WebhookDeliveryId,
    pub lease: Uuid,
    /// Encrypted body of the request.
    pub body: Vec<u8>,
    pub retries: i32,
}

/// Duration of a lease: longer than waiting for a slot and a response.
pub const LEASE: Duration = Duration::from_secs(60);

/// Claims due requests of a webhook under a new lease, the oldest first. After a crash they are claimed again when the lease
/// expires.
pub async fn claim(
    pool: &PgPool, webhook: WebhookId, limit: usize, lease: Uuid, now: Timestamp,
) -> sqlx::Result<Vec<Claimed>> {
    fetch_all!(
        pool,
        Claimed,
        r#"UPDATE webhook_deliveries SET lease = $3, due_at = $4 WHERE id = ANY (ARRAY(
             SELECT id FROM webhook_deliveries WHERE webhook = $1 AND state = 'pending' AND due_at <= $2
             ORDER BY due_at, id LIMIT $5 FOR UPDATE SKIP LOCKED))
           RETURNING id AS "id: WebhookDeliveryId", lease AS "lease!", body AS "body!", retries"#,
        (webhook.0, now, lease, now + LEASE, i64::try_from(limit).unwrap_or(i64::MAX))
    )
}

#[derive(Debug)]
pub struct Settled {
    pub id: WebhookDeliveryId,
    pub lease: Uuid,
    pub state: DeliveryState,
    /// Time of the next attempt, if still pending.
    pub due_at: Timestamp,
    pub at: Timestamp,
    pub status: Option<u16>,
    pub took_ms: u32,
    /// At most 300 characters, without NUL.
    pub reason: Option<String>,
}

/// Stores the results of requests that are still under this process's lease.
pub async fn settle(pool: &PgPool, settled: &[Settled]) -> sqlx::Result<()> {
    let status = |it: &Settled| it.status.map(|status| i16::try_from(status).unwrap_or(i16::MAX));
    execute!(
        pool,
        "WITH given AS (
             SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::timestamptz[], $5::timestamptz[], $6::smallint[],
                                  $7::integer[], $8::text[])
                 AS g (id, lease, state, due_at, at, status, took_ms, reason)
         ),
         written AS (
             UPDATE webhook_deliveries d
             SET state = g.state, due_at = g.due_at, lease = NULL, attempts = d.attempts + 1, retries = d.retries + 1,
                 body = CASE WHEN g.state <> 'delivered' THEN d.body END,
                 subscriptions = CASE WHEN g.state = 'delivered' THEN '{}' ELSE d.subscriptions END,
                 ended_at = CASE WHEN g.state <> 'pending' THEN g.at END
             FROM given g WHERE d.id = g.id AND d.lease = g.lease AND d.state = 'pending'
             RETURNING d.id, d.attempts - 1 AS number
         )
         INSERT INTO webhook_attempts (delivery, number, at, status, took_ms, reason)
         SELECT w.id, w.number, g.at, g.status, g.took_ms, g.reason FROM written w JOIN given g ON g.id = w.id",
        settled,
        |it| (it.id.0, it.lease, it.state.name().to_owned(), it.due_at, it.at, status(it)),
        |it| (i32::try_from(it.took_ms).unwrap_or(i32::MAX), it.reason.as_deref())
    )
}

/// Makes unsent requests due at a later time, without using up an attempt.
pub async fn give_back(pool: &PgPool, unsent: &[(WebhookDeliveryId, Uuid)], due_at: Timestamp) -> sqlx::Result<()> {
    let (ids, leases): (Vec<Uuid>, Vec<Uuid>) = unsent.iter().map(|(id, lease)| (id.0, *lease)).unzip();
    execute!(
        pool,
        "UPDATE webhook_deliveries d SET due_at = $3, lease = NULL FROM unnest($1::uuid[], $2::uuid[]) AS g (id, lease)
         WHERE d.id = g.id AND d.lease = g.lease AND d.state = 'pending'",
        (&ids, &leases, due_at)
    )
}

#[derive(Debug)]
pub struct DeliveryRow {
    pub id: WebhookDeliveryId,
    pub state: DeliveryState,
    pub events: i32,
    /// Encrypted body of the request.
    pub body: Option<Vec<u8>>,
    pub attempts: i32,
    pub due_at: Timestamp,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}

/// Returns a webhook's requests beyond the page's key, the nearest ids first, in one state or all. Bodies are omitted.
pub async fn list(
    pool: &PgPool, webhook: WebhookId, state: Option<DeliveryState>, page: Keyset,
) -> sqlx::Result<Vec<DeliveryRow>> {
    paged!(pool, page, DeliveryRow,
        [r#"SELECT id AS "id: WebhookDeliveryId", state AS "state: DeliveryState", events, NULL::bytea AS body, attempts, due_at,
                  created_at, ended_at
           FROM webhook_deliveries WHERE webhook = $1 AND ($2::text IS NULL OR state = $2) AND id"# < "$3
           ORDER BY id" DESC "LIMIT $4"],
        (webhook.0, state.map(DeliveryState::name), page.beyond, page.limit)
    )
}

/// Returns one request with its body.
pub async fn find(
    executor: impl PgExecutor<'_>, webhook: WebhookId, id: WebhookDeliveryId,
) -> sqlx::Result<Option<DeliveryRow>> {
    fetch_optional!(
        executor,
        DeliveryRow,
        r#"SELECT id AS "id: WebhookDeliveryId", state AS "state: DeliveryState", events, body, attempts, due_at, created_at,
                  ended_at
           FROM webhook_deliveries WHERE webhook = $1 AND id = $2"#,
        (webhook.0, id.0)
    )
}

#[derive(Debug)]
pub struct AttemptRow {
    pub number: i32,
    pub at: Timestamp,
    pub status: Option<i16>,
    pub took_ms: i32,
    pub reason: Option<String>,
}

pub async fn attempts(pool: &PgPool, id: WebhookDeliveryId, limit: i64) -> sqlx::Result<Vec<AttemptRow>> {
    let mut newest = fetch_all!(
        pool,
        AttemptRow,
        "SELECT number, at, status, took_ms, reason FROM webhook_attempts WHERE delivery = $1 ORDER BY number DESC LIMIT $2",
        (id.0, limit)
    )?;
    newest.reverse();
    Ok(newest)
}

/// Requests that wait for receivers of active webhooks.
#[derive(Debug)]
pub struct WebhookBacklog {
    pub pending: i64,
    pub oldest_at: Option<Timestamp>,
}

/// Counts waiting requests, up to the limit of each webhook.
pub async fn backlog(pool: &PgPool) -> sqlx::Result<WebhookBacklog> {
    fetch_one!(
        pool,
        WebhookBacklog,
        r#"SELECT count(*) AS "pending!", min(d.created_at) AS oldest_at
           FROM webhooks w JOIN webhook_deliveries d ON d.webhook = w.id WHERE w.state = 'active' AND d.state = 'pending'"#
    )
}

/// Failed requests to send again.
#[derive(Debug, Clone, Copy)]
pub enum ResendSelection {
    One(WebhookDeliveryId),
    Since(Timestamp),
}

/// Resends failed requests, each with its own id and all its retries. Returns the number.
pub async fn replay(
    conn: &mut PgConnection, webhook: WebhookId, which: ResendSelection, now: Timestamp,
) -> sqlx::Result<u64> {
    let (one, since) = match which {
        ResendSelection::One(id) => (Some(id.0), Uuid::nil()),
        ResendSelection::Since(at) => (None, first_uuid_of(at)),
    };
    rows_affected!(
        conn,
        "UPDATE webhook_deliveries SET state = 'pending', retries = 0, due_at = $4, ended_at = NULL, lease = NULL
         WHERE webhook = $1 AND state = 'failed' AND id >= $3 AND ($2::uuid IS NULL OR id = $2)",
        (webhook.0, one, since, now)
    )
}

/// Removes a user from pending requests with events about a subscription. Returns the number of requests that named the user.
pub async fn forget(
    conn: &mut PgConnection, vault: &Vault, app: AppId, subscription: SubscriptionId,
) -> sqlx::Result<i64> {
    let rows = query!(
        r#"SELECT d.id, d.body AS "body!" FROM webhooks w JOIN webhook_deliveries d ON d.webhook = w.id
           WHERE w.app = $1 AND d.state <> 'delivered' AND d.subscriptions @> ARRAY[$2::uuid] ORDER BY d.id FOR UPDATE OF d"#,
        (app.0, subscription.0)
    );
    let named = subscription.to_string();
    let mut forgotten = 0;
    for row in rows.fetch_all(&mut *conn).await? {
        let Some(body) = without_user(vault, row.id, &row.body, |data| data["subscription"] == named) else { continue };
        execute!(
            &mut *conn,
            "UPDATE webhook_deliveries SET body = $2, subscriptions = array_remove(subscriptions, $3) WHERE id = $1",
            (row.id, body, subscription.0)
        )?;
        forgotten += 1;
    }
    Ok(forgotten)
}

/// Removes a user from pending events about browsers that the user left, and from events packed since `asked_at`, during the
/// erasure. Returns the number of requests that named the user.
pub async fn forget_user(
    conn: &mut PgConnection, vault: &Vault, app: AppId, user_id: &str, asked_at: Timestamp,
) -> sqlx::Result<i64> {
    // A concurrent packer may have read the user before the erasure: its requests are visible afterwards.
    fetch_one!(&mut *conn, scalar, "SELECT pg_advisory_xact_lock(hashtextextended('bellwire.webhooks', 0))")?;
    let (left, left_at) = left_browsers(conn, app).await?;
    let ids = query!(
        scalar,
        "SELECT d.id FROM webhooks w JOIN webhook_deliveries d ON d.webhook = w.id
         WHERE w.app = $1 AND d.state <> 'delivered' AND (d.created_at >= $2 OR EXISTS (
           SELECT FROM unnest($3::uuid[], $4::timestamptz[]) AS l (id, left_at)
           WHERE l.id = ANY (d.subscriptions) AND l.left_at >= d.created_at))
         ORDER BY d.id",
        (app.0, asked_at, &left as &[SubscriptionId], &left_at)
    );
    let mut forgotten = 0;
    for id in ids.fetch_all(&mut *conn).await? {
        let body = query!(
            scalar,
            r#"SELECT body AS "body!" FROM webhook_deliveries WHERE id = $1 AND state <> 'delivered' FOR UPDATE"#,
            (id)
        );
        let Some(body) = body.fetch_optional(&mut *conn).await? else { continue };
        let Some(body) = without_user(vault, id, &body, |data| data["user_id"] == user_id) else { continue };
        execute!(&mut *conn, "UPDATE webhook_deliveries SET body = $2 WHERE id = $1", (id, body))?;
        forgotten += 1;
    }
    Ok(forgotten)
}

/// Returns browsers in pending or failed requests that a user has left, with the time.
async fn left_browsers(conn: &mut PgConnection, app: AppId) -> sqlx::Result<(Vec<SubscriptionId>, Vec<Timestamp>)> {
    let named = fetch_all!(
        &mut *conn,
        scalar,
        r#"SELECT DISTINCT n.id AS "id!: SubscriptionId" FROM webhooks w JOIN webhook_deliveries d ON d.webhook = w.id
           CROSS JOIN LATERAL unnest(d.subscriptions) AS n (id) WHERE w.app = $1 AND d.state <> 'delivered'"#,
        (app.0)
    )?;
    let keys = SubscriptionKeys::of(named);
    left_by_users(conn, &keys).await
}

/// Removes the user from events for which `names` is true, and encrypts the body again. `None`: no such event.
fn without_user(vault: &Vault, id: Uuid, sealed: &[u8], names: impl Fn(&Value) -> bool) -> Option<Vec<u8>> {
    let opened = vault.open(WEBHOOK_BODY, id, sealed).ok()?;
    let mut events: Vec<Value> = serde_json::from_slice(&opened).ok()?;
    let mut named = events.iter_mut().filter(|event| names(&event["data"])).peekable();
    named.peek()?;
    named.for_each(|event| event["data"]["user_id"] = Value::Null);
    let body = serde_json::to_vec(&events).expect("it was JSON");
    Some(vault.seal(WEBHOOK_BODY, id, &body))
}

/// Deletes a chunk of requests that were accepted before `delivered` or failed before `failed`.
pub async fn clear(pool: &PgPool, delivered: Timestamp, failed: Timestamp) -> sqlx::Result<u64> {
    rows_affected!(
        pool,
        "DELETE FROM webhook_deliveries WHERE id = ANY (
           ARRAY(SELECT id FROM webhook_deliveries WHERE state = 'delivered' AND ended_at < $1 LIMIT $3 FOR UPDATE SKIP LOCKED)
           || ARRAY(SELECT id FROM webhook_deliveries WHERE state = 'failed' AND ended_at < $2 LIMIT $3 FOR UPDATE SKIP LOCKED))",
        (delivered, failed, CHUNK)
    )
}
