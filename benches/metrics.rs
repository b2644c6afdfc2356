//! Figures over time through the real server: how long typical questions about a month take with 100 million deliveries behind
//! it. `scripts/bench metrics`
//!
//! 20 apps with 4 push services and 3 tiers each, all active in every minute: rows by minute for two days, by hour and by day for a month.
//! `ROUNDS` (30) of each query. Then apps up to a total of 1,000, active every day, for a comparison of all apps.

use std::time::Instant;

use bellwire_core::clock::Clock;
use chrono::TimeDelta;
use sqlx::PgPool;

use crate::support::harness::Harness;
use crate::support::setting;
use crate::support::table::{Bar, heading, number, percentiles};

const APPS: u32 = 20;
/// Apps of which there are only days.
const SMALL_APPS: i32 = 980;
const DELIVERIES: i64 = 100_000_000;
const DAYS: i64 = 30;
/// Milliseconds that a month may take.
const MONTH_MS: f64 = 50.0;

pub async fn run() {
    let rounds = setting("ROUNDS", 30);
    let harness = Harness::open().await;
    let now = Clock::system().now();
    for n in 0..APPS {
        harness.app(&format!("app-{n}")).await;
    }
    let rows = fill(&harness.pool, now).await;
    heading(&format!("{} deliveries in {DAYS} days, {} rows", number(DELIVERIES as f64), number(rows as f64)));
    let day = |ago: i64| (now - TimeDelta::days(ago)).format("%Y-%m-%dT00:00:00Z").to_string();
    let month = format!("since={}&until={}", day(DAYS - 1), day(-1));
    let questions = [
        ("All apps by day, outcomes", "/v1/metrics", "step=1d&measures=ended&by=outcome"),
        ("All apps by hour, accepted and gone", "/v1/metrics", "step=1h&measures=accepted,gone"),
        (
            "All apps by hour, p50 and p95 by push service",
            "/v1/metrics",
            "step=1h&measures=latency_p50,latency_p95&by=gateway",
        ),
        ("By app and day, accepted", "/v1/metrics", "step=1d&measures=accepted&by=app"),
        ("One app by hour, outcomes", "/v1/apps/app-7/metrics", "step=1h&measures=ended&by=outcome"),
        ("One app by day, p95 and click rate", "/v1/apps/app-7/metrics", "step=1d&measures=latency_p95,click_rate"),
        ("All apps, the whole month as one", "/v1/metrics", "measures=accepted,acceptance_rate,latency_p99"),
    ];
    for (what, path, query) in questions {
        let mut took_ms = ask(&harness, &format!("{path}?{month}&{query}"), rounds).await;
        percentiles(what, &mut took_ms, [Bar::AtMost(MONTH_MS), Bar::None]);
    }
    fill_small(&harness.pool, now).await;
    heading(&format!("{} apps", i64::from(APPS) + i64::from(SMALL_APPS)));
    let path = format!("/v1/metrics?{month}&measures=accepted,acceptance_rate&by=app");
    let mut took_ms = ask(&harness, &path, rounds).await;
    percentiles("By each app, the whole month as one", &mut took_ms, [Bar::None, Bar::None]);
}

/// Asks again and again, and returns how many milliseconds each answer took.
async fn ask(harness: &Harness, path: &str, rounds: u32) -> Vec<f64> {
    let mut took_ms = Vec::new();
    for _ in 0..rounds {
        let began = Instant::now();
        let shown = harness.api.get(path).await;
        took_ms.push(began.elapsed().as_secs_f64() * 1e3);
        assert!(shown["metadata"]["row_count"].as_u64() > Some(0), "{shown}");
    }
    took_ms
}

/// Adds apps that have something to tell of every lane, tier and day of a month.
async fn fill_small(pool: &PgPool, now: chrono::DateTime<chrono::Utc>) {
    let mut connection = pool.acquire().await.expect("a connection");
    // Charts look at lanes alone: they need no apps and keys.
    let unchecked = "SET statement_timeout = 0; SET session_replication_role = replica";
    sqlx::raw_sql(unchecked).execute(&mut *connection).await.expect("it is ours");
    sqlx::query(
        "WITH apps AS (SELECT gen_random_uuid() AS app FROM generate_series(1, $2)),
         lanes AS (
           INSERT INTO lanes (app, vapid_key, gateway)
           SELECT app, gen_random_uuid(), unnest(ARRAY['fcm', 'mozilla', 'wns', 'apple']) FROM apps RETURNING id, gateway)
         INSERT INTO rollups (step, message, lane, start, tier, gateway, facts, ns)
         SELECT 3, '00000000-0000-0000-0000-000000000000', id, date_trunc('day', $1, 'UTC') - day * interval '1 day', tier, gateway,
                '{1, 3, 5, 10, 12, 20, 21, 104, 105, 106, 107}', '{90, 5, 5, 90, 5, 90, 40, 10, 30, 30, 20}'
         FROM lanes, generate_series(0, $3 - 1) AS day, generate_series(1, 3) AS tier ORDER BY 4, 3",
    )
    .bind(now)
    .bind(SMALL_APPS)
    .bind(i32::try_from(DAYS).expect("a month"))
    .execute(&mut *connection)
    .await
    .expect("rows of many apps");
    sqlx::raw_sql("RESET session_replication_role").execute(&mut *connection).await.expect("it is ours");
    sqlx::raw_sql("VACUUM ANALYZE rollups").execute(&mut *connection).await.expect("a vacuum");
}

/// Writes what folding leaves of a month, and returns how many rows that is.
pub async fn fill(pool: &PgPool, now: chrono::DateTime<chrono::Utc>) -> i64 {
    sqlx::query(
        "INSERT INTO lanes (app, vapid_key, gateway)
         SELECT app, id, gateway FROM vapid_keys, unnest(ARRAY['fcm', 'mozilla', 'wns', 'apple']) AS gateway
         ON CONFLICT DO NOTHING",
    )
    .execute(pool)
    .await
    .expect("lanes");
    let mut connection = pool.acquire().await.expect("a connection");
    sqlx::query("SET statement_timeout = 0").execute(&mut *connection).await.expect("it is ours");
    // Endings, answers, receipts, and ten classes of waits: what a busy minute has to tell.
    let written = sqlx::query(
        "WITH of_lane AS (
           SELECT s.step, p.lane, t.start, tier, l.gateway, s.seconds, count(*) AS lanes
           FROM lanes l CROSS JOIN LATERAL (VALUES (l.id), (0)) AS p (lane)
                CROSS JOIN generate_series(1, 3) AS tier
                CROSS JOIN (VALUES (1, 'minute', 60, 2), (2, 'hour', 3600, $2), (3, 'day', 86400, $2)) AS s (step, unit, seconds, days)
                CROSS JOIN LATERAL generate_series(date_trunc(s.unit, $1 - s.days * interval '1 day', 'UTC'), $1,
                                                   s.seconds * interval '1 second') AS t (start)
           GROUP BY s.step, p.lane, t.start, tier, l.gateway, s.seconds),
         counted AS (
           SELECT *, ($3::float * seconds * lanes / ($2 * 86400.0 * (SELECT count(*) FROM lanes) * 3))::bigint AS n FROM of_lane)
         INSERT INTO rollups (step, message, lane, start, tier, gateway, facts, ns)
         SELECT step, '00000000-0000-0000-0000-000000000000', lane, start, tier, gateway, f.facts, f.ns
         FROM counted, LATERAL (
           SELECT array_agg(fact ORDER BY fact)::smallint[] AS facts, array_agg(1 + n / part ORDER BY fact) AS ns
           FROM (VALUES (1, 1), (2, 50), (3, 60), (5, 900), (10, 1), (12, 60), (13, 80), (15, 90), (20, 1), (21, 2), (22, 20))
                  AS e (fact, part)
           FULL JOIN (SELECT 103 + n AS fact, 10 AS part FROM generate_series(1, 10) n) w USING (fact, part)) f
         ORDER BY step, start, lane",
    )
    .bind(now)
    .bind(i32::try_from(DAYS).expect("a month"))
    .bind(DELIVERIES as f64)
    .execute(&mut *connection)
    .await
    .expect("rows");
    sqlx::raw_sql("VACUUM ANALYZE rollups").execute(&mut *connection).await.expect("a vacuum");
    i64::try_from(written.rows_affected()).expect("some million")
}
