//! Messages to named recipients, one-time codes among them, share their commits: whatever arrives while a commit is under
//! way goes into the next one. A message that comes alone is written at once; nothing waits for a timer.
//!
//! Each request is answered after the commit that its message is in. What becomes of it does not depend on the others of its
//! group, nor on whoever asked for it: once a message is being written, a client that hangs up changes nothing.

use std::sync::Arc;

use parking_lot::Mutex;
use sqlx::PgPool;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::{Engine, Work};
use crate::model::clock::Clock;
use crate::panics;
use crate::store;
use crate::store::queue::claims::LEASE;
use crate::store::queue::sending::{self, Addressed, Audience, Holder, Sent, WRITERS};
use crate::vault::Vault;

/// Messages in one commit.
const MESSAGES_MAX: usize = 64;
/// Recipients in one commit, but for a single message that names more.
const RECIPIENTS_MAX: usize = 1_000;

/// Why a message was not taken.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum NotTaken {
    /// Too many wait to be written. Nothing of it is stored.
    #[error("too many messages are waiting to be written")]
    Busy,
    /// The database refused it, or could not be reached.
    #[error("the message could not be written: {0}")]
    Failed(Arc<sqlx::Error>),
}

/// What became of a message, once that is durable.
pub(crate) type Answer = Result<Sent, NotTaken>;

/// A message that waits to be written.
struct Waiting {
    addressed: Addressed,
    answer: oneshot::Sender<Answer>,
}

/// A handle on this process's writers, which start with the first message. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Intake(Arc<Shared>);

struct Shared {
    writer: Writer,
    waiting_max: usize,
    inbox: Mutex<Option<mpsc::Sender<Waiting>>>,
}

impl Intake {
    /// Prepares everything but the writers. The pool's connections plan by index only: the statement is written for one
    /// plan, and to plan it anew for each single send would cost more than to run it. More than `waiting_max` messages are
    /// refused.
    pub(crate) fn new(pool: PgPool, vault: Vault, clock: Clock, engine: Engine, waiting_max: usize) -> Self {
        let writer = Writer { pool, vault, clock, engine };
        Self(Arc::new(Shared { writer, waiting_max: waiting_max.max(1), inbox: Mutex::default() }))
    }

    /// Has messages written that name their recipients, and waits until each is durable or refused. All of them are taken in,
    /// or none.
    pub(crate) async fn write(&self, messages: Vec<Addressed>) -> Result<Vec<Answer>, NotTaken> {
        let inbox = self.inbox();
        let room = inbox.try_reserve_many(messages.len()).map_err(|_| NotTaken::Busy)?;
        let mut answers = Vec::with_capacity(messages.len());
        for (place, addressed) in room.zip(messages) {
            let (answer, answered) = oneshot::channel();
            place.send(Waiting { addressed, answer });
            answers.push(answered);
        }
        let died = || NotTaken::Failed(Arc::new(sqlx::Error::WorkerCrashed));
        let answers = futures_util::future::join_all(answers).await;
        Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(|_| Err(died()))).collect())
    }

    /// Where messages wait. Writers are started anew should they have died.
    fn inbox(&self) -> mpsc::Sender<Waiting> {
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

/// Ends when every handle is gone.
async fn write_on(writer: Writer, inbox: Arc<tokio::sync::Mutex<mpsc::Receiver<Waiting>>>) {
    loop {
        // Whoever waits for the first message has the inbox, so that all that wait go into one group.
        let Some(group) = next_group(&mut *inbox.lock().await).await else { return };
        // Should it panic, whoever waited is told that it could not be written, and the next group is.
        let _ = panics::caught(writer.write_group(group)).await;
    }
}

/// The next message and what waits behind it. None: there will be no more.
async fn next_group(inbox: &mut mpsc::Receiver<Waiting>) -> Option<Vec<Waiting>> {
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

impl Waiting {
    fn recipients(&self) -> usize {
        match &self.addressed.audience {
            Audience::Subscriptions(ids) => ids.len(),
            Audience::Users(users) => users.len(),
            Audience::Topic { .. } | Audience::All => 0,
        }
    }
}

/// Writes groups of messages, and tells dispatch of them.
#[derive(Clone)]
struct Writer {
    pool: PgPool,
    vault: Vault,
    clock: Clock,
    engine: Engine,
}

impl Writer {
    /// Writes a group and answers everybody. If Postgres refuses the whole because of one, each is tried alone.
    async fn write_group(&self, group: Vec<Waiting>) {
        match self.write(&group).await {
            Ok(sent) => answer(group, sent),
            // Refused by Postgres itself: nothing of it is stored. What passes by itself would meet each of them, too.
            Err(error) if group.len() > 1 && error.as_database_error().is_some() && !store::is_transient(&error) => {
                for waiting in group {
                    let alone = vec![waiting];
                    match self.write(&alone).await {
                        Ok(sent) => answer(alone, sent),
                        Err(error) => refuse(alone, error),
                    }
                }
            }
            Err(error) => refuse(group, error),
        }
    }

    /// Writes a group in one commit, and tells dispatch of what is to be sent.
    async fn write(&self, group: &[Waiting]) -> sqlx::Result<Vec<Sent>> {
        if group.is_empty() {
            return Ok(Vec::new());
        }
        let messages: Vec<&Addressed> = group.iter().map(|waiting| &waiting.addressed).collect();
        let mut conn = self.pool.acquire().await?;
        // From here on the lease runs.
        let (lease, since) = ((self.engine.lease)(), Instant::now());
        let holder = lease.map(|lease| Holder { lease, until: self.clock.now() + LEASE });
        let mut sent = sending::send(&mut conn, &self.vault, &messages, holder).await?;
        drop(conn);
        tell(&self.engine, lease, since, &mut sent);
        Ok(sent)
    }
}

/// Tells dispatch what was stored: what is born leased to it goes out at once, and there may be more to look for.
pub(super) fn tell(engine: &Engine, lease: Option<uuid::Uuid>, since: Instant, sent: &mut [Sent]) {
    let is_due = sent.iter().any(|sent| sent.unknown.is_empty() && sent.born.is_empty());
    let rows: Vec<_> = sent.iter_mut().flat_map(|sent| sent.born.drain(..)).collect();
    if let Some(lease) = lease.filter(|_| !rows.is_empty()) {
        (engine.tell)(Work::Born { lease, since, rows });
    }
    if is_due {
        (engine.tell)(Work::Due);
    }
}

/// Whoever hung up meanwhile hears nothing; what was stored is sent all the same.
fn answer(group: Vec<Waiting>, sent: Vec<Sent>) {
    for (Waiting { answer, .. }, sent) in group.into_iter().zip(sent) {
        let _ = answer.send(Ok(sent));
    }
}

fn refuse(group: Vec<Waiting>, error: sqlx::Error) {
    let error = Arc::new(error);
    for Waiting { answer, .. } in group {
        let _ = answer.send(Err(NotTaken::Failed(error.clone())));
    }
}
