//! `POST /v1/apps/{app}/messages/{message}/withdraw`: removes messages from browsers, also those already sent.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::sleep;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::{keyed, missing, view};
use crate::api::http::auth::{MayChangeSettings, MayRead, MaySteerMessages, Server};
use crate::api::http::draft::Draft;
use crate::api::http::extract::{PathId, UserId, is_plain_text};
use crate::api::http::problem::{Faults, Problem, ProblemCode};
use crate::api::http::routes::routes;
use crate::api::messages::compose::MessageKey;
use crate::api::messages::response::MessageResponse;
use crate::api::users::label;
use crate::api::{ApiState, Work};
use bellwire_core::id::{CampaignId, MessageId};
use bellwire_core::message::TextField;
use bellwire_store::ChunkProgress;
use bellwire_store::keys::apps;
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::queue::clears::{self, Cleared, UserRemoval};
use bellwire_store::queue::removals;
use bellwire_store::queue::withdrawals::{self, Withdrawn};

/// Interval at which a withdrawal checks whether the last push of its message has ended.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Number of these checks, one minute. Then maintenance continues.
const LOOKS: usize = 300;
/// Maximum characters of the notice's title and body.
const NOTICE_MAX: usize = 200;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(withdraw))
        .routes(routes!(withdraw_by_key))
        .routes(routes!(withdraw_from_user))
        .routes(routes!(show_notice, change_notice, delete_notice))
}

/// Withdraws a message wherever it is. Waiting deliveries are cancelled: no push starts later than a second after the response.
/// Browsers that may have got it are sent a second push, which closes the notification, or prevents that it is displayed.
///
/// With a collapse key, that push replaces the message at the push service. A repeat changes nothing.
#[utoipa::path(post, path = "/v1/apps/{app}/messages/{message}/withdraw", tag = "Messages",
    responses((status = 200, body = MessageResponse)))]
pub(crate) async fn withdraw(
    server: Server<MaySteerMessages>, State(state): State<ApiState>, PathId(id): PathId<MessageId>,
) -> Result<axum::Json<MessageResponse>, Problem> {
    run(&state, &server, id).await
}

/// Withdraws the message that has this key now or had it last.
#[utoipa::path(post, path = "/v1/apps/{app}/messages/by-key/{key}/withdraw", tag = "Messages",
    responses((status = 200, body = MessageResponse)))]
pub(crate) async fn withdraw_by_key(
    server: Server<MaySteerMessages>, State(state): State<ApiState>, PathId(key): PathId<MessageKey>,
) -> Result<axum::Json<MessageResponse>, Problem> {
    let id = keyed(&state, &server.app, &key).await?;
    run(&state, &server, id).await
}

async fn run(
    state: &ApiState, server: &Server<MaySteerMessages>, id: MessageId,
) -> Result<axum::Json<MessageResponse>, Problem> {
    let entry = server.did(AuditAction::MessageWithdrawn, id);
    let (sender, now) = (server.caller.counted_as(), state.clock.now());
    match withdrawals::request(&state.pool, server.app.id, id, sender, &entry, now).await? {
        Withdrawn::Unknown => return Err(missing(state, id)),
        Withdrawn::Already => {}
        Withdrawn::Now(stop) => {
            if let Some(stop) = stop {
                (state.engine.tell)(Work::Stop(stop));
            }
            go_on(state, id).await;
        }
    }
    view(state, server, id).await
}

/// Continues a withdrawal. If deliveries of the message have not ended, a task continues it, and maintenance after a restart. A failure
/// is none of the request, which is committed.
pub(in crate::api) async fn go_on(state: &ApiState, id: MessageId) {
    let progress =
        advance(state, id).await.inspect_err(|error| tracing::warn!(%error, "a withdrawal is continued later"));
    if !matches!(progress, Ok(ChunkProgress::Done)) {
        tokio::spawn(finish(state.clone(), Withdrawing::Message(id)));
    }
}

/// A withdrawal in progress.
#[derive(Debug, Clone, Copy)]
pub(in crate::api) enum Withdrawing {
    Message(MessageId),
    /// All messages of a campaign.
    Campaign(CampaignId),
}

/// Continues a withdrawal until every removal is stored, for at most a minute.
pub(in crate::api) async fn finish(state: ApiState, withdrawing: Withdrawing) {
    for _ in 0..LOOKS {
        match advance_all(&state, withdrawing).await {
            Ok(ChunkProgress::More) => sleep(LOOK_EVERY).await,
            Ok(ChunkProgress::Done) => return,
            Err(error) => return tracing::warn!(%error, ?withdrawing, "a withdrawal was left to maintenance"),
        }
    }
}

async fn advance_all(state: &ApiState, withdrawing: Withdrawing) -> sqlx::Result<ChunkProgress> {
    let messages = match withdrawing {
        Withdrawing::Message(id) => vec![id],
        Withdrawing::Campaign(id) => withdrawals::waiting_of_campaign(&state.pool, id).await?,
    };
    let mut all = ChunkProgress::Done;
    for message in messages {
        if advance(state, message).await? == ChunkProgress::More {
            all = ChunkProgress::More;
        }
    }
    Ok(all)
}

async fn advance(state: &ApiState, id: MessageId) -> sqlx::Result<ChunkProgress> {
    let progress = withdrawals::advance(&state.pool, &state.vault, id, state.clock.now()).await?;
    if progress == ChunkProgress::Done {
        (state.engine.tell)(Work::Due);
    }
    Ok(progress)
}

/// Returns a 409 problem: a push of the message may be on its way.
pub(super) fn still_sending() -> Problem {
    let detail = "A push may be on its way, or the message still waits. Repeat the request later, or withdraw the whole message.";
    Problem::new(ProblemCode::MessageSending, detail)
}

/// Message or tag to remove from a user's browsers: exactly one.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserWithdrawal {
    /// Your own key of a message.
    #[schema(min_length = 1, max_length = 255)]
    key: Option<String>,
    /// Tag of notifications, 1 to 200 characters. Only notifications on display are closed.
    #[schema(min_length = 1, max_length = 200)]
    tag: Option<String>,
}

/// Removal of a message from a user's browsers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UserWithdrawn {
    /// Message that removes it. Null: no browser of the user can have it, or it was removed before.
    removal: Option<MessageId>,
}

/// Removes one message from all browsers of a user, also if it was sent, and cancels what waits for them. Or closes
/// notifications by tag.
///
/// Other recipients keep the message. 409 `message_sending`: a push to the user may be on its way, or fan-out of the message is
/// not complete.
#[utoipa::path(post, path = "/v1/apps/{app}/users/{user}/withdraw", tag = "Messages", request_body = UserWithdrawal,
    responses((status = 200, body = UserWithdrawn)))]
pub(crate) async fn withdraw_from_user(
    server: Server<MaySteerMessages>, State(state): State<ApiState>, PathId(user): PathId<UserId>,
    Draft(given, mut faults, _): Draft<UserWithdrawal>,
) -> Result<axum::Json<UserWithdrawn>, Problem> {
    let detail = "must have exactly one of `key` and `tag`";
    faults.require(given.key.is_some() != given.tag.is_some(), "", detail);
    let key = given.key.map(|key| key.parse::<MessageKey>());
    if let Some(Err(rule)) = &key {
        faults.refuse("/key", *rule);
    }
    if let Some(fault) = given.tag.as_deref().and_then(|tag| TextField::Tag.fault(tag)) {
        faults.refuse("/tag", fault);
    }
    faults.require(given.tag.as_deref() != Some(""), "/tag", "must not be empty");
    faults.finish()?;
    let (app, now) = (&server.app, state.clock.now());
    let of = UserRemoval { app: app.id, user: &user.0, sent_by: server.caller.counted_as() };
    let entry = server.did(AuditAction::MessageWithdrawn, label(&state.vault, app.id, &user.0));
    let removal = match (key.and_then(Result::ok), given.tag) {
        (Some(key), _) => {
            let id = keyed(&state, app, &key).await?;
            let entry = entry.with(json!({"message": id}));
            match clears::from_user(&state.pool, &state.vault, of, id, &entry, now).await? {
                Cleared::Done(removal) => removal,
                Cleared::Sending => return Err(still_sending()),
            }
        }
        (None, tag) => {
            let notice = apps::read_withdrawal_notice(&state.pool, app.id).await?;
            let message = removals::removal(&state.vault, app.id, (&app.name, notice.as_ref()), tag, now);
            clears::tag_of_user(&state.pool, &state.vault, of, message, &entry, now).await?
        }
    };
    (state.engine.tell)(Work::Due);
    Ok(axum::Json(UserWithdrawn { removal }))
}

/// Text that replaces withdrawn messages in browsers that cannot close notifications, such as Safari.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WithdrawalNotice {
    /// Title, 1 to 200 characters. Null: the name of the app.
    title: Option<String>,
    /// Text below the title, 1 to 200 characters. Null: a built-in English text.
    body: Option<String>,
}

impl WithdrawalNotice {
    fn check(&self, faults: &mut Faults) {
        for (pointer, text) in [("/title", &self.title), ("/body", &self.body)] {
            let fits = text.as_ref().is_none_or(|text| is_plain_text(text, NOTICE_MAX));
            faults.require(fits, pointer, "must be 1 to 200 characters without control characters");
        }
    }
}

/// Returns the text that replaces withdrawn messages in browsers that cannot close notifications.
#[utoipa::path(get, path = "/v1/apps/{app}/withdrawal-notice", tag = "Apps",
    responses((status = 200, body = WithdrawalNotice)))]
pub(crate) async fn show_notice(
    server: Server<MayRead>, State(state): State<ApiState>,
) -> Result<axum::Json<WithdrawalNotice>, Problem> {
    let stored = apps::read_withdrawal_notice(&state.pool, server.app.id).await?;
    let notice = stored.and_then(|notice| serde_json::from_value(notice).ok());
    Ok(axum::Json(notice.unwrap_or(WithdrawalNotice { title: None, body: None })))
}

/// Replaces the text for withdrawn messages.
#[utoipa::path(put, path = "/v1/apps/{app}/withdrawal-notice", tag = "Apps", request_body = WithdrawalNotice,
    responses((status = 200, body = WithdrawalNotice)))]
pub(crate) async fn change_notice(
    server: Server<MayChangeSettings>, State(state): State<ApiState>,
    Draft(notice, mut faults, _): Draft<WithdrawalNotice>,
) -> Result<axum::Json<WithdrawalNotice>, Problem> {
    notice.check(&mut faults);
    faults.finish()?;
    write_notice(&server, &state, Some(json!(notice))).await?;
    Ok(axum::Json(notice))
}

/// Restores the built-in text for withdrawn messages.
#[utoipa::path(delete, path = "/v1/apps/{app}/withdrawal-notice", tag = "Apps", responses((status = 204)))]
pub(crate) async fn delete_notice(
    server: Server<MayChangeSettings>, State(state): State<ApiState>,
) -> Result<StatusCode, Problem> {
    write_notice(&server, &state, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn write_notice(
    server: &Server<MayChangeSettings>, state: &ApiState, notice: Option<Value>,
) -> Result<(), Problem> {
    let app = server.app.id;
    let mut tx = state.begin().await?;
    apps::write_withdrawal_notice(&mut *tx, app, notice.as_ref()).await?;
    let entry = server.did(AuditAction::AppChanged, app).with(json!({"withdrawal_notice": notice}));
    entry.record(&mut tx, 1, state.clock.now()).await?;
    Ok(tx.commit().await?)
}
