//! Unit tests of `src/api/mcp/tools.rs`, which includes them.

use std::collections::BTreeSet;

use super::*;

fn named(name: &str) -> &'static OperationTool {
    TOOLS.iter().find(|tool| tool.tool.name == name).unwrap_or_else(|| panic!("{name} is no tool"))
}

fn arguments(value: Value) -> JsonObject {
    value.as_object().expect("an object").clone()
}

/// Operations with an API key that are no tools, by the rule that leaves them out.
#[test]
fn only_these_operations_are_no_tools() {
    let files = [
        "dead_letters_export",
        "events_stream_all",
        "events_stream_of_app",
        "export",
        "imports_create",
        "imports_resume",
    ];
    let credentials = [
        "api_keys_create",
        "identity_keys_create",
        "vapid_keys_export",
        "webhooks_change",
        "webhooks_create",
        "webhooks_rotate_secret",
    ];
    let uncounted = [
        "campaigns_test",
        "dead_letters_replay_one",
        "messages_batch_send",
        "messages_by_key_update",
        "messages_deliveries_retry",
        "subscriptions_diagnoses_begin",
    ];
    let expected: BTreeSet<&str> = files.into_iter().chain(credentials).chain(uncounted).collect();

    let description = crate::api::document();
    let items = description["paths"].as_object().expect("paths").values();
    let operations = items.flat_map(|item| item.as_object().expect("operations").values());
    let takes_key = |operation: &&Value| {
        let ways = operation["security"].as_array().expect("ways");
        ways.iter().any(|way| way["api_key"].is_array())
    };
    let names: BTreeSet<&str> = operations.filter(takes_key).filter_map(|it| it["operationId"].as_str()).collect();
    let tools: BTreeSet<&str> = TOOLS.iter().map(|tool| &*tool.tool.name).collect();
    assert!(tools.is_subset(&names), "{tools:?}");
    assert_eq!(names.difference(&tools).copied().collect::<BTreeSet<_>>(), expected);
}

#[test]
fn names_and_schemas_suit_clients() {
    for OperationTool { tool, .. } in TOOLS.iter() {
        let plain = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(tool.name.len() <= 64 && tool.name.chars().all(plain), "{}", tool.name);
        let schema = Value::Object((*tool.input_schema).clone());
        assert!(!schema.to_string().contains("$ref"), "{}: a reference is left", tool.name);
        for name in schema["required"].as_array().expect("names") {
            assert!(schema["properties"][name.as_str().expect("a name")].is_object(), "{}: {name}", tool.name);
        }
        assert!(tool.description.as_ref().is_some_and(|about| about.len() > 20), "{}", tool.name);
    }
}

#[test]
fn every_tool_that_sends_is_counted() {
    let sends: Vec<_> = TOOLS.iter().filter(|tool| matches!(tool.effect, Effect::Send(_))).collect();
    let names: Vec<_> = sends.iter().map(|tool| &*tool.tool.name).collect();
    assert_eq!(names, ["campaigns_start", "dead_letters_replay", "messages_send"]);
    for tool in sends {
        let schema = Value::Object((*tool.tool.input_schema).clone());
        assert_eq!(schema["properties"][EXPECTED]["type"], "integer", "{}", tool.tool.name);
        assert!(!schema.to_string().contains(r#""dry_run":"#), "{}: the caller chooses the dry run", tool.tool.name);
    }
}

#[test]
fn arguments_become_path_query_and_body() {
    let list = named("messages_list");
    let request = list.request(&arguments(json!({"app": "a/b", "limit": 5, "topic": "x&y", "state": null})));
    let uri = "/v1/apps/a%2Fb/messages?topic=x%26y&limit=5".to_owned();
    assert_eq!(request, Ok(ToolRequest { method: Method::GET, uri, body: Value::Null }));
    let chart = named("metrics_chart").request(&arguments(json!({"app": "shop", "measures": ["ended", "gone"]})));
    assert_eq!(chart.expect("a request").uri, "/v1/apps/shop/metrics?measures=ended%2Cgone");
    let body = json!({"title": "t"});
    let set = named("topics_set").request(&arguments(json!({"app": "shop", "topic": "..", "body": body})));
    let uri = "/v1/apps/shop/topics/%2E%2E".to_owned();
    assert_eq!(set, Ok(ToolRequest { method: Method::PUT, uri, body }));
}

#[test]
fn missing_and_unknown_arguments_are_named() {
    let list = named("messages_list");
    assert_eq!(list.request(&JsonObject::new()), Err("the argument \"app\" is missing".to_owned()));
    let unknown = list.request(&arguments(json!({"app": "shop", "dry_run": true}))).expect_err("unknown");
    assert!(unknown.contains("\"dry_run\" does not exist"), "{unknown}");
    let object = list.request(&arguments(json!({"app": "shop", "state": {"eq": "done"}}))).expect_err("an object");
    assert!(object.contains("\"state\" must not be an object"), "{object}");
}

#[test]
fn dry_runs_ask_without_sending() {
    let dry_run = |name: &str, given: Value| {
        let tool = named(name);
        let Effect::Send(how) = &tool.effect else { panic!("{name} does not send") };
        tool.dry_run(how, &arguments(given))
    };
    let send = dry_run("messages_send", json!({"app": "shop", "body": {"to": 1}})).expect("a request");
    assert_eq!(send.uri, "/v1/apps/shop/messages?dry_run=true");
    let replay = dry_run("dead_letters_replay", json!({"app": "shop", "body": {"filter": {}}})).expect("a request");
    assert_eq!(replay.body, json!({"filter": {}, "dry_run": true}));
    let start = dry_run("campaigns_start", json!({"app": "shop", "campaign": "c"})).expect("a request");
    assert_eq!(start.uri, "/v1/apps/shop/campaigns/c/dry-run");
    let refused = dry_run("dead_letters_replay", json!({"app": "shop", "body": []}));
    assert_eq!(refused, Err("the argument \"body\" must be an object".to_owned()));
}
