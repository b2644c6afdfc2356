//! Real browsers at a Mozilla host: their connections, channels and unacknowledged messages. State only;
//! [`super::socket`] implements the protocol.
//!
//! As in autopush, a message is kept until it is acknowledged, replaced under its topic, or expired. Kept messages are
//! sent after each hello.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;

use bellwire_core::base64url;

/// First index of the endpoints of browsers. Lower ones are minted.
pub(super) const FIRST_INDEX: u32 = 1 << 31;
/// Maximum time to live in autopush: 30 days.
const TTL_MAX_S: u64 = 2_592_000;

/// Counters of the real browsers of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BrowsersReport {
    /// Number of connected browsers.
    pub connected: u64,
    /// Channels that are registered now.
    pub subscriptions: u64,
    /// Messages that wait for their acknowledgement, sent or not.
    pub unacknowledged: u64,
    /// Messages accepted for browsers.
    pub taken: u64,
    /// Messages sent, repeats included.
    pub sent: u64,
    /// Acknowledgements by code: 100 delivered, 101 not decrypted, 102 not wanted.
    pub acks: BTreeMap<u16, u64>,
    /// Failures of service workers, by code: 301 to 303.
    pub nacks: BTreeMap<u16, u64>,
    /// Messages that a later one with the same topic replaced.
    pub replaced: u64,
    /// Messages dropped after their time to live.
    pub expired: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Push {
    pub body: Bytes,
    /// Time to live in seconds.
    pub ttl_s: u64,
    pub topic: Option<Box<str>>,
}

/// Sender of frames to one connection. Dropping it closes the connection.
pub(super) type Outbox = UnboundedSender<String>;

/// One connection of one browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Visit {
    pub uaid: String,
    serial: u64,
}

struct Kept {
    version: String,
    index: u32,
    push: Push,
    expires_ms: i64,
}

#[derive(Default)]
struct Agent {
    connection: Option<(u64, Outbox)>,
    channels: HashMap<String, u32>,
    kept: Vec<Kept>,
}

#[derive(Default)]
struct BrowserState {
    agents: HashMap<String, Agent>,
    /// Owner of each endpoint, and the last message for it.
    owners: HashMap<u32, (String, Option<Push>)>,
    serial: u64,
    figures: BrowsersReport,
}

#[derive(Default)]
pub(super) struct Browsers(Mutex<BrowserState>);

impl Browsers {
    /// Registers the connection of a browser, answers its hello, and sends its kept messages. An unknown browser gets a
    /// new id. An older connection of the same browser ends.
    pub(super) fn hello(&self, uaid: Option<&str>, outbox: Outbox, now_ms: i64) -> Visit {
        let mut state = self.0.lock();
        let serial = state.next();
        let known = uaid.filter(|uaid| state.agents.contains_key(*uaid)).map(str::to_owned);
        let uaid = known.unwrap_or_else(|| format!("{serial:032x}"));
        let greeting =
            json!({"messageType": "hello", "uaid": uaid, "status": 200, "use_webpush": true, "broadcasts": {}});
        post(&outbox, &greeting);
        let BrowserState { agents, figures, .. } = &mut *state;
        let agent = agents.entry(uaid.clone()).or_default();
        agent.expire(now_ms, figures);
        agent.connection = Some((serial, outbox));
        for kept in &agent.kept {
            agent.send(kept, figures);
        }
        Visit { uaid, serial }
    }

    pub(super) fn leave(&self, visit: &Visit) {
        if let Some(agent) = self.0.lock().agents.get_mut(&visit.uaid) {
            agent.connection.take_if(|(serial, _)| *serial == visit.serial);
        }
    }

    /// Returns the index of the endpoint for a channel, the same one for a repeated registration. Returns `None` for a
    /// forgotten browser.
    pub(super) fn register(&self, visit: &Visit, channel: &str) -> Option<u32> {
        let mut state = self.0.lock();
        let serial = state.next();
        let BrowserState { agents, owners, .. } = &mut *state;
        let channels = &mut agents.get_mut(&visit.uaid)?.channels;
        let fresh = || FIRST_INDEX | u32::try_from(serial % u64::from(FIRST_INDEX)).unwrap_or_default();
        let index = *channels.entry(channel.to_owned()).or_insert_with(fresh);
        owners.entry(index).or_insert_with(|| (visit.uaid.clone(), None));
        Some(index)
    }

    /// Removes a channel and its messages.
    pub(super) fn unregister(&self, visit: &Visit, channel: &str) {
        let mut state = self.0.lock();
        let Some(agent) = state.agents.get_mut(&visit.uaid) else { return };
        if let Some(index) = agent.channels.remove(channel) {
            agent.kept.retain(|kept| kept.index != index);
            state.owners.remove(&index);
        }
    }

    /// Handles the acknowledgement of a message, whether it was shown or failed.
    pub(super) fn ack(&self, visit: &Visit, version: &str, code: u16) {
        let mut state = self.0.lock();
        *state.figures.acks.entry(code).or_default() += 1;
        if let Some(agent) = state.agents.get_mut(&visit.uaid) {
            agent.kept.retain(|kept| kept.version != version);
        }
    }

    pub(super) fn nack(&self, code: u16) {
        *self.0.lock().figures.nacks.entry(code).or_default() += 1;
    }

    pub(super) fn knows(&self, index: u32) -> bool {
        self.0.lock().owners.contains_key(&index)
    }

    /// Accepts a message for an endpoint, and sends it at once if its browser is connected.
    pub(super) fn push(&self, index: u32, push: Push, now_ms: i64) {
        let mut state = self.0.lock();
        let version = format!("{:x}", state.next());
        let BrowserState { agents, owners, figures, .. } = &mut *state;
        let Some((uaid, last)) = owners.get_mut(&index) else { return };
        let Some(agent) = agents.get_mut(uaid) else { return };
        *last = Some(push.clone());
        figures.taken += 1;
        let before = agent.kept.len();
        agent.kept.retain(|kept| kept.index != index || kept.push.topic.is_none() || kept.push.topic != push.topic);
        figures.replaced += (before - agent.kept.len()) as u64;
        let ttl_ms = i64::try_from(push.ttl_s.min(TTL_MAX_S) * 1000).unwrap_or(i64::MAX);
        let kept = Kept { version, index, push, expires_ms: now_ms.saturating_add(ttl_ms) };
        agent.send(&kept, figures);
        agent.kept.push(kept);
        if agent.connection.is_none() {
            agent.expire(now_ms, figures); // what may not wait at all
        }
    }

    /// Accepts the last message of an endpoint again, like a gateway that missed the acknowledgement. Returns `false`
    /// if there was none.
    pub(super) fn push_again(&self, index: u32, now_ms: i64) -> bool {
        let last = self.0.lock().owners.get(&index).and_then(|(_, last)| last.clone());
        let Some(push) = last else { return false };
        self.push(index, push, now_ms);
        true
    }

    /// Forgets all browsers, like a push service that lost its database: connections end, endpoints are gone, and a
    /// browser that reconnects gets a new id.
    pub(super) fn forget(&self) {
        let mut state = self.0.lock();
        state.agents.clear();
        state.owners.clear();
    }

    pub(super) fn report(&self) -> BrowsersReport {
        let state = self.0.lock();
        BrowsersReport {
            connected: state.agents.values().filter(|agent| agent.connection.is_some()).count() as u64,
            subscriptions: state.owners.len() as u64,
            unacknowledged: state.agents.values().map(|agent| agent.kept.len() as u64).sum(),
            ..state.figures.clone()
        }
    }

    /// Resets the counters; browsers and messages stay.
    pub(super) fn reset(&self) {
        self.0.lock().figures = BrowsersReport::default();
    }
}

impl BrowserState {
    fn next(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }
}

impl Agent {
    fn expire(&mut self, now_ms: i64, figures: &mut BrowsersReport) {
        let before = self.kept.len();
        self.kept.retain(|kept| kept.expires_ms > now_ms);
        figures.expired += (before - self.kept.len()) as u64;
    }

    fn send(&self, kept: &Kept, figures: &mut BrowsersReport) {
        let Some((_, outbox)) = &self.connection else { return };
        let channel = self.channels.iter().find(|(_, index)| **index == kept.index).map(|(channel, _)| channel);
        let mut frame = json!({"messageType": "notification", "channelID": channel, "version": kept.version});
        if !kept.push.body.is_empty() {
            frame["data"] = base64url::encode(&kept.push.body).into();
            frame["headers"] = json!({"encoding": "aes128gcm"});
        }
        figures.sent += 1;
        post(outbox, &frame);
    }
}

/// Sends a frame. A connection that is ending accepts no frames, but the message is kept.
fn post(outbox: &Outbox, frame: &Value) {
    let _ended = outbox.send(frame.to_string());
}

#[cfg(test)]
#[path = "../../../../tests/crates/simulator/unit/gateways/browsers.rs"]
mod tests;
