//! `GET /v1/apps/{app}/messages/{message}/content`: content of messages to a topic or to all subscribers. That of messages to
//! single people, or to very few, stays sealed, because it may be a one-time code.

use axum::extract::State;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::api::ApiState;
use crate::api::dead_letters::ContentState;
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

/// Number of subscriptions up to which a message may be meant for one person: each of their browsers is one, and a topic may
/// exist for them alone.
const FEW: i64 = 10;

/// Content of a message in the members of its request. Absent members are left out.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct MessageContentResponse {
    /// Whether it is shown.
    content_state: ContentState,
    /// The notification, with paths completed by the app's first origin.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Box<Notification>>,
    /// Notification for push services that refuse `content` as too large.
    #[serde(skip_serializing_if = "Option::is_none")]
    compact: Option<Box<Notification>>,
    /// The template that is filled in for each recipient.
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<Template>,
    /// Data of `template`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    data: Option<Map<String, Value>>,
    /// For the page's own handler.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Payload>,
    /// Beside `payload`: whether our envelope is around it.
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

/// Returns the content of a message to a topic or to all subscribers, for callers that may send such messages. Content for named
/// subscriptions or users, or for at most ten subscriptions at its acceptance, is withheld from all callers.
#[utoipa::path(get, path = "/v1/apps/{app}/messages/{message}/content", tag = "Messages",
    responses((status = 200, body = MessageContentResponse)))]
pub(crate) async fn content(
    server: Server<MayRead>,
    State(state): State<ApiState>,
    PathId(id): PathId<MessageId>,
) -> Result<axum::Json<MessageContentResponse>, Problem> {
    let found = messages::sealed(&state.pool, server.app.id, id).await?;
    let SealedMessage { audience, audience_estimate, content } = found.ok_or_else(|| missing(&state, id))?;
    let names_nobody = audience.get("topic").is_some() || audience.get("all").is_some();
    let is_for_many = names_nobody && audience_estimate > FEW;
    Ok(axum::Json(match content {
        None => MessageContentResponse::without(ContentState::Deleted),
        Some(_) if !is_for_many || !server.caller.may(Scope::Send) => {
            MessageContentResponse::without(ContentState::Withheld)
        }
        Some(sealed) => opened(&state, id, &sealed)?,
    }))
}

pub(in crate::api) fn opened(
    state: &ApiState,
    id: MessageId,
    sealed: &[u8],
) -> Result<MessageContentResponse, Problem> {
    let plain = zeroize::Zeroizing::new(state.vault.open(CONTENT, id, sealed)?);
    Ok(MessageContent::from_json(&plain).map_err(|_| Problem::internal())?.into())
}
