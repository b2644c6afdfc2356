//! Examples of responses, generated from their schemas. Tests validate them against these schemas.

use serde_json::{Map, Value, json};

/// Maximum nesting of schemas.
const DEPTH_MAX: usize = 32;
const UUID: &str = "0193a5c2-7b41-7c11-8a52-3f1d2c9b6e70";

/// Examples of strings by member name. A name has the same meaning in all schemas.
const TEXTS: &[(&str, &str)] = &[
    ("currency", "EUR"),
    ("quarter", "2026-Q4"),
    ("slug", "shop"),
    ("name", "news"),
    ("topic", "news"),
    ("topics", "news"),
    ("tags", "beta"),
    ("tag", "beta"),
    ("user_id", "42"),
    ("user", "42"),
    ("users", "42"),
    ("title", "Your table is booked"),
    ("body", "Tonight at seven, for two."),
    ("url", "https://shop.example/bookings/7"),
    ("origin", "https://shop.example"),
    ("origins", "https://shop.example"),
    ("endpoint", "https://fcm.googleapis.com/fcm/send/cXyZ"),
    ("subject", "mailto:push@shop.example"),
    ("email", "ann@shop.example"),
    ("expression", "plan = \"pro\""),
    ("locale", "de-AT"),
    ("timezone", "Europe/Vienna"),
    ("from", "09:00"),
    ("to", "18:00"),
    ("window", "1d"),
    ("period", "1m"),
    ("type", "/docs/problems/not_found"),
    ("iterator", "AZOlwntBfBGKUj8dLJtucA"),
    ("public_key", "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"),
    (
        "application_server_key",
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
    ),
    ("confirmation", "receipts"),
    ("prev_iterator", "AZOlwntBfBGKUj8dLJtucA"),
    ("code", "7K2M9QXA"),
    ("app", "shop"),
    ("template", "welcome"),
    ("topic_header", "bmV3cw"),
    ("endpoint_origin", "https://fcm.googleapis.com"),
    ("prober", UUID),
    ("breaker_of", UUID),
    ("send_at", "2026-12-01T09:00:00Z"),
    ("by", "local"),
    ("sent_by", "ak_0193a5c2-7b41-7c11-8a52-3f1d2c9b6e70"),
    ("created_by", "local"),
    ("changed_by", "local"),
    ("actor", "local"),
];

/// Returns an example of a schema. `name` is the member or schema that it belongs to.
pub(in crate::api) fn of(schemas: &Map<String, Value>, schema: &Value, name: &str) -> Value {
    sample(schemas, schema, name, DEPTH_MAX)
}

fn sample(schemas: &Map<String, Value>, schema: &Value, name: &str, depth: usize) -> Value {
    if depth == 0 {
        return Value::Null;
    }
    for word in ["example", "const", "default"] {
        if let Some(value) = schema.get(word).filter(|value| !value.is_null()) {
            return value.clone();
        }
    }
    if let Some(known) = schema["enum"].as_array().and_then(|known| known.iter().find(|value| !value.is_null())) {
        return known.clone();
    }
    if schema["$ref"] == "#/components/schemas/DeliveryPolicy" {
        return json!({"baseDelayMs": 1_000, "maxDelayMs": 60_000, "maxAttempts": 5});
    }
    if let Some(named) = schema["$ref"].as_str().and_then(|place| place.rsplit('/').next()) {
        return schemas.get(named).map_or(Value::Null, |schema| sample(schemas, schema, name, depth - 1));
    }
    if let Some(parts) = schema["allOf"].as_array() {
        let parts = parts.iter().map(|part| sample(schemas, part, name, depth - 1));
        let merged: Map<String, Value> = parts.filter_map(|part| part.as_object().cloned()).flatten().collect();
        return Value::Object(merged);
    }
    let choices = ["oneOf", "anyOf"].into_iter().find_map(|word| schema[word].as_array());
    if let Some(choice) = choices.and_then(|choices| choices.iter().find(|choice| choice["type"] != "null")) {
        return sample(schemas, choice, name, depth - 1);
    }
    match kind(&schema["type"]) {
        "object" => object(schemas, schema, depth),
        "array" => match &schema["prefixItems"] {
            Value::Array(places) => places.iter().map(|place| sample(schemas, place, name, depth - 1)).collect(),
            _ => json!([sample(schemas, &schema["items"], name, depth - 1)]),
        },
        "string" => Value::String(text(schema, name)),
        "integer" => schema["minimum"].as_i64().filter(|from| *from > 0).unwrap_or(0).into(),
        "number" => json!(schema["minimum"].as_f64().unwrap_or(0.5).max(0.5)),
        "boolean" => Value::Bool(true),
        _ => Value::Null,
    }
}

fn object(schemas: &Map<String, Value>, schema: &Value, depth: usize) -> Value {
    let members = schema["properties"].as_object().into_iter().flatten();
    let mut made: Map<String, Value> =
        members.map(|(name, member)| (name.clone(), sample(schemas, member, name, depth - 1))).collect();
    if made.is_empty() && schema["additionalProperties"].is_object() {
        made.insert("plan".to_owned(), sample(schemas, &schema["additionalProperties"], "plan", depth - 1));
    }
    Value::Object(made)
}

/// Returns the first type except null.
fn kind(types: &Value) -> &str {
    let first = types.as_array().and_then(|types| types.iter().find(|kind| *kind != "null"));
    first.unwrap_or(types).as_str().unwrap_or_default()
}

fn is_of_word(octet: u8) -> bool {
    octet.is_ascii_lowercase() || octet == b'_' || octet == b'-'
}

fn text(schema: &Value, name: &str) -> String {
    match schema["format"].as_str() {
        Some("date-time") => return "2026-12-01T09:00:00Z".to_owned(),
        Some("date") => return "2026-12-01".to_owned(),
        Some("uuid") => return UUID.to_owned(),
        _ => {}
    }
    // An id's pattern begins with its prefix; one of any kind is shown as a message's.
    let pattern = schema["pattern"].as_str().unwrap_or_default();
    let prefix = pattern.strip_prefix('^').and_then(|rest| rest.split_once('_')).map(|(prefix, _)| prefix);
    match prefix.filter(|_| pattern.contains("[0-9a-f")) {
        Some(prefix) if !prefix.is_empty() && prefix.bytes().all(|b| b.is_ascii_lowercase()) => {
            format!("{prefix}_{UUID}")
        }
        Some(prefix) if prefix.starts_with("[a-z]") => format!("msg_{UUID}"),
        _ => {
            // A pattern such as `^(csv|json)$` is a list of words.
            let words = pattern.strip_prefix("^(").and_then(|rest| rest.strip_suffix(")$"));
            let word = words.and_then(|words| words.split('|').next()).filter(|word| word.bytes().all(is_of_word));
            let known = || TEXTS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text);
            word.or_else(known).unwrap_or("…").to_owned()
        }
    }
}
