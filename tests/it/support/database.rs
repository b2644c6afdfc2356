//! One Postgres for the whole test binary, and a database of its own for every test.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::sync::{LazyLock, OnceLock};

use bellwire_postgres::{DATABASE, Durability, Embedded, Options};
use bellwire_store::operations::schema::SCHEMA;
use bellwire_store::{self as store, operations::partitions};
use chrono::{DateTime, Utc};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::app::{PATIENCE, TestApp, scalar};
use super::citus;

pub(super) const TEMPLATE: &str = "bellwire_template";
/// Start of all tests on their stub clocks: 15 January 2027. Partitions of the days around it exist.
pub const START: DateTime<Utc> = DateTime::from_timestamp(1_800_000_000, 0).expect("in range");
/// Connections of a test's own pool.
const CONNECTIONS: u32 = 20;

static SERIAL: AtomicU32 = AtomicU32::new(0);

/// A directory that goes away with its value. A test binary that is killed leaves its directories to the next one.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> Self {
        static SWEEP: std::sync::Once = std::sync::Once::new();
        SWEEP.call_once(sweep);
        let dir = fresh_path(ON_DISK);
        // The user of Postgres needs access, with any umask.
        fs::create_dir(&dir).expect("a new directory in /tmp");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o711)).expect("our own directory");
        Self(dir)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const PREFIX: &str = "bellwire-test-";

/// Not `$TMPDIR`, which may lie where the user that Postgres runs as cannot go.
const ON_DISK: &str = "/tmp";
const IN_MEMORY: &str = "/dev/shm";
/// Octets that the shared Postgres takes at most: its log, and the databases of the tests that run.
const POSTGRES_TAKES: u64 = 3 << 30;

fn fresh_path(parent: &str) -> PathBuf {
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    PathBuf::from(format!("{parent}/{PREFIX}{}-{serial}", std::process::id()))
}

/// Directory of the shared Postgres, which writes some gigabytes of temporary data: in memory, if there is enough.
fn place_for_postgres() -> &'static str {
    let free = nix::sys::statvfs::statvfs(IN_MEMORY).map_or(0, |it| it.blocks_available() * it.fragment_size());
    if free > POSTGRES_TAKES { IN_MEMORY } else { ON_DISK }
}

/// Removes what killed test binaries left.
fn sweep() {
    for entry in [ON_DISK, IN_MEMORY].into_iter().filter_map(|parent| fs::read_dir(parent).ok()).flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let maker = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse().ok());
        if maker.is_some_and(|pid: i32| kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The Postgres of this test binary, started by the first who asks. It ends with the process, however that ends, and
/// then erases itself.
pub fn shared_postgres() -> &'static Embedded {
    static SHARED: OnceLock<Embedded> = OnceLock::new();
    SHARED.get_or_init(|| {
        sweep();
        let options = Options {
            data_dir: fresh_path(place_for_postgres()),
            search_path: std::env::var_os("PATH"),
            durability: Durability::Fast,
            ephemeral: true,
            ..Options::default()
        };
        let postgres = Embedded::start(&options).expect("an embedded Postgres for the tests");
        // Tests bring runtimes of their own, and this may run inside of one: a thread has none.
        let admin = postgres.connect_options("postgres");
        let template = postgres.connect_options(TEMPLATE);
        on_a_thread(async move {
            let mut admin = PgConnection::connect_with(&admin).await.expect("a connection");
            sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {TEMPLATE}")))
                .execute(&mut admin)
                .await
                .expect("a template");
            store::migrate(&template, store::Beside::Refuse).await.expect("the migrations apply to an empty database");
            let pool = store::connect(template, 1).await.expect("a pool");
            partitions::ensure(&pool, START).await.expect("partitions");
            pool.close().await; // a database with sessions cannot be copied
        });
        postgres
    })
}

pub(super) fn on_a_thread<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let run = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work);
    std::thread::spawn(run).join().expect("the thread did its work")
}

/// A database, mostly migrated and empty, that goes away with its value.
#[derive(Debug)]
pub struct TestDatabase {
    pub name: String,
    /// A pool as the server opens it.
    pub pool: PgPool,
    options: PgConnectOptions,
    /// URL for a `bellwire` process.
    url: String,
    /// Whether it is one of the shared Postgres.
    shared: bool,
}

impl TestDatabase {
    /// Copies the template.
    pub async fn create() -> Self {
        Self::like(TEMPLATE).await
    }

    async fn like(template: &str) -> Self {
        if template == TEMPLATE
            && let Some(cluster) = tokio::task::spawn_blocking(citus::cluster).await.expect("a cluster")
        {
            let name = Self::name_in_cluster();
            cluster.copy(&name).await;
            return Self::in_cluster(cluster, name).await;
        }
        Self::copy_of(template).await
    }

    /// One of the shared Postgres, also where tests run on a cluster: for what is refused or made otherwise there.
    pub async fn plain() -> Self {
        Self::copy_of(TEMPLATE).await
    }

    async fn copy_of(template: &str) -> Self {
        let postgres = tokio::task::spawn_blocking(shared_postgres).await.expect("a Postgres");
        let name = format!("test_{}", SERIAL.fetch_add(1, Ordering::Relaxed));
        let mut admin = PgConnection::connect_with(&postgres.connect_options("postgres")).await.expect("a connection");
        sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name} TEMPLATE {template}")))
            .execute(&mut admin)
            .await
            .expect("a copy of the template");
        let options = postgres.connect_options(&name);
        let pool = store::connect(options.clone(), CONNECTIONS).await.expect("a pool");
        let url = postgres.url(&name);
        Self { name, pool, options, url, shared: true }
    }

    /// Creates a database on the first `machines` machines of a cluster, not distributed yet.
    pub async fn undistributed(cluster: &citus::Cluster, machines: usize) -> Self {
        let name = Self::name_in_cluster();
        cluster.make(&name, machines).await;
        Self::in_cluster(cluster, name).await
    }

    fn name_in_cluster() -> String {
        format!("test_{}_{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed))
    }

    async fn in_cluster(cluster: &citus::Cluster, name: String) -> Self {
        let (options, url) = (cluster.connect_options(&name), cluster.url(&name));
        let pool = store::connect(options.clone(), CONNECTIONS).await.expect("a pool");
        Self { name, pool, options, url, shared: true }
    }

    /// Uses the planner settings of an untuned Postgres (15, `postgresql.conf.sample`).
    pub async fn with_stock_settings(mut self) -> Self {
        const STOCK: [(&str, &str); 5] = [
            ("jit", "on"),
            ("max_parallel_workers_per_gather", "2"),
            ("random_page_cost", "4"),
            ("effective_cache_size", "'4GB'"),
            ("work_mem", "'4MB'"),
        ];
        for (setting, value) in STOCK {
            let set = format!("ALTER DATABASE {} SET {setting} = {value}", self.name);
            sqlx::query(AssertSqlSafe(set)).execute(&self.pool).await.expect("it is ours");
        }
        self.pool.close().await;
        self.pool = store::connect(self.options(), CONNECTIONS).await.expect("a pool");
        self
    }

    /// One that was never migrated.
    pub async fn empty() -> Self {
        Self::like("template1").await
    }

    /// The only database of a Postgres of the test's own.
    pub async fn of(postgres: &Embedded) -> Self {
        Self::at(postgres.connect_options(DATABASE), postgres.url(DATABASE)).await
    }

    /// An empty one, which `bellwire` processes find by that URL.
    pub async fn at(options: PgConnectOptions, url: String) -> Self {
        store::migrate(&options, store::Beside::Refuse).await.expect("the migrations apply to an empty database");
        let pool = store::connect(options.clone(), CONNECTIONS).await.expect("a pool");
        Self { name: DATABASE.to_owned(), pool, options, url, shared: false }
    }

    /// Redirects new connections to another host.
    pub fn lead_to(&mut self, options: PgConnectOptions) {
        self.pool.set_connect_options(options.clone());
        self.options = options;
    }

    /// Has `bellwire` processes find it by another URL.
    pub fn found_by(&mut self, url: String) {
        self.url = url;
    }

    /// Direct connection.
    pub fn options(&self) -> PgConnectOptions {
        self.options.clone().application_name("bellwire").options([("search_path", SCHEMA)])
    }

    /// The same as a URL, for a `bellwire` process.
    pub fn url(&self) -> String {
        self.url.clone()
    }
}

impl Drop for TestDatabase {
    /// Leaves the work to one thread: a test must not wait for it, and its runtime may be gone.
    fn drop(&mut self) {
        if !self.shared {
            return;
        }
        static JANITOR: LazyLock<mpsc::Sender<String>> = LazyLock::new(|| {
            let (sender, names) = mpsc::channel::<String>();
            std::thread::spawn(move || {
                for name in names {
                    if let Some(cluster) = citus::cluster() {
                        on_a_thread(async move { cluster.drop(&name).await });
                        continue;
                    }
                    let options = shared_postgres().connect_options("postgres");
                    on_a_thread(async move {
                        // What is not dropped here goes with the whole cluster.
                        if let Ok(mut admin) = PgConnection::connect_with(&options).await {
                            let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                            let _ = sqlx::query(AssertSqlSafe(drop)).execute(&mut admin).await;
                        }
                    });
                }
            });
            sender
        });
        let _ = JANITOR.send(self.name.clone());
    }
}

/// Lets all sessions of a pool find out that their Postgres is gone: each may fail once.
pub async fn reconnect(pool: &PgPool) {
    let mut sessions = Vec::new();
    while let Some(session) = pool.try_acquire() {
        sessions.push(session);
    }
    for mut session in sessions {
        let _ = sqlx::query("SELECT 1").execute(&mut *session).await;
    }
}

/// Waits until the condition holds in the database.
pub async fn until_stored(app: &TestApp, condition: &'static str) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while scalar(&app.pool, condition).await == 0 {
            tokio::task::yield_now().await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("this never came about: {condition}"));
}
