//! Listeners of the event stream.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::http::Request;
use bellwire::testkit::live::LiveConfig;
use bellwire_store::outcomes::alerts::{self, Alert, AlertKind};
use futures_util::StreamExt as _;
use serde_json::Value;
use tokio::time::timeout;
use tower::ServiceExt as _;

use super::TestApp;
use super::app::PATIENCE;

pub const SERVER_STREAM: &str = "/v1/events/stream";

/// Settings under which new events are read every 20 ms.
pub const SHORT_INTERVALS: LiveConfig = LiveConfig {
    every: Duration::from_millis(20),
    listeners_max: 4,
    places_for_operators: 0,
    listeners_per_app: 4,
    listeners_per_key: 3,
    heartbeat: Duration::from_secs(15),
};

/// Received event.
#[derive(Debug, Clone)]
pub struct ReceivedEvent {
    pub id: Option<String>,
    pub name: String,
    pub data: Value,
}

/// An open stream.
pub struct EventStream {
    pub body: BodyDataStream,
    pub buffer: String,
    pub comments: usize,
    /// The id that it resumes from before there is an event.
    pub hello: Option<String>,
}

impl EventStream {
    /// The next event. None: the stream has ended.
    pub async fn next(&mut self) -> Option<ReceivedEvent> {
        timeout(PATIENCE, self.read()).await.expect("something in time")
    }

    pub async fn read(&mut self) -> Option<ReceivedEvent> {
        loop {
            if let Some((block, rest)) = self.buffer.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.buffer = rest;
                let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
                let Some(name) = field("event: ") else {
                    self.comments += 1;
                    self.hello = field("id: ").or(self.hello.take());
                    continue;
                };
                let data = serde_json::from_str(&field("data: ").expect("data")).expect("JSON");
                return Some(ReceivedEvent { id: field("id: "), name, data });
            }
            let octets = self.body.next().await?.expect("no error");
            self.buffer += std::str::from_utf8(&octets).expect("UTF-8");
        }
    }

    pub async fn hear(&mut self) -> ReceivedEvent {
        self.next().await.expect("the stream goes on")
    }

    /// The next event of that kind.
    pub async fn until(&mut self, name: &str) -> ReceivedEvent {
        loop {
            let heard = self.hear().await;
            assert_ne!(heard.name, "end", "{heard:?}");
            if heard.name == name {
                return heard;
            }
        }
    }
}

pub async fn open_stream(
    router: &Router, path: &str, key: &str, after: Option<&str>,
) -> Result<EventStream, (u16, Value)> {
    open_stream_with(router, path, &[("authorization", &format!("Bearer {key}"))], after).await
}

pub async fn open_stream_with(
    router: &Router, path: &str, shown: &[(&str, &str)], after: Option<&str>,
) -> Result<EventStream, (u16, Value)> {
    let mut request = Request::builder()
        .uri(path)
        .extension(axum::extract::ConnectInfo(std::net::SocketAddr::from(([127, 0, 0, 1], 1))));
    for (name, value) in shown {
        request = request.header(*name, *value);
    }
    if let Some(after) = after {
        request = request.header("last-event-id", after);
    }
    let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    if status != 200 {
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        return Err((status, serde_json::from_slice(&bytes).unwrap()));
    }
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    Ok(EventStream { body: response.into_body().into_data_stream(), buffer: String::new(), comments: 0, hello: None })
}

pub async fn listen(app: &TestApp, path: &str) -> EventStream {
    open_stream(&app.router, path, &app.operator, None).await.expect("there is room")
}

pub async fn raise_alert(app: &TestApp, subject: &str) {
    let alert = Alert { app: None, kind: AlertKind::Sli, subject, detail: "something is late" };
    alerts::raise(&mut app.pool.acquire().await.unwrap(), &alert, app.clock.now()).await.unwrap();
}

/// Receives ten events of a listener.
pub async fn receive_ten(app: &TestApp) {
    let mut ear = listen(app, SERVER_STREAM).await;
    for n in 0..10 {
        raise_alert(app, &n.to_string()).await;
        ear.hear().await;
    }
}
