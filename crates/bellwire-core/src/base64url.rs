//! Base64 with the URL-safe alphabet and without padding: octets as text, wherever they go.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

/// Encodes octets without padding.
pub fn encode(octets: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(octets)
}

/// Reads what [`encode`] writes, and nothing else.
pub fn decode(text: impl AsRef<[u8]>) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// Reads base64 in any of its four spellings: standard or URL-safe alphabet, padded or not. Line breaks of MIME and blanks are passed
/// over. For what others write, which may be a secret.
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
