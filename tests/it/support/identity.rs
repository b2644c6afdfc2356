//! Identity keys, user tokens under them, and a site that logs users in.

use axum::http::Method;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use super::api::{Reply, TestApi, content, fcm, push_subscription};
use super::receipts::receipt_config;

/// A token as a site's backend would make it, expiring so many seconds from now.
pub fn user_jwt(api: &TestApi, user: &str, secret: &str, expires_in_s: i64) -> String {
    let claims = json!({"sub": user, "exp": api.clock.now().timestamp() + expires_in_s, "aud": "shop"});
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(secret.as_bytes())).unwrap()
}

/// The id and the secret of a new identity key for JWTs.
pub async fn jwt_key(api: &TestApi) -> (String, String) {
    identity_key(api, "jwt", json!({"name": "backend"})).await
}

/// The id and the secret of a new identity key of that form.
pub async fn identity_key(api: &TestApi, form: &str, body: Value) -> (String, String) {
    let made = api.post("/identity-keys", body).await.ok(201);
    assert_eq!((&made["algorithm"], &made["form"]), (&json!("HS256"), &json!(form)));
    (made["id"].as_str().unwrap().to_owned(), made["secret"].as_str().unwrap().to_owned())
}

pub fn hmac_key(secret: &str) -> aws_lc_rs::hmac::Key {
    aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret.as_bytes())
}

/// A user token in the plain form.
pub fn user_hmac(user: &str, secret: &str) -> String {
    let tag = aws_lc_rs::hmac::sign(&hmac_key(secret), user.as_bytes());
    tag.as_ref().iter().map(|octet| format!("{octet:02x}")).collect()
}

/// A site whose backend signs user tokens for its users.
pub struct LoginSite {
    pub api: TestApi,
    pub secret: String,
}

impl LoginSite {
    pub async fn start() -> Self {
        let api = TestApi::with(receipt_config(), None).await;
        let (_, secret) = jwt_key(&api).await;
        Self { api, secret }
    }

    /// Registration of a logged-in `user`, with more members.
    pub fn user(&self, user: &str, more: Value) -> Value {
        let mut said = json!({"user_id": user, "user_token": user_jwt(&self.api, user, &self.secret, 60)});
        said.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        said
    }

    /// Registers as a browser would, with this token.
    pub async fn register(&self, push: &Value, token: &Value, mut said: Value) -> Reply {
        said["subscription"] = push.clone();
        self.api.browse(Method::POST, "/subscriptions", token.as_str(), Some(said)).await
    }

    pub async fn send(&self, to: Value) -> String {
        let sent = self.api.post("/messages", json!({"to": to, "content": content()})).await.ok(202);
        sent["id"].as_str().unwrap().to_owned()
    }

    pub async fn browse(&self, method: Method, subscription: &Value, token: &Value, body: Option<Value>) -> Reply {
        let path = format!("/subscriptions/{}", subscription["id"].as_str().unwrap());
        self.api.browse(method, &path, token.as_str(), body).await
    }

    /// Statuses of all requests that need the token of a subscription, sent with this one.
    pub async fn tried(&self, subscription: &Value, token: &Value) -> Vec<u16> {
        let elsewhere = push_subscription(&fcm("elsewhere"));
        let replaces = json!({"replaces": {"id": subscription["id"], "token": token}});
        vec![
            self.browse(Method::GET, subscription, token, None).await.status,
            self.browse(Method::PATCH, subscription, token, Some(json!({"tags": ["x"]}))).await.status,
            self.browse(Method::DELETE, subscription, token, None).await.status,
            self.register(&elsewhere, &Value::Null, replaces).await.status,
        ]
    }

    pub async fn counted(&self, message: &str, name: &str) -> i64 {
        self.api.counts(message).await[name].as_i64().unwrap()
    }
}
