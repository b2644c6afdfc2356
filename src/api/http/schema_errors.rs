//! Lists all schema faults of a refused body. Serde decides whether a body is accepted, but reports only the first fault, with
//! Rust type names.

use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::problem::{FieldError, TOLD_MAX, pointer_segment};
use crate::api::openapi::shapes::bound_schema;

/// Compares a body with the schema of `T`. Returns wrong types, missing or unknown members, and values outside an enum.
pub(crate) fn mismatches<T: ToSchema>(body: &Value) -> Vec<FieldError> {
    let (named, schema) = schema_of::<T>();
    between(&named, &schema, body)
}

/// Returns the schemas that `T` refers to, and the schema of `T`.
pub(crate) fn schema_of<T: ToSchema>() -> (Map<String, Value>, Value) {
    let mut components = Vec::new();
    T::schemas(&mut components);
    let json = |name: &str, schema| {
        let mut schema = serde_json::to_value(schema).expect("a schema consists of strings and numbers");
        bound_schema(&mut schema, name, name);
        schema
    };
    let schema = json(&T::name(), T::schema());
    (components.into_iter().map(|(name, schema)| (name.clone(), json(&name, schema))).collect(), schema)
}

/// Compares a value with a schema. `named` contains the schemas it may refer to.
pub(crate) fn between(named: &Map<String, Value>, schema: &Value, value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    SchemaReader { named }.compare(schema, value, "", &mut errors);
    errors.truncate(TOLD_MAX);
    errors
}

struct SchemaReader<'a> {
    named: &'a Map<String, Value>,
}

impl SchemaReader<'_> {
    fn compare(&self, schema: &Value, value: &Value, at: &str, errors: &mut Vec<FieldError>) {
        if errors.len() > TOLD_MAX {
            return;
        }
        if let Some(reference) = schema["$ref"].as_str() {
            let name = reference.rsplit('/').next().unwrap_or_default();
            return self.named.get(name).into_iter().for_each(|schema| self.compare(schema, value, at, errors));
        }
        if let Some(choices) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()) {
            return self.compare_with_nearest(choices, value, at, errors);
        }
        for part in schema["allOf"].as_array().into_iter().flatten() {
            self.compare(part, value, at, errors);
        }
        let mut refuse = |detail: String| errors.push(FieldError::member(at, detail));
        let types = types(schema);
        let is_of_type = types.is_empty() || types.iter().any(|kind| is_of(value, kind));
        if let Some(words) = schema["enum"].as_array() {
            if !(words.contains(value) || (value.is_null() && is_of_type)) {
                refuse(format!("must be {}", one_of(words.iter().map(|word| format!("`{}`", plain(word))))));
            }
            return;
        }
        if !is_of_type {
            return refuse(format!("must be {}", one_of(types.iter().filter_map(|kind| in_words(kind)))));
        }
        match value {
            Value::Object(members) => self.compare_members(schema, members, at, errors),
            Value::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    self.compare(&schema["items"], item, &format!("{at}/{i}"), errors);
                }
            }
            _ => {}
        }
    }

    fn compare_members(&self, schema: &Value, members: &Map<String, Value>, at: &str, errors: &mut Vec<FieldError>) {
        for missing in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !members.contains_key(missing) {
                errors.push(FieldError::member(format!("{at}/{}", pointer_segment(missing)), "is missing"));
            }
        }
        let known = schema["properties"].as_object();
        for (name, member) in members {
            let at = format!("{at}/{}", pointer_segment(name));
            match (known.and_then(|known| known.get(name)), &schema["additionalProperties"]) {
                (Some(schema), _) => self.compare(schema, member, &at, errors),
                (None, Value::Bool(false)) => {
                    let known = known.into_iter().flat_map(|known| known.keys());
                    let known = known.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
                    errors.push(FieldError::member(at, format!("is not known here; known are {known}")));
                }
                (None, schema) => self.compare(schema, member, &at, errors),
            }
        }
    }

    /// Compares the value with the most similar alternative: one of the same type with the fewest faults.
    fn compare_with_nearest(&self, choices: &[Value], value: &Value, at: &str, errors: &mut Vec<FieldError>) {
        let told = choices.iter().map(|choice| {
            let mut told = Vec::new();
            self.compare(choice, value, at, &mut told);
            told
        });
        let told: Vec<_> = told.collect();
        let is_of_another_type = |told: &Vec<FieldError>| told.iter().any(|error| error.pointer.as_deref() == Some(at));
        if told.iter().all(is_of_another_type) {
            let choices = told.into_iter().flatten().filter(|error| error.pointer.as_deref() == Some(at));
            let words = choices.filter_map(|error| error.detail.strip_prefix("must be ").map(str::to_owned));
            let words = words.filter(|words| words != "null");
            errors.push(FieldError::member(at, format!("must be {}", one_of(words))));
        } else {
            let nearest = told.into_iter().filter(|told| !is_of_another_type(told)).min_by_key(Vec::len);
            errors.extend(nearest.into_iter().flatten());
        }
    }
}

fn types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        _ => value.is_object(),
    }
}

/// Returns a type name for people. `None` for null, which callers can simply omit.
fn in_words(kind: &str) -> Option<String> {
    let words = match kind {
        "null" => return None,
        "boolean" => "true or false",
        "integer" => "a whole number",
        "number" => "a number",
        "string" => "a string",
        "array" => "an array",
        _ => "an object",
    };
    Some(words.to_owned())
}

fn plain(word: &Value) -> String {
    word.as_str().map_or_else(|| word.to_string(), str::to_owned)
}

/// Joins a list: `a`, `a or b`, `a, b or c`.
fn one_of(words: impl Iterator<Item = String>) -> String {
    let mut words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    words.dedup();
    match words.pop() {
        Some(last) if words.is_empty() => last,
        Some(last) => format!("{} or {last}", words.join(", ")),
        None => "null".to_owned(),
    }
}

/// Removes Rust type names from a serde error about a body or parameter, such as `invalid type: string "x", expected u8`.
pub(crate) fn in_plain_words(said: &str) -> String {
    let (found, expected) = said.rsplit_once(", expected ").unwrap_or((said, ""));
    let kind = found.split(':').next().unwrap_or_default();
    if kind == "invalid type" || kind == "invalid value" || kind == "invalid length" {
        return format!("must be {}", of_program(expected));
    }
    if let Some(name) = found.strip_prefix("unknown field ") {
        return format!("{name} is not known here; known are {}", expected.trim_start_matches("one of "));
    }
    if found.starts_with("unknown variant ") {
        return format!("must be {expected}");
    }
    let known = match said {
        "invalid digit found in string" | "cannot parse integer from empty string" => "must be a whole number",
        "number too large to fit in target type" => "is too large",
        "number too small to fit in target type" => "is too small",
        "provided string was not `true` or `false`" => "must be true or false",
        "invalid float literal" | "cannot parse float from empty string" => "must be a number",
        "data did not match any variant of untagged enum" => "has none of the forms that are known",
        said => said,
    };
    known.to_owned()
}

/// Converts a Rust type name to a JSON type name.
fn of_program(expected: &str) -> String {
    let words = match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number that is not negative",
        "i16" => "a whole number from -32768 to 32767",
        "i32" => "a whole number from -2147483648 to 2147483647",
        "i64" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "an array",
        "a map" => "an object",
        "a borrowed string" | "str" => "a string",
        other if ["struct ", "enum ", "internally ", "variant ", "tuple "].iter().any(|own| other.starts_with(own)) => {
            "an object"
        }
        other => other,
    };
    words.to_owned()
}

#[cfg(test)]
#[path = "../../../tests/unit/api/http/schema_errors.rs"]
mod tests;
