//! Distributes the largest tables over the machines of a Citus cluster.
//!
//! Subscriptions, their topics, attempts and receipts are distributed by their column `shard` and colocated, so that all data
//! of a subscription are on one machine. All other tables stay on the coordinator: they are small, or change within seconds.

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};

use super::schema::{self, SCHEMA, SchemaError};
use crate::audience::user_shards;
use crate::connections::engine;
use bellwire_core::id::SHARDS;

/// Tables that Citus distributes by their column `shard`, so that all rows of a subscription are on one machine.
const DISTRIBUTED: [&str; 4] = ["subscriptions", "topic_members", "attempts", "receipts"];
/// Table that determines the layout during the distribution.
const LAYOUT: &str = "distribution_layout";
const OLDEST_CITUS: u32 = 12;
/// Timeout of waiting for other users of the tables.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '20s'";
/// Triggers that are dropped, because they write to tables of the coordinator, which is impossible from other machines.
/// [`Difference`](crate::audience::audience_counts::Difference) writes the counts instead. Webhooks get no events about
/// subscriptions.
const TRIGGERS: [(&str, &str); 7] = [
    ("subscriptions_gained", "subscriptions"),
    ("subscriptions_lost", "subscriptions"),
    ("subscriptions_followed", "subscriptions"),
    ("subscriptions_told_new", "subscriptions"),
    ("subscriptions_told_change", "subscriptions"),
    ("members_gained", "topic_members"),
    ("members_lost", "topic_members"),
];

/// Reason why a database cannot be distributed. The texts are for the operator.
#[derive(Debug, thiserror::Error)]
pub enum DistributionError {
    /// Error of the schema.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A statement failed and was rolled back.
    #[error("the database cannot be distributed: {0}")]
    Sql(#[from] sqlx::Error),
    /// Postgres has no Citus extension.
    #[error(
        "this Postgres is not one of Citus: install Citus on all machines of the cluster, put it into shared_preload_libraries, and run \
         `CREATE EXTENSION citus` in this database on each"
    )]
    NoCitus,
    /// The version of Citus is too old.
    #[error("the database runs Citus {version}; Bellwire needs {OLDEST_CITUS} or newer")]
    Old {
        /// Version reported by Citus.
        version: String,
    },
    /// This machine is not the coordinator.
    #[error(
        "this is not the coordinator of the Citus cluster, by which Bellwire reaches it: name the coordinator as the database"
    )]
    NotCoordinator,
    /// Messages are being fanned out.
    #[error("{messages} messages are half fanned out: let a server finish them, or cancel them, and stop it again")]
    Begun {
        /// Number of messages.
        messages: i64,
    },
    /// The cluster has no machine that accepts shards.
    #[error(
        "no machine of the Citus cluster takes shards: add them on the coordinator by `SELECT citus_add_node('<host>', <port>)`"
    )]
    NoMachines,
}

/// Result of [`distribute`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    /// The database was distributed now.
    Done,
    /// The database was distributed before.
    Already,
}

/// Distributes a database with its data over `shards` physical shards. No worker may be running, because the tables are locked.
/// The change is atomic, except for an empty table that the next attempt creates again. If the database is already distributed,
/// only the index of users' shards is written again, even while workers run.
pub async fn distribute(options: &PgConnectOptions, shards: u8) -> Result<Distribution, DistributionError> {
    schema::check_schema(options).await?;
    let mut connection = schema::connect_once(options, SCHEMA).await?;
    check_cluster(&mut connection).await?;
    if engine::look(&mut connection).await? {
        engine::remember(true);
        user_shards::note_all(&mut connection).await?;
        return Ok(Distribution::Already);
    }
    schema::refuse_beside_any_worker(options).await?;
    lay_out(&mut connection, shards.clamp(1, SHARDS)).await?;
    let mut tx = connection.begin().await?;
    sqlx::query(LOCK_TIMEOUT).execute(&mut *tx).await?;
    execute(&mut tx, format!("LOCK TABLE {}, cursors IN ACCESS EXCLUSIVE MODE", DISTRIBUTED.join(", "))).await?;
    refuse_begun(&mut tx).await?;
    // One connection to each machine, so that each table sees those before it.
    sqlx::query("SET LOCAL citus.multi_shard_modify_mode = 'sequential'").execute(&mut *tx).await?;
    for (trigger, table) in TRIGGERS {
        execute(&mut tx, format!("DROP TRIGGER IF EXISTS {trigger} ON {table}")).await?;
    }
    let users = "INSERT INTO user_shards (app, user_id, shard)
                 SELECT DISTINCT app, user_id, shard FROM subscriptions WHERE user_id IS NOT NULL ON CONFLICT DO NOTHING";
    sqlx::query(users).execute(&mut *tx).await?;
    for table in DISTRIBUTED {
        execute(&mut tx, format!("SELECT create_distributed_table('{table}', 'shard', colocate_with => '{LAYOUT}')"))
            .await?;
        // Otherwise its rows stay on the coordinator's disk, too, where they are invisible.
        execute(&mut tx, format!("SELECT truncate_local_data_after_distributing_table('{table}')")).await?;
    }
    execute(&mut tx, format!("DROP TABLE {LAYOUT}")).await?;
    tx.commit().await?;
    end_sessions(&mut connection).await?;
    connection.close().await?;
    Ok(Distribution::Done)
}

/// Creates an empty table with `shards` physical shards, each with an equal number of logical shards, as layout for the other
/// tables. Citus divides the hash range into equal parts, which would contain different numbers of the 64 logical shards.
async fn lay_out(connection: &mut PgConnection, shards: u8) -> sqlx::Result<()> {
    execute(connection, format!("DROP TABLE IF EXISTS {LAYOUT}")).await?;
    execute(connection, format!("CREATE TABLE {LAYOUT} (shard smallint PRIMARY KEY)")).await?;
    let create =
        format!("SELECT create_distributed_table('{LAYOUT}', 'shard', shard_count => 1, colocate_with => 'none')");
    execute(connection, create).await?;
    if shards == 1 {
        return Ok(());
    }
    let last = SHARDS - 1;
    // Between the last hash of each and the first of the next, and round the machines.
    let split = format!(
        "WITH hashes AS (
           SELECT hash, lead(hash) OVER (ORDER BY hash) AS next, row_number() OVER (ORDER BY hash) AS n
           FROM (SELECT worker_hash(logical::smallint)::bigint AS hash FROM generate_series(0, {last}) AS logical) AS of)
         SELECT citus_split_shard_by_split_points(
           (SELECT shardid FROM pg_dist_shard WHERE logicalrelid = '{LAYOUT}'::regclass),
           (SELECT array_agg(((hash + next) / 2)::text ORDER BY hash) FROM hashes
            WHERE next IS NOT NULL AND n * {shards} / {SHARDS} <> (n - 1) * {shards} / {SHARDS}),
           (SELECT array_agg(nodes[1 + i % cardinality(nodes)] ORDER BY i)
            FROM generate_series(0, {shards} - 1) AS i,
              (SELECT array_agg(nodeid ORDER BY nodeid) AS nodes FROM pg_dist_node
               WHERE noderole = 'primary' AND isactive AND shouldhaveshards) AS machines),
           'block_writes')"
    );
    execute(connection, split).await
}

/// Fails if a message is partly fanned out, because [cursors use another order](crate::queue::claims::walk) afterwards.
async fn refuse_begun(connection: &mut PgConnection) -> Result<(), DistributionError> {
    let begun = fetch_one!(
        connection,
        scalar,
        r#"SELECT count(DISTINCT message) AS "n!" FROM cursors WHERE after <> '00000000-0000-0000-0000-000000000000'"#
    )?;
    match begun {
        0 => Ok(()),
        messages => Err(DistributionError::Begun { messages }),
    }
}

/// Ends all sessions of Bellwire, because they use statements for plain Postgres. New sessions detect Citus.
async fn end_sessions(connection: &mut PgConnection) -> sqlx::Result<()> {
    fetch_all!(
        connection,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND usename = current_user AND application_name LIKE 'bellwire%' AND pid <> pg_backend_pid()"
    )
    .map(drop)
}

async fn check_cluster(connection: &mut PgConnection) -> Result<(), DistributionError> {
    let version = query!(scalar, "SELECT extversion FROM pg_extension WHERE extname = 'citus'");
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

/// Runs a query with Citus functions, which the macros cannot check. Returns its boolean.
async fn ask(connection: &mut PgConnection, question: &'static str) -> sqlx::Result<bool> {
    sqlx::query_scalar(question).persistent(false).fetch_one(connection).await
}

/// Runs a statement that cannot use parameters. Its parts are Bellwire's own names.
async fn execute(connection: &mut PgConnection, sql: String) -> sqlx::Result<()> {
    sqlx::query(AssertSqlSafe(sql)).persistent(false).execute(connection).await.map(drop)
}

/// Part of the distributed tables on one machine of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Machine {
    /// Host and port.
    pub name: String,
    /// Physical shards of each table.
    pub shards: i64,
    pub octets: i64,
}

/// Distribution of the tables over the machines.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// Machines, ordered by name.
    pub machines: Vec<Machine>,
    /// Share of all subscriptions in the largest physical shard, by bytes.
    pub fullest: f64,
}

/// Returns the placement. `None`: the database is not distributed.
pub async fn placement(pool: &PgPool) -> sqlx::Result<Option<Placement>> {
    if !engine::is_distributed() {
        return Ok(None);
    }
    let machines = sqlx::query_as(
        "SELECT n.nodename || ':' || n.nodeport AS name,
           count(DISTINCT s.shardid) FILTER (WHERE s.table_name = 'subscriptions'::regclass) AS shards,
           coalesce(sum(s.shard_size), 0)::bigint AS octets
         FROM pg_dist_node n LEFT JOIN citus_shards s ON (s.nodename, s.nodeport) = (n.nodename, n.nodeport)
         WHERE n.noderole = 'primary' AND n.shouldhaveshards GROUP BY 1 ORDER BY 1",
    );
    let fullest = "SELECT coalesce(max(shard_size)::double precision / nullif(sum(shard_size), 0), 0)::double precision
                   FROM citus_shards WHERE table_name = 'subscriptions'::regclass";
    Ok(Some(Placement {
        machines: machines.persistent(false).fetch_all(pool).await?,
        fullest: sqlx::query_scalar(fullest).persistent(false).fetch_one(pool).await?,
    }))
}
