//! TLS to Postgres whose handshake can never succeed: `sslmode=prefer` continues without, `require` is refused at once.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::JoinSet;

use crate::support::app::MASTER_KEY;
use crate::support::{TempDir, TestDatabase};

/// The request to continue with TLS (PostgreSQL manual, "Message Formats": SSLRequest).
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// A fatal alert: no protocol version in common (RFC 8446 section 6).
const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 70];

/// Answers a request for TLS and forwards everything else to Postgres.
async fn forward(mut client: TcpStream, postgres: PathBuf, offers_tls: bool) -> std::io::Result<()> {
    let mut first = [0; 8];
    client.read_exact(&mut first).await?;
    if first == SSL_REQUEST {
        client.write_all(if offers_tls { b"S" } else { b"N" }).await?;
        client.read_exact(&mut first).await?;
        if offers_tls {
            client.write_all(&ALERT).await?;
            return client.shutdown().await;
        }
    }
    let mut postgres = UnixStream::connect(postgres).await?;
    postgres.write_all(&first).await?;
    copy_bidirectional(&mut client, &mut postgres).await.map(drop)
}

/// Postgres behind a port on which no handshake succeeds. Returns the port; the set ends the proxy.
async fn proxy(database: &TestDatabase, offers_tls: bool) -> (u16, JoinSet<()>) {
    let options = database.options();
    let socket = options.get_socket().expect("a socket").join(format!(".s.PGSQL.{}", options.get_port()));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut clients = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            let socket = socket.clone();
            clients.spawn(async move { drop(forward(client, socket, offers_tls).await) });
        }
    });
    (port, tasks)
}

async fn migrate(dir: &Path, database: &TestDatabase, port: u16, sslmode: &str) -> Output {
    let options = database.options();
    let (user, name) = (options.get_username(), options.get_database().expect("a name"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwire"));
    command.env_clear().env("BELLWIRE_DATA_DIR", dir).env("BELLWIRE_MASTER_KEY", MASTER_KEY).current_dir(dir);
    let url = format!("postgres://{user}@127.0.0.1:{port}/{name}?sslmode={sslmode}");
    command.env("BELLWIRE_DATABASE_URL", url).arg("migrate");
    tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs")
}

#[tokio::test(flavor = "multi_thread")]
async fn hopeless_handshake_continues_under_prefer_alone() {
    let (database, dir) = (TestDatabase::plain().await, TempDir::new());
    for (offers_tls, sslmode, succeeds) in [
        (true, "prefer", true),
        (true, "require", false),
        (true, "verify-full", false),
        (false, "prefer", true),
        (false, "require", false),
    ] {
        let (port, _tasks) = proxy(&database, offers_tls).await;
        let output = migrate(dir.path(), &database, port, sslmode).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.success(), succeeds, "{sslmode} {offers_tls}: {said}");
        assert!(!said.contains("waiting for it"), "it is decided at once: {said}");
        if !succeeds {
            assert!(said.contains(&format!("sslmode={sslmode}")) && said.contains("sslmode=disable"), "{said}");
        }
        assert_eq!(said.contains("without TLS"), succeeds && offers_tls, "{sslmode}: {said}");
    }
}
