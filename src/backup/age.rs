//! Encryption of files in the format of age (<https://age-encryption.org/v1>), with X25519 recipients only. The files
//! are compatible with `age` and `rage`. AWS-LC provides the ciphers.

use std::io::{self, BufRead, Read, Write};

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::{hkdf, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bech32::Hrp;
use bech32::primitives::decode::CheckedHrpstring;
use zeroize::Zeroizing;

use bellwire_vault::master_key::random;

pub(super) const MAGIC: &[u8] = b"age-encryption.org/v1\n";
const KEY_LEN: usize = 32;
const FILE_KEY_LEN: usize = 16;
const TAG_LEN: usize = 16;
/// Octets of plaintext in each chunk. The last chunk may be shorter.
const CHUNK: usize = 64 << 10;
/// Maximum length of a header line. Supported lines are shorter.
const LINE_MAX: u64 = 4_096;
/// Maximum recipients of a written file, and maximum lines of a header that is read.
const RECIPIENTS_MAX: usize = 64;
const LINES_MAX: usize = 1_024;

/// Error of an invalid recipient or identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WrongKey {
    #[error("a recipient must be an X25519 one of age, as `age-keygen` prints it: age1…")]
    Recipient,
    #[error("an identity must be an X25519 one of age, as `age-keygen` writes it: AGE-SECRET-KEY-1…")]
    Identity,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recipient([u8; KEY_LEN]);

impl std::str::FromStr for Recipient {
    type Err = WrongKey;

    fn from_str(text: &str) -> Result<Self, WrongKey> {
        decode("age", text).map(|octets| Self(*octets)).ok_or(WrongKey::Recipient)
    }
}

/// Private key of a recipient. `Debug` does not show it, and memory is zeroed on drop.
pub(crate) struct Identity(Zeroizing<[u8; KEY_LEN]>);

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity(…)")
    }
}

impl Identity {
    /// Parses a file of `age-keygen` with one identity on each line, and comments. Fails without an identity.
    pub(crate) fn parse_file(text: &str) -> Result<Vec<Self>, WrongKey> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let read = |line| decode("age-secret-key-", line).map(Self).ok_or(WrongKey::Identity);
        let identities = lines.map(read).collect::<Result<Vec<_>, _>>()?;
        if identities.is_empty() { Err(WrongKey::Identity) } else { Ok(identities) }
    }

    fn recipient(&self) -> Option<Recipient> {
        let public = self.private()?.compute_public_key().ok()?;
        public.as_ref().try_into().ok().map(Recipient)
    }

    fn private(&self) -> Option<PrivateKey> {
        PrivateKey::from_private_key(&X25519, &*self.0).ok()
    }

    /// Unwraps the file key of a stanza. Returns `None` if the stanza is for another recipient.
    fn unwrap(&self, share: &[u8; KEY_LEN], wrapped: &[u8]) -> Option<FileKey> {
        let key = wrapping_key(&self.private()?, share, share, &self.recipient()?)?;
        let mut octets = Zeroizing::new(wrapped.to_vec());
        let nonce = Nonce::assume_unique_for_key([0; NONCE_LEN]); // each key wraps once
        let plain = key.open_in_place(nonce, Aad::empty(), &mut octets).ok()?;
        <[u8; FILE_KEY_LEN]>::try_from(&*plain).ok().map(Zeroizing::new)
    }
}

type FileKey = Zeroizing<[u8; FILE_KEY_LEN]>;

/// Decodes a key of 32 octets from Bech32, in lower or upper case.
fn decode(prefix: &str, text: &str) -> Option<Zeroizing<[u8; KEY_LEN]>> {
    let decoded = CheckedHrpstring::new::<bech32::Bech32>(text).ok()?;
    if decoded.hrp() != Hrp::parse(prefix).ok()? {
        return None;
    }
    let octets: Zeroizing<Vec<u8>> = Zeroizing::new(decoded.byte_iter().collect());
    <[u8; KEY_LEN]>::try_from(octets.as_slice()).ok().map(Zeroizing::new)
}

/// Derives the key that wraps a file key from the X25519 agreement, bound to the share and the recipient.
fn wrapping_key(
    ours: &PrivateKey, theirs: &[u8; KEY_LEN], share: &[u8; KEY_LEN], recipient: &Recipient,
) -> Option<LessSafeKey> {
    let salt = [share.as_slice(), &recipient.0].concat();
    let theirs = UnparsedPublicKey::new(&X25519, theirs);
    // Fails for points of small order.
    agree(ours, theirs, (), |secret| Ok(cipher(&derive(&salt, secret, b"age-encryption.org/v1/X25519")))).ok()
}

fn cipher(key: &[u8; KEY_LEN]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key).expect("32 octets"))
}

fn derive(salt: &[u8], secret: &[u8], info: &[u8]) -> Zeroizing<[u8; KEY_LEN]> {
    let mut key = Zeroizing::new([0; KEY_LEN]);
    let pseudo_random = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret);
    let info = [info];
    let expanded = pseudo_random.expand(&info, hkdf::HKDF_SHA256).expect("one block");
    expanded.fill(&mut *key).expect("one block");
    key
}

fn header_key(file_key: &FileKey) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &*derive(&[], &**file_key, b"header"))
}

/// Returns the nonce of a chunk: its number in eleven octets, and 1 for the last chunk.
fn chunk_nonce(number: u64, is_last: bool) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[3..11].copy_from_slice(&number.to_be_bytes());
    nonce[11] = u8::from(is_last);
    Nonce::assume_unique_for_key(nonce)
}

/// Encrypts a stream. Without [`finish`](Self::finish) the file counts as truncated.
pub(super) struct Writer<W> {
    inner: W,
    key: LessSafeKey,
    number: u64,
    chunk: Vec<u8>,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(mut inner: W, recipients: &[Recipient]) -> io::Result<Self> {
        if recipients.is_empty() || recipients.len() > RECIPIENTS_MAX {
            return Err(io::Error::other(format!("a file is encrypted to 1 to {RECIPIENTS_MAX} recipients")));
        }
        let file_key: FileKey = Zeroizing::new(random());
        let mut header = MAGIC.to_vec();
        for recipient in recipients {
            header.extend_from_slice(stanza(&file_key, recipient)?.as_bytes());
        }
        header.extend_from_slice(b"---");
        let mac = hmac::sign(&header_key(&file_key), &header);
        header.extend_from_slice(format!(" {}\n", STANDARD_NO_PAD.encode(mac)).as_bytes());
        let nonce: [u8; 16] = random();
        inner.write_all(&header)?;
        inner.write_all(&nonce)?;
        let key = cipher(&derive(&nonce, &*file_key, b"payload"));
        Ok(Self { inner, key, number: 0, chunk: Vec::with_capacity(CHUNK + TAG_LEN) })
    }

    fn write_chunk(&mut self, is_last: bool) -> io::Result<()> {
        let nonce = chunk_nonce(self.number, is_last);
        self.key.seal_in_place_append_tag(nonce, Aad::empty(), &mut self.chunk).map_err(io::Error::other)?;
        self.number += 1;
        self.inner.write_all(&self.chunk)?;
        self.chunk.clear();
        Ok(())
    }

    /// Writes the last chunk, and returns the inner writer.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.write_chunk(true)?;
        Ok(self.inner)
    }
}

impl<W: Write> Write for Writer<W> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        // A full chunk is kept until more data arrives, because it may be the last one.
        if self.chunk.len() == CHUNK && !octets.is_empty() {
            self.write_chunk(false)?;
        }
        let taken = octets.len().min(CHUNK - self.chunk.len());
        self.chunk.extend_from_slice(&octets[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Returns the header stanza in which a recipient finds the file key.
fn stanza(file_key: &FileKey, recipient: &Recipient) -> io::Result<String> {
    let ours = PrivateKey::generate(&X25519).map_err(io::Error::other)?;
    let share = ours.compute_public_key().map_err(io::Error::other)?;
    let share: [u8; KEY_LEN] = share.as_ref().try_into().expect("32 octets");
    let key = wrapping_key(&ours, &recipient.0, &share, recipient)
        .ok_or_else(|| io::Error::other("the recipient is not a valid X25519 key"))?;
    let mut wrapped = file_key.to_vec();
    let nonce = Nonce::assume_unique_for_key([0; NONCE_LEN]); // each key wraps once
    key.seal_in_place_append_tag(nonce, Aad::empty(), &mut wrapped).map_err(io::Error::other)?;
    Ok(format!("-> X25519 {}\n{}\n", STANDARD_NO_PAD.encode(share), STANDARD_NO_PAD.encode(wrapped)))
}

fn damaged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Decrypts a stream. Each chunk is authenticated before it is returned; a truncated or changed file is an error.
pub(super) struct AgeReader<R> {
    inner: R,
    key: LessSafeKey,
    number: u64,
    chunk: Vec<u8>,
    at: usize,
    is_over: bool,
}

impl<R: BufRead> AgeReader<R> {
    /// Reads the header, and unwraps the file key with the first identity that fits.
    pub(super) fn new(mut inner: R, identities: &[Identity]) -> io::Result<Self> {
        let file_key = read_header(&mut inner, identities)?;
        let mut nonce = [0; 16];
        inner.read_exact(&mut nonce)?;
        let key = cipher(&derive(&nonce, &*file_key, b"payload"));
        Ok(Self { inner, key, number: 0, chunk: Vec::new(), at: 0, is_over: false })
    }

    fn read_chunk(&mut self) -> io::Result<()> {
        self.chunk.clear();
        self.at = 0;
        (&mut self.inner).take((CHUNK + TAG_LEN) as u64).read_to_end(&mut self.chunk)?;
        let is_last = self.inner.fill_buf()?.is_empty();
        let nonce = chunk_nonce(self.number, is_last);
        let opened = self.key.open_in_place(nonce, Aad::empty(), &mut self.chunk);
        let length = opened.map_err(|_| damaged("the file is damaged, or was cut off"))?.len();
        self.chunk.truncate(length);
        if length == 0 && self.number > 0 {
            return Err(damaged("the file ends in a chunk of nothing"));
        }
        self.number += 1;
        self.is_over = is_last;
        Ok(())
    }
}

impl<R: BufRead> Read for AgeReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.chunk.len() && !self.is_over {
            self.read_chunk()?;
        }
        let n = into.len().min(self.chunk.len() - self.at);
        into[..n].copy_from_slice(&self.chunk[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

/// Reads the header and verifies its MAC. Returns the file key.
fn read_header(inner: &mut impl BufRead, identities: &[Identity]) -> io::Result<FileKey> {
    let mut header = Vec::new();
    let mut line = read_line(inner)?;
    if line != MAGIC {
        return Err(damaged("not a file of age, version 1"));
    }
    let mut found = None;
    for _ in 0..LINES_MAX {
        header.append(&mut line);
        line = read_line(inner)?;
        if let Some(mac) = line.strip_prefix(b"--- ") {
            header.extend_from_slice(b"---");
            let file_key = found.ok_or_else(|| damaged("none of the identities can read it"))?;
            let mac = STANDARD_NO_PAD.decode(mac.trim_ascii_end()).map_err(|_| damaged("the header is damaged"))?;
            hmac::verify(&header_key(&file_key), &header, &mac).map_err(|_| damaged("the header is damaged"))?;
            return Ok(file_key);
        }
        let Some(share) = line.strip_prefix(b"-> X25519 ").and_then(key_in) else { continue };
        header.append(&mut line);
        line = read_line(inner)?;
        let wrapped = STANDARD_NO_PAD.decode(line.trim_ascii_end()).unwrap_or_default();
        found = found.or_else(|| identities.iter().find_map(|identity| identity.unwrap(&share, &wrapped)));
    }
    Err(damaged("the header has too many lines"))
}

fn key_in(text: &[u8]) -> Option<[u8; KEY_LEN]> {
    STANDARD_NO_PAD.decode(text.trim_ascii_end()).ok()?.try_into().ok()
}

fn read_line(inner: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    inner.take(LINE_MAX).read_until(b'\n', &mut line)?;
    if line.ends_with(b"\n") { Ok(line) } else { Err(damaged("the header is damaged, or was cut off")) }
}

#[cfg(test)]
#[path = "../../tests/unit/backup/age.rs"]
mod tests;
