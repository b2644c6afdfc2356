//! Keys that keys made: they may do no more, last no longer, and do not survive a theft.

use std::time::Duration;

use axum::http::Method;
use bellwire_core::clock::Timestamp;
use bellwire_core::scope::Scope;
use bellwire_store::keys::api_keys;
use serde_json::{Value, json};

use crate::support::api::{Reply, TestApi};

/// A key of the shop made at the command line: its id and its secret.
async fn made(api: &TestApi, scopes: &[Scope], expires_at: Option<Timestamp>) -> (String, String) {
    let app = Some(api.app_id());
    let made = api_keys::create(&api.pool, &api.vault, app, "k", scopes, expires_at, &api.clock).await.unwrap();
    (made.0.id.to_string(), made.1)
}

/// Asks with a key for another one.
async fn make(api: &TestApi, maker: &str, body: Value) -> Reply {
    api.call(Method::POST, "/v1/apps/shop/api-keys", Some(maker), Some(body)).await
}

fn id(key: &Value) -> &str {
    key["id"].as_str().unwrap()
}

fn secret(key: &Value) -> &str {
    key["secret"].as_str().unwrap()
}

async fn revoke(api: &TestApi, id: &str, query: &str) -> Value {
    let path = format!("/v1/apps/shop/api-keys/{id}{query}");
    api.call(Method::DELETE, &path, Some(&api.key), None).await.ok(200)
}

async fn lives(api: &TestApi, key: &str) -> bool {
    api.call(Method::GET, "/v1/apps/shop", Some(key), None).await.status == 200
}

#[tokio::test]
async fn key_cannot_exceed_its_creator() {
    let api = TestApi::start().await;
    let hour = api.clock.now() + Duration::from_secs(3_600);
    let (maker, key) = made(&api, &[Scope::Keys, Scope::Read], Some(hour)).await;
    let greedy =
        json!({"name": "n", "scopes": ["read", "send", "export"], "expires_at": hour + Duration::from_secs(1)});
    let refused = make(&api, &key, greedy).await;
    assert_eq!(refused.refusal(), (403, "forbidden", vec!["/scopes/1", "/scopes/2", "/expires_at"]));
    assert!(refused.json.to_string().contains("2027-01-15T09:00:00Z"), "the latest possible end: {}", refused.json);

    let child = make(&api, &key, json!({"name": "n", "scopes": ["read", "keys"]})).await.ok(201);
    assert_eq!((&child["expires_at"], &child["created_by"]), (&json!("2027-01-15T09:00:00Z"), &json!(maker)));
    let sooner = hour - Duration::from_secs(60);
    let sooner = make(&api, &key, json!({"name": "n", "scopes": ["keys"], "expires_at": sooner})).await.ok(201);
    assert_eq!(sooner["expires_at"], "2027-01-15T08:59:00Z");
    let grandchild = make(&api, secret(&child), json!({"name": "n", "scopes": ["read"]})).await.ok(201);
    assert_eq!((&grandchild["expires_at"], &grandchild["created_by"]), (&child["expires_at"], &child["id"]));

    let by_operator = make(&api, &api.operator, json!({"name": "n", "scopes": ["send", "export"]})).await.ok(201);
    assert_eq!(by_operator["expires_at"], Value::Null, "an operator whose key lasts may make any");
    let listed = api.get("/api-keys").await.ok(200);
    assert_eq!(listed["data"].as_array().unwrap().last().unwrap()["created_by"], "local");

    api.clock.advance(Duration::from_secs(3_600));
    let late = make(&api, &key, json!({"name": "n", "scopes": ["read"]})).await;
    assert_eq!(late.refusal(), (401, "unauthorized", vec![]), "an expired key makes nothing");
    assert!(!lives(&api, secret(&grandchild)).await, "nor does what it made outlast it");
}

#[tokio::test]
async fn nothing_outlasts_the_operator_key_it_came_from() {
    let api = TestApi::start().await;
    let hour = api.clock.now() + Duration::from_secs(3_600);
    let scope = [Scope::Operator];
    let key = api_keys::create(&api.pool, &api.vault, None, "o", &scope, Some(hour), &api.clock).await.unwrap().1;
    let child = make(&api, &key, json!({"name": "n", "scopes": ["keys"]})).await.ok(201);
    assert_eq!(child["expires_at"], "2027-01-15T09:00:00Z");
    let later = json!({"name": "n", "scopes": ["keys"], "expires_at": hour + Duration::from_secs(1)});
    assert_eq!(make(&api, &key, later.clone()).await.refusal(), (403, "forbidden", vec!["/expires_at"]));
    let identity = "/v1/apps/shop/identity-keys";
    let refused = api.call(Method::POST, identity, Some(&key), Some(json!({"name": "n"}))).await;
    assert_eq!(refused.refusal(), (403, "forbidden", vec![]), "an identity key never ends");

    let signed_in = api.sign_in(json!({"api_key": key})).await;
    let keys = "/v1/apps/shop/api-keys";
    let child = signed_in.call(Method::POST, keys, Some(json!({"name": "n", "scopes": ["keys"]}))).await.ok(201);
    assert_eq!(child["expires_at"], "2027-01-15T09:00:00Z");
    assert_eq!(
        signed_in.call(Method::POST, keys, Some(later)).await.refusal(),
        (403, "forbidden", vec!["/expires_at"])
    );
    let refused = signed_in.call(Method::POST, identity, Some(json!({"name": "n"}))).await;
    assert_eq!(refused.refusal(), (403, "forbidden", vec![]));
}

#[tokio::test]
async fn revoking_a_key_revokes_its_descendants() {
    let api = TestApi::start().await;
    let all = json!(["keys", "read"]);
    let (thief, key) = made(&api, &[Scope::Keys, Scope::Read], None).await;
    let child = make(&api, &key, json!({"name": "n", "scopes": all})).await.ok(201);
    let grandchildren = [
        make(&api, secret(&child), json!({"name": "n", "scopes": all})).await.ok(201),
        make(&api, secret(&child), json!({"name": "n", "scopes": all})).await.ok(201),
    ];
    let (_, neighbour) = made(&api, &[Scope::Read], None).await;
    revoke(&api, id(&grandchildren[0]), "").await;
    assert_eq!(revoke(&api, &thief, "").await, json!({"revoked": 3}), "one had been revoked before");
    for dead in [&key, secret(&child), secret(&grandchildren[0]), secret(&grandchildren[1])] {
        assert!(!lives(&api, dead).await);
    }
    assert!(lives(&api, &neighbour).await && lives(&api, &api.key).await);
    assert_eq!(revoke(&api, &thief, "").await, json!({"revoked": 0}), "again");
}

#[tokio::test]
async fn kept_descendants_can_be_revoked_later() {
    let api = TestApi::start().await;
    let (old, key) = made(&api, &[Scope::Keys, Scope::Read], None).await;
    let child = make(&api, &key, json!({"name": "n", "scopes": ["read"]})).await.ok(201);
    assert_eq!(revoke(&api, &old, "?keep_descendants=true").await, json!({"revoked": 1}));
    assert!(!lives(&api, &key).await && lives(&api, secret(&child)).await);
    assert_eq!(revoke(&api, &old, "?keep_descendants=false").await, json!({"revoked": 1}));
    assert!(!lives(&api, secret(&child)).await);
    let path = format!("/v1/apps/shop/api-keys/{old}?keep=yes");
    let refused = api.call(Method::DELETE, &path, Some(&api.key), None).await;
    assert_eq!(refused.refusal().0, 400, "a misspelt wish is not taken for none");
}

#[tokio::test]
async fn operator_revocation_ends_keys_in_all_apps() {
    let api = TestApi::start().await;
    api.make_app("other").await;
    let child = make(&api, &api.operator, json!({"name": "n", "scopes": ["keys", "read"]})).await.ok(201);
    let grandchild = make(&api, secret(&child), json!({"name": "n", "scopes": ["read"]})).await.ok(201);
    let body = Some(json!({"name": "n", "scopes": ["read"]}));
    let elsewhere = api.call(Method::POST, "/v1/apps/other/api-keys", Some(&api.operator), body).await.ok(201);
    let operator = sqlx::query_scalar("SELECT id FROM api_keys WHERE app IS NULL").fetch_one(&api.pool).await.unwrap();
    let local = bellwire_store::keys::audit::Actor::LOCAL;
    let revoked = api_keys::revoke(&api.pool, None, operator, false, local, api.clock.now()).await.unwrap();
    assert_eq!(revoked, Some(4));
    api.clock.advance(Duration::from_secs(1)); // until then, what another process revokes may be let in here
    assert!(!lives(&api, secret(&child)).await && !lives(&api, secret(&grandchild)).await);
    let there = api.call(Method::GET, "/v1/apps/other", Some(secret(&elsewhere)), None).await;
    assert_eq!(there.status, 401);
    let log = api.get("/audit-log?action=api_key.revoked").await.ok(200);
    assert_eq!(log["data"][0]["n"], 2, "the app reads in its own log why its keys are gone: {log}");
}

/// A thief's key that makes another one at the very moment when it is revoked.
#[tokio::test]
async fn revoking_key_creates_no_key() {
    let api = TestApi::start().await;
    let (_, key) = made(&api, &[Scope::Keys], None).await;
    let mut revocation = api.pool.begin().await.unwrap();
    for statement in ["LOCK TABLE api_keys IN SHARE ROW EXCLUSIVE MODE", "UPDATE api_keys SET revoked_at = created_at"]
    {
        sqlx::query(statement).execute(&mut *revocation).await.unwrap();
    }
    let commit = async {
        let waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'api_keys'::regclass)";
        while !sqlx::query_scalar::<_, bool>(waits).fetch_one(&api.pool).await.unwrap() {}
        revocation.commit().await.unwrap();
    };
    let (made, ()) = tokio::join!(make(&api, &key, json!({"name": "n", "scopes": ["keys"]})), commit);
    assert_eq!(made.refusal(), (401, "unauthorized", vec![]));
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM api_keys WHERE revoked_at IS NULL")
        .fetch_one(&api.pool)
        .await
        .unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn webhooks_outlive_keys_and_show_creator() {
    let api = TestApi::start().await;
    let hook =
        |host: &str| json!({"name": host, "url": format!("https://{host}.example.com/"), "events": ["delivery.gone"]});
    let all = "/v1/apps/shop/webhooks";
    let own = api.post("/webhooks", hook("crm")).await.ok(201);
    assert!(own["created_by"].as_str().unwrap().starts_with("ak_") && own["changed_by"].is_null(), "{own}");
    let (thief, key) = made(&api, &[Scope::Keys, Scope::Read], None).await;
    let theirs = api.call(Method::POST, all, Some(&key), Some(hook("theirs"))).await.ok(201);
    assert_eq!(theirs["created_by"], thief);
    let at = format!("{all}/{}", id(&own));
    let elsewhere = Some(json!({"url": "https://theirs.example.com/crm"}));
    let changed = api.call(Method::PATCH, &at, Some(&key), elsewhere).await.ok(200);
    assert_eq!((&changed["created_by"], &changed["changed_by"]), (&own["created_by"], &json!(thief)));
    revoke(&api, &thief, "").await;
    let left = api.get("/webhooks").await.ok(200)["data"].clone();
    let told = |i: usize| (left[i]["state"].clone(), left[i]["created_by"].clone(), left[i]["changed_by"].clone());
    assert_eq!(told(0), (json!("active"), json!(thief), Value::Null), "whoever replaces keys goes on being told");
    assert_eq!(told(1), (json!("active"), own["created_by"].clone(), json!(thief)));
    let rotated = api.post(&format!("/webhooks/{}/rotate-secret", id(&own)), json!({})).await.ok(200);
    assert_eq!(rotated["changed_by"], own["created_by"]);
}

#[tokio::test]
async fn stolen_key_leaves_no_identity_key() {
    let api = TestApi::start().await;
    let identity = async |key: &str| {
        let body = Some(json!({"name": "n"}));
        api.call(Method::POST, "/v1/apps/shop/identity-keys", Some(key), body).await
    };
    let left = async || api.get("/identity-keys").await.ok(200)["data"].as_array().unwrap().len();
    let (thief, key) = made(&api, &[Scope::Keys], None).await;
    let child = make(&api, &key, json!({"name": "n", "scopes": ["keys"]})).await.ok(201);
    let kept = identity(&api.key).await.ok(201);
    for maker in [&key, secret(&child)] {
        identity(maker).await.ok(201);
    }
    let hour = api.clock.now() + Duration::from_secs(3_600);
    let (_, passing) = made(&api, &[Scope::Keys], Some(hour)).await;
    assert_eq!(identity(&passing).await.refusal(), (403, "forbidden", vec![]), "it would outlast its maker");
    assert_eq!(left().await, 3);

    let (sender, _) = made(&api, &[Scope::Send], None).await;
    let path = format!("/v1/apps/shop/api-keys/{sender}");
    let refused = api.call(Method::DELETE, &path, Some(&key), None).await;
    assert_eq!(refused.refusal(), (403, "forbidden", vec![]));
    let own = format!("/v1/apps/shop/api-keys/{}", id(&child));
    api.call(Method::DELETE, &own, Some(&key), None).await.ok(200);
    assert_eq!(left().await, 2, "what the child made goes with it");
    revoke(&api, &thief, "").await;
    let keys = api.get("/identity-keys").await.ok(200);
    assert_eq!((left().await, &keys["data"][0]["id"]), (1, &kept["id"]));
    let log = api.get("/audit-log?action=identity_key.removed").await.ok(200);
    assert_eq!(log["data"].as_array().unwrap().len(), 2, "{log}");
}

#[tokio::test]
async fn cached_revoked_key_creates_no_identity_key() {
    let api = TestApi::start().await;
    let (maker, key) = made(&api, &[Scope::Keys], None).await;
    make(&api, &key, json!({"name": "n", "scopes": ["keys"]})).await.ok(201);
    let (maker, local) = (maker.parse().unwrap(), bellwire_store::keys::audit::Actor::LOCAL);
    let revoked = api_keys::revoke(&api.pool, Some(api.app_id()), maker, false, local, api.clock.now()).await.unwrap();
    assert_eq!(revoked, Some(2), "by another process, of which this one hears within a second");
    let body = Some(json!({"name": "n"}));
    let refused = api.call(Method::POST, "/v1/apps/shop/identity-keys", Some(&key), body).await;
    assert_eq!(refused.refusal(), (401, "unauthorized", vec![]));
    assert_eq!(api.get("/identity-keys").await.ok(200)["data"], json!([]));
}

/// The same at the very moment when it is revoked.
#[tokio::test]
async fn revoking_key_creates_no_identity_key() {
    let api = TestApi::start().await;
    let (_, key) = made(&api, &[Scope::Keys], None).await;
    let mut revocation = api.pool.begin().await.unwrap();
    for statement in ["LOCK TABLE api_keys IN SHARE ROW EXCLUSIVE MODE", "UPDATE api_keys SET revoked_at = created_at"]
    {
        sqlx::query(statement).execute(&mut *revocation).await.unwrap();
    }
    let commit = async {
        let waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'api_keys'::regclass)";
        while !sqlx::query_scalar::<_, bool>(waits).fetch_one(&api.pool).await.unwrap() {}
        revocation.commit().await.unwrap();
    };
    let body = Some(json!({"name": "n"}));
    let identity = api.call(Method::POST, "/v1/apps/shop/identity-keys", Some(&key), body);
    let (refused, ()) = tokio::join!(identity, commit);
    assert_eq!(refused.refusal(), (401, "unauthorized", vec![]));
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM identity_keys").fetch_one(&api.pool).await.unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn webhook_url_is_shown_in_full_to_managers() {
    let api = TestApi::start().await;
    let url = "https://hooks.example.com/services/T0/secret?token=abc";
    let webhook = json!({"name": "n", "url": url, "events": ["delivery.gone"]});
    let made_webhook = api.post("/webhooks", webhook).await.ok(201);
    assert_eq!(made_webhook["url"], url, "by a key that has `keys`");
    let path = format!("/v1/apps/shop/webhooks/{}", id(&made_webhook));
    let (_, reader) = made(&api, &[Scope::Read], None).await;
    let (_, manager) = made(&api, &[Scope::Read, Scope::Keys], None).await;
    for (key, shown) in [(&reader, "https://hooks.example.com"), (&manager, url)] {
        let one = api.call(Method::GET, &path, Some(key), None).await.ok(200);
        let list = api.call(Method::GET, "/v1/apps/shop/webhooks", Some(key), None).await.ok(200);
        assert_eq!((&one["url"], &list["data"][0]["url"]), (&json!(shown), &json!(shown)));
    }
    let named = json!({"name": "renamed"});
    let changed = api.call(Method::PATCH, &path, Some(&manager), Some(named)).await.ok(200);
    assert_eq!(changed["url"], url, "a change of the name keeps the URL");
}
