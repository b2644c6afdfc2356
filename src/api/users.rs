//! `/v1/apps/{app}/users/{user}`: what concerns all browsers of one person.

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::auth::{MayChangeSubscribers, Server};
use super::extract::{At, UserId};
use super::problem::Problem;
use super::{ApiState, Work};
use crate::store::audit::Action;
use crate::store::subscriptions;
use crate::vault::{Purpose, Vault};

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
    let (app, now) = (server.app.id, state.clock.now());
    let entry = server.did(Action::UserErased, label(&state.vault, app, &user.0));
    let stops = subscriptions::erase_user(&state.pool, &state.vault, app, &user.0, &entry, now).await?;
    for stop in &stops {
        (state.engine.tell)(Work::Stop(*stop));
    }
    Ok(axum::Json(Erased { subscriptions: stops.len() }))
}

/// What the audit log calls a user: enough to see that two entries are about the same one, and nothing about who that is.
fn label(vault: &Vault, app: Uuid, user: &str) -> String {
    let mac = vault.mac(Purpose::LogLabel, &[b"user", app.as_bytes(), user.as_bytes()]);
    let digits: String = mac[..8].iter().map(|octet| format!("{octet:02x}")).collect();
    format!("user:{digits}")
}
