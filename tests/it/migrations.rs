//! Migrations change databases that are in use.

use std::fs;
use std::path::Path;

use bellwire::testkit::store::{self, Beside, SchemaError};
use sqlx::{AssertSqlSafe, PgPool};

use crate::support::TestDatabase;

/// A database as migrations up to that number left it.
pub async fn before(number: u32) -> TestDatabase {
    let database = TestDatabase::create().await;
    sqlx::raw_sql("DROP SCHEMA bellwire CASCADE; CREATE SCHEMA bellwire")
        .execute(&database.pool)
        .await
        .expect("emptied");
    for earlier in 1..number {
        migrate(&database.pool, earlier).await;
    }
    database
}

pub async fn migrate(pool: &PgPool, number: u32) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let files = fs::read_dir(directory).expect("the migrations").map(|file| file.expect("a file").path());
    let prefix = format!("{number:04}_");
    let mut files =
        files.filter(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix)));
    let Some(file) = files.next() else { return };
    let sql = fs::read_to_string(file).expect("a migration");
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(pool).await.expect("it applies");
}

#[tokio::test]
async fn keys_of_before_scopes_were_split_keep_what_they_could_do() {
    let database = before(11).await;
    sqlx::raw_sql(
        "INSERT INTO apps (id, slug, name, created_at) VALUES ('00000000-0000-7000-8000-000000000001', 'shop', 'x', now());
         INSERT INTO api_keys (id, app, secret_mac, hint, name, scopes, created_at)
         SELECT gen_random_uuid(), CASE WHEN name <> 'd' THEN '00000000-0000-7000-8000-000000000001'::uuid END,
                sha256(name::bytea), 'bw_', name, scopes::text[], now()
         FROM (VALUES ('a', '{manage,read,send}'), ('b', '{send}'), ('c', '{read}'), ('d', '{operator}')) AS k (name, scopes)",
    )
    .execute(&database.pool)
    .await
    .expect("keys");
    migrate(&database.pool, 11).await;
    let scopes = sqlx::query_scalar::<_, String>("SELECT array_to_string(scopes, ' ') FROM api_keys ORDER BY name");
    let expected = [
        "export keys messages policies read send settings subscribers",
        "messages send", // it could stop what it had sent
        "read",
        "operator",
    ];
    assert_eq!(scopes.fetch_all(&database.pool).await.expect("keys"), expected);
    for wrong in ["'{manage}'", "'{operator}'", "'{metrics}'"] {
        let update = format!("UPDATE api_keys SET scopes = {wrong} WHERE app IS NOT NULL");
        sqlx::raw_sql(AssertSqlSafe(update)).execute(&database.pool).await.expect_err("no app's key has it");
    }
}

#[tokio::test]
async fn browsers_that_have_reported_before_keys_could_be_proven_have_proven_them() {
    let database = before(12).await;
    sqlx::raw_sql(
        "CREATE TABLE receipts_ever PARTITION OF receipts DEFAULT;
         INSERT INTO subscriptions (shard, id, app, lane, state, origin_id, since, endpoint_mac, address, token_version,
           last_seen, created_at)
         SELECT n, uuid(lpad(n::text, 32, '0')), gen_random_uuid(), 1, 'active', gen_random_uuid(), now(),
           sha256(n::text::bytea), '', 7, now(), now() FROM generate_series(1, 2) AS n;
         INSERT INTO receipts (message, subscription, kind, shard, at)
         SELECT gen_random_uuid(), uuid(lpad('1', 32, '0')), 1, 1, timestamptz '2027-01-02' - n * interval '1 day'
         FROM generate_series(0, 1) AS n",
    )
    .execute(&database.pool)
    .await
    .expect("subscriptions and receipts");
    migrate(&database.pool, 12).await;
    let proven = "SELECT keys_proven_at::date::text, token_version::bigint FROM subscriptions ORDER BY shard";
    let proven = sqlx::query_as::<_, (Option<String>, i64)>(proven).fetch_all(&database.pool).await.expect("columns");
    assert_eq!(proven, [(Some("2027-01-01".to_owned()), 7), (None, 7)]);
}

#[tokio::test]
async fn identity_keys_topics_and_apps_of_before_say_what_they_may() {
    let database = before(15).await;
    sqlx::raw_sql(
        "INSERT INTO apps (id, slug, name, created_at, is_example)
         VALUES ('00000000-0000-7000-8000-000000000001', 'shop', 'x', now(), true);
         INSERT INTO identity_keys (id, app, name, algorithm, secret, public_key, created_at)
         SELECT gen_random_uuid(), id, 'x', 'HS256', 'sealed'::bytea, NULL, now() FROM apps
         UNION ALL SELECT gen_random_uuid(), id, 'x', 'ES256', NULL, decode(repeat('04', 65), 'hex'), now() FROM apps;
         INSERT INTO topics (app, name, created_at) SELECT id, unnest(ARRAY['news', 'own']), now() FROM apps",
    )
    .execute(&database.pool)
    .await
    .expect("an app");
    migrate(&database.pool, 15).await;
    let number =
        async |sql: &'static str| sqlx::query_scalar::<_, i64>(sql).fetch_one(&database.pool).await.expect("a number");
    assert_eq!(number("SELECT count(*) FROM identity_keys WHERE form = 'jwt'").await, 2);
    assert_eq!(number("SELECT count(*) FROM apps WHERE browsers_may = '{}'").await, 1);
    let kept = "SELECT count(*) FROM topics WHERE join_by = 'anyone' AND made_by = 'server'";
    assert_eq!(number(kept).await, 4, "those that there were, and what the example page offers");
    for wrong in [
        "UPDATE identity_keys SET form = 'hmac'", // an HMAC takes a secret
        "UPDATE apps SET browsers_may = '{everything}'",
        "UPDATE topics SET join_by = 'nobody'",
    ] {
        sqlx::raw_sql(wrong).execute(&database.pool).await.expect_err(wrong);
    }
}

#[tokio::test]
async fn whom_there_is_to_reach_is_counted_once_and_kept_from_then_on() {
    let database = before(25).await;
    let subscriptions = |from: u32, until: u32| {
        format!(
            "INSERT INTO subscriptions (shard, id, app, lane, state, origin_id, since, endpoint_mac, address, last_seen,
               created_at, ended_at)
             SELECT 0, uuid(lpad(n::text, 32, '0')), gen_random_uuid(), 1 + n % 2, CASE WHEN n < 3 THEN 'gone' ELSE 'active' END,
               gen_random_uuid(), now(), sha256(n::text::bytea), '', now(), now(), CASE WHEN n < 3 THEN now() END
             FROM generate_series({from}, {until}) AS n;
             INSERT INTO topic_members (shard, subscription, topic, lane, joined_at)
             SELECT 0, uuid(lpad(n::text, 32, '0')), 7, 1 + n % 2, now() FROM generate_series({from}, {until}) AS n WHERE n > 3;"
        )
    };
    sqlx::raw_sql(AssertSqlSafe(subscriptions(1, 6))).execute(&database.pool).await.expect("subscriptions of before");
    migrate(&database.pool, 25).await;
    sqlx::raw_sql(AssertSqlSafe(subscriptions(7, 9))).execute(&database.pool).await.expect("and of after");
    let kept = sqlx::query_as::<_, (i32, i32, i64)>(
        "SELECT topic, lane, sum(n)::bigint FROM (TABLE audience_counts UNION ALL TABLE audience_changes) kept
         GROUP BY topic, lane ORDER BY topic, lane",
    );
    assert_eq!(
        kept.fetch_all(&database.pool).await.expect("counts"),
        [(0, 1, 3), (0, 2, 4), (7, 1, 3), (7, 2, 3)],
        "of 3 to 9 the even ones are in lane 1, and 4 to 9 in the topic"
    );
}

#[tokio::test]
async fn outcomes_counted_before_there_were_hours_and_days_are_in_them() {
    let database = before(27).await;
    sqlx::raw_sql(
        "SET session_replication_role = replica; -- without the lanes' apps and keys
         INSERT INTO lanes (app, vapid_key, gateway) VALUES (gen_random_uuid(), gen_random_uuid(), 'fcm');
         INSERT INTO rollups (minute, lane, tier, ending, n)
         SELECT date_trunc('hour', now()) - n * interval '1 minute', id, 2, ending, 3
         FROM lanes, generate_series(1, 6000) n, unnest('{1,3}'::smallint[]) ending",
    )
    .execute(&database.pool)
    .await
    .expect("four days of outcomes");
    migrate(&database.pool, 27).await;
    let sums: Vec<(i16, i64, i64)> = sqlx::query_as(
        "SELECT step, (count(*) FILTER (WHERE lane > 0)), sum(n)::bigint
         FROM rollups, unnest(facts, ns) AS f (fact, n) WHERE fact = 3 GROUP BY step ORDER BY step",
    )
    .fetch_all(&database.pool)
    .await
    .expect("sums");
    // Of the lane and of all lanes together; minutes of two days alone.
    let all = 2 * 3 * 6_000;
    assert_eq!((sums[0], sums[1]), ((1, 2_881, 2 * 3 * 2_881), (2, 100, all)));
    assert_eq!((sums.len(), sums[2].2), (3, all));
}

#[tokio::test]
async fn campaigns_that_were_fanned_out_before_there_was_progress_are_told_of() {
    let database = before(35).await;
    sqlx::raw_sql(
        "SET session_replication_role = replica;
         INSERT INTO messages (id, app, tier, state, audience, ttl_s, urgency, audience_estimate, accepted_at, expires_at)
         SELECT uuid(lpad(n::text, 32, '0')), gen_random_uuid(), 2, 'sending', audience, 60, 1, estimate, now(), now()
         FROM (VALUES (1, '{\"all\": true}'::jsonb, 500), (2, '{\"all\": true}', 500), (3, '{\"all\": true}', 50),
                      (4, '{\"subscriptions\": []}', 500), (5, '{\"all\": true}', 500)) AS m (n, audience, estimate);
         INSERT INTO queue (shard, subscription, message, lane, tier, due_at, scheduled_at, leases, token)
         SELECT 0, gen_random_uuid(), uuid(lpad(n::text, 32, '0')), 1, 2, now(), now(), 0, ''
         FROM unnest('{1,3,4}'::int[]) n, generate_series(1, 3);
         INSERT INTO batches (id, message, lane, tier, recipients, lease, due_at)
         VALUES (gen_random_uuid(), uuid(lpad('2', 32, '0')), 1, 2, ARRAY[gen_random_uuid()], gen_random_uuid(), now())",
    )
    .execute(&database.pool)
    .await
    .expect("messages of which some wait");
    migrate(&database.pool, 35).await;
    let known = "SELECT right(message::text, 1) FROM campaigns_in_motion ORDER BY message";
    let known: Vec<String> = sqlx::query_scalar(known).fetch_all(&database.pool).await.expect("campaigns");
    assert_eq!(known, ["1", "2"], "3 and 4 are no campaigns, 5 is over");
}

#[tokio::test]
async fn what_counted_towards_caps_in_wide_rows_goes_on_counting() {
    let database = before(56).await;
    sqlx::raw_sql(
        "INSERT INTO cap_uses (app, shard, person, tiers, at, roots, refused)
         VALUES ('00000000-0000-7000-8000-0000000000aa', 1, '00000000-0000-7000-8000-000000000001', 5,
                 '{2026-12-02T00:00:00.000001Z, 2026-12-01T00:00:00Z}',
                 '{00000000-0000-7000-8000-000000000002, 00000000-0000-7000-bfff-ffffffffffff}',
                 '{00000000-0000-7000-8000-000000000003}'),
                ('00000000-0000-7000-8000-0000000000aa', 2, '00000000-0000-7000-8000-000000000002', 2,
                 '{2026-12-01T00:00:00Z}', '{00000000-0000-7000-8000-000000000004}', '{}')",
    )
    .execute(&database.pool)
    .await
    .expect("rows");
    migrate(&database.pool, 56).await;
    let rows = sqlx::query_scalar::<_, String>(
        "SELECT concat_ws(' ', right(person::text, 1), right(app::text, 2), tiers, uses, refused) FROM cap_uses ORDER BY person",
    );
    let half = |last: u64| i64::from_be_bytes((0x8000_0000_0000_0000 | last).to_be_bytes());
    let (day, next) = (1_796_083_200_000_000_i64, 1_796_169_600_000_001_i64);
    let expected = [
        format!("1 aa 5 {{{next},{},{day},{}}} {{{}}}", half(2), half(0x3fff_ffff_ffff_ffff), half(3)),
        format!("2 aa 2 {{{day},{}}}", half(4)),
    ];
    assert_eq!(rows.fetch_all(&database.pool).await.expect("rows"), expected);
}

/// As if the last migration were still to come.
async fn undo_the_last(database: &TestDatabase) {
    sqlx::raw_sql(
        "DROP TABLE stream_floor;
         DROP INDEX stream_events_by_app, campaigns_in_motion_by_app, rollup_notes_by_minute, rollup_notes_of_subscriptions;
         DELETE FROM _sqlx_migrations WHERE version = 35",
    )
    .execute(&database.pool)
    .await
    .expect("undone");
}

#[tokio::test]
async fn a_database_is_not_migrated_while_a_worker_of_before_is_at_work() {
    let database = TestDatabase::create().await;
    let options = database.options();
    let beat = async |ago_s: f64| {
        let beat = "INSERT INTO workers (id, started_at, beat_at)
                    VALUES (uuid(lpad('1', 32, '0')), now(), now() - $1 * interval '1 second')
                    ON CONFLICT (id) DO UPDATE SET beat_at = excluded.beat_at";
        sqlx::query(beat).bind(ago_s).execute(&database.pool).await.expect("a beat");
    };
    beat(0.0).await;
    store::migrate(&options, Beside::Refuse).await.expect("nothing is missing, so nobody is in the way");
    undo_the_last(&database).await;
    let refused = store::migrate(&options, Beside::Refuse).await.expect_err("a worker lives");
    assert!(matches!(refused, SchemaError::InUse { workers: 1 }), "{refused}");
    assert!(refused.to_string().contains("bellwire migrate --force"), "{refused}");
    store::migrate(&options, Beside::Force).await.expect("somebody insists");
    undo_the_last(&database).await;
    beat(16.0).await;
    store::migrate(&options, Beside::Refuse).await.expect("it counts as dead");
    store::check_schema(&options).await.expect("all is there");
}
