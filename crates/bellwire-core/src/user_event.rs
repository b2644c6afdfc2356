//! Names of events that sites report about their users.

/// Rule of the names, for errors.
pub const EVENT_NAME_RULE: &str = "must be 1 to 64 letters, digits, `_`, `-` or `.`";

/// Whether a text is the name of an event: 1 to 64 ASCII letters, digits, `_`, `-` or `.`.
pub fn is_event_name(text: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    (1..=64).contains(&text.len()) && text.bytes().all(is_plain)
}
