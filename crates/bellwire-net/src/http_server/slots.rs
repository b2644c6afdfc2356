//! Slots for connections: the share of each client, and the choice of a connection to close when all are used.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::ListenerLimits;
use super::address::{household, site};

/// Divisor of a client's connections: one in this many may be in a handshake. Further handshakes wait.
const CONNECTIONS_PER_HANDSHAKE: usize = 4;
/// Factor of the limit of a client that applies to an IPv6 /48, which has 65,536 clients.
const CLIENTS_PER_SITE: usize = 4;
/// Value of `waits_since` for a connection with a request.
const BUSY: u64 = u64::MAX;

/// An IPv4 address, an IPv6 /64 (64) or an IPv6 /48 (48).
type Network = (IpAddr, u8);

/// Hands out the slots of one listener.
pub struct ConnectionSlots {
    all: usize,
    handshakes: usize,
    per_client: Option<usize>,
    open: Arc<Mutex<OpenConnections>>,
    /// Counter that orders the times at which connections became idle.
    turns: Arc<AtomicU64>,
}

/// Slot of one connection. Released on drop, or earlier when [`Activity::closed`] completes.
pub struct ConnectionSlot {
    id: u64,
    open: Arc<Mutex<OpenConnections>>,
    /// Updated by the code that serves the connection.
    pub activity: Arc<Activity>,
    /// Whether another connection was closed to make room.
    pub made_room: bool,
}

/// Reason for a refused slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each variant has its text")]
pub enum Full {
    #[error("all connections have requests (connections_max)")]
    All,
    #[error("a client has all connections that it may have (connections_per_client)")]
    Client,
    #[error("a client has a quarter of its connections in TLS handshakes (connections_per_client)")]
    Handshakes,
}

/// Start of the idle time of a connection, and the signal to close it.
pub struct Activity {
    waits_since: AtomicU64,
    turns: Arc<AtomicU64>,
    close: Notify,
}

impl Activity {
    /// Marks the connection as busy.
    pub fn begin(&self) {
        self.waits_since.store(BUSY, Ordering::Relaxed);
    }

    /// Marks the connection as idle.
    pub fn wait(&self) {
        self.waits_since.store(self.turns.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Completes when the slot was given to another connection.
    pub async fn closed(&self) {
        self.close.notified().await;
    }
}

#[derive(Default)]
struct ClientCounts {
    connections: usize,
    handshakes: usize,
}

struct ConnectionEntry {
    networks: Vec<Network>,
    in_handshake: bool,
    activity: Arc<Activity>,
}

#[derive(Default)]
struct OpenConnections {
    next_id: u64,
    connections: HashMap<u64, ConnectionEntry>,
    networks: HashMap<Network, ClientCounts>,
    handshakes: usize,
}

impl OpenConnections {
    fn insert(&mut self, entry: ConnectionEntry) -> u64 {
        for network in &entry.networks {
            let counts = self.networks.entry(*network).or_default();
            counts.connections += 1;
            counts.handshakes += usize::from(entry.in_handshake);
        }
        self.handshakes += usize::from(entry.in_handshake);
        self.next_id += 1;
        self.connections.insert(self.next_id, entry);
        self.next_id
    }

    fn end_handshake(&mut self, id: u64) {
        let Some(entry) = self.connections.get_mut(&id).filter(|entry| entry.in_handshake) else { return };
        entry.in_handshake = false;
        self.handshakes -= 1;
        for network in &entry.networks {
            self.networks.entry(*network).and_modify(|counts| counts.handshakes -= 1);
        }
    }

    fn remove(&mut self, id: u64) -> Option<Arc<Activity>> {
        self.end_handshake(id);
        let entry = self.connections.remove(&id)?;
        for network in &entry.networks {
            let Some(counts) = self.networks.get_mut(network) else { continue };
            counts.connections -= 1;
            if counts.connections == 0 {
                self.networks.remove(network);
            }
        }
        Some(entry.activity)
    }

    /// Releases the slot of the connection that is idle for longest, and closes it. `in_handshake`: considers
    /// handshakes only. Returns `false` if each connection has a request.
    fn close_longest_idle(&mut self, in_handshake: bool) -> bool {
        let candidates = self.connections.iter().filter(|(_, entry)| entry.in_handshake || !in_handshake);
        let longest = candidates.map(|(id, entry)| (entry.activity.waits_since.load(Ordering::Relaxed), *id)).min();
        let Some((_, id)) = longest.filter(|(since, _)| *since != BUSY) else { return false };
        if let Some(activity) = self.remove(id) {
            activity.close.notify_one();
        }
        true
    }
}

impl ConnectionSlots {
    /// Creates slots for the limits of a listener.
    pub fn new(limits: &ListenerLimits) -> Self {
        // Clients that never finish a handshake leave half of the slots to the others.
        let handshakes = (limits.connections / 2).max(1);
        let per_client = limits.connections_per_client;
        Self { all: limits.connections, handshakes, per_client, open: Arc::default(), turns: Arc::default() }
    }

    /// Takes a slot. If all are used, closes the connection that is idle for longest.
    pub fn take(&self, address: IpAddr, in_handshake: bool) -> Result<ConnectionSlot, Full> {
        let shares = self.shares(address);
        let mut open = self.open.lock();
        for (network, most) in &shares {
            let Some(counts) = open.networks.get(network) else { continue };
            if counts.connections >= *most {
                return Err(Full::Client);
            }
            if in_handshake && counts.handshakes >= (most / CONNECTIONS_PER_HANDSHAKE).max(1) {
                return Err(Full::Handshakes);
            }
        }
        let mut made_room = in_handshake && open.handshakes >= self.handshakes && open.close_longest_idle(true);
        if open.connections.len() >= self.all {
            if !open.close_longest_idle(false) {
                return Err(Full::All);
            }
            made_room = true;
        }
        let waits_since = self.turns.fetch_add(1, Ordering::Relaxed).into();
        let activity = Arc::new(Activity { waits_since, turns: self.turns.clone(), close: Notify::new() });
        let networks = shares.into_iter().map(|(network, _)| network).collect();
        let id = open.insert(ConnectionEntry { networks, in_handshake, activity: activity.clone() });
        Ok(ConnectionSlot { id, open: self.open.clone(), activity, made_room })
    }

    /// Returns the networks of a client with the maximum connections of each.
    fn shares(&self, address: IpAddr) -> Vec<(Network, usize)> {
        let Some(most) = self.per_client else { return Vec::new() };
        let site = site(address).map(|site| ((site, 48), most.saturating_mul(CLIENTS_PER_SITE)));
        [((household(address), 64), most)].into_iter().chain(site).collect()
    }
}

impl ConnectionSlot {
    /// Marks the end of the TLS handshake.
    pub fn end_handshake(&self) {
        self.open.lock().end_handshake(self.id);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.open.lock().remove(self.id);
    }
}
