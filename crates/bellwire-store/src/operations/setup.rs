//! Settings and activity of the database, for the checks.

use chrono::TimeDelta;
use sqlx::{AssertSqlSafe, PgConnection, PgPool};

use bellwire_core::clock::Timestamp;

/// Database settings and usage that checks compare with Bellwire's needs.
#[derive(Debug, Clone)]
pub struct DatabaseSettings {
    /// Version, as text to display.
    pub version: String,
    /// Version as a number, such as 170004.
    pub version_number: i32,
    /// Whether commits are written to disk.
    pub fsync: bool,
    /// Whether torn pages can be repaired after a crash.
    pub full_page_writes: bool,
    /// Value of `synchronous_commit`: `on`, `local`, `off` and others.
    pub synchronous_commit: String,
    pub autovacuum: bool,
    /// Maximum connections, without those reserved for superusers.
    pub connections_max: i64,
    pub connections: i64,
    /// Age of the oldest row that is not frozen, in transactions.
    pub xid_age: i64,
}

pub async fn settings(pool: &PgPool) -> sqlx::Result<DatabaseSettings> {
    fetch_one!(
        pool,
        DatabaseSettings,
        r#"SELECT current_setting('server_version') AS "version!", current_setting('server_version_num')::integer AS "version_number!",
             current_setting('fsync')::boolean AS "fsync!", current_setting('full_page_writes')::boolean AS "full_page_writes!",
             current_setting('synchronous_commit') AS "synchronous_commit!", current_setting('autovacuum')::boolean AS "autovacuum!",
             current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
               AS "connections_max!",
             (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS "connections!",
             (SELECT age(datfrozenxid)::bigint FROM pg_database WHERE datname = current_database()) AS "xid_age!""#
    )
}

/// Analyzes all tables, for the query planner.
pub async fn analyze(connection: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::raw_sql("ANALYZE").execute(connection).await.map(drop)
}

/// Obstacle to vacuuming dead rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VacuumBlocker {
    /// A transaction of this session, with its duration in seconds.
    Session {
        pid: i32,
        name: String,
    },
    /// A prepared transaction of a two-phase commit.
    Prepared(String),
    Slot(String),
}

/// Returns the oldest obstacle to vacuuming, with its age in seconds (`None` for a replication slot). `None`: no obstacle, or
/// none that this role can see.
pub async fn oldest_holder(pool: &PgPool) -> sqlx::Result<Option<(VacuumBlocker, Option<f64>)>> {
    let row = fetch_optional!(
        pool,
        r#"SELECT kind AS "kind!", pid, name AS "name!", since_s FROM (
             SELECT 1 AS kind, pid, application_name AS name, extract(epoch FROM now() - xact_start)::double precision AS since_s
             FROM pg_stat_activity
             WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
               AND xact_start IS NOT NULL
             UNION ALL
             SELECT 2, NULL, gid, extract(epoch FROM now() - prepared)::double precision FROM pg_prepared_xacts
             WHERE database = current_database()
             UNION ALL
             SELECT 3, NULL, slot_name::text, NULL FROM pg_replication_slots WHERE NOT active
           ) holders ORDER BY since_s DESC NULLS LAST LIMIT 1"#
    )?;
    Ok(row.map(|row| {
        let holder = match row.kind {
            1 => VacuumBlocker::Session { pid: row.pid.unwrap_or_default(), name: row.name },
            2 => VacuumBlocker::Prepared(row.name),
            _ => VacuumBlocker::Slot(row.name),
        };
        (holder, row.since_s)
    }))
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LaneCounts {
    /// Lanes held by throttling, an operator, or a refused key.
    pub held: i64,
    /// Lanes with an open breaker.
    pub broken: i64,
}

pub async fn standing(pool: &PgPool, now: Timestamp) -> sqlx::Result<LaneCounts> {
    fetch_one!(
        pool,
        LaneCounts,
        r#"SELECT count(DISTINCT lane) FILTER (WHERE greatest(held_until, key_held_until) > $1) AS "held!",
             count(DISTINCT lane) FILTER (WHERE breaker = 'open' AND open_until > $1 AND breaker_of IS NULL) AS "broken!"
           FROM lane_states"#,
        (now)
    )
}

/// Returns the names of valid API keys that expire within a time, at most 11, the next one first.
pub async fn expiring_keys(pool: &PgPool, within: TimeDelta, now: Timestamp) -> sqlx::Result<Vec<String>> {
    fetch_all!(
        pool,
        scalar,
        "SELECT name FROM api_keys WHERE revoked_at IS NULL AND expires_at > $1 AND expires_at <= $2
         ORDER BY expires_at LIMIT 11",
        (now, now + within)
    )
}

/// A table with its numbers of live and dead rows, estimated by Postgres.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dead {
    pub table: String,
    /// Number of dead rows.
    pub dead: i64,
    pub live: i64,
}

/// Returns the table with the highest share of dead rows, among tables with many. `None`: no table has many.
pub async fn worst_bloat(pool: &PgPool) -> sqlx::Result<Option<Dead>> {
    fetch_optional!(
        pool,
        Dead,
        r#"SELECT relname::text AS "table!", n_dead_tup AS "dead!", n_live_tup AS "live!" FROM pg_stat_user_tables
           WHERE schemaname = current_schema() AND n_dead_tup > 100000
           ORDER BY n_dead_tup::double precision / greatest(n_live_tup, 1) DESC LIMIT 1"#
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expired {
    pub batches: i64,
    pub rows: i64,
}

impl Expired {
    /// Maximum counted leases of a lane and tier.
    pub const MAX: i64 = 1_000;
}

/// Counts leases that expired before a time and were not taken over, among the rows due for longest.
pub async fn expired_leases(pool: &PgPool, before: Timestamp) -> sqlx::Result<Expired> {
    fetch_one!(
        pool,
        Expired,
        r#"SELECT (SELECT count(*) FROM (SELECT FROM batches WHERE due_at < $1 LIMIT $2) b) AS "batches!",
             coalesce(sum(counted.n), 0)::bigint AS "rows!"
           FROM lanes CROSS JOIN generate_series(1, 3) AS t (tier),
                LATERAL (SELECT count(lease) AS n FROM (
                    SELECT lease FROM queue WHERE lane = lanes.id AND tier = t.tier AND due_at < $1
                    ORDER BY due_at LIMIT $2) c) counted"#,
        (before, Expired::MAX)
    )
}

/// Returns contacts of active VAPID keys with the slugs of their apps, at most 1,000.
pub async fn subjects(pool: &PgPool) -> sqlx::Result<Vec<(String, String)>> {
    let rows = fetch_all!(
        pool,
        "SELECT a.slug, k.subject FROM vapid_keys k JOIN apps a ON a.id = k.app
         WHERE k.state = 'active' AND a.deleting_at IS NULL ORDER BY a.id LIMIT 1000"
    )?;
    Ok(rows.into_iter().map(|row| (row.slug, row.subject)).collect())
}

/// Returns at most 3 apps by slug, each with one of its origins.
pub async fn origins(pool: &PgPool) -> sqlx::Result<Vec<(String, String)>> {
    let rows = fetch_all!(
        pool,
        r#"SELECT slug, origins[1] AS "origin!" FROM apps WHERE deleting_at IS NULL AND cardinality(origins) > 0
           ORDER BY id LIMIT 3"#
    )?;
    Ok(rows.into_iter().map(|row| (row.slug, row.origin)).collect())
}

/// Returns the number of rows inserted, updated or deleted since the database's statistics were reset.
pub async fn rows_changed(pool: &PgPool) -> sqlx::Result<i64> {
    fetch_one!(
        pool,
        scalar,
        r#"SELECT tup_inserted + tup_updated + tup_deleted AS "n!" FROM pg_stat_database WHERE datname = current_database()"#
    )
}

/// Sets the interval of autovacuum, and of flushing asynchronous commits such as heartbeats. Requires a superuser, applies to
/// the whole server, and survives restarts.
pub async fn set_pace(pool: &PgPool, naptime_s: u32, wal_writer_delay_ms: u32) -> sqlx::Result<()> {
    for (name, value) in [("autovacuum_naptime", naptime_s), ("wal_writer_delay", wal_writer_delay_ms)] {
        let set = format!("ALTER SYSTEM SET {name} = {value}");
        sqlx::query(AssertSqlSafe(set)).execute(pool).await?;
    }
    sqlx::query("SELECT pg_reload_conf()").execute(pool).await.map(drop)
}
