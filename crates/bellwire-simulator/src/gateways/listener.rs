//! Listener of a host: accepts TCP and TLS as the rules allow, and hands connections to HTTP/2 or HTTP/1.1.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::host::Host;
use super::rule::RuleAction;
use super::script;
use super::{http1, http2};

const BACKLOG: u32 = 1_024;

/// A port of 127.0.0.1 that can be closed and opened again. While it is closed, a second socket, bound but not listening,
/// reserves the port, and the kernel refuses connections.
pub(super) struct GatewayListener {
    addr: SocketAddr,
    listener: Option<TcpListener>,
    spare: TcpSocket,
}

impl GatewayListener {
    /// Opens a port, or any free port if `port` is 0.
    pub(super) fn open(port: u16) -> std::io::Result<Self> {
        let listener = bind((Ipv4Addr::LOCALHOST, port).into())?.listen(BACKLOG)?;
        let addr = listener.local_addr()?;
        Ok(Self { addr, listener: Some(listener), spare: bind(addr)? })
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    fn set_shut(&mut self, shut: bool) -> std::io::Result<()> {
        if shut {
            self.listener = None;
        } else if self.listener.is_none() {
            let spare = std::mem::replace(&mut self.spare, bind(self.addr)?);
            self.listener = Some(spare.listen(BACKLOG)?);
        }
        Ok(())
    }

    async fn accept(&self) -> TcpStream {
        match &self.listener {
            Some(listener) => loop {
                // An error concerns one connection that has ended, or a temporary lack of descriptors.
                match listener.accept().await {
                    Ok((stream, _)) => return stream,
                    Err(_) => tokio::task::yield_now().await,
                }
            },
            None => std::future::pending().await,
        }
    }
}

fn bind(addr: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(addr)?;
    Ok(socket)
}

/// Serves a host until it is aborted, together with its connections.
pub(super) async fn serve(host: Arc<Host>, tls: Arc<ServerConfig>, mut listener: GatewayListener, streams: u32) {
    let acceptor = TlsAcceptor::from(tls);
    let mut connections = JoinSet::new();
    let mut script_changed = host.script.watch();
    let mut was_shut = false;
    loop {
        script_changed.mark_unchanged();
        let (outage, edge) = script::listener(&host.script.current(), &host.subject(None), Instant::now());
        if outage.is_some() && !was_shut {
            connections.abort_all();
            outage.iter().for_each(|live| live.count_hit());
        }
        was_shut = outage.is_some();
        if let Err(error) = listener.set_shut(was_shut) {
            tracing::error!(target: "bellwire::simulate::gateways::listener", host = host.name, %error, "the simulated gateway cannot open its port again");
            return;
        }
        host.logbook.touched.notify_waiters();
        loop {
            tokio::select! {
                stream = listener.accept() => {
                    connections.spawn(connection(Arc::clone(&host), acceptor.clone(), stream, streams));
                }
                Some(_) = connections.join_next() => {}
                changed = script_changed.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                () = async { sleep_until(edge.unwrap_or_else(Instant::now)).await }, if edge.is_some() => break,
            }
        }
    }
}

/// Counts an open connection until it is dropped.
struct OpenConnection(Arc<Host>);

impl OpenConnection {
    fn new(host: &Arc<Host>) -> Self {
        host.counters.connections.fetch_add(1, Ordering::Relaxed);
        host.counters.open_connections.fetch_add(1, Ordering::Relaxed);
        let open = Self(Arc::clone(host));
        open.touch();
        open
    }

    fn touch(&self) {
        self.0.logbook.touched.notify_waiters();
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.counters.open_connections.fetch_sub(1, Ordering::Relaxed);
        self.touch();
    }
}

async fn connection(host: Arc<Host>, acceptor: TlsAcceptor, stream: TcpStream, streams: u32) {
    let _open = OpenConnection::new(&host);
    let rule = script::for_connection(&host.script.current(), &host.subject(None), Instant::now());
    let streams = match rule {
        Some(RuleAction::RefuseTls) => return,
        Some(RuleAction::Stall) => return std::future::pending().await,
        Some(RuleAction::StreamLimit { streams }) => streams,
        _ => streams,
    };
    // Nagle's algorithm would delay responses. Without the option they are only slower.
    let _slower = stream.set_nodelay(true);
    let Ok(stream) = acceptor.accept(stream).await else { return };
    match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => http2::serve(stream, host, streams).await,
        _ => http1::serve(stream, host).await,
    }
}
