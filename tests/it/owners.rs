//! Shared browsers: an earlier user with a kept token, endpoint or keys has no access to data of the current user. Knowledge of an endpoint
//! alone cannot lock a user out.

use std::time::Duration;

use axum::http::Method;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::api::{fcm, push_subscription};
use crate::support::identity::LoginSite;
use crate::support::receipts::{receipt_token, report_receipt};

const SHUT: [u16; 4] = [404, 404, 404, 422];

#[tokio::test]
async fn token_ends_with_each_change_of_user() {
    let site = LoginSite::start().await;
    let push = push_subscription(&fcm("shared"));
    let before = site.register(&push, &Value::Null, json!({})).await.ok(201);
    let ann = site.register(&push, &Value::Null, site.user("ann", json!({}))).await.ok(200);
    assert_eq!((&ann["id"], &ann["user_id"]), (&before["id"], &json!("ann")));
    let to_ann = site.send(json!({"users": ["ann"]})).await;
    assert_eq!(site.tried(&ann, &before["token"]).await, SHUT, "from before she logged in");
    assert_eq!(site.counted(&to_ann, "queued").await, 1);

    let same = site.browse(Method::PATCH, &ann, &ann["token"], Some(json!({"tags": ["hers"]}))).await.ok(200);
    assert_eq!(same["token"], ann["token"], "the same user, the same token");
    let login = site.user("bob", json!({}));
    let bob = site.browse(Method::PATCH, &ann, &ann["token"], Some(login)).await.ok(200);
    assert_eq!(site.tried(&bob, &ann["token"]).await, SHUT, "of the user before");
    let nobody = site.browse(Method::PATCH, &bob, &bob["token"], Some(json!({"user_id": null}))).await.ok(200);
    assert_eq!(site.tried(&bob, &bob["token"]).await, SHUT, "from before the logout");

    let path = format!("/v1/apps/shop/subscriptions/{}", bob["id"].as_str().unwrap());
    let by_server = site.api.call(Method::PATCH, &path, Some(&site.api.key), Some(json!({"user_id": "carl"}))).await;
    assert_eq!(by_server.ok(200).get("token"), None);
    assert_eq!(site.tried(&bob, &nobody["token"]).await, SHUT, "from before the server said whose it is");
}

#[tokio::test]
async fn server_values_end_with_their_user() {
    let site = LoginSite::start().await;
    site.api.put("/topics/staff", json!({"join": "server"})).await.ok(201);
    let hers = async |name: &str| {
        let said = site.user("ann", json!({"topics": ["news"]}));
        let made = site.register(&push_subscription(&fcm(name)), &Value::Null, said).await.ok(201);
        let path = format!("/v1/apps/shop/subscriptions/{}", made["id"].as_str().unwrap());
        let said = json!({"tags": ["vip"], "attributes": {"plan": "pro"}, "topics": ["news", "staff"]});
        site.api.call(Method::PATCH, &path, Some(&site.api.key), Some(said)).await.ok(200);
        made
    };
    let told = |view: &Value| [view["tags"].clone(), view["attributes"].clone(), view["topics"].clone()];
    let (own, nothing) = ([json!(["vip"]), json!({"plan": "pro"}), json!(["news", "staff"])], [json!([]), json!({})]);
    let ann = hers("a").await;
    let same = site.browse(Method::PATCH, &ann, &ann["token"], Some(site.user("ann", json!({})))).await.ok(200);
    assert_eq!(told(&same), own);
    let bob = site.browse(Method::PATCH, &ann, &ann["token"], Some(site.user("bob", json!({})))).await.ok(200);
    assert_eq!(told(&bob)[..2], nothing);
    assert_eq!(bob["topics"], json!(["news"]), "which anybody may join");

    let ann = hers("b").await;
    let replaces = json!({"replaces": {"id": ann["id"], "token": ann["token"]}});
    let new = site.register(&push_subscription(&fcm("c")), &Value::Null, site.user("bob", replaces)).await.ok(201);
    assert_eq!((told(&new)[..2].to_vec(), &new["topics"]), (nothing.to_vec(), &json!(["news"])));
}

#[tokio::test]
async fn replacement_has_no_user_until_proven() {
    let site = LoginSite::start().await;
    let details = json!({"topics": ["news"], "tags": ["a"], "attributes": {"n": 1}});
    let ann = site.register(&push_subscription(&fcm("1")), &Value::Null, site.user("ann", details)).await.ok(201);
    let to_ann = site.send(json!({"users": ["ann"]})).await;
    let to_this = site.send(json!({"subscriptions": [ann["id"]]})).await;
    let to_topic = site.send(json!({"topic": "news"})).await;
    let replaces = |old: &Value| json!({"replaces": {"id": old["id"], "token": old["token"]}});
    let new = site.register(&push_subscription(&fcm("2")), &Value::Null, replaces(&ann)).await.ok(201);
    assert_eq!((&new["user_id"], &new["topics"], &new["tags"]), (&Value::Null, &json!(["news"]), &json!(["a"])));
    for (message, name) in [(&to_ann, "cancelled"), (&to_this, "cancelled"), (&to_topic, "queued")] {
        assert_eq!(site.counted(message, name).await, 1, "{name}");
    }

    // The replacing subscription already has another user, who keeps the waiting deliveries.
    let carl = site.register(&push_subscription(&fcm("3")), &Value::Null, site.user("carl", json!({}))).await.ok(201);
    let push = push_subscription(&fcm("4"));
    let bob = site.register(&push, &Value::Null, site.user("bob", json!({}))).await.ok(201);
    let (to_carl, to_bob) = (site.send(json!({"users": ["carl"]})).await, site.send(json!({"users": ["bob"]})).await);
    let known = site.register(&push, &bob["token"], replaces(&carl)).await.ok(200);
    assert_eq!((&known["id"], &known["user_id"]), (&bob["id"], &json!("bob")));
    assert_eq!((site.counted(&to_carl, "cancelled").await, site.counted(&to_bob, "queued").await), (1, 1));
}

#[tokio::test]
async fn endpoint_and_keys_alone_open_no_users_subscription() {
    let site = LoginSite::start().await;
    let push = push_subscription(&fcm("shared"));
    let details = json!({"topics": ["news"], "tags": ["a"], "attributes": {"n": 1}, "locale": "de"});
    let login = async || site.register(&push, &Value::Null, site.user("ann", details.clone())).await;
    let ann = login().await.ok(201);
    let (to_ann, to_topic) = (site.send(json!({"users": ["ann"]})).await, site.send(json!({"topic": "news"})).await);
    for said in [json!({}), json!({"topics": []})] {
        let refused = site.register(&push, &Value::Null, said).await;
        assert_eq!(refused.refusal(), (409, "belongs_to_user", vec![]));
    }
    let again = login().await.ok(200);
    assert_eq!((&again["token"], &again["tags"]), (&ann["token"], &json!(["a"])), "she comes back without her token");
    assert_eq!(site.counted(&to_ann, "queued").await, 1);

    let bare = |of: &Value| {
        let names = ["tags", "attributes", "topics", "locale"];
        names.map(|name| of[name].clone()) == [json!([]), json!({}), json!([]), Value::Null]
    };
    let bob = site.register(&push, &Value::Null, site.user("bob", json!({}))).await.ok(200);
    assert_eq!((&bob["id"], &bob["user_id"], bare(&bob)), (&ann["id"], &json!("bob"), true), "{bob}");
    assert_eq!((site.counted(&to_ann, "cancelled").await, site.counted(&to_topic, "queued").await), (1, 1));
    assert_eq!(site.tried(&bob, &ann["token"]).await, SHUT);

    site.register(&push, &bob["token"], site.user("ann", details.clone())).await.ok(200);
    let nobody = site.register(&push, &Value::Null, json!({"user_id": null})).await.ok(200);
    assert_eq!(
        (&nobody["user_id"], bare(&nobody)),
        (&Value::Null, true),
        "who lost everything else comes back as nobody"
    );
    assert_eq!(site.browse(Method::GET, &nobody, &nobody["token"], None).await.status, 200);

    let ann = site.register(&push, &nobody["token"], site.user("ann", details.clone())).await.ok(200);
    assert_eq!(site.browse(Method::DELETE, &ann, &ann["token"], None).await.status, 204);
    let next = site.register(&push, &Value::Null, json!({})).await.ok(200);
    assert_eq!((&next["state"], &next["user_id"], bare(&next)), (&json!("active"), &Value::Null, true));
}

#[tokio::test]
async fn invented_keys_yield_to_the_browsers_own() {
    let site = LoginSite::start().await;
    let (browser, stranger) = (push_subscription(&fcm("a")), push_subscription(&fcm("a")));
    let first = site.register(&stranger, &Value::Null, json!({"tags": ["hers"], "topics": ["t"]})).await.ok(201);
    let to_all = site.send(json!({"all": true})).await;
    let early = site.send(json!({"subscriptions": [first["id"]]})).await;
    site.api.clock.advance(Duration::from_secs(1));

    let made = site.register(&browser, &Value::Null, json!({"tags": ["ours"]})).await.ok(201);
    assert_eq!((&made["user_id"], &made["tags"], &made["topics"]), (&Value::Null, &json!(["ours"]), &json!([])));
    assert_eq!(site.tried(&made, &first["token"]).await, SHUT);
    for message in [&to_all, &early] {
        assert_eq!(site.counted(message, "queued").await, 0, "nothing sent to the stranger follows");
    }
    let again = site.register(&stranger, &Value::Null, json!({})).await.ok(201);
    assert_eq!(site.tried(&again, &made["token"]).await, SHUT, "the stranger's, until the browser's next visit");
    site.api.clock.advance(Duration::from_secs(1));
    let made = site.register(&browser, &Value::Null, json!({})).await.ok(201);

    let receipt_of = async |message: &str, of: &Value| {
        let receipt = receipt_token(&site.api.vault, message, of["id"].as_str().unwrap());
        report_receipt(&site.api, json!({"receipt": receipt, "kind": "displayed"})).await.ok(204)
    };
    receipt_of(&early, &first).await;
    site.api.clock.advance(Duration::from_secs(1));
    let late = site.send(json!({"subscriptions": [made["id"]]})).await;
    receipt_of(&late, &made).await;
    for token in [&Value::Null, &made["token"]] {
        let refused = site.register(&stranger, token, json!({})).await;
        assert_eq!(refused.refusal(), (409, "endpoint_taken", vec![]));
    }
}

#[tokio::test]
async fn concurrent_registrations_and_receipts_do_not_block() {
    let site = LoginSite::start().await;
    let endpoints = ["a", "b", "c"].map(fcm);
    let made = join_all(endpoints.iter().map(|endpoint| site.api.subscribe(endpoint, json!({})))).await;
    let ids: Vec<_> = made.iter().map(|made| made["id"].clone()).collect();
    let message = site.send(json!({"subscriptions": ids})).await;
    let reports: Vec<_> = ids
        .iter()
        .map(|id| json!({"receipt": receipt_token(&site.api.vault, &message, id.as_str().unwrap()), "kind": "displayed"}))
        .collect();
    let visits = (0..12).map(async |n| {
        let users = [site.user("ann", json!({})), site.user("bob", json!({})), json!({"user_id": null})];
        let push = push_subscription(&endpoints[n % 3]);
        site.register(&push, &Value::Null, users[n / 3 % 3].clone()).await.status
    });
    let receipts = (0..12).map(async |n: usize| report_receipt(&site.api, reports[n % 3].clone()).await.status);
    let (visits, receipts) = tokio::join!(join_all(visits), join_all(receipts));
    assert!(visits.iter().all(|status| [200, 201, 409].contains(status)), "{visits:?}");
    assert!(receipts.iter().all(|status| *status == 204), "{receipts:?}");
    site.counted(&message, "targeted").await;
}
