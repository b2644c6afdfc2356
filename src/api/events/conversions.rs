//! `POST /v1/apps/{app}/conversions` and `…/subscriptions/{subscription}/conversions`: what a site counts as a success of its
//! campaigns, such as orders. A conversion is an event of a user, too.

use axum::extract::{FromRequest as _, Request, State};
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::record::{
    BODY_FACTOR, BrowserReport, TrackedEvent, UserEvent, UserEventsResponse, accepted, check_event, of_browser,
};
use crate::api::ApiState;
use crate::api::http::auth::{MayChangeSubscribers, RegistrationCaller, Server};
use crate::api::http::draft::Draft;
use crate::api::http::extract::{BodyLimit, PathId};
use crate::api::http::problem::{Faults, Problem};
use crate::api::http::routes::routes;
use bellwire_core::id::SubscriptionId;
use bellwire_core::request_time;
use bellwire_store::measurement::conversions::{self, Money, NewConversion};
use bellwire_store::operations::retrying::retrying;

/// Routes that browsers may call, too.
pub(in crate::api) fn public_routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(convert))
}

const VALUE_MAX: f64 = 1e9;
const VALUE_RULE: &str = "must be 0 to 1000000000, with at most four decimals";
const CURRENCY_RULE: &str = "must be three capital letters (ISO 4217), such as EUR";

/// Batch of conversions, oldest first.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConversionBatch {
    /// 1 to 1,000 conversions.
    #[schema(min_items = 1, max_items = 1000)]
    conversions: Vec<ConversionInput>,
}

/// Something that a user did and that the site counts as a success.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConversionInput {
    /// Sender's id, unique among the app's conversions and events: 1 to 64 characters. A conversion whose id is known is dropped. By
    /// default a new id.
    #[schema(min_length = 1, max_length = 64)]
    id: Option<String>,
    /// Kind of conversion, such as `order`: 1 to 64 letters, digits, `_`, `-` or `.`.
    #[schema(min_length = 1, max_length = 64)]
    name: String,
    /// User, by the site's id. Exactly one of `user_id` and `subscription`.
    #[schema(min_length = 1, max_length = 255)]
    user_id: Option<String>,
    /// Browser in which it happened. If it has a user, the conversion is that user's.
    subscription: Option<SubscriptionId>,
    /// Time of the conversion, at most one year ago. By default now.
    #[serde(default, deserialize_with = "request_time::optional")]
    at: Option<DateTime<Utc>>,
    /// Value in `currency`: 0 to 1,000,000,000, with at most four decimals. Null: no value.
    #[schema(minimum = 0, maximum = 1_000_000_000)]
    value: Option<f64>,
    /// Currency of `value` (ISO 4217), such as `EUR`.
    #[schema(min_length = 3, max_length = 3, pattern = "^[A-Z]{3}$")]
    currency: Option<String>,
    /// Properties, for the conditions and templates of campaigns that it triggers: at most 2,048 octets of JSON.
    properties: Option<Map<String, Value>>,
}

/// Something that the user of a browser did and that the site counts as a success.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BrowserConversion {
    /// Id of the conversion, unique for the browser: 1 to 64 characters. A conversion whose id is known is dropped. By default a new id.
    #[schema(min_length = 1, max_length = 64)]
    id: Option<String>,
    /// Kind of conversion, such as `order`: 1 to 64 letters, digits, `_`, `-` or `.`.
    #[schema(min_length = 1, max_length = 64)]
    name: String,
    /// Value in `currency`: 0 to 1,000,000,000, with at most four decimals. Null: no value.
    #[schema(minimum = 0, maximum = 1_000_000_000)]
    value: Option<f64>,
    /// Currency of `value` (ISO 4217), such as `EUR`.
    #[schema(min_length = 3, max_length = 3, pattern = "^[A-Z]{3}$")]
    currency: Option<String>,
    /// Properties, for the conditions and templates of campaigns that it triggers: at most 2,048 octets of JSON.
    properties: Option<Map<String, Value>>,
}

/// Reports conversions of users: up to 1,000, oldest first. Each is attributed to the campaign that reached the person, by the
/// settings in `…/measurement`, and is an event of that name for triggers and segments. Either all are stored, or none. A batch may
/// be repeated if its conversions have ids.
#[utoipa::path(post, path = "/v1/apps/{app}/conversions", tag = "Events", request_body = ConversionBatch,
    responses((status = 200, body = UserEventsResponse)))]
pub(crate) async fn report(
    server: Server<MayChangeSubscribers>, State(state): State<ApiState>, mut request: Request,
) -> Result<axum::Json<UserEventsResponse>, Problem> {
    request.extensions_mut().insert(BodyLimit(state.settings.body_max_bytes.saturating_mul(BODY_FACTOR)));
    let Draft(batch, mut faults, _) = Draft::<ConversionBatch>::from_request(request, &state).await?;
    let (app, now) = (server.app.id, state.clock.now());
    let (mut events, mut values) = (Vec::new(), Vec::new());
    for (place, conversion) in batch.conversions.into_iter().enumerate() {
        let pointer = format!("/conversions/{place}");
        values.push(money(&pointer, conversion.value, conversion.currency, &mut faults));
        let ConversionInput { id, name, user_id, subscription, at, properties, .. } = conversion;
        events.push(UserEvent { id, name, user_id, subscription, at, properties });
    }
    let new = accepted(&state, app, "/conversions", events, &mut faults).await?;
    let new: Vec<NewConversion> =
        new.into_iter().zip(values).map(|(event, value)| NewConversion { event, value }).collect();
    let recorded = retrying(|| async {
        let mut tx = state.begin().await?;
        let recorded = conversions::record(&mut tx, &state.vault, app, &new, now).await?;
        tx.commit().await.map(|()| recorded)
    });
    UserEventsResponse::new("/conversions", new.len(), &recorded.await?, faults).map(axum::Json)
}

/// Reports a conversion of a browser, by its page. Browsers need the app's permission `report_conversions`, and the subscription's
/// token, so they report only their own. If the browser has a user, the conversion is that user's. 409 if the subscription is not
/// active.
#[utoipa::path(post, path = "/v1/apps/{app}/subscriptions/{subscription}/conversions", tag = "Events",
    request_body = BrowserConversion, responses((status = 204)))]
pub(crate) async fn convert(
    client: RegistrationCaller<MayChangeSubscribers>, State(state): State<ApiState>,
    PathId(id): PathId<SubscriptionId>, Draft(body, mut faults, _): Draft<BrowserConversion>,
) -> Result<StatusCode, Problem> {
    let BrowserConversion { id: own, name, value, currency, properties } = body;
    check_event("", (own.as_deref(), &name, properties.as_ref()), &mut faults);
    let value = money("", value, currency, &mut faults);
    faults.finish()?;
    let event = TrackedEvent { id: own, name, properties };
    of_browser(&client, &state, id, event, BrowserReport::Conversion(value)).await
}

/// Returns a value in ten-thousandths of its currency.
fn money(place: &str, value: Option<f64>, currency: Option<String>, faults: &mut Faults) -> Option<Money> {
    let amount = value.map(|value| (value * 1e4).round());
    let is_exact =
        |(value, amount): (f64, f64)| (0.0..=VALUE_MAX).contains(&value) && (value * 1e4 - amount).abs() < 0.01;
    faults.require(value.zip(amount).is_none_or(is_exact), &format!("{place}/value"), VALUE_RULE);
    let is_currency = |text: &String| text.len() == 3 && text.bytes().all(|b| b.is_ascii_uppercase());
    faults.require(currency.as_ref().is_none_or(is_currency), &format!("{place}/currency"), CURRENCY_RULE);
    faults.require(value.is_none() || currency.is_some(), &format!("{place}/currency"), "is missing: `value` needs it");
    faults.require(value.is_some() || currency.is_none(), &format!("{place}/value"), "is missing: `currency` needs it");
    amount.zip(currency).map(|(amount, currency)| Money { amount: amount as i64, currency })
}
