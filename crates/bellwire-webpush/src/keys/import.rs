//! Reads VAPID pairs from the files of other senders: a private key anywhere in the text, and the public key if it is there, too.

use p256::SecretKey;
use p256::elliptic_curve::sec1::ToSec1Point as _;
use p256::pkcs8::DecodePublicKey as _;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::{KeyError, SigningKey, significant};
use bellwire_core::base64url;

/// Maximum nested encodings: base64 of a JSON file with PEM has two.
const WRAPPINGS_MAX: usize = 3;
/// Minimum length of a text that may be a key: hex has 64 characters, base64 of 30 bytes has 40.
const TOKEN_MIN: usize = 40;

/// Labels of private and public keys in text; `priv:` and `pub:` are those of `openssl ec -text`.
const PRIVATE: [&str; 2] = ["private", "priv:"];
const PUBLIC: [&str; 2] = ["public", "pub:"];

#[derive(Default)]
struct ParsedKeys {
    private: Vec<SigningKey>,
    public: Vec<[u8; 65]>,
    /// Reason for which the first text that looked like a key was refused.
    refused: Option<KeyError>,
}

impl SigningKey {
    /// Reads a private key in the forms of other senders: PEM (PKCS#8 or SEC1), a JWK or a set of JWKs, output of `web-push` as
    /// JSON or text, `.env`, YAML, or base64 or hex, in any spelling, of the number, of DER or of one of these files. Other text
    /// around it is ignored. A public key next to it (base64 or hex of the point, or PEM) must match.
    pub fn import(private: &str, public: Option<&str>) -> Result<Self, KeyError> {
        let mut found = ParsedKeys::default();
        found.read(private, WRAPPINGS_MAX);
        let stated = public.map(|public| point_of(public).ok_or(KeyError::PublicKey)).transpose()?;
        let ParsedKeys { private, public, refused } = found;
        if private.is_empty() || refused == Some(KeyError::PublicKey) {
            return Err(match refused {
                None | Some(KeyError::Unrecognised) if !public.is_empty() => KeyError::PublicOnly,
                refused => refused.unwrap_or(KeyError::Unrecognised),
            });
        }
        let belongs = |key: &Self| {
            stated.is_none_or(|it| it == key.public) && (public.is_empty() || public.contains(&key.public))
        };
        let mut fitting = private.into_iter().filter(belongs);
        match (fitting.next(), fitting.next()) {
            (None, _) => Err(KeyError::Mismatch),
            (Some(key), None) => Ok(key),
            (Some(_), Some(_)) => Err(KeyError::Several),
        }
    }
}

impl ParsedKeys {
    fn take(&mut self, key: Result<SigningKey, KeyError>) {
        match key {
            Ok(key) if self.private.iter().any(|known| known.public == key.public) => {}
            Ok(key) => self.private.push(key),
            Err(error) => self.refused = self.refused.take().or(Some(error)),
        }
    }

    fn take_public(&mut self, text: &str) {
        match point_of(text) {
            Some(point) => self.public.push(point),
            None => self.refused = Some(KeyError::PublicKey),
        }
    }

    fn read(&mut self, text: &str, wrappings: usize) {
        // Environment variables often carry PEM with its line ends spelt out, programs as strings that are joined.
        let text =
            Zeroizing::new(text.replace(['\u{feff}', '\u{fffd}', '\0'], "").replace("\\r", "").replace("\\n", "\n"));
        let text = text.trim();
        if text.contains("-----BEGIN ") {
            return self.read_pem(text);
        }
        match serde_json::from_str::<Value>(text) {
            Ok(json) if json.is_object() || json.is_array() => {
                self.read_json(&json, wrappings, true);
                if self.private.is_empty() && self.refused.is_none() {
                    self.read_json(&json, wrappings, false);
                }
                if self.private.is_empty() {
                    self.take(Err(KeyError::Jwk));
                }
            }
            _ => {
                self.read_text(text, wrappings);
                if self.private.is_empty() && text.starts_with('{') {
                    self.refused = Some(KeyError::Jwk);
                }
            }
        }
    }

    /// Reads all PEM blocks. Indentation, quotes and blanks in them, and text around them, are ignored.
    fn read_pem(&mut self, text: &str) {
        for block in text.split("-----BEGIN ").skip(1) {
            let Some((label, behind)) = block.split_once("-----") else { continue };
            let body = behind.split("-----END").next().unwrap_or_default();
            let body = Zeroizing::new(body.replace("\" +", "").replace("' +", ""));
            let is_base64 = |c: &char| c.is_ascii_alphanumeric() || "+/=".contains(*c);
            let dense = Zeroizing::new(body.chars().filter(is_base64).collect::<String>());
            match label {
                "PRIVATE KEY" | "EC PRIVATE KEY" if body.contains("ENCRYPTED") => self.take(Err(KeyError::Encrypted)),
                "PRIVATE KEY" | "EC PRIVATE KEY" => {
                    let der = base64url::decode_any(&dense).map(Zeroizing::new).ok_or(KeyError::Pem);
                    self.take(der.and_then(|der| SigningKey::from_octets(&der).map_err(|_| KeyError::Pem)));
                }
                "ENCRYPTED PRIVATE KEY" => self.take(Err(KeyError::Encrypted)),
                "PUBLIC KEY" => self.take_public(&dense),
                _ => {}
            }
        }
        self.public.extend(labelled(text, &PUBLIC).into_iter().filter_map(point_of));
        // The blocks may be another program's, and the VAPID key a line of its own.
        if self.private.is_empty() {
            self.private.extend(labelled(text, &PRIVATE).into_iter().find_map(|it| of_token(it).ok()));
        }
        if self.private.is_empty() && self.public.is_empty() {
            self.take(Err(KeyError::Pem));
        }
    }

    /// Reads JWKs and named keys at any depth. Without `by_name`, reads any member.
    fn read_json(&mut self, value: &Value, wrappings: usize, by_name: bool) {
        match value {
            Value::Object(jwk) if jwk.contains_key("kty") => self.take(of_jwk(jwk)),
            Value::Object(members) => {
                for (name, value) in members {
                    let name = name.to_ascii_lowercase();
                    match (value, wrappings.checked_sub(1)) {
                        (Value::String(text), Some(wrappings)) if name.contains("private") || !by_name => {
                            self.read(text, wrappings);
                        }
                        (Value::String(text), _)
                            if !name.contains("public") || text.contains("://") || text.is_empty() => {}
                        (Value::String(text), _) => self.take_public(text),
                        (value, _) => self.read_json(value, wrappings, by_name),
                    }
                }
            }
            Value::Array(items) if items.iter().all(Value::is_u64) && !items.is_empty() => {
                let octet = |item: &Value| u8::try_from(item.as_u64()?).ok();
                let octets = Zeroizing::new(items.iter().map_while(octet).collect::<Vec<u8>>());
                self.take(SigningKey::from_number(&octets));
            }
            Value::Array(items) => items.iter().for_each(|item| self.read_json(item, wrappings, by_name)),
            _ => {}
        }
    }

    /// Reads keys after labels. Without any label, reads all texts that look like keys.
    fn read_text(&mut self, text: &str, wrappings: usize) {
        let mut candidates = labelled(text, &PRIVATE);
        if candidates.is_empty() {
            let whole = text.trim_matches(|c: char| c.is_whitespace() || "\"'`;,".contains(c));
            candidates = std::iter::once(whole).chain(tokens(text)).collect();
        }
        let named = labelled(text, &PUBLIC).into_iter();
        // A path is not a key, and prose about both keys may precede the private one.
        let named: Vec<_> = named.filter(|it| !it.starts_with('/') && of_token(it).is_err()).collect();
        named.iter().for_each(|public| self.take_public(public));
        if named.is_empty() {
            self.public.extend(tokens(text).filter_map(point_of));
        }
        for candidate in candidates {
            match (octets_of(candidate).and_then(printable), wrappings.checked_sub(1)) {
                (Some(wrapped), Some(wrappings)) => self.read(&wrapped, wrappings),
                _ => self.take(of_token(candidate)),
            }
        }
    }
}

fn of_jwk(jwk: &Map<String, Value>) -> Result<SigningKey, KeyError> {
    let text = |name: &str| jwk.get(name).and_then(Value::as_str);
    if text("kty") != Some("EC") || text("crv") != Some("P-256") {
        return Err(KeyError::Jwk);
    }
    let number = |text: &str| base64url::decode_any(text).map(Zeroizing::new).ok_or(KeyError::Jwk);
    let key = SigningKey::from_number(&number(text("d").ok_or(KeyError::PublicOnly)?)?)?;
    for (given, own) in [(text("x"), &key.public[1..33]), (text("y"), &key.public[33..])] {
        if given.map(number).transpose()?.is_some_and(|given| significant(&given) != significant(own)) {
            return Err(KeyError::Mismatch);
        }
    }
    Ok(key)
}

/// Returns the keys behind labels, on their lines or below: `VAPID_PRIVATE_KEY=…`, `privateKey: '…'`, `<privateKey>…`, `Private Key:`,
/// or the hex lines that `openssl ec -text` prints below `priv:`.
fn labelled<'a>(text: &'a str, labels: &[&str]) -> Vec<&'a str> {
    let lower = text.to_ascii_lowercase();
    let ends = labels.iter().flat_map(|label| lower.match_indices(label).map(|(at, label)| at + label.len()));
    let is_hex = |c: char| c.is_ascii_hexdigit() || c == ':' || c.is_ascii_whitespace();
    let key = |end: usize| {
        let behind = &text[end..];
        // Lines of hex end where another label begins.
        let hex = &behind[..behind.find(|c| !is_hex(c)).unwrap_or(behind.len())];
        let hex = hex.rsplit_once('\n').map_or(hex, |(lines, _)| lines).trim();
        if hex.matches(':').count() > TOKEN_MIN / 2 { Some(hex) } else { tokens(behind).next() }
    };
    ends.filter_map(key).collect()
}

/// Returns the parts of a text that consist of key characters and are long enough for a key.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && !"+/_-".contains(c)).filter(|token| token.len() >= TOKEN_MIN)
}

/// Returns bytes as text if they are printable, so that they may contain a key. A raw key is not printable.
fn printable(octets: Vec<u8>) -> Option<Zeroizing<String>> {
    let is_text = |octet: &u8| octet.is_ascii_graphic() || octet.is_ascii_whitespace() || *octet > 0x7f;
    let octets = Zeroizing::new(octets);
    let fits = octets.len() >= TOKEN_MIN && octets.iter().all(is_text);
    str::from_utf8(&octets).ok().filter(|_| fits).map(|text| Zeroizing::new(text.to_owned()))
}

/// Reads base64 or hex of a number or of DER.
fn of_token(text: &str) -> Result<SigningKey, KeyError> {
    SigningKey::from_octets(&Zeroizing::new(octets_of(text).ok_or(KeyError::Unrecognised)?))
}

/// Reads a public key: base64 or hex of the point, compressed or not, or of DER, or PEM.
fn point_of(text: &str) -> Option<[u8; 65]> {
    let body = text.split_once("-----BEGIN PUBLIC KEY-----").and_then(|(_, behind)| behind.split("-----END").next());
    let octets = octets_of(body.unwrap_or(text).trim())?;
    if let Some(wrapped) = printable(octets.clone()) {
        return point_of(&wrapped);
    }
    let key = p256::PublicKey::from_sec1_bytes(&octets).ok();
    let key = key.or_else(|| p256::PublicKey::from_public_key_der(&octets).ok())?;
    key.to_sec1_point(false).as_bytes().try_into().ok()
}

/// Decodes base64 or hex. The lengths of keys in the two encodings are all different.
fn octets_of(text: &str) -> Option<Vec<u8>> {
    let digits: Zeroizing<String> =
        Zeroizing::new(text.trim_start_matches("0x").chars().filter(|c| *c != ':' && !c.is_whitespace()).collect());
    // 33 octets: OpenSSL prints a zero before a number that looks negative.
    if !matches!(digits.len(), 64 | 66 | 130) || !digits.bytes().all(|octet| octet.is_ascii_hexdigit()) {
        return base64url::decode_any(text);
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}

impl SigningKey {
    /// Parses a raw number, or DER (PKCS#8 or SEC1).
    fn from_octets(octets: &[u8]) -> Result<Self, KeyError> {
        use p256::pkcs8::DecodePrivateKey as _;
        if let Ok(secret) =
            SecretKey::from_pkcs8_der(octets).map_err(drop).or_else(|()| SecretKey::from_sec1_der(octets).map_err(drop))
        {
            return Self::from_private(secret.to_bytes().into());
        }
        if p256::PublicKey::from_sec1_bytes(octets).is_ok() || p256::PublicKey::from_public_key_der(octets).is_ok() {
            return Err(KeyError::PublicOnly);
        }
        Self::from_number(octets)
    }

    /// Parses a number of 32 bytes, or of the 30, 31 or 33 bytes with which tools write numbers with leading zeros or a leading
    /// one bit.
    fn from_number(octets: &[u8]) -> Result<Self, KeyError> {
        let number = significant(octets);
        if !(30..=33).contains(&octets.len()) || number.len() > 32 {
            return Err(KeyError::Length { octets: octets.len() });
        }
        let mut private = Zeroizing::new([0; 32]);
        private[32 - number.len()..].copy_from_slice(number);
        Self::from_private(*private)
    }
}
