//! Databases on the Citus cluster whose coordinator `BELLWIRE_TEST_CITUS_URL` names: as a superuser, in a database in which all nodes are
//! registered. Each test has its own distributed database there, instead of one on the shared Postgres.

use std::str::FromStr as _;
use std::sync::LazyLock;

use bellwire_store::operations::{distribution, partitions};
use bellwire_store::{self as store, Beside};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::database::{START, TEMPLATE, on_a_thread};

/// Variable with the URL of the coordinator.
pub const VARIABLE: &str = "BELLWIRE_TEST_CITUS_URL";
/// Shards of each table: fewer than a cluster of one's own has, so that databases are copied soon.
const SHARDS: u8 = 4;

/// A cluster.
#[derive(Debug)]
pub struct Cluster {
    /// The coordinator.
    pub coordinator: PgConnectOptions,
    /// Host and port of every worker.
    workers: Vec<(String, u16)>,
}

/// The cluster that tests run on, with a template of their databases; none: they run on plain Postgres.
pub fn cluster() -> Option<&'static Cluster> {
    static CLUSTER: LazyLock<Option<Cluster>> = LazyLock::new(|| {
        let Ok(url) = std::env::var(VARIABLE) else {
            eprintln!("nothing is tested on Citus: {VARIABLE} names no coordinator");
            return None;
        };
        let coordinator = PgConnectOptions::from_str(&url).expect("a URL of Postgres");
        Some(on_a_thread(async move {
            let cluster = Cluster { workers: workers(&coordinator).await, coordinator };
            cluster.make_template().await;
            cluster
        }))
    });
    CLUSTER.as_ref()
}

/// SQL expression for the partition of a row. On Citus the partition name has the number of the shard, which the expression removes.
pub fn partition_of_a_row() -> &'static str {
    match cluster() {
        None => "tableoid::regclass::text",
        Some(_) => r"regexp_replace(tableoid::regclass::text, '^bellwire\.|_\d+$', '', 'g')",
    }
}

async fn workers(coordinator: &PgConnectOptions) -> Vec<(String, u16)> {
    let mut connection = PgConnection::connect_with(coordinator).await.expect("the coordinator");
    let nodes: Vec<(String, i32)> = sqlx::query_as(
        "SELECT nodename, nodeport FROM pg_dist_node WHERE groupid > 0 AND noderole = 'primary' ORDER BY nodeid",
    )
    .fetch_all(&mut connection)
    .await
    .expect("it is a coordinator of Citus");
    nodes.into_iter().map(|(host, port)| (host, u16::try_from(port).expect("a port"))).collect()
}

impl Cluster {
    /// A database on each node, the coordinator first.
    fn everywhere(&self, database: &str) -> Vec<PgConnectOptions> {
        let coordinator = self.coordinator.clone().database(database);
        let workers = self.workers.iter().map(|(host, port)| coordinator.clone().host(host).port(*port));
        std::iter::once(coordinator.clone()).chain(workers).collect()
    }

    async fn run_everywhere(&self, database: &str, sql: &str) {
        for node in self.everywhere(database) {
            let mut connection = PgConnection::connect_with(&node).await.expect("a node");
            // One by one: databases are made and dropped outside of transactions.
            for statement in sql.split("; ") {
                let ran = sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut connection).await;
                ran.unwrap_or_else(|error| panic!("{statement}: {error}"));
            }
            connection.close().await.expect("a node");
        }
    }

    /// Creates the template of the test databases. No session may be connected during a copy, not even one of Citus.
    async fn make_template(&self) {
        self.drop(TEMPLATE).await;
        self.make(TEMPLATE, self.workers.len()).await;
        let template = self.coordinator.clone().database(TEMPLATE);
        distribution::distribute(&template, SHARDS).await.expect("it is distributed");
        let pool = store::connect(template, 1).await.expect("a pool");
        partitions::ensure(&pool, START).await.expect("partitions");
        pool.close().await;
        let alone = format!(
            "ALTER DATABASE {TEMPLATE} ALLOW_CONNECTIONS false; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{TEMPLATE}'"
        );
        self.run_everywhere("postgres", &alone).await;
    }

    /// Makes a database, migrated and not distributed, to which only the first so many workers are known.
    pub async fn make(&self, name: &str, workers: usize) {
        self.run_everywhere("postgres", &format!("CREATE DATABASE {name}")).await;
        self.run_everywhere(name, "CREATE EXTENSION citus").await;
        let mut connection = self.connection(name).await;
        let (host, port) = (self.coordinator.get_host(), self.coordinator.get_port());
        let coordinator = format!("SELECT citus_set_coordinator_host('{host}', {port})");
        sqlx::raw_sql(AssertSqlSafe(coordinator)).execute(&mut connection).await.expect("a coordinator");
        for worker in 0..workers {
            self.add(worker, &mut connection).await;
        }
        connection.close().await.expect("a connection");
        store::migrate(&self.connect_options(name), Beside::Refuse).await.expect("the migrations apply");
    }

    /// A connection to a database at the coordinator.
    pub async fn connection(&self, database: &str) -> PgConnection {
        PgConnection::connect_with(&self.connect_options(database)).await.expect("the coordinator")
    }

    /// Registers another worker in that connection's database. One at a time: Citus re-creates the roles of all databases on the worker,
    /// and two concurrent changes of a role fail.
    pub async fn add(&self, worker: usize, connection: &mut PgConnection) {
        let (host, port) = &self.workers[worker];
        let mut turn = PgConnection::connect_with(&self.coordinator).await.expect("the coordinator");
        sqlx::raw_sql("SELECT pg_advisory_lock(hashtext('bellwire.citus_add_node'))")
            .execute(&mut turn)
            .await
            .expect("a turn");
        let add = format!("SELECT citus_add_node('{host}', {port})");
        sqlx::raw_sql(AssertSqlSafe(add)).execute(connection).await.expect("a worker");
        turn.close().await.expect("the coordinator");
    }

    /// Whether there are so many workers.
    pub fn has(&self, workers: usize) -> bool {
        self.workers.len() >= workers
    }

    /// Host and port of a worker.
    pub fn worker(&self, worker: usize) -> &(String, u16) {
        &self.workers[worker]
    }

    /// Cuts a worker off from a database, as if its machine were lost, or lets it back in.
    pub async fn cut_off(&self, worker: usize, database: &str, is_off: bool) {
        let (host, port) = &self.workers[worker];
        let there = self.coordinator.clone().database("postgres").host(host).port(*port);
        let mut connection = PgConnection::connect_with(&there).await.expect("a worker");
        let end = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'");
        for statement in [format!("ALTER DATABASE {database} ALLOW_CONNECTIONS {}", !is_off), end] {
            sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await.expect("it is ours");
        }
    }

    /// Copies the template to a database of that name.
    pub async fn copy(&self, name: &str) {
        self.run_everywhere("postgres", &format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}")).await;
    }

    /// Drops a database.
    pub async fn drop(&self, name: &str) {
        let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
        for node in self.everywhere("postgres") {
            let Ok(mut connection) = PgConnection::connect_with(&node).await else { continue };
            // What is not dropped here goes with the whole cluster.
            let _ = sqlx::raw_sql(AssertSqlSafe(drop.clone())).execute(&mut connection).await;
        }
    }

    /// Connection to a database.
    pub fn connect_options(&self, database: &str) -> PgConnectOptions {
        self.coordinator.clone().database(database)
    }

    /// Host and port of the coordinator.
    pub fn address(&self) -> String {
        format!("{}:{}", self.coordinator.get_host(), self.coordinator.get_port())
    }

    /// The same as a URL.
    pub fn url(&self, database: &str) -> String {
        let at = &self.coordinator;
        format!("postgres://{}@{}:{}/{database}", at.get_username(), at.get_host(), at.get_port())
    }
}
