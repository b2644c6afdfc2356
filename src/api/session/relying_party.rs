//! WebAuthn relying party: creates requests for authenticators, and verifies their responses. No I/O:
//! [`bellwire_store::keys::passkeys`] stores passkeys and challenges.

use std::time::Duration;

use passki::{
    AuthenticationCredential, AuthenticationOptions, AuthenticatorTransport, ClientData, Passki, PasskiError,
    RegistrationCredential, RegistrationOptions, StoredPasskey,
};
use serde::Serialize;
use serde_json::Value;
use url::{Host, Url};
use uuid::Uuid;

use bellwire_core::id::TeammateId;
use bellwire_store::keys::passkeys::Passkey;

pub(crate) const CHALLENGE_LASTS: Duration = Duration::from_secs(5 * 60);
/// Name of this server in the browser's dialogs.
const NAME: &str = "Bellwire";
/// Accepted COSE algorithms: EdDSA, ES256, ES384, RS256 and RS384.
const ALGORITHMS: [i32; 5] = [-8, -7, -35, -257, -258];
/// Maximum bytes of a public key. Credential ids have their own limit (WebAuthn section 5.8.3).
const PUBLIC_KEY_MAX: usize = 2_048;
const CREDENTIAL_ID_MAX: usize = 1_023;

/// Host and origin that passkeys are created for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelyingParty {
    /// Host: a passkey works under this one only.
    id: String,
    /// Origin of the pages that may request a passkey.
    origin: String,
}

/// Reason for which the response of an authenticator is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PasskeyError {
    /// The response is malformed.
    Malformed,
    /// The challenge does not exist, was used, or has expired.
    Challenge,
    /// The passkey does not belong to this teammate.
    Passkey,
    /// The request came from a page of another origin, or from a frame of another page.
    Origin,
    RelyingParty,
    /// The signature counter has not increased: the authenticator may have been copied.
    Counter,
    Signature,
    /// The account at the OpenID provider now belongs to another teammate.
    Account,
}

impl From<PasskiError> for PasskeyError {
    fn from(error: PasskiError) -> Self {
        match error {
            PasskiError::ChallengeMismatch => Self::Challenge,
            PasskiError::CredentialNotAllowed | PasskiError::CredentialIdMismatch => Self::Passkey,
            PasskiError::OriginMismatch { .. }
            | PasskiError::CrossOriginNotAllowed
            | PasskiError::TopOriginMismatch { .. } => Self::Origin,
            PasskiError::RpIdHashMismatch => Self::RelyingParty,
            PasskiError::CounterRegression => Self::Counter,
            PasskiError::SignatureVerificationFailed => Self::Signature,
            _ => Self::Malformed,
        }
    }
}

impl PasskeyError {
    pub(crate) fn detail(self) -> &'static str {
        match self {
            Self::Malformed => "must be the result of `toJSON()` on a credential from `navigator.credentials`",
            Self::Challenge => {
                "answers a challenge that was not given, has been answered, or has expired: ask for a new one"
            }
            Self::Passkey => "is a passkey that is not yours",
            Self::Origin => "comes from a page that is not this server's own",
            Self::RelyingParty => "was made for another host",
            Self::Counter => "was made by an authenticator that counts backwards: there may be a copy of it",
            Self::Signature => "is not signed by its passkey",
            Self::Account => "came with the account of another teammate",
        }
    }
}

#[derive(Debug)]
pub(crate) struct PasskeyChallenge {
    /// Options in JSON, for `navigator.credentials`.
    pub options: Value,
    /// Challenge to sign, 32 random bytes.
    pub challenge: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct RegisteredPasskey {
    pub credential_id: Vec<u8>,
    pub public_key: Vec<u8>,
    pub algorithm: i32,
    pub counter: u32,
    pub transports: Vec<String>,
}

impl RelyingParty {
    /// Returns the relying party for the public URL. `None`: browsers support no passkeys for it, because it has no TLS and is
    /// not on this machine, or is an IP address.
    pub fn of(public_url: &Url) -> Option<Self> {
        let Some(Host::Domain(host)) = public_url.host() else { return None };
        let is_trustworthy = match public_url.scheme() {
            "https" => true,
            "http" => host == "localhost" || host.ends_with(".localhost"),
            _ => false,
        };
        is_trustworthy.then(|| Self { id: host.to_owned(), origin: public_url.origin().ascii_serialization() })
    }

    fn verifier(&self) -> Passki {
        Passki::new(&self.id, &[&self.origin], NAME)
    }

    /// Returns the request for a new passkey. Authenticators that hold one of the `known` passkeys are excluded.
    pub(crate) fn ask_to_make(&self, teammate: TeammateId, email: &str, known: &[Passkey]) -> PasskeyChallenge {
        let known: Vec<_> = known.iter().map(stored).collect();
        let mut options = RegistrationOptions::default();
        options.timeout = CHALLENGE_LASTS.as_millis() as u64;
        options.exclude_credentials = Some(&known);
        let asked = self.verifier().start_passkey_registration(teammate.0.as_bytes(), email, email, options);
        let (options, state) = asked.expect("a UUID is as long as a user's id has to be");
        PasskeyChallenge { options: json(&options), challenge: state.challenge }
    }

    pub(crate) fn read_made(
        &self, credential: &RegistrationCredential, challenge: Vec<u8>,
    ) -> Result<RegisteredPasskey, PasskeyError> {
        let verifier = self.verifier();
        let (_, mut state) = verifier.start_passkey_registration(Uuid::nil().as_bytes(), "", "", Default::default())?;
        state.challenge = challenge;
        let made = verifier.finish_passkey_registration(credential, &state)?;
        let is_usable = ALGORITHMS.contains(&made.algorithm)
            && made.public_key.len() <= PUBLIC_KEY_MAX
            && (1..=CREDENTIAL_ID_MAX).contains(&made.credential_id.len());
        if !is_usable {
            return Err(PasskeyError::Malformed);
        }
        let StoredPasskey { credential_id, public_key, algorithm, counter, transports, .. } = made;
        let transports = transports.iter().filter_map(|way| json(way).as_str().map(str::to_owned)).collect();
        Ok(RegisteredPasskey { credential_id, public_key, algorithm, counter, transports })
    }

    /// Returns the request to sign a new challenge with one of the `known` passkeys.
    pub(crate) fn ask_to_sign(&self, known: &[Passkey]) -> PasskeyChallenge {
        let known: Vec<_> = known.iter().map(stored).collect();
        let mut options = AuthenticationOptions::default();
        options.timeout = CHALLENGE_LASTS.as_millis() as u64;
        let asked = self.verifier().start_passkey_authentication(&known, options);
        let (options, state) = asked.expect("no extension is asked for");
        PasskeyChallenge { options: json(&options), challenge: state.challenge }
    }

    /// Returns the request to sign an existing challenge.
    pub(crate) fn ask_to_sign_that(&self, challenge: &[u8], known: &[Passkey]) -> Value {
        let PasskeyChallenge { mut options, .. } = self.ask_to_sign(known);
        options["challenge"] = Passki::base64_encode(challenge).into();
        options
    }

    /// Verifies that this passkey signed this challenge. Returns the new signature counter.
    pub(crate) fn check_signed(
        &self, credential: &AuthenticationCredential, challenge: Vec<u8>, teammate: TeammateId, passkey: &Passkey,
    ) -> Result<u32, PasskeyError> {
        let (verifier, passkey) = (self.verifier(), stored(passkey));
        let asked = verifier.start_passkey_authentication(std::slice::from_ref(&passkey), Default::default());
        let (_, mut state) = asked?;
        state.challenge = challenge;
        let signed = verifier.finish_passkey_authentication(credential, &state, &passkey)?;
        // An authenticator that tells whose the passkey is has to agree (WebAuthn section 7.2, step 6).
        if signed.user_handle.is_some_and(|user| user != teammate.0.as_bytes()) {
            return Err(PasskeyError::Passkey);
        }
        Ok(signed.counter)
    }
}

/// Returns the challenge that a browser claims to answer. It is not verified.
pub(crate) fn challenge_of(client_data_json: &str) -> Result<Vec<u8>, PasskeyError> {
    Ok(Passki::base64_decode(&ClientData::from_base64(client_data_json)?.challenge)?)
}

/// Returns the credential id that the browser claims to have used. It is not verified.
pub(crate) fn credential_id_of(credential: &AuthenticationCredential) -> Result<Vec<u8>, PasskeyError> {
    Ok(Passki::base64_decode(&credential.raw_id)?)
}

fn stored(passkey: &Passkey) -> StoredPasskey {
    let way = |name: &String| serde_json::from_value::<AuthenticatorTransport>(name.as_str().into()).ok();
    let mut stored = StoredPasskey::default();
    stored.credential_id.clone_from(&passkey.credential_id);
    stored.public_key.clone_from(&passkey.public_key);
    stored.algorithm = passkey.algorithm;
    stored.counter = u32::try_from(passkey.counter).unwrap_or(u32::MAX);
    stored.transports = passkey.transports.iter().filter_map(way).collect();
    stored
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("it consists of strings, numbers and lists")
}

#[cfg(test)]
#[path = "../../../tests/unit/api/session/relying_party.rs"]
mod tests;
