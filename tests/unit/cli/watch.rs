//! Unit tests of `src/cli/watch.rs`, which includes them.

use serde_json::json;

use super::*;

const STREAM: &str = ": listening\nretry: 2000\nid: 11-0\n\nevent: lane.held\ndata: {\"kind\":\"lane.held\",\"app\":\"app_1\",\
                      \"at\":\"2027-01-15T08:00:00Z\",\"data\":{\"lane\":3,\"reason\":null}}\nid: 12-3\n\n:\n\n\
                      event: end\ndata: {\"reason\":\"lagged\"}\n\n";

#[test]
fn events_are_read_however_they_are_cut() {
    for size in [1, 7, 1_000] {
        let mut frames = Frames::default();
        assert_eq!(frames.push(b": listening\nid: 11-0\n\n"), []);
        assert_eq!(frames.last_id.as_deref(), Some("11-0"), "to resume from before there is an event");
        let read: Vec<Frame> = STREAM.as_bytes().chunks(size).flat_map(|octets| frames.push(octets)).collect();
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].id.as_deref(), &*read[0].kind), (Some("12-3"), "lane.held"));
        assert_eq!(line(&read[0]), "2027-01-15 08:00:00Z  lane.held  app_1  lane=3");
        assert_eq!(read[1], Frame { id: None, kind: "end".into(), data: json!({"reason": "lagged"}) });
    }
}

#[test]
fn page_shows_running_campaigns_and_latest_events() {
    let frame = |kind: &str, data: Value| Frame {
        id: None,
        kind: kind.into(),
        data: json!({"app": "app_1", "at": "2027-01-15T08:00:00Z", "data": data}),
    };
    let mut page = WatchView::default();
    let progress = json!({"message": "msg_1", "state": "sending", "audience_estimate": 200, "targeted": 150,
                          "waiting": 50, "accepted": 90});
    let now = Instant::now();
    page.take(&frame("message.progress", progress), now);
    page.take(&frame("outcomes", json!({"seconds": 2.0, "accepted": 90, "retry": 4})), now);
    let shown = page.to_string();
    assert!(shown.contains("msg_1") && shown.contains("###############...............  50 %"), "{shown}");
    assert!(shown.contains("45/s") && shown.contains("2/s"), "{shown}");
    assert!(!page.age(now + RATE_SHOWN / 2) && page.to_string().contains("45/s"));
    assert!(page.age(now + RATE_SHOWN), "nothing was sent since");
    assert!(!page.to_string().contains("/s"), "{page}");
    page.take(&frame("message.done", json!({"message": "msg_1"})), now);
    (0..RECENT).for_each(|n| page.take(&frame("lane.held", json!({"lane": n})), now));
    let shown = page.to_string();
    assert!(!shown.contains("msg_1") && shown.contains("lane=0") && shown.contains("lane=19"), "{shown}");
}
