//! `…/diagnoses`: report of a browser whose notifications do not arrive, with a test notification. Support staff look the
//! report up by its code.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use crate::api::ApiState;
use crate::api::deliveries::DeliveryStatus;
use crate::api::deliveries::search::state_of;
use crate::api::http::auth::{MayChangeSubscribers, MayRead, RegistrationCaller};
use crate::api::http::extract::{Json, PathId, is_plain_text};
use crate::api::http::problem::{Faults, Problem, ProblemCode};
use crate::api::http::routes::routes;
use crate::api::messages::accept::accept;
use crate::api::messages::compose::MessageRequest;
use crate::api::messages::retry_headers::RetryHeaders;
use crate::api::subscriptions::response::unknown;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::{Ending, ReceiptKind};
use bellwire_core::id::{AppId, MessageId, SubscriptionId, VapidKeyId};
use bellwire_core::subscription::SubscriptionState;
use bellwire_store::audience::diagnoses::{self, Begun, DiagnosisCode, DiagnosisRow, KEPT_FOR};
use bellwire_store::audience::subscriptions;
use bellwire_store::keys::vapid_keys;
use bellwire_store::keyset::Towards;
use bellwire_store::outcomes::receipts;
use bellwire_store::outcomes::search::{self, DeliveryCursor, FoundRow, SearchQuery, Whose};

pub(in crate::api) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(begin)).routes(routes!(show, report))
}

/// Maximum checks in a report.
const CHECKS_MAX: usize = 20;
/// Maximum characters of a check's name.
const NAME_MAX: usize = 40;
/// Maximum characters of a check's text.
const TEXT_MAX: usize = 1_000;
/// Time to live of the test notification in seconds. Short, because the person is waiting.
const TTL_S: u32 = 60;

/// A diagnosis: findings of a subscription's browser, and the server's data about the subscription.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Diagnosis {
    /// Code of eight letters and digits, for support staff.
    code: String,
    subscription: SubscriptionId,
    /// Start of the diagnosis, by the server's clock.
    created_at: DateTime<Utc>,
    /// Time at which the diagnosis is deleted.
    expires_at: DateTime<Utc>,
    /// Server's data at `created_at`. Null: the request was interrupted.
    #[schema(value_type = Option<DiagnosisServer>)]
    server: Option<Value>,
    /// Test notification. Null: not sent, because the subscription is not active.
    test: Option<DiagnosisTest>,
    /// Findings of the browser. Empty: not reported yet.
    #[schema(value_type = Vec<DiagnosisCheck>)]
    checks: Value,
}

/// Server's data about a subscription.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DiagnosisServer {
    state: SubscriptionState,
    /// VAPID key that the browser subscribed with.
    vapid_key_id: VapidKeyId,
    /// Whether this is the app's active VAPID key.
    key_is_active: bool,
    /// Number of its topics.
    topics: usize,
    /// Time at which its push service last accepted a push. Only messages of the last 7 days are considered.
    last_accepted_at: Option<DateTime<Utc>>,
    /// Last failed delivery of these messages. Null: none failed.
    last_failure: Option<DiagnosisFailure>,
}

/// A delivery that failed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DiagnosisFailure {
    at: DateTime<Utc>,
    state: DeliveryStatus,
    /// HTTP status of the push service. Null: no response, or no POST.
    status: Option<i16>,
}

/// The test notification of a diagnosis.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DiagnosisTest {
    message: MessageId,
    /// State of its delivery. Null: not known.
    state: Option<DeliveryStatus>,
    /// HTTP status of the push service. Null: no response yet.
    status: Option<i16>,
    /// Time at which the browser displayed it. Null: not reported.
    displayed_at: Option<DateTime<Utc>>,
}

/// One finding of a browser.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiagnosisCheck {
    /// Subject of the check, 1 to 40 characters.
    name: String,
    ok: bool,
    /// Result of the check, 1 to 1,000 characters.
    found: String,
    /// Advice, 1 to 1,000 characters. Null: none is needed.
    advice: Option<String>,
}

/// Findings of a browser.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiagnosisReport {
    /// At most 20 checks.
    checks: Vec<DiagnosisCheck>,
}

/// Begins a diagnosis of a subscription. Returns the server's data and a code, and sends a test notification to the
/// subscription if it is active. 429: a subscription can begin three diagnoses in ten minutes. Diagnoses are deleted after 7
/// days, and at most ten are kept for a subscription.
#[utoipa::path(post, path = "/v1/apps/{app}/subscriptions/{subscription}/diagnoses", tag = "Subscriptions",
    responses((status = 200, body = Diagnosis)))]
pub(crate) async fn begin(
    client: RegistrationCaller<MayChangeSubscribers>, State(state): State<ApiState>, PathId(id): PathId<SubscriptionId>,
) -> Result<Answer<Diagnosis>, Problem> {
    client.must_show_something()?;
    let (app, now) = (&client.app, state.clock.now());
    let _place = state.place_to_search(app.id).await?;
    let code = DiagnosisCode::from_bits(rand::random());
    match diagnoses::begin(&state.pool, &state.vault, (app.id, id), client.right(), &code, now).await? {
        Begun::Done => {}
        Begun::Unknown => return Err(unknown()),
        Begun::TooMany(until) => return Err(too_many(until, now)),
    }
    let server = server_view(&state, app.id, id, now).await?;
    let test = match server.state {
        SubscriptionState::Active => {
            let body: MessageRequest = serde_json::from_value(test_message(id)).map_err(|_| Problem::internal())?;
            Some(body.compose(&state, app, &RetryHeaders::default(), None, None, Faults::default())?)
        }
        _ => None,
    };
    let (message, view) = (test.as_ref().map(|test| test.asked.id), json!(server));
    diagnoses::add_server_view(&state.pool, app.id, &code, &view, message).await?;
    if let Some(test) = test {
        accept(&state, app, test).await?;
    }
    let row = diagnoses::find(&state.pool, app.id, &code, now).await?.ok_or_else(unknown)?;
    shown(&state, app.id, code, row).await.map(Answer)
}

fn too_many(until: Timestamp, now: Timestamp) -> Problem {
    let wait_s = (until - now).num_seconds().max(0) + 1;
    let detail = format!("This subscription has started three diagnoses within ten minutes. Try again in {wait_s} s.");
    Problem::new(ProblemCode::RateLimited, detail).with_header(header::RETRY_AFTER, HeaderValue::from(wait_s))
}

/// Returns the body of the test notification, which is silent and replaces an earlier test notification.
fn test_message(id: SubscriptionId) -> Value {
    json!({
        "to": {"subscriptions": [id]}, "tier": "transactional", "ttl": TTL_S,
        "content": {
            "title": "Test notification", "body": "Notifications work on this device.", "lang": "en",
            "tag": "bellwire-diagnosis", "silent": true,
        },
    })
}

async fn server_view(
    state: &ApiState, app: AppId, id: SubscriptionId, now: Timestamp,
) -> Result<DiagnosisServer, Problem> {
    let (row, topics) = subscriptions::find(&state.pool, app, id).await?.ok_or_else(unknown)?;
    let active = vapid_keys::active(&state.pool, app).await?.id;
    let wanted = wanted(now - KEPT_FOR);
    let found = search::search(state.reads.pool(), app, &Whose::Subscriptions(vec![id]), &wanted, now).await?;
    let last = |endings: &[Ending]| {
        let is = |row: &&FoundRow| row.ending.and_then(Ending::from_code).is_some_and(|it| endings.contains(&it));
        found.rows.iter().find(is).and_then(|row| Some((row.at?, row)))
    };
    let failure = last(&[Ending::Retry, Ending::Gone, Ending::Expired, Ending::Dead]);
    Ok(DiagnosisServer {
        state: row.state,
        key_is_active: row.vapid_key == active,
        vapid_key_id: row.vapid_key,
        topics: topics.len(),
        last_accepted_at: last(&[Ending::Accepted]).map(|(at, _)| at),
        last_failure: failure.map(|(at, row)| DiagnosisFailure { at, state: state_of(row), status: row.status }),
    })
}

fn wanted(since: Timestamp) -> SearchQuery {
    let (tier, lane) = (None, None);
    SearchQuery {
        towards: Towards::Older,
        beyond: DeliveryCursor::TOP,
        since,
        below: DeliveryCursor::TOP,
        tier,
        lane,
        waiting: false,
        recipients: 1,
    }
}

async fn shown(state: &ApiState, app: AppId, code: DiagnosisCode, row: DiagnosisRow) -> Result<Diagnosis, Problem> {
    let DiagnosisRow { subscription, message, server, checks, created_at } = row;
    let test = match message {
        Some(message) => Some(test_of(state, app, message, subscription).await?),
        None => None,
    };
    let checks = checks.unwrap_or_else(|| json!([]));
    Ok(Diagnosis { code: code.0, subscription, created_at, expires_at: created_at + KEPT_FOR, server, test, checks })
}

async fn test_of(
    state: &ApiState, app: AppId, message: MessageId, subscription: SubscriptionId,
) -> Result<DiagnosisTest, Problem> {
    let (whose, now) = (Whose::Both(message, vec![subscription]), state.clock.now());
    let found = search::search(&state.pool, app, &whose, &wanted(DateTime::UNIX_EPOCH), now).await?.rows.pop();
    let receipts = receipts::of(&state.pool, message, &[subscription]).await?;
    let displayed = receipts.iter().find(|receipt| receipt.kind == ReceiptKind::Displayed.code());
    let status = found.as_ref().and_then(|row| row.status);
    Ok(DiagnosisTest { message, state: found.as_ref().map(state_of), status, displayed_at: displayed.map(|it| it.at) })
}

/// Returns the diagnosis with a code, if the caller may act for its subscription.
async fn found<S>(
    client: &RegistrationCaller<S>, state: &ApiState, code: &DiagnosisCode,
) -> Result<DiagnosisRow, Problem> {
    client.must_show_something()?;
    let missing = || Problem::not_found("diagnosis of this code");
    let row = diagnoses::find(&state.pool, client.app.id, code, state.clock.now()).await?.ok_or_else(missing)?;
    let subscription = subscriptions::find(&state.pool, client.app.id, row.subscription).await?;
    let is_covered = client.server || subscription.is_some_and(|(it, _)| client.right().covers(&state.vault, &it));
    if is_covered { Ok(row) } else { Err(missing()) }
}

/// Returns a diagnosis, for 7 days, to servers and to its browser. The code is accepted in either case and with hyphens.
#[utoipa::path(get, path = "/v1/apps/{app}/diagnoses/{code}", tag = "Subscriptions",
    responses((status = 200, body = Diagnosis)))]
pub(crate) async fn show(
    client: RegistrationCaller<MayRead>, State(state): State<ApiState>, PathId(code): PathId<DiagnosisCode>,
) -> Result<Answer<Diagnosis>, Problem> {
    let row = found(&client, &state, &code).await?;
    shown(&state, client.app.id, code, row).await.map(Answer)
}

/// Stores the browser's findings, in place of earlier ones.
#[utoipa::path(patch, path = "/v1/apps/{app}/diagnoses/{code}", tag = "Subscriptions", responses((status = 204)))]
pub(crate) async fn report(
    client: RegistrationCaller<MayChangeSubscribers>, State(state): State<ApiState>,
    PathId(code): PathId<DiagnosisCode>, Json(DiagnosisReport { checks }, _): Json<DiagnosisReport>,
) -> Result<StatusCode, Problem> {
    found(&client, &state, &code).await?;
    let mut faults = Faults::default();
    faults.require(checks.len() <= CHECKS_MAX, "/checks", "may hold at most 20 checks");
    for (n, check) in checks.iter().enumerate().take(CHECKS_MAX) {
        let advice = check.advice.as_deref().unwrap_or("-");
        for (member, text, max) in
            [("name", &*check.name, NAME_MAX), ("found", &*check.found, TEXT_MAX), ("advice", advice, TEXT_MAX)]
        {
            if !is_plain_text(text, max) {
                let (at, length) = (format!("/checks/{n}/{member}"), text.chars().count());
                faults.refuse(at, format!("has {length} characters: must be 1 to {max} without control characters"));
            }
        }
    }
    faults.finish()?;
    diagnoses::add_checks(&state.pool, client.app.id, &code, &json!(checks)).await?;
    Ok(StatusCode::NO_CONTENT)
}
