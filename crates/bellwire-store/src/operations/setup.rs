//! Setup and activity of the database, for checks that compare them with Bellwire's needs.

use chrono::TimeDelta;
use sqlx::{AssertSqlSafe, PgConnection, PgPool};

use bellwire_core::clock::Timestamp;

/// Settings of the database that matter, and how full it is.
#[derive(Debug, Clone)]
pub struct DatabaseSettings {
    /// The version for people.
    pub version: String,
    /// The version for programs: 170004.
    pub version_number: i32,
    /// Whether commits are written to disk.
    pub fsync: bool,
    /// Whether pages that a crash tore can be mended.
    pub full_page_writes: bool,
    /// `on`, `local`, `off` and others.
    pub synchronous_commit: String,
    pub autovacuum: bool,
    /// Connections that it takes, without those kept for superusers.
    pub connections_max: i64,
    pub connections: i64,
    /// Transactions since the oldest row that is not frozen.
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

/// Has Postgres look at what all tables hold, by which it plans.
pub async fn analyze(connection: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::raw_sql("ANALYZE").execute(connection).await.map(drop)
}

/// Something that keeps dead rows from being cleared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VacuumBlocker {
    /// A transaction of this session, and its duration in seconds.
    Session {
        pid: i32,
        name: String,
    },
    /// A transaction that was prepared for a second phase.
    Prepared(String),
    Slot(String),
}

/// Returns the oldest obstacle to clearing dead rows, and its age in seconds, which a slot does not have. `None`: no obstacle, or
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
    /// Held by throttling, an operator, or a refused key.
    pub held: i64,
    /// With an open breaker.
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

/// API keys that are valid and expire within a time, the next one first: their names, at most 11.
pub async fn expiring_keys(pool: &PgPool, within: TimeDelta, now: Timestamp) -> sqlx::Result<Vec<String>> {
    fetch_all!(
        pool,
        scalar,
        "SELECT name FROM api_keys WHERE revoked_at IS NULL AND expires_at > $1 AND expires_at <= $2
         ORDER BY expires_at LIMIT 11",
        (now, now + within)
    )
}

/// Table with its number of live rows, according to Postgres.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dead {
    pub table: String,
    /// Rows that are to be cleared.
    pub dead: i64,
    pub live: i64,
}

/// The table with the most dead rows beside those that live, of those with many. None: none has many.
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
    /// More are not counted, of a lane and tier.
    pub const MAX: i64 = 1_000;
}

/// Counts leases that expired before a time without a takeover, among the rows that have been due for longest.
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

/// Subjects of active VAPID keys with the slugs of their apps, at most 1,000.
pub async fn subjects(pool: &PgPool) -> sqlx::Result<Vec<(String, String)>> {
    let rows = fetch_all!(
        pool,
        "SELECT a.slug, k.subject FROM vapid_keys k JOIN apps a ON a.id = k.app
         WHERE k.state = 'active' AND a.deleting_at IS NULL ORDER BY a.id LIMIT 1000"
    )?;
    Ok(rows.into_iter().map(|row| (row.slug, row.subject)).collect())
}

/// Some apps, by their slugs, each with one of its origins: at most 3.
pub async fn origins(pool: &PgPool) -> sqlx::Result<Vec<(String, String)>> {
    let rows = fetch_all!(
        pool,
        r#"SELECT slug, origins[1] AS "origin!" FROM apps WHERE deleting_at IS NULL AND cardinality(origins) > 0
           ORDER BY id LIMIT 3"#
    )?;
    Ok(rows.into_iter().map(|row| (row.slug, row.origin)).collect())
}

/// Rows of this database that were written, changed or deleted since its statistics began.
pub async fn rows_changed(pool: &PgPool) -> sqlx::Result<i64> {
    fetch_one!(
        pool,
        scalar,
        r#"SELECT tup_inserted + tup_updated + tup_deleted AS "n!" FROM pg_stat_database WHERE datname = current_database()"#
    )
}

/// Sets the intervals of autovacuum, and of flushing writes that no caller waits for, such as heartbeats. It requires superuser
/// rights, applies to the whole server, and survives restarts.
pub async fn set_pace(pool: &PgPool, naptime_s: u32, wal_writer_delay_ms: u32) -> sqlx::Result<()> {
    for (name, value) in [("autovacuum_naptime", naptime_s), ("wal_writer_delay", wal_writer_delay_ms)] {
        let set = format!("ALTER SYSTEM SET {name} = {value}");
        sqlx::query(AssertSqlSafe(set)).execute(pool).await?;
    }
    sqlx::query("SELECT pg_reload_conf()").execute(pool).await.map(drop)
}
