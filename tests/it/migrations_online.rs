//! Migrations after the baseline hold no lock for long: a test reads their statements, another applies them and reads the locks.

use std::fs;
use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::support::TestDatabase;
use crate::support::repository::migration_files;

/// Migrations of the baseline, which apply to empty databases only.
const BASELINE: u32 = 9;
/// Tables that may have millions of rows, or that every delivery and receipt needs.
const LARGE: [&str; 33] = [
    "attempts",
    "audience_changes",
    "audience_counts",
    "audit_log",
    "batches",
    "cap_uses",
    "cursors",
    "dead_letters",
    "dead_letter_actions",
    "events",
    "former_topic_members",
    "habit_notes",
    "habits",
    "idempotency_keys",
    "import_faults",
    "lane_states",
    "message_counts",
    "message_keys",
    "messages",
    "queue",
    "receipt_counts",
    "receipts",
    "rollup_notes",
    "rollups",
    "stops",
    "stream_events",
    "subscriptions",
    "throttles",
    "topic_members",
    "webhook_attempts",
    "webhook_deliveries",
    "webhook_notes",
    "workers",
];
/// Exception for a statement that the rule refuses: a comment on the line before it, with the reason.
const EXCUSE: &str = "-- locks:";
/// Mark of a file that Postgres must not run in one transaction.
const NO_TRANSACTION: &str = "-- no-transaction";
/// Mark of a file beside which servers of the previous version may run.
const BESIDE: &str = "-- beside: yes";
/// Maximum duration of a lock on a large table.
const LOCK_MAX: Duration = Duration::from_secs(1);

struct Migration {
    number: u32,
    name: String,
    sql: String,
}

/// The migrations of the baseline, and those after it.
fn migrations() -> (Vec<Migration>, Vec<Migration>) {
    let read = |path: std::path::PathBuf| {
        let name = path.file_name().expect("a name").to_str().expect("UTF-8").to_owned();
        let number = name[..4].parse().expect("a number");
        Migration { number, name, sql: fs::read_to_string(path).expect("a migration") }
    };
    migration_files().into_iter().map(read).partition(|migration| migration.number <= BASELINE)
}

/// A database with the schema of the baseline.
async fn baseline() -> TestDatabase {
    let database = TestDatabase::create().await;
    let empty = "DROP SCHEMA bellwire CASCADE; CREATE SCHEMA bellwire";
    sqlx::raw_sql(empty).execute(&database.pool).await.expect("an empty schema");
    for Migration { sql, .. } in migrations().0 {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&database.pool).await.expect("it applies");
    }
    database
}

/// A statement in one line, without comments, and whether a reason excuses it. Bodies of functions (`$$`) are kept whole.
fn statements(sql: &str) -> Vec<(String, bool)> {
    let (mut found, mut statement, mut excused, mut is_body) = (Vec::new(), String::new(), false, false);
    for line in sql.lines() {
        excused |= line.trim_start().strip_prefix(EXCUSE).is_some_and(|reason| reason.trim().len() > 10);
        let code = line.split("--").next().unwrap_or_default();
        is_body ^= code.matches("$$").count() % 2 == 1;
        statement.push(' ');
        statement.push_str(code.trim());
        if !is_body && code.trim_end().ends_with(';') {
            let words = statement.split_whitespace().collect::<Vec<_>>().join(" ");
            found.push((words.trim_end_matches(';').to_owned(), std::mem::take(&mut excused)));
            statement.clear();
        }
    }
    assert!(statement.trim().is_empty(), "a statement without an end: {statement}");
    found
}

/// Large table that a statement changes, by the words after `behind`.
fn large_after<'a>(words: &str, behind: &str) -> Option<&'a str> {
    let rest = words.split_once(behind)?.1.trim_start().trim_start_matches("ONLY ").trim_start_matches("IF EXISTS ");
    let name = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()?;
    LARGE.into_iter().find(|large| *large == name)
}

/// Commas that are in no parentheses.
fn top_commas(words: &str) -> usize {
    let mut depth = 0;
    let count = |c| match c {
        '(' => {
            depth += 1;
            false
        }
        ')' => {
            depth -= 1;
            false
        }
        _ => c == ',' && depth == 0,
    };
    words
        .chars()
        .filter({
            let mut count = count;
            move |c| count(*c)
        })
        .count()
}

/// Why a statement may keep others waiting for long.
fn objection(words: &str, beside: bool) -> Option<String> {
    let says = |what: &str| words.contains(what);
    if words.starts_with("CREATE INDEX") || words.starts_with("CREATE UNIQUE INDEX") {
        let table = large_after(words, " ON ")?;
        return (!says(" CONCURRENTLY "))
            .then(|| format!("an index on {table} is made CONCURRENTLY, in a file without transaction"));
    }
    if words.starts_with("ALTER TABLE") {
        let renames = beside && (says(" RENAME ") || says(" DROP COLUMN "));
        if renames {
            return Some("servers of before know the old name".to_owned());
        }
        let table = large_after(words, "ALTER TABLE ")?;
        let adds_column = says(" ADD COLUMN ");
        let why = if top_commas(words) > 0 {
            "has several subcommands, the strictest lock of which holds for all"
        } else if says(" ADD CONSTRAINT ") && !says(" NOT VALID") && !says(" USING INDEX ") {
            "adds a constraint that is not NOT VALID"
        } else if says(" ADD CHECK") || says(" ADD FOREIGN") || says(" ADD PRIMARY") || says(" ADD UNIQUE") {
            "adds a constraint without a name"
        } else if says(" TYPE ") && says(" ALTER ") {
            "rewrites it for another type"
        } else if says(" SET NOT NULL") {
            "reads all of it for NOT NULL: add a CHECK that is NOT VALID, validate it, then SET NOT NULL, with the reason"
        } else if adds_column && (says(" REFERENCES ") || says(" UNIQUE") || says(" GENERATED ") || says(" CHECK ")) {
            "adds a column with a constraint"
        } else if adds_column
            && says(" DEFAULT ")
            && words.split(" DEFAULT ").nth(1).is_some_and(|it| it.contains("()"))
        {
            "rewrites it for a default that is computed"
        } else {
            return None;
        };
        return Some(format!("{table}: {why}"));
    }
    for (start, why) in [
        ("UPDATE ", "changes rows of it in one transaction"),
        ("DELETE FROM ", "deletes rows of it in one transaction"),
        ("TRUNCATE ", "locks it for everybody"),
        ("LOCK TABLE ", "locks it"),
        ("LOCK ", "locks it"),
        ("CLUSTER ", "rewrites it"),
        ("VACUUM FULL ", "rewrites it"),
        ("REINDEX TABLE ", "locks it"),
        ("DROP TABLE ", "is gone for servers of before"),
    ] {
        if words.starts_with(start)
            && let Some(table) = large_after(words, start)
        {
            return Some(format!("{table}: {why}"));
        }
    }
    if words.starts_with("CREATE TRIGGER")
        && let Some(table) = large_after(words, " ON ")
    {
        return Some(format!("{table}: a trigger costs each of its rows"));
    }
    None
}

#[test]
fn migrations_with_blocking_statements_give_reasons() {
    let mut objections = Vec::new();
    for Migration { name, sql, .. } in migrations().1 {
        let has_transaction = !sql.starts_with(NO_TRANSACTION);
        let beside = sql.lines().any(|line| line == BESIDE);
        for (words, excused) in statements(&sql) {
            if words.contains(" CONCURRENTLY ") && has_transaction {
                objections.push(format!("{name}: CONCURRENTLY takes a file that begins with {NO_TRANSACTION:?}"));
            }
            if let Some(why) = objection(&words, beside).filter(|_| !excused) {
                objections.push(format!("{name}: {why}: {words}"));
            }
        }
    }
    assert!(objections.is_empty(), "{}", objections.join("\n"));
}

#[test]
fn lock_rule_finds_blocking_statements_only() {
    let objects =
        |sql: &str| statements(sql).iter().any(|(words, excused)| !excused && objection(words, true).is_some());
    for wrong in [
        "CREATE INDEX x ON subscriptions (id);",
        "ALTER TABLE messages\n    ADD COLUMN a integer,\n    ADD COLUMN b integer;",
        "ALTER TABLE queue ADD CONSTRAINT x CHECK (lane > 0);",
        "ALTER TABLE queue ADD CHECK (lane > 0);",
        "ALTER TABLE messages ALTER COLUMN ttl_s TYPE bigint;",
        "ALTER TABLE messages ALTER COLUMN key SET NOT NULL;",
        "ALTER TABLE messages ADD COLUMN at timestamptz DEFAULT clock_timestamp();",
        "UPDATE subscriptions SET life = 0;",
        "ALTER TABLE apps RENAME COLUMN name TO title;",
        "CREATE TRIGGER x AFTER INSERT ON receipts FOR EACH ROW EXECUTE FUNCTION f();",
        "-- locks: short\nTRUNCATE stops;",
    ] {
        assert!(objects(wrong), "{wrong}");
    }
    for fine in [
        "CREATE INDEX CONCURRENTLY x ON subscriptions (id);",
        "CREATE TABLE x (id uuid PRIMARY KEY); CREATE INDEX y\n    ON x (id);",
        "ALTER TABLE messages ADD COLUMN a integer NOT NULL DEFAULT 0;",
        "ALTER TABLE queue ADD CONSTRAINT x CHECK (lane > 0) NOT VALID;\nALTER TABLE queue VALIDATE CONSTRAINT x;",
        "-- locks: nobody reads what workers stop by at a start\nTRUNCATE stops;",
        "UPDATE apps SET heard = 0;",
    ] {
        assert!(!objects(fine), "{fine}");
    }
}

/// The tables of ours that a transaction holds locks on that keep others from writing, of those that are large.
async fn locked(connection: &mut PgConnection) -> Vec<String> {
    let locked = "SELECT DISTINCT c.relname::text FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
                  WHERE l.pid = pg_backend_pid() AND c.relname = ANY ($1)
                    AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')";
    sqlx::query_scalar(locked).bind(LARGE.map(str::to_owned).to_vec()).fetch_all(connection).await.expect("locks")
}

#[tokio::test]
async fn migrations_hold_no_long_lock_on_large_tables() {
    let database = baseline().await;
    let rows = "INSERT INTO subscriptions (shard, id, app, lane, state, origin_id, since, endpoint_mac, address, last_seen, created_at)
         SELECT n % 64, gen_random_uuid(), gen_random_uuid(), 1, 'active', gen_random_uuid(), now(), sha256(n::text::bytea),
           sha256(n::text::bytea), now(), now() FROM generate_series(1, 50000) AS n;
         INSERT INTO topic_members (shard, subscription, topic, lane, joined_at)
         SELECT shard, id, 7, 1, now() FROM subscriptions;
         ANALYZE";
    sqlx::raw_sql(rows).execute(&database.pool).await.expect("rows");
    let known = "SELECT count(*) FROM pg_class WHERE relnamespace = 'bellwire'::regnamespace AND relname = ANY ($1)";
    let known = sqlx::query_scalar::<_, i64>(known).bind(LARGE.map(str::to_owned).to_vec());
    assert_eq!(known.fetch_one(&database.pool).await.expect("tables"), LARGE.len() as i64, "a large table was renamed");
    let mut connection = PgConnection::connect_with(&database.options()).await.expect("a connection");
    let mut tx = connection.begin().await.expect("a transaction");
    sqlx::raw_sql("CREATE INDEX locks ON subscriptions (locale)").execute(&mut *tx).await.expect("an index");
    assert_eq!(locked(&mut tx).await, ["subscriptions"], "the check finds locks");
    tx.rollback().await.expect("undone");
    for Migration { name, sql, .. } in migrations().1 {
        if sql.starts_with(NO_TRANSACTION) {
            for (statement, _) in statements(&sql) {
                sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await.expect("it applies");
            }
            continue;
        }
        let mut tx = connection.begin().await.expect("a transaction");
        let mut since: Option<(Instant, Vec<String>)> = None;
        for (statement, _) in statements(&sql) {
            sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *tx).await.expect("it applies");
            let held = locked(&mut tx).await;
            if since.is_none() && !held.is_empty() {
                since = Some((Instant::now(), held));
            }
        }
        tx.commit().await.expect("committed");
        if let Some((at, tables)) = since {
            assert!(at.elapsed() < LOCK_MAX, "{name} held {tables:?} for {:?} with 50,000 rows", at.elapsed());
        }
    }
}

#[tokio::test]
async fn older_program_starts_if_newer_migration_allows() {
    use bellwire_store::{self as store, SchemaError};
    let database = TestDatabase::create().await;
    let newer = "INSERT INTO _sqlx_migrations SELECT 9999, 'x', now(), true, '', 0";
    sqlx::query(newer).execute(&database.pool).await.expect("a newer one");
    for refused in [
        store::check_schema(&database.options()).await.expect_err("it says nothing"),
        store::migrate(&database.options(), store::Beside::Refuse).await.expect_err("it says nothing"),
    ] {
        assert!(matches!(refused, SchemaError::Foreign { version: 9999 }), "{refused}");
    }
    sqlx::query("INSERT INTO migrations_beside (version) VALUES (9999)").execute(&database.pool).await.expect("it may");
    store::check_schema(&database.options()).await.expect("it may run beside it");
    store::migrate(&database.options(), store::Beside::Refuse).await.expect("and start");
}
