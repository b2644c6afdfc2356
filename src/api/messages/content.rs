//! `GET /v1/apps/{app}/messages/{message}/content`: content of messages to a topic, a segment or all subscribers, and titles
//! for lists. Content for one or very few people is withheld, because it may be a one-time code.

use std::collections::HashMap;

use axum::extract::State;
use serde::Serialize;
use serde_json::{Map, Value};
use sqlx::PgPool;
use tracing::warn;
use utoipa::ToSchema;

use crate::api::ApiState;
use crate::api::http::auth::{MayRead, Server};
use crate::api::http::extract::PathId;
use crate::api::http::problem::Problem;
use crate::api::http::routes::routes;
use crate::api::messages::response::missing;
use bellwire_core::id::MessageId;
use bellwire_core::message::{Content, Notification, Payload};
use bellwire_core::scope::Scope;
use bellwire_core::template::{MessageContent, Template};
use bellwire_store::queue::messages::{self, SealedMessage};
use bellwire_vault::CONTENT;
use utoipa_axum::router::OpenApiRouter;

pub(in crate::api) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(content))
}

/// Number of subscriptions up to which a message may be meant for one person, who may have several browsers or a topic of their
/// own.
const FEW: i64 = 10;

/// Availability of stored content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ContentState {
    /// The content is in the response.
    Shown,
    /// The caller may not read the content. A dead letter requires the scope `export`. A message to a topic, a segment or all
    /// subscribers requires `send`. Content for named recipients is never shown.
    Withheld,
    /// The content was deleted, because the message can no longer be sent or replayed.
    Deleted,
}

/// Content of a message, in the members of the send request. Absent members are omitted.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct MessageContentResponse {
    /// Whether the content is in the response, and why not.
    content_state: ContentState,
    /// Notification, with relative URLs completed by the app's first origin.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Box<Notification>>,
    /// Notification for push services that refuse `content` as too large.
    #[serde(skip_serializing_if = "Option::is_none")]
    compact: Option<Box<Notification>>,
    /// Template that is rendered for each recipient.
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<Template>,
    /// Variables of `template`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    data: Option<Map<String, Value>>,
    /// Data for the site's own push handler.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Payload>,
    /// With `payload`: whether Bellwire adds its envelope.
    #[serde(skip_serializing_if = "Option::is_none")]
    envelope: Option<bool>,
}

impl MessageContentResponse {
    pub(in crate::api) const fn without(content_state: ContentState) -> Self {
        Self { content_state, content: None, compact: None, template: None, data: None, payload: None, envelope: None }
    }
}

impl From<MessageContent> for MessageContentResponse {
    fn from(said: MessageContent) -> Self {
        let shown = Self::without(ContentState::Shown);
        match said {
            MessageContent::Literal(Content::Notification { content, compact }) => {
                Self { content: Some(content), compact, ..shown }
            }
            MessageContent::Literal(Content::Raw { payload, envelope }) => {
                Self { payload: Some(payload), envelope: Some(envelope), ..shown }
            }
            MessageContent::Template(templated) => {
                Self { template: Some(templated.template), data: Some(templated.data), ..shown }
            }
        }
    }
}

/// Whether a message has so many recipients that callers with the scope `send` may read its content.
fn is_for_many(message: &SealedMessage) -> bool {
    let names_nobody = ["topic", "all", "segment"].iter().any(|kind| message.audience.get(kind).is_some());
    names_nobody && message.audience_estimate > FEW
}

/// Returns the content of a message to a topic, a segment or all subscribers. Requires the scope `send`. Content for named
/// subscriptions or users, or for at most ten subscriptions at its acceptance, is withheld.
#[utoipa::path(get, path = "/v1/apps/{app}/messages/{message}/content", tag = "Messages",
    responses((status = 200, body = MessageContentResponse)))]
pub(crate) async fn content(
    server: Server<MayRead>, State(state): State<ApiState>, PathId(id): PathId<MessageId>,
) -> Result<axum::Json<MessageContentResponse>, Problem> {
    let found = messages::sealed(&state.pool, server.app.id, &[id]).await?.pop();
    let message = found.ok_or_else(|| missing(&state, id))?;
    let may_read = is_for_many(&message) && server.caller.may(Scope::Send);
    Ok(axum::Json(match message.content {
        None => MessageContentResponse::without(ContentState::Deleted),
        Some(_) if !may_read => MessageContentResponse::without(ContentState::Withheld),
        Some(sealed) => opened(&state, id, &sealed)?.into(),
    }))
}

/// Returns the titles of messages that the caller may read: of messages to many recipients, and of stored templates. A
/// template's title is not rendered.
pub(in crate::api) async fn titles<S>(
    pool: &PgPool, state: &ApiState, server: &Server<S>, ids: &[MessageId],
) -> Result<HashMap<MessageId, String>, Problem> {
    if !server.caller.may(Scope::Send) {
        return Ok(HashMap::new());
    }
    let mut titles = HashMap::new();
    for message in messages::sealed(pool, server.app.id, ids).await? {
        let Some(sealed) = &message.content else { continue };
        // A list without this title is better than none.
        let Ok(content) = opened(state, message.id, sealed) else {
            warn!(message = %message.id, "the content of a message cannot be read");
            continue;
        };
        let title = match content {
            MessageContent::Template(it) if it.name.is_some() || is_for_many(&message) => it.template.content.title,
            MessageContent::Literal(Content::Notification { content, .. }) if is_for_many(&message) => content.title,
            _ => continue,
        };
        titles.insert(message.id, title);
    }
    Ok(titles)
}

pub(in crate::api) fn opened(state: &ApiState, id: MessageId, sealed: &[u8]) -> Result<MessageContent, Problem> {
    let plain = zeroize::Zeroizing::new(state.vault.open(CONTENT, id, sealed)?);
    MessageContent::from_json(&plain).map_err(|_| Problem::internal())
}
