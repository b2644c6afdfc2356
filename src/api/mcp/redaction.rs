//! Secrets in responses, which no tool returns.

use serde_json::Value;

/// Members with a credential that the API returns once, at its creation.
const CREDENTIALS: [&str; 3] = ["secret", "private_key", "private_key_pem"];
/// Further members that give access to a browser or an account.
const PRIVATE: [&str; 5] = ["token", "endpoint", "p256dh", "auth", "link"];

const REDACTED: &str = "[redacted]";

/// Refusal of a change with redacted values, which would replace the real ones.
pub(super) const REFUSAL: &str =
    "nothing was changed: the body contains \"[redacted]\"; leave that member out, or give its real value";

/// Whether a schema has a credential as a member, at any depth.
pub(super) fn has_credential(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.iter().any(|(name, member)| {
            (name == "properties" && CREDENTIALS.iter().any(|credential| member.get(credential).is_some()))
                || has_credential(member)
        }),
        Value::Array(items) => items.iter().any(has_credential),
        _ => false,
    }
}

/// Whether a redacted value is in a request, at any depth.
pub(super) fn is_in(body: &Value) -> bool {
    match body {
        Value::String(text) => text == REDACTED,
        Value::Object(members) => members.values().any(is_in),
        Value::Array(items) => items.iter().any(is_in),
        _ => false,
    }
}

/// Replaces the secrets of a response.
pub(super) fn redact(response: &mut Value) {
    match response {
        Value::Object(members) => {
            for (name, member) in members {
                if !member.is_null() && is_secret(name) {
                    *member = REDACTED.into();
                } else {
                    redact(member);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        _ => {}
    }
}

fn is_secret(name: &str) -> bool {
    CREDENTIALS.contains(&name) || PRIVATE.contains(&name)
}

#[cfg(test)]
#[path = "../../../tests/unit/api/mcp/redaction.rs"]
mod tests;
