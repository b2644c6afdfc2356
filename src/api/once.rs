//! Requests that make something, and are carried out once however often they are made with the same `Idempotency-Key`.
//!
//! A handler takes [`Making`] (or [`Pending`], without a body) as its last argument, checks, [begins](Pending::begin), works in
//! the transaction that it gets, and [finishes](Once::finish) with its answer: thing and answer commit together. A repeat never
//! gets as far as the handler, and what is refused is not remembered. Answers are sealed, since some show a secret. Sends are
//! taken in groups: theirs is [`super::accept`]. Work of several transactions is begun [in parts](Pending::begin_in_parts).

use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use axum::extract::{FromRequest, MatchedPath, Request};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, PgTransaction, Postgres};
use utoipa::ToSchema;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::ApiState;
use super::accept::{in_progress, reused};
use super::auth::Admitted;
use super::extract::{Json, Octets};
use super::messages::idempotency_key;
use super::places::Place;
use super::problem::Problem;
use crate::model::id::AppId;
use crate::store::operations::first_answers::{self, Answer, Met};
use crate::vault::FIRST_ANSWER;

/// How long a request waits for another one with the same key.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a request is answered with by something other than its work: a refusal, or the answer that it got before.
#[derive(Debug)]
pub(crate) enum Instead {
    /// Why it is refused.
    Refused(Problem),
    /// It was carried out before, and answered so. Boxed, since hardly any request is.
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

/// A JSON body that says what to make, and what is to be begun to make it.
#[derive(Debug)]
pub(crate) struct Making<T>(pub T, pub Pending);

impl<T: DeserializeOwned + ToSchema + Send> FromRequest<ApiState> for Making<T> {
    type Rejection = Instead;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Instead> {
        let pending = Pending::of(&request)?;
        let Json(body, octets) = Json::from_request(request, state).await?;
        Ok(Self(body, pending.unless_done(&octets, state).await?))
    }
}

/// A request that has not been carried out, as far as is known.
#[derive(Debug)]
pub(crate) struct Pending(Option<first_answers::Request>);

impl FromRequest<ApiState> for Pending {
    type Rejection = Instead;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Instead> {
        let pending = Self::of(&request)?;
        let Octets(octets) = Octets::from_request(request, state).await?;
        pending.unless_done(&octets, state).await
    }
}

impl Pending {
    /// Reads what a request says of itself, but for its body.
    fn of(request: &Request) -> Result<Self, Problem> {
        let Some(key) = idempotency_key(request.headers())? else { return Ok(Self(None)) };
        let Admitted { caller, app } =
            *request.extensions().get().expect("whoever makes something was let in by `auth` before");
        let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
        let mut hash = Context::new(&SHA256);
        hash.update(request.uri().path_and_query().map_or("", |path| path.as_str()).as_bytes());
        hash.update(b"\0");
        Ok(Self(Some(first_answers::Request {
            caller,
            route: format!("{} {route}", request.method()),
            key: key.to_owned(),
            app,
            hash: digest(hash),
        })))
    }

    /// Adds the body to what it is told from others by, and looks whether it was carried out before.
    async fn unless_done(mut self, octets: &[u8], state: &ApiState) -> Result<Self, Instead> {
        if let Some(request) = &mut self.0 {
            let mut hash = Context::new(&SHA256);
            hash.update(&request.hash);
            hash.update(octets);
            request.hash = digest(hash);
            if let Some(met) = first_answers::find(&state.pool, request).await? {
                return Err(instead(state, met));
            }
        }
        Ok(self)
    }

    /// Begins to carry it out. Another one with its key may have been faster, or may be at work.
    pub(super) async fn begin(self, state: &ApiState) -> Result<Once, Instead> {
        let mut tx = state.pool.begin().await?;
        let Some(request) = self.0 else { return Ok(Once { tx, claimed: None }) };
        let id = state.clock.uuid();
        match first_answers::claim(&mut tx, &request, id, PATIENCE, state.clock.now()).await? {
            Met::First => Ok(Once { tx, claimed: Some((request, id)) }),
            met => Err(instead(state, met)),
        }
    }

    /// Begins what takes several transactions, each of which stays done. Nobody else works under the key meanwhile, whatever
    /// replica they ask, and whoever comes later gets the answer; if the work breaks off there is none, and a repeat carries
    /// out what is left. A transaction that stays open for the whole work would hold up the event stream.
    pub(super) async fn begin_in_parts(self, state: &ApiState, app: AppId) -> Result<InParts, Instead> {
        let Some(request) = self.0 else { return Ok(InParts(None)) };
        let place = state.place_to_search(app).await?;
        let mut alone = state.pool.acquire().await?;
        // Its lock ends with the connection, however the work ends.
        alone.close_on_drop();
        if !first_answers::hold(&mut alone, &request, PATIENCE).await? {
            return Err(instead(state, Met::InProgress));
        }
        match first_answers::find(&mut *alone, &request).await? {
            Some(met) => Err(instead(state, met)),
            None => Ok(InParts(Some(Held { request, alone, _place: place }))),
        }
    }
}

/// Work of several transactions that is to be done now.
pub(super) struct InParts(Option<Held>);

/// The key that it is done under.
struct Held {
    request: first_answers::Request,
    /// What holds the key.
    alone: PoolConnection<Postgres>,
    /// So few at a time that these connections leave enough to work with.
    _place: Place,
}

impl InParts {
    /// Remembers its answer, which must not be an error.
    pub(super) async fn finish(self, state: &ApiState, answer: &impl Serialize) -> Result<Response, Instead> {
        let Some(Held { request, alone, _place }) = self.0 else {
            return Once { tx: state.pool.begin().await?, claimed: None }.finish(state, StatusCode::OK, answer).await;
        };
        let once = Pending(Some(request)).begin(state).await?;
        let answered = once.finish(state, StatusCode::OK, answer).await;
        drop(alone);
        answered
    }
}

fn digest(hash: Context) -> [u8; 32] {
    hash.finish().as_ref().try_into().expect("SHA-256 has 32 octets")
}

/// A request that is to be carried out now, and the transaction to do it in. Dropping it undoes everything, its claim of the key
/// included.
pub(super) struct Once {
    tx: PgTransaction<'static>,
    claimed: Option<(first_answers::Request, Uuid)>,
}

impl Once {
    /// What to do it with.
    pub(super) fn conn(&mut self) -> &mut PgConnection {
        &mut self.tx
    }

    /// Commits it with its answer, which must not be an error.
    pub(super) async fn finish(
        mut self,
        state: &ApiState,
        status: StatusCode,
        answer: &impl Serialize,
    ) -> Result<Response, Instead> {
        let body = Zeroizing::new(serde_json::to_vec(answer).map_err(|_| Problem::internal())?);
        if let Some((request, id)) = &self.claimed {
            let sealed = state.vault.seal(FIRST_ANSWER, *id, &body);
            let code = i16::try_from(status.as_u16()).map_err(|_| Problem::internal())?;
            first_answers::remember(&mut self.tx, request, code, &sealed).await?;
        }
        self.tx.commit().await?;
        Ok(json(status, &body))
    }
}

/// What a request is answered with that is not the first with its key.
fn instead(state: &ApiState, met: Met) -> Instead {
    match met {
        Met::Answered(answer) => match replay(state, &answer) {
            Ok(response) => Instead::Before(Box::new(response)),
            Err(problem) => problem.into(),
        },
        Met::OtherRequest => reused().into(),
        Met::First | Met::InProgress => in_progress().into(),
    }
}

fn replay(state: &ApiState, answer: &Answer) -> Result<Response, Problem> {
    let body = Zeroizing::new(state.vault.open(FIRST_ANSWER, answer.id, &answer.sealed)?);
    let status = u16::try_from(answer.status).ok().and_then(|code| StatusCode::from_u16(code).ok());
    let mut response = json(status.ok_or_else(Problem::internal)?, &body);
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    Ok(response)
}

/// Says of an answer that it is a repeat of the first one.
pub(super) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

fn json(status: StatusCode, body: &[u8]) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_vec()).into_response()
}
