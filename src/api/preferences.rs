//! `/preferences/{link}`: page on which a user changes topics and frequency of all browsers, unsubscribes them, or downloads what is
//! stored, without logging in. `POST /v1/apps/{app}/users/{user}/preferences-link` makes the link.

mod form;
mod page;

use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{FromRequest as _, Path, RawQuery, Request, State};
use axum::http::{Extensions, HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use uuid::Uuid;

use super::ApiState;
use super::http::auth::{MayChangeSubscribers, Server};
use super::http::draft::Draft;
use super::http::extract::{PathId, UserId};
use super::http::problem::Problem;
use super::http::routes::routes;
use super::opt_in::PromptSettings;
use super::users::{export, label};
use bellwire_core::base64url;
use bellwire_core::duration;
use bellwire_core::id::AppId;
use bellwire_core::message::is_language_tag;
use bellwire_core::scope::Scope;
use bellwire_store::keys::apps::{self, App};
use bellwire_store::keys::audit::AuditAction;
use bellwire_vault::PREFERENCES_LINK;
use form::{Choice, Saved, is_one_click};

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(make))
}

/// Pages for people, which are not part of the API.
pub(super) fn pages() -> Router<ApiState> {
    Router::new().route("/preferences/{link}", get(show).post(save)).route("/preferences/{link}/data", get(download))
}

const LASTS_DEFAULT: Duration = Duration::from_secs(30 * 86_400);
/// Limits of the time for which a link is valid, in seconds: a minute and 366 days.
const LASTS_S: std::ops::RangeInclusive<u64> = 60..=31_622_400;
/// Maximum characters of a link's last part. The longest user id makes about 1,900.
const LINK_MAX: usize = 4_096;

/// Validity and language of a link.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PreferencesLinkRequest {
    /// Time for which the link is valid, such as `30d`, the default. 60s to 366d.
    expires_in: Option<String>,
    /// Language tag of the page. Null: the language of the browser.
    locale: Option<String>,
    /// Whether the page offers a download of what is stored about the user, as `GET …/export` returns it. Requires the scope `export`.
    #[serde(default)]
    data: bool,
}

/// Link to the preferences of a user.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PreferencesLinkResponse {
    /// Address of the page. It needs no login, so send it only to that user. Without `public_url`, it begins with the path.
    link: String,
    /// Time at which the link stops working.
    expires_at: DateTime<Utc>,
}

/// Sealed content of a link.
#[derive(Debug, Serialize, Deserialize)]
struct LinkContent {
    app: AppId,
    user: String,
    expires_at: DateTime<Utc>,
    locale: Option<String>,
    data: bool,
}

/// Returns a link to a page on which a user changes topics and frequency of all their browsers, or unsubscribes, for example from an
/// e-mail. It needs no login. Nothing is stored; the link contains the user encrypted.
#[utoipa::path(post, path = "/v1/apps/{app}/users/{user}/preferences-link", tag = "Subscriptions",
    request_body = PreferencesLinkRequest, responses((status = 200, body = PreferencesLinkResponse)))]
pub(crate) async fn make(
    server: Server<MayChangeSubscribers>, State(state): State<ApiState>, PathId(UserId(user)): PathId<UserId>,
    Draft(request, mut faults, _): Draft<PreferencesLinkRequest>,
) -> Result<axum::Json<PreferencesLinkResponse>, Problem> {
    let lasts = request.expires_in.as_deref().map_or(Some(LASTS_DEFAULT), duration::parse);
    let lasts = lasts.filter(|lasts| LASTS_S.contains(&lasts.as_secs()));
    faults.require(lasts.is_some(), "/expires_in", "must be a span from 60s to 366d, such as `30d`");
    let is_tag = request.locale.as_deref().is_none_or(is_language_tag);
    faults.require(is_tag, "/locale", "must be a language tag such as `de` or `pt-BR`");
    faults.finish()?;
    if request.data {
        server.caller.require(Scope::Export)?;
        let entry = server.did(AuditAction::UserExported, label(&state.vault, server.app.id, &user));
        let mut conn = state.pool.acquire().await?;
        entry.with(json!({"link": true})).record(&mut conn, 1, state.clock.now()).await?;
    }
    let expires_at = state.clock.now() + lasts.unwrap_or(LASTS_DEFAULT);
    let content = LinkContent { app: server.app.id, user, expires_at, locale: request.locale, data: request.data };
    let content = serde_json::to_vec(&content).map_err(|_| Problem::internal())?;
    let sealed = base64url::encode(state.vault.seal(PREFERENCES_LINK, Uuid::nil(), &content));
    let origin = state.settings.setup.public_url.as_ref().map(|url| url.as_str().trim_end_matches('/'));
    let link = format!("{}/preferences/{sealed}", origin.unwrap_or_default());
    Ok(axum::Json(PreferencesLinkResponse { link, expires_at }))
}

/// Opens a link. The error is the page to show instead.
async fn open(
    state: &ApiState, text: &str, (headers, extensions): (&HeaderMap, &Extensions), is_one_click: bool,
) -> Result<(App, LinkContent), Response> {
    let failed = |content: Option<&LinkContent>, why: Problem| {
        page::failed(why, content.and_then(|content| content.locale.as_deref()), headers)
    };
    let content = read(state, text);
    // Mail providers unsubscribe many users from few addresses.
    let is_limited = match &content {
        Some(content) if is_one_click => state.limits.app(content.app),
        _ => state.limits.client(state.limits.client_of(headers, extensions)).map(drop),
    };
    is_limited.map_err(|why| failed(content.as_ref(), why))?;
    let content = content.ok_or_else(|| page::invalid(headers))?;
    let app = apps::find(&state.pool, Some(content.app), None).await;
    let app = app.map_err(|error| failed(Some(&content), error.into()))?.ok_or_else(|| page::invalid(headers))?;
    Ok((app, content))
}

fn read(state: &ApiState, text: &str) -> Option<LinkContent> {
    let sealed = base64url::decode(Some(text).filter(|text| text.len() <= LINK_MAX)?)?;
    let content = state.vault.open(PREFERENCES_LINK, Uuid::nil(), &sealed).ok()?;
    let content: LinkContent = serde_json::from_slice(&content).ok()?;
    (content.expires_at > state.clock.now()).then_some(content)
}

async fn show(
    State(state): State<ApiState>, Path(link): Path<String>, RawQuery(query): RawQuery, request: Request,
) -> Result<Response, Response> {
    let (app, content) = open(&state, &link, (request.headers(), request.extensions()), false).await?;
    let (locale, headers) = (content.locale.as_deref(), request.headers().clone());
    let failed = |why: Problem| page::failed(why, locale, &headers);
    let choice = Choice::read(&state, &content).await.map_err(failed)?;
    let own = apps::read_prompt(&state.pool, app.id).await.map_err(|error| failed(error.into()))?;
    let texts = page::PageTexts::select(locale, &headers).with(PromptSettings::restore(own).texts);
    let data = content.data.then_some(link.as_str());
    Ok(page::preferences(&app.name, &texts, &choice, data, query.as_deref() == Some("saved")))
}

/// Stores the form, and shows the page again.
async fn save(State(state): State<ApiState>, Path(link): Path<String>, request: Request) -> Result<Response, Response> {
    let (headers, extensions) = (request.headers().clone(), request.extensions().clone());
    let body = Bytes::from_request(request, &state).await.map_err(IntoResponse::into_response)?;
    let (_, content) = open(&state, &link, (&headers, &extensions), is_one_click(&body)).await?;
    let failed = |why: Problem| page::failed(why, content.locale.as_deref(), &headers);
    match Choice::change(&state, &content, &body).await.map_err(failed)? {
        // Relative, so that a proxy may serve the page below another path.
        Saved::Choices => Ok(Redirect::to(&format!("{link}?saved")).into_response()),
        // Without a redirect (RFC 8058 section 3.1).
        Saved::OneClick => Ok(StatusCode::OK.into_response()),
    }
}

async fn download(
    State(state): State<ApiState>, Path(link): Path<String>, mut request: Request,
) -> Result<Response, Response> {
    let (app, content) = open(&state, &link, (request.headers(), request.extensions()), false).await?;
    if !content.data {
        return Err(page::invalid(request.headers()));
    }
    let headers = request.headers().clone();
    let failed = |why: Problem| page::failed(why, content.locale.as_deref(), &headers);
    export::of_user(&state, &app, content.user.clone(), &mut request).await.map_err(failed)
}
