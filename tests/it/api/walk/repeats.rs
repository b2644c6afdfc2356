//! Every operation that makes something, made twice under one key; everything that can be read and changed, under conditions.

use super::*;
use crate::support::api::Reply;

/// Route with a different response each time.
const CHANGES_BY_ITSELF: &str = "/v1/checks";

/// Route whose header gives keys to its messages: their results tell repeats, not the response. See `batch`.
const REPEATS_BY_PART: &str = "/v1/apps/{app}/messages/batch";

/// An operation, and as whom to call it.
struct Call<'a> {
    walk: &'a Walk,
    method: Method,
    path: String,
    shown: Shown,
}

impl<'a> Call<'a> {
    async fn of(walk: &'a Walk, path: &str, method: &Method, operation: &Value) -> Self {
        let security = Security::of(path, operation);
        let mut all = Shown::all().into_iter();
        let shown = all.find(|shown| security.refusal(*shown).is_none()).expect("somebody may");
        let place = walk.place(path, Some(shown).filter(|shown| matches!(shown, Shown::Session(..)))).await;
        Self { walk, method: method.clone(), path: place.path, shown }
    }

    /// Scopes for reading and changing, including those for a whole app.
    fn by_all(mut self) -> Self {
        if matches!(self.shown, Shown::Key(scope) if scope != Scope::Operator) {
            self.shown = Shown::Nothing;
        }
        self
    }

    async fn make(&self, query: &str, body: Value, headers: &[(&str, &str)]) -> Reply {
        self.call(self.method.clone(), query, body, headers).await
    }

    async fn call(&self, method: Method, query: &str, body: Value, headers: &[(&str, &str)]) -> Reply {
        let api = &self.walk.api;
        let place = Place { path: self.path.clone(), token: None };
        let credential = match self.shown {
            // Keys of both kinds, each where it is known.
            Shown::Nothing if self.path.starts_with("/v1/apps/") => Some(api.key.clone()),
            Shown::Nothing => Some(api.operator.clone()),
            shown => self.walk.credential(shown, &place),
        };
        let mut headers = headers.to_vec();
        if let Some(cookie) = self.walk.cookie(self.shown) {
            headers.extend([("cookie", cookie), ("sec-fetch-site", "same-origin")]);
        }
        let body = Some(body).filter(|body| !body.is_null());
        api.call_with(method, &format!("{}{query}", self.path), credential.as_deref(), body, &headers).await
    }
}

fn takes(operation: &Value, header: &str) -> bool {
    operation["parameters"].as_array().is_some_and(|all| all.iter().any(|parameter| parameter["name"] == header))
}

#[tokio::test]
async fn each_creating_post_honours_its_idempotency_key() {
    let walk = Walk::begin().await;
    let operations = operations(&openapi_description(&walk.api).await);
    let keyed = operations
        .iter()
        .filter(|(path, _, operation)| takes(operation, "Idempotency-Key") && path.as_str() != REPEATS_BY_PART);
    let mut seen = 0;
    for (path, method, operation) in keyed {
        seen += 1;
        let name = format!("{method} {path}");
        let call = Call::of(&walk, path, method, operation).await;
        let n = walk.number();
        let (query, body) = request(&name, n);
        let key = [("idempotency-key", "once")];
        let first = call.make(query, body.clone(), &key).await;
        assert!((200..300).contains(&first.status), "{name}: {}", first.json);
        assert_eq!(first.header("idempotent-replayed"), "", "{name}");
        let again = call.make(query, body.clone(), &key).await;
        assert_eq!(
            (again.status, again.header("idempotent-replayed")),
            (first.status, "true"),
            "{name}: {}",
            again.json
        );
        assert_eq!(again.json, first.json, "{name}");
        let (query, other) = request(&name, n + 1_000);
        if other != body {
            let refused = call.make(query, other, &key).await;
            assert_eq!(refused.refusal(), (422, "idempotency_key_reused", vec![]), "{name}");
        }
    }
    assert!(seen > 8, "{seen}");
}

#[tokio::test]
async fn each_representation_has_a_conditional_etag() {
    let walk = Walk::begin().await;
    let (mut surprises, mut seen) = (Vec::new(), 0);
    for (path, method, operation) in operations(&openapi_description(&walk.api).await) {
        if operation["responses"]["304"].is_null() || path == CHANGES_BY_ITSELF {
            continue;
        }
        seen += 1;
        let (query, _) = request(&format!("{method} {path}"), 0);
        let call = Call::of(&walk, &path, &method, &operation).await;
        let shown = call.make(query, Value::Null, &[]).await;
        let tag = shown.header("etag").to_owned();
        let again = call.make(query, Value::Null, &[("if-none-match", &tag)]).await;
        if (shown.status, again.status) != (200, 304) || tag.is_empty() || again.header("etag") != tag {
            surprises.push(format!("{path}: {} with {tag}, then {}", shown.status, again.status));
        }
    }
    assert!(seen > 40, "{seen}");
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}

#[tokio::test]
async fn each_conditional_change_checks_its_etag() {
    let walk = Walk::begin().await;
    let mut operations = operations(&openapi_description(&walk.api).await);
    operations.sort_by_key(|(path, method, _)| is_end_of_app(path, method));
    let (mut surprises, mut seen) = (Vec::new(), 0);
    for (path, method, operation) in operations.iter().filter(|(.., operation)| takes(operation, "If-Match")) {
        seen += 1;
        let name = format!("{method} {path}");
        let call = Call::of(&walk, path, method, operation).await.by_all();
        let (query, body) = request(&name, walk.number());
        let refused = call.make(query, body.clone(), &[("if-match", "\"stale\"")]).await;
        let tag = call.call(Method::GET, "", Value::Null, &[]).await.header("etag").to_owned();
        let changed = call.make(query, body, &[("if-match", &tag)]).await;
        if (refused.status, refused.json["code"].as_str()) != (412, Some("precondition_failed")) {
            surprises.push(format!("{name} of something else: {} {}", refused.status, refused.json));
        }
        if !(200..300).contains(&changed.status) {
            surprises.push(format!("{name} of {tag}: {} {}", changed.status, changed.json));
        }
        if *method != Method::DELETE {
            let now = call.call(Method::GET, "", Value::Null, &[]).await;
            if now.header("etag") != changed.header("etag") {
                surprises.push(format!("{name} tells another tag than what is shown then"));
            }
        }
        // The signed-out caller needs another session.
        sqlx::query("UPDATE sessions SET ended_at = NULL").execute(&walk.api.pool).await.unwrap();
    }
    assert!(seen > 20, "{seen}");
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}
