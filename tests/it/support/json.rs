//! Assertions on JSON.

use serde_json::{Map, Value};

/// Asserts that an object has these members, beside others. A failure names all expected members with their values.
#[track_caller]
pub fn assert_members(object: &Value, expected: Value) {
    let names = expected.as_object().expect("an object").keys();
    let found: Map<String, Value> = names.map(|name| (name.clone(), object[name].clone())).collect();
    assert_eq!(Value::Object(found), expected, "in {object}");
}
