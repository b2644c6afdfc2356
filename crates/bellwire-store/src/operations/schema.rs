//! Schema of all tables: detects what a database has of it, and applies migrations.
//!
//! A database may be shared with other applications, so all of Bellwire's tables are in a schema of their own, [`SCHEMA`],
//! including the table of migrations. Connections use only this schema.

use std::time::Duration;

use sqlx::migrate::{AppliedMigration, Migrate, MigrateError, Migration, Migrator};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::time::{Instant, sleep};

use super::restoring;
use super::workers::SILENCE;
pub use crate::connections::SCHEMA;
use crate::connections::{ACQUIRE_TIMEOUT, tls};
use crate::is_out_of_connections;
use bellwire_postgres::OLDEST_MAJOR;

/// Interval of connection attempts while Postgres has no free connection.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Line of a migration with which servers of the previous version can run concurrently, and older programs can start.
const BESIDE: &str = "-- beside: yes";

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations");

/// Reason why the database cannot be used. The texts are for the operator who started Bellwire.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// A connection or a statement failed.
    #[error("the database cannot be used: {0}")]
    Sql(#[from] sqlx::Error),
    /// A migration failed and was rolled back.
    #[error("migration {version} failed: {source}")]
    Migration {
        /// Number of the migration.
        version: i64,
        /// Error of its statement.
        source: sqlx::Error,
    },
    /// The version of Postgres is too old.
    #[error("the database runs Postgres {major}; Bellwire needs {OLDEST_MAJOR} or newer")]
    Postgres {
        /// Number of the major version.
        major: u32,
    },
    /// Migrations are missing, and `--no-migrate` forbids them.
    #[error("the database lacks migrations {missing:?}: run `bellwire migrate`, or start without --no-migrate")]
    Old {
        /// Numbers of the migrations.
        missing: Vec<i64>,
    },
    /// The database has a migration that this program lacks: it was migrated by a newer Bellwire, or another program.
    #[error(
        "the database has migration {version}, which this program does not contain: run the newer Bellwire that made it"
    )]
    Foreign {
        /// Number of the first unknown migration.
        version: i64,
    },
    /// An applied migration differs from this program's: the database of an unreleased or modified build.
    #[error(
        "the tables of this database were created by an unreleased or modified build of Bellwire (its migration {version} \
         differs), and no other build can migrate them: export the apps with that build (`bellwire export`), and import them \
         into an empty database: another one, or this one after `DROP SCHEMA {SCHEMA} CASCADE`; for the embedded Postgres, \
         give another --data-dir"
    )]
    Changed {
        /// Number of the migration.
        version: i64,
    },
    /// Workers with the previous schema are running.
    #[error(
        "{workers} worker(s) of another version are at work on this database, and would send messages twice if it were \
         migrated under them: stop all servers, and try again (one that was killed counts as dead {} s after its last sign of \
         life), or migrate all the same by `bellwire migrate --force`",
        SILENCE.as_secs()
    )]
    InUse {
        /// Number of running workers.
        workers: i64,
    },
    /// Workers use a database that is to be replaced.
    #[error("{workers} worker(s) are at work on this database: stop all servers, and try again")]
    AtWork {
        /// Number of running workers.
        workers: i64,
    },
    /// Another application uses a schema of this name.
    #[error(
        "the schema `{SCHEMA}` holds {table}, which Bellwire did not make: drop or rename it, or use another database"
    )]
    Taken {
        /// Name of one of its tables.
        table: String,
    },
    /// The role lacks the permission to create the schema.
    #[error(
        "this role may not make the schema `{SCHEMA}`: let the database's owner run `CREATE SCHEMA {SCHEMA} AUTHORIZATION \
         <the role>`"
    )]
    Forbidden,
    /// A restore is running or was interrupted.
    #[error(
        "a backup is being restored into this database, or that broke off: let it end, or run `bellwire restore` again"
    )]
    Restoring,
    /// Another fault of migrations.
    #[error("the database cannot be migrated: {0}")]
    Other(MigrateError),
}

impl From<MigrateError> for SchemaError {
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::Execute(source) => Self::Sql(source),
            MigrateError::ExecuteMigration(source, version) => Self::Migration { version, source },
            MigrateError::VersionMissing(version) => Self::Foreign { version },
            MigrateError::VersionMismatch(version) => Self::Changed { version },
            other => Self::Other(other),
        }
    }
}

/// Content of a database before any change.
#[derive(Debug)]
pub enum Contents {
    /// No tables.
    Nothing,
    /// Only tables of other applications, one of which is named.
    Others(String),
    /// Bellwire's schema with these migrations. Empty if the first one was interrupted.
    Ours(Vec<AppliedMigration>),
}

/// Inspects a database. Refuses a Postgres that is too old, and one where another application has [`SCHEMA`].
pub async fn inspect(options: &PgConnectOptions) -> Result<Contents, SchemaError> {
    let mut connection = connect_once(options, SCHEMA).await?;
    if restoring::is_under_way(&mut connection).await? {
        return Err(SchemaError::Restoring);
    }
    let contents = contents(&mut connection).await?;
    connection.close().await?;
    Ok(contents)
}

async fn contents(connection: &mut PgConnection) -> Result<Contents, SchemaError> {
    let table = format!("{SCHEMA}.{}", MIGRATIONS.table_name);
    let readable = fetch_one!(
        &mut *connection,
        scalar,
        r#"SELECT coalesce(has_table_privilege(to_regclass($1), 'SELECT'), false) AS "readable!""#,
        (table)
    )?;
    if readable {
        return Ok(Contents::Ours(connection.list_applied_migrations(&table).await?));
    }
    // Tables of extensions do not count as an application's.
    let other = fetch_optional!(
        connection,
        r#"SELECT n.nspname = $1 AS "is_here!", format('%I.%I', n.nspname, c.relname) AS "table!"
           FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
           WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
             AND NOT EXISTS (
                 SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
           ORDER BY 1 DESC, 2 LIMIT 1"#,
        (SCHEMA)
    )?;
    Ok(match other {
        Some(other) if other.is_here => return Err(SchemaError::Taken { table: other.table }),
        Some(other) => Contents::Others(other.table),
        None => Contents::Nothing,
    })
}

/// Behaviour while workers of another schema version run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// Fail: the workers' statements would fail, and their POSTs would be repeated by others.
    Refuse,
    /// Migrate while workers run.
    Force,
}

/// Creates the schema if needed, and applies missing migrations. Replicas that start together wait for each other. There is no
/// statement timeout, because an index on a large table takes long.
pub async fn migrate(options: &PgConnectOptions, beside: Beside) -> Result<(), SchemaError> {
    let mut connection = connect_once(options, SCHEMA).await?;
    connection.lock().await?; // `run_direct` takes it once more, and the end of the session lets go of it
    let contents = contents(&mut connection).await?;
    let missing: Vec<_> = match &contents {
        Contents::Ours(applied) => {
            refuse_unknown(&mut connection, applied).await?;
            missing_of(applied).collect()
        }
        _ => {
            make_schema(&mut connection).await?;
            MIGRATIONS.iter().collect()
        }
    };
    if missing.is_empty() {
        return Ok(connection.close().await?); // nothing to do, even if a newer program has applied more
    }
    let is_upgrade = matches!(contents, Contents::Ours(_));
    if is_upgrade && beside == Beside::Refuse && missing.iter().any(|missing| !runs_beside(missing)) {
        refuse_beside_workers(&mut connection).await?;
    }
    // Citus warns of each function that it makes on the coordinator alone, where all of them run.
    fetch_optional!(
        &mut connection,
        r#"SELECT set_config('client_min_messages', 'error', false) AS "set!"
           WHERE to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL"#
    )?;
    // `run` takes an `Acquire`, which makes futures that the compiler cannot prove to be Send.
    for (n, migration) in missing.iter().enumerate() {
        let (version, of) = (migration.version, missing.len());
        if is_upgrade {
            tracing::info!(version, name = %migration.description, n = n + 1, of, "applying a migration");
        }
        MIGRATIONS.run_direct(Some(version), &mut connection, false).await?;
    }
    let beside: Vec<_> = MIGRATIONS.iter().filter(|ours| runs_beside(ours)).map(|ours| ours.version).collect();
    execute!(
        &mut connection,
        "INSERT INTO migrations_beside (version) SELECT unnest($1::bigint[]) ON CONFLICT DO NOTHING",
        (&beside)
    )?;
    Ok(connection.close().await?)
}

/// Returns this program's migrations that are not applied.
fn missing_of(applied: &[AppliedMigration]) -> impl Iterator<Item = &'static Migration> {
    MIGRATIONS.iter().filter(|ours| !applied.iter().any(|applied| applied.version == ours.version))
}

/// Whether servers of the previous version may run during and after a migration.
fn runs_beside(migration: &Migration) -> bool {
    migration.sql.as_str().lines().any(|line| line == BESIDE)
}

/// Fails if an applied migration differs from this program's, or is unknown, unless this program can run with it.
async fn refuse_unknown(connection: &mut PgConnection, applied: &[AppliedMigration]) -> Result<(), SchemaError> {
    let differs = |it: &&AppliedMigration| {
        MIGRATIONS.iter().any(|ours| ours.version == it.version && ours.checksum != it.checksum)
    };
    if let Some(&AppliedMigration { version, .. }) = applied.iter().find(differs) {
        return Err(SchemaError::Changed { version });
    }
    let unknown: Vec<_> =
        applied.iter().map(|applied| applied.version).filter(|it| !MIGRATIONS.version_exists(*it)).collect();
    let mut beside = Vec::new();
    if !unknown.is_empty() {
        let there = fetch_one!(
            &mut *connection,
            scalar,
            r#"SELECT to_regclass($1) IS NOT NULL AS "there!""#,
            (format!("{SCHEMA}.migrations_beside"))
        )?;
        if there {
            beside = fetch_all!(
                connection,
                scalar,
                "SELECT version FROM migrations_beside WHERE version = ANY ($1)",
                (&unknown)
            )?;
        }
    }
    match unknown.into_iter().find(|version| !beside.contains(version)) {
        Some(version) => Err(SchemaError::Foreign { version }),
        None => Ok(()),
    }
}

/// Returns the number of the newest migration of this program.
pub fn newest() -> i64 {
    MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0)
}

/// Fails if the database has a live worker of any version.
pub async fn refuse_beside_any_worker(options: &PgConnectOptions) -> Result<(), SchemaError> {
    let mut connection = connect_once(options, SCHEMA).await?;
    match refuse_beside_workers(&mut connection).await {
        Err(SchemaError::InUse { workers }) => Err(SchemaError::AtWork { workers }),
        refused => refused,
    }
}

/// Fails if the database has a live worker. Does nothing if the table of workers does not exist.
async fn refuse_beside_workers(connection: &mut PgConnection) -> Result<(), SchemaError> {
    let table = format!("{SCHEMA}.workers");
    let there = fetch_one!(&mut *connection, scalar, r#"SELECT to_regclass($1) IS NOT NULL AS "there!""#, (table))?;
    if !there {
        return Ok(());
    }
    // Workers' clocks follow the database's.
    let alive = format!("SELECT count(*) FROM {table} WHERE beat_at >= clock_timestamp() - $1 * interval '1 second'");
    let alive = sqlx::query_scalar(AssertSqlSafe(alive)).bind(SILENCE.as_secs_f64()).persistent(false);
    match alive.fetch_one(connection).await? {
        0 => Ok(()),
        workers => Err(SchemaError::InUse { workers }),
    }
}

/// Applies all migrations to an empty database. Fails if it has another schema version: a command must not change it under a
/// running server.
pub async fn migrate_new(options: &PgConnectOptions) -> Result<(), SchemaError> {
    match check_schema(options).await {
        Err(SchemaError::Old { missing }) if missing.len() == MIGRATIONS.iter().count() => {
            migrate(options, Beside::Refuse).await
        }
        checked => checked,
    }
}

/// Fails unless the database has exactly this program's schema version.
pub async fn check_schema(options: &PgConnectOptions) -> Result<(), SchemaError> {
    let applied = match inspect(options).await? {
        Contents::Ours(applied) => applied,
        Contents::Nothing | Contents::Others(_) => Vec::new(),
    };
    refuse_unknown(&mut connect_once(options, SCHEMA).await?, &applied).await?;
    let missing: Vec<_> = missing_of(&applied).map(|missing| missing.version).collect();
    if missing.is_empty() { Ok(()) } else { Err(SchemaError::Old { missing }) }
}

/// Creates the schema. If it exists already, checks that the role can use it, because a role without the permission to create
/// schemas may have been given this one.
async fn make_schema(connection: &mut PgConnection) -> Result<(), SchemaError> {
    let there =
        fetch_one!(&mut *connection, scalar, r#"SELECT to_regnamespace($1) IS NOT NULL AS "there!""#, (SCHEMA))?;
    if there {
        return Ok(());
    }
    match execute(connection, format!("CREATE SCHEMA {SCHEMA}")).await {
        Err(sqlx::Error::Database(refused)) if refused.code().as_deref() == Some("42501") => {
            Err(SchemaError::Forbidden)
        }
        made => Ok(made?),
    }
}

/// Runs a statement that cannot use parameters. Its parts are Bellwire's own names.
async fn execute(connection: &mut PgConnection, sql: String) -> sqlx::Result<()> {
    sqlx::query(AssertSqlSafe(sql)).persistent(false).execute(connection).await.map(drop)
}

/// Opens a connection without the pool's timeouts, and checks the version of Postgres. Unqualified names refer to `schema`. If
/// Postgres has no free connection, waits for one, as the pool does.
pub async fn connect_once(options: &PgConnectOptions, schema: &str) -> Result<PgConnection, SchemaError> {
    let deadline = Instant::now() + ACQUIRE_TIMEOUT;
    let mut connection = loop {
        match tls::connect(options).await {
            Err(error) if is_out_of_connections(&error) && Instant::now() < deadline => sleep(ASK_AGAIN).await,
            connected => break connected?,
        }
    };
    let version = fetch_one!(
        &mut connection,
        r#"SELECT current_setting('server_version_num')::integer AS "number!", set_config('search_path', $1, false) AS path"#,
        (schema)
    )?;
    let major = u32::try_from(version.number).unwrap_or(0) / 10_000;
    if major < OLDEST_MAJOR { Err(SchemaError::Postgres { major }) } else { Ok(connection) }
}

#[cfg(test)]
#[path = "../../../../tests/crates/store/unit/schema.rs"]
mod tests;
