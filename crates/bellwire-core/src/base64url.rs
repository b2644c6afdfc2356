//! Base64 with the URL-safe alphabet and without padding.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

/// Encodes bytes without padding.
pub fn encode(octets: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(octets)
}

/// Decodes output of [`encode`], and nothing else.
pub fn decode(text: impl AsRef<[u8]>) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// Decodes base64 or base64url, with or without padding. Line breaks and blanks are skipped. For input from other programs,
/// which may be secret.
pub fn decode_any(text: &str) -> Option<Vec<u8>> {
    let url_safe = |b| match b {
        b'+' => b'-',
        b'/' => b'_',
        b => b,
    };
    let dense = Zeroizing::new(text.bytes().filter(|b| !b.is_ascii_whitespace()).map(url_safe).collect::<Vec<u8>>());
    let unpadded = dense.strip_suffix(b"==").or_else(|| dense.strip_suffix(b"=")).unwrap_or(&dense);
    decode(unpadded)
}
