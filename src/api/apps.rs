//! `/v1/apps`: operators create and list apps. An app's own keys read and change it.

pub(crate) mod config;
pub(crate) mod guard;
pub(crate) mod hygiene;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::{IntoParams, ToSchema};

use super::http::app_ref::AppRef;
use super::http::auth::{MayChangeSettings, MayRead, Operator, Server, Watcher};
use super::http::draft::Draft;
use super::http::extract::{PathId, Query, is_plain_text, not_null, null_is_default, nullable};
use super::http::idempotency::{Instead, Making};
use super::http::paging::{Page, Paging};
use super::http::problem::{Faults, Problem, ProblemCode};
use super::http::routes::routes;
use super::vapid_keys;
use super::{ApiState, Work};
use crate::api::subscriptions::input::check_topics;
use bellwire_core::id::AppId;
use bellwire_core::origin::{is_origin, is_this_machine};
use bellwire_core::permission::{BrowserRight, BrowsersMay, Speaker};
use bellwire_core::scope::Scope;
use bellwire_rules::policy::RETRIES_MAX;
use bellwire_store::keys::apps::{self, App, Created, WEIGHT_MAX};
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::keys::vapid_keys::{Role, VapidKey};
use bellwire_store::{audience::topics, operations::removal};
use bellwire_webpush::keys::{SigningKey, check_subject};
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(show, change, delete))
}

pub(super) const MAX_RETRIES_DEFAULT: i16 = 5;
pub(super) const WEIGHT_DEFAULT: i16 = 1;
/// Rounds of a hundred messages that the deletion request cancels itself. Maintenance cancels the remaining messages.
const CANCEL_ROUNDS: usize = 20;
pub(super) const ORIGINS_MAX: usize = 50;

/// A new app and its first VAPID key.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CreatedApp {
    #[serde(flatten)]
    app: App,
    /// First VAPID key of the app.
    vapid_key: VapidKey,
}

/// App to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewApp {
    /// Short name: 1 to 63 lower-case letters, digits and hyphens, without a hyphen at the beginning.
    slug: String,
    /// Display name, 1 to 200 characters.
    name: String,
    /// Origins whose pages may call the API from browsers, such as `https://example.com`.
    #[serde(default)]
    origins: Vec<String>,
    /// Whether subscriptions with endpoints outside the known push services are accepted.
    #[serde(default)]
    allow_other_gateways: bool,
    /// Permissions of browsers in addition to joining and leaving existing open topics. By default none.
    #[serde(default)]
    #[schema(value_type = Vec<BrowserRight>)]
    browsers_may: BrowsersMay,
    /// Names of open topics to create with the app, at most 50.
    #[serde(default)]
    topics: Vec<String>,
    /// Contact for push services, `mailto:` or `https:`: the `sub` claim of its first VAPID key.
    subject: String,
    /// Private key of the first VAPID key, if another sender used it before, in any form that key import accepts. By default a
    /// new pair is generated.
    private_key: Option<String>,
}

/// Changes of an app. Absent members stay.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AppChange {
    /// Display name, 1 to 200 characters.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    name: Option<String>,
    /// All origins whose pages may call the API from browsers. Null: none.
    #[serde(default, deserialize_with = "null_is_default")]
    origins: Option<Vec<String>>,
    /// Origins to add, at most 50. Not together with `origins`.
    #[serde(default)]
    add_origins: Vec<String>,
    /// Origins to remove from the app, at most 50. Not together with `origins`.
    #[serde(default)]
    remove_origins: Vec<String>,
    /// Whether subscriptions with endpoints outside the known push services are accepted. Only operators can enable this: the
    /// server then connects to hosts that callers choose.
    #[serde(default, deserialize_with = "null_is_default")]
    allow_other_gateways: Option<bool>,
    /// Permissions of browsers in addition to joining and leaving existing open topics. Null: none.
    #[serde(default, deserialize_with = "null_is_default")]
    #[schema(value_type = Option<Vec<BrowserRight>>)]
    browsers_may: Option<BrowsersMay>,
    /// Maximum `retries` of a delivery policy in QStash's form, and the default: 0 to 1,000. Policies with more are reduced to it.
    /// Null: the default for new apps.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<i64>)]
    max_retries: Option<Option<i64>>,
    /// Share of sending capacity relative to an app of weight 1, while deliveries of several apps wait: 1 to 100. Null: 1.
    /// Requires an operator's key. Workers apply it within a minute.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<i64>)]
    weight: Option<Option<i64>>,
}

impl AppChange {
    /// Applies the change. Returns a 422 problem with all faults otherwise.
    fn apply(self, app: &mut App, mut faults: Faults) -> Result<(), Problem> {
        if let Some(name) = self.name {
            check_name(&name, &mut faults);
            app.name = name;
        }
        if self.origins.is_some() && !(self.add_origins.is_empty() && self.remove_origins.is_empty()) {
            faults.refuse("/origins", "cannot be combined with `add_origins` and `remove_origins`");
        }
        if let Some(origins) = self.origins {
            check_origins("/origins", &origins, &mut faults);
            app.origins = origins;
        }
        remove_origins(app, &self.remove_origins, &mut faults);
        add_origins(app, self.add_origins, &mut faults);
        if let Some(n) = self.max_retries {
            let n = n.unwrap_or(MAX_RETRIES_DEFAULT.into());
            match i16::try_from(n).ok().filter(|_| (0..=i64::from(RETRIES_MAX)).contains(&n)) {
                Some(n) => app.max_retries = n,
                None => faults.refuse("/max_retries", format!("must be 0 to {RETRIES_MAX}")),
            }
        }
        if let Some(weight) = self.weight {
            let weight = weight.unwrap_or(WEIGHT_DEFAULT.into());
            match i16::try_from(weight).ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight)) {
                Some(weight) => app.weight = weight,
                None => faults.refuse("/weight", format!("must be 1 to {WEIGHT_MAX}")),
            }
        }
        if let Some(allow) = self.allow_other_gateways {
            app.allow_other_gateways = allow;
        }
        if let Some(rights) = self.browsers_may {
            app.browsers_may = rights;
        }
        faults.finish()
    }
}

/// Removes origins. Reports an origin that the app does not have as a fault, because it is probably mistyped.
fn remove_origins(app: &mut App, removed: &[String], faults: &mut Faults) {
    if removed.len() > ORIGINS_MAX {
        return faults.refuse("/remove_origins", format!("may hold at most {ORIGINS_MAX} origins"));
    }
    for (i, _) in removed.iter().enumerate().filter(|(_, origin)| !app.origins.contains(origin)) {
        let detail = format!("is not an origin of this app; its origins are: {}", app.origins.join(", "));
        faults.refuse(format!("/remove_origins/{i}"), detail);
    }
    app.origins.retain(|origin| !removed.contains(origin));
}

fn add_origins(app: &mut App, added: Vec<String>, faults: &mut Faults) {
    check_origins("/add_origins", &added, faults);
    if !(1..=ORIGINS_MAX).contains(&added.len()) {
        return;
    }
    for origin in added {
        if !app.origins.contains(&origin) {
            app.origins.push(origin);
        }
    }
    let detail = format!("would make more than {ORIGINS_MAX} origins");
    faults.require(app.origins.len() <= ORIGINS_MAX, "/add_origins", &detail);
}

/// Returns a 403 problem if the change requires an operator.
fn refuse_what_operators_change(before: &App, after: &App) -> Result<(), Problem> {
    if after.weight != before.weight {
        return Err(Problem::forbidden_member("/weight", "can be changed only by operators"));
    }
    if after.allow_other_gateways && !before.allow_other_gateways {
        return Err(Problem::forbidden_member("/allow_other_gateways", "can be turned on only by operators"));
    }
    Ok(())
}

fn is_slug(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && !text.starts_with('-')
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Fault of an origin that [`is_origin`] refuses, with the remedy.
fn origin_fault(origin: &str) -> &'static str {
    let is_insecure = url::Url::parse(origin).is_ok_and(|url| url.scheme() == "http" && !is_this_machine(&url));
    match is_insecure {
        true => "is http:, where browsers have no web push: serve it over HTTPS, and name its https: origin",
        false => "must be an origin such as `https://example.com`, without a path (http: only on localhost)",
    }
}

fn check_name(name: &str, faults: &mut Faults) {
    faults.require(is_plain_text(name, 200), "/name", "must be 1 to 200 characters without control characters");
}

fn check_origins(pointer: &str, origins: &[String], faults: &mut Faults) {
    if origins.len() > ORIGINS_MAX {
        return faults.refuse(pointer, format!("may hold at most {ORIGINS_MAX} origins"));
    }
    for (i, origin) in origins.iter().enumerate() {
        if !is_origin(origin) {
            faults.refuse(format!("{pointer}/{i}"), origin_fault(origin));
        }
    }
}

/// Creates an app with its first VAPID key and, if requested, its first topics.
#[utoipa::path(post, path = "/v1/apps", tag = "Apps", request_body = NewApp,
    responses((status = 201, body = CreatedApp)))]
pub(crate) async fn create(
    operator: Operator, State(state): State<ApiState>, Making(body, mut faults, pending): Making<NewApp>,
) -> Result<Response, Instead> {
    let slug_rule = "must be 1 to 63 lower-case letters, digits and hyphens, not beginning with a hyphen";
    faults.require(is_slug(&body.slug), "/slug", slug_rule);
    check_name(&body.name, &mut faults);
    check_origins("/origins", &body.origins, &mut faults);
    if let Err(error) = check_subject(&body.subject) {
        faults.refuse("/subject", error.to_string());
    }
    let pair =
        body.private_key.as_deref().map_or_else(|| Ok(SigningKey::generate()), |key| SigningKey::import(key, None));
    let pair = pair.map_err(|error| faults.refuse("/private_key", error.to_string())).ok();
    let topics = check_topics(body.topics, &mut faults);
    faults.finish()?;
    let pair = pair.expect("what is no key was refused");
    let app = App {
        id: AppId(state.clock.uuid()),
        slug: body.slug,
        name: body.name,
        origins: body.origins,
        allow_other_gateways: body.allow_other_gateways,
        browsers_may: body.browsers_may,
        max_retries: MAX_RETRIES_DEFAULT,
        weight: WEIGHT_DEFAULT,
        has_link_tags: false,
        created_at: state.clock.now(),
        deleting_at: None,
    };
    let mut once = pending.begin(&state).await?;
    if apps::create(once.conn(), &app).await? == Created::SlugTaken {
        drop(once); // no request waits for a second connection while it has one
        let detail = match apps::find_any(&state.pool, None, Some(&app.slug)).await? {
            Some(App { deleting_at: Some(_), .. }) => {
                "An app with this slug is still being deleted. Try again later, or use another slug."
            }
            _ => "Another app has this slug.",
        };
        return Err(Problem::new(ProblemCode::SlugTaken, detail).into());
    }
    let key = vapid_keys::add(once.conn(), &state, app.id, &pair, &body.subject, Role::Active).await?;
    topics::ensure(once.conn(), app.id, &topics, &Speaker::Server, app.created_at).await?;
    let entry = operator.caller.did(Some(app.id), AuditAction::AppCreated, app.id);
    let detail = json!({
        "slug": app.slug, "origins": app.origins, "allow_other_gateways": app.allow_other_gateways,
        "browsers_may": app.browsers_may,
    });
    entry.with(detail).record(once.conn(), 1, app.created_at).await?;
    once.finish(&state, StatusCode::CREATED, &CreatedApp { app, vapid_key: key }).await
}

/// Lists all apps, the newest first. Apps that are being deleted are included.
#[utoipa::path(get, path = "/v1/apps", tag = "Apps", responses((status = 200, body = Page<App>)))]
pub(crate) async fn list(
    _: Watcher, State(state): State<ApiState>, uri: Uri, Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let cut = paging.cut()?;
    let rows = apps::list(&state.pool, cut.ask()).await?;
    Ok(cut.page(rows, |app| app.id, |app| app).answer(&uri))
}

/// Returns an app.
#[utoipa::path(get, path = "/v1/apps/{app}", tag = "Apps", responses((status = 200, body = App)))]
pub(crate) async fn show(server: Server<MayRead>) -> axum::Json<App> {
    axum::Json(server.app)
}

/// Changes the given members of an app. Absent members keep their value, even if another request changes them at the same time.
#[utoipa::path(patch, path = "/v1/apps/{app}", tag = "Apps", request_body = AppChange, responses((status = 200, body = App)))]
pub(crate) async fn change(
    server: Server<MayChangeSettings>, State(state): State<ApiState>, Draft(body, faults, _): Draft<AppChange>,
) -> Result<axum::Json<App>, Problem> {
    let _changing = state.known_keys.changing();
    let mut tx = state.begin().await?;
    // Read again: it may have changed since the key was read with it.
    let before = apps::lock(&mut tx, server.app.id).await?.ok_or_else(|| Problem::not_found("app"))?;
    let mut app = before.clone();
    body.apply(&mut app, faults)?;
    if !server.caller.may(Scope::Operator) {
        refuse_what_operators_change(&before, &app)?;
    }
    apps::update(&mut *tx, &app).await?;
    if let Some(detail) = changed(&before, &app) {
        server.did(AuditAction::AppChanged, app.id).with(detail).record(&mut tx, 1, state.clock.now()).await?;
    }
    tx.commit().await?;
    Ok(axum::Json(app))
}

/// Confirmation of a deletion.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Confirmation {
    /// Slug of the app, repeated to confirm the deletion.
    confirm: String,
}

/// Deletes an app permanently, with its subscriptions, messages, dead letters, settings and keys. After the response nothing is
/// sent, its API keys are revoked, and its routes respond with 404. Deliveries in progress end as cancelled. Rows are deleted
/// within minutes or hours. Until then the app stays in the list, and its slug is taken. Attempts and receipts, which contain
/// only ids, are deleted when their retention ends.
#[utoipa::path(delete, path = "/v1/apps/{app}", tag = "Apps", responses((status = 202, body = App)))]
pub(crate) async fn delete(
    operator: Operator, State(state): State<ApiState>, PathId(name): PathId<AppRef>,
    Query(Confirmation { confirm }): Query<Confirmation>,
) -> Result<(StatusCode, axum::Json<App>), Problem> {
    let (id, slug) = name.parts();
    let app = apps::find_any(&state.pool, id, slug).await?.ok_or_else(|| Problem::not_found("app"))?;
    if confirm != app.slug {
        return Err(Problem::invalid_parameter("confirm", format!("must be the app's slug, `{}`", app.slug)));
    }
    let now = state.clock.now();
    let changing = state.known_keys.changing();
    let mut tx = state.begin().await?;
    let flow = removal::begin(&mut tx, app.id, state.clock.uuid(), now).await?;
    let entry = operator.caller.did(Some(app.id), AuditAction::AppDeleted, app.id);
    entry.with(json!({"slug": app.slug})).record(&mut tx, 1, now).await?;
    tx.commit().await?;
    drop(changing);
    (state.engine.tell)(Work::Flow(flow));
    state.known_apps.forget(app.id);
    // What workers are about to send is told apart; nothing else is claimed. The rest is maintenance's.
    for _ in 0..CANCEL_ROUNDS {
        let stops = removal::cancel_messages(&state.pool, app.id, now).await?;
        if stops.is_empty() {
            break;
        }
        stops.into_iter().for_each(|stop| (state.engine.tell)(Work::Stop(stop)));
    }
    let deleting_at = app.deleting_at.or(Some(now));
    Ok((StatusCode::ACCEPTED, axum::Json(App { deleting_at, ..app })))
}

/// Returns the changed members for the audit log. `None`: nothing changed.
fn changed(before: &App, after: &App) -> Option<Value> {
    let members = |app: &App| {
        [
            ("name", json!(app.name)),
            ("origins", json!(app.origins)),
            ("allow_other_gateways", json!(app.allow_other_gateways)),
            ("browsers_may", json!(app.browsers_may)),
            ("max_retries", json!(app.max_retries)),
            ("weight", json!(app.weight)),
        ]
    };
    let differing = members(before).into_iter().zip(members(after)).filter(|(was, is)| was != is);
    let detail: Map<_, _> = differing.map(|(_, (name, value))| (name.to_owned(), value)).collect();
    (!detail.is_empty()).then(|| detail.into())
}

#[cfg(test)]
#[path = "../../tests/unit/api/apps.rs"]
mod tests;
