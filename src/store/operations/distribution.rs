//! Distributing the largest tables over the machines of a Citus cluster.
//!
//! Subscriptions, their topics, attempts and receipts go by their column `shard`, side by side, so that what belongs to a subscription
//! lies on one machine. Everything else stays where it is, on the coordinator: it is small, or turned over within seconds.

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::schema::{self, SCHEMA, SchemaError};
use crate::store::connections::engine;

/// The tables that Citus distributes, each by its column `shard`, so that what belongs to a subscription lies on one machine.
const DISTRIBUTED: [&str; 4] = ["subscriptions", "topic_members", "attempts", "receipts"];
/// The oldest Citus that it is tried with.
const OLDEST_CITUS: u32 = 12;
/// How long somebody who still uses the tables is waited for.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '20s'";
/// What notes on plain Postgres how many there are to reach, and could not reach from another machine: see
/// [`Difference`](crate::store::audience::audience_counts::Difference).
const TRIGGERS: [(&str, &str); 5] = [
    ("subscriptions_gained", "subscriptions"),
    ("subscriptions_lost", "subscriptions"),
    ("subscriptions_followed", "subscriptions"),
    ("members_gained", "topic_members"),
    ("members_lost", "topic_members"),
];

/// Why a database cannot be distributed. The texts are written for the person who asked for it.
#[derive(Debug, thiserror::Error)]
pub enum DistributionError {
    /// See there.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A statement failed; what it did was rolled back.
    #[error("the database cannot be distributed: {0}")]
    Sql(#[from] sqlx::Error),
    /// Plain Postgres.
    #[error(
        "this Postgres is not one of Citus: install Citus on all machines of the cluster, put it into shared_preload_libraries, and run \
         `CREATE EXTENSION citus` in this database on each"
    )]
    NoCitus,
    /// Too old.
    #[error("the database runs Citus {version}; Bellwire needs {OLDEST_CITUS} or newer")]
    Old {
        /// As it says itself.
        version: String,
    },
    /// Not where it is done.
    #[error(
        "this is not the coordinator of the Citus cluster, by which Bellwire reaches it: name the coordinator as the database"
    )]
    NotCoordinator,
    /// Nowhere to distribute to.
    #[error(
        "no machine of the Citus cluster takes shards: add them on the coordinator by `SELECT citus_add_node('<host>', <port>)`"
    )]
    NoMachines,
}

/// What [`distribute`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    /// It is distributed now.
    Done,
    /// It was before.
    Already,
}

/// Distributes a database whose schema is this program's, with what it holds. No worker may be at work on it: nothing is read or
/// written meanwhile. All or nothing.
pub async fn distribute(options: &PgConnectOptions) -> Result<Distribution, DistributionError> {
    schema::check_schema(options).await?;
    let mut connection = schema::connect_once(options, SCHEMA).await?;
    check_cluster(&mut connection).await?;
    if engine::look(&mut connection).await? {
        return Ok(Distribution::Already);
    }
    schema::refuse_beside_any_worker(options).await?;
    let mut tx = connection.begin().await?;
    sqlx::query(LOCK_TIMEOUT).execute(&mut *tx).await?;
    execute(&mut tx, format!("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", DISTRIBUTED.join(", "))).await?;
    // One connection to each machine, so that each table sees those before it.
    sqlx::query("SET LOCAL citus.multi_shard_modify_mode = 'sequential'").execute(&mut *tx).await?;
    for (trigger, table) in TRIGGERS {
        execute(&mut tx, format!("DROP TRIGGER IF EXISTS {trigger} ON {table}")).await?;
    }
    let [first, others @ ..] = DISTRIBUTED;
    execute(&mut tx, format!("SELECT create_distributed_table('{first}', 'shard', colocate_with => 'none')")).await?;
    for table in others {
        execute(&mut tx, format!("SELECT create_distributed_table('{table}', 'shard', colocate_with => '{first}')"))
            .await?;
    }
    tx.commit().await?;
    connection.close().await?;
    Ok(Distribution::Done)
}

async fn check_cluster(connection: &mut PgConnection) -> Result<(), DistributionError> {
    let version = sqlx::query_scalar!("SELECT extversion FROM pg_extension WHERE extname = 'citus'");
    let Some(version) = version.fetch_optional(&mut *connection).await? else { return Err(DistributionError::NoCitus) };
    let major = version.split(['.', '-']).next().and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major < OLDEST_CITUS) {
        return Err(DistributionError::Old { version });
    }
    if !ask(connection, "SELECT citus_is_coordinator()").await? {
        return Err(DistributionError::NotCoordinator);
    }
    let machines =
        "SELECT EXISTS (SELECT FROM pg_dist_node WHERE noderole = 'primary' AND isactive AND shouldhaveshards)";
    if !ask(connection, machines).await? {
        return Err(DistributionError::NoMachines);
    }
    Ok(())
}

/// Asks what only Citus knows, which the macros cannot check.
async fn ask(connection: &mut PgConnection, question: &'static str) -> sqlx::Result<bool> {
    sqlx::query_scalar(question).persistent(false).fetch_one(connection).await
}

/// Runs a statement that no parameter can express. Its parts are names of our own.
async fn execute(connection: &mut PgConnection, sql: String) -> sqlx::Result<()> {
    sqlx::query(AssertSqlSafe(sql)).persistent(false).execute(connection).await.map(drop)
}
