//! Stores checked messages and builds the responses, with and without idempotency keys.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::api::http::idempotency::{PATIENCE, Replay, in_progress};
use crate::api::http::problem::{Problem, ProblemCode};
use crate::api::messages::accepted::Accepted;
use crate::api::messages::compose::Composed;
use crate::api::messages::group_commit::{KeyedMessage, NotTaken, SendOutcome, tell};
use crate::api::{ApiState, Work};
use bellwire_store as store;
use bellwire_store::keys::apps::App;
use bellwire_store::operations::idempotency::{self, Claim, KeyedRequest};
use bellwire_store::queue::claims::LEASE;
use bellwire_store::queue::sending::{self, Addressed, LeaseHolder, Sent};

/// Maximum wait for another request with the same idempotency key, after a first wait for all keys of the group.
const NO_PATIENCE: Duration = Duration::from_millis(1);

/// Stores a message, and returns after the commit. A message to named recipients shares its commit with others.
pub(in crate::api) async fn accept(state: &ApiState, app: &App, composed: Composed) -> Result<Accepted, Problem> {
    if composed.addressed.audience.is_named() {
        let accepted = accept_named(state, app, vec![composed]).await?.pop();
        return accepted.expect("an answer for each message");
    }
    let Composed { addressed, asked, .. } = composed;
    let mut tx = state.begin().await?;
    let sent = sending::send(&mut tx, &state.vault, &[&addressed], None, state.clock.now()).await?.pop();
    tx.commit().await?;
    (state.engine.tell)(Work::Due);
    let accepted = Accepted::new(app, asked, &sent.expect("what became of each message"))?;
    accepted.note(state, app, false);
    Ok(accepted)
}

/// Stores messages to named recipients independently, and returns the result of each. 503: not enough room for all, and nothing
/// was stored.
pub(in crate::api) async fn accept_named(
    state: &ApiState, app: &App, messages: Vec<Composed>,
) -> Result<Vec<Result<Accepted, Problem>>, Problem> {
    if messages.is_empty() {
        return Ok(Vec::new());
    }
    let (addressed, asked): (Vec<_>, Vec<_>) = messages.into_iter().map(|m| (m.addressed, m.asked)).unzip();
    let answers = state.intake.write(addressed).await?;
    let accepted = |(asked, sent): (_, Result<Sent, NotTaken>)| {
        let accepted = Accepted::new(app, asked, &sent?)?;
        accepted.note(state, app, true);
        Ok(accepted)
    };
    Ok(asked.into_iter().zip(answers).map(accepted).collect())
}

impl From<NotTaken> for Problem {
    fn from(not_taken: NotTaken) -> Self {
        match not_taken {
            NotTaken::Busy => {
                let detail = "Too many messages are waiting to be stored, and this request was not stored. Send it again shortly.";
                Self::new(ProblemCode::TooManyMessages, detail)
                    .with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
            }
            NotTaken::Failed(error) => Self::from(&*error),
        }
    }
}

/// Stores a message, with the idempotency key of its request if there is one. Returns the response.
pub(in crate::api) async fn accept_under(
    state: &ApiState, app: &App, request: Option<KeyedRequest>, composed: Composed,
) -> Result<Response, Problem> {
    let Some(request) = request else { return Ok(answer(&accept(state, app, composed).await?)) };
    let keyed = Keyed { composed, request };
    let taken = match keyed.composed.addressed.audience.is_named() {
        true => accept_shared(state, app, keyed).await?,
        false => accept_alone(state, app, keyed).await?,
    };
    Ok(match taken {
        AcceptResult::Now(accepted) => answer(&accepted),
        AcceptResult::Before(replay) => replay.into_response(),
    })
}

/// Stores a message to named recipients with an idempotency key, in a commit shared with others. Waits for the key before
/// joining a group: on an in-process lock, and in a separate transaction for requests of another process.
async fn accept_shared(
    state: &ApiState, app: &App, Keyed { composed, request }: Keyed,
) -> Result<AcceptResult, Problem> {
    let Composed { addressed, asked, trial } = composed;
    let turn = state.turns.take(request.id(), PATIENCE).await.ok_or_else(in_progress)?;
    let response = {
        let (app, asked) = (app.clone(), asked.clone());
        move |sent: &Sent| Accepted::new(&app, asked.clone(), sent).ok().map(|accepted| accepted.to_json())
    };
    let keyed = KeyedMessage { request, response: Box::new(response), turn };
    match state.intake.write_once(addressed, keyed).await? {
        SendOutcome::Sent(sent) => {
            let accepted = Accepted::new(app, asked, &sent)?;
            accepted.note(state, app, true);
            Ok(AcceptResult::Now(accepted))
        }
        SendOutcome::Before(claim) => Ok(AcceptResult::Before(Replay::new(&state.vault, claim)?)),
        SendOutcome::Elsewhere(again) => {
            // Its turn goes on, so that of this process one waits at a time.
            let (addressed, KeyedMessage { request, turn: _turn, .. }) = *again;
            let composed = Composed { addressed, asked, trial };
            accept_alone(state, app, Keyed { composed, request }).await
        }
    }
}

async fn accept_alone(state: &ApiState, app: &App, keyed: Keyed) -> Result<AcceptResult, Problem> {
    accept_once(state, app, vec![keyed]).await.pop().expect("an answer for each message")
}

fn answer(accepted: &Accepted) -> Response {
    let location = HeaderValue::try_from(&accepted.links.this).expect("ids and slashes");
    (StatusCode::ACCEPTED, [(header::LOCATION, location)], axum::Json(accepted)).into_response()
}

/// A message with an idempotency key.
pub(in crate::api) struct Keyed {
    pub composed: Composed,
    pub request: KeyedRequest,
}

/// Response to a message with an idempotency key.
pub(in crate::api) enum AcceptResult {
    Now(Accepted),
    Before(Replay),
}

/// Stores messages of one app with idempotency keys. Claims, messages and responses are one transaction. Returns the results in
/// order, and runs to its end even if the client disconnects.
pub(in crate::api) async fn accept_once(
    state: &ApiState, app: &App, messages: Vec<Keyed>,
) -> Vec<Result<AcceptResult, Problem>> {
    let (n, once) = (messages.len(), InOne { state: state.clone(), app: app.clone() });
    // A task of its own: rows created under this process's lease must be handed to dispatch, even if the client disconnects.
    let taken = tokio::spawn(async move { once.accept(&messages).await }.in_current_span()).await;
    taken.unwrap_or_else(|_| (0..n).map(|_| Err(Problem::internal())).collect())
}

/// One request with several messages that have idempotency keys.
struct InOne {
    state: ApiState,
    app: App,
}

impl InOne {
    async fn accept(&self, messages: &[Keyed]) -> Vec<Result<AcceptResult, Problem>> {
        match self.try_all(messages, PATIENCE).await {
            Ok(Some(taken)) => return taken,
            Ok(None) if messages.len() == 1 => return vec![Err(in_progress())],
            Ok(None) => {}
            // What Postgres refuses for good it may refuse because of one: see `crate::api::messages::group_commit`.
            Err(error) if messages.len() > 1 && is_of_one(&error) => {}
            Err(error) => return messages.iter().map(|_| Err(Problem::from(&error))).collect(),
        }
        let mut taken = Vec::with_capacity(messages.len());
        for message in messages {
            taken.push(match self.try_all(std::slice::from_ref(message), NO_PATIENCE).await {
                Ok(one) => one.and_then(|mut one| one.pop()).unwrap_or_else(|| Err(in_progress())),
                Err(error) => Err(Problem::from(&error)),
            });
        }
        taken
    }

    /// Stores all messages. `None`: another request held one of the keys for longer than `patience`.
    async fn try_all(
        &self, messages: &[Keyed], patience: Duration,
    ) -> sqlx::Result<Option<Vec<Result<AcceptResult, Problem>>>> {
        let Self { state, app } = self;
        let requests: Vec<_> = messages.iter().map(|message| &message.request).collect();
        let mut tx = state.begin().await?;
        let Some(claims) = idempotency::claim(&mut tx, &requests, patience, state.clock.now()).await? else {
            return Ok(None);
        };
        let claimed = messages.iter().zip(&claims).filter(|(_, claim)| matches!(claim, Claim::First));
        let claimed: Vec<&Addressed> = claimed.map(|(message, _)| &message.composed.addressed).collect();
        let (lease, since) = ((state.engine.lease)(), Instant::now());
        let now = state.clock.now();
        let holder = lease.map(|lease| LeaseHolder { lease, until: now + LEASE });
        let mut sent = sending::send(&mut tx, &state.vault, &claimed, holder, now).await?;
        let answers = self.answers(messages, claims, &sent);
        idempotency::store(&mut tx, &state.vault, &answers.stored, 202).await?;
        idempotency::release(&mut tx, &answers.unused).await?;
        tx.commit().await?;
        tell(&state.engine, lease, since, &mut sent);
        for (Keyed { composed, .. }, taken) in messages.iter().zip(&answers.taken) {
            if let Ok(AcceptResult::Now(accepted)) = taken {
                accepted.note(state, app, composed.addressed.audience.is_named());
            }
        }
        Ok(Some(answers.taken))
    }

    /// Builds the response to each message. `sent` contains the messages whose key was claimed.
    fn answers<'a>(&self, messages: &'a [Keyed], claims: Vec<Claim>, sent: &[Sent]) -> Answers<'a> {
        let (mut answers, mut sent) = (Answers::default(), sent.iter());
        for (Keyed { composed, request }, claim) in messages.iter().zip(claims) {
            let taken = match claim {
                Claim::First => {
                    let sent = sent.next().expect("what became of each message");
                    let accepted = Accepted::new(&self.app, composed.asked.clone(), sent);
                    match &accepted {
                        Ok(accepted) => answers.stored.push((request, accepted.to_json())),
                        Err(_) => answers.unused.push(request),
                    }
                    accepted.map(AcceptResult::Now)
                }
                claim => Replay::new(&self.state.vault, claim).map(AcceptResult::Before),
            };
            answers.taken.push(taken);
        }
        answers
    }
}

/// Whether Postgres may have refused a whole group because of one message.
fn is_of_one(error: &sqlx::Error) -> bool {
    let is_refused = error.as_database_error().is_some() && !store::is_transient(error);
    is_refused || store::is_lock_timeout(error)
}

/// Results of a group of messages with idempotency keys.
#[derive(Default)]
struct Answers<'a> {
    taken: Vec<Result<AcceptResult, Problem>>,
    stored: Vec<(&'a KeyedRequest, Vec<u8>)>,
    unused: Vec<&'a KeyedRequest>,
}
