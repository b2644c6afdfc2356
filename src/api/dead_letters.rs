//! `/v1/apps/{app}/dead-letters`: archive of failed deliveries. [`handling`] replays and discards them, and [`export`] exports
//! them.

pub(crate) mod export;
pub(crate) mod handling;

use axum::extract::{FromRequestParts, State};
use axum::http::Uri;
use axum::http::request::Parts;
use axum::response::Response;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::form_urlencoded;
use utoipa::{IntoParams, ToSchema};

use super::ApiState;
use super::deliveries::AttemptResponse;
use super::http::auth::{MayRead, Server};
use super::http::caller::Caller;
use super::http::extract::{PathId, parse_query};
use super::http::paging::{Page, Paging};
use super::http::problem::Problem;
use super::http::routes::{Argument, routes};
use crate::api::messages::content::{ContentState, titles};
use bellwire_core::id::{AppId, DeadLetterId, MessageId};
use bellwire_core::scope::Scope;
use bellwire_rules::explain::size_note;
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::keyset::Keyset;
use bellwire_store::outcomes::dead_letters::{
    self, DeadLetterFilter, DeadLetterGroup, DeadLetterRow, DeadLetterState as Standing, GROUPS_MAX, GroupBy,
};
use bellwire_store::outcomes::deliveries;
use bellwire_vault::CONTENT;
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(groups))
        .routes(routes!(show))
        .routes(routes!(handling::replay))
        .routes(routes!(handling::discard))
        .routes(routes!(handling::replay_one))
        .routes(routes!(handling::discard_one))
        .routes(routes!(handling::trail))
        .routes(routes!(export::export))
}

/// Query string with a dead-letter filter and the route's own parameters.
#[derive(Debug)]
pub(crate) struct Filtered<T>(pub DeadLetterFilter, pub T);

impl<T> Argument for Filtered<T> {}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Filtered<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let pairs = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
        let (filter, rest): (Vec<_>, Vec<_>) =
            pairs.partition(|(name, _)| DeadLetterFilter::NAMES.contains(&name.as_ref()));
        let written = |pairs| form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        Ok(Self(parse_query(&written(filter))?, parse_query(&written(rest))?))
    }
}

/// Lists dead letters, the newest first. A filtered list is a search: if too many searches run, the response is 503
/// (`searches_busy`).
#[utoipa::path(get, path = "/v1/apps/{app}/dead-letters", tag = "Dead letters", params(DeadLetterFilter, Paging),
    responses((status = 200, body = Page<DeadLetterRow>)))]
pub(crate) async fn list(
    server: Server<MayRead>, State(state): State<ApiState>, uri: Uri, Filtered(filter, paging): Filtered<Paging>,
) -> Result<Response, Problem> {
    let cut = paging.cut()?;
    let _place = match filter == DeadLetterFilter::default() {
        true => None,
        false => Some(state.place_to_search(server.app.id).await?),
    };
    let rows = dead_letters::list(state.reads.pool(), server.app.id, &filter, cut.ask()).await?;
    let messages: Vec<MessageId> = rows.iter().map(|row| row.message).collect();
    let titles = titles(state.reads.pool(), &state, &server, &messages).await?;
    let show = |row: DeadLetterRow| DeadLetterRow { title: titles.get(&row.message).cloned(), ..row };
    Ok(cut.page(rows, |row| row.id, show).answer(&uri))
}

/// Grouping of the counts.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Grouping {
    /// Property that the dead letters of a group share.
    #[param(inline)]
    by: GroupBy,
}

/// Counts dead letters by a property, the largest 1,000 groups first. `done` is false if there are more groups. If too many
/// searches run, the response is 503 (`searches_busy`).
#[utoipa::path(get, path = "/v1/apps/{app}/dead-letters/groups", tag = "Dead letters", params(Grouping, DeadLetterFilter),
    responses((status = 200, body = Page<DeadLetterGroup>)))]
pub(crate) async fn groups(
    server: Server<MayRead>, State(state): State<ApiState>, Filtered(filter, Grouping { by }): Filtered<Grouping>,
) -> Result<axum::Json<Page<DeadLetterGroup>>, Problem> {
    let _place = state.place_to_search(server.app.id).await?;
    let data = dead_letters::groups(state.reads.pool(), server.app.id, &filter, by).await?;
    let done = (data.len() as i64) < GROUPS_MAX;
    Ok(axum::Json(Page { done, ..Page::complete(data) }))
}

/// A dead letter with its attempts, policy and content.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeadLetterDetail {
    #[serde(flatten)]
    letter: DeadLetterRow,
    /// Attempts in order of time.
    history: Vec<AttemptResponse>,
    /// Delivery policy in force when the delivery failed.
    #[schema(value_type = Option<Object>)]
    policy: Option<Value>,
    /// Parts omitted from the last payload because the push service refused it as too large: `content` (the compact variant was
    /// sent), `image`, `actions`, `data`, `body` (truncated). Null: nothing was omitted.
    dropped: Option<Vec<String>>,
    /// Whether the content is in the response, and why not.
    content_state: ContentState,
    /// Content of the message. Null: see `content_state`.
    #[schema(value_type = Option<Object>)]
    content: Option<Value>,
}

/// Returns a dead letter with its details. Its content requires a key with the scope `export`, and reading it is recorded in
/// the audit log.
#[utoipa::path(get, path = "/v1/apps/{app}/dead-letters/{dead_letter}", tag = "Dead letters",
    responses((status = 200, body = DeadLetterDetail)))]
pub(crate) async fn show(
    server: Server<MayRead>, State(state): State<ApiState>, PathId(id): PathId<DeadLetterId>,
) -> Result<axum::Json<DeadLetterDetail>, Problem> {
    give(&state, &server, id).await
}

/// Returns a dead letter after an action. If the response has content, the audit log records the caller.
async fn give<S>(
    state: &ApiState, server: &Server<S>, id: DeadLetterId,
) -> Result<axum::Json<DeadLetterDetail>, Problem> {
    let opened = open(state, server.app.id, &server.caller, id).await?;
    if opened.content_state == ContentState::Shown {
        let entry = server.did(AuditAction::DeadLettersExported, id);
        entry.record(&mut *state.pool.acquire().await?, 1, state.clock.now()).await?;
    }
    Ok(axum::Json(opened))
}

async fn find(state: &ApiState, app: AppId, id: DeadLetterId) -> Result<DeadLetterRow, Problem> {
    let found = dead_letters::list(&state.pool, app, &DeadLetterFilter::one(id), Keyset::newest(1)).await?.pop();
    found.ok_or_else(|| Problem::not_found("dead letter"))
}

async fn open(state: &ApiState, app: AppId, caller: &Caller, id: DeadLetterId) -> Result<DeadLetterDetail, Problem> {
    let letter = find(state, app, id).await?;
    let enclosed = dead_letters::enclosed(&state.pool, app, id).await?;
    let enclosed = enclosed.ok_or_else(|| Problem::not_found("dead letter"))?;
    let history = deliveries::attempts(&state.pool, letter.message, &[letter.subscription]).await?;
    let told = history.iter().rev().find_map(|attempt| size_note::dropped(attempt.reason.as_deref()?));
    let dropped = told.map(|names| names.into_iter().map(str::to_owned).collect());
    let (content_state, content) = match enclosed.content.filter(|_| letter.state != Standing::Closed) {
        None => (ContentState::Deleted, None),
        Some(_) if !caller.may(Scope::Export) => (ContentState::Withheld, None),
        Some(sealed) => {
            let plain = zeroize::Zeroizing::new(state.vault.open(CONTENT, letter.message, &sealed)?);
            (ContentState::Shown, Some(serde_json::from_slice(&plain).map_err(|_| Problem::internal())?))
        }
    };
    let history = history.into_iter().map(AttemptResponse::from).collect();
    Ok(DeadLetterDetail { letter, history, policy: enclosed.policy, dropped, content_state, content })
}
