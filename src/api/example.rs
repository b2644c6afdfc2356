//! Server side of the example page at `/example/`: creates an app for it, and sends messages to the visitor's browser.

use std::net::IpAddr;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{Extensions, HeaderMap, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use serde::{Deserialize, Serialize};
use serde_json::json;
use url::Url;
use utoipa::ToSchema;

use super::ApiState;
use super::apps::ORIGINS_MAX;
use super::http::auth::{bearer, read_token};
use super::http::extract::{BodyLimit, Json};
use super::http::limits::peer;
use super::http::problem::{Faults, Problem, ProblemCode};
use super::vapid_keys;
use crate::api::messages::accept::accept;
use crate::api::messages::compose::MessageRequest;
use crate::api::messages::retry_headers::RetryHeaders;
use crate::api::state::config::Example;
use crate::api::subscriptions::response::{ended, unknown};
use bellwire_core::id::{AppId, MessageId, SubscriptionId};
use bellwire_core::origin::{PageAudience, is_this_machine};
use bellwire_core::permission::{BrowsersMay, Speaker};
use bellwire_core::subscription::SubscriptionState;
use bellwire_store::audience::subscriptions::{self, Right};
use bellwire_store::audience::topics;
use bellwire_store::keys::apps::{self, App, Created};
use bellwire_store::keys::vapid_keys::Role;
use bellwire_webpush::keys::{SigningKey, check_subject};

const SLUG: &str = "example";
/// Topics of the example app, which visitors can choose.
const TOPICS: [&str; 3] = ["news", "offers", "releases"];
/// Contact in the VAPID key, unless the server has a public address.
const NOBODY: &str = "mailto:push@example.com";
/// Time to live of example messages in seconds. Short, because the visitor is waiting.
const TTL_S: u32 = 300;

impl Example {
    /// Returns the page's own origin. `None`: browsers do not allow web push on it, or it cannot be determined. The `Host`
    /// header is trusted only if the request comes from this machine and names this machine.
    fn origin(&self, visitor: ExampleVisitor, headers: &HeaderMap) -> Option<String> {
        let named = || {
            let host = headers.get(header::HOST)?.to_str().ok()?;
            Url::parse(&format!("http://{host}")).ok().filter(|url| visitor.sits_here && is_this_machine(url))
        };
        let url = match &self.public_url {
            Some(url) => Some(url.clone()).filter(|url| url.scheme() == "https" || is_this_machine(url)),
            None => named(),
        };
        url.map(|url| url.origin().ascii_serialization())
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ExampleVisitor {
    address: IpAddr,
    sits_here: bool,
}

/// Headers that proxies add to requests.
const FORWARDED: [&str; 6] =
    ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"];

impl ExampleVisitor {
    fn of(state: &ApiState, version: Version, headers: &HeaderMap, extensions: &Extensions) -> Self {
        // A proxy on this machine, even an unconfigured one, must not count as a local client. Some add nothing, and show only by a version
        // of HTTP that no browser has spoken for decades; from one that does not even that, nothing tells its clients apart.
        let is_proxy = state.settings.trusted_proxies > 0
            || version < Version::HTTP_11
            || FORWARDED.iter().any(|name| headers.contains_key(*name));
        let sits_here = !is_proxy && peer(extensions).is_some_and(|peer| peer.to_canonical().is_loopback());
        Self { address: state.limits.client_of(headers, extensions), sits_here }
    }
}

/// Responds with 404 to callers that may not use the example page.
pub(crate) async fn door(State(state): State<ApiState>, mut request: Request, next: Next) -> Response {
    let visitor = ExampleVisitor::of(&state, request.version(), request.headers(), request.extensions());
    let audience = state.settings.example.as_ref().map(|example| example.audience);
    if !visitor.sits_here && audience != Some(PageAudience::Everybody) {
        return Problem::not_found("route").into_response();
    }
    request.extensions_mut().insert(visitor);
    request.extensions_mut().insert(BodyLimit(state.settings.public_body_max_bytes));
    next.run(request).await
}

pub(crate) async fn to_page() -> Redirect {
    Redirect::permanent("/example/")
}

/// Returns the example app, created if missing, with the page's origin added. `None`: the origin is unknown, an operator's app
/// has that slug, or the app has the maximum number of origins.
pub(crate) async fn app(
    state: &ApiState, visitor: ExampleVisitor, headers: &HeaderMap,
) -> Result<Option<(App, String)>, Problem> {
    let Some(origin) = state.settings.example.as_ref().and_then(|example| example.origin(visitor, headers)) else {
        return Ok(None);
    };
    let mut found = apps::find_example(&state.pool).await?;
    if found.as_ref().is_some_and(|app| app.origins.contains(&origin)) {
        return Ok(found.map(|app| (app, origin)));
    }
    state.limits.example_change(visitor.address)?;
    if found.is_none() && make(state, &origin).await? {
        found = apps::find_example(&state.pool).await?;
    }
    let Some(App { id, .. }) = found else { return Ok(None) };
    let _changing = state.known_keys.changing();
    let mut tx = state.begin().await?;
    let Some(mut app) = apps::lock(&mut tx, id).await? else { return Ok(None) };
    if !app.origins.contains(&origin) {
        if app.origins.len() >= ORIGINS_MAX {
            return Ok(None);
        }
        app.origins.push(origin.clone());
        apps::update(&mut *tx, &app).await?;
    }
    tx.commit().await?;
    Ok(Some((app, origin)))
}

/// Creates the app. Returns `false` if its slug is taken, by a concurrent request or by an operator's app.
async fn make(state: &ApiState, origin: &str) -> Result<bool, Problem> {
    let app = App {
        id: AppId(state.clock.uuid()),
        slug: SLUG.to_owned(),
        name: "Example page".to_owned(),
        origins: vec![origin.to_owned()],
        allow_other_gateways: false,
        browsers_may: BrowsersMay::default(),
        max_retries: super::apps::MAX_RETRIES_DEFAULT,
        weight: super::apps::WEIGHT_DEFAULT,
        has_link_tags: false,
        created_at: state.clock.now(),
        deleting_at: None,
    };
    let subject = if check_subject(origin).is_ok() { origin } else { NOBODY };
    let mut tx = state.begin().await?;
    if apps::create(&mut tx, &app).await? == Created::SlugTaken {
        return Ok(apps::find_example(&state.pool).await?.is_some());
    }
    apps::mark_example(&mut tx, app.id).await?;
    vapid_keys::add(&mut tx, state, app.id, &SigningKey::generate(), subject, Role::Active).await?;
    topics::ensure(&mut tx, app.id, &TOPICS.map(str::to_owned), &Speaker::Server, app.created_at).await?;
    tx.commit().await?;
    tracing::info!(origin, "made the app of the example page");
    Ok(true)
}

fn without_app() -> Problem {
    let detail = "The example has no app here: open it on this machine, or set BELLWIRE_PUBLIC_URL to an https: address. \
                  An app of yours with the short name `example` is left alone, and so is one with many origins.";
    Problem::new(ProblemCode::ExampleUnavailable, detail)
}

/// Configuration of the example page.
#[derive(Debug, Serialize)]
pub(crate) struct ExampleConfig {
    app: &'static str,
    app_id: AppId,
    server: String,
}

/// Returns the configuration of the example page.
pub(crate) async fn config(
    State(state): State<ApiState>, Extension(visitor): Extension<ExampleVisitor>, headers: HeaderMap,
) -> Result<axum::Json<ExampleConfig>, Problem> {
    let (app, server) = app(&state, visitor, &headers).await?.ok_or_else(without_app)?;
    Ok(axum::Json(ExampleConfig { app: SLUG, app_id: app.id, server }))
}

/// Request to send an example message.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wish {
    /// Subscription of the visitor's browser.
    subscription: SubscriptionId,
}

#[derive(Debug, Serialize)]
pub(crate) struct ExampleSent {
    id: MessageId,
}

/// Sends a message to the subscription of the example app whose token is in the request. Only the page itself can call it, a
/// few times a minute.
pub(crate) async fn send(
    State(state): State<ApiState>, Extension(visitor): Extension<ExampleVisitor>, headers: HeaderMap,
    Json(wish, _): Json<Wish>,
) -> Result<(StatusCode, axum::Json<ExampleSent>), Problem> {
    state.limits.tried(visitor.address)?;
    let (app, origin) = app(&state, visitor, &headers).await?.ok_or_else(without_app)?;
    if headers.get(header::ORIGIN).is_none_or(|from| from.as_bytes() != origin.as_bytes()) {
        return Err(Problem::forbidden("Only the example page itself may ask for this."));
    }
    let token = bearer(&headers).and_then(read_token);
    let token =
        token.ok_or_else(|| Problem::unauthorized("This requires the subscription's token (`Bearer bt_…`)."))?;
    let found = subscriptions::find(&state.pool, app.id, wish.subscription).await?;
    let (row, _) =
        found.filter(|(row, _)| Right::Browser(Some(&token)).covers(&state.vault, row)).ok_or_else(unknown)?;
    if row.state != SubscriptionState::Active {
        return Err(ended());
    }
    let body: MessageRequest = serde_json::from_value(json!({
        "to": {"subscriptions": [wish.subscription]},
        "tier": "transactional",
        "ttl": TTL_S,
        "content": {
            "title": "Hello from Bellwire",
            "body": "It works. You asked for this on the example page.",
            "url": format!("{origin}/example/"),
            "icon": format!("{origin}/example/icon.svg"),
        },
    }))
    .map_err(|_| Problem::internal())?;
    let composed = body.compose(&state, &app, &RetryHeaders::default(), None, None, Faults::default())?;
    let id = composed.asked.id;
    accept(&state, &app, composed).await?;
    Ok((StatusCode::ACCEPTED, axum::Json(ExampleSent { id })))
}

#[cfg(test)]
#[path = "../../tests/unit/api/example.rs"]
mod tests;
