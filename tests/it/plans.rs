//! What statements cost does not depend on who has tuned Postgres, or has not.

use std::time::Duration;

use bellwire::testkit::model::lane::Gateway;
use bellwire::testkit::simulate::gateways::{Action, Rule};
use bellwire::testkit::store;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};

use crate::crash::reconnect;
use crate::support::{Setup, TestApp, TestDatabase, seed};

/// Rows that were read of each table by reading it as a whole, and by indexes, as counted by sessions that have ended: only
/// then have they told of all.
async fn read(app: &TestApp) -> Vec<(String, i64, i64)> {
    let mut connection = PgConnection::connect_with(&app.database.options()).await.expect("a connection");
    sqlx::query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    .execute(&mut connection)
    .await
    .expect("they are ours");
    const OTHERS: &str =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
                          AND backend_type = 'client backend'";
    while sqlx::query_scalar::<_, i64>(OTHERS).fetch_one(&mut connection).await.expect("a count") > 0 {
        tokio::task::yield_now().await;
    }
    let read = sqlx::query_as(
        "SELECT relname::text, seq_tup_read, coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables ORDER BY 1",
    )
    .fetch_all(&mut connection)
    .await
    .expect("statistics");
    connection.close().await.expect("closed");
    read
}

async fn setting(pool: &PgPool, show: &'static str) -> String {
    sqlx::query_scalar(show).fetch_one(pool).await.expect("a setting")
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_postgres_with_default_settings_no_statement_of_the_line_reads_a_large_table_as_a_whole_or_is_compiled() {
    const N: u32 = 2_000;
    let database = TestDatabase::create().await.with_stock_settings().await;
    let workers = store::connect(store::by_index_only(database.options()), 1).await.expect("a pool");
    for (pool, at) in [(&database.pool, "requests"), (&workers, "dispatch")] {
        assert_eq!(setting(pool, "SHOW jit").await, "off", "{at}");
        assert_eq!(setting(pool, "SHOW max_parallel_workers_per_gather").await, "0", "{at}");
    }
    workers.close().await;
    let app = TestApp::with(Setup { database: Some(database), ..Setup::default() }).await;
    seed(&app, "fcm", 0..N).await;
    let named = app.subscribe_with("mozilla", 0..1, json!({"topics": ["news"]})).await.remove(0);
    sqlx::query("ANALYZE").execute(&app.pool).await.expect("statistics for the planner");

    let failures = Rule { gateway: Some(Gateway::Fcm), count: Some(4), ..Rule::always(Action::ServerError) };
    app.simulator.add_rule(failures).expect("a rule");
    app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    for _ in 0..5 {
        let code = app.send(json!({"subscriptions": [named.id]}), json!({"tier": "transactional"})).await;
        app.run_until_idle().await;
        assert_eq!(app.message(&code).await["counts"]["accepted"], 1);
    }
    app.send(json!({"topic": "news"}), json!({})).await;
    app.come_back("fcm", 0).await;
    for _ in 0..40 {
        app.advance(Duration::from_secs(30)).await;
    }
    app.sweep().await;

    // Those that are small here may well be read as a whole. `seed` reads all subscriptions, and so does who counts them.
    let bound = |table: &str| match table {
        "subscriptions" => Some(2 * i64::from(N) + 10),
        table if table.starts_with("attempts") || table.starts_with("receipts") => Some(0),
        _ => None,
    };
    for (table, rows, _) in read(&app).await {
        assert!(bound(&table).is_none_or(|bound| rows <= bound), "{rows} rows of {table} were read by reading all");
    }
    reconnect(&app.pool).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_listeners_are_told_of_outcomes_costs_the_same_whatever_minutes_are_kept_and_plans_are_cached() {
    let live = crate::live::OFTEN;
    let app = TestApp::with(Setup { live, ..Setup::default() }).await;
    app.subscribe("fcm", 0..1).await;
    let minutes = "INSERT INTO rollups (step, message, lane, start, tier, gateway, facts, ns)
                   SELECT 1, '00000000-0000-0000-0000-000000000000', lane,
                          date_trunc('minute', $1::timestamptz) - n * interval '1 minute', 2, 'fcm', '{1}', '{1}'
                   FROM generate_series(10, 1009) n, generate_series(1001, 1020) lane";
    sqlx::query(minutes).bind(app.clock.now()).execute(&app.pool).await.expect("rollups");
    let notes = "INSERT INTO rollup_notes (minute, lane, tier, fact, n)
                 SELECT date_trunc('minute', $1::timestamptz) - n * interval '1 minute', 1, 2, 1, 1 FROM generate_series(10, 20009) n";
    sqlx::query(notes).bind(app.clock.now()).execute(&app.pool).await.expect("a backlog");
    sqlx::query("VACUUM ANALYZE rollups, rollup_notes").execute(&app.pool).await.expect("statistics");
    let name: String = sqlx::query_scalar("SELECT current_database()").fetch_one(&app.pool).await.expect("a name");
    let generic = format!("ALTER DATABASE \"{name}\" SET plan_cache_mode = force_generic_plan");
    sqlx::query(AssertSqlSafe(generic)).execute(&app.pool).await.expect("it is ours");
    let sums = |read: Vec<(String, i64, i64)>| {
        let of =
            |name: &str| read.iter().filter(|(table, ..)| table == name).map(|(_, all, some)| all + some).sum::<i64>();
        of("rollups") + of("rollup_notes")
    };
    let before = sums(read(&app).await);
    reconnect(&app.pool).await;
    crate::live::hear_ten(&app).await;
    let rows = sums(read(&app).await) - before;
    assert!(rows < 1_000, "{rows} rows were read in ten looks");
    reconnect(&app.pool).await;
    sqlx::query("TRUNCATE rollups, rollup_notes").execute(&app.pool).await.expect("it is ours");
    app.finish().await;
}
