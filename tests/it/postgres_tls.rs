//! TLS to Postgres: the modes of libpq, certificates and password files, and handshakes that can never succeed.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::JoinSet;

use crate::support::app::MASTER_KEY;
use crate::support::https::{Authority, Pair};
use crate::support::{Cluster, TempDir, TestDatabase};

/// The request to continue with TLS (PostgreSQL manual, "Message Formats": SSLRequest).
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// A fatal alert: no protocol version in common (RFC 8446 section 6).
const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 70];

/// A self-signed certificate for `localhost` of X.509 version 1, as Citus makes them. Valid until 2126.
const VERSION_1: &str = include_str!("postgres_tls/version_1.crt");
const VERSION_1_KEY: &str = include_str!("postgres_tls/version_1.key");

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

async fn migrate(dir: &Path, url: String) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwire"));
    command.env_clear().env("BELLWIRE_DATA_DIR", dir).env("BELLWIRE_MASTER_KEY", MASTER_KEY).current_dir(dir);
    command.env("BELLWIRE_DATABASE_URL", url).env("PGPASSFILE", dir.join("pgpass")).arg("migrate");
    tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs")
}

#[tokio::test(flavor = "multi_thread")]
async fn hopeless_handshake_continues_under_prefer_alone() {
    let (database, dir) = (TestDatabase::plain().await, TempDir::new());
    let options = database.options();
    let (user, name) = (options.get_username(), options.get_database().expect("a name"));
    for (offers_tls, sslmode, succeeds) in [
        (true, "prefer", true),
        (true, "require", false),
        (true, "verify-full", false),
        (false, "prefer", true),
        (false, "require", false),
    ] {
        let (port, _tasks) = proxy(&database, offers_tls).await;
        let url = format!("postgres://{user}@127.0.0.1:{port}/{name}?sslmode={sslmode}");
        let output = migrate(dir.path(), url).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.success(), succeeds, "{sslmode} {offers_tls}: {said}");
        assert!(!said.contains("waiting for it"), "it is decided at once: {said}");
        if !succeeds {
            assert!(said.contains(&format!("sslmode={sslmode}")) && said.contains("sslmode=disable"), "{said}");
        }
        assert_eq!(said.contains("without TLS"), succeeds && offers_tls, "{sslmode}: {said}");
    }
}

/// A Postgres with TLS, and a directory with files of its clients.
struct Served {
    cluster: Cluster,
    dir: TempDir,
    port: u16,
}

impl Served {
    async fn new(authority: &Authority) -> Self {
        let (mut cluster, dir) = (Cluster::place(), TempDir::new());
        cluster.init().await;
        let port = cluster.listen(&authority.pair(), &authority.pem).await;
        for (name, text) in [("root.crt", &authority.pem), ("other.crt", &Authority::new().pem)] {
            std::fs::write(dir.path().join(name), text).expect("a directory of ours");
        }
        Self { cluster, dir, port }
    }

    /// Connects with a query of the URL in which `DIR` is the directory. Returns the error, if any.
    async fn connect(&self, host: &str, query: &str) -> Option<String> {
        let (dir, port) = (self.dir.path(), self.port);
        let query = query.replace("DIR", &dir.display().to_string());
        let output = migrate(dir, format!("postgres://postgres@{host}:{port}/bellwire?{query}")).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.contains("did not answer"), "{query} is decided at once: {said}");
        assert!(said.matches("cannot succeed under").count() <= 1, "{query} has its reason once: {said}");
        (!output.status.success()).then_some(said)
    }

    /// Connects, and verifies that the error contains `expected`, or that there is none if `expected` is empty.
    async fn verify(&self, host: &str, query: &str, expected: &str) {
        let expected = expected.replace("DIR", &self.dir.path().display().to_string());
        match self.connect(host, query).await {
            None => assert!(expected.is_empty(), "{host} {query} must fail: {expected}"),
            Some(error) => assert!(!expected.is_empty() && error.contains(&expected), "{host} {query}: {error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn modes_decide_about_tls_as_in_libpq() {
    let served = Served::new(&Authority::new()).await;
    let refusal = "pg_hba.conf";
    for (access, mode, expected) in [
        ("hostssl", "disable", refusal),
        ("hostssl", "allow", ""),
        ("hostssl", "prefer", ""),
        ("hostssl", "require", ""),
        ("hostnossl", "disable", ""),
        ("hostnossl", "allow", ""),
        ("hostnossl", "prefer", ""),
        ("hostnossl", "require", refusal),
        ("host", "sometimes", "disable, allow, prefer, require, verify-ca, verify-full"),
    ] {
        served.cluster.allow(&format!("{access} all all 127.0.0.1/32 trust")).await;
        served.verify("127.0.0.1", &format!("sslmode={mode}"), expected).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_verified_by_root_and_host() {
    let served = Served::new(&Authority::new()).await;
    served.cluster.allow("hostssl all all 127.0.0.1/32 trust").await;
    for (host, query, expected) in [
        ("127.0.0.1", "sslmode=verify-ca&sslrootcert=DIR/root.crt", ""),
        ("localhost", "sslmode=verify-full&sslrootcert=DIR/root.crt", ""),
        ("127.0.0.1", "sslmode=verify-full&sslrootcert=DIR/root.crt", ""),
        ("localhost", "sslmode=verify-full", "sslrootcert"),
        ("localhost", "sslmode=verify-ca&sslrootcert=DIR/other.crt", "sslrootcert"),
        ("localhost", "sslmode=require&sslrootcert=DIR/other.crt", "sslmode=verify-ca"),
        ("localhost", "sslmode=require&sslrootcert=DIR/root.crt", ""),
        ("localhost", "sslmode=verify-ca&sslrootcert=DIR/none.crt", "sslrootcert=DIR/none.crt"),
    ] {
        served.verify(host, query, expected).await;
    }
    let named = rcgen::generate_simple_self_signed(["database.test".to_owned()]).expect("a certificate");
    std::fs::write(served.dir.path().join("named.crt"), named.cert.pem()).expect("a directory of ours");
    served.cluster.certify(&Pair { chain: named.cert.pem(), key: named.signing_key.serialize_pem() });
    served.cluster.allow("hostssl all all 127.0.0.1/32 trust").await;
    served.verify("localhost", "sslmode=verify-ca&sslrootcert=DIR/named.crt", "").await;
    served.verify("localhost", "sslmode=verify-full&sslrootcert=DIR/named.crt", "sslmode=verify-ca").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_1_certificate_connects_under_prefer_alone() {
    let served = Served::new(&Authority::new()).await;
    served.cluster.certify(&Pair { chain: VERSION_1.to_owned(), key: VERSION_1_KEY.to_owned() });
    served.cluster.allow("host all all 127.0.0.1/32 trust").await;
    for (query, expected) in [("", ""), ("sslmode=prefer", ""), ("sslmode=require", "X.509 version 3")] {
        served.verify("127.0.0.1", query, expected).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_certificates_are_presented() {
    let authority = Authority::new();
    let served = Served::new(&authority).await;
    authority.pair().write(&served.dir.path().join("client.crt"), &served.dir.path().join("client.key"));
    served.cluster.allow("hostssl all all 127.0.0.1/32 trust clientcert=verify-ca").await;
    served.verify("127.0.0.1", "sslmode=require&sslcert=DIR/client.crt&sslkey=DIR/client.key", "").await;
    served.verify("127.0.0.1", "sslmode=require", "client certificate").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn passwords_are_read_from_a_password_file() {
    let served = Served::new(&Authority::new()).await;
    served.cluster.execute("ALTER ROLE postgres PASSWORD 'a word'").await;
    served.cluster.allow("hostssl all all 127.0.0.1/32 scram-sha-256").await;
    served.verify("127.0.0.1", "sslmode=require", "password").await;
    let file = served.dir.path().join("pgpass");
    std::fs::write(&file, format!("127.0.0.1:{}:*:postgres:a word\n", served.port)).expect("a directory of ours");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
    served.verify("127.0.0.1", "sslmode=require", "").await;
}
