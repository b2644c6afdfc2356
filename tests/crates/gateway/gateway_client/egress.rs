//! Connections through a proxy: its requests, and that its responses never count as responses of the push service.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bellwire_core::lane::Gateway;
use bellwire_core::subscription::Endpoint;
use bellwire_gateway::{Egress, GatewayConfig, Gateways, HostRefused, Proxy, Resolve};
use bellwire_rules::classify::Failure;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::guarding::with_dns;
use super::server::{Server, answer};
use super::{HOST, burst, post, post_to, statuses};

/// A proxy that is asked, and what it was asked for.
struct FakeProxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl FakeProxy {
    /// Hands each connection to `script`, which notes what was asked for.
    async fn start<F: Future<Output = std::io::Result<()>> + Send + 'static>(
        script: impl Fn(TcpStream, Arc<Mutex<Vec<String>>>) -> F + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
        let told = asked.clone();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let serving = script(tcp, told.clone());
                tokio::spawn(async move { drop(serving.await) });
            }
        });
        Self { address, asked }
    }

    /// Answers each CONNECT with these bytes. After a 200 it tunnels to that server.
    async fn http(answer: impl Into<Vec<u8>>, server: Option<SocketAddr>) -> Self {
        let answer: Arc<[u8]> = answer.into().into();
        Self::start(move |mut tcp, asked| {
            let answer = answer.clone();
            async move {
                let head = head(&mut tcp).await?;
                asked.lock().push(head);
                tcp.write_all(&answer).await?;
                match server.filter(|_| answer.starts_with(b"HTTP/1.1 200")) {
                    Some(server) => {
                        copy_bidirectional(&mut tcp, &mut TcpStream::connect(server).await?).await.map(drop)
                    }
                    None => Ok(()),
                }
            }
        })
        .await
    }

    /// Proxy for SOCKS 5 with these credentials. It sends this reply code, and tunnels to that server after 0.
    async fn socks(credentials: Option<(&'static str, &'static str)>, reply: u8, server: SocketAddr) -> Self {
        Self::start(move |mut tcp, asked| async move {
            let ways = octets(&mut tcp, 2).await?;
            let ways = octets(&mut tcp, ways[1].into()).await?;
            let way = if credentials.is_some() { 2 } else { 0 };
            if !ways.contains(&way) {
                return tcp.write_all(&[5, 0xff]).await;
            }
            tcp.write_all(&[5, way]).await?;
            if let Some((user, password)) = credentials {
                let mut said = Vec::new();
                assert_eq!(octets(&mut tcp, 1).await?, [1]);
                for _ in 0..2 {
                    let length = octets(&mut tcp, 1).await?[0];
                    said.push(String::from_utf8(octets(&mut tcp, length.into()).await?).unwrap());
                }
                let is_right = said == [user, password];
                tcp.write_all(&[1, u8::from(!is_right)]).await?;
                if !is_right {
                    return Ok(());
                }
            }
            let request = octets(&mut tcp, 4).await?;
            let length = match request[3] {
                1 => 4,
                4 => 16,
                _ => octets(&mut tcp, 1).await?[0].into(),
            };
            let (host, port) = (octets(&mut tcp, length).await?, octets(&mut tcp, 2).await?);
            let host = match request[3] {
                1 => std::net::Ipv4Addr::from(<[u8; 4]>::try_from(host).unwrap()).to_string(),
                4 => std::net::Ipv6Addr::from(<[u8; 16]>::try_from(host).unwrap()).to_string(),
                _ => String::from_utf8(host).unwrap(),
            };
            asked.lock().push(format!("{host} {}", u16::from_be_bytes([port[0], port[1]])));
            tcp.write_all(&[5, reply, 0, 3, 3, b'a', b'.', b'b', 0, 80]).await?;
            if reply == 0 {
                copy_bidirectional(&mut tcp, &mut TcpStream::connect(server).await?).await?;
            }
            Ok(())
        })
        .await
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }

    fn asked_for(&self) -> Vec<String> {
        self.asked().iter().map(|head| head.lines().next().unwrap_or_default().to_owned()).collect()
    }

    fn by(&self, scheme_and_user: &str, resolve: Resolve) -> Option<Egress> {
        let url = format!("{scheme_and_user}{}", self.address);
        Some(Egress::new(Proxy::parse(&url).unwrap(), resolve, vec![]))
    }
}

async fn head(tcp: &mut TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tcp.read_u8().await?);
    }
    Ok(String::from_utf8(head).unwrap())
}

async fn octets(tcp: &mut TcpStream, n: usize) -> std::io::Result<Vec<u8>> {
    let mut octets = vec![0; n];
    tcp.read_exact(&mut octets).await?;
    Ok(octets)
}

async fn push_service() -> Server {
    Server::http2(h2::server::Builder::new(), |_, mut respond| async move { answer(&mut respond, 201) }).await
}

const TUNNEL: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

#[tokio::test]
async fn post_tunnels_to_the_checked_address() {
    let server = push_service().await;
    let proxy = FakeProxy::http(TUNNEL, Some(server.address)).await;
    let egress = proxy.by("http://us%65r:wo%3Ard@", Resolve::Here);
    // Its certificate is for that name, and 192.0.2.1 is unreachable.
    let settings = GatewayConfig { egress, hosts: vec![], ..server.settings() };
    let gateways = with_dns(settings, |_| vec!["2606:4700:4700::1111", "1.1.1.1"]);
    for _ in 0..2 {
        let reply = gateways.post(post_to(&format!("https://a.{HOST}:8443/up"))).await;
        assert_eq!(reply.unwrap().status, 201);
    }
    let credentials = "Proxy-Authorization: Basic dXNlcjp3bzpyZA==\r\n";
    let asked = format!("CONNECT 1.1.1.1:8443 HTTP/1.1\r\nHost: 1.1.1.1:8443\r\n{credentials}\r\n");
    assert_eq!(proxy.asked(), [asked], "one tunnel for both, and what most networks reach first");
}

#[tokio::test]
async fn socks_proxy_receives_an_address_or_name() {
    let server = push_service().await;
    let proxy = FakeProxy::socks(Some(("user", "wo:rd")), 0, server.address).await;
    for (scheme, hosts, asked) in [
        ("socks5://user:wo%3Ard@", format!("{HOST}=other@192.0.2.9:7"), "192.0.2.9 7"),
        ("socks5://user:wo%3Ard@", format!("{HOST}=other@[2001:db8::9]:7"), "2001:db8::9 7"),
        ("socks5h://user:wo%3Ard@", format!("{HOST}=other"), "push.example.net 443"),
    ] {
        let hosts = vec![hosts.parse().unwrap()];
        let settings = GatewayConfig { egress: proxy.by(scheme, Resolve::Here), hosts, ..server.settings() };
        assert_eq!(Gateways::new(settings).unwrap().post(post("/")).await.unwrap().status, 201, "{scheme}");
        assert_eq!(proxy.asked().last().unwrap(), asked);
    }
    let open = FakeProxy::socks(None, 0, server.address).await;
    let settings = GatewayConfig { egress: open.by("socks5://user:word@", Resolve::Here), ..server.settings() };
    assert_eq!(Gateways::new(settings).unwrap().post(post("/")).await.unwrap().status, 201, "it does not ask who");
}

#[tokio::test]
async fn any_proxy_error_counts_as_our_failure() {
    let server = push_service().await;
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(9_000));
    for (answer, words) in [
        ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "it answered 404"),
        ("HTTP/1.1 410 Gone\r\n\r\n", "it answered 410"),
        ("HTTP/1.1 403 Forbidden\r\n\r\n<html>", "it answered 403"),
        ("HTTP/1.1 301 Moved\r\nlocation: https://elsewhere\r\n\r\n", "it answered 301"),
        ("HTTP/1.1 429 Too Many\r\nretry-after: 9\r\n\r\n", "it answered 429"),
        ("HTTP/1.1 502 Bad Gateway\r\n\r\n", "it answered 502"),
        ("HTTP/1.1 407 Who\r\n\r\n", "it refused the credentials of BELLWIRE_EGRESS_PROXY"),
        ("HTTP/1.1 401 Who\r\n\r\n", "it refused the credentials of BELLWIRE_EGRESS_PROXY"),
        ("HTTP/1.1 200 OK\r\n\r\nmore", "it does not speak as a proxy of this kind does"),
        ("HTTP/1.1 200", "it does not speak as a proxy of this kind does"),
        ("SSH-2.0-OpenSSH\r\n", "it does not speak as a proxy of this kind does"),
        (&long, "it does not speak as a proxy of this kind does"),
    ] {
        let proxy = FakeProxy::http(answer, None).await;
        let egress = proxy.by("http://", Resolve::Here);
        let settings = GatewayConfig { egress, told_after: Duration::ZERO, ..server.settings() };
        let gateways = Gateways::new(settings).unwrap();
        assert_eq!(statuses(burst(&gateways, 3).await), [Err(Failure::Proxy); 3], "{answer}");
        let told: Vec<_> = gateways.troubles().into_iter().map(|it| (it.gateway, it.words)).collect();
        assert_eq!(told, [(Gateway::Other, words.to_owned())]);
        assert_eq!(proxy.asked().len(), 1, "one attempt, and the pause after it");
    }
    assert_eq!(server.accepted(), 0);
}

#[tokio::test]
async fn a_proxy_of_socks_that_refuses_says_why() {
    let server = push_service().await;
    for (credentials, reply, words) in [
        (None, 2, "it answered: not allowed by its rules"),
        (None, 4, "it answered: host unreachable"),
        (None, 99, "it answered: a reply that has no meaning"),
        (Some(("user", "other")), 0, "it refused the credentials of BELLWIRE_EGRESS_PROXY"),
    ] {
        let proxy = FakeProxy::socks(credentials, reply, server.address).await;
        let egress = proxy.by("socks5://user:word@", Resolve::Here);
        let gateways =
            Gateways::new(GatewayConfig { egress, told_after: Duration::ZERO, ..server.settings() }).unwrap();
        assert_eq!(gateways.post(post("/")).await.unwrap_err(), Failure::Proxy);
        assert_eq!(gateways.troubles()[0].words, words);
    }
    let wants = FakeProxy::socks(Some(("user", "word")), 0, server.address).await;
    let egress = wants.by("socks5://", Resolve::Here);
    let gateways = Gateways::new(GatewayConfig { egress, ..server.settings() }).unwrap();
    assert_eq!(gateways.post(post("/")).await.unwrap_err(), Failure::Proxy);
    assert!(wants.asked().is_empty());
}

#[tokio::test]
async fn absent_or_silent_proxy_is_our_failure() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (silent_at, closed_at) = (silent.local_addr().unwrap(), closed.local_addr().unwrap());
    drop(closed);
    for (address, word) in [(silent_at, "in time"), (closed_at, "cannot be reached")] {
        for scheme in ["http", "socks5"] {
            let egress = Egress::new(Proxy::parse(&format!("{scheme}://{address}")).unwrap(), Resolve::Here, vec![]);
            let hosts = vec![format!("{HOST}=fcm@192.0.2.1:443").parse().unwrap()];
            let (connect_timeout, told_after) = (Duration::from_millis(100), Duration::ZERO);
            let egress = Some(egress);
            let settings = GatewayConfig { egress, hosts, connect_timeout, told_after, ..GatewayConfig::default() };
            let gateways = Gateways::new(settings).unwrap();
            assert_eq!(gateways.post(post("/")).await.unwrap_err(), Failure::Proxy);
            assert!(gateways.troubles()[0].words.contains(word), "{:?}", gateways.troubles());
        }
    }
}

#[tokio::test]
async fn foreign_names_are_always_resolved_and_guarded_locally() {
    for resolve in [Resolve::Here, Resolve::Proxy] {
        let proxy = FakeProxy::http("HTTP/1.1 502 Bad Gateway\r\n\r\n", None).await;
        let settings = || GatewayConfig { egress: proxy.by("http://", resolve), ..GatewayConfig::default() };
        let stranger = || post_to("https://ntfy.example.org:8443/up");
        for inside in ["10.0.0.1", "127.0.0.1", "169.254.169.254", "fd00::1"] {
            let gateways = with_dns(settings(), move |_| vec![inside]);
            assert_eq!(gateways.check_public(&stranger().endpoint).await, Err(HostRefused::NotPublic));
            assert_eq!(gateways.post(stranger()).await.unwrap_err(), Failure::Forbidden);
        }
        assert!(proxy.asked().is_empty());
        for literal in ["https://10.0.0.1/", "https://[fd00::1]/"] {
            let gateways = Gateways::new(settings()).unwrap();
            assert!(gateways.recognise(&Endpoint::parse(literal).unwrap()).is_err());
            assert_eq!(gateways.post(post_to(literal)).await.unwrap_err(), Failure::Forbidden);
        }
        assert!(proxy.asked().is_empty());
        let gateways = with_dns(settings(), |_| vec!["1.1.1.1"]);
        assert_eq!(gateways.post(stranger()).await.unwrap_err(), Failure::Proxy);
        assert_eq!(proxy.asked_for(), ["CONNECT 1.1.1.1:8443 HTTP/1.1"], "what was checked, not the name");
    }
}

#[tokio::test]
async fn resolving_proxy_needs_no_local_dns() {
    let proxy = FakeProxy::http("HTTP/1.1 502 Bad Gateway\r\n\r\n", None).await;
    let settings = GatewayConfig { egress: proxy.by("http://", Resolve::Proxy), ..GatewayConfig::default() };
    let gateways = with_dns(settings, |_| panic!("nobody is asked here"));
    let fcm = post_to("https://fcm.googleapis.com/fcm/send/x");
    assert_eq!(gateways.check_public(&fcm.endpoint).await, Ok(()));
    assert_eq!(gateways.post(fcm).await.unwrap_err(), Failure::Proxy);
    assert_eq!(proxy.asked_for(), ["CONNECT fcm.googleapis.com:443 HTTP/1.1"]);
}

#[tokio::test]
async fn exempt_hosts_bypass_the_proxy_but_are_guarded() {
    let server = push_service().await;
    let proxy = FakeProxy::http("HTTP/1.1 502 Bad Gateway\r\n\r\n", None).await;
    let url = format!("http://{}", proxy.address);
    let exempt =
        |host: &str| Some(Egress::new(Proxy::parse(&url).unwrap(), Resolve::Proxy, vec![host.parse().unwrap()]));
    let settings = GatewayConfig { egress: exempt("example.net"), ..server.settings() };
    assert_eq!(Gateways::new(settings).unwrap().post(post("/")).await.unwrap().status, 201);
    let settings = GatewayConfig { egress: exempt("ntfy.example.org"), ..GatewayConfig::default() };
    let gateways = with_dns(settings, |_| vec!["10.0.0.1"]);
    assert_eq!(gateways.post(post_to("https://ntfy.example.org/up")).await.unwrap_err(), Failure::Forbidden);
    assert!(proxy.asked().is_empty());
}

#[tokio::test]
async fn proxy_tries_at_most_three_addresses() {
    let server = push_service().await;
    let answers = Mutex::new(vec![TUNNEL, "HTTP/1.1 503 No\r\n\r\n", "HTTP/1.1 502 No\r\n\r\n"]);
    let address = server.address;
    let proxy = FakeProxy::start(move |mut tcp, asked| {
        let answer = answers.lock().pop().unwrap_or("HTTP/1.1 502 No\r\n\r\n");
        async move {
            let head = head(&mut tcp).await?;
            asked.lock().push(head);
            tcp.write_all(answer.as_bytes()).await?;
            if answer == TUNNEL {
                copy_bidirectional(&mut tcp, &mut TcpStream::connect(address).await?).await?;
            }
            Ok(())
        }
    })
    .await;
    let settings = GatewayConfig { egress: proxy.by("http://", Resolve::Here), hosts: vec![], ..server.settings() };
    let gateways = with_dns(settings, |_| vec!["1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4"]);
    assert_eq!(gateways.post(post_to(&format!("https://a.{HOST}/up"))).await.unwrap().status, 201);
    assert_eq!(proxy.asked().len(), 3);
    assert_eq!(gateways.post(post_to(&format!("https://b.{HOST}/up"))).await.unwrap_err(), Failure::Proxy);
    assert_eq!(proxy.asked().len(), 6);
}
