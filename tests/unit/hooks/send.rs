//! Unit tests of `src/hooks/send.rs`, which includes them.

use super::*;

const URL: &str = "https://hooks.example/hook/T0123456/b?key=s3cr3ts3cr3t";

#[test]
fn response_text_is_one_short_line() {
    assert_eq!(words(b"", URL), None);
    assert_eq!(words(b" \r\n\0 ", URL), None);
    assert_eq!(words(b"no\r\n\tsuch\0thing ", URL).as_deref(), Some("no such thing"));
    assert_eq!(words("ä".repeat(4_096).as_bytes(), URL).map(|text| text.chars().count()), Some(REASON_MAX));
    assert!(words(&[0xff; 9], URL).is_some());
    let echo = format!("{}Cannot POST /hook/T0123456/b?key=s3cr3ts3cr3t", " ".repeat(REASON_MAX - 30));
    assert_eq!(words(echo.as_bytes(), URL).as_deref(), Some("Cannot POST /hook/…/b?key=…"));
}
