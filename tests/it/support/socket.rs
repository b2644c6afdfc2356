//! A WebSocket that carries JSON, and calls over it as browsers' remote ends take them.

use std::net::SocketAddr;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use super::app::PATIENCE;

/// Screenshots come in one message.
const MESSAGE_MAX: usize = 64 << 20;

/// One connection, without TLS.
pub struct Socket(WebSocketStream<TcpStream>);

impl Socket {
    pub async fn connect(addr: SocketAddr, path: &str) -> Self {
        let stream = TcpStream::connect(addr).await.expect("somebody listens");
        let config = WebSocketConfig::default().max_message_size(Some(MESSAGE_MAX)).max_frame_size(Some(MESSAGE_MAX));
        let url = format!("ws://{addr}{path}");
        let (socket, _) =
            tokio_tungstenite::client_async_with_config(url, stream, Some(config)).await.expect("a WebSocket");
        Self(socket)
    }

    pub async fn say(&mut self, text: &Value) {
        self.0.send(Message::text(text.to_string())).await.expect("the connection stands");
    }

    /// Next message. `None`: the other side has closed.
    pub async fn hear(&mut self) -> Option<Value> {
        let next = async {
            loop {
                match self.0.next().await {
                    Some(Ok(Message::Text(text))) => break Some(serde_json::from_str(&text).expect("JSON")),
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    _ => break None,
                }
            }
        };
        timeout(PATIENCE, next).await.expect("something comes, or the end")
    }
}

/// Calls with numbered answers: WebDriver BiDi and the DevTools protocol agree on that much.
pub struct Calls {
    socket: Socket,
    serial: u64,
    /// Events without a request.
    pub events: Vec<Value>,
}

impl Calls {
    /// `url`: what the browser printed, and what to add to its path.
    pub async fn connect(url: &str, more: &str) -> Self {
        let rest = url.trim().strip_prefix("ws://").expect("a WebSocket without TLS");
        let (addr, path) = rest.split_once('/').unwrap_or((rest, ""));
        let slash = if path.is_empty() { "" } else { "/" };
        let socket = Socket::connect(addr.parse().expect("an address"), &format!("{slash}{path}{more}")).await;
        Self { socket, serial: 0, events: Vec::new() }
    }

    /// Sends a request and returns the response; `more` are members beside method and parameters.
    pub async fn call_with(&mut self, method: &str, params: Value, more: Value) -> Result<Value, Value> {
        self.serial += 1;
        let mut call = json!({"id": self.serial, "method": method, "params": params});
        call.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        self.socket.say(&call).await;
        loop {
            let mut heard = self.socket.hear().await.unwrap_or_else(|| panic!("the browser ended at {method}"));
            if heard["id"] != self.serial {
                self.events.push(heard);
            } else if heard["error"].is_null() {
                return Ok(heard["result"].take());
            } else {
                return Err(heard);
            }
        }
    }

    #[track_caller]
    pub fn call(&mut self, method: &str, params: Value) -> impl Future<Output = Value> {
        let at = std::panic::Location::caller();
        let method = method.to_owned();
        async move {
            let answer = self.call_with(&method, params, json!({})).await;
            answer.unwrap_or_else(|error| panic!("{method} at {at}: {error}"))
        }
    }
}
