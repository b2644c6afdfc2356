//! An authenticator in software, and the browser around it: makes passkeys without attestation and signs with them (WebAuthn
//! sections 5.1.3, 5.1.4 and 6.1). Written octet by octet, so that it shares nothing with the library that checks it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{Signature, SigningKey};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The user was there, and has shown a finger or a PIN.
const PRESENT_AND_VERIFIED: u8 = 0b101;
/// A new passkey follows.
const MADE: u8 = 0b0100_0000;

/// One passkey, and what keeps it.
pub struct Authenticator {
    key: SigningKey,
    credential_id: [u8; 16],
    /// User handle, set when the passkey is created.
    user: String,
    /// Number of signatures so far.
    pub counter: u32,
    /// Origin of the page that the browser shows.
    pub origin: String,
    /// The host that it takes for the one that asks, if it is not to believe the page.
    pub host: Option<&'static str>,
}

impl Authenticator {
    /// Another one for each number but 0.
    pub fn new(n: u8) -> Self {
        let key = SigningKey::from_slice(&[n; 32]).expect("a number below the order of the curve");
        let origin = "https://push.example".to_owned();
        Self { key, credential_id: [n; 16], user: String::new(), counter: 0, origin, host: None }
    }

    /// Result of `navigator.credentials.create()` for those options.
    pub fn make(&mut self, options: &Value) -> Value {
        options["user"]["id"].as_str().unwrap().clone_into(&mut self.user);
        let mut data = self.data(&options["rp"]["id"], MADE);
        data.extend([0; 16]); // of no known make
        data.extend((self.credential_id.len() as u16).to_be_bytes());
        data.extend(self.credential_id);
        data.extend(self.cose_key());
        // {"fmt": "none", "attStmt": {}, "authData": …}
        let mut attestation = b"\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x58".to_vec();
        attestation.push(u8::try_from(data.len()).expect("short enough for one octet"));
        attestation.extend(data);
        json!({
            "id": self.id(), "rawId": self.id(), "type": "public-key", "authenticatorAttachment": "cross-platform",
            "clientExtensionResults": {},
            "response": {
                "clientDataJSON": URL_SAFE_NO_PAD.encode(self.client_data("webauthn.create", options)),
                "attestationObject": URL_SAFE_NO_PAD.encode(attestation),
                "transports": ["usb", "nfc"],
            },
        })
    }

    /// Result of `navigator.credentials.get()` for those options.
    pub fn sign(&mut self, options: &Value) -> Value {
        self.counter += 1;
        let data = self.data(&options["rpId"], 0);
        let client_data = self.client_data("webauthn.get", options);
        let signed = [data.as_slice(), &Sha256::digest(&client_data)].concat();
        let signature: Signature = self.key.sign(&signed);
        json!({
            "id": self.id(), "rawId": self.id(), "type": "public-key", "clientExtensionResults": {},
            "response": {
                "clientDataJSON": URL_SAFE_NO_PAD.encode(client_data),
                "authenticatorData": URL_SAFE_NO_PAD.encode(data),
                "signature": URL_SAFE_NO_PAD.encode(signature.to_der()),
                "userHandle": self.user,
            },
        })
    }

    /// Id of the passkey.
    pub fn id(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.credential_id)
    }

    fn client_data(&self, kind: &str, options: &Value) -> Vec<u8> {
        let data =
            json!({"type": kind, "challenge": options["challenge"], "origin": self.origin, "crossOrigin": false});
        data.to_string().into_bytes()
    }

    /// `SHA-256 of the host (32) | flags (1) | counter (4)`.
    fn data(&self, host: &Value, flags: u8) -> Vec<u8> {
        let host = self.host.unwrap_or_else(|| host.as_str().unwrap());
        let mut data = Sha256::digest(host).to_vec();
        data.push(PRESENT_AND_VERIFIED | flags);
        data.extend(self.counter.to_be_bytes());
        data
    }

    /// {kty: EC2, alg: ES256, crv: P-256, x: …, y: …}
    fn cose_key(&self) -> Vec<u8> {
        let point = self.key.verifying_key().to_sec1_point(false);
        let (x, y) = point.as_bytes()[1..].split_at(32);
        [b"\xa5\x01\x02\x03\x26\x20\x01\x21\x58\x20", x, b"\x22\x58\x20", y].concat()
    }
}
