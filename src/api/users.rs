//! `/v1/apps/{app}/users/{user}`: what concerns all browsers of one person.

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::auth::{MayChangeSubscribers, Server};
use super::extract::{At, UserId};
use super::problem::Problem;
use super::{ApiState, Work};
use crate::store::subscriptions;

/// What was erased.
#[derive(Debug, Serialize, ToSchema)]
pub struct Erased {
    /// How many subscriptions.
    subscriptions: usize,
}

/// Unsubscribes every browser of a user and forgets all that is known of them. Bare subscription ids remain, since
/// the accounts of past messages count them.
#[utoipa::path(delete, path = "/v1/apps/{app}/users/{user}", tag = "Subscriptions",
    params(("app" = String, Path, description = "Id or slug"), ("user" = String, Path, description = "`user_id`")),
    security(("api_key" = ["subscribers"])), responses((status = 200, body = Erased)))]
pub async fn erase(
    server: Server<MayChangeSubscribers>,
    State(state): State<ApiState>,
    At(user): At<UserId>,
) -> Result<axum::Json<Erased>, Problem> {
    let stops = subscriptions::erase_user(&state.pool, &state.vault, server.app.id, &user.0, state.clock.now()).await?;
    for stop in &stops {
        (state.engine.tell)(Work::Stop(*stop));
    }
    Ok(axum::Json(Erased { subscriptions: stops.len() }))
}
