//! Messages and lanes that are in use, opened once.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sqlx::PgPool;

use super::job::{LaneInfo, Message, Unusable};
use crate::id::{LaneId, MessageId};
use crate::policy::Settings;
use crate::store::claims::{self, MessageRow};
use crate::vault::{self, Vault};
use crate::webpush::keys::SigningKey;

/// Messages kept open. One is about as large as its payload, 4 KiB at most.
const MESSAGES_MAX: usize = 1024;

/// Why something could not be taken from the catalog.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The database could not be asked.
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    /// The row is there but cannot be used.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// The row is not there: claimed work outlived it.
    #[error("{0} does not exist")]
    Missing(String),
}

/// Opened messages and lanes.
pub struct Catalog {
    pool: PgPool,
    vault: Vault,
    server: Settings,
    messages: Mutex<HashMap<MessageId, Arc<Message>>>,
    lanes: Mutex<HashMap<LaneId, Arc<LaneInfo>>>,
}

impl Catalog {
    /// An empty catalog. Policies take the `server`'s figures where they set none.
    pub fn new(pool: PgPool, vault: Vault, server: Settings) -> Self {
        Self { pool, vault, server, messages: Mutex::default(), lanes: Mutex::default() }
    }

    /// A message, from memory or the database.
    pub async fn message(&self, id: MessageId) -> Result<Arc<Message>, CatalogError> {
        if let Some(message) = self.messages.lock().get(&id) {
            return Ok(message.clone());
        }
        let row = claims::load_message(&self.pool, id).await?.ok_or_else(|| CatalogError::Missing(id.to_string()))?;
        self.open(&row)
    }

    /// Opens a message whose row is at hand.
    pub fn open(&self, row: &MessageRow) -> Result<Arc<Message>, CatalogError> {
        let message = Arc::new(Message::open(row, &self.vault, &self.server)?);
        let mut messages = self.messages.lock();
        if messages.len() >= MESSAGES_MAX {
            // Whatever is in use stays; should all of it be, the catalog is simply larger for a while.
            messages.retain(|_, message| Arc::strong_count(message) > 1);
        }
        messages.insert(row.id, message.clone());
        Ok(message)
    }

    /// A lane with its key, from memory or the database. Neither changes while the process lives, but for the subject,
    /// which [`forget_lanes`](Self::forget_lanes) takes care of.
    pub async fn lane(&self, id: LaneId) -> Result<Arc<LaneInfo>, CatalogError> {
        if let Some(lane) = self.lanes.lock().get(&id) {
            return Ok(lane.clone());
        }
        let row =
            claims::load_lane(&self.pool, id).await?.ok_or_else(|| CatalogError::Missing(format!("lane {}", id.0)))?;
        let unusable = |why: String| Unusable { what: row.vapid_key.to_string(), why };
        let private = self.vault.open(vault::VAPID_PRIVATE, row.vapid_key.0, &row.private_key);
        let private = private.map_err(|e| unusable(e.to_string()))?;
        let private = private.try_into().map_err(|_| unusable("a private key has 32 octets".into()))?;
        let key = SigningKey::from_private(private).map_err(|e| unusable(e.to_string()))?;
        let (app, gateway, vapid_key, subject) = (row.app, row.gateway, row.vapid_key, row.subject);
        let lane = Arc::new(LaneInfo { id, app, gateway, vapid_key, key, subject });
        self.lanes.lock().insert(id, lane.clone());
        Ok(lane)
    }

    /// Reads lanes anew from now on, so that a changed subject is signed with within a minute.
    pub fn forget_lanes(&self) {
        self.lanes.lock().clear();
    }
}
