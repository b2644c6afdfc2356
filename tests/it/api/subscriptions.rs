//! Subscriptions: who may do what to them, what refreshing, replacing and ending them means.

use std::time::Duration;

use axum::http::Method;
use bellwire::testkit::api::Work;
use bellwire_store::queue::stops::StopKind;
use serde_json::{Value, json};
use sqlx::types::chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::support::api::{ORIGIN, TestApi, content, fcm, high_rate_limits, push_subscription, registration};

fn id(subscription: &Value) -> &str {
    subscription["id"].as_str().unwrap()
}

fn uuid(subscription: &Value) -> Uuid {
    id(subscription).strip_prefix("sub_").unwrap().parse().unwrap()
}

fn token(subscription: &Value) -> Option<&str> {
    subscription["token"].as_str()
}

async fn waiting(api: &TestApi, subscription: &Value) -> i64 {
    let query = sqlx::query_scalar("SELECT count(*) FROM queue WHERE subscription = $1");
    query.bind(uuid(subscription)).fetch_one(&api.pool).await.unwrap()
}

#[tokio::test]
async fn browser_manages_its_subscription_by_token() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let details = json!({"tags": ["b", "a", "a"], "attributes": {"plan": "pro", "n": 3, "ok": true}, "topics": ["news"],
        "locale": "de-AT", "timezone": "Europe/Vienna"});
    let made = api.browse(Method::POST, "/subscriptions", None, Some(registration(&fcm("a"), details))).await.ok(201);
    assert_eq!((&made["state"], &made["gateway"]), (&json!("active"), &json!("fcm")));
    assert_eq!((&made["tags"], &made["topics"]), (&json!(["a", "b"]), &json!(["news"])));
    assert!(!made.to_string().contains("googleapis"), "an endpoint is a secret");
    let path = format!("/subscriptions/{}", id(&made));
    let token = token(&made);
    assert_eq!(api.browse(Method::GET, &path, token, None).await.ok(200)["locale"], "de-AT");

    let change =
        json!({"tags": ["c"], "attributes": {"plan": null, "n": 4}, "topics": ["sport", "news"], "locale": null});
    let changed = api.browse(Method::PATCH, &path, token, Some(change)).await.ok(200);
    assert_eq!(changed["attributes"], json!({"n": 4, "ok": true}));
    assert_eq!((&changed["tags"], &changed["topics"]), (&json!(["c"]), &json!(["news", "sport"])));
    assert_eq!((&changed["locale"], &changed["timezone"]), (&Value::Null, &json!("Europe/Vienna")));
    let cleared =
        api.browse(Method::PATCH, &path, token, Some(json!({"attributes": null, "topics": null}))).await.ok(200);
    assert_eq!((&cleared["attributes"], &cleared["topics"]), (&json!({}), &json!([])));

    let stranger =
        api.browse(Method::POST, "/subscriptions", None, Some(registration(&fcm("b"), json!({})))).await.ok(201);
    for method in [Method::GET, Method::PATCH, Method::DELETE] {
        let body = (method == Method::PATCH).then(|| json!({}));
        let reply = api.browse(method.clone(), &path, stranger["token"].as_str(), body.clone()).await;
        assert_eq!(reply.refusal(), (404, "not_found", vec![]), "{method} with another one's token");
        assert_eq!(api.browse(method.clone(), &path, None, body.clone()).await.status, 401, "{method} with nothing");
        assert_eq!(api.browse(method, &path, Some("bt_x"), body).await.status, 401, "with nonsense");
    }
    assert_eq!(api.browse(Method::DELETE, &path, token, None).await.status, 204);
    assert_eq!(api.browse(Method::GET, &path, token, None).await.ok(200)["state"], "unsubscribed");
    let late = api.browse(Method::PATCH, &path, token, Some(json!({}))).await;
    assert_eq!(late.refusal(), (409, "subscription_ended", vec![]));
}

#[tokio::test]
async fn extra_browser_members_are_ignored_expiry_honoured() {
    let api = TestApi::start().await;
    let mut push = push_subscription(&fcm("a"));
    push["options"] = json!({"userVisibleOnly": true});
    push["keys"]["future"] = json!("x");
    push["expirationTime"] = json!((api.clock.now().timestamp() + 60) * 1000);
    let made = api.post("/subscriptions", json!({"subscription": push})).await.ok(201);
    let expires_at = made["expires_at"].as_str().unwrap().parse::<DateTime<Utc>>().unwrap();
    assert_eq!((expires_at - api.clock.now()).num_seconds(), 60);
    let body = json!({"to": {"subscriptions": [id(&made)]}, "content": content()});
    assert_eq!(api.post("/messages?dry_run=true", body.clone()).await.ok(200)["audience_estimate"], 1);
    api.clock.advance(Duration::from_secs(60));
    let late = api.post("/messages", body).await.ok(202);
    assert_eq!((&late["audience_estimate"], &late["unreachable"]), (&json!(0), &json!(1)));
}

#[tokio::test]
async fn only_a_server_says_whose_a_subscription_is() {
    let api = TestApi::start().await;
    let body = registration(&fcm("a"), json!({"user_id": "ann"}));
    let refused = api.browse(Method::POST, "/subscriptions", None, Some(body)).await;
    assert_eq!(refused.refusal(), (403, "forbidden", vec!["/user_id"]));
    let made = api.subscribe(&fcm("a"), json!({"user_id": "ann"})).await;
    let path = format!("/subscriptions/{}", id(&made));
    let claim = api.browse(Method::PATCH, &path, token(&made), Some(json!({"user_id": "bob"}))).await;
    assert_eq!(claim.refusal(), (403, "forbidden", vec!["/user_id"]));
    let logout = api.browse(Method::PATCH, &path, token(&made), Some(json!({"user_id": null}))).await.ok(200);
    assert_eq!(logout["user_id"], Value::Null);
    let path = format!("/v1/apps/shop{path}");
    let by_server = api.call(Method::PATCH, &path, Some(&api.key), Some(json!({"user_id": "bob"}))).await;
    assert_eq!(by_server.ok(200)["user_id"], "bob");
}

#[tokio::test]
async fn known_endpoint_is_refreshed_only_with_proof() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let push = push_subscription(&fcm("a"));
    let post =
        async |token: Option<&str>, body: Value| api.browse(Method::POST, "/subscriptions", token, Some(body)).await;
    let made = post(None, json!({"subscription": push, "tags": ["a"]})).await.ok(201);
    let mut spelled = push.clone();
    spelled["keys"]["p256dh"] =
        json!(push["keys"]["p256dh"].as_str().unwrap().replace('-', "+").replace('_', "/") + "=");
    let same = post(None, json!({"subscription": spelled})).await.ok(200);
    assert_eq!(
        (id(&same), token(&same), &same["tags"]),
        (id(&made), token(&made), &json!(["a"])),
        "nothing said, nothing changed"
    );

    let other_keys = json!({"subscription": push_subscription(&fcm("a")), "tags": ["stolen"]});
    let made = post(token(&made), json!({"subscription": push})).await.ok(200);
    assert_eq!(post(None, other_keys.clone()).await.refusal(), (409, "endpoint_taken", vec![]));
    let stranger = post(None, registration(&fcm("b"), json!({}))).await.ok(201);
    assert_eq!(post(token(&stranger), other_keys.clone()).await.refusal(), (409, "endpoint_taken", vec![]));
    let changed = post(token(&made), other_keys).await.ok(201);
    assert_ne!(id(&changed), id(&made), "other keys, another subscription");
    assert_eq!(post(None, json!({"subscription": push})).await.status, 409, "the keys are others now");
    let by_server = json!({"subscription": push});
    assert_ne!(id(&api.post("/subscriptions", by_server.clone()).await.ok(201)), id(&changed), "a server may");
    sqlx::query("UPDATE subscriptions SET keys_proven_at = since").execute(&api.pool).await.unwrap();
    let by_server_too = api.post("/subscriptions", registration(&fcm("a"), json!({}))).await;
    assert_eq!(by_server_too.refusal(), (409, "endpoint_taken", vec![]), "a receipt outranks a server");
    let new_key = api.post("/vapid-keys", json!({})).await.ok(201);
    let moved = api.post("/subscriptions", json!({"subscription": push, "vapid_key_id": new_key["id"]})).await;
    assert_eq!(moved.refusal(), (409, "vapid_key_differs", vec![]));
    let (_, theirs) = api.make_app("other").await;
    let body = Some(registration(&fcm("a"), json!({})));
    let elsewhere = api.call(Method::POST, "/v1/apps/other/subscriptions", Some(&theirs), body).await.ok(201);
    assert_ne!(id(&elsewhere), id(&made), "another app's subscription of the same endpoint is another one");
}

#[tokio::test]
async fn concurrent_registrations_of_one_browser_make_one() {
    let api = TestApi::start().await;
    let body = registration(&fcm("a"), json!({"topics": ["t1", "t2"]}));
    let replies = futures_util::future::join_all((0..12).map(|_| api.post("/subscriptions", body.clone()))).await;
    assert_eq!(replies.iter().filter(|reply| reply.status == 201).count(), 1);
    let ids: Vec<_> = replies
        .into_iter()
        .map(|reply| {
            assert!(reply.status < 300, "{}", reply.json);
            id(&reply.json).to_owned()
        })
        .collect();
    assert!(ids.iter().all(|other| *other == ids[0]));
    assert_eq!(api.get("/topics/t1").await.ok(200)["members"], 1);
}

#[tokio::test]
async fn last_seen_is_written_at_most_daily() {
    let api = TestApi::start().await;
    let body = registration(&fcm("a"), json!({}));
    let version = async || {
        sqlx::query_scalar::<_, String>("SELECT xmin::text FROM subscriptions").fetch_one(&api.pool).await.unwrap()
    };
    api.post("/subscriptions", body.clone()).await.ok(201);
    let written = version().await;
    api.clock.advance(Duration::from_secs(3600));
    api.post("/subscriptions", body.clone()).await.ok(200);
    assert_eq!(version().await, written);
    api.clock.advance(Duration::from_secs(86_400));
    let seen = api.post("/subscriptions", body).await.ok(200);
    assert_eq!(seen["last_seen"].as_str().unwrap().parse::<DateTime<Utc>>().unwrap(), api.clock.now());
}

#[tokio::test]
async fn replacing_keeps_the_identity_and_what_waits() {
    let api = TestApi::start().await;
    let mut details =
        json!({"user_id": "ann", "tags": ["a"], "attributes": {"n": 1}, "topics": ["news"], "locale": "de"});
    let old = api.subscribe(&fcm("old"), details.clone()).await;
    details["replaces"] = json!({"id": id(&old)});
    let to = json!({"to": {"users": ["ann"]}, "content": content()});
    let message = api.post("/messages", to).await.ok(202)["id"].as_str().unwrap().to_owned();
    api.clock.advance(Duration::from_secs(60));

    let body = registration(&fcm("new"), json!({"replaces": {"id": id(&old)}}));
    let untold = api.browse(Method::POST, "/subscriptions", None, Some(body.clone())).await;
    assert_eq!(untold.refusal(), (422, "invalid", vec!["/replaces/token"]));
    let new = api.post("/subscriptions", body).await.ok(201);
    assert!(new["since"].as_str() > old["since"].as_str(), "what was sent before is carried on by itself");
    for same in ["user_id", "tags", "attributes", "topics", "locale"] {
        assert_eq!(new[same], old[same], "{same}");
    }
    let origin = sqlx::query_scalar::<_, Uuid>("SELECT origin_id FROM subscriptions WHERE id = $1").bind(uuid(&new));
    assert_eq!(origin.fetch_one(&api.pool).await.unwrap(), uuid(&old));
    assert_eq!((waiting(&api, &old).await, waiting(&api, &new).await), (0, 1));
    assert_eq!(api.get(&format!("/subscriptions/{}", id(&old))).await.ok(200)["state"], "replaced");
    assert_eq!(api.get("/topics/news").await.ok(200)["members"], 1);
    assert_eq!(api.counts(&message).await["queued"], 1);

    // The new one was known already, and the same message waits for it: one of the two is enough.
    let known = api.subscribe(&fcm("known"), json!({"user_id": "ann"})).await;
    let to = json!({"to": {"subscriptions": [id(&new), id(&known)]}, "content": content()});
    let both = api.post("/messages", to).await.ok(202)["id"].as_str().unwrap().to_owned();
    let merged = api.subscribe(&fcm("known"), json!({"replaces": {"id": id(&new)}})).await;
    assert_eq!(id(&merged), id(&known));
    let counts = api.counts(&both).await;
    assert_eq!((&counts["queued"], &counts["cancelled"]), (&json!(1), &json!(1)));
    assert_eq!(waiting(&api, &known).await, 2);
}

#[tokio::test]
async fn unsubscribing_ends_waiting_deliveries_before_the_response() {
    let api = TestApi::start().await;
    let made = api.subscribe(&fcm("a"), json!({"topics": ["news"]})).await;
    let to = json!({"to": {"subscriptions": [id(&made)]}, "content": content()});
    let message = api.post("/messages", to).await.ok(202)["id"].as_str().unwrap().to_owned();
    api.told();
    let path = format!("/subscriptions/{}", id(&made));
    assert_eq!(api.browse(Method::DELETE, &path, token(&made), None).await.status, 204);
    let told = api.told();
    assert!(
        matches!(told[..], [Work::Stop(stop)] if stop.kind == StopKind::Unsubscribe && stop.target == uuid(&made)),
        "{told:?}"
    );
    let stored = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM stops WHERE kind = 'unsubscribe' AND target = $1");
    assert_eq!(stored.bind(uuid(&made)).fetch_one(&api.pool).await.unwrap(), 1);
    assert_eq!(waiting(&api, &made).await, 0);
    let counts = api.counts(&message).await;
    assert_eq!((&counts["targeted"], &counts["cancelled"]), (&json!(1), &json!(1)));
    let delivery = api.get(&format!("/messages/{message}/deliveries/{}", id(&made))).await.ok(200);
    assert_eq!((&delivery["state"], &delivery["attempts"][0]["reason"]), (&json!("cancelled"), &json!("unsubscribed")));
    assert_eq!(api.get("/topics/news").await.ok(200)["members"], 0);

    api.clock.advance(Duration::from_secs(60));
    let back = api.subscribe(&fcm("a"), json!({})).await;
    assert_eq!((id(&back), &back["state"], &back["topics"]), (id(&made), &json!("active"), &json!([])));
    assert_eq!(back["since"].as_str().unwrap().parse::<DateTime<Utc>>().unwrap(), api.clock.now(), "it begins anew");
}

#[tokio::test]
async fn erased_user_leaves_no_trace() {
    let api = TestApi::start().await;
    let details = json!({"user_id": "ann@example.org", "tags": ["vip"], "attributes": {"city": "Graz"}, "topics": ["news"], "locale": "de"});
    let one = api.subscribe(&fcm("1"), details.clone()).await;
    api.subscribe(&fcm("2"), details).await;
    let other = api.subscribe(&fcm("3"), json!({"user_id": "bob"})).await;
    let to = json!({"to": {"all": true}, "content": content()});
    let message = api.post("/messages", to).await.ok(202)["id"].as_str().unwrap().to_owned();
    api.told();
    let erased = api.call(Method::DELETE, "/v1/apps/shop/users/ann%40example.org", Some(&api.key), None).await.ok(200);
    assert_eq!(erased["subscriptions"], 2);
    assert_eq!(api.told().len(), 2);
    let left = api.get(&format!("/subscriptions/{}", id(&one))).await.ok(200);
    assert_eq!(
        (&left["state"], &left["user_id"], &left["tags"], &left["attributes"], &left["locale"]),
        (&json!("unsubscribed"), &Value::Null, &json!([]), &json!({}), &Value::Null)
    );
    let counts = api.counts(&message).await;
    assert_eq!((&counts["cancelled"], &counts["queued"]), (&json!(2), &json!(1)));
    let again = api.post("/subscriptions", registration(&fcm("1"), json!({}))).await.ok(201);
    assert_ne!(id(&again), id(&one), "the endpoint is not known any more");
    assert_eq!(waiting(&api, &other).await, 1);
}

#[tokio::test]
async fn lists_are_narrowed_and_paged() {
    let api = TestApi::start().await;
    for n in 0..7 {
        let user = if n % 2 == 0 { "even" } else { "odd" };
        api.subscribe(&fcm(&n.to_string()), json!({"user_id": user, "tags": [user], "topics": [user]})).await;
    }
    let mozilla = "https://updates.push.services.mozilla.com/wpush/v2/x";
    let gone = api.subscribe(mozilla, json!({"user_id": "even"})).await;
    api.call(Method::DELETE, &format!("/v1/apps/shop/subscriptions/{}", id(&gone)), Some(&api.key), None).await.ok(204);
    for (filter, n) in [
        ("", 8),
        ("user_id=even", 5),
        ("tag=odd", 3),
        ("topic=even", 4),
        ("state=active", 7),
        ("state=unsubscribed", 1),
        ("gateway=mozilla", 1),
        ("user_id=even&state=active", 4),
        ("topic=none", 0),
    ] {
        let mut seen = Vec::new();
        let mut iterator = String::new();
        loop {
            let page = api.get(&format!("/subscriptions?limit=3&{filter}{iterator}")).await.ok(200);
            seen.extend(page["data"].as_array().unwrap().iter().map(|row| id(row).to_owned()));
            match page["iterator"].as_str() {
                Some(next) => iterator = format!("&iterator={next}"),
                None => break,
            }
        }
        assert_eq!(seen.len(), n, "{filter}");
        assert!(seen.windows(2).all(|pair| pair[0] > pair[1]), "{filter}: the newest first, each once");
    }
    let listed = api.get("/subscriptions?limit=250").await.ok(200);
    assert!(listed["data"].as_array().unwrap().iter().all(|row| row.get("token").is_none()));
}

#[tokio::test]
async fn servers_add_and_remove_topic_members() {
    let api = TestApi::start().await;
    let made = api.subscribe(&fcm("a"), json!({"topics": ["own"]})).await;
    let path = format!("/v1/apps/shop/topics/sport/subscriptions/{}", id(&made));
    for _ in 0..2 {
        assert_eq!(api.call(Method::PUT, &path, Some(&api.key), None).await.status, 204);
        assert_eq!(api.get("/topics/sport").await.ok(200)["members"], 1);
    }
    let topics = api.get("/topics").await.ok(200);
    let names: Vec<_> = topics["data"].as_array().unwrap().iter().map(|topic| &topic["name"]).collect();
    assert_eq!(names, ["sport", "own"]);
    for _ in 0..2 {
        assert_eq!(api.call(Method::DELETE, &path, Some(&api.key), None).await.status, 204);
        assert_eq!(api.get("/topics/sport").await.ok(200)["members"], 0);
    }
    api.call(Method::DELETE, &format!("/v1/apps/shop/subscriptions/{}", id(&made)), Some(&api.key), None).await.ok(204);
    assert_eq!(api.call(Method::PUT, &path, Some(&api.key), None).await.refusal(), (409, "subscription_ended", vec![]));
    assert_eq!(ORIGIN, api.app["origins"][0]);
}
