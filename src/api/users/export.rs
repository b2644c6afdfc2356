//! `GET /v1/apps/{app}/users/{user}/export`: all stored data of a person, streamed within the memory of one page.

use std::collections::{HashMap, VecDeque};

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use chrono::{DateTime, TimeDelta, Utc};
use futures_util::{StreamExt as _, stream};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

use super::label;
use crate::api::ApiState;
use crate::api::campaigns::entries::ENTRIES_MAX;
use crate::api::deliveries::ReceiptResponse;
use crate::api::deliveries::search::FoundDelivery;
use crate::api::http::auth::{MayExport, Server};
use crate::api::http::extract::{PathId, UserId};
use crate::api::http::outgoing::Outgoing;
use crate::api::http::problem::Problem;
use crate::api::messages::content::{self, ContentState, MessageContentResponse};
use crate::api::subscriptions::response::SubscriptionResponse;
use bellwire_core::clock::time_of;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, CampaignId, MessageId, SubscriptionId};
use bellwire_core::person::Person;
use bellwire_store::audience::engagement_stats;
use bellwire_store::audience::subscriptions::{self, SubscriptionFilter, SubscriptionRow};
use bellwire_store::keys::apps::App;
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::keyset::{Keyset, Towards};
use bellwire_store::outcomes::receipts;
use bellwire_store::outcomes::search::{self, DEVICES_MAX, SearchQuery, Whose};
use bellwire_store::queue::caps;
use bellwire_store::queue::messages::{self, SealedMessage};
use bellwire_store::triggers::due::{self, TriggerEntry};
use bellwire_store::triggers::user_events::{self, StoredEvent};
use bellwire_vault::ADDRESS;

/// Subscriptions read per statement.
const PAGE: i64 = 250;
/// Maximum time for which a new subscription can inherit deliveries of a replaced one: the maximum time to live of 28 days,
/// with a margin.
const INHERITED_MAX: TimeDelta = TimeDelta::days(29);

/// All stored data of a person.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PersonExport {
    #[serde(flatten)]
    head: PersonSummary,
    /// Subscriptions, newest first, ended ones included.
    subscriptions: Vec<PersonSubscription>,
    /// Events that the site reported about the person, oldest first.
    events: Vec<PersonEvent>,
    /// Deliveries to these subscriptions while the person used them, as long as history is kept.
    deliveries: Vec<PersonDelivery>,
    /// Always `true` and the last member. If it is missing, the export was interrupted.
    complete: bool,
}

/// Stored data about the person, apart from subscriptions and deliveries.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PersonSummary {
    /// User of the export.
    user_id: String,
    /// App of the user.
    app: String,
    /// Time of the export.
    exported_at: DateTime<Utc>,
    /// Counts for frequency caps.
    frequency: Vec<PersonFrequency>,
    /// Engagement with notifications. Null: no data.
    habits: Option<PersonHabits>,
    /// Campaigns that events let the person enter, with the message still to come.
    waits: Vec<TriggerEntry>,
}

/// An event of a person.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PersonEvent {
    /// Kind of event.
    name: String,
    /// Time of the event.
    at: DateTime<Utc>,
    /// Properties of the event. Null: none.
    properties: Option<Map<String, Value>>,
    /// Value of a conversion. Null: none.
    value: Option<f64>,
    /// Currency of the value (ISO 4217).
    currency: Option<String>,
    /// Campaign to which a conversion is attributed. Null: none.
    campaign: Option<CampaignId>,
}

/// Messages counted by one frequency cap.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PersonFrequency {
    /// Tiers of the cap.
    tiers: &'static [Tier],
    /// Times at which sending started, the newest first.
    sent_at: Vec<DateTime<Utc>>,
}

/// Engagement of a person with notifications.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PersonHabits {
    /// Time of the last receipt.
    noted_at: DateTime<Utc>,
    /// Time of the last click. Null: none.
    clicked_at: Option<DateTime<Utc>>,
    /// Messages displayed since the last click, at most 1,000.
    unclicked: i16,
    /// Time of the first display since the last click. Null: none.
    unclicked_from: Option<DateTime<Utc>>,
    /// Time of the last display since the last click. Null: none.
    unclicked_to: Option<DateTime<Utc>>,
    /// Ids of the last messages, the newest first.
    recent_messages: Vec<MessageId>,
    /// Number of clicks by hour of the person's day, from midnight.
    clicks_by_hour: Vec<u8>,
}

/// A subscription in the export of a person.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PersonSubscription {
    #[serde(flatten)]
    subscription: SubscriptionResponse,
    /// Origin of its endpoint. The full endpoint and the keys are secret, because they would allow sending to the browser.
    endpoint_origin: String,
}

/// A sent or waiting delivery to the person.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PersonDelivery {
    #[serde(flatten)]
    delivery: FoundDelivery,
    /// Content of the message, until some minutes after its last delivery has ended.
    message_content: MessageContentResponse,
    /// Receipts from the browser.
    receipts: Vec<ReceiptResponse>,
}

/// Exports all stored data of a user.
///
/// The export has their subscriptions with tags, attributes, topics and consent, deliveries to them with results, and stored
/// times of messages and clicks. Endpoints and keys are omitted, because they would allow sending to the browsers. So are
/// deliveries to a browser while another user was logged in there.
///
/// The response is one JSON document, streamed as it is read. `complete` is its last member, and missing if the export was
/// interrupted. An app with many messages may take minutes, because all stored messages are read. 503 (`transfers_busy`): too
/// many exports and imports are running. A user without data has an empty export.
#[utoipa::path(get, path = "/v1/apps/{app}/users/{user}/export", tag = "Subscriptions",
    responses((status = 200, body = PersonExport)))]
pub(crate) async fn export(
    server: Server<MayExport>, State(state): State<ApiState>, PathId(UserId(user)): PathId<UserId>,
    mut request: Request,
) -> Result<Response, Problem> {
    let app = server.app.id;
    let entry = server.did(AuditAction::UserExported, label(&state.vault, app, &user));
    let mut conn = state.pool.acquire().await?;
    entry.record(&mut conn, 1, state.clock.now()).await?;
    drop(conn);
    of_user(&state, &server.app, user, &mut request).await
}

/// Exports all stored data of a user to the caller, who may read it.
pub(in crate::api) async fn of_user(
    state: &ApiState, app: &App, user: String, request: &mut Request,
) -> Result<Response, Problem> {
    let place = state.place_to_transfer(app.id).await?;
    let head = head(state, app.id, app.slug.clone(), &user).await?;
    let mut opening = serde_json::to_vec(&head).map_err(|_| Problem::internal())?;
    opening.pop(); // its brace: more follows
    opening.extend_from_slice(b",\n\"subscriptions\":[");
    let (outgoing, body) = Outgoing::answering(request, state);
    let pages = Pages {
        state: state.clone(),
        app: app.id,
        user,
        devices: Vec::new(),
        at: ExportPosition::Subscriptions(Keyset::newest(PAGE)),
        any: false,
    };
    let parts = stream::once(async { Ok(Bytes::from(opening)) }).chain(stream::try_unfold(pages, Pages::next));
    outgoing.give(parts, place, "an export of a user");
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CONTENT_DISPOSITION, r#"attachment; filename="user.json""#),
    ];
    Ok((headers, body).into_response())
}

async fn head(state: &ApiState, app: AppId, slug: String, user: &str) -> Result<PersonSummary, Problem> {
    let person = Person::of_user(app, user);
    let frequency = caps::of(&state.pool, person).await?.into_iter();
    let habits = engagement_stats::of_person(&state.pool, app, person).await?.map(|(habits, noted_at)| PersonHabits {
        noted_at,
        clicked_at: habits.clicked_at,
        unclicked: habits.unclicked,
        unclicked_from: habits.unclicked_between.map(|between| between.0),
        unclicked_to: habits.unclicked_between.map(|between| between.1),
        recent_messages: habits.recent,
        clicks_by_hour: habits.hours.0.to_vec(),
    });
    let people = user_events::people_of_user(&state.pool, app, user).await?;
    let waits = due::of_people(&state.pool, app, &people, ENTRIES_MAX).await?;
    Ok(PersonSummary {
        user_id: user.to_owned(),
        app: slug,
        exported_at: state.clock.now(),
        frequency: frequency.map(|(group, sent_at)| PersonFrequency { tiers: group.tiers(), sent_at }).collect(),
        habits,
        waits,
    })
}

/// Reason for which an export was interrupted. The connection is then closed without the end of the body, so that a client
/// notices the truncation.
#[derive(Debug, thiserror::Error)]
enum PersonExportError {
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    #[error(transparent)]
    Written(#[from] serde_json::Error),
    #[error("a value cannot be decrypted")]
    Sealed,
}

enum ExportPosition {
    Subscriptions(Keyset),
    /// Next: events after this one.
    Events(Uuid),
    /// Next: deliveries to the first group of subscriptions after this cursor, then to the other groups.
    Deliveries(VecDeque<Vec<SubscriptionId>>, search::DeliveryCursor),
    End,
}

struct Pages {
    state: ApiState,
    app: AppId,
    user: String,
    devices: Vec<SubscriptionId>,
    at: ExportPosition,
    /// Whether the current JSON array has an element already.
    any: bool,
}

impl Pages {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, PersonExportError> {
        let mut out = Vec::new();
        match std::mem::replace(&mut self.at, ExportPosition::End) {
            ExportPosition::Subscriptions(page) => self.subscriptions(page, &mut out).await?,
            ExportPosition::Events(after) => self.events(after, &mut out).await?,
            ExportPosition::Deliveries(chunks, beyond) => self.deliveries(chunks, beyond, &mut out).await?,
            ExportPosition::End => return Ok(None),
        }
        Ok(Some((out.into(), self)))
    }

    async fn subscriptions(&mut self, page: Keyset, out: &mut Vec<u8>) -> Result<(), PersonExportError> {
        let filter = SubscriptionFilter { user_id: Some(self.user.clone()), ..SubscriptionFilter::default() };
        let rows = subscriptions::list(&self.state.pool, self.app, &filter, page).await?.rows;
        let last = rows.last().map(|(row, _)| row.id.0).filter(|_| rows.len() as i64 == PAGE);
        for (row, topics) in rows {
            self.devices.push(row.id);
            let endpoint_origin = self.origin(&row)?;
            let subscription = SubscriptionResponse::new(row, topics, self.state.clock.now());
            self.write(out, &PersonSubscription { subscription, endpoint_origin })?;
        }
        self.at = match last {
            Some(last) => ExportPosition::Subscriptions(Keyset { beyond: last, ..page }),
            None => {
                out.extend_from_slice(b"],\n\"events\":[");
                self.any = false;
                ExportPosition::Events(Uuid::nil())
            }
        };
        Ok(())
    }

    async fn events(&mut self, after: Uuid, out: &mut Vec<u8>) -> Result<(), PersonExportError> {
        let people = user_events::people_of_user(&self.state.pool, self.app, &self.user).await?;
        let rows = user_events::of_people(&self.state.pool, self.app, &people, after, PAGE).await?;
        let last = rows.last().map(|row| row.id).filter(|_| rows.len() as i64 == PAGE);
        for row in rows {
            let properties = row.properties(&self.state.vault).map_err(|_| PersonExportError::Sealed)?;
            let value = row.value.map(|amount| amount as f64 / 1e4);
            let StoredEvent { name, at, currency, campaign, .. } = row;
            self.write(out, &PersonEvent { name, at, properties, value, currency, campaign })?;
        }
        self.at = match last {
            Some(last) => ExportPosition::Events(last),
            None => {
                out.extend_from_slice(b"],\n\"deliveries\":[");
                self.any = false;
                let chunks = self.devices.chunks(DEVICES_MAX).map(<[_]>::to_vec).collect();
                self.devices = Vec::new();
                ExportPosition::Deliveries(chunks, search::DeliveryCursor::TOP)
            }
        };
        Ok(())
    }

    fn origin(&self, row: &SubscriptionRow) -> Result<String, PersonExportError> {
        /// Bytes of the keys before the endpoint in a stored address.
        const KEYS: usize = 65 + 16;
        let address = zeroize::Zeroizing::new(
            self.state.vault.open(ADDRESS, row.id, &row.address).map_err(|_| PersonExportError::Sealed)?,
        );
        let endpoint =
            std::str::from_utf8(address.get(KEYS..).unwrap_or_default()).map_err(|_| PersonExportError::Sealed)?;
        let endpoint = url::Url::parse(endpoint).map_err(|_| PersonExportError::Sealed)?;
        Ok(endpoint.origin().ascii_serialization())
    }

    async fn deliveries(
        &mut self, mut chunks: VecDeque<Vec<SubscriptionId>>, beyond: search::DeliveryCursor, out: &mut Vec<u8>,
    ) -> Result<(), PersonExportError> {
        let Some(devices) = chunks.front().cloned() else {
            out.extend_from_slice(b"],\n\"complete\":true}\n");
            return Ok(());
        };
        let first = devices.iter().filter_map(|id| time_of(id.0)).min().unwrap_or(DateTime::UNIX_EPOCH);
        let wanted = SearchQuery {
            towards: Towards::Older,
            beyond,
            below: search::DeliveryCursor::TOP,
            since: first - INHERITED_MAX,
            tier: None,
            lane: None,
            waiting: false,
            recipients: 0,
        };
        let whose = Whose::Subscriptions(devices);
        let found = search::search(&self.state.pool, self.app, &whose, &wanted, self.state.clock.now()).await?;
        let own = search::former::of_user(&self.state.pool, &self.user, found.rows).await?;
        self.write_deliveries(out, own.into_iter().map(FoundDelivery::from).collect()).await?;
        out.push(b'\n'); // shows the client that the export continues
        let beyond = found.next.unwrap_or_else(|| {
            chunks.pop_front();
            search::DeliveryCursor::TOP
        });
        self.at = ExportPosition::Deliveries(chunks, beyond);
        Ok(())
    }

    async fn write_deliveries(
        &mut self, out: &mut Vec<u8>, found: Vec<FoundDelivery>,
    ) -> Result<(), PersonExportError> {
        let mut ids: Vec<MessageId> = found.iter().map(|delivery| delivery.message).collect();
        let subscriptions: Vec<SubscriptionId> = found.iter().map(|delivery| delivery.subscription).collect();
        let mut receipts: HashMap<(MessageId, SubscriptionId), Vec<ReceiptResponse>> = HashMap::new();
        for (message, row) in receipts::of_pairs(&self.state.pool, &ids, &subscriptions).await? {
            receipts.entry((message, row.subscription)).or_default().extend(ReceiptResponse::new(row));
        }
        ids.dedup();
        let mut contents = HashMap::new();
        for SealedMessage { id, content, .. } in messages::sealed(&self.state.pool, self.app, &ids).await? {
            let Some(sealed) = content else { continue };
            let opened = content::opened(&self.state, id, &sealed).map_err(|_| PersonExportError::Sealed)?;
            contents.insert(id, opened.into());
        }
        for delivery in found {
            let content = contents.get(&delivery.message).cloned();
            let message_content = content.unwrap_or_else(|| MessageContentResponse::without(ContentState::Deleted));
            let receipts = receipts.remove(&(delivery.message, delivery.subscription)).unwrap_or_default();
            self.write(out, &PersonDelivery { delivery, message_content, receipts })?;
        }
        Ok(())
    }

    /// Writes an element of the current JSON array.
    fn write(&mut self, out: &mut Vec<u8>, element: &impl Serialize) -> Result<(), PersonExportError> {
        out.extend_from_slice(if self.any { b",\n" } else { b"\n" });
        self.any = true;
        Ok(serde_json::to_writer(out, element)?)
    }
}
