//! The team: who invites, what roles let people do, and that what is taken away is gone at once.

use axum::http::Method;
use bellwire::testkit::server::maintenance;
use serde_json::{Value, json};

use crate::support::api::{TestApi, content};
use crate::support::app::{DAY, RETENTION};

#[tokio::test]
async fn role_covers_its_apps_until_removed() {
    let api = TestApi::start().await;
    api.make_app("other").await;
    let admin = api.teammate("admin@example.com", json!([{"role": "admin"}])).await;
    let roles = json!([{"role": "sender", "app": "shop"}, {"role": "viewer", "app": "other"}]);
    let ben = api.teammate("ben@example.com", roles).await;
    let send = async |app: &str| {
        let body = json!({"to": {"all": true}, "content": content()});
        ben.call(Method::POST, &format!("/v1/apps/{app}/messages"), Some(body)).await
    };
    assert_eq!(send("shop").await.status, 202);
    let refused = send("other").await;
    assert_eq!(
        (refused.status, &refused.json["detail"]),
        (403, &json!("This requires the role `sender` on this app."))
    );
    assert_eq!(send("none").await.status, 404);
    for path in ["/v1/apps", "/v1/flow", "/v1/audit-log", "/v1/team"] {
        assert_eq!(ben.get(path).await.status, 403, "{path}");
    }
    let batch = json!({"messages": [{"to": {"users": ["u"]}, "content": content()}]});
    assert_eq!(ben.call(Method::POST, "/v1/apps/shop/messages/batch", Some(batch)).await.status, 200);

    let path = format!("/v1/team/{}", ben.teammate());
    let change = async |body: Value| admin.call(Method::PATCH, &path, Some(body)).await.ok(200);
    let changed = change(json!({"roles": [{"role": "viewer", "app": "shop"}]})).await;
    assert_eq!(changed["roles"], json!([{"role": "viewer", "app": api.app["id"]}]));
    assert_eq!((send("shop").await.status, send("other").await.status), (403, 404));
    change(json!({"roles": [{"role": "sender"}]})).await;
    assert_eq!(
        (send("shop").await.status, send("other").await.status, ben.get("/v1/gateways").await.status),
        (202, 202, 200)
    );
    change(json!({"roles": []})).await;
    assert_eq!((ben.is_in().await, send("shop").await.status), (true, 404), "without a role");
    change(json!({"roles": [{"role": "sender"}]})).await;
    assert!(change(json!({"disabled": true})).await["disabled_at"].is_string());
    assert!(!ben.is_in().await);
    change(json!({"disabled": false})).await;
    assert!(!ben.is_in().await, "what has ended does not begin again");
}

#[tokio::test]
async fn link_shows_its_account_and_stays_valid() {
    let api = TestApi::start().await;
    let (_, link) = api.invite("ann@example.com", json!([{"role": "viewer"}])).await;
    let ask = async |link: &str| api.call(Method::POST, "/v1/session/link", None, Some(json!({"link": link}))).await;
    let account = json!({"email": "ann@example.com", "roles": [{"role": "viewer", "app": null}]});
    assert_eq!(ask(&link).await.ok(200), account);
    assert_eq!(ask(&link).await.ok(200), account);
    assert_eq!(ask("bwl_wrong").await.status, 401);
    api.sign_in(json!({"link": link, "new_password": "correct horse battery"})).await;
    assert_eq!(ask(&link).await.status, 401, "it was used");
}

#[tokio::test]
async fn suspended_or_removed_teammates_cannot_sign_in() {
    let api = TestApi::start().await;
    let (invited, link) = api.invite("ann@example.com", json!([{"role": "viewer"}])).await;
    let path = format!("/v1/team/{}", invited["id"].as_str().unwrap());
    let change = async |disabled: bool| api.locally(Method::PATCH, &path, json!({"disabled": disabled})).await.ok(200);
    let body = || json!({"link": link, "new_password": "correct horse battery"});
    let enter = async |body: Value| api.call(Method::POST, "/v1/session", None, Some(body)).await.status;
    change(true).await;
    assert_eq!(enter(body()).await, 401);
    change(false).await;
    let ann = api.sign_in(body()).await;
    let by_password = || json!({"email": "ann@example.com", "password": "correct horse battery"});
    change(true).await;
    assert_eq!(enter(by_password()).await, 401, "the password is right");
    change(false).await;
    let again = api.sign_in(by_password()).await;
    let reset = api.locally(Method::POST, &format!("{path}/reset"), Value::Null).await.ok(200);
    assert_eq!((reset["has_password"].clone(), again.is_in().await, ann.is_in().await), (json!(false), false, false));
    assert_eq!(enter(by_password()).await, 401, "it is forgotten");
    let last = api.sign_in(json!({"link": reset["link"]["token"]})).await;
    assert_eq!(api.locally(Method::DELETE, &path, Value::Null).await.status, 204);
    assert!(!last.is_in().await);
    assert_eq!(api.locally(Method::GET, &path, Value::Null).await.refusal(), (404, "not_found", vec![]));
}

#[tokio::test]
async fn last_admin_cannot_be_removed() {
    let api = TestApi::start().await;
    let ann = api.teammate("ann@example.com", json!([{"role": "admin"}])).await;
    let own = format!("/v1/team/{}", ann.teammate());
    for (method, body) in [
        (Method::PATCH, Some(json!({"roles": [{"role": "viewer"}]}))),
        (Method::PATCH, Some(json!({"disabled": true}))),
        (Method::DELETE, None),
    ] {
        assert_eq!(ann.call(method, &own, body).await.refusal(), (409, "not_yourself", vec![]));
    }
    let (ben, _) = api.invite("ben@example.com", json!([{"role": "admin"}])).await;
    let path = format!("/v1/team/{}", ben["id"].as_str().unwrap());
    assert_eq!(ann.call(Method::DELETE, &path, None).await.status, 204);
}

#[tokio::test]
async fn open_admin_browser_cannot_make_reset_links() {
    let api = TestApi::start().await;
    let ann = api.teammate("ann@example.com", json!([{"role": "admin"}])).await;
    let own = format!("/v1/team/{}", ann.teammate());
    for (method, what) in [(Method::POST, "reset"), (Method::DELETE, "oidc"), (Method::DELETE, "passkeys")] {
        let refused = ann.call(method, &format!("{own}/{what}"), None).await;
        assert_eq!(refused.refusal(), (409, "not_yourself", vec![]), "{what}");
    }
    assert!(ann.is_in().await && ann.get(&own).await.ok(200)["link_expires_at"].is_null());
    let by_another = api.teammate("ben@example.com", json!([{"role": "admin"}])).await;
    by_another.call(Method::POST, &format!("{own}/reset"), None).await.ok(200);
    assert!(!ann.is_in().await);
}

#[tokio::test]
async fn an_invitation_names_what_is_wrong_with_it() {
    let api = TestApi::start().await;
    let invite = async |email: &str, roles: Value| {
        api.locally(Method::POST, "/v1/team", json!({"email": email, "roles": roles})).await
    };
    let viewer = json!([{"role": "viewer"}]);
    assert_eq!(invite("ann", viewer.clone()).await.refusal(), (422, "invalid", vec!["/email"]));
    assert_eq!(invite("a@b.example", json!([])).await.refusal(), (422, "invalid", vec!["/roles"]));
    let none = json!([{"role": "viewer", "app": "shop"}, {"role": "admin", "app": "none"}]);
    assert_eq!(invite("a@b.example", none).await.refusal(), (422, "invalid", vec!["/roles/1/app"]));
    let twice = json!([{"role": "viewer", "app": "shop"}, {"role": "admin", "app": api.app["id"]}]);
    assert_eq!(invite("a@b.example", twice).await.refusal(), (422, "invalid", vec!["/roles/1/app"]));
    let unknown = json!([{"role": "king"}]);
    assert_eq!(invite("a@b.example", unknown).await.refusal(), (422, "invalid", vec!["/roles/0/role"]));
    let many: Value = (0..101).map(|_| json!({"role": "viewer"})).collect();
    assert_eq!(invite("a@b.example", many).await.refusal(), (422, "invalid", vec!["/roles"]));
    invite("a@b.example", viewer.clone()).await.ok(201);
    assert_eq!(invite("A@B.example", viewer).await.refusal(), (409, "email_taken", vec![]));
}

#[tokio::test]
async fn key_names_its_teammate_and_outlives_them() {
    let api = TestApi::start().await;
    let ann = api.teammate("ann@example.com", json!([{"role": "admin", "app": "shop"}])).await;
    let body = json!({"name": "n", "scopes": ["read", "keys"]});
    let made = ann.call(Method::POST, "/v1/apps/shop/api-keys", Some(body)).await.ok(201);
    assert_eq!((&made["created_by"], &made["expires_at"]), (&json!(ann.teammate()), &Value::Null));
    let key = made["secret"].as_str().unwrap();
    let path = format!("/v1/team/{}", ann.teammate());
    assert_eq!(api.locally(Method::DELETE, &path, Value::Null).await.status, 204);
    assert_eq!(api.call(Method::GET, "/v1/apps/shop", Some(key), None).await.status, 200);
    let listed = api.get("/api-keys").await.ok(200);
    assert_eq!(listed["data"][0]["created_by"], ann.teammate());
}

#[tokio::test]
async fn sessions_are_forgotten_a_month_after_their_end() {
    let api = TestApi::start().await;
    api.teammate("ann@example.com", json!([{"role": "viewer"}])).await;
    let kept = async |days: u32| {
        api.clock.advance(DAY * days);
        maintenance::keep_house(&api.pool, api.clock.now(), RETENTION).await.unwrap();
        sqlx::query_scalar::<_, i64>("SELECT count(*) FROM sessions").fetch_one(&api.pool).await.unwrap()
    };
    assert_eq!((kept(30).await, kept(1).await), (1, 0));
}
