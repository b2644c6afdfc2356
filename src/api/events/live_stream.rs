//! `/v1/events/stream` and `/v1/apps/{app}/events/stream`: live events as server-sent events.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;
use utoipa::IntoParams;

use crate::api::ApiState;
use crate::api::http::auth::{MayRead, Onlooker, Server};
use crate::api::http::caller::Caller;
use crate::api::http::extract::Query;
use crate::api::http::problem::{Problem, ProblemCode};
use crate::api::http::routes::routes;
use crate::api::http::signed_in::Entered;
use crate::live::{ListenError, Listener, ListenerFilter, ListenerInput, LiveEvent, Right};
use bellwire_core::event_type::EventType;
use bellwire_core::id::AppId;
use bellwire_net::http_server::Stopping;
use bellwire_store::outcomes::stream::Position;
use utoipa_axum::router::OpenApiRouter;
use uuid::Uuid;

pub(in crate::api) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(all)).routes(routes!(of_app))
}

/// Header with which a client resumes the stream.
const LAST_EVENT_ID: &str = "last-event-id";
/// Maximum length of a stream for a signed-in teammate. A session ends without activity, and a reconnect counts as activity.
/// Sign-out and role changes end the stream within a second.
const SIGNED_IN_FOR: Duration = Duration::from_secs(60);
/// Time before a disconnected listener should reconnect.
const COME_BACK: Duration = Duration::from_secs(2);

/// Reason for the end of a session's stream: the client should reconnect at once.
const RENEW: &str = "renew";

/// Options of a stream.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct StreamQuery {
    /// Event kinds separated by commas, such as `message.progress`. A prefix selects all kinds below it: `lane`.
    kinds: Option<String>,
}

impl StreamQuery {
    fn kinds(&self) -> Result<Option<Vec<EventType>>, Problem> {
        let Some(given) = &self.kinds else { return Ok(None) };
        let streamed: Vec<_> = EventType::ALL.into_iter().filter(|kind| kind.is_streamed()).collect();
        let mut kinds = Vec::new();
        for word in given.split(',') {
            let is_meant = |kind: &EventType| {
                kind.name() == word || kind.name().split_once('.').is_some_and(|(group, _)| group == word)
            };
            if !streamed.iter().any(is_meant) {
                let known = streamed.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
                return Err(Problem::invalid_parameter("kinds", format!("must be of {known}, separated by commas")));
            }
            kinds.extend(streamed.iter().copied().filter(is_meant));
            kinds.sort_unstable();
            kinds.dedup();
        }
        Ok(Some(kinds))
    }
}

/// Streams events of the server and all apps, as server-sent events. Callers with roles for some apps get those of these apps
/// only.
///
/// Each event has the name of its kind, and as data one line of JSON: `kind`, `app` (null: the server as a whole), `at` and
/// `data`. Events with an `id` are stored for a day: a listener that sends the last one as `Last-Event-ID` gets each event
/// exactly once. A stream begins with such an `id`, too. Events without one (`message.progress`, `outcomes`) are snapshots, of
/// which the newest is enough. A listener that is too slow, or whose key is revoked, gets a last event `end` with its `reason`. A
/// session's stream ends once a minute, and within a second of any change of permissions (`renew`), and browsers reconnect by
/// themselves. After an event `gap`, some events are missing that are no longer stored. Comments every 15 seconds keep the
/// connection alive.
#[utoipa::path(get, path = "/v1/events/stream", tag = "Events",
    params(("Last-Event-ID" = Option<String>, Header, description = "Id of the last received event")),
    responses((status = 200, content_type = "text/event-stream", body = String)))]
pub(crate) async fn all(
    onlooker: Onlooker, State(state): State<ApiState>, entered: Option<Extension<Entered>>,
    stopping: Option<Extension<Stopping>>, headers: HeaderMap, Query(query): Query<StreamQuery>,
) -> Result<Response, Problem> {
    let who = Who::of(&onlooker.caller, entered);
    listen(&state, onlooker.apps, who, stopping, &headers, &query).await
}

/// Streams live events of an app, as server-sent events: see `/v1/events/stream`.
#[utoipa::path(get, path = "/v1/apps/{app}/events/stream", tag = "Events",
    params(("Last-Event-ID" = Option<String>, Header, description = "Id of the last received event")),
    responses((status = 200, content_type = "text/event-stream", body = String)))]
pub(crate) async fn of_app(
    server: Server<MayRead>, State(state): State<ApiState>, entered: Option<Extension<Entered>>,
    stopping: Option<Extension<Stopping>>, headers: HeaderMap, Query(query): Query<StreamQuery>,
) -> Result<Response, Problem> {
    let who = Who::of(&server.caller, entered);
    listen(&state, Some(vec![server.app.id]), who, stopping, &headers, &query).await
}

/// Client of the stream, with its permissions.
struct Who {
    right: Right,
    owner: Option<Uuid>,
}

impl Who {
    fn of(caller: &Caller, entered: Option<Extension<Entered>>) -> Self {
        let right = match (entered, caller.actor().who.key()) {
            (Some(Extension(Entered { session, grants })), _) => Right::Session(session, grants),
            (None, Some(key)) => Right::Key(key),
            (None, None) => Right::Local,
        };
        Self { right, owner: caller.counted_as() }
    }
}

async fn listen(
    state: &ApiState, apps: Option<Vec<AppId>>, Who { right, owner }: Who, stopping: Option<Extension<Stopping>>,
    headers: &HeaderMap, query: &StreamQuery,
) -> Result<Response, Problem> {
    let is_signed_in = matches!(right, Right::Session(..));
    let wanted = ListenerFilter { apps, kinds: query.kinds()?, right, owner, after: last_event_id(headers)? };
    let listener = state.live.listen(wanted).await.map_err(refused)?;
    let heartbeat = KeepAlive::new().interval(state.settings.live.heartbeat);
    let until = Until {
        stopping: stopping.map(|Extension(stopping)| stopping),
        renewal: is_signed_in.then(|| Instant::now() + SIGNED_IN_FOR),
    };
    let told = stream::unfold(Telling::Hello(listener, until), Telling::next);
    let mut response = Sse::new(told).keep_alive(heartbeat).into_response();
    // Proxies that gather responses would keep events back.
    response.headers_mut().insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    Ok(response)
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<Position>, Problem> {
    let Some(given) = headers.get(LAST_EVENT_ID).filter(|given| !given.is_empty()) else { return Ok(None) };
    let position = given.to_str().ok().and_then(|text| text.parse().ok());
    let wrong = || Problem::invalid_header("Last-Event-ID", "must be the id of an event of this stream");
    position.map(Some).ok_or_else(wrong)
}

fn refused(refused: ListenError) -> Problem {
    match refused {
        ListenError::Full => {
            let detail = "This process has the maximum number of event stream listeners. Try again later.";
            Problem::new(ProblemCode::ListenersFull, detail)
                .with_header(axum::http::header::RETRY_AFTER, HeaderValue::from_static("10"))
        }
        ListenError::AppFull => {
            let detail =
                "This app has the maximum number of listeners, or the remaining places are reserved for other apps.";
            Problem::new(ProblemCode::AppListenersFull, detail)
                .with_header(axum::http::header::RETRY_AFTER, HeaderValue::from_static("10"))
        }
        ListenError::KeyFull => {
            let detail = "This API key has the maximum number of listeners.";
            Problem::new(ProblemCode::KeyListenersFull, detail)
                .with_header(axum::http::header::RETRY_AFTER, HeaderValue::from_static("10"))
        }
        ListenError::Database(error) => error.into(),
    }
}

struct Until {
    stopping: Option<Stopping>,
    /// Time at which the session must reconnect. `None`: an API key.
    renewal: Option<Instant>,
}

impl Until {
    /// Waits until the stream must end, and returns the reason.
    async fn over(&mut self) -> &'static str {
        let stopped = async {
            match &mut self.stopping {
                Some(stopping) => stopping.told().await,
                None => pending().await,
            }
        };
        let renewal = async {
            match self.renewal {
                Some(at) => tokio::time::sleep_until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = stopped => "stopping",
            () = renewal => RENEW,
        }
    }
}

enum Telling {
    Hello(Listener, Until),
    On(Listener, Until),
    Over,
}

impl Telling {
    async fn next(self) -> Option<(Result<sse::Event, Infallible>, Self)> {
        let (mut listener, mut until) = match self {
            // The first event confirms the connection, and contains the delay and the position for a reconnect.
            Self::Hello(listener, until) => {
                let id = listener.position().to_string();
                let hello = sse::Event::default().comment("listening").retry(COME_BACK).id(id);
                return Some((Ok(hello), Self::On(listener, until)));
            }
            Self::On(listener, until) => (listener, until),
            Self::Over => return None,
        };
        let heard = tokio::select! {
            biased;
            reason = until.over() => return Some((Ok(end(reason, &listener)), Self::Over)),
            heard = listener.next() => heard,
        };
        let (event, goes_on) = match heard {
            Some(ListenerInput::Event(event)) => (told(&event), true),
            Some(ListenerInput::Gap) => (sse::Event::default().event("gap").data("{}"), true),
            Some(ListenerInput::Lagged) => (end("lagged", &listener), false),
            // The roles of a signed-in user may have changed: the client reconnects with the current ones.
            Some(ListenerInput::Revoked) if until.renewal.is_some() => (end(RENEW, &listener), false),
            Some(ListenerInput::Revoked) => (end("key_revoked", &listener), false),
            None => (end("stopping", &listener), false),
        };
        Some((Ok(event), if goes_on { Self::On(listener, until) } else { Self::Over }))
    }
}

fn told(event: &LiveEvent) -> sse::Event {
    let told = sse::Event::default().event(event.kind.name()).data(&*event.json);
    match event.position {
        Some(position) => told.id(position.to_string()),
        None => told,
    }
}

/// Last event of a stream that the server ends, with the id to resume from.
fn end(reason: &str, listener: &Listener) -> sse::Event {
    let id = listener.position().to_string();
    sse::Event::default().event("end").data(json!({"reason": reason}).to_string()).id(id)
}
