//! HTTP interface of the simulator for other programs. It listens on a local address without authentication, because
//! all of its data is simulated.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use serde::Deserialize;

use super::rule::{InvalidRule, Rule};
use super::{SimulatorShared, UnknownHost};

const MINT_MAX: u32 = 50_000;

pub(super) fn router(shared: Arc<SimulatorShared>) -> Router {
    Router::new()
        .route("/report", get(async |State(shared): Shares| Json(shared.report())))
        .route("/received", get(received))
        .route("/rules", get(async |State(shared): Shares| Json(shared.script.report())).post(add_rule))
        .route("/rules/{id}", delete(remove_rule))
        .route("/rules/{id}/release", post(release))
        .route("/mint", post(mint))
        .route("/browsers/push-again", post(push_again))
        .route("/browsers/forget", post(forget_browsers))
        .route("/ca.pem", get(async |State(shared): Shares| shared.ca_pem.clone()))
        .route("/hosts", get(async |State(shared): Shares| Json(shared.mappings())))
        .route("/reset", post(async |State(shared): Shares| shared.reset()))
        .with_state(shared)
}

type Shares = State<Arc<SimulatorShared>>;

/// Error response to a request.
struct ControlError(StatusCode, String);

impl IntoResponse for ControlError {
    fn into_response(self) -> Response {
        (self.0, Json(serde_json::json!({ "error": self.1 }))).into_response()
    }
}

impl From<UnknownHost> for ControlError {
    fn from(error: UnknownHost) -> Self {
        Self(StatusCode::NOT_FOUND, error.to_string())
    }
}

impl From<InvalidRule> for ControlError {
    fn from(error: InvalidRule) -> Self {
        Self(StatusCode::UNPROCESSABLE_ENTITY, error.to_string())
    }
}

#[derive(Deserialize)]
struct ReceivedQuery {
    endpoint: Option<String>,
    id: Option<String>,
}

/// Returns the deliveries of one endpoint (percent-encoded like any query value), or the delivery with an id.
async fn received(State(shared): Shares, Query(query): Query<ReceivedQuery>) -> Result<Response, ControlError> {
    match query {
        ReceivedQuery { endpoint: Some(endpoint), .. } => Ok(Json(shared.received(&endpoint)?).into_response()),
        ReceivedQuery { id: Some(id), .. } => {
            let delivery = shared.logbook.delivery(&id);
            Ok(Json(delivery.into_iter().collect::<Vec<_>>()).into_response())
        }
        _ => Err(ControlError(StatusCode::BAD_REQUEST, "ask for an endpoint or an id".to_owned())),
    }
}

async fn add_rule(State(shared): Shares, Json(rule): Json<Rule>) -> Result<Response, ControlError> {
    let id = shared.add_rule(rule)?;
    Ok((StatusCode::CREATED, Json(serde_json::json!({ "id": id }))).into_response())
}

async fn remove_rule(State(shared): Shares, Path(id): Path<u64>) -> StatusCode {
    if shared.script.remove(id) { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Release {
    count: usize,
}

async fn release(State(shared): Shares, Path(id): Path<u64>, Json(body): Json<Release>) -> StatusCode {
    if shared.script.release(id, body.count) { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Endpoint {
    endpoint: String,
}

/// Sends the last message of an endpoint to a real browser again; 409 if there was none.
async fn push_again(State(shared): Shares, Json(ask): Json<Endpoint>) -> Result<StatusCode, ControlError> {
    Ok(if shared.push_again(&ask.endpoint)? { StatusCode::NO_CONTENT } else { StatusCode::CONFLICT })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostName {
    host: String,
}

async fn forget_browsers(State(shared): Shares, Json(ask): Json<HostName>) -> Result<StatusCode, ControlError> {
    shared.forget_browsers(&ask.host)?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mint {
    host: String,
    #[serde(default)]
    from: u32,
    count: u32,
    /// VAPID public key: 65 octets in base64url.
    vapid: Option<String>,
}

async fn mint(State(shared): Shares, Json(ask): Json<Mint>) -> Result<Response, ControlError> {
    let refuse = |why: &str| ControlError(StatusCode::UNPROCESSABLE_ENTITY, why.to_owned());
    let Some(end) = ask.from.checked_add(ask.count).filter(|_| ask.count <= MINT_MAX) else {
        return Err(refuse("count must be at most 50000, and from + count at most 2^32 - 1"));
    };
    let vapid = match ask.vapid.as_deref().map(bellwire_core::base64url::decode_any) {
        None => None,
        Some(Some(key)) if key.len() == 65 => Some(key),
        Some(_) => return Err(refuse("vapid must be base64url of 65 octets")),
    };
    let minting = tokio::task::spawn_blocking(move || {
        (ask.from..end).map(|index| shared.mint(&ask.host, index, vapid.as_deref())).collect::<Result<Vec<_>, _>>()
    });
    let minted =
        minting.await.map_err(|error| ControlError(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))??;
    let json = serde_json::to_vec(&minted).map_err(|error| refuse(&error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
}
