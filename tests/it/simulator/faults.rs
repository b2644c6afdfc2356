//! Faults of the simulator on streams and connections.

use bellwire_simulator::gateways::{Rule, RuleAction, Simulator};
use bytes::Bytes;
use http::Request;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::sender::{Http2, Vapid, push, read, soon, tls};
use super::{FCM, start};

async fn ready() -> (Simulator, Http2, impl Fn(&Simulator, u32, &str) -> Request<Bytes>) {
    let simulator = start().await;
    let http2 = Http2::connect(&simulator, FCM).await;
    let vapid = Vapid::new(1);
    let push = move |simulator: &Simulator, index: u32, id: &str| {
        push(&simulator.mint("fcm", index, Some(&vapid.public)).unwrap(), &vapid, id)
    };
    (simulator, http2, push)
}

fn once(action: RuleAction) -> Rule {
    Rule { count: Some(1), ..Rule::always(action) }
}

#[tokio::test]
async fn stream_reset_keeps_the_connection() {
    let (simulator, mut http2, push) = ready().await;
    let refused = u32::from(h2::Reason::REFUSED_STREAM);
    simulator.add_rule(once(RuleAction::Reset { code: refused })).unwrap();
    let error = soon(http2.post(push(&simulator, 1, "d"))).await.unwrap_err();
    assert!(error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM), "{error}");
    assert_eq!(soon(http2.post(push(&simulator, 1, "d"))).await.unwrap().status, 201);
    let report = simulator.report();
    assert_eq!(report.accepted, 1);
    assert_eq!(report.unanswered, 1);
    assert_eq!(report.repeats, 1);
    assert_eq!(report.duplicates, 0);
}

#[tokio::test]
async fn lost_response_counts_as_accepted_cut_not() {
    for (action, duplicates) in [(RuleAction::LoseAnswer, 1), (RuleAction::Close, 0)] {
        let (simulator, mut http2, push) = ready().await;
        simulator.add_rule(once(action)).unwrap();
        assert!(soon(http2.post(push(&simulator, 1, "d"))).await.is_err());
        soon(simulator.wait_until(|report| report.hosts[FCM].open_connections == 0)).await;
        let mut again = Http2::connect(&simulator, FCM).await;
        assert_eq!(soon(again.post(push(&simulator, 1, "d"))).await.unwrap().status, 201);
        assert_eq!(simulator.report().duplicates, duplicates);
    }
}

#[tokio::test]
async fn goaway_redirects_new_streams_only() {
    let (simulator, mut http2, push) = ready().await;
    let hold = simulator.add_rule(once(RuleAction::Hold)).unwrap();
    let held = http2.begin(push(&simulator, 1, "d1")).await.unwrap();
    soon(simulator.wait_until(|report| report.rules[0].held == 1)).await;
    simulator.add_rule(once(RuleAction::GoAway)).unwrap();
    assert_eq!(soon(http2.post(push(&simulator, 2, "d2"))).await.unwrap().status, 201);
    simulator.release(hold, 1);
    assert_eq!(soon(held).await.unwrap().status().as_u16(), 201);
    let Http2 { send, ended } = http2;
    drop(send);
    soon(ended).await.unwrap().unwrap();
    assert_eq!(simulator.report().accepted, 2);
}

#[tokio::test]
async fn goaway_below_a_stream_leaves_it_unprocessed() {
    let (simulator, mut http2, push) = ready().await;
    let hold = simulator.add_rule(once(RuleAction::Hold)).unwrap();
    let held = http2.begin(push(&simulator, 1, "d1")).await.unwrap();
    soon(simulator.wait_until(|report| report.rules[0].held == 1)).await;
    simulator.add_rule(once(RuleAction::GoAwayBelow)).unwrap();
    let error = soon(http2.post(push(&simulator, 2, "d2"))).await.unwrap_err();
    assert!(error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR), "{error:?}");
    simulator.release(hold, 1);
    assert_eq!(soon(read(soon(held).await.unwrap())).await.unwrap().status, 201);
    assert_eq!((simulator.delivery("d1").unwrap().accepted, simulator.delivery("d2").unwrap().accepted), (1, 0));
}

#[tokio::test]
async fn stream_limit_is_announced_at_connect() {
    let (simulator, mut http2, push) = ready().await;
    soon(http2.post(push(&simulator, 1, "d1"))).await.unwrap();
    assert_eq!(http2.send.current_max_send_streams(), 100);
    simulator.add_rule(Rule::always(RuleAction::StreamLimit { streams: 3 })).unwrap();
    let mut limited = Http2::connect(&simulator, FCM).await;
    soon(limited.post(push(&simulator, 1, "d2"))).await.unwrap();
    assert_eq!(limited.send.current_max_send_streams(), 3);
    simulator.reset();
    let hold = simulator.add_rule(Rule::always(RuleAction::Hold)).unwrap();
    let mut answers = Vec::new();
    for index in 0..3 {
        answers.push(limited.begin(push(&simulator, index, "d")).await.unwrap());
    }
    soon(simulator.wait_until(|report| report.rules[1].held == 3)).await;
    simulator.remove_rule(hold);
    for answer in answers {
        assert_eq!(soon(answer).await.unwrap().status().as_u16(), 201);
    }
    assert_eq!(simulator.report().hosts[FCM].peak_streams, 3);
}

#[tokio::test]
async fn abandoned_request_leaves_nothing_behind() {
    let (simulator, mut http2, push) = ready().await;
    simulator.add_rule(once(RuleAction::Hang)).unwrap();
    simulator.add_rule(once(RuleAction::Hold)).unwrap();
    let hanging = http2.begin(push(&simulator, 1, "d1")).await.unwrap();
    let held = http2.begin(push(&simulator, 2, "d2")).await.unwrap();
    soon(simulator.wait_until(|report| report.unanswered == 1 && report.rules[1].held == 1)).await;
    drop((hanging, held));
    let report = soon(simulator.wait_until(|report| report.unanswered == 2)).await;
    assert_eq!((report.accepted, report.rules[1].held), (0, 0));
}

#[tokio::test]
async fn bodies_break_off_dawdle_and_never_end() {
    let (simulator, mut http2, push) = ready().await;
    simulator.add_rule(once(RuleAction::Truncate { status: 400 })).unwrap();
    let response = soon(http2.begin(push(&simulator, 1, "d")).await.unwrap()).await.unwrap();
    assert_eq!(response.status().as_u16(), 400);
    assert!(soon(read(response)).await.is_err());

    simulator.add_rule(once(RuleAction::SlowBody { status: 500, octets: 3, every_ms: 1 })).unwrap();
    let answer = soon(http2.post(push(&simulator, 1, "d"))).await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (500, "..."));

    simulator.add_rule(once(RuleAction::EndlessBody { status: 500 })).unwrap();
    let response = soon(http2.begin(push(&simulator, 1, "d")).await.unwrap()).await.unwrap();
    let mut stream = response.into_body();
    let mut octets = 0;
    while octets < 1_000_000 {
        let chunk = soon(stream.data()).await.unwrap().unwrap();
        stream.flow_control().release_capacity(chunk.len()).unwrap();
        octets += chunk.len();
    }
    drop(stream);
    assert_eq!(soon(http2.post(push(&simulator, 1, "e"))).await.unwrap().status, 201);
}

#[tokio::test]
async fn script_redirects_delays_or_replaces_responses() {
    let (simulator, mut http2, push) = ready().await;
    let headers = vec![("x-odd".to_owned(), "1".to_owned())];
    simulator.add_rule(once(RuleAction::Redirect { to: "https://elsewhere.test/".into() })).unwrap();
    simulator.add_rule(once(RuleAction::Answer { status: 507, headers, body: "full".into() })).unwrap();
    simulator.add_rule(Rule { delay_ms: 30, ..once(RuleAction::Gone) }).unwrap();
    let answer = soon(http2.post(push(&simulator, 1, "d"))).await.unwrap();
    assert_eq!((answer.status, answer.header("location")), (307, "https://elsewhere.test/"));
    let answer = soon(http2.post(push(&simulator, 1, "d"))).await.unwrap();
    assert_eq!((answer.status, answer.header("x-odd"), answer.body.as_str()), (507, "1", "full"));
    let before = std::time::Instant::now();
    assert_eq!(soon(http2.post(push(&simulator, 1, "d"))).await.unwrap().status, 410);
    assert!(before.elapsed().as_millis() >= 30);
}

#[tokio::test]
async fn outage_refuses_and_cuts_connections_then_ends() {
    let (simulator, http2, push) = ready().await;
    soon(simulator.wait_until(|report| report.hosts[FCM].open_connections == 1)).await;
    let outage = simulator.add_rule(Rule { host: Some(FCM.into()), ..Rule::always(RuleAction::RefuseTcp) }).unwrap();
    soon(http2.ended).await.unwrap().unwrap_err();
    let report = soon(simulator.wait_until(|report| report.hosts[FCM].open_connections == 0)).await;
    assert_eq!(report.rules[0].hits, 1);
    let refused = soon(tls(&simulator, FCM, b"h2")).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    assert!(soon(tls(&simulator, "apple.bellwire.test", b"h2")).await.is_ok());

    simulator.remove_rule(outage);
    soon(until_open(&simulator)).await;
    simulator.add_rule(Rule { for_ms: Some(20), ..Rule::always(RuleAction::RefuseTcp) }).unwrap();
    soon(simulator.wait_until(|report| report.rules[0].hits == 5 && report.hosts[FCM].open_connections == 0)).await;
    let mut http2 = Http2::over(soon(until_open(&simulator)).await).await;
    assert_eq!(soon(http2.post(push(&simulator, 1, "d"))).await.unwrap().status, 201);
}

/// Connects as soon as the door, which opens in its own time, is open.
async fn until_open(simulator: &Simulator) -> TlsStream<TcpStream> {
    loop {
        match tls(simulator, FCM, b"h2").await {
            Ok(stream) => return stream,
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

#[tokio::test]
async fn tls_can_be_refused_or_kept_waiting() {
    let (simulator, _http2, _push) = ready().await;
    soon(simulator.wait_until(|report| report.hosts[FCM].connections == 1)).await;
    simulator.add_rule(once(RuleAction::RefuseTls)).unwrap();
    simulator.add_rule(once(RuleAction::Stall)).unwrap();
    assert!(soon(tls(&simulator, FCM, b"h2")).await.is_err());
    let simulator = std::sync::Arc::new(simulator);
    let waiting = std::sync::Arc::clone(&simulator);
    let stalled = tokio::spawn(async move { tls(&waiting, FCM, b"h2").await.is_ok() });
    let report =
        soon(simulator.wait_until(|report| report.rules[1].hits == 1 && report.hosts[FCM].connections == 3)).await;
    assert_eq!(report.hosts[FCM].open_connections, 2);
    assert!(!stalled.is_finished());
    stalled.abort();
}
