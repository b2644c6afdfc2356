//! The client connects only to public addresses, and only to servers with a valid certificate.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bellwire_core::subscription::Endpoint;
use bellwire_gateway::{GatewayConfig, Gateways, HostRefused, NoAddress};
use bellwire_rules::classify::Failure;
use tokio::net::TcpListener;

use super::server::{Server, answer};
use super::{burst, post, post_to, settings, statuses};

/// Gateways whose DNS answers every name with what `answer` makes of the number of the question.
pub(super) fn with_dns(
    settings: GatewayConfig, answer: impl Fn(usize) -> Vec<&'static str> + Send + Sync + 'static,
) -> Gateways {
    let asked = AtomicUsize::new(0);
    let fake = move |_: &str| -> Result<Vec<IpAddr>, NoAddress> {
        Ok(answer(asked.fetch_add(1, Ordering::SeqCst)).iter().map(|ip| ip.parse().unwrap()).collect())
    };
    Gateways::with_dns(settings, Box::new(fake)).unwrap()
}

#[tokio::test]
async fn name_with_one_private_address_is_refused() {
    for (answers, refused) in [
        (vec!["127.0.0.1"], HostRefused::NotPublic),
        (vec!["::1"], HostRefused::NotPublic),
        (vec!["10.1.2.3"], HostRefused::NotPublic),
        (vec!["169.254.169.254"], HostRefused::NotPublic),
        (vec!["fe80::1"], HostRefused::NotPublic),
        (vec!["fd00::1"], HostRefused::NotPublic),
        (vec!["100.64.0.1"], HostRefused::NotPublic),
        (vec!["::ffff:10.0.0.1"], HostRefused::NotPublic),
        (vec!["64:ff9b::7f00:1"], HostRefused::NotPublic),
        (vec!["0.0.0.0"], HostRefused::NotPublic),
        (vec!["1.1.1.1", "192.168.0.1"], HostRefused::NotPublic),
        (vec!["2606:4700:4700::1111", "::1"], HostRefused::NotPublic),
        (vec![], HostRefused::Unresolved),
    ] {
        let expected = if answers.is_empty() { Failure::Resolve } else { Failure::Forbidden };
        let answered = answers.clone();
        let gateways = with_dns(GatewayConfig::default(), move |_| answered.clone());
        let post = post_to("https://ntfy.example.org/up");
        assert_eq!(gateways.check_public(&post.endpoint).await, Err(refused), "{answers:?}");
        assert_eq!(gateways.post(post).await.unwrap_err(), expected, "{answers:?}");
    }
    let gateways = with_dns(GatewayConfig::default(), |_| vec!["1.1.1.1", "2606:4700:4700::1111"]);
    let public = Endpoint::parse("https://ntfy.example.org/up").unwrap();
    assert_eq!(gateways.check_public(&public).await, Ok(()));
}

#[tokio::test]
async fn dns64_address_is_judged_as_its_original() {
    let nat64 = || vec!["64:ff9b::/96".parse().unwrap()];
    for (answers, judged) in [
        (vec!["64:ff9b::1.1.1.1"], Ok(())),
        (vec!["64:ff9b::1.1.1.1", "1.1.1.1"], Ok(())),
        (vec!["64:ff9b::10.0.0.1"], Err(HostRefused::NotPublic)),
        (vec!["64:ff9b::1.1.1.1", "64:ff9b::169.254.169.254"], Err(HostRefused::NotPublic)),
        (vec!["64:ff9b:1::1.1.1.1"], Err(HostRefused::NotPublic)),
    ] {
        let answered = answers.clone();
        let gateways =
            with_dns(GatewayConfig { nat64: nat64(), ..GatewayConfig::default() }, move |_| answered.clone());
        let endpoint = Endpoint::parse("https://ntfy.example.org/up").unwrap();
        assert_eq!(gateways.check_public(&endpoint).await, judged, "{answers:?}");
    }
    let gateways = Gateways::new(GatewayConfig { nat64: nat64(), ..GatewayConfig::default() }).unwrap();
    let literal = |url: &str| gateways.recognise(&Endpoint::parse(url).unwrap());
    assert!(literal("https://[64:ff9b::101:101]/up").is_ok());
    assert_eq!(literal("https://[64:ff9b::a00:1]/up"), Err(HostRefused::NotPublic));
}

#[tokio::test]
async fn name_that_becomes_private_is_not_connected() {
    let inside = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateways =
        with_dns(GatewayConfig::default(), |asked| if asked == 0 { vec!["1.1.1.1"] } else { vec!["127.0.0.1"] });
    let post = post_to(&format!("https://ntfy.example.org:{}/up", inside.local_addr().unwrap().port()));
    assert_eq!(gateways.check_public(&post.endpoint).await, Ok(()));
    assert_eq!(gateways.post(post).await.unwrap_err(), Failure::Forbidden);
    tokio::select! {
        biased;
        _ = inside.accept() => panic!("it connected"),
        () = tokio::task::yield_now() => {}
    }
}

/// Results of two look-ups of a host, where `there` decides which hosts DNS resolves. A host missing in two look-ups is gone.
async fn missing(host: &str, there: impl Fn(&str) -> Result<bool, NoAddress> + Send + Sync + 'static) -> [Failure; 2] {
    let fake = move |host: &str| match there(host)? {
        true => Ok(vec!["1.1.1.1".parse().unwrap()]),
        false => Err(NoAddress::NoSuchName),
    };
    let settings = GatewayConfig { gone_after: Duration::ZERO, ..GatewayConfig::default() };
    let gateways = Gateways::with_dns(settings, Box::new(fake)).unwrap();
    [gateways.resolve(host).await.unwrap_err(), gateways.resolve(host).await.unwrap_err()]
}

#[tokio::test]
async fn repeatedly_unknown_host_is_gone() {
    let apple = |host: &str| Ok(host == "web.push.apple.com");
    let gone = [Failure::Resolve, Failure::InvalidHost];
    assert_eq!(missing("nope-1.push.apple.com", apple).await, gone);
    assert_eq!(missing("push.example.org", |host| Ok(host == "fcm.googleapis.com")).await, gone);
    assert_eq!(missing("x.invalid", |_| Err(NoAddress::NotNow)).await, [Failure::InvalidHost; 2]);
}

#[tokio::test]
async fn own_dns_failure_does_not_mark_hosts_gone() {
    let still = [Failure::Resolve; 2];
    assert_eq!(missing("nope-1.push.apple.com", |_| Ok(false)).await, still, "it knows nobody");
    let fcm = |host: &str| Ok(host == "fcm.googleapis.com");
    assert_eq!(missing("nope-1.push.apple.com", fcm).await, still, "it knows nobody at Apple");
    assert_eq!(missing("web.push.apple.com", fcm).await, still, "this one exists");
    assert_eq!(missing("db5p.notify.windows.com", fcm).await, still, "nobody has been seen there yet");
    let passing = |host: &str| if host == "web.push.apple.com" { Ok(true) } else { Err(NoAddress::NotNow) };
    assert_eq!(missing("nope-1.push.apple.com", passing).await, still, "nobody could be asked");
}

#[tokio::test]
async fn a_known_gateway_gets_no_pass() {
    let gateways = with_dns(GatewayConfig::default(), |_| vec!["10.0.0.1"]);
    assert_eq!(gateways.post(post_to("https://fcm.googleapis.com/fcm/send/x")).await.unwrap_err(), Failure::Forbidden);
}

#[tokio::test]
async fn private_address_is_refused_at_connect() {
    let inside = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateways = Gateways::new(GatewayConfig::default()).unwrap();
    let post = post_to(&format!("https://127.0.0.1:{}/", inside.local_addr().unwrap().port()));
    assert_eq!(gateways.post(post).await.unwrap_err(), Failure::Forbidden);
}

#[tokio::test]
async fn checked_address_is_used_with_requested_name() {
    let server = Server::http2(h2::server::Builder::new(), |request, mut respond| async move {
        let asked = request.uri().authority().unwrap().host() == "a.push.example.net";
        answer(&mut respond, if asked { 201 } else { 400 });
    })
    .await;
    let settings = GatewayConfig { allow_loopback: true, hosts: vec![], ..server.settings() };
    let gateways = with_dns(settings, |_| vec!["127.0.0.1"]);
    let post = post_to(&format!("https://a.push.example.net:{}/up", server.address.port()));
    assert_eq!(gateways.check_public(&post.endpoint).await, Ok(()));
    assert_eq!(gateways.post(post).await.unwrap().status, 201);
}

#[tokio::test]
async fn foreign_certificate_is_a_tls_failure() {
    let server = Server::http2(h2::server::Builder::new(), |_, mut respond| async move {
        answer(&mut respond, 201);
    })
    .await;
    let stranger = GatewayConfig { extra_ca_pem: None, ..server.settings() };
    assert_eq!(Gateways::new(stranger).unwrap().post(post("/")).await.unwrap_err(), Failure::Tls);

    let hosts = vec![format!("push.example.com=other@{}", server.address).parse().unwrap()];
    let misnamed = Gateways::new(GatewayConfig { hosts, ..server.settings() }).unwrap();
    assert_eq!(misnamed.post(post_to("https://push.example.com/")).await.unwrap_err(), Failure::Tls);
}

#[tokio::test]
async fn hanging_handshake_ends_at_connect_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hosts = vec![format!("push.example.net=other@{}", listener.local_addr().unwrap()).parse().unwrap()];
    let settings = GatewayConfig { hosts, connect_timeout: Duration::from_millis(50), ..GatewayConfig::default() };
    assert_eq!(Gateways::new(settings).unwrap().post(post("/")).await.unwrap_err(), Failure::Connect);
}

#[tokio::test]
async fn many_posts_share_one_failed_connect() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let fake = move |_: &str| {
        counter.fetch_add(1, Ordering::SeqCst);
        Err(NoAddress::NotNow)
    };
    let settings = GatewayConfig { connect_pause: Duration::from_secs(3600), ..GatewayConfig::default() };
    let gateways = Gateways::with_dns(settings, Box::new(fake)).unwrap();
    for _ in 0..2 {
        assert_eq!(statuses(burst(&gateways, 100).await), vec![Err(Failure::Resolve); 100]);
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn recovered_host_is_reached_after_the_pause() {
    let server = Server::http2(h2::server::Builder::new(), |_, mut respond| async move {
        answer(&mut respond, 201);
    })
    .await;
    let settings = GatewayConfig {
        allow_loopback: true,
        hosts: vec![],
        connect_pause: Duration::from_millis(20),
        ..server.settings()
    };
    let gateways = with_dns(settings, |asked| if asked == 0 { vec![] } else { vec!["127.0.0.1"] });
    let post = || gateways.post(post_to(&format!("https://a.push.example.net:{}/", server.address.port())));
    assert_eq!(post().await.unwrap_err(), Failure::Resolve);
    let reply = loop {
        match post().await {
            Err(Failure::Resolve) => tokio::task::yield_now().await, // paused
            other => break other,
        }
    };
    assert_eq!(reply.unwrap().status, 201);
}

#[tokio::test]
async fn a_closed_port_is_a_connect_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let hosts = vec![format!("push.example.net=other@{address}").parse().unwrap()];
    let gateways = Gateways::new(GatewayConfig { hosts, ..GatewayConfig::default() }).unwrap();
    assert_eq!(gateways.post(post("/")).await.unwrap_err(), Failure::Connect);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let address = "127.0.0.1:1".parse().unwrap();
    for pem in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        assert!(Gateways::new(settings(address, pem)).is_err(), "{pem}");
    }
    for zero in [
        GatewayConfig { connections_per_origin: 0, ..GatewayConfig::default() },
        GatewayConfig { streams_per_connection: 0, ..GatewayConfig::default() },
        GatewayConfig { connect_timeout: Duration::ZERO, ..GatewayConfig::default() },
        GatewayConfig { connect_pause: Duration::ZERO, ..GatewayConfig::default() },
        GatewayConfig { idle_after: Duration::ZERO, ..GatewayConfig::default() },
    ] {
        assert!(Gateways::new(zero).is_err());
    }
}
