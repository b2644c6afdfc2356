//! Cache of the messages and lanes in use, parsed and decrypted.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use chrono::TimeDelta;
use parking_lot::Mutex;
use sqlx::PgPool;
use tracing::{error, warn};

use super::message::{LaneInfo, Message, UnusableRow};
use bellwire_core::clock::{Clock, Timestamp};
use bellwire_core::id::{LaneId, MessageId};
use bellwire_rules::policy::TierSettings;
use bellwire_store::queue::opening::{self, Conditions, FreshMessages, MessageRow};
use bellwire_telemetry::otlp::Tracer;
use bellwire_vault::Vault;
use bellwire_webpush::keys::SigningKey;

/// Maximum cached messages. Each takes about the size of its payload, at most 4 KiB.
const MESSAGES_MAX: usize = 1024;
/// Age after which a message is read again for new claims, so that changed policies of its topic or tier apply.
const FRESH_FOR: TimeDelta = TimeDelta::seconds(60);
/// Age after which a lane is read again. Reading one costs a statement and the decryption of a key, and there may be ten
/// thousand.
const LANE_FRESH_FOR: TimeDelta = TimeDelta::seconds(45);

/// Reason for which a message or lane cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum CatalogError {
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    #[error(transparent)]
    Unusable(#[from] UnusableRow),
    #[error("{0} does not exist")]
    Missing(String),
}

struct CachedMessage {
    message: Arc<Message>,
    at: Timestamp,
}

/// Whether a message that was read at `at` need not be read again. A removal that would replace a later message at the push service
/// loses its topic as soon as there is one.
fn is_fresh(message: &Message, at: Timestamp, now: Timestamp) -> bool {
    let may_replace = message.withdraws_root.is_some() && message.topic.is_some();
    !may_replace && (now - at).abs() < FRESH_FOR
}

pub(super) struct Catalog {
    pool: PgPool,
    vault: Vault,
    clock: Clock,
    server: TierSettings,
    tracer: Tracer,
    messages: Mutex<HashMap<MessageId, CachedMessage>>,
    lanes: Mutex<HashMap<LaneId, (Arc<LaneInfo>, Timestamp)>>,
}

impl Catalog {
    /// Creates an empty catalog. `server` has the settings for tiers without a policy.
    pub(super) fn new(pool: PgPool, vault: Vault, clock: Clock, server: TierSettings, tracer: Tracer) -> Self {
        Self { pool, vault, clock, server, tracer, messages: Mutex::default(), lanes: Mutex::default() }
    }

    /// Returns a message, from memory or the database. If it cannot be read now, the cached version stays in use.
    pub(super) async fn message(&self, id: MessageId) -> Result<Arc<Message>, CatalogError> {
        let now = self.clock.now();
        let known = self.messages.lock().get(&id).map(|opened| (opened.message.clone(), opened.at));
        let known = match known {
            Some((message, at)) if is_fresh(&message, at, now) => return Ok(message),
            known => known.map(|(message, _)| message),
        };
        match (self.read(&[id], FreshMessages::default(), now).await, known) {
            (Ok(mut read), _) => read.pop().unwrap_or_else(|| Err(CatalogError::Missing(id.to_string()))),
            (Err(error), Some(message)) => {
                warn!(%error, message_id = %id, "a message could not be read anew; its policy is taken to be as it was");
                Ok(message)
            }
            (Err(error), None) => Err(error.into()),
        }
    }

    /// Returns several messages. Those neither cached nor `written` just now are read in one query, because each one-time code
    /// is another message. Messages that do not exist or cannot be decrypted are omitted, with an error in the log.
    pub(super) async fn messages(
        &self, ids: BTreeSet<MessageId>, written: FreshMessages,
    ) -> sqlx::Result<HashMap<MessageId, Arc<Message>>> {
        let now = self.clock.now();
        let mut found = HashMap::with_capacity(ids.len());
        let mut wanted = ids;
        for row in &written.messages {
            wanted.remove(&row.id);
        }
        {
            let messages = self.messages.lock();
            wanted.retain(|id| match messages.get(id).filter(|opened| is_fresh(&opened.message, opened.at, now)) {
                Some(opened) => found.insert(*id, opened.message.clone()).is_some(),
                None => true,
            });
        }
        let wanted: Vec<_> = wanted.into_iter().collect();
        for read in self.read(&wanted, written, now).await? {
            match read {
                Ok(message) => drop(found.insert(message.id, message)),
                Err(failed) => error!(error = %failed, "claimed work cannot be sent"),
            }
        }
        Ok(found)
    }

    /// Prepares new messages with the settings that their statement returned, and other messages with their apps' current
    /// settings.
    async fn read(
        &self, ids: &[MessageId], written: FreshMessages, now: Timestamp,
    ) -> sqlx::Result<Vec<Result<Arc<Message>, CatalogError>>> {
        let FreshMessages { messages: mut rows, mut conditions } = written;
        if !ids.is_empty() {
            let loaded = opening::load_messages(&self.pool, ids).await?;
            if loaded.len() < ids.len() {
                error!(n = ids.len() - loaded.len(), "messages of claimed work do not exist");
            }
            rows.extend(loaded);
        }
        let of = rows.iter().map(|row| (row.app, row.tier));
        let unread: BTreeSet<_> = of.filter(|of| !conditions.contains_key(of)).collect();
        if !unread.is_empty() {
            conditions.extend(opening::load_conditions(&self.pool, &unread).await?);
        }
        let opened = rows.iter().map(|row| match conditions.get(&(row.app, row.tier)) {
            Some(conditions) => self.open(row, conditions, now),
            None => Err(CatalogError::Missing(format!("the app of {}", row.id))),
        });
        Ok(opened.collect())
    }

    fn open(&self, row: &MessageRow, conditions: &Conditions, now: Timestamp) -> Result<Arc<Message>, CatalogError> {
        let message = Arc::new(Message::open(row, conditions, &self.vault, &self.server, &self.tracer)?);
        let mut messages = self.messages.lock();
        if messages.len() >= MESSAGES_MAX {
            // Entries in use stay; if all are, the catalog is larger for a while.
            messages.retain(|_, opened| Arc::strong_count(&opened.message) > 1);
        }
        messages.insert(row.id, CachedMessage { message: message.clone(), at: now });
        Ok(message)
    }

    /// Returns a message and a lane. Logs a failure.
    pub(super) async fn open_both(
        &self, lane: LaneId, message: MessageId,
    ) -> Result<(Arc<Message>, Arc<LaneInfo>), CatalogError> {
        match (self.message(message).await, self.lane(lane).await) {
            (Ok(message), Ok(lane)) => Ok((message, lane)),
            (Err(failed), _) | (_, Err(failed)) => {
                error!(error = %failed, "claimed work cannot be sent");
                Err(failed)
            }
        }
    }

    /// Returns a lane with its key, from memory or the database. Only the key's contact and the app's weight can change;
    /// [`forget_lanes`](Self::forget_lanes) handles that.
    pub(super) async fn lane(&self, id: LaneId) -> Result<Arc<LaneInfo>, CatalogError> {
        if let Some((lane, _)) = self.lanes.lock().get(&id) {
            return Ok(lane.clone());
        }
        let row =
            opening::load_lane(&self.pool, id).await?.ok_or_else(|| CatalogError::Missing(format!("lane {id}")))?;
        let unusable = |why: String| UnusableRow { what: row.vapid_key.to_string(), why };
        let private = self.vault.open(bellwire_vault::VAPID_PRIVATE, row.vapid_key, &row.private_key);
        let private = private.map_err(|e| unusable(e.to_string()))?;
        let private = private.try_into().map_err(|_| unusable("a private key has 32 octets".into()))?;
        let key = SigningKey::from_private(private).map_err(|e| unusable(e.to_string()))?;
        let (app, weight, gateway) = (row.app, row.weight, row.gateway);
        let (vapid_key, subject) = (row.vapid_key, row.subject);
        let lane = Arc::new(LaneInfo { id, app, weight, gateway, vapid_key, key, subject });
        self.lanes.lock().insert(id, (lane.clone(), self.clock.now()));
        Ok(lane)
    }

    /// Drops lanes that were read some time ago, so that a changed contact or weight applies within a minute.
    pub(super) fn forget_lanes(&self, now: Timestamp) {
        self.lanes.lock().retain(|_, (_, at)| (now - *at).abs() < LANE_FRESH_FOR);
    }
}
