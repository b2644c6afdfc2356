//! Unit tests of `src/api/mcp/redaction.rs`, which includes them.

use std::collections::BTreeSet;

use serde_json::json;

use super::super::tools::{TOOLS, responses};
use super::*;

/// Members that sound like a secret and are none.
const HARMLESS: [&str; 15] = [
    "application_server_key",
    "collapse_key",
    "endpoint_origin",
    "former_secret_until",
    "idempotency_key",
    "key",
    "key_is_active",
    "link_parameters",
    "link_tags",
    "links",
    "public_key",
    "retry_token_failures",
    "retry_tokens_late",
    "vapid_key",
    "vapid_key_id",
];

fn members(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(keywords) => {
            names.extend(
                keywords
                    .get("properties")
                    .and_then(Value::as_object)
                    .into_iter()
                    .flatten()
                    .map(|(name, _)| name.clone()),
            );
            keywords.values().for_each(|below| members(below, names));
        }
        Value::Array(items) => items.iter().for_each(|item| members(item, names)),
        _ => {}
    }
}

#[test]
fn members_that_sound_secret_are_redacted() {
    let description = crate::api::document();
    let mut names = BTreeSet::new();
    for tool in TOOLS.iter() {
        let method = tool.method.as_str().to_ascii_lowercase();
        members(&responses(&description, &description["paths"][&tool.path][method]), &mut names);
    }
    let words = ["secret", "token", "private", "password", "endpoint", "p256dh", "auth", "link", "credential", "key"];
    let part_sounds = |part: &str| words.contains(&part.trim_end_matches('s'));
    let sounds = names.iter().filter(|name| name.split('_').any(part_sounds));
    let open: Vec<_> = sounds.filter(|name| !is_secret(name) && !HARMLESS.contains(&name.as_str())).collect();
    assert!(open.is_empty(), "add them to redaction.rs, or to HARMLESS: {open:?}");
    assert!(names.contains("token"), "the responses were not read");
}

#[test]
fn secrets_are_redacted_at_any_depth() {
    let mut response =
        json!({"id": "wh_1", "secret": "whsec_x", "data": [{"endpoint": "https://push.example/1", "token": null}]});
    redact(&mut response);
    assert_eq!(
        response,
        json!({"id": "wh_1", "secret": "[redacted]", "data": [{"endpoint": "[redacted]", "token": null}]})
    );
}

#[test]
fn credentials_are_found_in_schemas() {
    let nested = json!([{"properties": {"key": {"properties": {"private_key": {"type": "string"}}}}}]);
    assert!(has_credential(&nested));
    assert!(!has_credential(&json!({"properties": {"name": {"description": "secret"}}})));
}

#[test]
fn redacted_values_are_found_in_requests() {
    assert!(is_in(&json!({"content": {"data": [{"link": "[redacted]"}]}})));
    assert!(!is_in(&json!({"content": {"title": "a [redacted] report"}})));
}
