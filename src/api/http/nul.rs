//! Checks for NUL in strings, which Postgres cannot store.

use serde_json::Value;

use super::problem::{FieldError, Problem, TOLD_MAX, pointer_segment};

/// The only spelling of NUL in JSON.
const NUL_ESCAPE: &[u8] = b"\\u0000";

/// Fault of strings in paths, query strings, bodies and files.
pub(crate) const NO_NUL: &str = "must not contain NUL (U+0000)";

pub(crate) fn has_nul(text: &str) -> bool {
    text.contains('\0')
}

pub(crate) fn refuse_nul(parameter: &str, value: &str) -> Result<(), Problem> {
    if has_nul(value) { Err(Problem::invalid_parameter(parameter, NO_NUL)) } else { Ok(()) }
}

/// Whether a member name or string within a JSON value satisfies the condition.
pub(crate) fn any_text(value: &Value, is: &impl Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => is(text),
        Value::Array(items) => items.iter().any(|item| any_text(item, is)),
        Value::Object(members) => members.iter().any(|(name, value)| is(name) || any_text(value, is)),
        _ => false,
    }
}

/// Refuses a body with NUL in a member name or string. `payload` and `data` are exempt: they are stored encrypted.
pub(crate) fn reject_nul(bytes: &[u8]) -> Result<(), Problem> {
    // JSON has no other way to write NUL.
    if !bytes.windows(NUL_ESCAPE.len()).any(|at| at == NUL_ESCAPE) {
        return Ok(());
    }
    let Ok(body) = serde_json::from_slice::<Value>(bytes) else { return Ok(()) };
    let (mut errors, mut open) = (Vec::new(), vec![(String::new(), &body)]);
    while let Some((at, value)) = open.pop() {
        match value {
            Value::String(text) if has_nul(text) => errors.push(FieldError::member(at, NO_NUL)),
            Value::Array(items) => open.extend(items.iter().enumerate().map(|(i, item)| (format!("{at}/{i}"), item))),
            Value::Object(members) => {
                for (name, value) in members {
                    let at = format!("{at}/{}", pointer_segment(name));
                    match name.as_str() {
                        "payload" | "data" => {}
                        name if has_nul(name) => errors.push(FieldError::member(at, NO_NUL)),
                        _ => open.push((at, value)),
                    }
                }
            }
            _ => {}
        }
    }
    errors.truncate(TOLD_MAX);
    if errors.is_empty() { Ok(()) } else { Err(Problem::invalid(errors)) }
}
