//! `/v1/apps/{app}/users/{user}`: erases or exports all data of a user, from all their browsers.

pub(in crate::api) mod export;

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::http::auth::{MayChangeSubscribers, MayRead, RegistrationCaller, Server};
use super::http::extract::{PathId, UserId};
use super::http::problem::Problem;
use super::http::routes::routes;
use super::{ApiState, Work};
use crate::api::subscriptions::response::unknown;
use bellwire_core::id::{AppId, ErasureId, SubscriptionId};
use bellwire_store as store;
use bellwire_store::audience::erasures::{self, Erasure, ErasureRequest};
use bellwire_store::keys::audit::{AuditAction, AuditEntry};
use bellwire_vault::{Purpose, Vault};
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    let erasing = OpenApiRouter::new().routes(routes!(erase)).routes(routes!(show_erasure));
    erasing.routes(routes!(export::export))
}

/// Time for which a request searches messages that name the user. Then maintenance continues.
const PATIENCE: Duration = Duration::from_secs(2);

/// Unsubscribes all browsers of a user and deletes all their data: endpoints, tags, attributes, the user's id in recipients of
/// messages, and the content of their open dead letters, which are discarded. Nothing is sent to them after the response. Only
/// ids of subscriptions remain, because the counts of past messages include them.
///
/// 200: complete. 202: messages are still being searched. `Location` shows the progress.
#[utoipa::path(delete, path = "/v1/apps/{app}/users/{user}", tag = "Subscriptions",
    responses((status = 200, body = Erasure), (status = 202, body = Erasure)))]
pub(crate) async fn erase(
    server: Server<MayChangeSubscribers>, State(state): State<ApiState>, PathId(user): PathId<UserId>,
) -> Result<Response, Problem> {
    let (app, now) = (server.app.id, state.clock.now());
    let entry = server.did(AuditAction::UserErased, label(&state.vault, app, &user.0));
    let mut tx = state.begin().await?;
    let begun = erasures::begin(&mut tx, app, &user.0, &entry.actor.who.name(), now).await?;
    let entry = entry.with(json!({"erasure": begun.id}));
    let n = erasures::subscriptions_of(&mut tx, app, &user.0).await?;
    entry.record(&mut tx, n, now).await?;
    tx.commit().await?;
    while let Some(stop) = erasures::erase_subscription(&state.pool, &state.vault, &begun, state.clock.now()).await? {
        (state.engine.tell)(Work::Stop(stop));
    }
    loop {
        match erasures::redact_messages(&state.pool, &begun, PATIENCE, state.clock.now()).await {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) if store::is_statement_timeout(&error) => return accepted(&state, &begun).await,
            Err(error) => return Err(error.into()),
        }
    }
    let done = erasures::complete(&state.pool, &state.vault, &begun, state.clock.now()).await?;
    Ok(axum::Json(done).into_response())
}

async fn accepted(state: &ApiState, begun: &Erasure) -> Result<Response, Problem> {
    let so_far = erasures::find(&state.pool, begun.app, begun.id).await?.ok_or_else(Problem::internal)?;
    let place = format!("/v1/apps/{}/erasures/{}", begun.app, begun.id);
    let location = HeaderValue::try_from(place).expect("ids and slashes");
    let view = axum::Json(so_far);
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, location)], view).into_response())
}

/// Unsubscribes a browser and deletes all its data, with or without a user: its endpoint, tags, attributes, consent, the
/// content of its open dead letters, and those of its former subscriptions. Only its id remains, because the counts of past
/// messages include it. For all browsers of a user, use `DELETE …/users/{user}`.
#[utoipa::path(post, path = "/v1/apps/{app}/subscriptions/{subscription}/erase", tag = "Subscriptions",
    responses((status = 204)))]
pub(crate) async fn erase_subscription(
    client: RegistrationCaller<MayChangeSubscribers>, State(state): State<ApiState>, PathId(id): PathId<SubscriptionId>,
) -> Result<StatusCode, Problem> {
    client.must_show_something()?;
    let (app, now) = (client.app.id, state.clock.now());
    let actor = client.caller.as_ref().map(|caller| caller.actor());
    let name = actor.map_or_else(|| "browser".to_owned(), |actor| actor.who.name());
    let asked = ErasureRequest { app, actor: &name };
    loop {
        let part =
            erasures::erase_one(&state.pool, &state.vault, &asked, id, client.right(), state.clock.now()).await?;
        let (stop, is_last) = part.ok_or_else(unknown)?;
        (state.engine.tell)(Work::Stop(stop));
        if is_last {
            break;
        }
    }
    // Browsers that do it themselves are not people who act for others.
    if let Some(actor) = actor {
        let mut conn = state.pool.acquire().await?;
        AuditEntry::new(actor, Some(app), AuditAction::SubscriptionErased, id).record(&mut conn, 1, now).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the progress of a user's erasure.
#[utoipa::path(get, path = "/v1/apps/{app}/erasures/{erasure}", tag = "Subscriptions",
    responses((status = 200, body = Erasure)))]
pub(crate) async fn show_erasure(
    server: Server<MayRead>, State(state): State<ApiState>, PathId(id): PathId<ErasureId>,
) -> Result<axum::Json<Erasure>, Problem> {
    let found = erasures::find(&state.pool, server.app.id, id).await?;
    found.map(axum::Json).ok_or_else(|| Problem::not_found("erasure"))
}

/// Returns the pseudonymous label of a user in the audit log. The same user always has the same label.
pub(super) fn label(vault: &Vault, app: AppId, user: &str) -> String {
    let mac = vault.mac(Purpose::LogLabel, &[b"user", app.0.as_bytes(), user.as_bytes()]);
    let digits: String = mac[..8].iter().map(|octet| format!("{octet:02x}")).collect();
    format!("user:{digits}")
}
