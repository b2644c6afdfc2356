//! `/v1/apps/{app}/messages/batch`: many different messages in one request, each answered for itself.

use std::collections::HashMap;

use aws_lc_rs::digest::SHA256_OUTPUT_LEN;
use axum::extract::{FromRequest as _, Request, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::ApiState;
use super::accept::{Keyed, Taken, accept_named, accept_once, reused};
use super::accepted::Accepted;
use super::auth::{MaySend, Server};
use super::compose::{Composed, NewMessageBody};
use super::extract::{BodyLimit, Json, parse};
use super::messages::{IDEMPOTENCY_KEY, IDEMPOTENCY_KEY_RULE, is_idempotency_key};
use super::problem::{Details, Problem};
use super::retry_headers::RetryHeaders;
use super::templated::Templates;
use crate::store::keys::apps::App;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The routes of this resource.
pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(send))
}

const ROUTE: &str = "POST /v1/apps/{app}/messages/batch";
/// Most messages of a batch.
pub(crate) const MESSAGES_MAX: usize = 1_000;
/// How many times as long as another request's the body of a batch may be.
const BODY_FACTOR: usize = 8;
/// Messages with idempotency keys that are stored in one transaction: it holds their keys until it ends, and whoever sends
/// one of them again waits for it.
const KEYED_AT_ONCE: usize = 64;
/// Messages that are checked before other requests have their turn on this thread: a few ms.
const CHECKED_AT_ONCE: usize = 50;

/// Many messages.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Batch {
    /// 1 to 1,000 messages to named subscriptions or users.
    #[schema(value_type = Vec<NewMessageBody>, min_items = 1, max_items = 1000)]
    messages: Vec<Box<RawValue>>,
}

/// What became of a batch.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchView {
    /// Messages that were accepted, now or before.
    accepted: usize,
    /// Messages that were refused.
    refused: usize,
    /// What became of each message, in their order.
    results: Vec<ResultView>,
}

/// What became of one message of a batch: `message` or `problem`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ResultView {
    /// The HTTP status that it would have been answered with alone.
    #[schema(example = 202)]
    status: u16,
    /// The message that was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Accepted>)]
    message: Option<Value>,
    /// Whether it was taken before, by a request with its idempotency key.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replayed: bool,
    /// Why it was refused; its pointers lead into the body of the batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Details>,
}

impl ResultView {
    fn new(result: Result<Taken, Problem>) -> Self {
        match result {
            Ok(Taken::Now(accepted)) => {
                Self { status: 202, message: Some(accepted.to_json()), replayed: false, problem: None }
            }
            Ok(Taken::Before { status, response }) => {
                Self { status: status.as_u16(), message: Some(response), replayed: true, problem: None }
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

/// Sends up to 1,000 messages, each with its own content, recipients, tier, policy and, if wanted, idempotency key. Each is
/// accepted or refused for itself, as it would have been alone, and counts as a request against the key's limit. The answer is
/// 200 with a status for each, as bulk routes of AWS, Elasticsearch and others answer: the request itself was carried out, and
/// 207 would tell clients no more. Where none could be looked at (401, 403, 413, 422, 429, 503), nothing was sent.
///
/// Messages of a batch are not stored in their order: of those with the same `key` any may be the one that is taken.
///
/// A batch that was cut off may be sent again if its messages have idempotency keys: those that were taken are answered as
/// they were the first time. Keys of batches count apart from those of single requests. The retry headers hold for each message.
#[utoipa::path(post, path = "/v1/apps/{app}/messages/batch", tag = "Messages",
    params(("app" = String, Path, description = "Id or slug"),
        ("Bellwire-Retries" = Option<u32>, Header, description = "Beats each policy's `retries`; also `Upstash-Retries`"),
        ("Bellwire-Retry-Delay" = Option<String>, Header,
            description = "Beats each policy's `retryDelay`; also `Upstash-Retry-Delay`")),
    request_body = Batch, security(("api_key" = ["send"])), responses((status = 200, body = BatchView)))]
pub(crate) async fn send(
    server: Server<MaySend>,
    State(state): State<ApiState>,
    mut request: Request,
) -> Result<axum::Json<BatchView>, Problem> {
    let retries = RetryHeaders::read(request.headers())?;
    if request.headers().contains_key(IDEMPOTENCY_KEY) {
        let detail = "is not for batches: give each message an `idempotency_key`";
        return Err(Problem::invalid_header(IDEMPOTENCY_KEY, detail));
    }
    request.extensions_mut().insert(BodyLimit(state.settings.body_max_bytes.saturating_mul(BODY_FACTOR)));
    let Json(Batch { messages }, _) = Json::<Batch>::from_request(request, &state).await?;
    let n = messages.len();
    if !(1..=MESSAGES_MAX).contains(&n) {
        return Err(Problem::invalid_member("/messages", "must hold 1 to 1000 messages"));
    }
    if let Some(caller) = server.caller.counted_as() {
        state.limits.keys.count_as(caller, u32::try_from(n).unwrap_or(u32::MAX))?;
    }
    let sorted = Sorted::check(&state, &server, &retries, &messages).await;
    let results: Vec<_> = sorted.send(&state, &server.app, n).await?.into_iter().map(ResultView::new).collect();
    let accepted = results.iter().filter(|result| result.problem.is_none()).count();
    Ok(axum::Json(BatchView { accepted, refused: n - accepted, results }))
}

type Outcome = Result<Taken, Problem>;

/// The messages of a batch by what is to be done with them, each with its place.
#[derive(Default)]
struct Sorted {
    refused: Vec<(usize, Problem)>,
    plain: Vec<(usize, Composed)>,
    keyed: Vec<(usize, Keyed)>,
    /// Messages with the key of an earlier one, whose place is the second.
    repeated: Vec<(usize, usize)>,
}

impl Sorted {
    async fn check(
        state: &ApiState,
        server: &Server<MaySend>,
        retries: &RetryHeaders,
        messages: &[Box<RawValue>],
    ) -> Self {
        let sender = server.caller.counted_as();
        let mut sorted = Self::default();
        let mut first = HashMap::<String, (usize, [u8; SHA256_OUTPUT_LEN])>::new();
        let mut templates = Templates::default();
        for (place, raw) in messages.iter().enumerate() {
            if place % CHECKED_AT_ONCE == CHECKED_AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            let (key, composed) = match compose(state, &server.app, retries, &mut templates, raw).await {
                Ok((key, composed)) => (key, composed.sent_by(sender)),
                Err(problem) => {
                    sorted.refused.push((place, problem));
                    continue;
                }
            };
            let Some(key) = key else {
                sorted.plain.push((place, composed));
                continue;
            };
            let digest = retries.digest(raw.get().as_bytes());
            let body_hash = *digest.as_ref().first_chunk().expect("SHA-256 has 32 octets");
            match first.get(&key) {
                None => {
                    first.insert(key.clone(), (place, body_hash));
                    sorted.keyed.push((place, Keyed { composed, key, body_hash: body_hash.to_vec() }));
                }
                Some((earlier, hash)) if *hash == body_hash => sorted.repeated.push((place, *earlier)),
                Some(_) => sorted.refused.push((place, reused())),
            }
        }
        sorted
    }

    /// Sends them, and returns what became of the `n` messages in their order.
    async fn send(self, state: &ApiState, app: &App, n: usize) -> Result<Vec<Outcome>, Problem> {
        let mut outcomes: Vec<Option<Outcome>> = (0..n).map(|_| None).collect();
        for (place, problem) in self.refused {
            outcomes[place] = Some(Err(problem));
        }
        // Those without keys come first: if there is no room for them, nothing was sent at all.
        let (places, plain): (Vec<_>, Vec<_>) = self.plain.into_iter().unzip();
        for (place, accepted) in places.into_iter().zip(accept_named(state, app, plain).await?) {
            outcomes[place] = Some(accepted.map(Taken::Now));
        }
        let mut keyed = self.keyed.into_iter().peekable();
        while keyed.peek().is_some() {
            let (places, group): (Vec<_>, Vec<_>) = keyed.by_ref().take(KEYED_AT_ONCE).unzip();
            for (place, taken) in places.into_iter().zip(accept_once(state, app, ROUTE, group).await) {
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

/// What the same message with the same key is answered with.
fn again(first: &Outcome) -> Outcome {
    match first {
        Ok(Taken::Now(accepted)) => Ok(Taken::Before { status: StatusCode::ACCEPTED, response: accepted.to_json() }),
        Ok(Taken::Before { status, response }) => Ok(Taken::Before { status: *status, response: response.clone() }),
        Err(problem) => Err(problem.clone()),
    }
}

/// Reads and checks one message. Returns its idempotency key, too.
async fn compose(
    state: &ApiState,
    app: &App,
    retries: &RetryHeaders,
    templates: &mut Templates,
    raw: &RawValue,
) -> Result<(Option<String>, Composed), Problem> {
    let mut body: NewMessageBody = parse(raw.get().as_bytes())?;
    let key = body.idempotency_key.take();
    if key.as_deref().is_some_and(|key| !is_idempotency_key(key)) {
        return Err(Problem::invalid_member("/idempotency_key", IDEMPOTENCY_KEY_RULE));
    }
    let template = templates.resolve(state, app.id, body.template.take()).await?;
    let mut composed = body.compose(state, app, retries, None, template)?;
    if !composed.addressed.audience.is_named() {
        let detail = "must name subscriptions or users; send to a topic, or to all, in a request of its own";
        return Err(Problem::invalid_member("/to", detail));
    }
    templates.try_out(state, app.id, &mut composed).await?;
    Ok((key, composed))
}

/// Where a message stands in the body.
fn pointer(place: usize) -> String {
    format!("/messages/{place}")
}
