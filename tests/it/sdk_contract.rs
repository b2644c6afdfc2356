//! Contract of the SDK with the server. The SDK's own tests run the same file against a fake server, which therefore matches the real one.

use std::collections::HashMap;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Method, Request};
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::TestApp;
use crate::support::identity::user_hmac;

const CONTRACT: &str = include_str!("../../static/sdk/test/shared/contract.json");
const ORIGIN: &str = "https://shop.example";
const HOST: &str = "fcm.bellwire.test";

/// One story, in an app of its own.
struct Player<'a> {
    app: &'a TestApp,
    number: u8,
    /// The secret of a key of the story's app.
    key: String,
    /// Secret that signs user tokens.
    secret: String,
    kept: HashMap<String, Value>,
    /// Indices of simulated browsers, by the ids of their subscriptions.
    browsers: HashMap<String, u32>,
}

impl<'a> Player<'a> {
    async fn new(app: &'a TestApp, number: u8) -> Self {
        let slug = format!("story-{number}");
        let topics = ["news", "offers"];
        let new = json!({"slug": slug, "name": slug, "subject": "mailto:ops@example.com", "origins": [ORIGIN], "topics": topics});
        app.operate(Method::POST, "/v1/apps", new).await.ok(201);
        let key = json!({"name": "server", "scopes": bellwire_core::scope::Scope::OF_APPS});
        let key = app.operate(Method::POST, &format!("/v1/apps/{slug}/api-keys"), key).await.ok(201);
        let key = key["secret"].as_str().unwrap().to_owned();
        let mut player =
            Self { app, number, key, secret: String::new(), kept: HashMap::new(), browsers: HashMap::new() };
        player.call(Method::PUT, "/topics/staff", json!({"join": "server"})).await;
        let made = player.call(Method::POST, "/identity-keys", json!({"name": "site", "form": "hmac"})).await;
        player.secret = made["secret"].as_str().unwrap().to_owned();
        player
    }

    /// A request of the site's backend.
    async fn call(&self, method: Method, path: &str, body: Value) -> Value {
        let path = format!("/v1/apps/story-{}{path}", self.number);
        let reply = self.app.call_as(method, &path, &self.key, body).await;
        assert!((200..300).contains(&reply.status), "{path}: {}", reply.json);
        reply.json
    }

    /// The simulated browser of that letter.
    fn index(&self, letter: &str) -> u32 {
        u32::from(self.number) * 100 + u32::from(letter.as_bytes()[0])
    }

    fn browser(&self, name: &str) -> Value {
        let letter = name.trim_end_matches('*');
        let index = self.index(letter);
        let mint = |index| self.app.simulator.mint(HOST, index, None).unwrap();
        let endpoint = mint(index).endpoint;
        let keys = mint(if name == letter { index } else { index + 50 });
        let keys = json!({"p256dh": keys.p256dh, "auth": keys.auth});
        json!({"endpoint": endpoint, "expirationTime": null, "keys": keys})
    }

    /// Puts in what `$` stands for.
    fn fill(&self, value: &Value) -> Value {
        match value {
            Value::Array(items) => items.iter().map(|item| self.fill(item)).collect(),
            Value::Object(members) => members.iter().map(|(name, it)| (name.clone(), self.fill(it))).collect(),
            Value::String(text) => self.fill_text(text),
            other => other.clone(),
        }
    }

    fn fill_text(&self, text: &str) -> Value {
        if let Some(name) = text.strip_prefix("$browser:") {
            return self.browser(name);
        }
        if let Some(user) = text.strip_prefix("$signed:") {
            return user_hmac(user, &self.secret).into();
        }
        match text.split_once('$') {
            Some((before, rest)) => {
                let (name, after) =
                    rest.split_once('/').map_or((rest, String::new()), |(name, it)| (name, format!("/{it}")));
                format!("{before}{}{after}", self.kept[name].as_str().unwrap()).into()
            }
            None => text.into(),
        }
    }

    async fn play(&mut self, step: &Value) {
        let told = step;
        let step = self.fill(step);
        if let Some(event) = step["happens"].as_str() {
            return self.happens(event, step["to"].as_str().unwrap_or_default()).await;
        }
        let (status, answer) = self.ask(&step).await;
        assert_eq!(json!(status), step["status"], "{told}: {answer}");
        check(&answer, &step["answer"], told);
        if let (Some(name), Some(id)) = (told["body"]["subscription"].as_str(), answer["id"].as_str()) {
            let letter = name.trim_start_matches("$browser:").trim_end_matches('*');
            self.browsers.insert(id.to_owned(), self.index(letter));
        }
        for (name, member) in step["keep"].as_object().into_iter().flatten() {
            self.kept.insert(name.clone(), answer[member.as_str().unwrap()].clone());
        }
    }

    /// A request of a page.
    async fn ask(&self, step: &Value) -> (u16, Value) {
        let (method, path) = step["ask"].as_str().unwrap().split_once(' ').unwrap();
        let own = format!("story-{}", self.number);
        let (app, origin) = (step["app"].as_str().unwrap_or(&own), step["origin"].as_str().unwrap_or(ORIGIN));
        let peer = std::net::SocketAddr::from(([127, 0, 1, self.number], 1));
        let mut request = Request::builder().method(method).uri(format!("/v1/apps/{app}{path}"));
        request =
            request.header("origin", origin).header("content-type", "application/json").extension(ConnectInfo(peer));
        if let Some(token) = step["token"].as_str() {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let body = if step["body"].is_null() { Body::empty() } else { Body::from(step["body"].to_string()) };
        let response = self.app.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let readable = response.headers().get("access-control-allow-origin").is_some_and(|allowed| allowed == origin);
        assert!(readable, "pages have to read what is told at {step}");
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    /// Something that happens without the browser's doing.
    async fn happens(&self, event: &str, id: &str) {
        match event {
            "gone" => {
                let gone = RuleAction::Answer { status: 410, headers: Vec::new(), body: String::new() };
                let rule = Rule { endpoints: Some([self.browsers[id]].into()), count: Some(1), ..Rule::always(gone) };
                self.app.simulator.add_rule(rule).unwrap();
                self.push(id).await;
            }
            "receipt" => {
                self.push(id).await;
                let endpoint = self.app.simulator.mint(HOST, self.browsers[id], None).unwrap().endpoint;
                let received = self.app.simulator.received(&endpoint).unwrap();
                let plaintext = received.last().and_then(|push| push.plaintext.clone()).expect("it was opened");
                let push: Value = serde_json::from_slice(&plaintext).unwrap();
                let receipt = &push["notification"]["data"]["bellwire"]["receipt"];
                let report = json!({"receipt": receipt, "kind": "displayed"});
                self.call(Method::POST, "/receipts", report).await;
            }
            "rotation" => drop(self.call(Method::POST, "/vapid-keys", json!({})).await),
            "staff" => drop(self.call(Method::PUT, &format!("/topics/staff/subscriptions/{id}"), Value::Null).await),
            "ann" => drop(self.call(Method::PATCH, &format!("/subscriptions/{id}"), json!({"user_id": "ann"})).await),
            other => panic!("nobody knows how to make {other} happen"),
        }
    }

    async fn push(&self, id: &str) {
        let message = json!({"to": {"subscriptions": [id]}, "content": {"title": "Hello"}});
        self.call(Method::POST, "/messages", message).await;
        self.app.run_until_idle().await;
    }
}

/// Compares a response with the expected one. A member that is null there may be missing.
fn check(answer: &Value, wanted: &Value, at: &Value) {
    for (name, value) in wanted.as_object().into_iter().flatten() {
        match value {
            Value::Array(items) if items.iter().any(Value::is_object) => {
                let found = answer[name].as_array().unwrap_or_else(|| panic!("{at}: {answer}"));
                assert_eq!(found.len(), items.len(), "{at}: {answer}");
                found.iter().zip(items).for_each(|(found, item)| check(found, item, at));
            }
            value => assert_eq!(&answer[name], value, "{at}: {name} in {answer}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn server_matches_the_sdk_contract() {
    let app = TestApp::start().await;
    let contract: Value = serde_json::from_str(CONTRACT).unwrap();
    let stories = contract["stories"].as_array().unwrap();
    for (number, story) in (1..).zip(stories) {
        let mut player = Player::new(&app, number).await;
        for step in story["steps"].as_array().unwrap() {
            player.play(step).await;
        }
    }
    app.finish().await;
}
