//! Findings of a server about its own set-up, and of `bellwire doctor` with and without one.

use axum::http::Method;
use bellwire::testkit::checks;
use bellwire_net::http_server::refusal::RefusalBody;
use bellwire_net::http_server::{ListenerLimits, serve};
use bellwire_simulator::gateways::{RequestFault, Rule, RuleAction};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::app::scalar;
use crate::support::{Setup, TestApp};

async fn looked_at(app: &TestApp) -> Vec<Value> {
    app.operate(Method::GET, "/v1/checks", Value::Null).await.ok(200)["data"].as_array().unwrap().clone()
}

fn of<'a>(findings: &'a [Value], check: &str) -> &'a Value {
    findings.iter().find(|finding| finding["check"] == check).unwrap_or_else(|| panic!("no {check} in {findings:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_list_faults_first_with_remedies() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    app.run_until_idle().await;
    let found = looked_at(&app).await;
    let rank =
        |finding: &Value| ["failure", "warning", "ok"].iter().position(|health| finding["health"] == *health).unwrap();
    assert!(found.is_sorted_by_key(rank), "{found:?}");
    for check in [
        "public URL",
        "master key file",
        "schema",
        "clock",
        "database version",
        "database connections",
        "cleaning",
        "sealing",
        "open files",
        "old transactions",
        "partitions",
        "api keys",
        "workers",
        "lanes",
        "leases",
        "bloat",
        "settings",
        "files in use",
        "queue",
    ] {
        assert_eq!(of(&found, check)["health"], "ok", "{check}: {found:?}");
    }
    // The tests' own Postgres does not wait for its disk.
    let durability = of(&found, "durability");
    assert_eq!((&durability["health"], &found[0]["check"]), (&json!("failure"), &json!("durability")));
    assert_eq!(durability["line"], "ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf();");
    assert!(of(&found, "workers")["detail"].as_str().unwrap().contains(env!("CARGO_PKG_VERSION")));

    let lane = app.lane("fcm").await;
    app.operate(Method::POST, &format!("/v1/gateways/{lane}/hold"), Value::Null).await.ok(200);
    let day_after_tomorrow = (app.clock.now() + chrono::TimeDelta::days(2)).format("%Y%m%d");
    let drop = format!("DROP TABLE receipts_{day_after_tomorrow}");
    sqlx::query(sqlx::AssertSqlSafe(drop)).execute(&app.pool).await.unwrap();
    sqlx::query("UPDATE api_keys SET expires_at = $1 WHERE app IS NOT NULL")
        .bind(app.clock.now() + chrono::TimeDelta::days(3))
        .execute(&app.pool)
        .await
        .unwrap();
    sqlx::query(
        "INSERT INTO workers (id, started_at, beat_at, version, beats) VALUES (gen_random_uuid(), $1, $1, '0.0.1', 1)",
    )
    .bind(app.clock.now())
    .execute(&app.pool)
    .await
    .unwrap();
    let found = looked_at(&app).await;
    for (check, named) in [
        ("lanes", "1 lane is held."),
        ("partitions", "for today and tomorrow"),
        ("api keys", "expires within 14 days"),
        ("workers", "0.0.1"),
    ] {
        let finding = of(&found, check);
        assert_eq!(finding["health"], "warning", "{finding}");
        assert!(finding["detail"].as_str().unwrap().contains(named) && finding["advice"].is_string(), "{finding}");
    }
    app.dispatcher.stop(std::time::Duration::ZERO).await; // it would enter itself again
    sqlx::query("DELETE FROM workers").execute(&app.pool).await.unwrap();
    assert_eq!(of(&looked_at(&app).await, "workers")["health"], "failure");
    app.finish().await;
}

/// Finding of a check, by its name.
fn health(findings: &[Value], check: &str) -> Value {
    of(findings, check)["health"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_ask_others_over_the_network() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let public_url = format!("http://{}", listener.local_addr().unwrap()).parse().ok();
    let checks_setup = checks::Setup { public_url, asks_others: true, ..checks::Setup::default() };
    let app = TestApp::with(Setup { checks: checks_setup, ..Setup::default() }).await;
    app.operate(Method::PATCH, "/v1/apps/shop", json!({"origins": ["https://shop.example.net"]})).await.ok(200);
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let serving =
        tokio::spawn(serve(listener, None, app.router.clone(), ListenerLimits::default(), RefusalBody::PLAIN, stopped));
    let found = looked_at(&app).await;
    for check in ["push service fcm", "push service apple", "own address", "service worker script", "CORS"] {
        assert_eq!(health(&found, check), "ok", "{check}: {found:?}");
    }
    assert!(of(&found, "CORS")["detail"].as_str().unwrap().contains("https://shop.example.net"));
    assert_eq!(health(&found, "VAPID subjects"), "warning", "mail to example.com reaches nobody");
    stop.send(true).unwrap();
    serving.await.unwrap();
    let at_once = looked_at(&app).await;
    assert_eq!(health(&at_once, "own address"), "ok", "what was found is good for half a minute");
    app.clock.advance(std::time::Duration::from_secs(31));
    let found = looked_at(&app).await;
    let own = of(&found, "own address");
    assert_eq!((&own["health"], own["advice"].is_string()), (&json!("warning"), true), "{own}");
    assert!(found.iter().all(|finding| finding["check"] != "CORS"), "of what does not answer nothing more is told");
    // To where no push resource is.
    app.finish_after(&[RequestFault::UnknownEndpoint]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_that_nobody_takes_over_are_told() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let later = app.clock.now() + chrono::TimeDelta::days(1);
    app.send(json!({"subscriptions": [subscriber.id]}), json!({"send_at": later})).await;
    app.dispatcher.stop(std::time::Duration::ZERO).await;
    let leased = |sql| sqlx::query(sql).bind(app.clock.now() - chrono::TimeDelta::minutes(2)).execute(&app.pool);
    leased("UPDATE queue SET lease = gen_random_uuid(), due_at = $1").await.unwrap();
    let found = looked_at(&app).await;
    let leases = of(&found, "leases");
    assert_eq!(leases["health"], "warning", "{leases}");
    assert!(leases["detail"].as_str().unwrap().contains("0 batches, 1 delivery."), "{leases}");
    leased("UPDATE queue SET lease = NULL, due_at = $1").await.unwrap();
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lane_shows_its_limit_and_last_error() {
    let app = TestApp::start().await;
    app.subscribe("mozilla", 0..3).await;
    let lane = app.lane("mozilla").await;
    let show = async || app.operate(Method::GET, &format!("/v1/gateways/{lane}"), Value::Null).await.ok(200);
    let refuse = RuleAction::Answer { status: 400, headers: Vec::new(), body: "no more of this".to_owned() };
    let rule = app.simulator.add_rule(Rule { count: Some(1), ..Rule::always(refuse) }).unwrap();
    app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.rule(rule).0, 1);
    app.run_until_idle().await; // with a heartbeat
    let shown = show().await;
    assert!(shown["concurrency"].as_i64().is_some_and(|n| n >= 32), "{shown}");
    assert_eq!(
        (&shown["last_error"]["status"], &shown["last_error"]["detail"]),
        (&json!(400), &json!("no more of this"))
    );
    assert!(shown["last_error"]["at"].is_string());
    // Acceptances and gone subscriptions are not findings.
    let gone = RuleAction::Answer { status: 410, headers: Vec::new(), body: "gone".to_owned() };
    app.simulator.add_rule(Rule { count: Some(1), ..Rule::always(gone) }).unwrap();
    app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    app.run_until_idle().await;
    assert_eq!(show().await["last_error"], shown["last_error"]);
    // A worker that is gone lets nothing through; what was said stays.
    app.dispatcher.stop(std::time::Duration::from_secs(10)).await;
    let after = show().await;
    assert_eq!((&after["concurrency"], &after["last_error"]), (&Value::Null, &shown["last_error"]));
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM lane_limits").await, 0);
    app.finish().await;
}
