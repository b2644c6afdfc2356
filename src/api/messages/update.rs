//! `PATCH /v1/apps/{app}/messages/by-key/{key}`: new content for a message, also where it was sent.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::{keyed, missing};
use crate::api::http::auth::{MaySend, Server};
use crate::api::http::draft::Draft;
use crate::api::http::extract::PathId;
use crate::api::http::problem::{Problem, ProblemCode};
use crate::api::http::routes::routes;
use crate::api::messages::compose::MessageKey;
use crate::api::messages::compose::content::check_content;
use crate::api::messages::withdraw::still_sending;
use crate::api::{ApiState, Work};
use bellwire_core::id::MessageId;
use bellwire_core::message::{CONTENT_MAX, Notification};
use bellwire_core::template::MessageContent;
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::queue::updates::{self, NewContent, Updated};
use bellwire_webpush::payload::PayloadTemplate;

/// Maximum bytes of an update's content: the id of the replaced delivery needs 80 in its push.
const UPDATE_MAX: usize = CONTENT_MAX - 80;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(update))
}

/// New content of a message.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessageUpdate {
    /// Notification to show instead.
    content: Option<Notification>,
    /// Whether browsers alert the person again. By default the notification changes silently.
    #[serde(default)]
    alert: bool,
}

/// Result of an update.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessageUpdated {
    /// The message.
    id: MessageId,
    /// Message that carries the new content to the browsers. Null: nothing was sent yet, or no browser has the message.
    update: Option<MessageId>,
}

/// Replaces the content of the message that has this key now or had it last. A scheduled message is sent with the new content.
/// Browsers that may have it are sent an update: it replaces the notification on display, or the push that waits at the push
/// service. Where the notification was clicked or closed, nothing is shown.
///
/// 409 `message_sending`: some deliveries of it, or of an earlier update, have not ended. 409 `message_cancelled`: it was withdrawn.
#[utoipa::path(patch, path = "/v1/apps/{app}/messages/by-key/{key}", tag = "Messages", request_body = MessageUpdate,
    responses((status = 200, body = MessageUpdated)))]
pub(crate) async fn update(
    server: Server<MaySend>, State(state): State<ApiState>, PathId(key): PathId<MessageKey>,
    Draft(mut given, mut faults, _): Draft<MessageUpdate>,
) -> Result<axum::Json<MessageUpdated>, Problem> {
    let app = &server.app;
    if let Some(content) = &mut given.content {
        content.complete(app.origins.first().map(String::as_str));
        content.silent |= !given.alert;
    }
    let octets = given.content.as_ref().map_or(0, PayloadTemplate::content_octets);
    let content = check_content(given.content, None, None, None, &mut faults);
    let detail = format!("has {octets} octets when sent; the limit of an update is {UPDATE_MAX}");
    faults.require(octets <= UPDATE_MAX, "/content", &detail);
    faults.finish()?;
    let content = MessageContent::Literal(content.expect("a missing one was refused"));
    let plain = zeroize::Zeroizing::new(content.to_json().map_err(|_| Problem::internal())?);
    let id = keyed(&state, app, &key).await?;
    let new = NewContent { plain: &plain, sent_by: server.caller.counted_as() };
    let entry = server.did(AuditAction::MessageUpdated, id);
    let updated = updates::update(&state.pool, &state.vault, (app.id, id), new, &entry, state.clock.now()).await?;
    let update = match updated {
        Updated::Unknown => return Err(missing(&state, id)),
        Updated::Withdrawn => {
            return Err(Problem::new(ProblemCode::MessageCancelled, "This message was withdrawn. Send a new one."));
        }
        Updated::Sending => return Err(still_sending()),
        Updated::InPlace => None,
        Updated::Sent(update) => update,
    };
    (state.engine.tell)(Work::Due);
    Ok(axum::Json(MessageUpdated { id, update }))
}
