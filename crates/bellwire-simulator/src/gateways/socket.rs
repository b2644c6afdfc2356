//! Protocol between browser and Mozilla's push service (autopush-rs `autopush_common::message`, Firefox
//! `PushServiceWebSocket`): JSON over a WebSocket. It has no TLS, for a browser that allows that in
//! `dom.push.serverURL`.

use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use futures_util::{SinkExt as _, StreamExt as _};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use super::browsers::{Browsers, Visit};
use super::host::Host;

const MESSAGE_MAX: usize = 64 * 1024;
/// Base64url with optional padding, because Firefox pads keys and other clients may not.
const EITHER: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[derive(Debug, Deserialize)]
#[serde(tag = "messageType", rename_all = "snake_case")]
enum SocketMessage {
    Hello {
        uaid: Option<String>,
    },
    Register {
        #[serde(rename = "channelID")]
        channel: String,
        /// Application server key (VAPID) that the subscription is bound to.
        key: Option<String>,
    },
    Unregister {
        #[serde(rename = "channelID")]
        channel: String,
    },
    Ack {
        updates: Vec<Update>,
    },
    Nack {
        #[serde(default)]
        code: u16,
    },
    BroadcastSubscribe {},
    Ping {},
}

#[derive(Debug, Deserialize)]
struct Update {
    version: String,
    /// Result code. Absent in old browsers, which acknowledge only delivered messages.
    #[serde(default = "delivered")]
    code: u16,
}

fn delivered() -> u16 {
    100
}

/// Accepts browsers until it is aborted, together with their connections.
pub(super) async fn serve(host: Arc<Host>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => { connections.spawn(connection(Arc::clone(&host), stream)); }
                // A browser has disconnected, or descriptors are scarce for a moment.
                Err(_) => tokio::task::yield_now().await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Marks a browser as disconnected when its connection ends in any way.
struct Present<'a>(&'a Host, &'a Browsers, Visit);

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.1.leave(&self.2);
        self.0.logbook.touched.notify_waiters();
    }
}

async fn connection(host: Arc<Host>, stream: TcpStream) {
    let Some(browsers) = &host.browsers else { return };
    let config = WebSocketConfig::default().max_message_size(Some(MESSAGE_MAX));
    let Ok(socket) = tokio_tungstenite::accept_async_with_config(stream, Some(config)).await else { return };
    let (mut to_browser, mut from_browser) = socket.split();
    // A browser that does not start with a hello is disconnected.
    let Some(Ok(Message::Text(first))) = from_browser.next().await else { return };
    let Ok(SocketMessage::Hello { uaid }) = serde_json::from_str(&first) else { return };
    let (outbox, mut inbox) = unbounded_channel();
    let visit = browsers.hello(uaid.as_deref(), outbox, host.now_ms());
    let present = Present(&host, browsers, visit);
    host.logbook.touched.notify_waiters();
    loop {
        let answer = tokio::select! {
            frame = inbox.recv() => match frame {
                Some(frame) => frame,
                None => return, // forgotten, or connected anew
            },
            said = from_browser.next() => match said {
                Some(Ok(Message::Text(said))) => match answer(&host, browsers, &present.2, &said) {
                    Some(Value::Null) => continue,
                    Some(answer) => answer.to_string(),
                    None => return,
                },
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                _ => return,
            },
        };
        if to_browser.send(Message::text(answer)).await.is_err() {
            return;
        }
    }
}

/// Returns the response to a frame, or null if it needs none. `None`: the frame violates the protocol, and the connection ends.
fn answer(host: &Host, browsers: &Browsers, visit: &Visit, said: &str) -> Option<Value> {
    if said.trim() == "{}" {
        return Some(json!({}));
    }
    let answer = match serde_json::from_str(said).ok()? {
        SocketMessage::Hello { .. } => return None,
        SocketMessage::Ping {} => json!({"messageType": "ping"}),
        SocketMessage::BroadcastSubscribe {} => json!({"messageType": "broadcast", "broadcasts": {}}),
        SocketMessage::Register { channel, key } => register(host, browsers, visit, &channel, key.as_deref())?,
        SocketMessage::Unregister { channel } => {
            browsers.unregister(visit, &channel);
            json!({"messageType": "unregister", "channelID": channel, "status": 200})
        }
        SocketMessage::Ack { updates } => {
            updates.iter().for_each(|update| browsers.ack(visit, &update.version, update.code));
            Value::Null
        }
        SocketMessage::Nack { code } => {
            browsers.nack(code);
            Value::Null
        }
    };
    host.logbook.touched.notify_waiters();
    Some(answer)
}

fn register(host: &Host, browsers: &Browsers, visit: &Visit, channel: &str, key: Option<&str>) -> Option<Value> {
    uuid::Uuid::try_parse(channel).ok()?;
    let key = key.map(|key| EITHER.decode(key).ok().filter(|key| key.len() == 65 && key[0] == 4));
    if key == Some(None) {
        return Some(json!({"messageType": "register", "channelID": channel, "status": 400, "pushEndpoint": ""}));
    }
    let index = browsers.register(visit, channel)?;
    let endpoint = host.minter.mint(index, key.flatten().as_deref()).endpoint;
    Some(json!({"messageType": "register", "channelID": channel, "status": 200, "pushEndpoint": endpoint}))
}
