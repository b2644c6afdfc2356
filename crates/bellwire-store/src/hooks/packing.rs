//! Packs notes and stream events into webhook requests. One transaction packs each event once, even after an interruption.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;
use sqlx::{PgConnection, PgPool, Postgres, Transaction};
use uuid::Uuid;

use crate::audience::subscriptions::row::SubscriptionKeys;
use crate::connections::engine::{self, shard_column, shards_of};
use crate::outcomes::alerts::{self, Alert, AlertKind};
use crate::outcomes::stream::{self, Position, StreamRow};
use crate::transactions::begin_by_index;
use bellwire_core::clock::{Timestamp, derived_uuid_of};
use bellwire_core::id::{AppId, CampaignId, EventId, MessageId, SubscriptionId, WebhookDeliveryId, WebhookId};

pub const NOTES_MAX: i64 = 5_000;
/// Maximum stream events read in one round.
pub const STREAM_MAX: i64 = 500;
/// Maximum waiting and failed requests of a webhook. Further events are dropped, with an alert.
const KEPT_MAX: i64 = 5_000;

const CLICKED: i16 = 22;
/// Codes of endings that have a response.
const WITH_ANSWER: std::ops::RangeInclusive<i16> = 2..=7;

#[derive(Debug, Clone)]
pub struct Hearer {
    pub id: WebhookId,
    pub app: AppId,
    /// Event types, by the names of [`EventType`](bellwire_core::event_type::EventType).
    pub events: Vec<String>,
    pub max_events: i32,
    pub heard_from: Timestamp,
    /// Number of further requests that fit.
    pub room: i64,
}

#[derive(Debug)]
pub struct Note {
    pub id: EventId,
    pub app: AppId,
    /// Number of the event type, for [`EventType::of_note`](bellwire_core::event_type::EventType::of_note).
    pub kind: i16,
    pub at: Timestamp,
    pub message: MessageId,
    pub campaign: Option<CampaignId>,
    pub subscription: SubscriptionId,
    pub user_id: Option<String>,
    /// Number of the last attempt, if the delivery was not accepted. Status and reason follow.
    pub attempt: Option<i32>,
    pub status: Option<i16>,
    pub reason: Option<String>,
    pub action: Option<String>,
    /// Message that the delivery removes from browsers. `None`: an ordinary delivery.
    pub withdraws: Option<MessageId>,
}

#[derive(Debug)]
pub struct NewDelivery {
    pub id: WebhookDeliveryId,
    pub webhook: WebhookId,
    pub events: usize,
    /// Encrypted body of the request.
    pub body: Vec<u8>,
    pub subscriptions: Vec<SubscriptionId>,
}

/// Begins a round. `None`: another process runs one.
pub async fn begin(pool: &PgPool) -> sqlx::Result<Option<Transaction<'static, Postgres>>> {
    let mut tx = begin_by_index(pool).await?;
    let alone = fetch_one!(
        &mut *tx,
        scalar,
        r#"SELECT pg_try_advisory_xact_lock(hashtextextended('bellwire.webhooks', 0)) AS "alone!""#
    )?;
    Ok(alone.then_some(tx))
}

/// Whether any webhook is active, or notes without a webhook must be deleted.
pub async fn any(pool: &PgPool) -> sqlx::Result<bool> {
    fetch_one!(
        pool,
        scalar,
        r#"SELECT EXISTS (SELECT FROM webhooks WHERE state = 'active') OR EXISTS (SELECT FROM webhook_notes) AS "any!""#
    )
}

/// Returns all active webhooks, locked until the round ends. A concurrent deletion waits, and then also deletes the packed
/// requests.
pub async fn hearers(conn: &mut PgConnection) -> sqlx::Result<Vec<Hearer>> {
    fetch_all!(
        conn,
        Hearer,
        r#"SELECT w.id AS "id: WebhookId", w.app AS "app: AppId", w.events, w.max_events, w.heard_from,
                  $1 - (SELECT count(*) FROM webhook_deliveries d WHERE d.webhook = w.id AND d.state <> 'delivered') AS "room!"
           FROM webhooks w WHERE w.state = 'active' FOR KEY SHARE OF w"#,
        (KEPT_MAX)
    )
}

/// Deletes and returns a chunk of notes with the data of their events, and their number. Notes of deleted messages are dropped.
pub async fn take_notes(conn: &mut PgConnection) -> sqlx::Result<(i64, Vec<Note>)> {
    let rows = fetch_all!(
        &mut *conn,
        r#"
        WITH taken AS (
            DELETE FROM webhook_notes WHERE ctid = ANY (ARRAY(SELECT ctid FROM webhook_notes LIMIT $1))
            RETURNING message, subscription, kind, at
        )
        SELECT t.message AS "message!: MessageId", t.subscription AS "subscription!: SubscriptionId", t.kind AS "kind!", t.at AS "at!",
               m.app AS "app?: AppId", m.withdraws AS "withdraws?: MessageId", p.campaign AS "campaign?: CampaignId"
        FROM taken t
        LEFT JOIN messages m ON m.id = t.message
        LEFT JOIN LATERAL (SELECT campaign FROM campaign_parts WHERE message = t.message LIMIT 1) p ON true
        "#,
        (NOTES_MAX)
    )?;
    let taken = i64::try_from(rows.len()).unwrap_or(i64::MAX);
    let deliveries = |is: fn(i16) -> bool| {
        rows.iter().filter(|row| row.app.is_some() && is(row.kind)).map(|row| (row.message, row.subscription)).collect()
    };
    let recipients =
        recipients(conn, rows.iter().filter(|row| row.app.is_some()).map(|row| row.subscription).collect()).await?;
    let answers = last_answers(conn, deliveries(|kind| WITH_ANSWER.contains(&kind))).await?;
    let actions = clicked_actions(conn, deliveries(|kind| kind == CLICKED)).await?;
    let notes = rows.into_iter().filter_map(|row| {
        let of = (row.message, row.subscription);
        let answer = answers.get(&of).filter(|_| WITH_ANSWER.contains(&row.kind));
        Some(Note {
            // A pack that is repeated since a failover forgot it names its events the same.
            id: EventId(derived_uuid_of(
                row.at,
                &[row.message.0.as_bytes(), row.subscription.0.as_bytes(), &row.kind.to_be_bytes()],
            )),
            app: row.app?,
            kind: row.kind,
            at: row.at,
            message: row.message,
            campaign: row.campaign,
            subscription: row.subscription,
            user_id: recipients.get(&row.subscription).and_then(|found| found.user_id.clone()),
            attempt: answer.map(|answer| answer.attempt),
            status: answer.and_then(|answer| answer.status),
            reason: answer.and_then(|answer| answer.reason.clone()),
            withdraws: row.withdraws,
            action: actions.get(&of).filter(|_| row.kind == CLICKED).cloned().flatten(),
        })
    });
    Ok((taken, notes.collect()))
}

type Deliveries = Vec<(MessageId, SubscriptionId)>;

struct LastResponse {
    attempt: i32,
    status: Option<i16>,
    reason: Option<String>,
}

/// Current values of a subscription for an event.
#[derive(Debug)]
struct EventRecipient {
    user_id: Option<String>,
    consent_at: Option<Timestamp>,
    consent_source: Option<String>,
}

async fn recipients(
    conn: &mut PgConnection, ids: BTreeSet<SubscriptionId>,
) -> sqlx::Result<HashMap<SubscriptionId, EventRecipient>> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let keys = SubscriptionKeys::of(ids.into_iter().collect());
    macro_rules! recipients {
        ($within:literal $(, $shards:expr)?) => {
            query!(
                r#"SELECT s.id AS "id: SubscriptionId", s.user_id, s.consent_at, s.consent_source FROM unnest($1::smallint[], $2::uuid[]) AS k (shard, id)
           JOIN subscriptions s ON s.shard = k.shard AND s.id = k.id"# + $within,
                (&keys.shards, &keys.ids as &[SubscriptionId] $(, $shards)?)
            )
            .map(|row| {
                let (consent_at, consent_source) = (row.consent_at, row.consent_source);
                (row.id, EventRecipient { user_id: row.user_id, consent_at, consent_source })
            })
        };
    }
    let found = match engine::is_distributed() {
        false => recipients!("").fetch_all(conn).await?,
        true => recipients!(" WHERE s.shard = ANY ($3)", &shards_of(&keys.ids)).fetch_all(conn).await?,
    };
    Ok(found.into_iter().collect())
}

async fn last_answers(
    conn: &mut PgConnection, of: Deliveries,
) -> sqlx::Result<HashMap<(MessageId, SubscriptionId), LastResponse>> {
    if of.is_empty() {
        return Ok(HashMap::new());
    }
    let (messages, subscriptions): (Vec<MessageId>, Vec<SubscriptionId>) = of.into_iter().unzip();
    let found = query!(
        r#"SELECT a.message AS "message: MessageId", a.subscription AS "subscription: SubscriptionId", a.attempt, a.status, a.reason
           FROM unnest($1::uuid[], $2::uuid[], $3::smallint[]) AS d (message, subscription, shard)
           JOIN attempts a ON a.message = d.message AND a.subscription = d.subscription AND a.shard = d.shard
           ORDER BY a.attempt"#,
        (&messages as &[MessageId], &subscriptions as &[SubscriptionId], &shard_column(&subscriptions))
    );
    let mut last = HashMap::new();
    for row in found.fetch_all(conn).await? {
        let answer = LastResponse { attempt: row.attempt, status: row.status, reason: row.reason };
        last.insert((row.message, row.subscription), answer);
    }
    Ok(last)
}

/// Returns the clicked buttons by delivery. `None`: the notification itself was clicked.
async fn clicked_actions(
    conn: &mut PgConnection, of: Deliveries,
) -> sqlx::Result<HashMap<(MessageId, SubscriptionId), Option<String>>> {
    if of.is_empty() {
        return Ok(HashMap::new());
    }
    let (messages, subscriptions): (Vec<MessageId>, Vec<SubscriptionId>) = of.into_iter().unzip();
    let found = fetch_all!(
        conn,
        r#"SELECT r.message AS "message: MessageId", r.subscription AS "subscription: SubscriptionId", r.action
           FROM unnest($1::uuid[], $2::uuid[], $3::smallint[]) AS d (message, subscription, shard)
           JOIN receipts r ON r.message = d.message AND r.subscription = d.subscription AND r.shard = d.shard AND r.kind = 2"#,
        (&messages as &[MessageId], &subscriptions as &[SubscriptionId], &shard_column(&subscriptions))
    )?;
    Ok(found.into_iter().map(|row| ((row.message, row.subscription), row.action)).collect())
}

#[derive(Debug)]
pub struct PackedEvent {
    pub id: EventId,
    /// App of the event. `None`: the server.
    pub app: Option<AppId>,
    pub kind: String,
    pub at: Timestamp,
    pub data: Value,
    /// Subscription whose user is added to the event.
    pub names: Option<SubscriptionId>,
}

/// Reads the stream events of these apps (`None`: of all apps and the server), and advances the cursor. The rows stay for live
/// streams. Also returns their number.
pub async fn take_stream(
    pool: &PgPool, conn: &mut PgConnection, apps: Option<&[AppId]>, kinds: &[String],
) -> sqlx::Result<(i64, Vec<PackedEvent>)> {
    let cursor = fetch_one!(&mut *conn, r#"SELECT xid::text::bigint AS "xid!", seq FROM webhook_cursor"#)?;
    let at = Position { xid: cursor.xid, seq: cursor.seq };
    let end = stream::kept(pool).await?.end;
    // A cursor that came with a dump says nothing about this cluster's transactions.
    let after = if at > end { end } else { at };
    let rows = stream::read(pool, after, Position::LAST, apps, Some(kinds), STREAM_MAX).await?;
    let taken = i64::try_from(rows.len()).unwrap_or(i64::MAX);
    let to = rows.last().map_or(after, StreamRow::position);
    if to != at {
        execute!(&mut *conn, "UPDATE webhook_cursor SET xid = $1::bigint::text::xid8, seq = $2", (to.xid, to.seq))?;
    }
    let told = rows.into_iter().map(|row| {
        let StreamRow { at, app, kind, data, .. } = row;
        let of_app = app.map_or([0; 16], |app| *app.0.as_bytes());
        let id = derived_uuid_of(at, &[&of_app, kind.as_bytes(), data.to_string().as_bytes()]);
        PackedEvent { id: EventId(id), app, kind, at, data, names: None }
    });
    let mut told: Vec<PackedEvent> = told.collect();
    name_users(conn, &mut told).await?;
    Ok((taken, told))
}

/// Adds current user and consent to events about subscriptions. Reading them now ensures that an erased user is never named.
async fn name_users(conn: &mut PgConnection, told: &mut [PackedEvent]) -> sqlx::Result<()> {
    let of = |event: &PackedEvent| event.data["subscription"].as_str()?.parse::<SubscriptionId>().ok();
    let recipients = recipients(conn, told.iter().filter_map(of).collect()).await?;
    for event in told {
        let Some(subscription) = of(event) else { continue };
        let found = recipients.get(&subscription);
        event.names = found.filter(|found| found.user_id.is_some()).map(|_| subscription);
        event.data["user_id"] = found.and_then(|found| found.user_id.as_deref()).into();
        event.data["consent_at"] = serde_json::json!(found.and_then(|found| found.consent_at));
        event.data["consent_source"] = found.and_then(|found| found.consent_source.as_deref()).into();
    }
    Ok(())
}

pub async fn add(conn: &mut PgConnection, deliveries: &[NewDelivery], now: Timestamp) -> sqlx::Result<()> {
    for new in deliveries {
        execute!(
            &mut *conn,
            "INSERT INTO webhook_deliveries (id, webhook, events, body, subscriptions, due_at, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $6)",
            (new.id.0, new.webhook.0, i32::try_from(new.events).unwrap_or(i32::MAX), new.body),
            (&new.subscriptions as &[SubscriptionId], now)
        )?;
    }
    Ok(())
}

/// Counts dropped events, and raises an alert.
pub async fn dropped(conn: &mut PgConnection, hearer: &Hearer, n: usize, now: Timestamp) -> sqlx::Result<()> {
    execute!(
        &mut *conn,
        "UPDATE webhooks SET dropped = dropped + $2 WHERE id = $1",
        (hearer.id.0, i64::try_from(n).unwrap_or(i64::MAX))
    )?;
    let detail = format!(
        "events for a webhook are dropped: {KEPT_MAX} requests to its receiver wait or have failed. See to its receiver, or disable it"
    );
    let subject = hearer.id.to_string();
    let alert = Alert { app: Some(hearer.app), kind: AlertKind::Webhook, subject: &subject, detail: &detail };
    alerts::raise(conn, &alert, now).await.map(drop)
}

pub fn named(subscriptions: impl Iterator<Item = SubscriptionId>) -> Vec<SubscriptionId> {
    let mut named: Vec<Uuid> = subscriptions.map(Uuid::from).collect();
    named.sort_unstable();
    named.dedup();
    named.into_iter().map(SubscriptionId).collect()
}
