//! Citus cluster on this machine instead of the benchmark's own Postgres, if `BELLWIRE_TEST_CITUS_URL` names its coordinator: as a
//! superuser, in a database in which all nodes are registered.

use std::str::FromStr as _;
use std::sync::atomic::{AtomicU32, Ordering};

use bellwire_postgres::DATABASE;
use bellwire_store::operations::distribution;
use bellwire_store::{self as store, Beside};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::cpu;

/// Variable with the URL of the coordinator.
const VARIABLE: &str = "BELLWIRE_TEST_CITUS_URL";
/// Physical shards, as `bellwire migrate --distribute` makes.
const SHARDS: u8 = 64;

/// A cluster with an empty database, distributed.
pub struct Cluster {
    /// Connection to the coordinator.
    pub options: PgConnectOptions,
    /// Process ids of the nodes.
    pub postmasters: Vec<i32>,
}

impl Cluster {
    /// The one that is named, if any is.
    pub async fn open() -> Option<Self> {
        let url = std::env::var(VARIABLE).ok()?;
        let coordinator = PgConnectOptions::from_str(&url).expect("a URL of Postgres");
        let mut connection = PgConnection::connect_with(&coordinator).await.expect("the coordinator");
        let workers: Vec<(String, i32)> = sqlx::query_as(
            "SELECT nodename, nodeport FROM pg_dist_node WHERE groupid > 0 AND noderole = 'primary' ORDER BY nodeid",
        )
        .fetch_all(&mut connection)
        .await
        .expect("it is a coordinator of Citus");
        let at = |(host, port): &(String, i32)| {
            coordinator.clone().host(host).port(u16::try_from(*port).expect("a port")).database("postgres")
        };
        // Some benchmarks run two servers, each on a database of its own.
        static OPENED: AtomicU32 = AtomicU32::new(0);
        let database = format!("{DATABASE}_{}", OPENED.fetch_add(1, Ordering::Relaxed));
        let mut postmasters = vec![empty(&coordinator.clone().database("postgres"), &database).await];
        for worker in &workers {
            postmasters.push(empty(&at(worker), &database).await);
        }
        let options = coordinator.clone().database(&database);
        let (host, port) = (options.get_host(), options.get_port());
        let mut nodes = format!("SELECT citus_set_coordinator_host('{host}', {port});");
        nodes.extend(workers.iter().map(|(host, port)| format!("SELECT citus_add_node('{host}', {port});")));
        run(&options, &[nodes]).await;
        store::migrate(&options, Beside::Refuse).await.expect("the migrations apply");
        distribution::distribute(&options, SHARDS).await.expect("it is distributed");
        Some(Self { options, postmasters })
    }

    /// URL of the cluster for a server.
    pub fn url(&self) -> String {
        let at = &self.options;
        let database = at.get_database().expect("it is named");
        format!("postgres://{}@{}:{}/{database}", at.get_username(), at.get_host(), at.get_port())
    }
}

/// Makes the database anew on a node. Answers its postmaster's process id.
async fn empty(node: &PgConnectOptions, database: &str) -> i32 {
    let drop = format!("DROP DATABASE IF EXISTS {database} WITH (FORCE)");
    run(node, &[drop, format!("CREATE DATABASE {database}")]).await;
    run(&node.clone().database(database), &["CREATE EXTENSION citus".to_owned()]).await;
    let mut connection = PgConnection::connect_with(node).await.expect("a node");
    let session = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut connection).await.expect("a session");
    cpu::parent(session).expect("the cluster runs on this machine")
}

async fn run(at: &PgConnectOptions, statements: &[String]) {
    let mut connection = PgConnection::connect_with(at).await.expect("a node");
    for statement in statements {
        let ran = sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(&mut connection).await;
        ran.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    connection.close().await.expect("a node");
}
