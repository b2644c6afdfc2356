//! A teammate with a passkey has to use it after the provider's sign-in.

use std::time::Duration;

use axum::http::Method;
use bellwire::testkit::api::ApiConfig;
use serde_json::{Value, json};

use super::{ANN, World, kept, viewer};
use crate::support::api::{Reply, TestApi, cookie};
use crate::support::authenticator::Authenticator;
use crate::support::passkeys::{add_passkey, passkey_config, passkey_options};
use crate::support::provider::Provider;
use crate::support::provider::oidc_config;

/// Ann, who has a passkey, at a server that browsers reach as `push.example`.
async fn with_passkey() -> (World, Authenticator) {
    let provider = Provider::start().await;
    let settings = ApiConfig { oidc: Some(oidc_config(&provider)), ..passkey_config() };
    let world = World { api: TestApi::with(settings, None).await, provider };
    let mut key = Authenticator::new(1);
    add_passkey(&world.api.teammate(ANN, viewer()).await, &mut key).await;
    (world, key)
}

/// The provider has let Ann through: what her browser keeps until it is asked for the passkey.
async fn at_passkey(world: &World, subject: &str) -> String {
    let reply = world.enter(subject, ANN).await;
    assert_eq!((reply.status, reply.header("location")), (303, "/admin/?sign_in=passkey"), "{}", reply.json);
    assert_eq!(kept(&reply, "bellwire"), None, "there is no session yet");
    assert_eq!(kept(&reply, "bellwire-oidc").as_deref(), Some("bellwire-oidc="), "the attempt is over");
    let set = reply.headers.get_all("set-cookie").iter().filter_map(|value| value.to_str().ok());
    let set = set.filter(|text| text.starts_with("bellwire-passkey=")).collect::<String>();
    assert!(set.ends_with("; Path=/; Max-Age=300; HttpOnly; SameSite=Strict"), "{set}");
    kept(&reply, "bellwire-passkey").expect("a challenge")
}

/// Our own page asks what the passkey is to sign.
async fn ask_on(world: &World, kept: &str) -> Reply {
    let headers = [("cookie", kept), ("sec-fetch-site", "same-origin")];
    world.api.call_with(Method::POST, "/v1/session", None, Some(json!({"oidc": true})), &headers).await
}

async fn answer(world: &World, passkey: Value) -> Reply {
    world.api.clock.advance(Duration::from_secs(1));
    world.api.call(Method::POST, "/v1/session", None, Some(json!({"passkey": passkey}))).await
}

#[tokio::test]
async fn passkey_is_required_after_the_provider() {
    let (world, mut key) = with_passkey().await;
    let kept = at_passkey(&world, "s-1").await;
    assert!(world.log("teammate.linked").await.is_empty(), "not by the provider's word alone");
    ask_on(&world, &kept).await.ok(202);
    let asked = ask_on(&world, &kept).await.ok(202); // a page may be loaded again
    assert_eq!(asked["options"]["allowCredentials"][0]["id"], key.id());
    let signed = key.sign(&asked["options"]);
    let reply = answer(&world, signed.clone()).await;
    let entered = cookie(&reply);
    assert!(entered.starts_with("bellwire=ey"), "{entered}");
    let session = reply.ok(201);
    assert_eq!(session["email"], ANN);
    let begun = &world.log("session.begun").await[0];
    assert_eq!((&begun["detail"]["by"], begun["detail"]["passkey"].is_string()), (&json!("oidc"), true));
    let linked = world.log("teammate.linked").await;
    assert_eq!((linked.len(), &linked[0]["actor"]), (1, &session["teammate"]));
    assert_eq!(answer(&world, signed).await.refusal(), (401, "sign_in_refused", vec![]), "once");
    assert_eq!(ask_on(&world, &kept).await.refusal(), (401, "sign_in_refused", vec![]), "it has been answered");

    let again = ask_on(&world, &at_passkey(&world, "s-1").await).await.ok(202);
    answer(&world, key.sign(&again["options"])).await.ok(201);
    assert_eq!(world.log("teammate.linked").await.len(), 1);
}

#[tokio::test]
async fn provider_sign_in_expires_without_the_passkey() {
    let (world, mut key) = with_passkey().await;
    let stolen = Authenticator::new(2).sign(&ask_on(&world, &at_passkey(&world, "s-1").await).await.ok(202)["options"]);
    assert_eq!(answer(&world, stolen).await.refusal(), (401, "sign_in_refused", vec![]));
    for made_up in ["", "bellwire-passkey=", "bellwire-passkey=%%", "bellwire-passkey=AAAA"] {
        assert_eq!(ask_on(&world, made_up).await.refusal(), (401, "sign_in_refused", vec![]), "{made_up}");
    }
    // What was asked after something else is not asked again by this way.
    let other = world.api.teammate("other@example.com", viewer()).await;
    let options = passkey_options(&other).await;
    let made = format!("bellwire-passkey={}", options["challenge"].as_str().unwrap());
    assert_eq!(ask_on(&world, &made).await.status, 401);

    let (kept, late) = (at_passkey(&world, "s-1").await, at_passkey(&world, "s-1").await);
    let asked = ask_on(&world, &kept).await.ok(202);
    let id = world.api.locally(Method::GET, "/v1/team", Value::Null).await.ok(200)["data"][1]["id"].clone();
    let team = format!("/v1/team/{}", id.as_str().unwrap());
    assert_eq!(world.api.locally(Method::DELETE, &format!("{team}/oidc"), Value::Null).await.status, 204);
    assert_eq!(answer(&world, key.sign(&asked["options"])).await.status, 401, "the account was unlinked");
    assert_eq!(ask_on(&world, &late).await.status, 401);

    let kept = at_passkey(&world, "s-1").await;
    world.api.clock.advance(Duration::from_secs(5 * 60));
    assert_eq!(ask_on(&world, &kept).await.status, 401, "after five minutes");
    let asked = ask_on(&world, &at_passkey(&world, "s-1").await).await.ok(202);
    world.api.locally(Method::PATCH, &team, json!({"disabled": true})).await.ok(200);
    assert_eq!(answer(&world, key.sign(&asked["options"])).await.status, 401, "shut out meanwhile");
}
