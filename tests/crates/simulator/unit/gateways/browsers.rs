//! Unit tests of `crates/bellwire-simulator/src/gateways/browsers.rs`, which includes them.

use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;

fn connect(browsers: &Browsers, uaid: Option<&str>, now_ms: i64) -> (Visit, UnboundedReceiver<String>) {
    let (outbox, mut inbox) = unbounded_channel();
    let visit = browsers.hello(uaid, outbox, now_ms);
    assert!(inbox.try_recv().unwrap().contains("\"hello\""), "greeted first");
    (visit, inbox)
}

fn push(text: &'static str, ttl_s: u64, topic: Option<&str>) -> Push {
    Push { body: Bytes::from_static(text.as_bytes()), ttl_s, topic: topic.map(Into::into) }
}

fn bodies(inbox: &mut UnboundedReceiver<String>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    while let Ok(frame) = inbox.try_recv() {
        let frame: Value = serde_json::from_str(&frame).unwrap();
        let body = base64url::decode(frame["data"].as_str().unwrap_or_default()).unwrap();
        found.push((String::from_utf8(body).unwrap(), frame["version"].as_str().unwrap().to_owned()));
    }
    found
}

#[test]
fn a_message_is_sent_until_it_is_acknowledged() {
    let browsers = Browsers::default();
    let (visit, mut inbox) = connect(&browsers, None, 0);
    let index = browsers.register(&visit, "c").unwrap();
    assert!(index >= FIRST_INDEX && browsers.register(&visit, "c") == Some(index));
    browsers.push(index, push("one", 60, None), 0);
    assert_eq!(bodies(&mut inbox)[0].0, "one");
    let (visit, mut inbox) = connect(&browsers, Some(&visit.uaid), 1);
    let again = bodies(&mut inbox);
    assert_eq!(again[0].0, "one");
    browsers.ack(&visit, &again[0].1, 100);
    assert_eq!((browsers.report().unacknowledged, browsers.report().acks), (0, [(100, 1)].into()));
    assert!(bodies(&mut connect(&browsers, Some(&visit.uaid), 2).1).is_empty());
}

#[test]
fn offline_topic_replaces_and_ttl_ends() {
    let browsers = Browsers::default();
    let (visit, _) = connect(&browsers, None, 0);
    let index = browsers.register(&visit, "c").unwrap();
    browsers.leave(&visit);
    for message in
        [push("old", 60, Some("t")), push("new", 60, Some("t")), push("short", 1, None), push("now", 0, None)]
    {
        browsers.push(index, message, 0);
    }
    let (_, mut inbox) = connect(&browsers, Some(&visit.uaid), 1_000);
    assert_eq!(bodies(&mut inbox).into_iter().map(|(body, _)| body).collect::<Vec<_>>(), ["new"]);
    let BrowsersReport { replaced, expired, unacknowledged, .. } = browsers.report();
    assert_eq!((replaced, expired, unacknowledged), (1, 2, 1));
}

#[test]
fn ended_channel_is_unknown_and_browser_renamed() {
    let browsers = Browsers::default();
    let (visit, mut inbox) = connect(&browsers, None, 0);
    let index = browsers.register(&visit, "c").unwrap();
    browsers.unregister(&visit, "c");
    assert!(!browsers.knows(index) && browsers.register(&visit, "c") != Some(index));
    browsers.forget();
    assert_eq!(inbox.try_recv(), Err(TryRecvError::Disconnected), "cut off");
    assert_eq!(browsers.register(&visit, "d"), None);
    assert_ne!(connect(&browsers, Some(&visit.uaid), 0).0.uaid, visit.uaid);
}

#[test]
fn late_end_of_older_connection_keeps_newer() {
    let browsers = Browsers::default();
    let (old, mut ended) = connect(&browsers, None, 0);
    let (_, _inbox) = connect(&browsers, Some(&old.uaid), 0);
    assert!(matches!(ended.try_recv(), Err(TryRecvError::Disconnected)));
    browsers.leave(&old);
    assert_eq!(browsers.report().connected, 1);
}

#[test]
fn a_repeat_has_a_version_of_its_own() {
    let browsers = Browsers::default();
    let (visit, mut inbox) = connect(&browsers, None, 0);
    let index = browsers.register(&visit, "c").unwrap();
    assert!(!browsers.push_again(index, 0));
    browsers.push(index, push("one", 60, None), 0);
    assert!(browsers.push_again(index, 0));
    let sent = bodies(&mut inbox);
    assert!(sent[0].0 == sent[1].0 && sent[0].1 != sent[1].1, "{sent:?}");
}
