//! `/v1/apps/{app}/messages/batch`: many different messages in one request, each with its own result.

use std::collections::HashMap;

use axum::extract::{FromRequest as _, Request, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::api::ApiState;
use crate::api::http::auth::{MaySend, Server};
use crate::api::http::extract::{BodyLimit, Json, parse};
use crate::api::http::idempotency::{
    IDEMPOTENCY_KEY_RULE, Replay, first_response, idempotency_key, is_idempotency_key, reused,
};
use crate::api::http::problem::{Details, Faults, Problem};
use crate::api::http::routes::routes;
use crate::api::messages::accept::{AcceptResult, Keyed, accept_named, accept_once};
use crate::api::messages::accepted::Accepted;
use crate::api::messages::compose::{Composed, MessageRequest};
use crate::api::messages::retry_headers::RetryHeaders;
use crate::api::state::config::BATCH_MAX;
use crate::api::templates::templated::Templates;
use bellwire_store::keys::apps::App;
use bellwire_store::operations::idempotency::KeyedRequest;
use utoipa_axum::router::OpenApiRouter;

pub(in crate::api) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(send))
}

const ROUTE: &str = "POST /v1/apps/{app}/messages/batch";
/// Size limit of a batch's body, as a multiple of the limit of other requests.
const BODY_FACTOR: usize = 8;
/// Maximum messages with idempotency keys in one transaction, which holds their keys until its end. Repeats of these messages
/// wait.
const KEYED_AT_ONCE: usize = 64;
/// Messages checked before the task yields: a few milliseconds.
const CHECKED_AT_ONCE: usize = 50;

/// Batch of messages.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessageBatch {
    /// 1 to 1,000 messages to named subscriptions or users.
    #[schema(value_type = Vec<MessageRequest>, min_items = 1, max_items = 1000)]
    messages: Vec<Box<RawValue>>,
}

/// Result of a batch.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessageBatchResponse {
    /// Number of accepted messages, including repeats of messages accepted before.
    accepted: usize,
    /// Number of refused messages.
    refused: usize,
    /// Results of the messages, in order.
    results: Vec<BatchResult>,
}

/// Result of one message of a batch: `message` or `problem`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchResult {
    /// HTTP status that a single request with this message would get.
    #[schema(example = 202)]
    status: u16,
    /// The accepted message. Null: refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Accepted>)]
    message: Option<Box<RawValue>>,
    /// Whether an earlier request with the same idempotency key was accepted, and this is its response.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replayed: bool,
    /// Reason of the refusal, with pointers into the body of the batch. Null: accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Details>,
}

impl BatchResult {
    fn new(outcome: BatchOutcome) -> Self {
        let response = outcome.and_then(|taken| match taken {
            AcceptResult::Now(accepted) => Ok((StatusCode::ACCEPTED, false, raw(&accepted.to_json())?)),
            AcceptResult::Before(replay) => Ok((replay.status, true, raw(&replay.body)?)),
        });
        match response {
            Ok((status, replayed, message)) => {
                Self { status: status.as_u16(), message: Some(message), replayed, problem: None }
            }
            Err(problem) => Self {
                status: problem.status.as_u16(),
                message: None,
                replayed: false,
                problem: Some(Details::clone(&problem)),
            },
        }
    }
}

/// Sends up to 1,000 messages, each with its own content, recipients, tier, policy and, optionally, idempotency key. Each is
/// accepted or refused independently, as if sent alone, and counts against the rate limit of the key. The response is 200 with
/// a status for each message. If the request itself was refused (401, 403, 413, 422, 429, 503), nothing was sent.
///
/// Messages of a batch are stored in any order: of several with the same `key`, any one may be accepted.
///
/// An interrupted batch can be repeated if its messages have idempotency keys: accepted messages get their first response
/// again. With the header `Idempotency-Key`, a message without a key gets one derived from the header and its index. Keys in
/// batches are separate from those of single requests. The retry headers apply to each message.
#[utoipa::path(post, path = "/v1/apps/{app}/messages/batch", tag = "Messages",
    params(("Idempotency-Key" = Option<String>, Header, description = "Gives a key to each message without one, by its place"),
        ("Bellwire-Retries" = Option<u32>, Header, description = "Beats each policy's `retries`; also `Upstash-Retries`"),
        ("Bellwire-Retry-Delay" = Option<String>, Header,
            description = "Beats each policy's `retryDelay`; also `Upstash-Retry-Delay`")), request_body = MessageBatch,
    responses((status = 200, body = MessageBatchResponse)))]
pub(crate) async fn send(
    server: Server<MaySend>, State(state): State<ApiState>, mut request: Request,
) -> Result<axum::Json<MessageBatchResponse>, Problem> {
    let retries = RetryHeaders::read(request.headers())?;
    let of_batch = idempotency_key(request.headers())?.map(str::to_owned);
    request.extensions_mut().insert(BodyLimit(state.settings.body_max_bytes.saturating_mul(BODY_FACTOR)));
    let Json(MessageBatch { messages }, _) = Json::<MessageBatch>::from_request(request, &state).await?;
    let n = messages.len();
    if !(1..=BATCH_MAX).contains(&n) {
        return Err(Problem::invalid_member("/messages", "must hold 1 to 1000 messages"));
    }
    if let Some(caller) = server.caller.counted_as() {
        state.limits.keys.count_as(caller, u32::try_from(n).unwrap_or(u32::MAX))?;
    }
    let sorted = Sorted::check(&state, &server, &retries, of_batch.as_deref(), &messages).await;
    let results: Vec<_> = sorted.send(&state, &server.app, n).await?.into_iter().map(BatchResult::new).collect();
    let accepted = results.iter().filter(|result| result.problem.is_none()).count();
    Ok(axum::Json(MessageBatchResponse { accepted, refused: n - accepted, results }))
}

type BatchOutcome = Result<AcceptResult, Problem>;

/// Messages of a batch, sorted by the way they are stored. Each has its index in the batch.
#[derive(Default)]
struct Sorted {
    /// Results of refused messages, and of repeats that would be refused now.
    settled: Vec<(usize, BatchOutcome)>,
    plain: Vec<(usize, Composed)>,
    keyed: Vec<(usize, Keyed)>,
    /// Messages with the key of an earlier message. The second number is the index of that message.
    repeated: Vec<(usize, usize)>,
}

impl Sorted {
    async fn check(
        state: &ApiState, server: &Server<MaySend>, retries: &RetryHeaders, of_batch: Option<&str>,
        messages: &[Box<RawValue>],
    ) -> Self {
        let sender = server.caller.counted_as();
        let mut sorted = Self::default();
        let mut first = HashMap::<Uuid, (usize, KeyedRequest)>::new();
        let mut templates = Templates::default();
        for (place, raw) in messages.iter().enumerate() {
            if place % CHECKED_AT_ONCE == CHECKED_AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            let (key, composed) = compose(state, &server.app, retries, &mut templates, raw).await;
            // No key contains a line feed, so that this one differs from each of a message's own.
            let key = key.or_else(|| of_batch.map(|key| format!("{place}\n{key}")));
            let digest = retries.digest(raw.get().as_bytes());
            let request = key.map(|key| server.keyed_request(&state.vault, ROUTE, &key, &[digest.as_ref()]));
            let composed = match composed {
                Ok(composed) => composed.sent_by(sender),
                Err(refused) => {
                    let before = first_response(state, request.as_ref(), refused).await;
                    sorted.settled.push((place, before.map(AcceptResult::Before)));
                    continue;
                }
            };
            let Some(request) = request else {
                sorted.plain.push((place, composed));
                continue;
            };
            match first.get(&request.id()) {
                None => {
                    first.insert(request.id(), (place, request.clone()));
                    sorted.keyed.push((place, Keyed { composed, request }));
                }
                Some((earlier, other)) if *other == request => sorted.repeated.push((place, *earlier)),
                Some(_) => sorted.settled.push((place, Err(reused()))),
            }
        }
        sorted
    }

    /// Stores the messages, and returns the results of all `n` messages in order.
    async fn send(self, state: &ApiState, app: &App, n: usize) -> Result<Vec<BatchOutcome>, Problem> {
        let mut outcomes: Vec<Option<BatchOutcome>> = (0..n).map(|_| None).collect();
        for (place, outcome) in self.settled {
            outcomes[place] = Some(outcome);
        }
        // Those without keys come first: if there is no room for them, nothing was sent at all.
        let (places, plain): (Vec<_>, Vec<_>) = self.plain.into_iter().unzip();
        for (place, accepted) in places.into_iter().zip(accept_named(state, app, plain).await?) {
            outcomes[place] = Some(accepted.map(AcceptResult::Now));
        }
        let mut keyed = self.keyed.into_iter().peekable();
        while keyed.peek().is_some() {
            let (places, group): (Vec<_>, Vec<_>) = keyed.by_ref().take(KEYED_AT_ONCE).unzip();
            for (place, taken) in places.into_iter().zip(accept_once(state, app, group).await) {
                outcomes[place] = Some(taken);
            }
        }
        for (place, earlier) in self.repeated {
            outcomes[place] = outcomes[earlier].as_ref().map(again);
        }
        let outcomes = outcomes.into_iter().map(|outcome| outcome.expect("an outcome for each message"));
        Ok(outcomes.enumerate().map(|(place, outcome)| outcome.map_err(|p| p.under(&pointer(place)))).collect())
    }
}

fn raw(body: &[u8]) -> Result<Box<RawValue>, Problem> {
    serde_json::from_slice(body).map_err(|_| Problem::internal())
}

/// Returns the result of a repeated message in the same batch.
fn again(first: &BatchOutcome) -> BatchOutcome {
    match first {
        Ok(AcceptResult::Now(accepted)) => {
            Ok(AcceptResult::Before(Replay { status: StatusCode::ACCEPTED, body: Zeroizing::new(accepted.to_json()) }))
        }
        Ok(AcceptResult::Before(replay)) => Ok(AcceptResult::Before(replay.clone())),
        Err(problem) => Err(problem.clone()),
    }
}

/// Parses and checks one message. Also returns its idempotency key if it can be parsed.
async fn compose(
    state: &ApiState, app: &App, retries: &RetryHeaders, templates: &mut Templates, raw: &RawValue,
) -> (Option<String>, Result<Composed, Problem>) {
    let mut body: MessageRequest = match parse(raw.get().as_bytes()) {
        Ok(body) => body,
        Err(problem) => return (None, Err(problem)),
    };
    let key = body.idempotency_key.take();
    if key.as_deref().is_some_and(|key| !is_idempotency_key(key)) {
        return (None, Err(Problem::invalid_member("/idempotency_key", IDEMPOTENCY_KEY_RULE)));
    }
    (key, check(state, app, retries, templates, body).await)
}

/// Checks one message against the current state of the app.
async fn check(
    state: &ApiState, app: &App, retries: &RetryHeaders, templates: &mut Templates, mut body: MessageRequest,
) -> Result<Composed, Problem> {
    let template = templates.resolve(state, app.id, body.template.take()).await?;
    let mut composed = body.compose(state, app, retries, None, template, Faults::default())?;
    if !composed.addressed.audience.is_named() {
        let detail = "must name subscriptions or users; send messages to a topic or to all in separate requests";
        return Err(Problem::invalid_member("/to", detail));
    }
    composed.try_out(templates, state, app.id).await?;
    Ok(composed)
}

fn pointer(place: usize) -> String {
    format!("/messages/{place}")
}
