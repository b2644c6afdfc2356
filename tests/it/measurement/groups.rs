use std::collections::HashSet;

use axum::http::Method;
use serde_json::{Value, json};

use super::{DAY, measure, order_of, receipt, result};
use crate::support::TestApp;
use crate::support::app::{Subscriber, scalar};
use crate::support::campaigns::{HOUR, MINUTE, advance, order, plan, run_scheduler, started};

/// Value of a member for each group.
fn by_group(of: &Value, member: &str) -> Vec<(String, i64)> {
    let groups = of["groups"].as_array().unwrap();
    groups.iter().map(|it| (it["group"].as_str().unwrap().to_owned(), it[member].as_i64().unwrap())).collect()
}

fn got(app: &TestApp, subscriber: &Subscriber) -> bool {
    app.simulator.received(&subscriber.endpoint).is_ok_and(|received| received.iter().any(|it| it.accepted > 0))
}

#[tokio::test]
async fn control_group_is_compared_until_window_ends() {
    let app = TestApp::start().await;
    measure(&app, json!({"window": "1d"})).await;
    let people = app.subscribe("fcm", 0..120).await;
    started(&app, plan("spring", json!({"holdout": 0.5}))).await;
    run_scheduler(&app).await;
    advance(&app, MINUTE).await; // then the campaign is done
    let (treated, control): (Vec<_>, Vec<_>) = people.iter().partition(|it| got(&app, it));
    let enrolled = result(&app, "spring").await;
    let expected = [("control".to_owned(), control.len() as i64), (String::new(), treated.len() as i64)];
    assert_eq!(by_group(&enrolled, "people"), expected);
    // Those who were to get it order, of the others only a third.
    for it in treated.iter().chain(control.iter().step_by(3)) {
        order_of(&app, it, 20.0).await;
    }
    let early = result(&app, "spring").await;
    assert_eq!((&early["is_final"], &early["conversions"][0]["lift"]["effect"]), (&json!(false), &json!("none")));
    advance(&app, DAY + 60 * MINUTE).await;
    order_of(&app, control[1], 1_000.0).await;
    let last = result(&app, "spring").await;
    let orders = &last["conversions"][0];
    let converted = by_group(orders, "converted");
    assert_eq!(
        converted,
        [("control".to_owned(), control.len().div_ceil(3) as i64), (String::new(), treated.len() as i64)]
    );
    let lift = &orders["lift"];
    assert_eq!(
        (&last["is_final"], &lift["effect"], &lift["people_needed"]),
        (&json!(true), &json!("more"), &Value::Null)
    );
    let caused = treated.len() as f64 * (1.0 - control.len().div_ceil(3) as f64 / control.len() as f64);
    assert!((lift["additional"]["value"].as_f64().unwrap() - caused).abs() < 0.01, "{lift}");
    let euro = &lift["values"][0];
    assert_eq!((&euro["currency"], &euro["effect"]), (&json!("EUR"), &json!("more")));
    assert!((euro["additional"]["value"].as_f64().unwrap() - 20.0 * caused).abs() < 0.2, "{lift}");
    let told = "SELECT count(*) FROM stream_events WHERE kind = 'campaign.result' AND data ->> 'slug' = 'spring'
                AND data -> 'result' ->> 'is_final' = 'true'";
    assert_eq!(scalar(&app.pool, told).await, 1);
    app.keep_house().await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM measured_people").await, 0);
    assert_eq!(result(&app, "spring").await, last, "it is final");
    let quarter = app.get("/v1/apps/shop/results").await;
    assert_eq!((&quarter["campaigns"], &quarter["is_final"]), (&json!(1), &json!(true)));
    assert_eq!(quarter["conversions"][0]["additional"]["value"], lift["additional"]["value"]);
    app.finish().await;
}

#[tokio::test]
async fn pauses_and_low_rates_extend_the_measurement() {
    let app = TestApp::start().await;
    measure(&app, json!({"window": "1d"})).await;
    let people = app.subscribe("fcm", 0..4).await;
    started(&app, plan("spring", json!({"pace": {"per_minute": 1}}))).await;
    run_scheduler(&app).await;
    order(&app, "spring", "pause").await.ok(200);
    advance(&app, DAY / 2).await;
    order(&app, "spring", "resume").await.ok(200);
    for _ in 0..people.len() {
        advance(&app, MINUTE).await;
    }
    advance(&app, MINUTE).await; // then the campaign is done
    assert!(people.iter().all(|it| got(&app, it)));
    advance(&app, DAY / 2 + HOUR).await;
    assert_eq!(result(&app, "spring").await["is_final"], false, "a day after its first message");
    assert_eq!(result(&app, "spring").await["is_final"], false);
    advance(&app, DAY / 2).await;
    assert_eq!(result(&app, "spring").await["is_final"], true);
    app.finish().await;
}

#[tokio::test]
async fn segment_decides_who_is_compared() {
    let app = TestApp::start().await;
    measure(&app, json!({})).await;
    app.subscribe_with("fcm", 0..30, json!({"tags": ["beta"]})).await;
    app.subscribe("fcm", 30..60).await;
    let message = json!({"to": {"segment": "tag(\"beta\")"}, "content": {"title": "Spring"}});
    started(&app, plan("spring", json!({"holdout": 0.3, "message": message}))).await;
    run_scheduler(&app).await;
    app.clock.advance(MINUTE);
    let new = app.subscribe_with("fcm", 60..65, json!({"tags": ["beta"]})).await;
    assert!(!got(&app, &new[0]));
    let people: i64 = by_group(&result(&app, "spring").await, "people").into_iter().map(|(_, n)| n).sum();
    assert_eq!(people, 30, "neither the others nor later subscribers");
    app.finish().await;
}

#[tokio::test]
async fn browsers_of_one_user_are_one_person() {
    let app = TestApp::start().await;
    measure(&app, json!({})).await;
    for (user, from) in [("ann", 0), ("ben", 3), ("eve", 6)] {
        app.subscribe_with("fcm", from..from + 3, json!({"user_id": user})).await;
    }
    let variants = json!([{"name": "a", "message": {}}, {"name": "b", "message": {}}]);
    started(&app, plan("spring", json!({"variants": variants}))).await;
    run_scheduler(&app).await;
    let people: i64 = by_group(&result(&app, "spring").await, "people").into_iter().map(|(_, n)| n).sum();
    assert_eq!(people, 3);
    app.finish().await;
}

#[tokio::test]
async fn people_of_triggers_are_compared_when_due() {
    let app = TestApp::start().await;
    measure(&app, json!({})).await;
    let people = app.subscribe("fcm", 0..30).await;
    let schedule = json!({"on": "event:cart_added", "after": "30m"});
    started(&app, plan("reminder", json!({"schedule": schedule, "holdout": 0.5}))).await;
    let events: Vec<Value> =
        people[..20].iter().map(|it| json!({"name": "cart_added", "subscription": it.id})).collect();
    app.call(Method::POST, "/v1/apps/shop/events", json!({"events": events})).await.ok(200);
    assert_eq!(result(&app, "reminder").await, Value::Null, "no one was to get it yet");
    advance(&app, 30 * MINUTE).await;
    let n = people.iter().filter(|it| got(&app, it)).count() as i64;
    let expected = [("control".to_owned(), 20 - n), (String::new(), n)];
    assert_eq!(by_group(&result(&app, "reminder").await, "people"), expected);
    app.finish().await;
}

#[tokio::test]
async fn orders_decide_a_test() {
    let app = TestApp::start().await;
    measure(&app, json!({})).await;
    let people = app.subscribe("fcm", 0..200).await;
    let variants = json!([{"name": "plain", "message": {}},
        {"name": "offer", "message": {"content": {"title": "20 % off"}}}]);
    let test = json!({"share": 0.5, "after": 3600, "by": "order"});
    started(&app, plan("spring", json!({"variants": variants, "test": test}))).await;
    run_scheduler(&app).await;
    let title = |it: &Subscriber| {
        let received = app.simulator.received(&it.endpoint).ok()?;
        let push: Value = serde_json::from_slice(received.last()?.plaintext.as_deref()?).unwrap();
        push["notification"]["title"].as_str().map(str::to_owned)
    };
    let titles: HashSet<Option<String>> = people.iter().map(title).collect();
    assert_eq!(titles.len(), 3, "two variants, and the rest that waits");
    result(&app, "spring").await;
    for it in &people {
        match title(it).as_deref() {
            // Many click the one, and order the other.
            Some("Spring") => drop(receipt(&app, it, "clicked").await),
            Some("20 % off") => order_of(&app, it, 10.0).await,
            _ => {}
        }
    }
    advance(&app, HOUR).await;
    run_scheduler(&app).await;
    let campaign = crate::support::campaigns::show(&app, "spring").await;
    assert_eq!(campaign["progress"]["runs"][0]["winner"], "offer", "{campaign}");
    let groups = by_group(&result(&app, "spring").await, "people");
    assert_eq!(groups.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["plain", "offer", "after_test"]);
    app.finish().await;
}

#[tokio::test]
async fn interrupted_enrolment_counts_each_once() {
    let app = TestApp::start().await;
    measure(&app, json!({})).await;
    app.subscribe("fcm", 0..50).await;
    started(&app, plan("spring", json!({"holdout": 0.5}))).await;
    run_scheduler(&app).await;
    let first = result(&app, "spring").await;
    // A crash after the last chunk: the run is still to be enrolled.
    sqlx::query("UPDATE measurements SET enrol_at = began_at, compared = true").execute(&app.pool).await.unwrap();
    assert_eq!(by_group(&result(&app, "spring").await, "people"), by_group(&first, "people"));
    app.finish().await;
}

#[tokio::test]
async fn recurring_campaign_has_one_period_for_its_runs() {
    let app = TestApp::start().await;
    measure(&app, json!({})).await;
    app.subscribe("fcm", 0..10).await;
    let schedule = json!({"cron": "0 9 * * *", "timezone": "UTC"});
    started(&app, plan("daily", json!({"schedule": schedule, "holdout": 0.5}))).await;
    for _ in 0..3 {
        advance(&app, DAY).await;
        result(&app, "daily").await;
    }
    app.subscribe("fcm", 10..20).await;
    advance(&app, DAY).await;
    let all = app.get("/v1/apps/shop/campaigns/daily/results").await;
    assert_eq!(all["data"].as_array().unwrap().len(), 1);
    let people: i64 = by_group(&result(&app, "daily").await, "people").into_iter().map(|(_, n)| n).sum();
    assert_eq!(people, 20, "new subscribers are added");
    app.finish().await;
}
