//! Error text of a push service, sanitised for storage: short, valid text without endpoints or tokens.

use http::HeaderMap;

use bellwire_core::lane::Gateway;

/// Maximum bytes of a stored text.
const DETAIL_MAX: usize = 500;
/// Maximum bytes of a body that are read.
const READ_MAX: usize = 4096;
/// Minimum length of a run of ASCII characters that counts as a token or key. A UUID has 36.
const TOKEN_MIN: usize = 40;
const REDACTED: &str = "[redacted]";

/// Returns the error text of a response: WNS puts it in a header, others in the body. `None`: no text.
pub(super) fn of_response(gateway: Gateway, headers: &HeaderMap, body: &[u8]) -> Option<Box<str>> {
    match headers.get("x-wns-error-description") {
        Some(words) if gateway == Gateway::Wns && !words.is_empty() => clean(words.as_bytes()),
        _ => clean(body),
    }
}

/// Converts bytes to clean text. Invalid UTF-8 is replaced, control characters become spaces, words that look like a URL or a
/// token are redacted, and the text is truncated to 500 bytes at a character boundary. Redaction comes first, so that
/// truncation cannot hide a secret.
fn clean(raw: &[u8]) -> Option<Box<str>> {
    let text = String::from_utf8_lossy(&raw[..raw.len().min(READ_MAX)]);
    let whole = if raw.len() > READ_MAX { text.rsplit_once(is_boundary).map_or("", |(whole, _)| whole) } else { &text };
    let mut out = String::new();
    for piece in whole.split_inclusive(is_boundary) {
        let word = piece.trim_end_matches(is_boundary);
        out.push_str(if looks_secret(word) { REDACTED } else { word });
        match piece[word.len()..].chars().next() {
            Some(blank) if blank.is_whitespace() || blank.is_control() => {
                out.push_str(if out.ends_with(' ') { "" } else { " " });
            }
            Some(quote) => out.push(quote),
            None => {}
        }
        if out.len() >= DETAIL_MAX {
            break;
        }
    }
    out.truncate(out.floor_char_boundary(DETAIL_MAX));
    let out = out.trim();
    (!out.is_empty()).then(|| out.into())
}

/// Whether a character ends a word. Control characters do, so that they cannot split a URL into parts that are not recognised.
fn is_boundary(c: char) -> bool {
    c.is_whitespace() || c.is_control() || matches!(c, '"' | '\'' | '`' | '<' | '>')
}

/// Whether a word contains a URL scheme, a host with a path (also with an escaped or percent-encoded slash), or a long run that
/// may be a token.
fn looks_secret(word: &str) -> bool {
    let host_with_path = || word.split_once('.').is_some_and(|(_, rest)| rest.contains('/'));
    let encoded = || word.to_ascii_lowercase().contains("%2f");
    let token = || word.split(|c: char| !c.is_ascii_graphic()).any(|run| run.len() >= TOKEN_MIN);
    word.contains("//") || host_with_path() || encoded() || token()
}

#[cfg(test)]
#[path = "../../../../tests/crates/rules/unit/classify/detail.rs"]
mod tests;
