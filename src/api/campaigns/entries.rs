//! `GET /v1/apps/{app}/trigger-entries`: the messages that a person waits for.

use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::api::ApiState;
use crate::api::http::auth::{MayRead, Server};
use crate::api::http::extract::{Query, USER_ID_RULE, is_user_id};
use crate::api::http::paging::Page;
use crate::api::http::problem::Problem;
use bellwire_core::id::SubscriptionId;
use bellwire_store::triggers::due::{self, TriggerEntry};
use bellwire_store::triggers::user_events::{self, KnownPerson};

/// Maximum entries in a response: more triggers than an app has.
pub(crate) const ENTRIES_MAX: i64 = 1_000;

/// A person whose entries are listed: exactly one of `user_id` and `subscription`.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EntryQuery {
    /// `user_id` of a user.
    #[param(min_length = 1, max_length = 255)]
    user_id: Option<String>,
    /// Id of a browser's subscription. If it has a user, those of the user are included.
    subscription: Option<SubscriptionId>,
}

/// Lists the messages that a person waits for because of events, the next one first.
#[utoipa::path(get, path = "/v1/apps/{app}/trigger-entries", tag = "Campaigns",
    responses((status = 200, body = Page<TriggerEntry>)))]
pub(crate) async fn list(
    server: Server<MayRead>, State(state): State<ApiState>,
    Query(EntryQuery { user_id, subscription }): Query<EntryQuery>,
) -> Result<axum::Json<Page<TriggerEntry>>, Problem> {
    let app = server.app.id;
    let people = match (user_id, subscription) {
        (Some(user), None) if is_user_id(&user) => vec![KnownPerson::of_user(app, &user)],
        (Some(_), None) => return Err(Problem::invalid_parameter("user_id", USER_ID_RULE)),
        (None, Some(id)) => {
            let browser = user_events::browsers(&state.pool, app, &[id]).await?.remove(&id);
            browser.ok_or_else(|| Problem::not_found("subscription"))?.people(app)
        }
        _ => return Err(Problem::invalid_parameter("user_id", "must be set, or else `subscription`")),
    };
    let rows = due::of_people(&state.pool, app, &people, ENTRIES_MAX).await?;
    Ok(axum::Json(Page::complete(rows)))
}
