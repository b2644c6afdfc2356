//! Texts and times that Postgres does not store, in every member of every request body and every time of a query string.

use super::*;
use crate::support::api::{LOOPBACK, high_rate_limits};

/// Times in RFC 3339's form, or chrono's extension of it, outside the years 1 to 9999.
const TIMES: [&str; 6] = [
    "-200000-01-01T00:00:00Z",
    "-4714-01-01T00:00:00Z",
    "-0001-01-01T00:00:00Z",
    "0000-12-31T23:59:59Z",
    "+10000-01-01T00:00:00Z",
    "9999-12-31T23:59:59-12:00",
];

/// Bodies that differ from `body` in one string, each with whether the API must reject it.
fn hostile(schemas: &Value, schema: &Value, body: &Value) -> Vec<(Value, bool)> {
    let mut changed = Vec::new();
    change(schemas, schema, body, &mut |value, is_opaque| changed.push((value, !is_opaque)), 0);
    changed
}

/// Passes each variant of `value` to `found`, with whether the changed string belongs to the site alone (`payload`, `data`).
fn change(schemas: &Value, schema: &Value, value: &Value, found: &mut dyn FnMut(Value, bool), depth: usize) {
    let schema = resolve(schemas, schema);
    if depth > 6 {
        return;
    }
    if let Some(choices) = schema["oneOf"].as_array().or(schema["allOf"].as_array()) {
        let choices = choices.iter().filter(|choice| choice["type"] != "null");
        return choices.for_each(|choice| change(schemas, choice, value, found, depth + 1));
    }
    if let Some(text) = value.as_str() {
        found(json!(format!("{text}\0")), false);
    }
    if schema["format"] == "date-time" {
        TIMES.iter().for_each(|time| found(json!(time), false));
    }
    if let Some(items) = value.as_array() {
        for (i, item) in items.iter().enumerate() {
            let mut with = |changed, opaque| {
                let mut whole = value.clone();
                whole[i] = changed;
                found(whole, opaque);
            };
            change(schemas, &schema["items"], item, &mut with, depth + 1);
        }
    }
    let (Some(properties), true) = (schema["properties"].as_object(), value.is_object() || value.is_null()) else {
        return;
    };
    for (name, property) in properties {
        let inner = match value.get(name) {
            Some(inner) => inner.clone(),
            None if is_text(resolve(schemas, property)) => json!("x"),
            None => Value::Null,
        };
        let is_opaque = matches!(name.as_str(), "payload" | "data");
        let mut with = |changed, opaque| {
            let mut whole = if value.is_object() { value.clone() } else { json!({}) };
            whole[name] = changed;
            found(whole, opaque || is_opaque);
        };
        change(schemas, property, &inner, &mut with, depth + 1);
    }
}

fn resolve<'a>(schemas: &'a Value, schema: &'a Value) -> &'a Value {
    let name = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next());
    name.map_or(schema, |name| &schemas[name])
}

fn is_text(schema: &Value) -> bool {
    schema["type"] == "string" || schema["type"].as_array().is_some_and(|types| types.contains(&json!("string")))
}

#[tokio::test]
async fn unstorable_text_or_time_in_bodies_is_refused() {
    let walk = Walk::begin().await;
    let description = openapi_description(&walk.api).await;
    let schemas = &description["components"]["schemas"];
    let (mut tried, mut surprises) = (0, Vec::new());
    for (path, method, operation) in operations(&description) {
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        let name = format!("{method} {path}");
        let (query, body) = request(&name, walk.number());
        if schema.is_null() || body.is_array() {
            continue;
        }
        let security = Security::of(&path, &operation);
        let mut all = Shown::all().into_iter();
        let shown = all.find(|shown| security.refusal(*shown).is_none()).expect("a caller is allowed");
        let place = walk.place(&path, Some(shown).filter(|shown| matches!(shown, Shown::Session(..)))).await;
        for (body, must_reject) in hostile(schemas, schema, &body) {
            let mut request = Request::builder().method(&method).uri(format!("{}{query}", place.path));
            match walk.credential(shown, &place) {
                Some(credential) => request = request.header("authorization", format!("Bearer {credential}")),
                None => request = request.header("origin", ORIGIN),
            }
            if let Some(cookie) = walk.cookie(shown) {
                request = request.header("cookie", cookie).header("sec-fetch-site", "same-origin");
            }
            let request = request.header("content-type", "application/json").extension(LOOPBACK);
            let reply = walk.api.send(request.body(Body::from(body.to_string())).unwrap()).await;
            tried += 1;
            // Details of a browser and items of a batch are refused alone.
            let refused = &reply.json["refused"];
            let is_left_out = refused.as_array().is_some_and(|all| !all.is_empty()) || refused.as_i64() > Some(0);
            if reply.status >= 500 || (must_reject && reply.status < 400 && !is_left_out) {
                surprises.push(format!("{name} {body}: {} {}", reply.status, reply.json));
            }
        }
    }
    assert!(surprises.is_empty(), "{} of {tried}:\n{}", surprises.len(), surprises.join("\n"));
    assert!(tried > 300, "{tried}");
}

#[tokio::test]
async fn unstorable_time_in_any_query_is_rejected() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let description = openapi_description(&api).await;
    let mut tried = 0;
    for (path, method, operation) in operations(&description) {
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let times = parameters.iter().filter(|p| p["in"] == "query" && p["schema"]["format"] == "date-time");
        for parameter in times.filter(|_| method == Method::GET) {
            for time in TIMES {
                let time = time.replace('+', "%2B");
                let (path, name) = (path.replace("{app}", "shop"), parameter["name"].as_str().unwrap());
                let by = if path.ends_with("/groups") { "by=reason&" } else { "" };
                let key = if path.starts_with("/v1/apps/") { &api.key } else { &api.operator };
                let reply = api.call(method.clone(), &format!("{path}?{by}{name}={time}"), Some(key), None).await;
                assert_eq!(reply.refusal(), (400, "invalid_parameter", vec![name]), "{path} {name} {time}");
                tried += 1;
            }
        }
    }
    assert!(tried >= 8 * TIMES.len(), "{tried}");
}
