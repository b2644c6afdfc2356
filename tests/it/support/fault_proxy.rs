//! A proxy in front of Postgres that understands just enough of its protocol to cut a connection at the worst moment.
//!
//! Frontend messages after the start-up packet are `type (1) | length (4, itself included) | body`. A statement runs when `Query` contains
//! it, or when `Execute` names its portal (`Bind`, `Parse`). It is committed before the server sends `ReadyForQuery` (PostgreSQL manual,
//! "Frontend/Backend Protocol").

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::citus;
use super::database::shared_postgres;

/// Moment at which a statement's connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Postgres never sees the statement.
    Before,
    /// Postgres has done it; its client never learns.
    After,
}

#[derive(Debug, Clone)]
struct Trap {
    moment: Moment,
    statement: String,
    /// Whether it springs where that statement is committed, and not where it runs.
    at_commit: bool,
}

/// Address of the Postgres behind the proxy.
#[derive(Debug)]
enum Behind {
    Socket(PathBuf),
    /// Host and port.
    Port(String),
}

#[derive(Debug)]
struct State {
    behind: Behind,
    traps: Mutex<Vec<Trap>>,
    refuse: AtomicBool,
    /// Whether connections are refused in words: that there are too many.
    is_full: AtomicBool,
    /// Connections that come before the one that is cut; negative: none is cut.
    before_cut: AtomicI64,
    /// Number of runs of each statement, by its first words.
    runs: Mutex<BTreeMap<String, u64>>,
    ran: Notify,
    /// Raised to cut every open connection.
    generation: watch::Sender<u64>,
    sprung: AtomicU64,
    sprung_now: Notify,
    /// Connections refused so far.
    refused: watch::Sender<u64>,
}

/// The proxy, on a TCP port of 127.0.0.1. Dropping it cuts everything.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

impl FaultProxy {
    /// In front of the Postgres that tests have their databases in.
    pub async fn start() -> Self {
        let behind = || match citus::cluster() {
            Some(cluster) => Behind::Port(cluster.address()),
            None => Behind::Socket(shared_postgres().socket()),
        };
        let behind = tokio::task::spawn_blocking(behind).await.expect("a Postgres");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State {
            behind,
            traps: Mutex::default(),
            refuse: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            before_cut: AtomicI64::new(-1),
            runs: Mutex::default(),
            ran: Notify::new(),
            generation: watch::Sender::new(0),
            sprung: AtomicU64::new(0),
            sprung_now: Notify::new(),
            refused: watch::Sender::new(0),
        });
        let accepting = tokio::spawn(accept(listener, state.clone()));
        Self { address, state, accepting }
    }

    /// Connection through the proxy.
    pub fn connect_options(&self, database: &str) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(self.address.port())
            .username("postgres")
            .database(database)
            .ssl_mode(PgSslMode::Disable)
    }

    /// The same as a URL, for a `bellwire` process.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@{}/{database}?sslmode=disable", self.address)
    }

    /// Cuts all connections that are open now.
    pub fn cut(&self) {
        self.state.generation.send_modify(|generation| *generation += 1);
    }

    /// While set, new connections are closed as soon as they come.
    pub fn refuse(&self, refuse: bool) {
        self.state.refuse.store(refuse, Ordering::SeqCst);
    }

    /// While set, new connections get the error of a Postgres without free connections.
    pub fn fill_up(&self, is_full: bool) {
        self.state.is_full.store(is_full, Ordering::SeqCst);
    }

    /// Cuts the connection that comes after so many others, once: instead of an answer it reads the end of the stream.
    pub fn cut_connection_after(&self, others: i64) {
        self.state.before_cut.store(others, Ordering::SeqCst);
    }

    /// Whether the connection that is to be cut has not come yet.
    pub fn awaits_cut(&self) -> bool {
        self.state.before_cut.load(Ordering::SeqCst) >= 0
    }

    /// Number of runs of each statement since the last call, by its first words.
    pub fn take_runs(&self) -> BTreeMap<String, u64> {
        std::mem::take(&mut *self.state.runs.lock())
    }

    /// Waits until a statement with that beginning has run `times` times since the last call of [`take_runs`](Self::take_runs).
    pub async fn until_run(&self, beginning: &str, times: u64) {
        loop {
            let ran = self.state.ran.notified();
            if self.state.runs.lock().iter().any(|(sql, n)| sql.starts_with(beginning) && *n >= times) {
                return;
            }
            ran.await;
        }
    }

    /// Waits until that many more connections have been refused.
    pub async fn until_refused(&self, times: u64) {
        let mut refused = self.state.refused.subscribe();
        let wanted = *refused.borrow() + times;
        let _ = refused.wait_for(|refused| *refused >= wanted).await; // the sender is ours
    }

    /// Cuts the next connection that runs a statement with that beginning (case aside), once.
    pub fn cut_at(&self, moment: Moment, statement: &str) {
        self.state.set(moment, statement, false);
    }

    /// Cuts the next connection that commits a statement with that beginning, once: at the statement if it is its own transaction, else at
    /// the COMMIT.
    pub fn cut_at_commit_of(&self, moment: Moment, statement: &str) {
        self.state.set(moment, statement, true);
    }

    /// Number of connections that traps have cut.
    pub fn sprung(&self) -> u64 {
        self.state.sprung.load(Ordering::SeqCst)
    }

    /// Waits until that many traps have cut a connection.
    pub async fn until_sprung(&self, times: u64) {
        loop {
            let notified = self.state.sprung_now.notified();
            if self.sprung() >= times {
                return;
            }
            notified.await;
        }
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.refuse(true);
        self.cut();
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    while let Ok((client, _)) = listener.accept().await {
        if state.before_cut.fetch_sub(1, Ordering::SeqCst) == 0 {
            tokio::spawn(end_unanswered(client));
        } else if state.refuse.load(Ordering::SeqCst) {
            state.refused.send_modify(|refused| *refused += 1);
        } else if state.is_full.load(Ordering::SeqCst) {
            tokio::spawn(tell_full(client, state.clone()));
        } else {
            tokio::spawn(serve(client, state.clone()));
        }
    }
}

/// Reads what the client begins with, and ends the connection: it reads 0 bytes at the end of the stream.
async fn end_unanswered(mut client: TcpStream) -> std::io::Result<()> {
    let length = client.read_u32().await?;
    client.read_exact(&mut vec![0; length.saturating_sub(4) as usize]).await?;
    client.shutdown().await
}

/// Refuses a connection as Postgres does that has no other one left.
async fn tell_full(mut client: TcpStream, state: Arc<State>) -> std::io::Result<()> {
    let length = client.read_u32().await?;
    client.read_exact(&mut vec![0; length.saturating_sub(4) as usize]).await?;
    let error = b"SFATAL\0VFATAL\0C53300\0Msorry, too many clients already\0\0";
    write_message(&mut client, b'E', error).await?;
    state.refused.send_modify(|refused| *refused += 1);
    client.shutdown().await
}

/// Pipes both ways until either side ends, everything is cut, or a trap springs. Ending drops both sockets.
async fn serve(client: TcpStream, state: Arc<State>) {
    match &state.behind {
        Behind::Socket(path) => {
            let Ok(server) = UnixStream::connect(path).await else { return };
            pipe(client, server.into_split(), &state).await;
        }
        Behind::Port(address) => {
            let Ok(server) = TcpStream::connect(address).await else { return };
            let _ = server.set_nodelay(true);
            pipe(client, server.into_split(), &state).await;
        }
    }
}

async fn pipe(
    client: TcpStream, (from_server, to_server): (impl AsyncReadExt + Unpin, impl AsyncWriteExt + Unpin), state: &State,
) {
    let mut generation = state.generation.subscribe();
    // Half a message must not wait for the other half's acknowledgement.
    let _ = client.set_nodelay(true);
    let (from_client, to_client) = client.into_split();
    let mute = Arc::new(AtomicBool::new(false));
    tokio::select! {
        _ = generation.changed() => {}
        _ = client_to_server(from_client, to_server, state, &mute) => {}
        _ = server_to_client(from_server, to_client, state, &mute) => {}
    }
}

async fn client_to_server(
    mut from: OwnedReadHalf, mut to: impl AsyncWriteExt + Unpin, state: &State, mute: &AtomicBool,
) -> std::io::Result<()> {
    let start_up_length = from.read_u32().await?;
    let mut start_up = vec![0; start_up_length.saturating_sub(4) as usize];
    from.read_exact(&mut start_up).await?;
    to.write_all(&start_up_length.to_be_bytes()).await?;
    to.write_all(&start_up).await?;
    let mut session = Session::default();
    let mut transaction = None;
    loop {
        let (kind, body) = read_message(&mut from).await?;
        if let Some(sql) = session.runs(kind, &body) {
            state.note_run(sql);
            match state.spring(sql, transaction.as_deref()) {
                Some(Moment::Before) => {
                    state.tell_sprung();
                    return Ok(());
                }
                Some(Moment::After) => mute.store(true, Ordering::SeqCst),
                None => {}
            }
            follow(sql, &mut transaction);
        }
        write_message(&mut to, kind, &body).await?;
    }
}

/// Takes in what a statement makes of the open transaction: the statements that it has run; none: there is none.
fn follow(sql: &str, transaction: &mut Option<Vec<String>>) {
    let sql = sql.trim_start().to_ascii_lowercase();
    if sql.starts_with("begin") {
        *transaction = Some(Vec::new());
    } else if sql.starts_with("commit") || sql.starts_with("rollback") && !sql.starts_with("rollback to") {
        *transaction = None;
    } else if let Some(ran) = transaction {
        ran.push(sql);
    }
}

/// Passes answers on, or, once a trap muted them, swallows them until Postgres has finished the statement.
async fn server_to_client(
    mut from: impl AsyncReadExt + Unpin, mut to: OwnedWriteHalf, state: &State, mute: &AtomicBool,
) -> std::io::Result<()> {
    loop {
        let (kind, body) = read_message(&mut from).await?;
        if !mute.load(Ordering::SeqCst) {
            write_message(&mut to, kind, &body).await?;
        } else if kind == b'Z' {
            state.tell_sprung();
            return Ok(());
        }
    }
}

async fn read_message(from: &mut (impl AsyncReadExt + Unpin)) -> std::io::Result<(u8, Vec<u8>)> {
    let kind = from.read_u8().await?;
    let length = from.read_u32().await?;
    let mut body = vec![0; length.saturating_sub(4) as usize];
    from.read_exact(&mut body).await?;
    Ok((kind, body))
}

async fn write_message(to: &mut (impl AsyncWriteExt + Unpin), kind: u8, body: &[u8]) -> std::io::Result<()> {
    let mut message = Vec::with_capacity(body.len() + 5);
    message.push(kind);
    message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    message.extend_from_slice(body);
    to.write_all(&message).await
}

impl State {
    fn note_run(&self, sql: &str) {
        let first: Vec<&str> = sql.split_whitespace().take(12).collect();
        *self.runs.lock().entry(first.join(" ")).or_default() += 1;
        self.ran.notify_waiters();
    }

    fn set(&self, moment: Moment, statement: &str, at_commit: bool) {
        self.traps.lock().push(Trap { moment, statement: statement.to_ascii_lowercase(), at_commit });
    }

    /// Takes the first trap that the statement steps into, after those that its transaction has run.
    fn spring(&self, sql: &str, transaction: Option<&[String]>) -> Option<Moment> {
        let sql = sql.trim_start().to_ascii_lowercase();
        let is_commit = sql.starts_with("commit");
        let springs = |trap: &Trap| match (trap.at_commit, transaction) {
            (true, Some(ran)) => is_commit && ran.iter().any(|ran| ran.starts_with(&trap.statement)),
            _ => sql.starts_with(&trap.statement),
        };
        let mut traps = self.traps.lock();
        let at = traps.iter().position(springs)?;
        Some(traps.remove(at).moment)
    }

    fn tell_sprung(&self) {
        self.sprung.fetch_add(1, Ordering::SeqCst);
        self.sprung_now.notify_waiters();
    }
}

/// Prepared statements and portals of a connection.
#[derive(Debug, Default)]
struct Session {
    statements: HashMap<Vec<u8>, String>,
    portals: HashMap<Vec<u8>, String>,
}

impl Session {
    /// The SQL that a message makes Postgres run, if it does.
    fn runs<'a>(&'a mut self, kind: u8, body: &[u8]) -> Option<&'a str> {
        let mut strings = body.split(|&octet| octet == 0);
        let first = strings.next()?.to_vec();
        match kind {
            b'Q' => {
                self.portals.insert(Vec::new(), String::from_utf8_lossy(&first).into_owned());
                self.portals.get(&Vec::new()).map(String::as_str)
            }
            b'P' => {
                let sql = String::from_utf8_lossy(strings.next()?).into_owned();
                self.statements.insert(first, sql);
                None
            }
            b'B' => {
                let sql = self.statements.get(strings.next()?).cloned().unwrap_or_default();
                self.portals.insert(first, sql);
                None
            }
            b'E' => self.portals.get(&first).map(String::as_str),
            _ => None,
        }
    }
}
