//! Group commit: messages to named recipients, such as one-time codes, share commits. Messages that arrive during a commit join
//! the next one. A single message is written at once, without a timer.
//!
//! Each request gets its response after the commit of its message. Other messages of the group and a disconnecting client do
//! not affect it.
//!
//! For a message with an idempotency key, the transaction of the group also claims the key and stores the response. It does not
//! wait for a key that another process holds: that request waits separately, without delaying others.

use std::sync::Arc;

use parking_lot::Mutex;
use sqlx::{PgConnection, PgPool};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::api::http::keyed_lock::KeyedLockGuard;
use crate::api::{EngineHandle, Work};
use bellwire_core::clock::Clock;
use bellwire_store as store;
use bellwire_store::operations::idempotency::{self, Claim, KeyedRequest};
use bellwire_store::queue::claims::LEASE;
use bellwire_store::queue::sending::{self, Addressed, Audience, LeaseHolder, Sent, WRITERS};
use bellwire_store::transactions::begin;
use bellwire_telemetry::panics;
use bellwire_vault::Vault;

const MESSAGES_MAX: usize = 64;
/// Maximum recipients in one commit, except for a single message that names more.
const RECIPIENTS_MAX: usize = 1_000;

#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum NotTaken {
    /// Too many messages wait to be written. This message is not stored.
    #[error("too many messages are waiting to be written")]
    Busy,
    #[error("the message could not be written: {0}")]
    Failed(Arc<sqlx::Error>),
}

/// Result of a message after its commit.
pub(crate) type SendResult = Result<SendOutcome, NotTaken>;

#[derive(Debug)]
pub(crate) enum SendOutcome {
    /// The message was processed. [`Sent`] may describe a refusal.
    Sent(Sent),
    Before(Claim),
    /// Another process holds the idempotency key. Returns the message to the caller.
    Elsewhere(Box<(Addressed, KeyedMessage)>),
}

/// Builds the response body to store for a sent message. `None`: the message is refused, and its key stays unused.
pub(crate) type ResponseBody = Box<dyn Fn(&Sent) -> Option<Vec<u8>> + Send + Sync>;

/// Idempotency key of a message, and the builder of its stored response.
pub(crate) struct KeyedMessage {
    pub request: KeyedRequest,
    pub response: ResponseBody,
    /// Lock of the key in this process, so that no group contains the key twice. Dropping it lets the next request run.
    pub turn: KeyedLockGuard,
}

impl std::fmt::Debug for KeyedMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyedMessage").field("request", &self.request).finish_non_exhaustive()
    }
}

struct WaitingMessage {
    addressed: Addressed,
    keyed: Option<KeyedMessage>,
    answer: oneshot::Sender<SendResult>,
}

/// Handle of this process's writer tasks, which start with the first message. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Intake(Arc<IntakeShared>);

struct IntakeShared {
    writer: Writer,
    waiting_max: usize,
    inbox: Mutex<Option<mpsc::Sender<WaitingMessage>>>,
}

impl Intake {
    /// Creates the handle, without starting writers. More than `waiting_max` waiting messages are refused. Connections of
    /// `pool` allow only index plans: planning each single send would cost more than running it.
    pub(crate) fn new(pool: PgPool, vault: Vault, clock: Clock, engine: EngineHandle, waiting_max: usize) -> Self {
        let writer = Writer { pool, vault, clock, engine };
        Self(Arc::new(IntakeShared { writer, waiting_max: waiting_max.max(1), inbox: Mutex::default() }))
    }

    /// Writes messages with named recipients, and waits until each is committed or refused. Either all are queued, or none.
    pub(crate) async fn write(&self, messages: Vec<Addressed>) -> Result<Vec<Result<Sent, NotTaken>>, NotTaken> {
        let sent = |answer: SendResult| match answer? {
            SendOutcome::Sent(sent) => Ok(sent),
            SendOutcome::Before(_) | SendOutcome::Elsewhere(_) => unreachable!("it has no idempotency key"),
        };
        let messages = messages.into_iter().map(|addressed| (addressed, None)).collect();
        Ok(self.take_in(messages).await?.into_iter().map(sent).collect())
    }

    /// Writes a message with an idempotency key once, and waits until it is committed or refused.
    pub(crate) async fn write_once(&self, message: Addressed, keyed: KeyedMessage) -> SendResult {
        self.take_in(vec![(message, Some(keyed))]).await?.pop().expect("an answer for each message")
    }

    async fn take_in(&self, messages: Vec<(Addressed, Option<KeyedMessage>)>) -> Result<Vec<SendResult>, NotTaken> {
        let inbox = self.inbox();
        let room = inbox.try_reserve_many(messages.len()).map_err(|_| NotTaken::Busy)?;
        let mut answers = Vec::with_capacity(messages.len());
        for (place, (addressed, keyed)) in room.zip(messages) {
            let (answer, answered) = oneshot::channel();
            place.send(WaitingMessage { addressed, keyed, answer });
            answers.push(answered);
        }
        let died = || NotTaken::Failed(Arc::new(sqlx::Error::WorkerCrashed));
        let answers = futures_util::future::join_all(answers).await;
        Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(|_| Err(died()))).collect())
    }

    /// Returns the queue of waiting messages. Restarts writers that have panicked.
    fn inbox(&self) -> mpsc::Sender<WaitingMessage> {
        let mut inbox = self.0.inbox.lock();
        match inbox.as_ref().filter(|inbox| !inbox.is_closed()) {
            Some(inbox) => inbox.clone(),
            None => {
                let (sender, waiting) = mpsc::channel(self.0.waiting_max);
                let waiting = Arc::new(tokio::sync::Mutex::new(waiting));
                for _ in 0..WRITERS {
                    tokio::spawn(write_on(self.0.writer.clone(), waiting.clone()));
                }
                inbox.insert(sender).clone()
            }
        }
    }
}

/// Loop of a writer task. Ends when every handle is dropped.
async fn write_on(writer: Writer, inbox: Arc<tokio::sync::Mutex<mpsc::Receiver<WaitingMessage>>>) {
    loop {
        // The task that waits for the first message holds the inbox, so that all waiting messages go into one group.
        let Some(group) = next_group(&mut *inbox.lock().await).await else { return };
        // If it panics, the waiting requests get an error, and the next group is written.
        let _ = panics::caught(writer.write_group(group)).await;
    }
}

/// Waits for a message, and returns it with the others in the queue. `None`: every handle is dropped.
async fn next_group(inbox: &mut mpsc::Receiver<WaitingMessage>) -> Option<Vec<WaitingMessage>> {
    let first = inbox.recv().await?;
    let mut recipients = first.recipients();
    let mut group = vec![first];
    while group.len() < MESSAGES_MAX && recipients < RECIPIENTS_MAX {
        let Ok(next) = inbox.try_recv() else { break };
        recipients += next.recipients();
        group.push(next);
    }
    // Who hung up while it waited has been answered nothing, and nothing is stored for it.
    group.retain(|waiting| !waiting.answer.is_closed());
    Some(group)
}

impl WaitingMessage {
    fn recipients(&self) -> usize {
        match &self.addressed.audience {
            Audience::Subscriptions(ids) | Audience::BrowsersOf(_, ids) => ids.len(),
            Audience::Users(users) => users.len(),
            Audience::Topic { .. } | Audience::All => 0,
        }
    }
}

/// Writes groups of messages, and passes their deliveries to dispatch.
#[derive(Clone)]
struct Writer {
    pool: PgPool,
    vault: Vault,
    clock: Clock,
    engine: EngineHandle,
}

impl Writer {
    /// Writes a group and sends the results. If Postgres refuses the group because of one message, each is written alone.
    async fn write_group(&self, group: Vec<WaitingMessage>) {
        match self.write(&group).await {
            Ok(outcomes) => answer(group, outcomes),
            Err(error) if group.len() > 1 && store::is_lock_timeout(&error) => self.write_apart(group).await,
            // Refused by Postgres itself: nothing of it is stored. What passes by itself would meet each of them, too.
            Err(error) if group.len() > 1 && error.as_database_error().is_some() && !store::is_transient(&error) => {
                self.write_alone(group).await;
            }
            Err(error) => refuse(group, error),
        }
    }

    /// Writes a group in which a key was held too long: messages without a key together, then each of the others alone.
    async fn write_apart(&self, group: Vec<WaitingMessage>) {
        let (named, others): (Vec<_>, Vec<_>) =
            group.into_iter().partition(|waiting| waiting.addressed.message.key.is_some());
        match self.write(&others).await {
            Ok(outcomes) => answer(others, outcomes),
            Err(error) if error.as_database_error().is_some() && !store::is_transient(&error) => {
                self.write_alone(others).await;
            }
            Err(error) => refuse(others, error),
        }
        self.write_alone(named).await;
    }

    async fn write_alone(&self, group: Vec<WaitingMessage>) {
        for waiting in group {
            let alone = vec![waiting];
            match self.write(&alone).await {
                Ok(outcomes) => answer(alone, outcomes),
                Err(error) => refuse(alone, error),
            }
        }
    }

    /// Writes a group in one commit, and passes deliveries to dispatch.
    async fn write(&self, group: &[WaitingMessage]) -> sqlx::Result<Vec<WriteResult>> {
        if group.is_empty() {
            return Ok(Vec::new());
        }
        match group.iter().all(|waiting| waiting.keyed.is_none()) {
            true => self.write_plain(group).await,
            false => self.write_keyed(group).await,
        }
    }

    async fn write_plain(&self, group: &[WaitingMessage]) -> sqlx::Result<Vec<WriteResult>> {
        let messages: Vec<&Addressed> = group.iter().map(|waiting| &waiting.addressed).collect();
        let mut conn = self.pool.acquire().await?;
        let (holder, since) = self.holder();
        let mut sent = sending::send(&mut conn, &self.vault, &messages, holder, self.clock.now()).await?;
        drop(conn);
        tell(&self.engine, holder.map(|holder| holder.lease), since, &mut sent);
        Ok(sent.into_iter().map(WriteResult::Sent).collect())
    }

    /// Claims idempotency keys, writes the messages without a key or with a claimed one, and stores the responses.
    async fn write_keyed(&self, group: &[WaitingMessage]) -> sqlx::Result<Vec<WriteResult>> {
        let keys: Vec<_> = group.iter().filter_map(|waiting| Some(&waiting.keyed.as_ref()?.request)).collect();
        let mut tx = begin(&self.pool).await?;
        let mut claims = idempotency::claim_free(&mut tx, &keys, self.clock.now()).await?.into_iter();
        let mut met = Vec::with_capacity(group.len());
        for waiting in group {
            let claim = waiting.keyed.as_ref().and_then(|_| claims.next());
            met.push(claim.filter(|claim| !matches!(claim, Claim::First)));
        }
        let free: Vec<&WaitingMessage> =
            group.iter().zip(&met).filter(|(_, met)| met.is_none()).map(|(free, _)| free).collect();
        let messages: Vec<&Addressed> = free.iter().map(|waiting| &waiting.addressed).collect();
        let (holder, since) = self.holder();
        let mut sent = sending::send(&mut tx, &self.vault, &messages, holder, self.clock.now()).await?;
        store_responses(&mut tx, &self.vault, &free, &sent).await?;
        tx.commit().await?;
        tell(&self.engine, holder.map(|holder| holder.lease), since, &mut sent);
        let mut sent = sent.into_iter();
        let written = met.into_iter().map(|met| match met {
            Some(claim) => WriteResult::Met(claim),
            None => WriteResult::Sent(sent.next().expect("what became of each message")),
        });
        Ok(written.collect())
    }

    /// Returns the lease holder for rows that are inserted already leased to this process, and the start of the lease.
    fn holder(&self) -> (Option<LeaseHolder>, Instant) {
        let (lease, since) = ((self.engine.lease)(), Instant::now());
        (lease.map(|lease| LeaseHolder { lease, until: self.clock.now() + LEASE }), since)
    }
}

enum WriteResult {
    Sent(Sent),
    /// Idempotency key claimed by another request; the message was not written.
    Met(Claim),
}

/// Stores the responses to written messages with idempotency keys, and releases the keys of refused ones.
async fn store_responses(
    conn: &mut PgConnection, vault: &Vault, messages: &[&WaitingMessage], sent: &[Sent],
) -> sqlx::Result<()> {
    let (mut stored, mut unused) = (Vec::new(), Vec::new());
    for (waiting, sent) in messages.iter().zip(sent) {
        let Some(keyed) = &waiting.keyed else { continue };
        match (keyed.response)(sent) {
            Some(body) => stored.push((&keyed.request, body)),
            None => unused.push(&keyed.request),
        }
    }
    idempotency::store(conn, vault, &stored, 202).await?;
    idempotency::release(conn, &unused).await
}

/// Passes stored messages to dispatch. Rows leased to it start at once, and further rows may be due.
pub(in crate::api) fn tell(engine: &EngineHandle, lease: Option<uuid::Uuid>, since: Instant, sent: &mut [Sent]) {
    let is_due = sent.iter().any(|sent| sent.unknown.is_empty() && sent.born.is_empty());
    let rows: Vec<_> = sent.iter_mut().flat_map(|sent| sent.born.drain(..)).collect();
    if let Some(lease) = lease.filter(|_| !rows.is_empty()) {
        (engine.tell)(Work::Born { lease, since, rows });
    }
    if is_due {
        (engine.tell)(Work::Due);
    }
}

/// Sends the results to the waiting requests. Messages of disconnected clients are sent anyway.
fn answer(group: Vec<WaitingMessage>, written: Vec<WriteResult>) {
    for (WaitingMessage { addressed, keyed, answer }, written) in group.into_iter().zip(written) {
        let outcome = match (written, keyed) {
            (WriteResult::Sent(sent), _) => SendOutcome::Sent(sent),
            (WriteResult::Met(Claim::InProgress), Some(keyed)) => SendOutcome::Elsewhere(Box::new((addressed, keyed))),
            (WriteResult::Met(claim), _) => SendOutcome::Before(claim),
        };
        let _ = answer.send(Ok(outcome));
    }
}

fn refuse(group: Vec<WaitingMessage>, error: sqlx::Error) {
    let error = Arc::new(error);
    for WaitingMessage { answer, .. } in group {
        let _ = answer.send(Err(NotTaken::Failed(error.clone())));
    }
}
