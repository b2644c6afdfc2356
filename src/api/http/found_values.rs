//! Adds the value that caused a fault to the fault's text.

use std::fmt::Display;

use serde_json::Value;

/// Maximum characters of a value in a fault.
const SHOWN_MAX: usize = 60;
/// Members whose values are never shown: secrets and message content.
const SECRET: [&str; 21] = [
    "api_key",
    "attributes",
    "auth",
    "compact",
    "content",
    "credential",
    "current_password",
    "data",
    "endpoint",
    "keys",
    "link",
    "new_password",
    "p256dh",
    "password",
    "payload",
    "private_key",
    "private_key_pem",
    "secret",
    "token",
    "user_token",
    "url",
];

/// Appends the value of a member to its fault, if it is a string, number or boolean, and not secret.
pub(crate) fn add_value(detail: &mut String, pointer: &str, body: &Value) {
    let is_secret = pointer.split('/').any(|segment| SECRET.contains(&segment));
    let Some(value) = body.pointer(pointer).filter(|_| !is_secret).and_then(shown) else { return };
    let names_value = has_word(detail, &value) || detail.contains("found ");
    if !names_value && !detail.starts_with("is not known here") {
        detail.push_str(&format!(" (found {value})"));
    }
}

/// Adds the value of a parameter to the rule that the parameter violates.
pub(crate) fn with_found(rule: impl Display, value: &str) -> String {
    format!("{rule} (found {})", shown(&value.into()).unwrap_or_default())
}

/// Whether a text contains a value that is not part of a longer word or number.
fn has_word(text: &str, value: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    text.match_indices(value)
        .any(|(at, _)| !is_part(text[..at].chars().next_back()) && !is_part(text[at + value.len()..].chars().next()))
}

fn shown(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if text.chars().count() > SHOWN_MAX => {
            Some(format!("{:?} and more", text.chars().take(SHOWN_MAX).collect::<String>()))
        }
        Value::Null | Value::Object(_) | Value::Array(_) => None,
        scalar => Some(scalar.to_string()),
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/api/http/found_values.rs"]
mod tests;
