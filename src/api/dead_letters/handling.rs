//! Replays and discards dead letters, one or all that match a filter, and records each operation.

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{DeadLetterDetail, Standing, find, give};
use crate::api::http::auth::{MayRead, MaySteerMessages, Server};
use crate::api::http::caller::Caller;
use crate::api::http::draft::Draft;
use crate::api::http::extract::{PathId, Query};
use crate::api::http::idempotency::{Instead, Making};
use crate::api::http::paging::{Page, Paging};
use crate::api::http::problem::{Faults, Problem, ProblemCode};
use crate::api::messages::compose::TTL_MAX_S;
use crate::api::{ApiState, Work};
use bellwire_core::id::{ActionId, AppId, DeadLetterId, MessageId};
use bellwire_store::outcomes::dead_letters::handling::{self, HandlingAction, Operation, OperationPreview};
use bellwire_store::outcomes::dead_letters::trail::{self, ActionRow};
use bellwire_store::outcomes::dead_letters::{DeadLetterFilter, DeadLetterGroup, GroupBy, groups};

/// Default maximum of dead letters per request.
const CAP_DEFAULT: i64 = 10_000;
/// Upper bound of dead letters per request.
const CAP_MAX: i64 = 100_000;
const MESSAGES_SHOWN: usize = 1_000;

/// Dead letters to replay.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplayRequest {
    /// Filter: open dead letters that match all its members. `{}`: every open dead letter.
    filter: DeadLetterFilter,
    /// Whether to count only, without replaying.
    #[serde(default)]
    dry_run: bool,
    /// Maximum number, 1 to 100,000. By default 10,000. Dead letters of the oldest messages come first. Repeat the request for
    /// the others.
    cap: Option<i64>,
    /// Time to live in seconds from now, 0 to 2,419,200. By default the original time to live of the message.
    ttl: Option<i64>,
}

/// Dead letters to discard.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiscardRequest {
    /// Filter: open dead letters that match all its members. `{}`: every open dead letter.
    filter: DeadLetterFilter,
    /// Whether to count only, without discarding.
    #[serde(default)]
    dry_run: bool,
    /// Maximum number, 1 to 100,000. By default 10,000. The oldest dead letters come first.
    cap: Option<i64>,
}

/// Options of the replay of one dead letter.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ReplayOne {
    /// Time to live in seconds from now, 0 to 2,419,200. By default the original time to live of the message.
    ttl: Option<i64>,
}

/// Result of an operation, or of its dry run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeadLetterActionResult {
    /// Whether this was a dry run, which only counts.
    dry_run: bool,
    /// Id of the operation in the list of actions. Null for a dry run.
    id: Option<ActionId>,
    /// Open dead letters that match the filter.
    matched: i64,
    /// Matching dead letters whose subscription is no longer active. They cannot be replayed, and stay open.
    unreachable: i64,
    /// Matching dead letters whose user has since left that browser. A replay would reach another person, so they cannot be
    /// replayed, and stay open.
    user_left: i64,
    /// Letters that were replayed or discarded.
    handled: i64,
    /// Matching dead letters beyond the cap. Repeat the request for them.
    remaining: i64,
    /// Messages that replay them, the first 1,000.
    messages: Vec<MessageId>,
    /// With `dry_run`: matching dead letters by reason of failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    by_reason: Option<Vec<DeadLetterGroup>>,
    /// With `dry_run`: matching dead letters by message, the largest 1,000 groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    by_message: Option<Vec<DeadLetterGroup>>,
}

fn ttl_s(ttl: Option<i64>) -> Result<Option<i32>, &'static str> {
    let fits = ttl.is_none_or(|ttl| (0..=TTL_MAX_S).contains(&ttl));
    if fits { Ok(ttl.and_then(|ttl| i32::try_from(ttl).ok())) } else { Err("must be 0 to 2419200 seconds") }
}

fn check(filter: &DeadLetterFilter, cap: Option<i64>, faults: &mut Faults) -> i64 {
    let open = filter.state.is_none_or(|state| state == Standing::Open);
    faults.require(open, "/filter/state", "must be `open`: other dead letters cannot be replayed or discarded");
    let cap = cap.unwrap_or(CAP_DEFAULT);
    faults.require((1..=CAP_MAX).contains(&cap), "/cap", "must be 1 to 100000");
    cap
}

fn operation(
    state: &ApiState, app: AppId, caller: &Caller, action: HandlingAction, filter: DeadLetterFilter,
) -> Operation {
    Operation { id: ActionId(state.clock.uuid()), app, action, actor: caller.actor(), filter, began: state.clock.now() }
}

/// Replays dead letters: each message is sent again, as a new message, to the recipients whose deliveries failed. A delivery
/// keeps its id, so a browser that already displayed the message drops the repeat. Messages to named users do not reach the
/// next user of a browser.
///
/// Repeating the request is safe: no dead letter is replayed twice, even after an interruption. Without an `Idempotency-Key` a
/// repeat continues with remaining and new dead letters. With the header, a repeat continues only if the first request was
/// interrupted. If too many requests with the header run, the response is 503 (`searches_busy`).
#[utoipa::path(post, path = "/v1/apps/{app}/dead-letters/replay", tag = "Dead letters", request_body = ReplayRequest,
    responses((status = 200, body = DeadLetterActionResult)))]
pub(crate) async fn replay(
    server: Server<MaySteerMessages>, State(state): State<ApiState>,
    Making(body, mut faults, pending): Making<ReplayRequest>,
) -> Result<Response, Instead> {
    let cap = check(&body.filter, body.cap, &mut faults);
    let ttl_s = ttl_s(body.ttl).unwrap_or_else(|detail| {
        faults.refuse("/ttl", detail);
        None
    });
    faults.finish()?;
    let once = pending.begin_in_parts(&state, server.app.id).await?;
    let operation = operation(&state, server.app.id, &server.caller, HandlingAction::Replay, body.filter);
    let found = handling::count(&state.pool, &operation).await?;
    let left_alone = found.unreachable + found.user_left;
    let answer = if body.dry_run {
        counted(&state, operation, found, left_alone).await?
    } else {
        let sent = || (state.engine.tell)(Work::Due);
        let done = handling::replay(&state.pool, &state.vault, &state.clock, &operation, ttl_s, cap, sent).await?;
        let mut messages = done.messages;
        messages.truncate(MESSAGES_SHOWN);
        DeadLetterActionResult { messages, ..handled(&operation, found, left_alone, done.letters) }
    };
    once.finish(&state, &answer).await
}

/// Discards dead letters: they stay in the archive as discarded.
#[utoipa::path(post, path = "/v1/apps/{app}/dead-letters/discard", tag = "Dead letters", request_body = DiscardRequest,
    responses((status = 200, body = DeadLetterActionResult)))]
pub(crate) async fn discard(
    server: Server<MaySteerMessages>, State(state): State<ApiState>, Draft(body, mut faults, _): Draft<DiscardRequest>,
) -> Result<axum::Json<DeadLetterActionResult>, Problem> {
    let cap = check(&body.filter, body.cap, &mut faults);
    faults.finish()?;
    let operation = operation(&state, server.app.id, &server.caller, HandlingAction::Discard, body.filter);
    let found = handling::count(&state.pool, &operation).await?;
    if body.dry_run {
        return counted(&state, operation, found, 0).await.map(axum::Json);
    }
    let n = handling::discard(&state.pool, &state.clock, &operation, cap).await?;
    Ok(axum::Json(handled(&operation, found, 0, n)))
}

fn handled(operation: &Operation, found: OperationPreview, left_alone: i64, n: i64) -> DeadLetterActionResult {
    DeadLetterActionResult {
        dry_run: false,
        id: Some(operation.id),
        matched: found.matched,
        unreachable: found.unreachable,
        user_left: found.user_left,
        handled: n,
        remaining: (found.matched - left_alone - n).max(0),
        messages: Vec::new(),
        by_reason: None,
        by_message: None,
    }
}

async fn counted(
    state: &ApiState, operation: Operation, found: OperationPreview, left_alone: i64,
) -> Result<DeadLetterActionResult, Problem> {
    let filter = DeadLetterFilter { state: Some(Standing::Open), ..operation.filter.clone() };
    let by = async |by| groups(&state.pool, operation.app, &filter, by).await.map(Some);
    let (by_reason, by_message) = (by(GroupBy::Reason).await?, by(GroupBy::Message).await?);
    let handled = handled(&operation, found, left_alone, 0);
    Ok(DeadLetterActionResult { dry_run: true, id: None, by_reason, by_message, ..handled })
}

/// Replays one dead letter. Content in the response requires the scope `export`, and reading it is recorded in the audit log.
#[utoipa::path(post, path = "/v1/apps/{app}/dead-letters/{dead_letter}/replay", tag = "Dead letters",
    responses((status = 200, body = DeadLetterDetail)))]
pub(crate) async fn replay_one(
    server: Server<MaySteerMessages>, State(state): State<ApiState>, PathId(id): PathId<DeadLetterId>,
    Query(ReplayOne { ttl }): Query<ReplayOne>,
) -> Result<axum::Json<DeadLetterDetail>, Problem> {
    let ttl_s = ttl_s(ttl).map_err(|detail| Problem::invalid_parameter("ttl", detail))?;
    let (app, caller) = (server.app.id, &server.caller);
    must_be_open(&state, app, id).await?;
    let operation = operation(&state, app, caller, HandlingAction::Replay, DeadLetterFilter::one(id));
    let sent = || (state.engine.tell)(Work::Due);
    let done = handling::replay(&state.pool, &state.vault, &state.clock, &operation, ttl_s, 1, sent).await?;
    if done.letters == 0 {
        must_be_open(&state, app, id).await?;
        return Err(not_replayable(handling::count(&state.pool, &operation).await?));
    }
    give(&state, &server, id).await
}

/// Discards one dead letter. Content in the response requires the scope `export`, and reading it is recorded in the audit log.
#[utoipa::path(post, path = "/v1/apps/{app}/dead-letters/{dead_letter}/discard", tag = "Dead letters",
    responses((status = 200, body = DeadLetterDetail)))]
pub(crate) async fn discard_one(
    server: Server<MaySteerMessages>, State(state): State<ApiState>, PathId(id): PathId<DeadLetterId>,
) -> Result<axum::Json<DeadLetterDetail>, Problem> {
    let (app, caller) = (server.app.id, &server.caller);
    must_be_open(&state, app, id).await?;
    let operation = operation(&state, app, caller, HandlingAction::Discard, DeadLetterFilter::one(id));
    if handling::discard(&state.pool, &state.clock, &operation, 1).await? == 0 {
        must_be_open(&state, app, id).await?;
    }
    give(&state, &server, id).await
}

/// Returns a 409 problem with the reason why a dead letter cannot be replayed.
fn not_replayable(found: OperationPreview) -> Problem {
    if found.user_left > 0 {
        let detail = "This dead letter was addressed to a user who has left that browser: a replay would show it to another user.";
        return Problem::new(ProblemCode::UserLeft, detail);
    }
    Problem::new(ProblemCode::Unreachable, "The subscription of this dead letter is no longer active.")
}

async fn must_be_open(state: &ApiState, app: AppId, id: DeadLetterId) -> Result<(), Problem> {
    match find(state, app, id).await?.state {
        Standing::Open => Ok(()),
        Standing::Closed => {
            let detail =
                "A delivery that is gone or expired cannot be replayed: its dead letter is kept only as a record.";
            Err(Problem::new(ProblemCode::DeadLetterClosed, detail))
        }
        Standing::Replayed | Standing::Discarded => {
            Err(Problem::new(ProblemCode::DeadLetterSettled, "This dead letter was already replayed or discarded."))
        }
    }
}

/// Lists replays, discards and exports of dead letters, the latest first. Entries never change.
#[utoipa::path(get, path = "/v1/apps/{app}/dead-letters/audit", tag = "Dead letters",
    responses((status = 200, body = Page<ActionRow>)))]
pub(crate) async fn trail(
    server: Server<MayRead>, State(state): State<ApiState>, uri: Uri, Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let cut = paging.cut()?;
    let rows = trail::list(&state.pool, server.app.id, cut.ask()).await?;
    Ok(cut.page(rows, |row| row.id, |row| row).answer(&uri))
}
