//! Teammates with roles for some apps see only the lanes and events of those apps.

use axum::body::Body;
use axum::http::{Method, Request};
use bellwire::testkit::api::ApiConfig;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::api::{TestApi, fcm, registration};
use crate::support::app::PATIENCE;
use crate::support::event_stream::SHORT_INTERVALS;

const APPS: [&str; 3] = ["shop", "other", "third"];

/// Three apps with a lane each.
async fn start() -> TestApi {
    let api = TestApi::with(ApiConfig { live: SHORT_INTERVALS, ..ApiConfig::default() }, None).await;
    for app in APPS {
        if app != "shop" {
            api.make_app(app).await;
        }
        let path = format!("/v1/apps/{app}/subscriptions");
        let body = registration(&fcm(app), json!({}));
        api.call(Method::POST, &path, Some(&api.operator), Some(body)).await.ok(201);
    }
    api
}

async fn ids(api: &TestApi) -> Vec<Value> {
    let mut ids = Vec::new();
    for app in APPS {
        ids.push(
            api.call(Method::GET, &format!("/v1/apps/{app}"), Some(&api.operator), None).await.ok(200)["id"].clone(),
        );
    }
    ids
}

/// The lanes of a page, by their apps.
fn lanes(page: &Value) -> Vec<(Value, i64)> {
    let mut lanes: Vec<_> = page["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lane| (lane["app"].clone(), lane["lane"].as_i64().unwrap()))
        .collect();
    lanes.sort_by_key(|(_, lane)| *lane);
    lanes
}

#[tokio::test]
async fn watchers_see_lanes_of_their_apps() {
    let api = start().await;
    let ids = ids(&api).await;
    let ann = api
        .teammate("ann@example.com", json!([{"role": "viewer", "app": "shop"}, {"role": "admin", "app": "other"}]))
        .await;
    let nobody = api.teammate("bob@example.com", json!([{"role": "viewer", "app": "third"}])).await;
    let everything = lanes(&api.call(Method::GET, "/v1/gateways", Some(&api.operator), None).await.ok(200));
    assert_eq!(everything.iter().map(|(app, _)| app.clone()).collect::<Vec<_>>(), ids);
    assert_eq!(lanes(&ann.get("/v1/gateways").await.ok(200)), everything[..2]);
    assert_eq!(lanes(&ann.get("/v1/gateways?app=other").await.ok(200)), everything[1..2]);
    assert_eq!(lanes(&ann.get("/v1/gateways?limit=1").await.ok(200)), everything[1..2]);
    for hidden in ["third", "nowhere"] {
        let refused = ann.get(&format!("/v1/gateways?app={hidden}")).await;
        assert_eq!(refused.refusal(), (400, "invalid_parameter", vec!["app"]), "{hidden}");
    }
    let of_third = api.call(Method::GET, "/v1/gateways?app=third", Some(&api.operator), None).await.ok(200);
    assert_eq!(lanes(&of_third), everything[2..]);

    let [own, another] = [everything[0].1, everything[2].1];
    let hold = Some(json!({"reason": "for operators only"}));
    api.call(Method::POST, &format!("/v1/gateways/{own}/hold"), Some(&api.operator), hold).await.ok(200);
    let shown = ann.get(&format!("/v1/gateways/{own}")).await.ok(200);
    let origin = &shown["origins"][0];
    assert_eq!((&origin["held_reason"], &origin["held_note"]), (&json!("operator"), &Value::Null));
    assert_eq!((&shown["concurrency"], &shown["last_error"]), (&Value::Null, &Value::Null), "no worker has told of it");
    ann.get(&format!("/v1/gateways/{own}/flow")).await.ok(200);
    for path in [format!("/v1/gateways/{another}"), format!("/v1/gateways/{another}/flow")] {
        assert_eq!(ann.get(&path).await.status, 404, "{path}");
        assert_eq!(nobody.get(&path).await.status, 200, "{path}");
    }
    let order = ann.call(Method::POST, &format!("/v1/gateways/{own}/release"), None).await;
    assert_eq!(order.status, 403, "looking is all that they may");
}

#[tokio::test]
async fn stream_is_limited_to_apps_of_the_role() {
    let api = start().await;
    let ann = api
        .teammate("ann@example.com", json!([{"role": "viewer", "app": "shop"}, {"role": "viewer", "app": "other"}]))
        .await;
    let insert = async |app: Option<&str>, n: i32| {
        let insert = "INSERT INTO stream_events (at, app, kind, data) VALUES ($1, (SELECT id FROM apps WHERE slug = $2), 'alert.raised',
            jsonb_build_object('n', $3::int))";
        sqlx::query(insert).bind(api.clock.now()).bind(app).bind(n).execute(&api.pool).await.unwrap();
    };
    let open = async |after: Option<&str>| {
        let mut request =
            Request::get("/v1/events/stream").header("cookie", &ann.cookie).header("sec-fetch-site", "same-origin");
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        let response = api.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
        response.into_body().into_data_stream()
    };
    let hear = async |after: Option<&str>, first: i32| {
        let (mut ear, mut text) = (open(after).await, String::new());
        if after.is_none() {
            for (n, app) in
                [Some("third"), Some("shop"), None, Some("other"), Some("third"), Some("shop")].into_iter().enumerate()
            {
                insert(app, first + i32::try_from(n).unwrap()).await;
            }
        }
        let last = format!("\"n\":{}", first + 5);
        let heard = tokio::time::timeout(PATIENCE, async {
            while !text.contains(&last) {
                text += std::str::from_utf8(&ear.next().await.expect("no end").unwrap()).unwrap();
            }
        });
        heard.await.unwrap_or_else(|_| panic!("{last} never came: {text}"));
        let numbers: Vec<i32> = text
            .split("\"n\":")
            .skip(1)
            .map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap())
            .collect();
        (numbers, text)
    };
    let (heard, text) = hear(None, 10).await;
    assert_eq!(heard, [11, 13, 15], "as it happens");
    let hello = text.lines().find_map(|line| line.strip_prefix("id: ")).expect("an id to resume from").to_owned();
    let (missed, _) = hear(Some(&hello), 10).await;
    assert_eq!(missed, [11, 13, 15], "and what was missed, in order");
}
