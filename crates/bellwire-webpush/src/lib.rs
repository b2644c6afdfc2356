//! Web push formats: plaintexts (`payload`, `shrink`), encryption (`seal` by RFC 8291 over RFC 8188, `sealer` for many at a
//! time), and the sender's identity (`vapid` by RFC 8292, `keys`). The main types are [`payload::PayloadTemplate`],
//! [`sealer::Sealer`], [`vapid::TokenCache`] and [`keys::SigningKey`]. This crate opens no socket and stores nothing. The
//! browser's side is in the simulator, which shares no code with this crate.

pub mod keys;
pub mod payload;
pub mod seal;
pub mod sealer;
pub mod shrink;
pub mod vapid;

use aws_lc_rs::hmac;

/// Octets before the record: salt (16), record size (4), length of the key id (1), key id (65). RFC 8188 section 2.1.
pub(crate) const HEADER_LEN: usize = 86;
/// Octets that sealing adds to plaintext and padding: header, delimiter and tag.
pub const OVERHEAD: usize = HEADER_LEN + 1 + TAG_LEN;

const SALT_LEN: usize = 16;
const TAG_LEN: usize = 16;
const RECORD_SIZE: u32 = 4096;
const KEY_INFO: &[u8] = b"WebPush: info\0";
const CEK_INFO: &[u8] = b"Content-Encoding: aes128gcm\0\x01";
const NONCE_INFO: &[u8] = b"Content-Encoding: nonce\0\x01";

/// Returns the HMAC-SHA-256 of the parts. It also serves as HKDF, which needs only one block here: extract is `hmac(salt,
/// input)`, expand is `hmac(prk, info | 1)` (RFC 5869).
fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    hmac_by(&hmac::Key::new(hmac::HMAC_SHA256, key), parts)
}

/// Like [`hmac_sha256`] with a prepared key, which takes a third of the time if the key is used repeatedly.
fn hmac_by(key: &hmac::Key, parts: &[&[u8]]) -> [u8; 32] {
    let mut context = hmac::Context::with_key(key);
    for part in parts {
        context.update(part);
    }
    context.sign().as_ref().try_into().expect("SHA-256 has 32 octets")
}

/// Returns the input keying material of RFC 8291 section 3.3, which both sides compute.
fn keying_material(shared: &[u8], auth: &[u8; 16], browser: &[u8; 65], sender: &[u8]) -> [u8; 32] {
    hmac_sha256(&hmac_sha256(auth, &[shared]), &[KEY_INFO, browser, sender, &[1]])
}

/// Returns content encryption key and nonce of the only record (RFC 8188 sections 2.2 and 2.3, sequence number 0).
fn record_key(keying_material: &[u8], salt: &[u8; SALT_LEN]) -> ([u8; 16], [u8; 12]) {
    let prk = hmac::Key::new(hmac::HMAC_SHA256, &hmac_sha256(salt, &[keying_material]));
    let (mut key, mut nonce) = ([0; 16], [0; 12]);
    key.copy_from_slice(&hmac_by(&prk, &[CEK_INFO])[..16]);
    nonce.copy_from_slice(&hmac_by(&prk, &[NONCE_INFO])[..12]);
    (key, nonce)
}
