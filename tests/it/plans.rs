//! The cost of statements does not depend on tuned settings of Postgres.

use std::time::Duration;

use bellwire::testkit::server::maintenance;
use bellwire_core::id::MessageId;
use bellwire_core::lane::Gateway;
use bellwire_simulator::gateways::{Rule, RuleAction};
use bellwire_store as store;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};

use crate::support::database::reconnect;
use crate::support::event_stream::{SHORT_INTERVALS, receive_ten};
use crate::support::{Setup, TestApp, TestDatabase, seed};

/// Rows of each table read by sequential scans and by indexes, as counted by ended sessions: only those have reported everything.
async fn read(app: &TestApp) -> Vec<(String, i64, i64)> {
    let mut connection = PgConnection::connect_with(&app.database.options()).await.expect("a connection");
    // Repeatedly: a process that lost its connection may open another one meanwhile.
    const OTHERS: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
    while sqlx::query_scalar::<_, i64>(OTHERS).fetch_one(&mut connection).await.expect("they are ours") > 0 {
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
async fn no_hot_statement_scans_or_compiles() {
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

    let failures = Rule { gateway: Some(Gateway::Fcm), count: Some(4), ..Rule::always(RuleAction::ServerError) };
    app.simulator.add_rule(failures).expect("a rule");
    app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    for _ in 0..5 {
        let code = app.send(json!({"subscriptions": [named.id]}), json!({"tier": "transactional"})).await;
        app.run_until_idle().await;
        assert_eq!(app.message(&code).await["counts"]["accepted"], 1);
    }
    let news = app.send(json!({"topic": "news"}), json!({})).await;
    app.run_until_idle().await;
    let segment =
        format!("topic('news') and received('{news}') and not clicked('{news}', 7d) or tag('x') or plan = 'pro'");
    let to_segment = app.send(json!({ "segment": segment }), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.message(&to_segment).await["counts"]["accepted"], 1);
    app.come_back("fcm", 0).await;
    for _ in 0..40 {
        app.advance(Duration::from_secs(30)).await;
    }
    app.sweep().await;

    // Those that are small here may well be read as a whole. `seed` reads all subscriptions, and so does who counts them; a
    // sample of so few is nearly all of them.
    let bound = |table: &str| match table {
        "subscriptions" => Some(3 * i64::from(N) + 10),
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
async fn outcome_stream_cost_is_constant_and_cached() {
    let live = SHORT_INTERVALS;
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
    receive_ten(&app).await;
    let rows = sums(read(&app).await) - before;
    assert!(rows < 1_000, "{rows} rows were read in ten looks");
    reconnect(&app.pool).await;
    sqlx::query("TRUNCATE rollups, rollup_notes").execute(&app.pool).await.expect("it is ours");
    app.finish().await;
}

/// Deliveries to others, an hour after what there is: a message each, and one message to as many.
async fn send_to_others(app: &TestApp, n: i64) -> String {
    app.advance(Duration::from_secs(3_600)).await;
    let another = app.subscribe("fcm", 1..2).await.remove(0).id;
    let message = app.send(json!({"subscriptions": [another]}), json!({})).await;
    app.run_until_idle().await;
    let id: MessageId = message.parse().expect("an id");
    let now = app.clock.now();
    let messages = "INSERT INTO messages (id, app, tier, state, audience, ttl_s, urgency, audience_estimate, accepted_at, expires_at)
                    SELECT encode(substr(uuid_send($1), 1, 8) || int8send(-9223372036854775808 + n), 'hex')::uuid, app, tier, state, audience, ttl_s,
                           urgency, audience_estimate, accepted_at, expires_at
                    FROM messages CROSS JOIN generate_series(1, $2) n WHERE id = $1";
    sqlx::query(messages).bind(id.0).bind(n).execute(&app.pool).await.expect("messages");
    let attempts = "INSERT INTO attempts (message, subscription, attempt, shard, at, ending, status, took_ms)
                    SELECT m, s, 0, get_byte(uuid_send(s), 15) & 63, $2, 1, 201, 9
                    FROM (SELECT m.id, gen_random_uuid() FROM messages m UNION ALL
                          SELECT $1, gen_random_uuid() FROM generate_series(1, $3)) AS deliveries (m, s)";
    sqlx::query(attempts).bind(id.0).bind(now).bind(n).execute(&app.pool).await.expect("attempts");
    sqlx::query("ANALYZE").execute(&app.pool).await.expect("statistics for the planner");
    message
}

#[tokio::test(flavor = "multi_thread")]
async fn delivery_search_is_bounded_by_index() {
    const N: i64 = 5_000;
    let app = TestApp::start().await;
    app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await;
    app.send(json!({"users": ["ann"]}), json!({})).await;
    app.run_until_idle().await;
    let campaign = send_to_others(&app, N).await;

    let reads = |read: Vec<(String, i64, i64)>| {
        let large = read.into_iter().filter(|(table, ..)| table == "messages" || table.starts_with("attempts"));
        large.fold((0, 0), |(whole, by_index), (_, all, some)| (whole + all, by_index + some))
    };
    for (query, found) in [("user_id=ann".to_owned(), 1), (format!("message={campaign}&state=dead"), 0)] {
        let before = reads(read(&app).await);
        reconnect(&app.pool).await;
        let (mut pages, mut rows, mut iterator) = (0, 0, String::new());
        loop {
            let page = app.get(&format!("/v1/apps/shop/deliveries?{query}{iterator}")).await;
            (pages, rows) = (pages + 1, rows + page["data"].as_array().map_or(0, Vec::len));
            let Some(next) = page["iterator"].as_str() else { break };
            assert!(page["looked_back_to"].is_string(), "{page}");
            iterator = format!("&iterator={next}");
        }
        assert_eq!((pages, rows), (3, found), "{query}: 2,000 at a time");
        let after = reads(read(&app).await);
        reconnect(&app.pool).await;
        assert_eq!(after.0 - before.0, 0, "{query}: nothing is read as a whole");
        let by_index = after.1 - before.1;
        assert!(by_index < 3 * N + 100, "{query}: {by_index} rows were read");
    }
    for made_up in [
        "DELETE FROM messages m WHERE NOT EXISTS (SELECT 1 FROM message_counts c WHERE c.message = m.id)",
        "DELETE FROM attempts a WHERE NOT EXISTS (SELECT 1 FROM subscriptions s WHERE s.shard = a.shard AND s.id = a.subscription)",
    ] {
        sqlx::query(made_up).execute(&app.pool).await.expect("they are ours");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn backward_page_reads_an_index() {
    const N: i64 = 5_000;
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    let campaign = send_to_others(&app, N).await;
    let reads = |read: Vec<(String, i64, i64)>| {
        let large = read.into_iter().filter(|(table, ..)| table == "messages" || table.starts_with("attempts"));
        large.fold((0, 0), |(whole, by_index), (_, all, some)| (whole + all, by_index + some))
    };
    for path in [
        "/v1/apps/shop/messages?limit=10".to_owned(),
        format!("/v1/apps/shop/messages/{campaign}/deliveries?limit=10"),
        format!("/v1/apps/shop/deliveries?message={campaign}&limit=10"),
    ] {
        let first = app.get(&path).await;
        let second = app.get(&format!("{path}&iterator={}", first["iterator"].as_str().expect("there are more"))).await;
        let before = reads(read(&app).await);
        reconnect(&app.pool).await;
        let previous = second["prev_iterator"].as_str().expect("it has begun");
        let back = app.get(&format!("{path}&iterator={previous}")).await;
        let after = reads(read(&app).await);
        reconnect(&app.pool).await;
        assert_eq!((&back["data"], &back["prev_iterator"]), (&first["data"], &json!(null)), "{path}");
        assert_eq!(after.0 - before.0, 0, "{path}: nothing is read as a whole");
        let by_index = after.1 - before.1;
        assert!(by_index < 500, "{path}: {by_index} rows were read");
    }
    for made_up in [
        "DELETE FROM messages m WHERE NOT EXISTS (SELECT 1 FROM message_counts c WHERE c.message = m.id)",
        "DELETE FROM attempts a WHERE NOT EXISTS (SELECT 1 FROM subscriptions s WHERE s.shard = a.shard AND s.id = a.subscription)",
    ] {
        sqlx::query(made_up).execute(&app.pool).await.expect("they are ours");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn message_list_does_not_walk_the_queue() {
    const N: i64 = 20_000;
    let app = TestApp::start().await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    for _ in 0..10 {
        app.send(json!({"subscriptions": [subscriber.id]}), json!({})).await;
    }
    app.run_until_idle().await;
    let campaign = app.send(json!({"subscriptions": [subscriber.id]}), json!({})).await;
    app.run_until_idle().await;
    let id: MessageId = campaign.parse().expect("an id");
    let waiting = "INSERT INTO queue (shard, subscription, message, lane, tier, retries, due_at, scheduled_at, token)
                   SELECT 1, gen_random_uuid(), $1, 1, 2, 1, 'infinity', $2, '' FROM generate_series(1, $3)";
    sqlx::query(waiting).bind(id.0).bind(app.clock.now()).bind(N).execute(&app.pool).await.expect("rows");
    sqlx::query("ANALYZE").execute(&app.pool).await.expect("statistics for the planner");
    let of_queue = |read: Vec<(String, i64, i64)>| {
        read.into_iter().find(|(table, ..)| table == "queue").map_or(0, |(_, whole, by_index)| whole + by_index)
    };
    let before = of_queue(read(&app).await);
    reconnect(&app.pool).await;
    let page = app.get("/v1/apps/shop/messages?limit=25").await;
    let states: Vec<_> = page["data"].as_array().expect("messages").iter().map(|message| &message["state"]).collect();
    assert_eq!(states.iter().filter(|state| **state == "done").count(), 10, "{states:?}");
    let rows = of_queue(read(&app).await) - before;
    assert!(rows < 100, "{rows} rows of the queue were read");
    reconnect(&app.pool).await;
    sqlx::query("DELETE FROM queue").execute(&app.pool).await.expect("they are ours");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rare_tag_list_scans_a_bounded_number() {
    let app = TestApp::start().await;
    let oldest = app.subscribe_with("fcm", 0..1, json!({"tags": ["rare"]})).await.remove(0).id;
    // As many as one page looks at, without the tag; all of them are newer.
    let others = "INSERT INTO subscriptions (shard, id, app, lane, state, origin_id, since, endpoint_mac, address, last_seen, created_at)
                  SELECT 0, i.id, s.app, s.lane, 'active', i.id, s.since, sha256(uuid_send(i.id)), s.address, s.last_seen, s.created_at
                  FROM subscriptions s, LATERAL (
                    SELECT encode(substr(uuid_send(s.id), 1, 6) || '\\x7fff8000'::bytea || int4send(n * 64) || '\\x0000'::bytea, 'hex')::uuid AS id
                    FROM generate_series(1, 20000) n) i";
    sqlx::query(others).execute(&app.pool).await.expect("subscriptions");
    let first = app.get("/v1/apps/shop/subscriptions?tag=rare&limit=5").await;
    assert_eq!((&first["data"], &first["done"]), (&json!([]), &json!(false)));
    let next = first["iterator"].as_str().expect("it leads on");
    let second = app.get(&format!("/v1/apps/shop/subscriptions?tag=rare&limit=5&iterator={next}")).await;
    assert_eq!((&second["data"][0]["id"], &second["done"]), (&json!(oldest), &json!(true)));
    sqlx::query("DELETE FROM subscriptions WHERE NOT tags @> ARRAY['rare']")
        .execute(&app.pool)
        .await
        .expect("they are ours");
    app.finish().await;
}

#[tokio::test]
async fn growing_table_is_soon_probed_by_index() {
    const ROWS: i64 = 1_500;
    let database = TestDatabase::create().await;
    let mut worker = PgConnection::connect_with(&database.options()).await.expect("a connection");
    for plan in ["enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin"] {
        sqlx::query(AssertSqlSafe(format!("SET {plan} = off"))).execute(&mut worker).await.expect("as dispatch has it");
    }
    sqlx::query("SET plan_cache_mode = force_generic_plan").execute(&mut worker).await.expect("as dispatch has it");
    let prepare = "PREPARE probe (uuid[]) AS SELECT c.uses FROM unnest($1) AS g (person) JOIN cap_uses c ON c.person = g.person AND c.tiers = 2";
    sqlx::query(prepare).execute(&mut worker).await.expect("prepared");
    assert!(!probes_by_person(&mut worker).await, "Postgres believes in an empty table: this test shows nothing");
    let seeded = "INSERT INTO cap_uses (person, app, tiers, uses) SELECT gen_random_uuid(), gen_random_uuid(), 2, ARRAY[1, -1] FROM generate_series(1, $1)";
    let mut pen = database.pool.acquire().await.expect("a connection");
    sqlx::query(seeded).bind(ROWS).execute(&mut *pen).await.expect("rows");
    sqlx::query("SELECT pg_stat_force_next_flush()").execute(&mut *pen).await.expect("counted at once");
    drop(pen);
    maintenance::refresh_statistics(&database.pool).await.expect("analyzed");
    let known = "SELECT reltuples::bigint FROM pg_class WHERE oid = 'cap_uses'::regclass";
    assert_eq!(sqlx::query_scalar::<_, i64>(known).fetch_one(&database.pool).await.expect("a count"), ROWS);
    assert!(probes_by_person(&mut worker).await, "the statement that was prepared before goes by the index now");
}

async fn probes_by_person(worker: &mut PgConnection) -> bool {
    let explain = "EXPLAIN EXECUTE probe ('{}')";
    let plan: Vec<String> = sqlx::query_scalar(explain).persistent(false).fetch_all(worker).await.expect("a plan");
    plan.iter().any(|line| line.contains("Index Cond: ((person = g.person)"))
}
