//! Databases on a cluster of Citus, where `BELLWIRE_TEST_CITUS_URL` names the coordinator of one: as a superuser, in any database of it
//! that knows all nodes. Each test has a database of its own there, distributed, as it has one of the shared Postgres otherwise.

use std::str::FromStr as _;
use std::sync::LazyLock;

use bellwire::testkit::store::operations::{distribution, partitions};
use bellwire::testkit::store::{self, Beside};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::database::{START, TEMPLATE, on_a_thread};

/// What names it.
pub const VARIABLE: &str = "BELLWIRE_TEST_CITUS_URL";
/// Shards of each table: fewer than a cluster of one's own has, so that databases are copied soon.
const SHARDS: u32 = 4;

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

    /// The database that those of tests are copies of. Nobody may be in it then, Citus itself included.
    async fn make_template(&self) {
        self.drop(TEMPLATE).await;
        self.run_everywhere("postgres", &format!("CREATE DATABASE {TEMPLATE}")).await;
        let shards = format!("ALTER DATABASE {TEMPLATE} SET citus.shard_count = {SHARDS}");
        self.run_everywhere(TEMPLATE, &format!("CREATE EXTENSION citus; {shards}")).await;
        let template = self.coordinator.clone().database(TEMPLATE);
        let mut connection = PgConnection::connect_with(&template).await.expect("a connection");
        let (host, port) = (template.get_host().to_owned(), template.get_port());
        let nodes = self.workers.iter().map(|(host, port)| format!("SELECT citus_add_node('{host}', {port});"));
        let nodes = format!("SELECT citus_set_coordinator_host('{host}', {port}); {}", nodes.collect::<String>());
        sqlx::raw_sql(AssertSqlSafe(nodes)).execute(&mut connection).await.expect("nodes");
        connection.close().await.expect("a connection");
        store::migrate(&template, Beside::Refuse).await.expect("the migrations apply to an empty database");
        distribution::distribute(&template).await.expect("it is distributed");
        let pool = store::connect(template, 1).await.expect("a pool");
        partitions::ensure(&pool, START).await.expect("partitions");
        pool.close().await;
        let alone = format!(
            "ALTER DATABASE {TEMPLATE} ALLOW_CONNECTIONS false; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{TEMPLATE}'"
        );
        self.run_everywhere("postgres", &alone).await;
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

    /// How to connect to a database.
    pub fn connect_options(&self, database: &str) -> PgConnectOptions {
        self.coordinator.clone().database(database)
    }

    /// The same as a URL.
    pub fn url(&self, database: &str) -> String {
        let at = &self.coordinator;
        format!("postgres://{}@{}:{}/{database}", at.get_username(), at.get_host(), at.get_port())
    }
}
