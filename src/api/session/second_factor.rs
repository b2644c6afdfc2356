//! Second factor. After a password, a one-time link or an OpenID sign-in, a teammate with a passkey gets a challenge instead of
//! a session. The session begins with its answer. Links require it, too, because other people may have read them.

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use chrono::{DateTime, Utc};
use passki::AuthenticationCredential;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::cookie;
use super::entry::{SignInVisitor, begin, let_in, link_account, refuse, refuse_saying, use_link};
use super::passkeys::{challenge_mac, relying_party};
use super::relying_party::{CHALLENGE_LASTS, PasskeyChallenge, PasskeyError, challenge_of, credential_id_of};
use crate::api::ApiState;
use crate::api::http::problem::{Problem, ProblemCode};
use bellwire_core::base64url;
use bellwire_core::id::TeammateId;
use bellwire_store::keys::oidc::ProviderAccount;
use bellwire_store::keys::passkeys::{self, FirstFactor, Passkey, ShownAccount};
use bellwire_store::keys::sessions::Owner;

/// Challenge for a passkey, before its owner is signed in.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PasskeyRequest {
    /// Argument of `PublicKeyCredential.parseRequestOptionsFromJSON()`. Pass its result as `publicKey` to
    /// `navigator.credentials.get()`.
    #[schema(value_type = Object)]
    options: Value,
    /// Expiry of the challenge. It can be answered once.
    expires_at: DateTime<Utc>,
}

/// Returns the response that requires a passkey after the first factor. `None`: the teammate has no passkey, and the first
/// factor is enough.
pub(super) async fn ask(
    state: &ApiState, teammate: TeammateId, shown: &FirstFactor,
) -> Result<Option<Response>, Problem> {
    let known = passkeys::list(&state.pool, teammate).await?;
    if known.is_empty() {
        return Ok(None);
    }
    let PasskeyChallenge { options, challenge } = relying_party(state)?.ask_to_sign(&known);
    let expires_at = keep(state, &challenge, teammate, shown).await?;
    Ok(Some(request(options, expires_at)))
}

/// Creates the challenge for a teammate who returned from the OpenID provider, for use by a page of this server ([`ask_on`]).
/// The browser stores it in the returned cookie.
pub(super) async fn ask_later(
    state: &ApiState, teammate: TeammateId, known: &[Passkey], shown: &FirstFactor,
) -> Result<HeaderValue, Problem> {
    let PasskeyChallenge { challenge, .. } = relying_party(state)?.ask_to_sign(known);
    keep(state, &challenge, teammate, shown).await?;
    let (name, secure) = (challenge_cookie(state), if state.settings.cookies.secure { "; Secure" } else { "" });
    let (value, lasts_s) = (base64url::encode(challenge), CHALLENGE_LASTS.as_secs());
    let text = format!("{name}={value}; Path=/; Max-Age={lasts_s}; HttpOnly; SameSite=Strict{secure}");
    Ok(HeaderValue::try_from(text).expect("the value is base64url"))
}

/// Returns the challenge created by [`ask_later`], any number of times. 401: the browser has none, or it has expired.
pub(super) async fn ask_on(
    state: &ApiState, visitor: &SignInVisitor, headers: &HeaderMap,
) -> Result<Response, Problem> {
    let ended = || {
        let detail =
            "Your sign-in at the provider was already used, or is older than five minutes. Sign in there again.";
        Problem::new(ProblemCode::SignInRefused, detail)
    };
    let text = cookie::value_of(headers, challenge_cookie(state)).ok_or_else(ended)?;
    // Counts as a guess at a key, which is as hard.
    state.limits.keys.attempt(text, visitor.client)?;
    let challenge = base64url::decode(text).ok_or_else(ended)?;
    let mac = challenge_mac(&state.vault, &challenge);
    let found = passkeys::find_challenge_after_oidc(&state.pool, &mac, state.clock.now()).await?;
    let (teammate, expires_at) = found.ok_or_else(ended)?;
    let known = passkeys::list(&state.pool, teammate).await?;
    Ok(request(relying_party(state)?.ask_to_sign_that(&challenge, &known), expires_at))
}

fn challenge_cookie(state: &ApiState) -> &'static str {
    if state.settings.cookies.secure { "__Host-bellwire-passkey" } else { "bellwire-passkey" }
}

/// Stores a challenge. Returns its expiry.
async fn keep(
    state: &ApiState, challenge: &[u8], teammate: TeammateId, shown: &FirstFactor,
) -> sqlx::Result<DateTime<Utc>> {
    let expires_at = state.clock.now() + CHALLENGE_LASTS;
    let mac = challenge_mac(&state.vault, challenge);
    passkeys::put_challenge_to_sign_in(&state.pool, &state.vault, &mac, teammate, shown, expires_at).await?;
    Ok(expires_at)
}

fn request(options: Value, expires_at: DateTime<Utc>) -> Response {
    (StatusCode::ACCEPTED, axum::Json(PasskeyRequest { options, expires_at })).into_response()
}

pub(super) async fn by_passkey(state: &ApiState, visitor: &SignInVisitor, answer: Value) -> Result<Response, Problem> {
    let party = relying_party(state)?;
    let malformed = |why: PasskeyError| Problem::invalid_member("/passkey", why.detail());
    let answer: AuthenticationCredential =
        serde_json::from_value(answer).map_err(|_| malformed(PasskeyError::Malformed))?;
    let challenge = challenge_of(&answer.response.client_data_json).map_err(malformed)?;
    let credential_id = credential_id_of(&answer).map_err(malformed)?;
    // Counts as a guess at a key, which is as hard.
    let attempt = state.limits.keys.attempt(&answer.response.client_data_json, visitor.client)?;
    let (mac, now) = (challenge_mac(&state.vault, &challenge), state.clock.now());
    // Used up in any case: a challenge is answered once.
    let Some((teammate, shown)) = passkeys::take_challenge_to_sign_in(&state.pool, &state.vault, &mac, now).await?
    else {
        attempt.failed();
        return Err(refused(state, visitor, None, PasskeyError::Challenge));
    };
    let mut tx = state.begin().await?;
    let checked = match passkeys::lock(&mut tx, teammate, &credential_id).await? {
        None => Err(PasskeyError::Passkey),
        Some(passkey) => {
            party.check_signed(&answer, challenge, teammate, &passkey).map(|counter| (passkey.id, counter))
        }
    };
    let (passkey, counter) = match checked {
        Ok(checked) => checked,
        Err(why) => {
            drop(tx);
            return Err(refused(state, visitor, Some(teammate), why));
        }
    };
    passkeys::note_use(&mut tx, passkey, counter, now).await?;
    let way = match shown {
        FirstFactor::Password => "password",
        FirstFactor::Link(link) => {
            if !use_link(&mut tx, state, visitor, teammate, &link).await? {
                drop(tx);
                return Err(refuse(state, visitor, Some(teammate), "link"));
            }
            "link"
        }
        FirstFactor::Oidc(ShownAccount { issuer, subject }) => {
            let account = ProviderAccount { issuer: &issuer, subject: &subject };
            if !link_account(&mut tx, state, visitor, teammate, account).await? {
                drop(tx);
                return Err(refused(state, visitor, Some(teammate), PasskeyError::Account));
            }
            "oidc"
        }
    };
    let detail = json!({"by": way, "passkey": passkey});
    let session = begin(&mut tx, state, visitor, Owner::Teammate(teammate), detail).await?;
    tx.commit().await?;
    let_in(state, session, None).await
}

/// Refuses an answer. The reason is logged, and not in the response.
fn refused(state: &ApiState, visitor: &SignInVisitor, teammate: Option<TeammateId>, why: PasskeyError) -> Problem {
    let detail = "The passkey was not accepted, or came too late. Start again.";
    refuse_saying(detail, state, visitor, teammate, json!({"by": "passkey", "why": why}))
}
