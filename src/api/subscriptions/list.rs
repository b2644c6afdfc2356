//! `GET /v1/apps/{app}/subscriptions`: lists of subscriptions, and of a segment's members.

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::api::ApiState;
use crate::api::http::auth::{MayRead, Server};
use crate::api::http::extract::Query;
use crate::api::http::paging::{Page, PageRequest, Paging};
use crate::api::http::problem::Problem;
use crate::api::segments::SegmentChoice;
use crate::api::subscriptions::response::{SubscriptionResponse, shown};
use bellwire_core::lane::Gateway;
use bellwire_core::subscription::SubscriptionState;
use bellwire_store::audience::reach;
use bellwire_store::audience::subscriptions::{self, SubscriptionFilter, SubscriptionPage};
use bellwire_store::keys::apps::App;
use bellwire_store::keyset::Towards;

/// Filter of subscriptions.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SubscriptionQuery {
    /// Rows per page, 1 to 250; 50 by default.
    limit: Option<u16>,
    /// `iterator` or `prev_iterator` of another page.
    iterator: Option<String>,
    /// Subscriptions of this user only.
    user_id: Option<String>,
    /// Subscriptions to this topic only.
    topic: Option<String>,
    /// Subscriptions with this tag only.
    tag: Option<String>,
    /// Subscriptions in this state only.
    #[param(inline)]
    state: Option<SubscriptionState>,
    /// Subscriptions at this push service only.
    #[param(inline)]
    gateway: Option<Gateway>,
    /// Active members of this segment (a name or an expression). Cannot be combined with other filters. A page may be short:
    /// `done` shows whether there may be more.
    segment: Option<String>,
}

/// Lists subscriptions, the newest first.
///
/// For one page of a list filtered by topic, tag, state or push service, at most 20,000 subscriptions are read: the page may
/// have fewer rows than requested, or none, and still have an `iterator`. If too many filtered lists run, the response is 503
/// (`searches_busy`).
#[utoipa::path(get, path = "/v1/apps/{app}/subscriptions", tag = "Subscriptions",
    responses((status = 200, body = Page<SubscriptionResponse>)))]
pub(crate) async fn list(
    server: Server<MayRead>, State(state): State<ApiState>, uri: Uri, Query(query): Query<SubscriptionQuery>,
) -> Result<Response, Problem> {
    let cut = Paging { limit: query.limit, iterator: query.iterator }.cut()?;
    let texts = [("user_id", &query.user_id), ("topic", &query.topic), ("tag", &query.tag)];
    if let Some((name, _)) = texts.into_iter().find(|(_, text)| text.as_ref().is_some_and(|text| text.contains('\0'))) {
        return Err(Problem::invalid_parameter(name, "must not hold NUL"));
    }
    if let Some(segment) = &query.segment {
        let others = [query.user_id.is_some(), query.topic.is_some(), query.tag.is_some(), query.state.is_some()];
        if others.contains(&true) || query.gateway.is_some() {
            return Err(Problem::invalid_parameter("segment", "cannot be combined with the other filters"));
        }
        return Ok(members(&state, &server.app, segment, cut).await?.answer(&uri));
    }
    let filter = SubscriptionFilter {
        user_id: query.user_id,
        topic: query.topic,
        tag: query.tag,
        state: query.state,
        gateway: query.gateway,
    };
    let _place = match filter.takes_all() {
        true => None,
        false => Some(state.place_to_search(server.app.id).await?),
    };
    let SubscriptionPage { rows, looked_to } =
        subscriptions::list(state.reads.pool(), server.app.id, &filter, cut.ask()).await?;
    let rows = shown(&state, &server.app, rows).await?;
    Ok(cut.page_of_search(rows, looked_to.map(Into::into), SubscriptionResponse::id, |view| view).answer(&uri))
}

/// Returns the newest members of a segment.
async fn members(
    state: &ApiState, app: &App, segment: &str, cut: PageRequest,
) -> Result<Page<SubscriptionResponse>, Problem> {
    let chosen = SegmentChoice::read(state, app, segment).await?;
    let filter = chosen.map_err(|what| Problem::invalid_parameter("segment", what))?.filter();
    let _place = state.place_to_search(app.id).await?;
    let (ids, looked_to) = reach::members(state.reads.pool(), app.id, &filter, cut.ask(), state.clock.now()).await?;
    let mut rows = subscriptions::of_ids(state.reads.pool(), app.id, &ids).await?;
    // In the order in which they were found.
    if cut.towards == Towards::Newer {
        rows.reverse();
    }
    Ok(cut.page_of_search(shown(state, app, rows).await?, looked_to, SubscriptionResponse::id, |view| view))
}
