//! `Idempotency-Key`: repeats of a request by the same caller with the same key are executed once.
//!
//! A handler takes [`Making`] (or [`Pending`], without a body) as its last argument, validates, [begins](Pending::begin), works
//! in the returned transaction, and [finishes](Once::finish) with its response: work and response commit together. A repeat
//! gets the stored response and never reaches the handler. A refused request does not use up its key. Stored responses are
//! encrypted, because some contain a secret. Messages commit in groups: see [`crate::api::messages::accept`]. Work of several
//! transactions begins [in parts](Pending::begin_in_parts).

use std::time::Duration;

use axum::extract::{FromRequest, MatchedPath, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, PgTransaction, Postgres};
use tokio::time::timeout;
use utoipa::ToSchema;
use zeroize::Zeroizing;

use super::auth::Admitted;
use super::draft::Draft;
use super::extract::IDEMPOTENCY_KEY;
use super::extract::Octets;
use super::fair_semaphore::SharePermit;
use super::problem::{Faults, Problem, ProblemCode};
use crate::api::ApiState;
use bellwire_core::id::AppId;
use bellwire_store::operations::idempotency::{self, Claim, KeyScope, KeyedRequest};
use bellwire_store::transactions::begin_on;
use bellwire_vault::Vault;

/// Maximum time that a request waits for another request with the same key.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) const IDEMPOTENCY_KEY_RULE: &str = "must be 1 to 255 ASCII characters";
/// Response header of a repeat.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let text = value.to_str().ok().filter(|text| is_idempotency_key(text));
    text.map(Some).ok_or_else(|| Problem::invalid_header(IDEMPOTENCY_KEY, IDEMPOTENCY_KEY_RULE))
}

/// Whether a text is 1 to 255 visible ASCII characters, spaces and tabs.
pub(crate) fn is_idempotency_key(text: &str) -> bool {
    (1..=255).contains(&text.len()) && text.bytes().all(|b| b == b'\t' || (b' '..=b'~').contains(&b))
}

/// Response in place of the handler's: a refusal, or the stored response to the first request.
#[derive(Debug)]
pub(crate) enum Instead {
    Refused(Problem),
    /// Stored response. Boxed, because few requests are repeats.
    Before(Box<Response>),
}

impl<E: Into<Problem>> From<E> for Instead {
    fn from(error: E) -> Self {
        Self::Refused(error.into())
    }
}

impl IntoResponse for Instead {
    fn into_response(self) -> Response {
        match self {
            Self::Refused(problem) => problem.into_response(),
            Self::Before(answer) => *answer,
        }
    }
}

impl Instead {
    /// Returns the response to a request whose key was used before.
    fn of(state: &ApiState, claim: Claim) -> Self {
        match Replay::new(&state.vault, claim) {
            Ok(replay) => Self::Before(Box::new(replay.into_response())),
            Err(problem) => Self::Refused(problem),
        }
    }
}

/// Status and body of the stored response.
#[derive(Clone)]
pub(crate) struct Replay {
    pub status: StatusCode,
    pub body: Zeroizing<Vec<u8>>,
}

impl Replay {
    /// Decrypts the stored response. 422: the key was used for another request. 409: the first request is still running.
    pub(crate) fn new(vault: &Vault, claim: Claim) -> Result<Self, Problem> {
        match claim {
            Claim::Answered(response) => {
                let (status, body) = response.open(vault)?;
                let status = u16::try_from(status).ok().and_then(|code| StatusCode::from_u16(code).ok());
                Ok(Self { status: status.ok_or_else(Problem::internal)?, body })
            }
            Claim::OtherRequest => Err(reused()),
            Claim::First | Claim::InProgress => Err(in_progress()),
        }
    }
}

impl IntoResponse for Replay {
    fn into_response(self) -> Response {
        ([(REPLAYED, HeaderValue::from_static("true"))], json(self.status, &self.body)).into_response()
    }
}

/// Returns the stored response if this request was `refused`: resources of the request may have changed or ended since the
/// first one.
pub(crate) async fn first_response(
    state: &ApiState, request: Option<&KeyedRequest>, refused: Problem,
) -> Result<Replay, Problem> {
    let Some(request) = request else { return Err(refused) };
    match idempotency::find(&state.pool, request).await? {
        Some(claim @ Claim::Answered(_)) => Replay::new(&state.vault, claim),
        _ => Err(refused),
    }
}

/// Returns a 422 problem: the key was used for another request.
pub(crate) fn reused() -> Problem {
    let detail = "This Idempotency-Key was used with another path, query, body or headers.";
    Problem::new(ProblemCode::IdempotencyKeyReused, detail)
}

/// Returns a 409 problem: the first request with the key is still running.
pub(crate) fn in_progress() -> Problem {
    let detail = "A request with this Idempotency-Key is still being worked on.";
    Problem::new(ProblemCode::IdempotencyKeyInProgress, detail)
        .with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
}

fn json(status: StatusCode, body: &[u8]) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_vec()).into_response()
}

/// A parsed JSON body, its faults so far, and the request to begin.
#[derive(Debug)]
pub(crate) struct Making<T>(pub T, pub Faults, pub Pending);

impl<T: DeserializeOwned + ToSchema + Send> FromRequest<ApiState> for Making<T> {
    type Rejection = Instead;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Instead> {
        let head = Head::read(&request)?;
        let Draft(body, faults, octets) = Draft::from_request(request, state).await?;
        Ok(Self(body, faults, Pending::new(head, &octets, state).await?))
    }
}

/// Parts of a request with a key that are read before its body.
struct Head {
    key: String,
    admitted: Admitted,
    route: String,
    path_and_query: String,
}

impl Head {
    /// Returns `None` for a request without a key.
    fn read(request: &Request) -> Result<Option<Self>, Problem> {
        let Some(key) = idempotency_key(request.headers())? else { return Ok(None) };
        let extensions = request.extensions();
        let route = extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str);
        Ok(Some(Self {
            key: key.to_owned(),
            admitted: *extensions.get().expect("`auth` admits every caller that creates something"),
            route: format!("{} {route}", request.method()),
            path_and_query: request.uri().path_and_query().map_or("", |path| path.as_str()).to_owned(),
        }))
    }
}

/// A request without a stored response. Its key, if any, is not claimed yet.
#[derive(Debug)]
pub(crate) struct Pending(Option<KeyedRequest>);

impl FromRequest<ApiState> for Pending {
    type Rejection = Instead;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Instead> {
        let head = Head::read(&request)?;
        let Octets(octets) = Octets::from_request(request, state).await?;
        Self::new(head, &octets, state).await
    }
}

impl Pending {
    async fn new(head: Option<Head>, body: &[u8], state: &ApiState) -> Result<Self, Instead> {
        let Some(Head { key, admitted: Admitted { caller, app }, route, path_and_query }) = head else {
            return Ok(Self(None));
        };
        let scope = KeyScope { caller, app, route: &route };
        let request = KeyedRequest::new(&state.vault, scope, &key, &[path_and_query.as_bytes(), body]);
        match idempotency::find(&state.pool, &request).await? {
            Some(claim) => Err(Instead::of(state, claim)),
            None => Ok(Self(Some(request))),
        }
    }

    /// Begins the transaction and claims the key. The error is the response if another request with the key has finished or is
    /// running.
    pub(crate) async fn begin(self, state: &ApiState) -> Result<Once, Instead> {
        Once { tx: state.begin().await?, claimed: None }.claim(self.0, state).await
    }

    /// Begins work of several transactions, each of which commits by itself. A lock stops other requests with the key in all
    /// processes; later ones get the response. After an interruption, a repeat continues the work. One large transaction would
    /// delay the event stream.
    pub(crate) async fn begin_in_parts(self, state: &ApiState, app: AppId) -> Result<InParts, Instead> {
        let Some(request) = self.0 else { return Ok(InParts(None)) };
        let place = state.place_to_search(app).await?;
        let mut alone = state.pool.acquire().await?;
        // The lock ends with the connection, however the work ends.
        alone.close_on_drop();
        if !idempotency::hold(&mut alone, &request, PATIENCE).await? {
            return Err(in_progress().into());
        }
        match idempotency::find(&mut *alone, &request).await? {
            Some(claim) => Err(Instead::of(state, claim)),
            None => Ok(InParts(Some(HeldLock { request, alone, place }))),
        }
    }
}

/// Work of several transactions under the lock of its key.
pub(crate) struct InParts(Option<HeldLock>);

struct HeldLock {
    request: KeyedRequest,
    alone: PoolConnection<Postgres>,
    /// Slot that limits connections held by locks, so that enough are left for other work.
    place: SharePermit,
}

impl InParts {
    /// Stores the response, which must be a success.
    pub(crate) async fn finish(self, state: &ApiState, answer: &impl Serialize) -> Result<Response, Instead> {
        let (request, tx, _place) = match self.0 {
            Some(HeldLock { request, alone, place }) => {
                // The session may have ended, or its network, while the work was done over other ones.
                let tx = match timeout(PATIENCE, begin_on(alone, "BEGIN")).await {
                    Ok(Ok(tx)) => tx,
                    Ok(Err(_)) | Err(_) => state.begin().await?,
                };
                (Some(request), tx, Some(place))
            }
            None => (None, state.begin().await?, None),
        };
        let once = Once { tx, claimed: None }.claim(request, state).await?;
        once.finish(state, StatusCode::OK, answer).await
    }
}

/// A begun request and its transaction. Dropping it rolls everything back, including the claim of the key.
pub(crate) struct Once {
    tx: PgTransaction<'static>,
    claimed: Option<KeyedRequest>,
}

impl Once {
    async fn claim(mut self, request: Option<KeyedRequest>, state: &ApiState) -> Result<Self, Instead> {
        let Some(request) = request else { return Ok(self) };
        let claims = idempotency::claim(&mut self.tx, &[&request], PATIENCE, state.clock.now()).await?;
        match claims.and_then(|mut claims| claims.pop()).unwrap_or(Claim::InProgress) {
            Claim::First => Ok(Self { claimed: Some(request), ..self }),
            claim => Err(Instead::of(state, claim)),
        }
    }

    pub(crate) fn conn(&mut self) -> &mut PgConnection {
        &mut self.tx
    }

    /// Commits the work with the response, which must be a success.
    pub(crate) async fn finish(
        mut self, state: &ApiState, status: StatusCode, answer: &impl Serialize,
    ) -> Result<Response, Instead> {
        let body = Zeroizing::new(serde_json::to_vec(answer).map_err(|_| Problem::internal())?);
        if let Some(request) = &self.claimed {
            let code = i16::try_from(status.as_u16()).map_err(|_| Problem::internal())?;
            idempotency::store(&mut self.tx, &state.vault, &[(request, &body[..])], code).await?;
        }
        self.tx.commit().await?;
        Ok(json(status, &body))
    }
}
