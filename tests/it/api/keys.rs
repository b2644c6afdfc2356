//! VAPID keys rotate without silent death, move in and move out; apps and gateways are listed.

use axum::http::Method;
use bellwire_webpush::keys::SigningKey;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::api::{ORIGIN, TestApi, fcm, push_subscription};
use crate::support::app::until_waiting;

fn states(keys: &Value) -> Vec<(&str, i64)> {
    let keys = keys["data"].as_array().unwrap();
    keys.iter().map(|key| (key["state"].as_str().unwrap(), key["subscriptions"].as_i64().unwrap())).collect()
}

#[tokio::test]
async fn rotated_key_serves_new_subscriptions_only() {
    let api = TestApi::start().await;
    let old = api.app["vapid_key"]["id"].clone();
    let before = api.subscribe(&fcm("before"), json!({})).await;
    let new = api.post("/vapid-keys", json!({})).await.ok(201);
    assert_eq!((&new["state"], &new["subject"]), (&json!("active"), &json!("mailto:push@bellwire.dev")));
    let after = api.subscribe(&fcm("after"), json!({})).await;
    assert_eq!((&before["vapid_key_id"], &after["vapid_key_id"]), (&old, &new["id"]));
    let late = api.subscribe(&fcm("late"), json!({"vapid_key_id": old})).await;
    assert_eq!(late["vapid_key_id"], old, "a page that still knew the old key says so");
    assert_eq!(states(&api.get("/vapid-keys").await.ok(200)), [("active", 1), ("retired", 2)]);
    let config = api.browse(Method::GET, "/config", None, None).await.ok(200);
    assert_eq!(config["vapid_key_id"], new["id"]);
    let lanes = api.call(Method::GET, "/v1/gateways", Some(&api.operator), None).await.ok(200);
    let counts: Vec<_> = lanes["data"].as_array().unwrap().iter().map(|lane| &lane["subscriptions"]).collect();
    assert_eq!(counts, [&json!(1), &json!(2)], "a lane for each key: {lanes}");
}

#[tokio::test]
async fn keys_move_in_and_out_with_their_subscribers() {
    let api = TestApi::start().await;
    let pair = SigningKey::generate();
    let foreign = json!({"private_key": *pair.expose_raw(), "public_key": pair.public_base64(), "state": "retired"});
    let imported = api.post("/vapid-keys", foreign.clone()).await.ok(201);
    assert_eq!((&imported["state"], &imported["public_key"]), (&json!("retired"), &json!(pair.public_base64())));
    assert_eq!(api.post("/vapid-keys", foreign).await.refusal(), (409, "vapid_key_known", vec![]));
    let again = json!({"private_key": *pair.expose_pem()});
    assert_eq!(api.post("/vapid-keys", again).await.refusal(), (409, "vapid_key_known", vec![]), "in another spelling");
    assert_eq!(states(&api.get("/vapid-keys").await.ok(200)), [("retired", 0), ("active", 0)], "nobody lost his place");
    let from_jwk = SigningKey::generate();
    let active = api.post("/vapid-keys", json!({"private_key": *from_jwk.expose_jwk()})).await.ok(201);
    assert_eq!(active["state"], "active");

    let path = format!("/vapid-keys/{}/export", imported["id"].as_str().unwrap());
    let exported = api.post(&path, json!({})).await.ok(200);
    assert_eq!(exported["private_key"].as_str().unwrap(), pair.expose_raw().as_str());
    assert_eq!(exported["private_key_pem"].as_str().unwrap(), pair.expose_pem().as_str());
    let shown = api.get(&format!("/vapid-keys/{}", imported["id"].as_str().unwrap())).await.ok(200);
    assert!(shown.get("private_key").is_none());
    let stored = sqlx::query_scalar::<_, Vec<u8>>("SELECT private_key FROM vapid_keys").fetch_all(&api.pool).await;
    let private = pair.expose_private();
    assert!(stored.unwrap().iter().all(|sealed| !sealed.windows(32).any(|window| window == private)));

    let path = format!("/v1/apps/shop/vapid-keys/{}", active["id"].as_str().unwrap());
    let change = Some(json!({"subject": "https://bellwire.dev/contact"}));
    let changed = api.call(Method::PATCH, &path, Some(&api.key), change).await.ok(200);
    assert_eq!(changed["subject"], "https://bellwire.dev/contact");
    let (_, stranger) = api.make_app("other").await;
    let theirs = path.replace("/shop/", "/other/");
    assert_eq!(api.call(Method::GET, &theirs, Some(&stranger), None).await.status, 404, "another app's key");
}

#[tokio::test]
async fn concurrent_rotations_leave_one_active_key() {
    let api = TestApi::start().await;
    let rotations = futures_util::future::join_all((0..8).map(|_| api.post("/vapid-keys", json!({})))).await;
    assert!(rotations.iter().all(|reply| reply.status == 201));
    let keys = api.get("/vapid-keys").await.ok(200);
    assert_eq!(states(&keys).iter().filter(|(state, _)| *state == "active").count(), 1);
}

#[tokio::test]
async fn apps_are_found_by_id_and_slug() {
    let api = TestApi::start().await;
    let body = json!({"slug": "shop", "name": "x", "subject": "mailto:a@bellwire.dev"});
    let taken = api.call(Method::POST, "/v1/apps", Some(&api.operator), Some(body)).await;
    assert_eq!(taken.refusal(), (409, "slug_taken", vec![]));
    for slug in ["one", "two", "three"] {
        api.make_app(slug).await;
    }
    let mut path = "/v1/apps?limit=2".to_owned();
    let mut seen = Vec::new();
    loop {
        let reply = api.call(Method::GET, &path, Some(&api.operator), None).await;
        let link = reply.header("link").to_owned();
        let page = reply.ok(200);
        seen.extend(page["data"].as_array().unwrap().iter().map(|app| app["slug"].as_str().unwrap().to_owned()));
        assert_eq!(page["done"].as_bool().unwrap(), page["iterator"].is_null());
        let Some(next) = link.split(", ").find_map(|link| link.strip_suffix(r#">; rel="next""#)) else { break };
        let next = next.trim_start_matches('<');
        path = next.to_owned();
    }
    assert_eq!(seen, ["three", "two", "one", "shop"], "the newest first, each once");
    let by_id = format!("/v1/apps/{}", api.app["id"].as_str().unwrap());
    assert_eq!(api.call(Method::GET, &by_id, Some(&api.key), None).await.ok(200)["slug"], "shop");
    let change = Some(json!({"name": "Shop"}));
    let changed = api.call(Method::PATCH, &by_id, Some(&api.key), change).await.ok(200);
    assert_eq!((&changed["name"], &changed["origins"]), (&json!("Shop"), &api.app["origins"]));
}

#[tokio::test]
async fn concurrent_app_changes_all_succeed() {
    let api = TestApi::start().await;
    api.get("").await.ok(200); // the key and the app are known from here on, as they were before all of it
    let mut held = api.pool.begin().await.unwrap();
    sqlx::query("SELECT FROM apps FOR UPDATE").execute(&mut *held).await.unwrap();
    let changes = [
        json!({"name": "The shop"}),
        json!({"max_retries": 7}),
        json!({"browsers_may": []}),
        json!({"add_origins": ["https://a.example"]}),
        json!({"add_origins": ["https://b.example"], "remove_origins": [ORIGIN]}),
    ];
    let change = |change| api.call(Method::PATCH, "/v1/apps/shop", Some(&api.key), Some(change));
    let all = join_all(changes.map(change));
    let release = async {
        until_waiting(&api.pool, 5).await;
        held.rollback().await.unwrap();
    };
    for changed in tokio::join!(all, release).0 {
        changed.ok(200);
    }
    let app = api.get("").await.ok(200);
    assert_eq!((&app["name"], &app["max_retries"], &app["browsers_may"]), (&json!("The shop"), &json!(7), &json!([])));
    let mut origins: Vec<_> =
        app["origins"].as_array().unwrap().iter().map(|origin| origin.as_str().unwrap()).collect();
    origins.sort_unstable();
    assert_eq!(origins, ["https://a.example", "https://b.example"]);
}

#[tokio::test]
async fn origin_is_added_once_and_removed_if_present() {
    let api = TestApi::start().await;
    let change = |body| api.call(Method::PATCH, "/v1/apps/shop", Some(&api.key), Some(body));
    let added = change(json!({"add_origins": ["https://a.example", ORIGIN, "https://a.example"]})).await.ok(200);
    assert_eq!(added["origins"], json!([ORIGIN, "https://a.example"]));
    let many: Vec<_> = (0..49).map(|i| format!("https://{i}.example")).collect();
    for (wrong, place) in [
        (json!({"remove_origins": [ORIGIN, "https://shop.exmaple"]}), "/remove_origins/1"),
        (json!({"remove_origins": vec![ORIGIN; 51]}), "/remove_origins"),
        (json!({"add_origins": ["https://a.example", "*"]}), "/add_origins/1"),
        (json!({"add_origins": many}), "/add_origins"),
        (json!({"origins": [], "add_origins": [ORIGIN]}), "/origins"),
        (json!({"origins": vec![ORIGIN; 51]}), "/origins"),
    ] {
        assert_eq!(change(wrong).await.refusal(), (422, "invalid", vec![place]));
    }
    let removed = change(json!({"remove_origins": [ORIGIN], "add_origins": many[1..]})).await.ok(200);
    assert_eq!(removed["origins"].as_array().map(Vec::len), Some(49));
    assert_eq!(removed["origins"][0], "https://a.example");
}

#[tokio::test]
async fn only_operators_change_app_weight() {
    let api = TestApi::start().await;
    assert_eq!(api.app["weight"], 1);
    let set = async |key: &str, weight: i64| {
        api.call(Method::PATCH, "/v1/apps/shop", Some(key), Some(json!({"weight": weight}))).await
    };
    for weight in [0, -1, 101, 1 << 40] {
        assert_eq!(set(&api.operator, weight).await.refusal(), (422, "invalid", vec!["/weight"]), "{weight}");
    }
    assert_eq!(set(&api.key, 100).await.refusal(), (403, "forbidden", vec!["/weight"]));
    for weight in [100, 3] {
        assert_eq!(set(&api.operator, weight).await.ok(200)["weight"], weight);
    }
    assert_eq!(set(&api.key, 3).await.ok(200)["weight"], 3, "it is that already");
    assert_eq!(api.get("").await.ok(200)["weight"], 3);
}

#[tokio::test]
async fn only_operators_allow_other_gateways() {
    let api = TestApi::start().await;
    let set = async |key: &str, allow: bool| {
        let change = Some(json!({"name": "Shop", "allow_other_gateways": allow}));
        api.call(Method::PATCH, "/v1/apps/shop", Some(key), change).await
    };
    assert_eq!(set(&api.key, true).await.refusal(), (403, "forbidden", vec!["/allow_other_gateways"]));
    assert_eq!(api.get("").await.ok(200)["name"], "shop", "nothing of a refused change is kept");
    assert_eq!(set(&api.key, false).await.ok(200)["allow_other_gateways"], false);
    assert_eq!(set(&api.operator, true).await.ok(200)["allow_other_gateways"], true);
    assert_eq!(set(&api.key, true).await.ok(200)["name"], "Shop", "it is on already");
    // A public address needs no DNS; one of documentation's would not be public.
    let other = json!({"subscription": push_subscription("https://93.184.215.14/up/x")});
    assert_eq!(api.post("/subscriptions", other).await.ok(201)["gateway"], "other");
}

#[tokio::test]
async fn key_shows_its_last_day_of_use() {
    let api = TestApi::start().await;
    let made = api.post("/api-keys", json!({"name": "nightly report", "scopes": ["read"]})).await.ok(201);
    let secret = made["secret"].as_str().unwrap();
    let last_used = async || {
        let keys = api.get("/api-keys").await.ok(200);
        let mut all = keys["data"].as_array().unwrap().iter();
        all.find(|key| key["id"] == made["id"]).unwrap()["last_used_on"].clone()
    };
    let show = async || api.call(Method::GET, "/v1/apps/shop", Some(secret), None).await.status;
    assert_eq!((&made["last_used_on"], last_used().await), (&Value::Null, Value::Null));
    for _ in 0..2 {
        assert_eq!(show().await, 200);
        let today = api.clock.now().date_naive().to_string();
        assert_eq!(last_used().await, today);
        api.clock.advance(std::time::Duration::from_secs(86_400));
        assert_eq!(last_used().await, today, "another key's use is not its own");
    }
    let path = format!("/v1/apps/shop/api-keys/{}", made["id"].as_str().unwrap());
    api.call(Method::DELETE, &path, Some(&api.operator), None).await.ok(200);
    let before = last_used().await;
    assert_eq!((show().await, last_used().await), (401, before), "what is refused is no use");
}
