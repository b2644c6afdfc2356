//! Unit tests of `src/api/openapi.rs`, which includes them.

use bellwire_rules::policy::{Layer, PolicyLevel, Terms};

use super::*;
use crate::api::http::schema_errors;

fn described() -> Value {
    crate::api::document()
}

fn operations(api: &Value) -> impl Iterator<Item = (String, &Value)> {
    let items = api["paths"].as_object().expect("paths");
    items.iter().flat_map(|(path, item)| {
        let operations = item.as_object().expect("operations");
        operations.iter().map(move |(method, operation)| (format!("{method} {path}"), operation))
    })
}

/// Bodies that the extractor `Draft` reads are described by hand.
#[test]
fn each_put_and_patch_has_a_body() {
    // Puts the membership in the path there, without further data.
    let membership = "put /v1/apps/{app}/topics/{topic}/subscriptions/{subscription}";
    let api = described();
    let without = operations(&api).filter(|(_, operation)| operation["requestBody"].is_null()).map(|(route, _)| route);
    let changes: Vec<_> = without.filter(|route| route.starts_with("put ") || route.starts_with("patch ")).collect();
    assert_eq!(changes, [membership]);
}

#[test]
fn each_operation_has_a_name_and_responses() {
    let api = described();
    let mut names = BTreeSet::new();
    for (route, operation) in operations(&api) {
        let name = operation["operationId"].as_str().expect("a name");
        assert!(names.insert(name.to_owned()), "{route}: {name} is taken");
        let responses = operation["responses"].as_object().expect("responses");
        let described = |response: &Value| {
            response["$ref"].is_string() || !response["description"].as_str().unwrap_or_default().is_empty()
        };
        assert!(responses.values().all(described), "{route} leaves a response without description");
        if route.contains("/v1/") {
            let asks_for_nothing = operation["security"] == json!([{}])
                && operation["parameters"].as_array().is_none_or(Vec::is_empty)
                && operation["requestBody"].is_null();
            let may_be_refused = responses.keys().any(|status| status.starts_with("40"));
            assert!(responses.contains_key("429") && (may_be_refused || asks_for_nothing), "{route}");
        }
        let known = |tag: &Value| TAGS.iter().any(|(name, _)| tag == name);
        assert!(operation["tags"].as_array().is_some_and(|tags| tags.iter().all(known)), "{route} has no known tag");
    }
    for (name, response) in api["components"]["responses"].as_object().expect("problems") {
        let schema = &response["content"]["application/problem+json"]["schema"]["$ref"];
        assert_eq!(*schema, "#/components/schemas/Problem", "{name}");
    }
    assert!(api["info"]["contact"].is_null(), "a library's author is no contact");
}

#[test]
fn each_operation_has_description_audience_and_example() {
    let api = described();
    let schemas = api["components"]["schemas"].as_object().expect("schemas");
    for (route, operation) in operations(&api) {
        let [summary, description] =
            ["summary", "description"].map(|name| operation[name].as_str().unwrap_or_default());
        assert!(summary.ends_with('.') && summary.len() < 200 && !summary.contains('\n'), "{route}: {summary:?}");
        assert!(description.contains("Takes "), "{route}: {description:?}");
        assert!(operation["security"].as_array().is_some_and(|ways| !ways.is_empty()), "{route}");
        assert!(operation["responses"]["default"]["$ref"].is_string(), "{route} tells of no problem");
        for (status, response) in operation["responses"].as_object().expect("responses") {
            let Some(content) = response.pointer("/content/application~1json") else { continue };
            let differs = schema_errors::between(schemas, &content["schema"], &content["example"]);
            assert!(differs.is_empty(), "{route} {status}: {differs:?}: {}", content["example"]);
        }
    }
}

#[test]
fn each_creating_post_takes_an_idempotency_key() {
    let api = described();
    let takes_key = |operation: &Value| takes(operation, "Idempotency-Key");
    for (route, operation) in operations(&api).filter(|(route, _)| route.starts_with("post ")) {
        let path = route.trim_start_matches("post ");
        let makes = operation["responses"]["201"].is_object();
        let is_made_once = makes != NEVER_ONCE.contains(&path) || ONCE_BESIDE.contains(&path);
        let gives_keys_to_parts = path == "/v1/apps/{app}/messages/batch";
        assert_eq!(takes_key(operation), is_made_once || gives_keys_to_parts, "{route}");
    }
    for path in ONCE_BESIDE.iter().chain(&NEVER_ONCE) {
        assert!(api["paths"][path]["post"].is_object(), "there is no POST {path}");
    }
}

#[test]
fn every_text_and_every_whole_number_is_bounded() {
    let mut unbounded = Vec::new();
    look(&described(), String::new(), &mut unbounded);
    assert!(unbounded.is_empty(), "say how long or large they are in `shapes`:\n{}", unbounded.join("\n"));
}

fn look(value: &Value, at: String, unbounded: &mut Vec<String>) {
    let is = |kind: &str| match &value["type"] {
        Value::Array(kinds) => kinds.iter().any(|known| known == kind),
        known => known == kind,
    };
    let says = |any: &[&str]| any.iter().any(|keyword| !value[keyword].is_null());
    if (is("integer") && !(says(&["minimum"]) && says(&["maximum"])))
        || (is("string") && !says(&["maxLength", "pattern", "enum", "format", "const"]))
    {
        unbounded.push(at.clone());
    }
    let below: Vec<(String, &Value)> = match value {
        Value::Object(members) => members.iter().map(|(name, below)| (name.clone(), below)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(i, below)| (i.to_string(), below)).collect(),
        _ => Vec::new(),
    };
    for (name, below) in below.into_iter().filter(|(name, _)| name != "example") {
        look(below, format!("{at}/{name}"), unbounded);
    }
}

#[test]
fn all_lists_have_one_shape() {
    let api = described();
    let schemas = api["components"]["schemas"].as_object().expect("schemas");
    let mut lists = 0;
    for (name, schema) in schemas {
        let members = |schema: &Value| -> BTreeSet<String> {
            schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
        };
        let own = members(schema);
        // The points of a chart are no list of resources.
        if own.contains("data") && schema["properties"]["data"]["type"] == "array" && name != "ChartResponse" {
            lists += 1;
            assert_eq!(own, ["data", "done", "iterator", "limit", "prev_iterator"].map(str::to_owned).into(), "{name}");
            assert!(schema["properties"]["data"]["items"]["$ref"].is_string(), "{name} inlines its rows");
        }
    }
    assert!(lists > 20, "{lists}");
}

#[test]
fn each_body_has_a_valid_example() {
    let api = described();
    let schemas = api["components"]["schemas"].as_object().expect("schemas");
    for (route, operation) in operations(&api).filter(|(_, operation)| operation["requestBody"].is_object()) {
        let content = &operation["requestBody"]["content"]["application/json"];
        assert!(
            content["example"].is_object() || content["example"].is_array(),
            "{route} has no example: write one in `examples`"
        );
        let differs = schema_errors::between(schemas, &content["schema"], &content["example"]);
        assert!(differs.is_empty(), "{route}: {differs:?}");
    }
}

#[test]
fn lane_order_works_without_a_body() {
    let api = described();
    for order in ["hold", "release", "open", "close", "probe"] {
        let body = &api["paths"][format!("/v1/gateways/{{lane}}/{order}")]["post"]["requestBody"];
        assert_eq!(body["required"], false, "{order}: {body}");
    }
}

/// Places in a policy where the parser finds a fault, other than a conflict between members.
fn faults_at(policy: &Value, pointer: &str) -> usize {
    let terms = Terms { place: PolicyLevel::Tier, max_retries: 1_000 };
    let faults = Layer::parse(policy, &terms).err().unwrap_or_default();
    faults.iter().filter(|fault| fault.pointer == pointer).count()
}

#[test]
fn bounds_of_policies_are_those_of_the_parser() {
    let api = described();
    let mut checked = 0;
    for (form, others) in [
        ("GuidePolicy", json!({"baseDelayMs": 1, "maxDelayMs": 86_400_000, "maxAttempts": 100})),
        ("ScriptedPolicy", json!({})),
    ] {
        for (name, schema) in api["components"]["schemas"][form]["properties"].as_object().expect("members") {
            let (Some(least), Some(most)) = (schema["minimum"].as_i64(), schema["maximum"].as_i64()) else { continue };
            let with = |value: i64| {
                let mut policy = others.clone();
                policy[name] = value.into();
                faults_at(&policy, &format!("/{name}"))
            };
            assert_eq!((with(least), with(most)), (0, 0), "{form}.{name}: {least} to {most}");
            assert!(with(most + 1) > 0 && (least == 0 || with(least - 1) > 0), "{form}.{name}: {least} to {most}");
            checked += 1;
        }
    }
    assert!(checked >= 14, "{checked}");
    let delay = &api["components"]["schemas"]["ScriptedPolicy"]["properties"]["retryDelay"];
    let longest = usize::try_from(delay["maxLength"].as_u64().expect("a bound")).expect("it is short");
    let with =
        |length: usize| faults_at(&json!({"retryDelay": "1".to_owned() + &" ".repeat(length - 1)}), "/retryDelay");
    assert_eq!((with(longest), with(longest + 1)), (0, 1));
}

#[test]
fn bounds_of_phases_are_those_of_the_parser() {
    let api = described();
    let delays = json!({"minDelayTarget": 0, "maxDelayTarget": 3_600, "numRetries": 1});
    let counts = json!({"minDelayTarget": 0, "maxDelayTarget": 0, "numRetries": 100});
    let terms = Terms { place: PolicyLevel::Tier, max_retries: 1_000 };
    let mut checked = 0;
    for (name, schema) in api["components"]["schemas"]["HealthyRetryPolicy"]["properties"].as_object().expect("members")
    {
        let (Some(least), Some(most)) = (schema["minimum"].as_i64(), schema["maximum"].as_i64()) else { continue };
        let valid = |value: i64| {
            let mut phases = if name.ends_with("Target") { delays.clone() } else { counts.clone() };
            phases[name] = value.into();
            Layer::parse(&json!({"healthyRetryPolicy": phases}), &terms).is_ok()
        };
        assert_eq!(
            [least - 1, least, most, most + 1].map(valid),
            [false, true, true, false],
            "{name}: {least} to {most}"
        );
        checked += 1;
    }
    assert_eq!(checked, 6);
}

#[test]
fn effects_name_operations_that_exist() {
    let api = described();
    for path in READS.into_iter().chain(SENDS) {
        assert!(api["paths"][path]["post"].is_object(), "{path}");
    }
    for (route, operation) in operations(&api) {
        let takes_send = operation["security"].to_string().contains(r#""api_key":["send"]"#);
        let calls_out = route.contains("/link-check");
        assert!(!takes_send || calls_out || operation["x-effect"] != "write", "{route} sends, or only reads");
    }
}
