//! Ownership of subscriptions: browsers need the site's signature, and ownership changes with it.

use axum::http::Method;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bellwire_webpush::keys::SigningKey;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use crate::support::api::{ORIGIN, Reply, TestApi, content, fcm, high_rate_limits, push_subscription, registration};
use crate::support::identity::{hmac_key, identity_key, jwt_key, user_hmac, user_jwt};

const EXPIRED: i64 = -3600;

async fn register(api: &TestApi, push: &Value, more: Value) -> Reply {
    let mut body = json!({"subscription": push});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    api.browse(Method::POST, "/subscriptions", None, Some(body)).await
}

#[tokio::test]
async fn browser_identity_needs_a_backend_token() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let push = push_subscription(&fcm("a"));
    let refused = register(&api, &push, json!({"user_id": "ann"})).await;
    assert_eq!(refused.refusal(), (403, "forbidden", vec!["/user_id"]));
    let early = register(&api, &push, json!({"user_id": "ann", "user_token": user_jwt(&api, "ann", "x", 60)})).await;
    assert_eq!(early.refusal(), (403, "user_token_key_unknown", vec!["/user_token"]));

    let (_, secret) = jwt_key(&api).await;
    let no_algorithm = format!("{}.e30.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#));
    for (token, code) in [
        (user_jwt(&api, "ann", "x", 60), "user_token_signature"),
        (user_jwt(&api, "ann", &secret, EXPIRED), "user_token_expired"),
        (user_jwt(&api, "ann", &secret, 8 * 86_400), "user_token_valid_too_long"),
        (user_jwt(&api, "bob", &secret, 60), "user_token_of_another_user"),
        (no_algorithm, "user_token_algorithm"),
        ("nonsense".to_owned(), "user_token_malformed"),
    ] {
        let refused = register(&api, &push, json!({"user_id": "ann", "user_token": token})).await;
        assert_eq!(refused.refusal(), (403, code, vec!["/user_token"]));
        assert!(!refused.json.to_string().contains(&secret));
    }
    let alone = register(&api, &push, json!({"user_token": user_jwt(&api, "ann", &secret, 60)})).await;
    assert_eq!(alone.refusal(), (422, "invalid", vec!["/user_token"]));

    let token = user_jwt(&api, "ann", &secret, 60);
    let made = register(&api, &push, json!({"user_id": "ann", "user_token": token})).await.ok(201);
    assert_eq!(made["user_id"], "ann");
    let (path, body) = ("/subscriptions", json!({"subscription": push}));
    let again = api.browse(Method::POST, path, made["token"].as_str(), Some(body)).await.ok(200);
    assert_eq!((&again["user_id"], &again["token"]), (&json!("ann"), &made["token"]), "nothing said, nothing changed");
}

#[tokio::test]
async fn public_key_or_hmac_identifies_too() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let pair = SigningKey::generate();
    let half = |from: usize| URL_SAFE_NO_PAD.encode(&pair.public()[from..from + 32]);
    let jwk = json!({"kty": "EC", "crv": "P-256", "x": half(1), "y": half(33)});
    let made = api.post("/identity-keys", json!({"name": "b", "algorithm": "ES256", "public_key": &jwk})).await.ok(201);
    assert_eq!((&made["algorithm"], &made["form"], made.get("secret")), (&json!("ES256"), &json!("jwt"), None));
    let header = Header { kid: Some(made["id"].as_str().unwrap().to_owned()), ..Header::new(Algorithm::ES256) };
    let claims = json!({"sub": "ann", "exp": api.clock.now().timestamp() + 60});
    let signed = jsonwebtoken::encode(&header, &claims, &EncodingKey::from_ec_der(&pair.expose_pkcs8())).unwrap();
    let ann = register(&api, &push_subscription(&fcm("a")), json!({"user_id": "ann", "user_token": signed})).await;
    assert_eq!(ann.ok(201)["user_id"], "ann");

    let (_, secret) = identity_key(&api, "hmac", json!({"name": "b", "form": "hmac"})).await;
    let signed = user_hmac("bob", &secret);
    let bob = register(&api, &push_subscription(&fcm("b")), json!({"user_id": "bob", "user_token": signed})).await;
    assert_eq!(bob.ok(201)["user_id"], "bob");

    for (body, pointer) in [
        (json!({"name": "n", "algorithm": "ES256"}), "/public_key"),
        (json!({"name": "n", "algorithm": "ES256", "public_key": "-----BEGIN NOTHING-----"}), "/public_key"),
        (json!({"name": "n", "public_key": "x"}), "/public_key"),
        (json!({"name": "n", "algorithm": "none"}), "/algorithm"),
        (json!({"name": "n", "form": "both"}), "/form"),
        (json!({"name": "n", "form": "hmac", "algorithm": "ES256", "public_key": jwk}), "/form"),
        (json!({"name": ""}), "/name"),
    ] {
        assert_eq!(api.post("/identity-keys", body.clone()).await.refusal(), (422, "invalid", vec![pointer]), "{body}");
    }
}

/// A user can choose a user id and obtain its HMAC from the site's backend. That HMAC must never be a valid JWT signature.
#[tokio::test]
async fn user_id_signing_cannot_forge_a_jwt() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let (_, secret) = identity_key(&api, "hmac", json!({"name": "backend", "form": "hmac"})).await;
    let wanted = user_jwt(&api, "victim", "whatever", 60);
    let (chosen, _) = wanted.rsplit_once('.').unwrap();
    let tag = aws_lc_rs::hmac::sign(&hmac_key(&secret), chosen.as_bytes());
    let forged = format!("{chosen}.{}", URL_SAFE_NO_PAD.encode(tag));
    let push = push_subscription(&fcm("a"));
    let refused = register(&api, &push, json!({"user_id": "victim", "user_token": forged})).await;
    assert_eq!(refused.refusal(), (403, "user_token_form", vec!["/user_token"]));
    let as_chosen = json!({"user_id": chosen, "user_token": user_hmac(chosen, &secret)});
    let refused = register(&api, &push, as_chosen).await;
    assert_eq!(refused.refusal(), (403, "user_token_user_mistakable", vec!["/user_token"]));
}

#[tokio::test]
async fn hmac_under_a_jwt_key_is_explained() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let (_, secret) = jwt_key(&api).await;
    let wish = json!({"user_id": "ann", "user_token": user_hmac("ann", &secret)});
    let refused = register(&api, &push_subscription(&fcm("a")), wish).await;
    assert_eq!(refused.refusal(), (403, "user_token_form", vec!["/user_token"]));
    assert!(refused.json["detail"].as_str().unwrap().contains("--form hmac"), "{}", refused.json);
}

#[tokio::test]
async fn key_rotation_has_no_gap() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let ((old_id, old), (new_id, new)) = (jwt_key(&api).await, jwt_key(&api).await);
    let login = async |name: &str, secret: &str| {
        let token = user_jwt(&api, "ann", secret, 60);
        register(&api, &push_subscription(&fcm(name)), json!({"user_id": "ann", "user_token": token})).await
    };
    assert_eq!((login("a", &old).await.status, login("b", &new).await.status), (201, 201));
    let listed = api.get("/identity-keys").await.ok(200);
    let ids: Vec<_> = listed["data"].as_array().unwrap().iter().map(|key| key["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [&new_id, &old_id]);
    assert!(!listed.to_string().contains("bwi_"), "secrets are shown once: {listed}");
    let sealed: Vec<Vec<u8>> =
        sqlx::query_scalar("SELECT secret FROM identity_keys").fetch_all(&api.pool).await.unwrap();
    assert!(sealed.iter().all(|sealed| !String::from_utf8_lossy(sealed).contains("bwi_")));

    let delete = async || {
        let path = format!("/v1/apps/shop/identity-keys/{old_id}");
        api.call(Method::DELETE, &path, Some(&api.key), None).await.status
    };
    assert_eq!((delete().await, delete().await), (204, 404));
    assert_eq!(login("c", &old).await.refusal(), (403, "user_token_signature", vec!["/user_token"]));
    assert_eq!(login("c", &new).await.status, 201);

    api.make_app("other").await;
    let path = "/v1/apps/other/subscriptions";
    let body = registration(&fcm("d"), json!({"user_id": "ann", "user_token": user_jwt(&api, "ann", &new, 60)}));
    let elsewhere = api.call_with(Method::POST, path, None, Some(body), &[("origin", ORIGIN)]).await;
    assert_eq!(elsewhere.refusal(), (403, "user_token_key_unknown", vec!["/user_token"]));

    for _ in 1..10 {
        jwt_key(&api).await;
    }
    let eleventh = api.post("/identity-keys", json!({"name": "one too many"})).await;
    assert_eq!(eleventh.refusal(), (409, "too_many_identity_keys", vec![]));
}

#[tokio::test]
async fn endpoint_moves_to_new_user_without_data() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let (_, secret) = jwt_key(&api).await;
    let push = push_subscription(&fcm("shared"));
    let login = async |user: &str| {
        let token = user_jwt(&api, user, &secret, 60);
        register(&api, &push, json!({"user_id": user, "user_token": token, "topics": ["news"]})).await
    };
    let made = login("ann").await.ok(201);
    let send = async |to: Value| {
        let sent = api.post("/messages", json!({"to": to, "content": content()})).await.ok(202);
        sent["id"].as_str().unwrap().to_owned()
    };
    let to_ann = send(json!({"users": ["ann"]})).await;
    let to_this = send(json!({"subscriptions": [made["id"]]})).await;
    let to_all = send(json!({"topic": "news"})).await;
    let again = login("ann").await.ok(200);
    assert_eq!(again["id"], made["id"]);
    assert_eq!(api.counts(&to_ann).await["queued"], 1, "the same user comes back");

    let moved = login("bob").await.ok(200);
    assert_eq!((&moved["id"], &moved["user_id"]), (&made["id"], &json!("bob")));
    assert_eq!(
        (&api.counts(&to_ann).await["cancelled"], &api.counts(&to_this).await["cancelled"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(api.counts(&to_all).await["queued"], 1, "what everybody gets, bob gets too");
    let missed = api.post("/messages", json!({"to": {"users": ["ann"]}, "content": content()})).await.ok(202);
    assert_eq!((&missed["audience_estimate"], &missed["unreachable"]), (&json!(0), &json!(1)));

    let to_bob = send(json!({"users": ["bob"]})).await;
    let path = format!("/subscriptions/{}", made["id"].as_str().unwrap());
    let logout =
        api.browse(Method::PATCH, &path, moved["token"].as_str(), Some(json!({"user_id": null}))).await.ok(200);
    assert_eq!(logout["user_id"], Value::Null);
    assert_eq!(api.counts(&to_bob).await["cancelled"], 1);
    let claim = json!({"user_id": "carl", "user_token": user_jwt(&api, "carl", &secret, 60)});
    let carl = api.browse(Method::PATCH, &path, logout["token"].as_str(), Some(claim)).await.ok(200);
    assert_eq!(carl["user_id"], "carl");
    let forged = json!({"user_id": "dora", "user_token": user_jwt(&api, "dora", "guess", 60)});
    let refused = api.browse(Method::PATCH, &path, carl["token"].as_str(), Some(forged)).await;
    assert_eq!(refused.refusal(), (403, "user_token_signature", vec!["/user_token"]));
}

#[tokio::test]
async fn replacing_endpoint_passes_nothing_to_next_user() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let (_, secret) = jwt_key(&api).await;
    let login = async |name: &str, user: &str, more: Value| {
        let mut body = json!({"user_id": user, "user_token": user_jwt(&api, user, &secret, 60)});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        register(&api, &push_subscription(&fcm(name)), body).await.ok(201)
    };
    let ann = login("old", "ann", json!({})).await;
    let body = json!({"to": {"users": ["ann"]}, "content": content()});
    let to_ann = api.post("/messages", body).await.ok(202)["id"].as_str().unwrap().to_owned();
    let same = login("new", "ann", json!({"replaces": {"id": ann["id"], "token": ann["token"]}})).await;
    assert_eq!(api.counts(&to_ann).await["queued"], 1, "it follows its user");
    login("newer", "bob", json!({"replaces": {"id": same["id"], "token": same["token"]}})).await;
    assert_eq!(api.counts(&to_ann).await["cancelled"], 1);
}
