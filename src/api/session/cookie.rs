//! Cookie of a session: a short-lived JWT with its id, renewed while it is used. The permissions of the session are not in it.
//! They are read with each request, so that removals apply at once.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, Method, header};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};

use crate::api::http::problem::{Problem, ProblemCode};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::SessionId;
use bellwire_vault::Vault;

/// Maximum time between two requests of a session. Its token expires then.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(30 * 60);
/// Age at which a used token is renewed.
const RENEWED_AFTER: Duration = Duration::from_secs(60);
/// Audience claim of session tokens, which distinguishes them from other tokens.
const AUDIENCE: &str = "bellwire/session";
/// Maximum bytes of a token. Longer ones are refused without parsing.
const TOKEN_MAX: usize = 1_024;

#[derive(Debug, Serialize, Deserialize)]
struct CookieClaims {
    aud: String,
    sid: SessionId,
    iat: i64,
    exp: i64,
}

/// A token signed by this server that has not expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::api) struct SessionToken {
    /// Session in the token. It may have ended.
    pub session: SessionId,
    pub is_stale: bool,
}

/// Signs a token for a session that ends at `expires_at` at the latest.
fn write(vault: &Vault, session: SessionId, now: Timestamp, expires_at: Timestamp) -> String {
    let (number, key) = vault.session_key();
    let header = Header { kid: Some(number.to_string()), ..Header::new(Algorithm::HS256) };
    let exp = (now + IDLE_MAX).min(expires_at).timestamp();
    let claims = CookieClaims { aud: AUDIENCE.to_owned(), sid: session, iat: now.timestamp(), exp };
    jsonwebtoken::encode(&header, &claims, &EncodingKey::from_secret(&key)).expect("claims are JSON")
}

/// Verifies a token. `None`: it was not signed by this server, or has expired.
pub(in crate::api) fn read(vault: &Vault, token: &str, now: Timestamp) -> Option<SessionToken> {
    if token.len() > TOKEN_MAX {
        return None;
    }
    let number = jsonwebtoken::decode_header(token).ok()?.kid?.parse().ok()?;
    let key = DecodingKey::from_secret(&vault.session_key_of(number)?);
    let mut validation = Validation::new(Algorithm::HS256);
    validation.set_audience(&[AUDIENCE]);
    validation.set_required_spec_claims(&["aud"]);
    validation.validate_exp = false; // by our own clock
    let CookieClaims { sid, iat, exp, .. } =
        jsonwebtoken::decode::<CookieClaims>(token, &key, &validation).ok()?.claims;
    let now_s = now.timestamp();
    let is_stale = now_s >= iat + RENEWED_AFTER.as_secs() as i64;
    (now_s < exp).then_some(SessionToken { session: sid, is_stale })
}

/// Name and attributes of the cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cookies {
    /// Whether browsers reach this server only by TLS.
    pub secure: bool,
}

impl Cookies {
    /// Returns the cookie's name. Its prefix `__Host-` prevents that another host or a plain connection sets it (RFC 6265bis
    /// section 4.1.3).
    fn name(self) -> &'static str {
        if self.secure { "__Host-bellwire" } else { "bellwire" }
    }

    /// Returns the session token of a request without other credentials.
    pub(crate) fn shown(self, headers: &HeaderMap) -> Option<&str> {
        if headers.contains_key(header::AUTHORIZATION) {
            return None;
        }
        value_of(headers, self.name())
    }

    /// Returns a `Set-Cookie` with a new token.
    pub(in crate::api) fn give(
        self, vault: &Vault, session: SessionId, now: Timestamp, expires_at: Timestamp,
    ) -> HeaderValue {
        let lasts_s = (expires_at - now).num_seconds().clamp(0, IDLE_MAX.as_secs() as i64);
        self.set(&write(vault, session, now, expires_at), lasts_s)
    }

    /// Returns a `Set-Cookie` that deletes the cookie.
    pub(in crate::api) fn take(self) -> HeaderValue {
        self.set("", 0)
    }

    fn set(self, value: &str, lasts_s: i64) -> HeaderValue {
        let secure = if self.secure { "; Secure" } else { "" };
        let text = format!("{}={value}; Path=/; Max-Age={lasts_s}; HttpOnly; SameSite=Strict{secure}", self.name());
        HeaderValue::try_from(text).expect("tokens are base64url and dots")
    }
}

/// Returns the value of a cookie in a request.
pub(in crate::api) fn value_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// Renewed cookie of a request, for its response. Clones share one value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Renewal(Arc<OnceLock<HeaderValue>>);

impl Renewal {
    pub(in crate::api) fn note(&self, cookie: HeaderValue) {
        let _ = self.0.set(cookie);
    }

    /// Writes the header, unless the response sets the cookie already.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        if let Some(cookie) = self.0.get()
            && !headers.contains_key(header::SET_COOKIE)
        {
            headers.insert(header::SET_COOKIE, cookie.clone());
        }
    }
}

/// Refuses a request that another site's page may have made a browser send with its cookie. `SameSite=Strict` prevents that, but
/// treats each subdomain as the same site. Browsers state the source of a request more exactly:
///
/// - `Sec-Fetch-Site` (Fetch Metadata), which all current browsers send over TLS and to this machine, must be `same-origin`. For
///   reads, `none` is accepted, which is a typed address.
/// - Without it, what changes anything must come with an `Origin` of the host that it is sent to.
pub(in crate::api) fn check_origin(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let reads = method.is_safe();
    let is_own = match headers.get("sec-fetch-site") {
        Some(site) => site == "same-origin" || (reads && site == "none"),
        None if reads => true,
        None => {
            let origin = text(header::ORIGIN).and_then(|origin| origin.split_once("://"));
            origin.is_some_and(|(_, host)| text(header::HOST).is_some_and(|own| own.eq_ignore_ascii_case(host)))
        }
    };
    if is_own {
        return Ok(());
    }
    let detail = "A session is accepted only from this server's own pages: `Sec-Fetch-Site` or `Origin` shows another source, or both are missing. Programs use an API key.";
    Err(Problem::new(ProblemCode::CrossSite, detail))
}

#[cfg(test)]
#[path = "../../../tests/unit/api/session/cookie.rs"]
mod tests;
