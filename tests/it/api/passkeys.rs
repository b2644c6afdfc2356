//! Passkeys: permission to add and remove them, validation of responses, and that no sign-in bypasses them.

use std::time::Duration;

use axum::http::Method;
use bellwire::testkit::server::maintenance;
use serde_json::{Value, json};

use crate::support::api::{Browser, Reply, TestApi, cookie, newest_refusal};
use crate::support::app::RETENTION;
use crate::support::authenticator::Authenticator;
use crate::support::passkeys::{add_passkey, passkey_config, passkey_options, try_add_passkey};

const MINUTE: Duration = Duration::from_secs(60);
const PASSWORD: &str = "correct horse battery";
const ANN: &str = "ann@example.com";
const BEN: &str = "ben@example.com";

/// A teammate with that password, who is signed in.
async fn come<'a>(api: &'a TestApi, email: &str) -> Browser<'a> {
    let (_, link) = api.invite(email, json!([{"role": "admin"}])).await;
    api.sign_in(json!({"link": link, "new_password": PASSWORD})).await
}

/// Ann's server and her key.
async fn with_ann() -> (TestApi, Authenticator) {
    let api = TestApi::with(passkey_config(), None).await;
    let mut key = Authenticator::new(1);
    add_passkey(&come(&api, ANN).await, &mut key).await;
    (api, key)
}

async fn enter(api: &TestApi, body: Value) -> Reply {
    api.call(Method::POST, "/v1/session", None, Some(body)).await
}

/// Challenge after the right password.
async fn asked(api: &TestApi, email: &str) -> Value {
    let reply = enter(api, json!({"email": email, "password": PASSWORD})).await;
    assert_eq!(reply.header("set-cookie"), "", "no session yet");
    reply.ok(202)["options"].clone()
}

async fn answer(api: &TestApi, credential: Value) -> Reply {
    api.clock.advance(Duration::from_millis(1)); // so that the log has an order
    enter(api, json!({"passkey": credential})).await
}

/// The latest entries of that action.
async fn log(api: &TestApi, action: &str) -> Vec<Value> {
    let path = format!("/v1/audit-log?action={action}");
    let page = api.call(Method::GET, &path, Some(&api.operator), None).await.ok(200);
    page["data"].as_array().unwrap().clone()
}

/// Whether a response was refused for that reason, which only the log contains.
async fn is_refused(api: &TestApi, reply: &Reply, why: &str) {
    assert_eq!(reply.refusal(), (401, "sign_in_refused", vec![]), "{}", reply.json);
    assert_eq!(newest_refusal(api).await["detail"], json!({"by": "passkey", "why": why}));
}

#[tokio::test]
async fn a_passkey_is_added_named_used_and_removed() {
    let api = TestApi::with(passkey_config(), None).await;
    let (ann, mut key) = (come(&api, ANN).await, Authenticator::new(1));
    let added = add_passkey(&ann, &mut key).await;
    assert_eq!((&added["name"], &added["transports"]), (&json!("blue key"), &json!(["usb", "nfc"])));
    assert!(added["last_used_at"].is_null() && added["credential_id"].is_null(), "{added}");
    let path = format!("/v1/session/passkeys/{}", added["id"].as_str().unwrap());
    let rename = async |name: &str| ann.call(Method::PATCH, &path, Some(json!({"name": name}))).await;
    assert_eq!(rename("on my ring").await.ok(200)["name"], "on my ring");
    for bad in [String::new(), "x".repeat(65), "a\nb".to_owned()] {
        assert_eq!(rename(&bad).await.refusal(), (422, "invalid", vec!["/name"]));
    }

    let request = asked(&api, ANN).await;
    assert_eq!(request["allowCredentials"][0]["id"], key.id());
    let reply = answer(&api, key.sign(&request)).await;
    assert!(reply.header("set-cookie").starts_with("bellwire=ey"), "{:?}", reply.headers);
    assert_eq!(reply.ok(201)["email"], ANN);
    let begun = &log(&api, "session.begun").await[0];
    assert_eq!(begun["detail"], json!({"by": "password", "passkey": added["id"]}));
    let listed = ann.get("/v1/session/passkeys").await.ok(200)["data"].clone();
    assert_eq!((listed.as_array().unwrap().len(), listed[0]["last_used_at"].is_string()), (1, true));

    assert_eq!(ann.call(Method::DELETE, &path, None).await.status, 204);
    assert_eq!(ann.call(Method::DELETE, &path, None).await.status, 404);
    assert_eq!(rename("gone").await.status, 404);
    api.sign_in(json!({"email": ANN, "password": PASSWORD})).await;
    for action in ["passkey.added", "passkey.renamed", "passkey.removed"] {
        let entries = log(&api, action).await;
        assert_eq!((&entries[0]["actor"], &entries[0]["target"]), (&ann.session["teammate"], &added["id"]), "{action}");
    }
}

#[tokio::test]
async fn unlocked_browser_cannot_change_passkeys() {
    let api = TestApi::with(passkey_config(), None).await;
    let (ann, mut key) = (come(&api, ANN).await, Authenticator::new(1));
    let added = add_passkey(&ann, &mut key).await;
    api.clock.advance(MINUTE * 9);
    let made = Authenticator::new(2).make(&passkey_options(&ann).await);
    api.clock.advance(MINUTE);
    let path = format!("/v1/session/passkeys/{}", added["id"].as_str().unwrap());
    for reply in [
        ann.call(Method::POST, "/v1/session/passkeys/options", None).await,
        try_add_passkey(&ann, made).await,
        ann.call(Method::DELETE, &path, None).await,
    ] {
        assert_eq!(reply.refusal(), (403, "sign_in_again", vec![]));
    }
    let own = format!("/v1/team/{}/passkeys", ann.teammate());
    assert_eq!(ann.call(Method::DELETE, &own, None).await.refusal(), (409, "not_yourself", vec![]));
    assert_eq!(ann.get("/v1/session/passkeys").await.ok(200)["data"].as_array().unwrap().len(), 1);
    let again = answer(&api, key.sign(&asked(&api, ANN).await)).await;
    let cookie = cookie(&again);
    let again = Browser { api: &api, cookie, session: again.ok(201) };
    add_passkey(&again, &mut Authenticator::new(2)).await;
}

#[tokio::test]
async fn an_answer_lets_in_once() {
    let (api, mut key) = with_ann().await;
    let signed = key.sign(&asked(&api, ANN).await);
    answer(&api, signed.clone()).await.ok(201);
    is_refused(&api, &answer(&api, signed).await, "challenge").await;
    // One that was refused is used up, too.
    let request = asked(&api, ANN).await;
    let mut wrong = key.sign(&request);
    wrong["response"]["signature"] = "MEUCIQ".into();
    is_refused(&api, &answer(&api, wrong).await, "signature").await;
    is_refused(&api, &answer(&api, key.sign(&request)).await, "challenge").await;
}

#[tokio::test]
async fn a_challenge_may_be_answered_for_five_minutes() {
    let (api, mut key) = with_ann().await;
    let (early, late) = (asked(&api, ANN).await, asked(&api, ANN).await);
    api.clock.advance(MINUTE * 5 - Duration::from_secs(1));
    answer(&api, key.sign(&early)).await.ok(201);
    api.clock.advance(Duration::from_secs(1));
    is_refused(&api, &answer(&api, key.sign(&late)).await, "challenge").await;
    let made_up = json!({"challenge": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "rpId": "push.example"});
    is_refused(&api, &answer(&api, key.sign(&made_up)).await, "challenge").await;
    let kept = "SELECT count(*) FROM passkey_challenges";
    assert_eq!(sqlx::query_scalar::<_, i64>(kept).fetch_one(&api.pool).await.unwrap(), 1);
    maintenance::keep_house(&api.pool, api.clock.now(), RETENTION).await.unwrap();
    assert_eq!(sqlx::query_scalar::<_, i64>(kept).fetch_one(&api.pool).await.unwrap(), 0, "and is forgotten then");
}

#[tokio::test]
async fn passkey_response_for_another_origin_is_refused() {
    let (api, mut key) = with_ann().await;
    for origin in
        ["https://push.example.evil", "http://push.example", "https://push.example:8443", "https://x.push.example"]
    {
        origin.clone_into(&mut key.origin);
        is_refused(&api, &answer(&api, key.sign(&asked(&api, ANN).await)).await, "origin").await;
    }
}

#[tokio::test]
async fn passkey_response_for_another_host_is_refused() {
    let (api, mut key) = with_ann().await;
    key.host = Some("example");
    is_refused(&api, &answer(&api, key.sign(&asked(&api, ANN).await)).await, "relying_party").await;
}

#[tokio::test]
async fn stalled_authenticator_counter_is_refused() {
    let (api, mut key) = with_ann().await;
    key.counter = 6;
    answer(&api, key.sign(&asked(&api, ANN).await)).await.ok(201);
    for counter in [0, 5, 6] {
        key.counter = counter;
        is_refused(&api, &answer(&api, key.sign(&asked(&api, ANN).await)).await, "counter").await;
    }
    key.counter = 7;
    answer(&api, key.sign(&asked(&api, ANN).await)).await.ok(201);
}

#[tokio::test]
async fn another_teammates_passkey_lets_nobody_in_but_them() {
    let (api, mut key) = with_ann().await;
    let mut bens = Authenticator::new(2);
    add_passkey(&come(&api, BEN).await, &mut bens).await;
    is_refused(&api, &answer(&api, bens.sign(&asked(&api, ANN).await)).await, "passkey").await;
    // Hers by name, and by Ben's signature.
    let request = asked(&api, ANN).await;
    let (mut forged, hers) = (bens.sign(&request), key.sign(&request));
    for member in ["id", "rawId"] {
        forged[member] = hers[member].clone();
    }
    forged["response"]["userHandle"] = hers["response"]["userHandle"].clone();
    is_refused(&api, &answer(&api, forged).await, "signature").await;
    let mut strangers = key.sign(&asked(&api, ANN).await);
    strangers["response"]["userHandle"] = bens.sign(&request)["response"]["userHandle"].clone();
    is_refused(&api, &answer(&api, strangers).await, "passkey").await;
    assert_eq!(answer(&api, bens.sign(&asked(&api, BEN).await)).await.ok(201)["email"], BEN);
}

#[tokio::test]
async fn challenge_serves_only_its_purpose() {
    let (api, mut key) = with_ann().await;
    let ann = answer(&api, key.sign(&asked(&api, ANN).await)).await;
    let ann = Browser { api: &api, cookie: cookie(&ann), session: ann.ok(201) };
    let ben = come(&api, BEN).await;
    // A challenge for adding a passkey is not valid for a sign-in.
    let to_add = passkey_options(&ann).await;
    let as_request = json!({"challenge": to_add["challenge"], "rpId": "push.example"});
    is_refused(&api, &answer(&api, key.sign(&as_request)).await, "challenge").await;
    // Nor for another user's session, or after the next challenge.
    let made = Authenticator::new(2).make(&to_add);
    assert_eq!(try_add_passkey(&ben, made.clone()).await.refusal(), (422, "invalid", vec!["/credential"]));
    let next = Authenticator::new(2).make(&passkey_options(&ann).await);
    assert_eq!(try_add_passkey(&ann, made).await.refusal(), (422, "invalid", vec!["/credential"]));
    try_add_passkey(&ann, next.clone()).await.ok(201);
    assert_eq!(try_add_passkey(&ann, next).await.refusal(), (422, "invalid", vec!["/credential"]), "once");
    // Given to sign in, it adds none.
    let to_sign_in = asked(&api, ANN).await;
    let mut creation = passkey_options(&ann).await;
    creation["challenge"] = to_sign_in["challenge"].clone();
    let made = Authenticator::new(3).make(&creation);
    assert_eq!(try_add_passkey(&ann, made).await.refusal(), (422, "invalid", vec!["/credential"]));
    answer(&api, key.sign(&to_sign_in)).await.ok(201);
}

#[tokio::test]
async fn passkey_for_another_page_is_not_added() {
    let api = TestApi::with(passkey_config(), None).await;
    let ann = come(&api, ANN).await;
    let mut elsewhere = Authenticator::new(1);
    elsewhere.origin = "https://evil.example".to_owned();
    let mut for_others = Authenticator::new(1);
    for_others.host = Some("evil.example");
    for key in [&mut elsewhere, &mut for_others] {
        let made = key.make(&passkey_options(&ann).await);
        assert_eq!(try_add_passkey(&ann, made).await.refusal(), (422, "invalid", vec!["/credential"]));
    }
    for garbage in [
        json!({}),
        json!({"rawId": 1}),
        json!({"rawId": "", "response": {"clientDataJSON": "e30", "attestationObject": ""}}),
    ] {
        assert_eq!(
            try_add_passkey(&ann, garbage.clone()).await.refusal(),
            (422, "invalid", vec!["/credential"]),
            "{garbage}"
        );
        assert_eq!(answer(&api, garbage.clone()).await.refusal(), (422, "invalid", vec!["/passkey"]), "{garbage}");
    }
    assert_eq!(ann.get("/v1/session/passkeys").await.ok(200)["data"], json!([]));
}

#[tokio::test]
async fn teammate_has_ten_distinct_passkeys_at_most() {
    let api = TestApi::with(passkey_config(), None).await;
    let (ann, elsewhere) = (come(&api, ANN).await, api.sign_in(json!({"email": ANN, "password": PASSWORD})).await);
    for n in 1..10 {
        add_passkey(&ann, &mut Authenticator::new(n)).await;
    }
    let ben = come(&api, BEN).await;
    let known = Authenticator::new(9).make(&passkey_options(&ben).await);
    assert_eq!(try_add_passkey(&ben, known).await.refusal(), (409, "passkey_known", vec![]));
    // Asked for in two browsers while there is room for one.
    let eleventh = Authenticator::new(11).make(&passkey_options(&elsewhere).await);
    add_passkey(&ann, &mut Authenticator::new(10)).await;
    assert_eq!(try_add_passkey(&elsewhere, eleventh).await.refusal(), (409, "too_many_passkeys", vec![]));
    let full = ann.call(Method::POST, "/v1/session/passkeys/options", None).await;
    assert_eq!(full.refusal(), (409, "too_many_passkeys", vec![]));
}

#[tokio::test]
async fn passkey_existence_needs_the_password() {
    let (api, _) = with_ann().await;
    come(&api, BEN).await;
    let guess = async |email: &str| {
        let reply = enter(&api, json!({"email": email, "password": "wrong horse battery"})).await;
        let mut json = reply.json.clone();
        json["request_id"].take();
        (reply.status, json)
    };
    let with_one = guess(ANN).await;
    assert_eq!(with_one.0, 401);
    assert_eq!(with_one, guess(BEN).await, "none");
    assert_eq!(with_one, guess("nobody@example.com").await, "nobody");
}

#[tokio::test]
async fn link_with_passkey_sets_password_at_the_end() {
    let (api, mut key) = with_ann().await;
    let ann = api.locally(Method::GET, "/v1/team", Value::Null).await.ok(200)["data"][0].clone();
    assert_eq!(ann["passkeys"], 1);
    let reset = format!("/v1/team/{}/reset", ann["id"].as_str().unwrap());
    let link = api.locally(Method::POST, &reset, Value::Null).await.ok(200)["link"]["token"].clone();
    let new = "staple horse battery";
    let by_link = || json!({"link": link, "new_password": new});
    let by_password = || json!({"email": ANN, "password": new});
    let first = enter(&api, by_link()).await;
    assert_eq!(first.header("set-cookie"), "");
    let first = first.ok(202)["options"].clone();
    assert_eq!(enter(&api, by_password()).await.status, 401, "the password is not set yet");
    let second = enter(&api, by_link()).await.ok(202)["options"].clone();
    let mut stranger = Authenticator::new(2);
    is_refused(&api, &answer(&api, stranger.sign(&first)).await, "passkey").await;
    answer(&api, key.sign(&second)).await.ok(201);
    assert_eq!(log(&api, "session.begun").await[0]["detail"]["by"], "link");
    assert_eq!(enter(&api, by_link()).await.status, 401, "it is used up");
    assert_eq!(enter(&api, by_password()).await.status, 202);
}

#[tokio::test]
async fn replaced_link_is_useless_with_the_passkey() {
    let (api, mut key) = with_ann().await;
    let ann = api.locally(Method::GET, "/v1/team", Value::Null).await.ok(200)["data"][0]["id"].clone();
    let path = format!("/v1/team/{}", ann.as_str().unwrap());
    let by_password = asked(&api, ANN).await;
    let reset = async || {
        let reset = api.locally(Method::POST, &format!("{path}/reset"), Value::Null).await.ok(200);
        enter(&api, json!({"link": reset["link"]["token"]})).await.ok(202)["options"].clone()
    };
    let by_link = reset().await;
    is_refused(&api, &answer(&api, key.sign(&by_password)).await, "challenge").await;
    let latest = reset().await;
    is_refused(&api, &answer(&api, key.sign(&by_link)).await, "challenge").await;
    api.locally(Method::PATCH, &path, json!({"disabled": true})).await.ok(200);
    is_refused(&api, &answer(&api, key.sign(&latest)).await, "challenge").await;
    api.locally(Method::PATCH, &path, json!({"disabled": false})).await.ok(200);
    answer(&api, key.sign(&latest)).await.ok(201);
}

#[tokio::test]
async fn admin_restores_access_after_a_lost_passkey() {
    let (api, mut key) = with_ann().await;
    let ben = come(&api, BEN).await;
    let entered = answer(&api, key.sign(&asked(&api, ANN).await)).await;
    let ann = Browser { api: &api, cookie: cookie(&entered), session: entered.ok(201) };
    let pending = asked(&api, ANN).await;
    let path = format!("/v1/team/{}", ann.teammate());
    assert_eq!(ben.get(&path).await.ok(200)["passkeys"], 1);
    let reset = async || {
        api.clock.advance(Duration::from_millis(1));
        ben.call(Method::DELETE, &format!("{path}/passkeys"), None).await.ok(200)
    };
    assert_eq!(reset().await, json!({"removed": 1}));
    assert!(!ann.is_in().await, "somebody may have found it");
    is_refused(&api, &answer(&api, key.sign(&pending)).await, "passkey").await;
    api.sign_in(json!({"email": ANN, "password": PASSWORD})).await;
    assert_eq!(reset().await, json!({"removed": 0}));
    let entry = &log(&api, "passkeys.reset").await[1];
    assert_eq!((&entry["actor"], &entry["n"]), (&ben.session["teammate"], &json!(1)));
}

#[tokio::test]
async fn server_without_name_has_no_passkeys() {
    let api = TestApi::start().await;
    let ann = come(&api, ANN).await;
    let refused = ann.call(Method::POST, "/v1/session/passkeys/options", None).await;
    assert_eq!(refused.refusal(), (409, "passkeys_unavailable", vec![]));
    // Its name was taken away later.
    sqlx::query(
        "INSERT INTO passkeys (id, teammate, name, credential_id, public_key, algorithm, counter, transports, created_at)
         SELECT id, id, 'key', '\\x01', '\\x02', -7, 0, '{}', created_at FROM teammates",
    )
    .execute(&api.pool)
    .await
    .unwrap();
    let by_password = json!({"email": ANN, "password": PASSWORD});
    assert_eq!(enter(&api, by_password.clone()).await.refusal(), (409, "passkeys_unavailable", vec![]));
    let wrong = enter(&api, json!({"email": ANN, "password": "wrong horse battery"})).await;
    assert_eq!(wrong.status, 401, "which a guesser does not learn");
    let path = format!("/v1/team/{}/passkeys", ann.teammate());
    assert_eq!(api.locally(Method::DELETE, &path, Value::Null).await.ok(200), json!({"removed": 1}));
    api.sign_in(by_password).await;
}

#[tokio::test]
async fn an_operators_key_has_no_passkeys() {
    let api = TestApi::with(passkey_config(), None).await;
    let browser = api.sign_in(json!({"api_key": api.operator})).await;
    for (method, path) in [(Method::GET, "/v1/session/passkeys"), (Method::POST, "/v1/session/passkeys/options")] {
        assert_eq!(browser.call(method, path, None).await.refusal(), (403, "forbidden", vec![]));
    }
}
