//! Clusters of Postgres that replicate: a primary, and standbys made of it.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bellwire_postgres::DATABASE;
use nix::unistd::{User, chown, geteuid};
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::task::block_in_place;

use super::TempDir;
use super::app::PATIENCE;
use super::https::Pair;

/// One Postgres, or the place for one. It ends with its value, and with the process, however that ends.
pub struct Cluster {
    dir: TempDir,
    programs: PathBuf,
    /// Port at 127.0.0.1; `None`: only the socket.
    port: Option<u16>,
    guard: Option<Child>,
}

impl Cluster {
    /// A place where nothing runs yet.
    pub fn place() -> Self {
        let dir = TempDir::new();
        if let Some(user) = user() {
            chown(dir.path(), Some(user.uid), Some(user.gid)).expect("we are root");
        }
        Self { dir, programs: programs(), port: None, guard: None }
    }

    /// Makes a new database and starts it.
    pub async fn init(&mut self) {
        let mut initdb = self.command("initdb");
        initdb.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale", "C", "--no-sync", "--data-checksums"]);
        self.run(initdb.arg("-D").arg(self.data()));
        self.start().await;
        let mut admin = PgConnection::connect_with(&self.options("postgres")).await.expect("it runs");
        sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {DATABASE}"))).execute(&mut admin).await.expect("it is new");
        // In its own settings: pg_rewind recovers what has crashed before it looks for the WAL of the time before.
        sqlx::query("ALTER SYSTEM SET wal_keep_size = '256MB'").execute(&mut admin).await.expect("it is a superuser");
        sqlx::query("SELECT pg_reload_conf()").execute(&mut admin).await.expect("it is a superuser");
    }

    /// Makes this server a standby of `primary`, registered by that name.
    pub async fn follow(&mut self, primary: &Self, name: &str) {
        let from = format!("host={} user=postgres application_name={name}", primary.dir.path().display());
        let mut backup = self.command("pg_basebackup");
        backup.args(["-X", "stream", "-c", "fast", "-R", "--no-sync", "-d", &from]).arg("-D").arg(self.data());
        self.run(&mut backup);
        self.start().await;
    }

    /// Becomes a standby of the one that took its place, keeping what they have in common.
    pub async fn rewind(&mut self, primary: &Self) {
        let from = format!("host={} user=postgres dbname=postgres", primary.dir.path().display());
        let mut rewind = self.command("pg_rewind");
        rewind.args(["-R", "--no-sync", "--source-server", &from]).arg("-D").arg(self.data());
        self.run(&mut rewind);
        self.start().await;
    }

    /// Starts it, and waits until it takes connections.
    pub async fn start(&mut self) {
        let dir = self.dir.path().display();
        let mut settings =
            format!("-c unix_socket_directories={dir} -c fsync=off -c max_connections=150 -c listen_addresses=");
        if let Some(port) = self.port {
            settings.push_str(&format!("127.0.0.1 -c port={port}"));
        }
        let mut start = self.command("pg_ctl");
        start.args(["start", "-w", "-t", "120", "-l"]).arg(self.dir.path().join("log")).args(["-o", &settings]);
        self.run(start.arg("-D").arg(self.data()));
        let mut guard = self.shell();
        guard.args(["-c", "cat >/dev/null; exec \"$0\" stop -m immediate -D \"$1\" >/dev/null 2>&1"]);
        let guard = guard.arg(self.programs.join("pg_ctl")).arg(self.data()).stdin(Stdio::piped());
        self.guard = Some(guard.spawn().expect("a shell"));
    }

    /// Recovers from its own log and becomes the primary of a new timeline, as a standby is promoted. `target`: a setting that a recovery
    /// to a target leaves behind.
    pub async fn recover(&mut self, target: Option<&str>) {
        self.crash();
        self.configure("restore_command = 'false'");
        self.run(self.shell().args(["-c", "touch \"$0\""]).arg(self.data().join("recovery.signal")));
        self.start().await;
        self.until("SELECT NOT pg_is_in_recovery()").await;
        if let Some(target) = target {
            self.configure(target);
            self.crash();
            self.start().await;
        }
    }

    /// Starts again with TLS at a port of 127.0.0.1, and returns the port. `root` is the certificate that client certificates need.
    pub async fn listen(&mut self, pair: &Pair, root: &str) -> u16 {
        self.crash();
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        self.write("root.crt", root);
        self.certify(pair);
        self.configure("ssl = on\nssl_ca_file = 'root.crt'");
        self.port = Some(port);
        self.start().await;
        port
    }

    /// Writes certificate and key of the server.
    pub fn certify(&self, pair: &Pair) {
        self.write("server.crt", &pair.chain);
        self.write("server.key", &pair.key);
    }

    /// Has these lines decide who may connect by TCP, and reads all files again.
    pub async fn allow(&self, lines: &str) {
        self.write("pg_hba.conf", &format!("local all all trust\n{lines}\n"));
        let mut admin = PgConnection::connect_with(&self.options(DATABASE)).await.expect("it runs");
        let sql = "SELECT pg_conf_load_time()::text";
        let before: String = sqlx::query_scalar(sql).fetch_one(&mut admin).await.expect("the statement is right");
        sqlx::query("SELECT pg_reload_conf()").execute(&mut admin).await.expect("it is a superuser");
        let read = async {
            while sqlx::query_scalar::<_, String>(sql).fetch_one(&mut admin).await.expect("it runs") == before {}
        };
        tokio::time::timeout(PATIENCE, read).await.expect("Postgres reads its settings");
    }

    /// Writes a file of the data directory that only the user of Postgres can read.
    fn write(&self, name: &str, text: &str) {
        let path = self.data().join(name);
        std::fs::write(&path, text).expect("a directory of ours");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
        if let Some(user) = user() {
            chown(&path, Some(user.uid), Some(user.gid)).expect("we are root");
        }
    }

    /// Adds a line to its settings.
    fn configure(&self, line: &str) {
        let path = self.data().join("postgresql.auto.conf");
        let before = std::fs::read_to_string(&path).expect("Postgres made it");
        std::fs::write(&path, format!("{before}{line}\n")).expect("it is ours");
    }

    /// Ends it as a crash would.
    pub fn crash(&mut self) {
        let mut guard = self.guard.take().expect("it runs");
        drop(guard.stdin.take());
        block_in_place(|| guard.wait()).expect("it ends");
    }

    /// Makes a primary of a standby.
    pub fn promote(&self) {
        let mut promote = self.command("pg_ctl");
        self.run(promote.args(["promote", "-w", "-t", "120", "-D"]).arg(self.data()));
    }

    /// Runs a statement that changes how it works, as any superuser may.
    pub async fn execute(&self, sql: &'static str) {
        let mut admin = PgConnection::connect_with(&self.options(DATABASE)).await.expect("it runs");
        sqlx::query(sql).execute(&mut admin).await.expect("the statement is right");
    }

    /// Has commits wait for these standbys; empty: for none.
    pub async fn wait_for_standbys(&self, names: &str) {
        let mut admin = PgConnection::connect_with(&self.options(DATABASE)).await.expect("it runs");
        let set = format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'");
        sqlx::query(AssertSqlSafe(set)).execute(&mut admin).await.expect("it is a superuser");
        sqlx::query("SELECT pg_reload_conf()").execute(&mut admin).await.expect("it is a superuser");
    }

    /// Waits until a query of one boolean returns true.
    pub async fn until(&self, sql: &'static str) {
        let mut admin = PgConnection::connect_with(&self.options(DATABASE)).await.expect("it runs");
        let told = async {
            while !sqlx::query_scalar::<_, bool>(sql).fetch_one(&mut admin).await.expect("the statement is right") {}
        };
        tokio::time::timeout(PATIENCE, told).await.unwrap_or_else(|_| panic!("never true: {sql}"));
    }

    /// Connection to one of its databases.
    pub fn options(&self, database: &str) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .socket(self.dir.path())
            .port(self.port.unwrap_or(5432))
            .username("postgres")
            .database(database)
            .ssl_mode(PgSslMode::Disable)
    }

    /// Host and port for a URL of several hosts.
    pub fn host(&self) -> String {
        self.dir.path().display().to_string().replace('/', "%2F")
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn command(&self, program: &str) -> Command {
        as_user(Command::new(self.programs.join(program)))
    }

    fn shell(&self) -> Command {
        as_user(Command::new("/bin/sh"))
    }

    #[track_caller]
    fn run(&self, command: &mut Command) {
        // Not by pipes: what it starts would keep them open.
        let said = self.dir.path().join("said");
        let file = std::fs::File::create(&said).expect("a file");
        let (out, err) = (file.try_clone().expect("a descriptor"), file);
        let status = block_in_place(|| command.stdin(Stdio::null()).stdout(out).stderr(err).status()).expect("it runs");
        assert!(status.success(), "{command:?}: {}", std::fs::read_to_string(said).unwrap_or_default());
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            drop(guard.stdin.take());
            let _ = guard.wait();
        }
    }
}

/// User of Postgres and PgBouncer processes if the tests run as root: neither runs as root.
pub fn user() -> Option<User> {
    geteuid().is_root().then(|| User::from_name("postgres").ok().flatten().expect("packages of Postgres make it"))
}

/// The same program, run by that user.
pub fn as_user(mut command: Command) -> Command {
    if let Some(user) = user() {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/bin").env("LC_ALL", "C").current_dir("/").process_group(0);
    command
}

/// The directory of the newest Postgres.
fn programs() -> PathBuf {
    let installed = || -> io::Result<Vec<PathBuf>> {
        std::fs::read_dir("/usr/lib/postgresql")?.map(|entry| Ok(entry?.path().join("bin"))).collect()
    };
    let mut dirs = installed().unwrap_or_default();
    dirs.sort();
    dirs.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    let has_all =
        |dir: &&PathBuf| ["initdb", "pg_ctl", "pg_basebackup"].iter().all(|name| Path::exists(&dir.join(name)));
    dirs.iter().rfind(has_all).cloned().expect("a Postgres is installed")
}
