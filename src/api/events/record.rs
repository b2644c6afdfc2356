//! `POST /v1/apps/{app}/events` and `…/subscriptions/{subscription}/events`: what users do, as the site reports it. Events let people
//! enter triggers, or end their wait.

use axum::extract::{FromRequest as _, Request, State};
use axum::http::StatusCode;
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use crate::api::ApiState;
use crate::api::http::auth::{MayChangeSubscribers, RegistrationCaller, Server};
use crate::api::http::draft::Draft;
use crate::api::http::extract::{BodyLimit, PathId, USER_ID_RULE, is_user_id};
use crate::api::http::problem::{Faults, Problem};
use crate::api::http::routes::routes;
use crate::api::subscriptions::response::{ended, unknown};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, SubscriptionId};
use bellwire_core::permission::BrowserRight;
use bellwire_core::request_time;
use bellwire_core::user_event::{EVENT_NAME_RULE, is_event_name};
use bellwire_store::audience::{aliases, registration};
use bellwire_store::measurement::conversions::{self, Money, NewConversion};
use bellwire_store::operations::retrying::retrying;
use bellwire_store::triggers::user_events::{self, EventSubject, NewEvent, Recorded};

/// Routes that browsers may call, too.
pub(in crate::api) fn public_routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(track))
}

const EVENTS_MAX: usize = 1_000;
/// Size limit of a batch's body, as a multiple of the limit of other requests.
pub(super) const BODY_FACTOR: usize = 8;
/// Maximum bytes of an event's properties, as JSON.
const PROPERTIES_MAX: usize = 2_048;
/// Maximum age of a reported event.
const AGE_MAX: TimeDelta = TimeDelta::days(365);
/// Time by which the clock of a sender may be ahead.
const AHEAD_MAX: TimeDelta = TimeDelta::minutes(5);
const ID_RULE: &str = "must be 1 to 64 printable ASCII characters";

/// Batch of events of users, oldest first.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserEventBatch {
    /// 1 to 1,000 events.
    #[schema(min_items = 1, max_items = 1000)]
    events: Vec<UserEvent>,
}

/// Something that a user did.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserEvent {
    /// Sender's id of the event, unique in the app: 1 to 64 characters. An event whose id is known is dropped. By default a new id.
    #[schema(min_length = 1, max_length = 64)]
    pub(super) id: Option<String>,
    /// Kind of event, such as `cart_added`: 1 to 64 letters, digits, `_`, `-` or `.`.
    #[schema(min_length = 1, max_length = 64)]
    pub(super) name: String,
    /// User of the event, by the site's id. Exactly one of `user_id` and `subscription`.
    #[schema(min_length = 1, max_length = 255)]
    pub(super) user_id: Option<String>,
    /// Browser of the event. If it has a user, the event is that user's.
    pub(super) subscription: Option<SubscriptionId>,
    /// Time of the event, at most one year ago. By default now. Only events of the last day let
    /// people enter a trigger.
    #[serde(default, deserialize_with = "request_time::optional")]
    pub(super) at: Option<DateTime<Utc>>,
    /// Properties, for the conditions and templates of campaigns: at most 2,048 octets of JSON.
    pub(super) properties: Option<Map<String, Value>>,
}

/// Result of reporting events.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UserEventsResponse {
    /// Number of new events.
    pub(super) recorded: usize,
    /// Number of events whose id was known.
    pub(super) repeated: usize,
}

/// Reports events of users: up to 1,000, oldest first. They let people enter the campaigns that they trigger, or end the wait for
/// their messages, before the response. Either all events are stored, or none. A batch may be repeated if its events have ids.
#[utoipa::path(post, path = "/v1/apps/{app}/events", tag = "Events", request_body = UserEventBatch,
    responses((status = 200, body = UserEventsResponse)))]
pub(crate) async fn record(
    server: Server<MayChangeSubscribers>, State(state): State<ApiState>, mut request: Request,
) -> Result<axum::Json<UserEventsResponse>, Problem> {
    request.extensions_mut().insert(BodyLimit(state.settings.body_max_bytes.saturating_mul(BODY_FACTOR)));
    let Draft(batch, mut faults, _) = Draft::<UserEventBatch>::from_request(request, &state).await?;
    let (app, now) = (server.app.id, state.clock.now());
    let new = accepted(&state, app, "/events", batch.events, &mut faults).await?;
    let recorded = retrying(|| async {
        let mut tx = state.begin().await?;
        let recorded = user_events::record(&mut tx, &state.vault, app, &new, now).await?;
        tx.commit().await.map(|()| recorded)
    });
    UserEventsResponse::new("/events", new.len(), &recorded.await?, faults).map(axum::Json)
}

/// Returns the events of a batch, or a problem with all faults. `pointer`: member of the body that holds them.
pub(super) async fn accepted(
    state: &ApiState, app: AppId, pointer: &str, events: Vec<UserEvent>, faults: &mut Faults,
) -> Result<Vec<NewEvent>, Problem> {
    let now = state.clock.now();
    faults.require((1..=EVENTS_MAX).contains(&events.len()), pointer, "must hold 1 to 1000 events");
    for (place, event) in events.iter().enumerate().take(EVENTS_MAX) {
        event.check(&format!("{pointer}/{place}"), now, faults);
    }
    if !faults.is_empty() {
        // Otherwise the transaction finds the unknown ones.
        let named: Vec<Option<SubscriptionId>> = events.iter().take(EVENTS_MAX).map(|it| it.subscription).collect();
        let ids: Vec<SubscriptionId> = named.iter().flatten().copied().collect();
        let known = user_events::browsers(&state.pool, app, &ids).await?;
        let is_unknown = |place: &usize| named[*place].is_some_and(|id| !known.contains_key(&id));
        refuse_unknown(pointer, (0..named.len()).filter(is_unknown), faults);
    }
    faults.clone().finish()?;
    Ok(events.into_iter().filter_map(|event| event.into_new(state, now)).collect())
}

/// Refuses the events at these places, which name subscriptions that the app does not have.
fn refuse_unknown(pointer: &str, places: impl Iterator<Item = usize>, faults: &mut Faults) {
    for place in places {
        let detail = "names no subscription of this app. Leave the event out";
        faults.refuse(format!("{pointer}/{place}/subscription"), detail);
    }
}

impl UserEventsResponse {
    /// Fails if a batch names subscriptions that the app does not have, so that nothing was stored.
    pub(super) fn new(pointer: &str, events: usize, recorded: &Recorded, mut faults: Faults) -> Result<Self, Problem> {
        refuse_unknown(pointer, recorded.unknown.iter().copied(), &mut faults);
        faults.finish()?;
        Ok(Self { recorded: recorded.new.len(), repeated: events - recorded.new.len() })
    }
}

impl UserEvent {
    fn check(&self, place: &str, now: Timestamp, faults: &mut Faults) {
        check_event(place, (self.id.as_deref(), &self.name, self.properties.as_ref()), faults);
        let is_one = self.user_id.is_some() != self.subscription.is_some();
        faults.require(is_one, place, "must have exactly one of `user_id`, `subscription`");
        let is_id = self.user_id.as_deref().is_none_or(is_user_id);
        faults.require(is_id, &format!("{place}/user_id"), USER_ID_RULE);
        let is_in_range = self.at.is_none_or(|at| at <= now + AHEAD_MAX && at >= now - AGE_MAX);
        faults.require(
            is_in_range,
            &format!("{place}/at"),
            "must be at most one year ago, and at most five minutes ahead of the server's clock",
        );
    }

    fn into_new(self, state: &ApiState, now: Timestamp) -> Option<NewEvent> {
        let subject = match (self.user_id, self.subscription) {
            (Some(user), _) => EventSubject::User(user),
            (None, subscription) => EventSubject::Browser(subscription?),
        };
        let id = state.clock.uuid();
        let event = self.id.unwrap_or_else(|| id.to_string());
        let at = self.at.unwrap_or(now).min(now);
        Some(NewEvent { id, event, name: self.name, at, subject, properties: self.properties })
    }
}

pub(super) fn check_event(
    place: &str, (id, name, properties): (Option<&str>, &str, Option<&Map<String, Value>>), faults: &mut Faults,
) {
    let is_id = |id: &str| (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
    faults.require(id.is_none_or(is_id), &format!("{place}/id"), ID_RULE);
    faults.require(is_event_name(name), &format!("{place}/name"), EVENT_NAME_RULE);
    let size = properties.map_or(0, |it| serde_json::to_vec(it).map_or(usize::MAX, |json| json.len()));
    let fits = size <= PROPERTIES_MAX;
    faults.require(fits, &format!("{place}/properties"), "must be at most 2048 octets of JSON");
}

/// Something that the user of a browser did.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrackedEvent {
    /// Id of the event, unique in the app: 1 to 64 characters. An event whose id is known is dropped. By default a new id.
    #[schema(min_length = 1, max_length = 64)]
    pub(super) id: Option<String>,
    /// Kind of event, such as `cart_added`: 1 to 64 letters, digits, `_`, `-` or `.`.
    #[schema(min_length = 1, max_length = 64)]
    pub(super) name: String,
    /// Properties, for the conditions and templates of campaigns: at most 2,048 octets of JSON.
    pub(super) properties: Option<Map<String, Value>>,
}

/// Reports an event of a browser, by its page. Browsers need the app's permission `track_events`, and the subscription's token, so they
/// report only their own events. If the browser has a user, the event is that user's. 409 if the subscription is not active.
#[utoipa::path(post, path = "/v1/apps/{app}/subscriptions/{subscription}/events", tag = "Events",
    request_body = TrackedEvent, responses((status = 204)))]
pub(crate) async fn track(
    client: RegistrationCaller<MayChangeSubscribers>, State(state): State<ApiState>,
    PathId(id): PathId<SubscriptionId>, Draft(event, mut faults, _): Draft<TrackedEvent>,
) -> Result<StatusCode, Problem> {
    check_event("", (event.id.as_deref(), &event.name, event.properties.as_ref()), &mut faults);
    faults.finish()?;
    of_browser(&client, &state, id, event, BrowserReport::Event).await
}

/// Kind of an event that a browser reports.
pub(super) enum BrowserReport {
    Event,
    /// A conversion, with its value.
    Conversion(Option<Money>),
}

impl BrowserReport {
    fn right(&self) -> BrowserRight {
        match self {
            Self::Event => BrowserRight::TrackEvents,
            Self::Conversion(_) => BrowserRight::ReportConversions,
        }
    }
}

/// Stores an event of a browser, which needs a permission of its app.
pub(super) async fn of_browser(
    client: &RegistrationCaller<MayChangeSubscribers>, state: &ApiState, id: SubscriptionId, event: TrackedEvent,
    report: BrowserReport,
) -> Result<StatusCode, Problem> {
    client.must_show_something()?;
    let right = report.right();
    if !client.speaker().may(right) {
        let detail = format!("Browsers of this app may not do that: it lacks `{}` in `browsers_may`.", right.name());
        return Err(Problem::forbidden(detail));
    }
    let (app, now, id_of_event) = (client.app.id, state.clock.now(), state.clock.uuid());
    let new = |browser: SubscriptionId, origin: SubscriptionId| NewEvent {
        id: id_of_event,
        // Ids of browsers never meet those of the site's servers. The origin stays when the subscription is replaced.
        event: event.id.as_ref().map_or_else(|| id_of_event.to_string(), |own| format!("{}.{own}", origin.0.simple())),
        name: event.name.clone(),
        at: now,
        subject: EventSubject::Browser(browser),
        properties: event.properties.clone(),
    };
    // The browser stays locked until the commit: a logout meanwhile must not give the event to the next user.
    let tracked = retrying(|| async {
        let mut tx = state.begin().await?;
        let row = aliases::lock_current(&mut tx, &state.vault, app, id, client.right()).await?;
        let Some(row) = row else { return Ok(None) };
        if !row.state.lives() {
            return Ok(Some(false));
        }
        let origin = registration::origin_of(&mut tx, row.id).await?.unwrap_or(row.id);
        let event = new(row.id, origin);
        match &report {
            BrowserReport::Event => user_events::record(&mut tx, &state.vault, app, &[event], now).await.map(drop)?,
            BrowserReport::Conversion(value) => {
                let new = NewConversion { event, value: value.clone() };
                conversions::record(&mut tx, &state.vault, app, &[new], now).await.map(drop)?;
            }
        }
        tx.commit().await.map(|()| Some(true))
    });
    match tracked.await? {
        Some(true) => Ok(StatusCode::NO_CONTENT),
        Some(false) => Err(ended()),
        None => Err(unknown()),
    }
}
