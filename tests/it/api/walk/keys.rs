//! Registration of a known endpoint with foreign keys: every rank of the stored keys against every credential.

use std::time::Duration;

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::api::{fcm, push_subscription};
use crate::support::identity::LoginSite;
use crate::support::imports::import_line;
use crate::support::receipts::{receipt_token, report_receipt};

/// Evidence for the stored keys.
const RANKS: [&str; 6] = ["nothing", "user token", "API key", "import", "subscription token", "receipt"];
/// Credentials of the request with foreign keys.
const CREDENTIALS: [&str; 7] = ["nothing", "no user", "token of another", "ben", "ann", "own token", "API key"];

/// Returns whether the stored keys give way.
fn gives_way(rank: &str, credential: &str) -> bool {
    match (rank, credential) {
        ("receipt", _) => false,
        ("nothing", _) | (_, "own token" | "API key" | "ann") => true,
        // The subscription has a user, whose own token it takes.
        ("user token", "ben") => false,
        (_, "ben") => true,
        _ => false,
    }
}

/// Registers an endpoint with keys of that rank.
async fn register(site: &LoginSite, endpoint: &str, rank: &str) -> Value {
    let (push, nothing) = (push_subscription(endpoint), Value::Null);
    let details = json!({"topics": ["news"]});
    match rank {
        "user token" => site.register(&push, &nothing, site.user("ann", details)).await.ok(201),
        "API key" => site.api.post("/subscriptions", json!({"subscription": push, "topics": ["news"]})).await.ok(201),
        "import" => {
            import_line(&site.api, json!({"subscription": push, "topics": ["news"]})).await;
            site.register(&push, &nothing, json!({})).await.ok(200)
        }
        "subscription token" => {
            let made = site.register(&push, &nothing, details).await.ok(201);
            site.register(&push, &made["token"], json!({})).await.ok(200)
        }
        "receipt" => {
            let made = site.register(&push, &nothing, details).await.ok(201);
            let message = site.send(json!({"subscriptions": [made["id"]]})).await;
            let receipt = receipt_token(&site.api.vault, &message, made["id"].as_str().unwrap());
            report_receipt(&site.api, json!({"receipt": receipt, "kind": "displayed"})).await.ok(204);
            made
        }
        _ => site.register(&push, &nothing, details).await.ok(201),
    }
}

#[tokio::test]
async fn foreign_keys_never_replace_a_higher_rank() {
    let site = LoginSite::start().await;
    let other = site.register(&push_subscription(&fcm("other")), &Value::Null, json!({})).await.ok(201);
    for (r, rank) in RANKS.into_iter().enumerate() {
        for (c, credential) in CREDENTIALS.into_iter().enumerate() {
            let endpoint = fcm(&format!("{r}-{c}"));
            let made = register(&site, &endpoint, rank).await;
            let path = format!("/subscriptions/{}", made["id"].as_str().unwrap());
            let before = site.api.get(&path).await.ok(200);
            let by_id = site.send(json!({"subscriptions": [made["id"]]})).await;
            site.api.clock.advance(Duration::from_secs(1));
            let foreign = push_subscription(&endpoint);
            let anonymous = async |said| site.register(&foreign, &Value::Null, said).await;
            let reply = match credential {
                "no user" => anonymous(json!({"user_id": null})).await,
                "token of another" => site.register(&foreign, &other["token"], json!({})).await,
                "ben" | "ann" => anonymous(site.user(credential, json!({}))).await,
                "own token" => site.register(&foreign, &made["token"], json!({})).await,
                "API key" => site.api.post("/subscriptions", json!({"subscription": foreign})).await,
                _ => anonymous(json!({})).await,
            };
            let case = format!("{rank}, {credential}");
            let after = site.api.get(&path).await.ok(200);
            let queued = site.counted(&by_id, "queued").await;
            if gives_way(rank, credential) {
                let new = reply.ok(201);
                assert_ne!(new["id"], made["id"], "{case}");
                assert_ne!(after["state"], "active", "{case}");
                assert_eq!(queued, 0, "{case}: nothing addressed by id follows");
                let carries =
                    rank != "nothing" && credential != "ben" || credential == "own token" || credential == "API key";
                let carries = carries && !(credential == "ann" && rank != "user token");
                assert_eq!(new["topics"] == json!(["news"]), carries, "{case}: {new}");
            } else {
                assert_eq!(reply.refusal(), (409, "endpoint_taken", vec![]), "{case}");
                assert_eq!((&after, queued), (&before, 1), "{case}: all stays");
            }
        }
    }
}

#[tokio::test]
async fn unsubscribed_person_stays_so_under_foreign_keys() {
    let site = LoginSite::start().await;
    for (n, user) in [None, Some("ann")].into_iter().enumerate() {
        let endpoint = fcm(&format!("left-{n}"));
        let push = push_subscription(&endpoint);
        let said = user.map_or(json!({}), |user| site.user(user, json!({})));
        let made = site.register(&push, &Value::Null, said.clone()).await.ok(201);
        assert_eq!(site.browse(Method::DELETE, &made, &made["token"], None).await.status, 204);
        let before = site.browse(Method::GET, &made, &made["token"], None).await.ok(200);
        for said in [json!({}), json!({"user_id": null}), said.clone(), site.user("ben", json!({}))] {
            let refused = site.register(&push_subscription(&endpoint), &Value::Null, said).await;
            assert_eq!(refused.refusal(), (409, "endpoint_taken", vec![]));
        }
        assert_eq!(site.browse(Method::GET, &made, &made["token"], None).await.ok(200), before);
        let back = site.register(&push, &Value::Null, said).await.ok(200);
        assert_eq!((&back["id"], &back["state"]), (&made["id"], &json!("active")), "the same keys bring it back");
    }
}

#[tokio::test]
async fn vouched_expiry_takes_a_right_to_change() {
    let site = LoginSite::start().await;
    let mut push = push_subscription(&fcm("expiry"));
    let made = site.register(&push, &Value::Null, json!({})).await.ok(201);
    let token = site.register(&push, &made["token"], json!({})).await.ok(200)["token"].clone();
    push["expirationTime"] = json!((site.api.clock.now().timestamp() + 60) * 1000);
    let by_keys = site.register(&push, &Value::Null, json!({})).await.ok(200);
    assert_eq!(by_keys["expires_at"], Value::Null);
    let by_token = site.register(&push, &token, json!({})).await.ok(200);
    assert!(by_token["expires_at"].is_string(), "{by_token}");
}
