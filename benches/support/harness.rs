//! The harness: Postgres, simulated gateways and `bellwire serve`, each a process of its own, in a directory that
//! vanishes. Fields end in the order in which they stand.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellwire_core::clock::Clock;
use bellwire_core::id::{AppId, MessageId};
use bellwire_core::scope::Scope;
use bellwire_postgres::{DATABASE, Embedded, Options};
use bellwire_store::keys::api_keys;
use bellwire_store::{self as store, keys::data_keys};
use bellwire_vault::Vault;
use bellwire_vault::master_key::{MasterKey, MasterKeySource};
use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};

use super::bare::Bare;
use super::citus::Cluster;
use super::client::Client;
use super::cpu::{self, Usage};
use super::process::{BELLWIRE, Process, Simulator, TempDir};
use super::receiver::Receiver;
use super::setting;
use super::table;

/// The simulator opens and records the requests of one endpoint in so many.
pub const SAMPLE: u32 = 100;
const START_WITHIN: Duration = Duration::from_secs(60);
/// Poll interval of a campaign. A poll costs Postgres some 40 µs.
const LOOK: Duration = Duration::from_millis(50);
/// A campaign of 1,000,000 takes two minutes.
const CAMPAIGN_WITHIN: Duration = Duration::from_secs(900);

/// Time without requests until a server counts as idle.
const SETTLES_FOR: Duration = Duration::from_secs(10);
/// Maximum time of vacuum for the rows written before.
const VACUUMED_WITHIN: Duration = Duration::from_secs(300);

/// Environment variables of servers, by name.
pub type Settings = &'static [(&'static str, &'static str)];

/// A running Bellwire with everything around it.
pub struct Harness {
    server: Process,
    /// Further servers on the same database.
    replicas: Vec<Process>,
    master_key: String,
    settings: Settings,
    simulator: Simulator,
    /// The REST API, with an operator's key.
    pub api: Client,
    /// The simulator's HTTP interface.
    pub gateways: Client,
    /// The database, beside the server's own connections.
    pub pool: PgPool,
    /// Vault of the server.
    pub vault: Vault,
    postgres: Postgres,
    dir: TempDir,
}

/// Postgres of the benchmark, shut down cleanly at the end; or an existing cluster.
enum Postgres {
    Own(Embedded),
    Cluster(Cluster),
}

impl Postgres {
    fn options(&self) -> PgConnectOptions {
        match self {
            Self::Own(postgres) => postgres.connect_options(DATABASE),
            Self::Cluster(cluster) => cluster.options.clone(),
        }
    }

    fn url(&self) -> String {
        match self {
            Self::Own(postgres) => postgres.url(DATABASE),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    /// Of a cluster, the coordinator's first.
    fn postmasters(&self) -> Vec<i32> {
        match self {
            Self::Own(postgres) => postgres.postmaster().into_iter().collect(),
            Self::Cluster(cluster) => cluster.postmasters.clone(),
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let Self::Own(postgres) = self else { return };
        let postmaster = postgres.postmaster();
        postgres.stop();
        // One that the server kept ends with the server.
        let began = Instant::now();
        let runs = |pid: i32| std::path::Path::new(&format!("/proc/{pid}")).exists();
        while postmaster.is_some_and(runs) && began.elapsed() < START_WITHIN {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A campaign that was sent to its end.
pub struct Campaign {
    pub message: MessageId,
    /// Deliveries that it came to.
    pub deliveries: u32,
    /// From the request to the commit of the last settling.
    pub took: Duration,
    pub usage: Usage,
}

impl Campaign {
    /// Deliveries per second.
    pub fn rate(&self) -> f64 {
        f64::from(self.deliveries) / self.took.as_secs_f64()
    }
}

/// Removes the tuned planner settings for all sessions, to measure an untuned Postgres. A setting of the database overrides the command
/// line, with which this Postgres is started.
async fn forget_tuning(postgres: &Embedded) {
    let mut connection = PgConnection::connect_with(&postgres.connect_options(DATABASE)).await.expect("a connection");
    for setting in
        ["jit = on", "max_parallel_workers_per_gather = 2", "random_page_cost = 4", "effective_cache_size = '4GB'"]
    {
        let set = format!("ALTER DATABASE {DATABASE} SET {setting}");
        sqlx::query(AssertSqlSafe(set)).execute(&mut connection).await.expect("it is ours");
    }
    connection.close().await.expect("closed");
}

/// Has Postgres count what statements cost, which takes a start.
async fn count_statements(postgres: &Embedded) {
    let said = [
        ("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'", true),
        ("CREATE EXTENSION pg_stat_statements SCHEMA public", false),
    ];
    for (statement, then_restart) in said {
        let connected = PgConnection::connect_with(&postgres.connect_options(DATABASE)).await;
        let mut connection = connected.expect("a connection");
        sqlx::query(statement)
            .execute(&mut connection)
            .await
            .expect("it is ours, and a contributed module of Postgres");
        connection.close().await.expect("closed");
        if then_restart {
            postgres.restart().expect("Postgres starts again");
        }
    }
}

impl Harness {
    /// Sets up everything and prints the machine.
    pub async fn open() -> Self {
        Self::open_with(&[]).await
    }

    /// The same, on a Postgres that counts what each statement costs.
    pub async fn counting() -> Self {
        Self::begin(true, &[], &[], &[]).await
    }

    /// The same, with these settings of servers besides those of all benchmarks.
    pub async fn open_with(settings: Settings) -> Self {
        Self::begin(false, &[], &[], settings).await
    }

    /// Sets up everything, with registered webhook receivers.
    pub async fn beside(receivers: &[Receiver]) -> Self {
        Self::begin(false, &[], receivers, &[]).await
    }

    /// The same, before push services that are started with these arguments.
    pub async fn before(arguments: &[&str]) -> Self {
        Self::begin(false, arguments, &[], &[]).await
    }

    /// Sets up everything, with a server that runs its embedded Postgres on a machine with this much memory.
    pub async fn embedded(memory_mib: u32) -> Self {
        let (dir, master_key) = (TempDir::new(), master_key());
        let simulator = Simulator::start(&dir, SAMPLE, &[]);
        let memory_mib = memory_mib.to_string();
        let (server, address) =
            serve(&dir, None, &simulator, &[], &master_key, &[("BELLWIRE_MEMORY_MIB", &memory_mib)]).await;
        // The server keeps it: it is adopted.
        let postgres = Postgres::Own(Embedded::start(&options(&dir)).expect("an embedded Postgres runs"));
        Self::around(dir, simulator, postgres, server, address, master_key, &[]).await
    }

    /// Sets up everything, with sealing of eight payloads at a time where the processor supports it. All other figures are for servers
    /// without, unless `MULTI_BUFFER=1`.
    pub async fn accelerated() -> Self {
        Self::open_with(&[("BELLWIRE_MULTI_BUFFER", "true")]).await
    }

    async fn begin(counting: bool, arguments: &[&str], receivers: &[Receiver], settings: Settings) -> Self {
        let dir = TempDir::new();
        let simulator = Simulator::start(&dir, SAMPLE, arguments);
        let postgres = match Cluster::open().await {
            Some(cluster) => Postgres::Cluster(cluster),
            None => Postgres::Own(embedded(&dir, counting).await),
        };
        let master_key = master_key();
        let (server, address) = serve(&dir, Some(&postgres), &simulator, receivers, &master_key, settings).await;
        Self::around(dir, simulator, postgres, server, address, master_key, settings).await
    }

    /// Creates the surroundings of a running server.
    async fn around(
        dir: TempDir, simulator: Simulator, postgres: Postgres, server: Process, address: String, master_key: String,
        settings: Settings,
    ) -> Self {
        let pool = store::connect(postgres.options(), 4).await.expect("the database takes connections");
        let clock = Clock::system();
        let key = MasterKey::parse(&master_key).expect("32 octets");
        let vault = data_keys::open(&pool, &MasterKeySource::Given(key), clock.now()).await.expect("the keys open");
        let (_, secret) =
            api_keys::create(&pool, &vault, None, "bench", &[Scope::Operator], None, &clock).await.expect("a key");
        let api = Client::new(address).with_key(&secret);
        let gateways = Client::new(&simulator.control);
        let version: String = sqlx::query_scalar("SHOW server_version").fetch_one(&pool).await.expect("a version");
        table::machine(&format!("Postgres {version} (synchronous_commit on)"));
        let replicas = Vec::new();
        Self { server, replicas, master_key, settings, simulator, api, gateways, pool, vault, postgres, dir }
    }

    /// Starts further servers on the same database, until so many run in all.
    pub async fn replicate(&mut self, servers: usize) {
        while 1 + self.replicas.len() < servers {
            let Self { dir, postgres, simulator, master_key, .. } = &*self;
            let (replica, _) = serve(dir, Some(postgres), simulator, &[], master_key, self.settings).await;
            self.replicas.push(replica);
        }
    }

    /// CPU time that each server has used so far.
    pub fn servers(&self) -> Vec<Duration> {
        std::iter::once(&self.server).chain(&self.replicas).map(|server| cpu::of_process(server.id())).collect()
    }

    /// Connections of all servers to the database.
    pub async fn connections(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'bellwire %'")
            .fetch_one(&self.pool)
            .await
            .expect("an answer")
    }

    /// A client that only inserts, on the same Postgres.
    pub async fn bare(&self) -> Bare {
        Bare::open(self.postgres.options()).await
    }

    /// Makes an app.
    pub async fn app(&self, slug: &str) -> AppId {
        let app = json!({"slug": slug, "name": slug, "subject": "mailto:push@example.com"});
        let made = self.api.post("/v1/apps", &app).await;
        made["id"].as_str().and_then(|id| id.parse().ok()).expect("an app's id")
    }

    /// Sends a message through the API.
    pub async fn send(&self, app: AppId, body: &Value) -> MessageId {
        let taken = self.api.post(&format!("/v1/apps/{app}/messages"), body).await;
        taken["id"].as_str().and_then(|id| id.parse().ok()).expect("a message's id")
    }

    /// Sends a campaign to all subscribers of an app and waits for its end, which must leave the account right.
    pub async fn campaign(&self, app: AppId, deliveries: u32, body: &Value) -> Campaign {
        sqlx::query("CHECKPOINT").execute(&self.pool).await.expect("a checkpoint");
        let (received, before, began) = (self.received().await, self.usage(), Instant::now());
        let message = self.send(app, body).await;
        self.wait_for(message).await;
        let took = began.elapsed();
        let campaign = Campaign { message, deliveries, took, usage: self.usage() - before };
        self.check_account(&campaign, self.received().await - received).await;
        campaign
    }

    /// Waits until nothing of a message is left to do.
    pub async fn wait_for(&self, message: MessageId) {
        let began = Instant::now();
        while self.is_under_way(message).await {
            assert!(began.elapsed() < CAMPAIGN_WITHIN, "a campaign does not end");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Whether anything of a message is left to do: three probes of indexes, or fewer.
    pub async fn is_under_way(&self, message: MessageId) -> bool {
        sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM cursors WHERE message = $1) OR EXISTS (SELECT FROM batches WHERE message = $1)
                 OR EXISTS (SELECT FROM queue WHERE message = $1)",
        )
        .bind(message.0)
        .fetch_one(&self.pool)
        .await
        .expect("an answer")
    }

    /// Whether anybody is left whom a message was not handed out for.
    pub async fn is_expanding(&self, message: MessageId) -> bool {
        let expanding = sqlx::query_scalar("SELECT EXISTS (SELECT FROM cursors WHERE message = $1)").bind(message.0);
        expanding.fetch_one(&self.pool).await.expect("an answer")
    }

    /// Checks that the message's counts, the log of attempts and the simulator's counts agree.
    async fn check_account(&self, campaign: &Campaign, received: u64) {
        let (targeted, accepted): (i64, i64) = sqlx::query_as(
            "SELECT coalesce(sum(targeted), 0)::bigint, coalesce(sum(accepted), 0)::bigint FROM message_counts WHERE message = $1",
        )
        .bind(campaign.message.0)
        .fetch_one(&self.pool)
        .await
        .expect("counts");
        let logged: i64 = sqlx::query_scalar("SELECT count(*) FROM attempts WHERE message = $1 AND ending = 1")
            .bind(campaign.message.0)
            .fetch_one(&self.pool)
            .await
            .expect("a log");
        let wanted = i64::from(campaign.deliveries);
        assert_eq!((targeted, accepted, logged), (wanted, wanted, wanted), "targeted, accepted, logged attempts");
        assert_eq!(received, u64::from(campaign.deliveries), "taken by the simulator");
    }

    /// Number of accepted deliveries of the simulator; all must be valid.
    pub async fn received(&self) -> u64 {
        let report = self.gateways.get("/report").await;
        assert_eq!(report["duplicates"], 0, "nothing goes out twice");
        assert_eq!(report["faults"], json!({}), "every request is as the protocol wants it");
        report["accepted"].as_u64().expect("a count")
    }

    /// Does now what would be done later for what was written, so that what follows is measured by itself.
    pub async fn settle(&self) {
        let mut connection = self.pool.acquire().await.expect("a connection");
        for statement in ["SET statement_timeout = 0", "VACUUM ANALYZE", "CHECKPOINT", "RESET statement_timeout"] {
            sqlx::query(statement).execute(&mut *connection).await.expect("maintenance");
        }
        drop(connection);
        tokio::time::sleep(SETTLES_FOR).await;
        let is_vacuumed = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'autovacuum worker')";
        let began = Instant::now();
        while !sqlx::query_scalar::<_, bool>(is_vacuumed).fetch_one(&self.pool).await.expect("an answer") {
            assert!(began.elapsed() < VACUUMED_WITHIN, "vacuum does not end");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// The postmaster's process id; of a cluster, the coordinator's.
    pub fn postmaster(&self) -> i32 {
        *self.postgres.postmasters().first().expect("Postgres runs")
    }

    /// CPU time of all processes so far.
    pub fn usage(&self) -> Usage {
        Usage {
            server: self.servers().into_iter().sum(),
            postgres: self.postgres.postmasters().into_iter().map(cpu::of_tree).sum(),
            simulator: cpu::of_process(self.simulator.id()),
        }
    }

    /// Directory for files of the benchmark.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Runs the program with these arguments at the database, until it ends.
    pub async fn bellwire(&self, arguments: &[&str]) -> Output {
        let mut command = tokio::process::Command::new(BELLWIRE);
        command
            .args(arguments)
            .env_clear()
            .current_dir(self.dir())
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("DATABASE_URL", self.postgres.url())
            .env("BELLWIRE_MASTER_KEY", &self.master_key)
            .env("BELLWIRE_DATA_DIR", self.dir().join("data"))
            .kill_on_drop(true);
        command.output().await.expect("the program is there")
    }

    /// The server's process id.
    pub fn server(&self) -> i32 {
        self.server.id()
    }
}

/// A Postgres of the benchmark's own.
async fn embedded(dir: &TempDir, counting: bool) -> Embedded {
    // One that is started again is not; the directory ends with the benchmark either way.
    let options = Options { ephemeral: !counting, ..options(dir) };
    let postgres = Embedded::start(&options).expect("an embedded Postgres starts");
    if counting {
        count_statements(&postgres).await;
    }
    if setting("STOCK", 0) > 0 {
        forget_tuning(&postgres).await;
    }
    postgres
}

/// Options of Postgres.
fn options(dir: &TempDir) -> Options {
    let (data_dir, search_path) = (dir.path().join("data"), std::env::var_os("PATH"));
    Options { data_dir, search_path, ..Options::default() }
}

fn master_key() -> String {
    STANDARD.encode(rand::random::<[u8; 32]>())
}

/// Starts `bellwire serve` and waits until it is ready, on that Postgres or one of its own. Answers its address.
async fn serve(
    dir: &TempDir, postgres: Option<&Postgres>, simulator: &Simulator, receivers: &[Receiver], master_key: &str,
    settings: &[(&str, &str)],
) -> (Process, String) {
    // Another process could take the port before the server, which would then fail with an error.
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    let gateways = simulator.hosts.iter().map(|host| format!("{}={}@{}", host.host, host.gateway.name(), host.addr));
    let receiving = receivers.iter().map(|receiver| format!("{}=other@{}", receiver.host, receiver.address));
    let gateways: Vec<String> = gateways.chain(receiving).collect();
    let mut authorities = std::fs::read_to_string(&simulator.ca).expect("the simulator's certificate");
    authorities.extend(receivers.iter().map(|receiver| receiver.ca_pem.as_str()));
    let ca = dir.path().join("authorities.pem");
    std::fs::write(&ca, authorities).expect("a file");
    let server = Process::start(BELLWIRE, |command| {
        command
            .arg("serve")
            .env_clear()
            .current_dir(dir.path())
            .envs(postgres.map(|postgres| ("DATABASE_URL", postgres.url())))
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("BELLWIRE_MASTER_KEY", master_key)
            .env("BELLWIRE_DATA_DIR", dir.path().join("data"))
            .env("BELLWIRE_LISTEN", free.to_string())
            .env("BELLWIRE_GATEWAYS", gateways.join(","))
            .env("BELLWIRE_GATEWAY_CA_FILE", &ca)
            .env("BELLWIRE_ALLOW_LOOPBACK", "true")
            .env("BELLWIRE_TRUSTED_PROXIES", "1") // browsers of a benchmark have addresses of their own
            .env("BELLWIRE_RUNAWAY_FACTOR", "0") // a benchmark is nothing but that
            .env("BELLWIRE_MULTI_BUFFER", (setting("MULTI_BUFFER", 0) > 0).to_string())
            .envs(settings.iter().copied())
            .env("BELLWIRE_LOG", "warn")
            .env("BELLWIRE_LOG_FORMAT", "json") // without the words of welcome
            .stdout(Stdio::null()); // warnings come on standard error
    });
    let address = format!("http://{free}");
    let (client, began) = (Client::new(&address), Instant::now());
    while !client.is_well("/readyz").await {
        assert!(began.elapsed() < START_WITHIN, "the server does not become ready");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    (server, address)
}

/// The message of a campaign: a notification of usual size to everybody.
pub fn notice() -> Value {
    json!({
        "to": {"all": true},
        "tier": "promotional",
        "content": {"title": "Fresh in the shop", "body": "x".repeat(180), "url": "https://example.com/new"}
    })
}
