//! HTTP/2 against a well-behaved library with badly behaved handlers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwire_core::delivery::Urgency;
use bellwire_core::lane::Gateway;
use bellwire_gateway::{BODY_MAX, GatewayConfig, Gateways, Post};
use bellwire_rules::classify::Failure;
use bytes::Bytes;
use h2::server::Builder;
use http::{HeaderValue, Response};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::server::{Server, answer, read};
use super::{HOST, burst, post, post_to, statuses};

/// Long enough to reach a server on this machine, also when it is busy.
const BRIEF: Duration = Duration::from_millis(300);

fn brief(post: Post) -> Post {
    Post { patience: BRIEF, ..post }
}

#[tokio::test]
async fn post_has_the_headers_of_the_standards() {
    let (seen, mut requests) = mpsc::unbounded_channel();
    let server = Server::http2(Builder::new(), move |request, mut respond| {
        let seen = seen.clone();
        async move {
            let (method, uri, headers) = (request.method().clone(), request.uri().clone(), request.headers().clone());
            seen.send((method, uri, headers, read(request).await)).unwrap();
            answer(&mut respond, 201);
        }
    })
    .await;
    let gateways = server.gateways();
    let full = || Post {
        topic: Some(HeaderValue::from_static("0123456789abcdef0123456789abcdef")),
        urgency: Urgency::VeryLow,
        ttl_s: 2_419_200,
        ..post("/wpush/v2/x")
    };
    let common = [
        "authorization: vapid t=a.b.c, k=BA1",
        "content-encoding: aes128gcm",
        "content-length: 6",
        "content-type: application/octet-stream",
        "topic: 0123456789abcdef0123456789abcdef",
        "ttl: 2419200",
        "urgency: very-low",
    ];
    let wns = |ttl_s| Post { gateway: Gateway::Wns, ttl_s, ..full() };
    for (post, changed, added) in [
        (full(), None, None),
        (wns(2_419_200), None, Some("x-wns-cache-policy: cache")),
        (wns(0), Some("ttl: 0"), Some("x-wns-cache-policy: no-cache")),
    ] {
        assert_eq!(gateways.post(post).await.unwrap().status, 201);
        let (method, uri, headers, body) = requests.recv().await.unwrap();
        assert_eq!((method.as_str(), uri.to_string()), ("POST", format!("https://{HOST}/wpush/v2/x")));
        assert_eq!(body, b"sealed");
        let mut lines: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        let mut expected: Vec<_> = common
            .into_iter()
            .map(|line| if line.starts_with("ttl") { changed.unwrap_or(line) } else { line })
            .collect();
        expected.extend(added);
        assert_eq!(lines, expected);
    }
}

#[tokio::test]
async fn path_and_query_go_out_octet_for_octet() {
    let (seen, mut paths) = mpsc::unbounded_channel();
    let server = Server::http2(Builder::new(), move |request, mut respond| {
        seen.send(request.uri().path_and_query().unwrap().to_string()).unwrap();
        async move { answer(&mut respond, 201) }
    })
    .await;
    let gateways = server.gateways();
    for path in [
        "/",
        "/w/?token=BQYAAAC%2bx%2fy%2F%3d%3D",
        "/fcm/send/cX:APA91b-_~!$&'()*+,;=@",
        "/a//b/./../c/",
        "/%7euser/%C3%A9?",
        "/q?a={b}|c\\d^e`f[g]&&==??",
        "/{up}|\\^?UP=1&up=%",
    ] {
        assert_eq!(gateways.recognise(&post(path).endpoint), Ok(Gateway::Other), "{path}");
        assert_eq!(gateways.post(post(path)).await.unwrap().status, 201);
        assert_eq!(paths.recv().await.unwrap(), path);
    }
}

#[tokio::test]
async fn requests_respect_the_stream_limit_of_peers() {
    for allowed in [1, 2, 7] {
        let (open, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let highest = peak.clone();
        let server = Server::http2(Builder::new().max_concurrent_streams(allowed).clone(), move |_, mut respond| {
            let (open, peak) = (open.clone(), peak.clone());
            async move {
                peak.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                open.fetch_sub(1, Ordering::SeqCst);
                answer(&mut respond, 201);
            }
        })
        .await;
        let gateways = Gateways::new(GatewayConfig { connections_per_origin: 1, ..server.settings() }).unwrap();
        // One too many would be refused by the server's own library, and seen here as unprocessed.
        assert_eq!(statuses(burst(&gateways, 100).await), vec![Ok(201); 100]);
        assert_eq!(server.accepted(), 1);
        assert!(highest.load(Ordering::SeqCst) <= allowed as usize);
    }
}

#[tokio::test]
async fn connections_grow_under_load_up_to_the_limit() {
    let all_there = Arc::new(tokio::sync::Barrier::new(30));
    let server = Server::http2(Builder::new().max_concurrent_streams(10).clone(), move |_, mut respond| {
        let all_there = all_there.clone();
        async move {
            all_there.wait().await; // 30 at once need three connections of 10
            answer(&mut respond, 201);
        }
    })
    .await;
    let gateways = Gateways::new(GatewayConfig { connections_per_origin: 3, ..server.settings() }).unwrap();
    assert_eq!(statuses(burst(&gateways, 90).await), vec![Ok(201); 90]);
    assert_eq!(server.accepted(), 3);
}

#[tokio::test]
async fn only_refused_streams_are_unprocessed() {
    let server = Server::http2(Builder::new(), |request, mut respond| async move {
        let reason = match request.uri().path() {
            "/refused" => h2::Reason::REFUSED_STREAM,
            _ => h2::Reason::INTERNAL_ERROR,
        };
        respond.send_reset(reason);
    })
    .await;
    let gateways = server.gateways();
    assert_eq!(gateways.post(post("/refused")).await.unwrap_err(), Failure::Unprocessed);
    assert_eq!(gateways.post(post("/broken")).await.unwrap_err(), Failure::Reset);
    assert_eq!(server.accepted(), 1, "neither costs the connection");
}

#[tokio::test]
async fn broken_connection_resets_requests_in_flight() {
    let server = Server::start("h2", |_, tls| async move {
        let mut connection = h2::server::handshake(tls).await.unwrap();
        let _request = connection.accept().await;
    })
    .await;
    assert_eq!(server.gateways().post(post("/")).await.unwrap_err(), Failure::Reset);
}

#[tokio::test]
async fn goaway_lets_requests_finish_on_old_connection() {
    let server = Server::start("h2", |_, tls| async move {
        let mut connection = h2::server::handshake(tls).await.unwrap();
        let (_, mut respond) = connection.accept().await.unwrap().unwrap();
        connection.graceful_shutdown();
        answer(&mut respond, 201);
        while let Some(Ok(_)) = connection.accept().await {}
    })
    .await;
    let gateways = server.gateways();
    for accepted in 1..=3 {
        assert_eq!(gateways.post(post("/")).await.unwrap().status, 201);
        assert_eq!(server.accepted(), accepted);
        while server.ended() < accepted {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn hanging_gateway_times_out_and_is_reconnected() {
    let (seen, mut events) = mpsc::unbounded_channel();
    let server = Server::http2(Builder::new(), move |request, mut respond| {
        let seen = seen.clone();
        async move {
            if request.uri().path() == "/hang" {
                std::future::poll_fn(|cx| respond.poll_reset(cx)).await.unwrap();
                seen.send("reset").unwrap();
            } else {
                answer(&mut respond, 201);
            }
        }
    })
    .await;
    let gateways = server.gateways();
    assert_eq!(gateways.post(post("/")).await.unwrap().status, 201);
    assert_eq!(gateways.post(brief(post("/hang"))).await.unwrap_err(), Failure::Deadline);
    assert_eq!(events.recv().await, Some("reset"));
    assert_eq!(gateways.post(post("/")).await.unwrap().status, 201);
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn a_request_without_a_stream_is_unprocessed() {
    let server = Server::http2(Builder::new().max_concurrent_streams(1).clone(), |_, mut respond| async move {
        std::future::poll_fn(|cx| respond.poll_reset(cx)).await.unwrap();
    })
    .await;
    let gateways = Gateways::new(GatewayConfig { connections_per_origin: 1, ..server.settings() }).unwrap();
    let begun = Instant::now();
    let hanging = gateways.post(post("/hang"));
    tokio::select! {
        biased;
        _ = hanging => panic!("it hangs"),
        waiting = gateways.post(brief(post("/"))) => assert_eq!(waiting.unwrap_err(), Failure::Unprocessed),
    }
    assert!(begun.elapsed() >= BRIEF);
}

#[tokio::test]
async fn post_waiting_for_stream_is_rechecked_before_sending() {
    let release = Arc::new(tokio::sync::Notify::new());
    let released = release.clone();
    let server = Server::http2(Builder::new().max_concurrent_streams(1).clone(), move |_, mut respond| {
        let released = released.clone();
        async move {
            released.notified().await;
            answer(&mut respond, 201);
        }
    })
    .await;
    let gateways = Gateways::new(GatewayConfig { connections_per_origin: 1, ..server.settings() }).unwrap();
    let first = gateways.post(post("/first"));
    // The second waits for the only stream; by the time it has it, it is not wanted any more.
    let second = gateways.post_if(post("/second"), || false);
    let (first, second, ()) = tokio::join!(biased; first, second, async { release.notify_one() });
    assert_eq!((first.unwrap().status, second.unwrap_err()), (201, Failure::Withdrawn));
}

#[tokio::test]
async fn slow_body_keeps_the_status() {
    let (seen, mut events) = mpsc::unbounded_channel();
    let server = Server::http2(Builder::new(), move |_, mut respond| {
        let seen = seen.clone();
        async move {
            let mut body = respond.send_response(Response::builder().status(404).body(()).unwrap(), false).unwrap();
            body.send_data(Bytes::from_static(b"gone, because"), false).unwrap();
            seen.send("sent").unwrap();
            std::future::poll_fn(|cx| body.poll_reset(cx)).await.unwrap();
            seen.send("reset").unwrap();
        }
    })
    .await;
    let reply = server.gateways().post(brief(post("/"))).await.unwrap();
    assert_eq!((reply.status, &reply.body[..]), (404, &b"gone, because"[..]));
    assert_eq!((events.recv().await, events.recv().await), (Some("sent"), Some("reset")));
}

#[tokio::test]
async fn endless_body_is_cut_and_stream_reset() {
    let reset = Arc::new(Notify::new());
    let told = reset.clone();
    let server = Server::http2(Builder::new(), move |_, mut respond| {
        let told = told.clone();
        async move {
            let mut body = respond.send_response(Response::builder().status(400).body(()).unwrap(), false).unwrap();
            while body.send_data(Bytes::from_static(&[b'x'; 1000]), false).is_ok() {
                body.reserve_capacity(1000);
                if !matches!(std::future::poll_fn(|cx| body.poll_capacity(cx)).await, Some(Ok(_))) {
                    break;
                }
            }
            told.notify_one();
        }
    })
    .await;
    let gateways = server.gateways();
    // Far more than the connection's window in all, so it also shows that the window is given back.
    for _ in 0..100 {
        let reply = gateways.post(post("/")).await.unwrap();
        assert_eq!((reply.status, reply.body.len()), (400, BODY_MAX));
        reset.notified().await;
    }
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_not_followed() {
    let server = Server::http2(Builder::new(), |request, mut respond| async move {
        assert_eq!(request.uri().path(), "/moved");
        let moved = Response::builder().status(307).header("location", format!("https://{HOST}/elsewhere"));
        respond.send_response(moved.body(()).unwrap(), true).unwrap();
    })
    .await;
    let reply = server.gateways().post(post("/moved")).await.unwrap();
    assert_eq!((reply.status, reply.headers.contains_key("location")), (307, true));
}

#[tokio::test]
async fn dropped_post_resets_and_frees_its_stream() {
    let (seen, mut events) = mpsc::unbounded_channel();
    let server = Server::http2(Builder::new().max_concurrent_streams(1).clone(), move |request, mut respond| {
        let seen = seen.clone();
        async move {
            if request.uri().path() == "/hang" {
                seen.send("arrived").unwrap();
                std::future::poll_fn(|cx| respond.poll_reset(cx)).await.unwrap();
            } else {
                answer(&mut respond, 201);
            }
        }
    })
    .await;
    let gateways = Gateways::new(GatewayConfig { connections_per_origin: 1, ..server.settings() }).unwrap();
    tokio::select! {
        _ = gateways.post(post("/hang")) => panic!("it hangs"),
        _ = events.recv() => {}
    }
    assert_eq!(gateways.post(post("/")).await.unwrap().status, 201);
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn idle_connections_close_and_their_origins_are_forgotten() {
    let seen = Arc::new(Mutex::new(0));
    let counter = seen.clone();
    let server = Server::http2(Builder::new(), move |_, mut respond| {
        *counter.lock().unwrap() += 1;
        async move { answer(&mut respond, 201) }
    })
    .await;
    let hosts = (0..50).map(|n| format!("h{n}.{HOST}=other@{}", server.address).parse().unwrap()).collect();
    let gateways = Gateways::new(GatewayConfig { hosts, ..server.settings() }).unwrap();
    for n in 0..50 {
        assert_eq!(gateways.post(post_to(&format!("https://h{n}.{HOST}/"))).await.unwrap().status, 201);
    }
    assert_eq!(gateways.sweep(), 50, "all were in use");
    assert_eq!(server.ended(), 0);
    assert_eq!(gateways.sweep(), 50, "their connections close first");
    while server.ended() < 50 {
        tokio::task::yield_now().await;
    }
    assert_eq!(gateways.sweep(), 0);
    assert_eq!(gateways.post(post_to(&format!("https://h7.{HOST}/"))).await.unwrap().status, 201);
    assert_eq!((*seen.lock().unwrap(), server.accepted()), (51, 51));
}

#[tokio::test]
async fn dropping_the_gateways_closes_their_connections() {
    let server = Server::http2(Builder::new(), |_, mut respond| async move { answer(&mut respond, 201) }).await;
    let gateways = server.gateways();
    assert_eq!(gateways.post(post("/")).await.unwrap().status, 201);
    drop(gateways);
    while server.ended() < 1 {
        tokio::task::yield_now().await;
    }
}
