//! `/v1/session/oidc`: sign-in with an OpenID provider. The browser is redirected to the provider and returns with a code. The
//! teammate whom the provider identified is signed in, after a passkey if they have one ([`super::second_factor`]).

use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;
use sqlx::PgConnection;
use utoipa::IntoParams;
use uuid::Uuid;

use super::cookie::{self, Cookies};
use super::entry::{self, SignInVisitor, did, link_account};
use super::second_factor;
use crate::api::ApiState;
use crate::api::http::extract::{Query, is_plain_text};
use crate::api::http::problem::Problem;
use crate::api::http::signed_in::SignedIn;
use crate::api::session::email::normal_email;
use crate::api::state::config::OidcSignInConfig;
use crate::api::team::{removed_account, removed_email};
use bellwire_core::base64url;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::TeammateId;
use bellwire_core::named;
use bellwire_core::role::{Grant, Grants, Role};
use bellwire_net::oidc::{ATTEMPT_LASTS, OidcAttempt, OidcFailure, OidcPerson};
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::keys::oidc::{self, ProviderAccount};
use bellwire_store::keys::passkeys::{self, FirstFactor, ShownAccount};
use bellwire_store::keys::sessions::Owner;
use bellwire_store::keys::team::{self, TeammateStatus};
use bellwire_vault::OIDC_ATTEMPT;

pub(super) const BEGIN: &str = "/v1/session/oidc";
/// Path on this server to which the provider redirects browsers.
pub(crate) const CALLBACK: &str = "/v1/session/oidc/callback";
/// Path to which a sign-in finally redirects: after success, or with `?sign_in=` and [`PASSKEY`] or a [`Why`]. It is never
/// taken from a request.
///
/// The browser stores the session cookie, but does not send it with this navigation, because another site started it
/// (`SameSite=Strict`). The page needs no session, and its own requests have the cookie.
const LANDING: &str = "/admin/";
/// Value of `sign_in` if a passkey is required as the second step.
const PASSKEY: &str = "passkey";
/// Maximum bytes of a code and of the cookie (which has some 300). Longer ones are refused without parsing.
const CODE_MAX: usize = 4_096;
const COOKIE_MAX: usize = 1_024;
/// Maximum characters of a subject (OpenID Connect Core 1.0 section 2).
const SUBJECT_MAX: usize = 255;

named! {
    /// Reason of a refusal, in the address of the landing page and, except for [`Why::Attempt`], in the audit log.
    enum Why {
        /// The browser did not start the sign-in here, or too long ago.
        Attempt = "attempt",
        /// The person cancelled at the provider, or the provider refused them.
        Declined = "declined",
        Provider = "provider",
        Busy = "busy",
        Token = "token",
        Email = "email",
        Domain = "domain",
        Unknown = "unknown",
        /// The person was removed from the team, and is not added again as a newcomer.
        Removed = "removed",
        Disabled = "disabled",
        /// The address belongs to a teammate with another account at the provider.
        OtherAccount = "other_account",
        /// The teammate has a passkey, but this server has no public name for which browsers use passkeys.
        PasskeysUnavailable = "passkeys_unavailable",
    }
}

/// Logs the details of a failure. Returns the reason that the person sees.
fn noted(failure: OidcFailure) -> Why {
    tracing::warn!(%failure, "the sign-in at the OpenID provider failed");
    match failure {
        OidcFailure::Unavailable(_) => Why::Provider,
        OidcFailure::Refused(_) => Why::Token,
        OidcFailure::Busy => Why::Busy,
    }
}

enum SignInFailure {
    /// Refusal, with the teammate if they were identified.
    Refused(Why, Option<TeammateId>),
    Problem(Problem),
}

impl From<Why> for SignInFailure {
    fn from(why: Why) -> Self {
        Self::Refused(why, None)
    }
}

impl From<Problem> for SignInFailure {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<sqlx::Error> for SignInFailure {
    fn from(error: sqlx::Error) -> Self {
        Self::Problem(error.into())
    }
}

/// Parameters that the provider adds to the callback's address. Unknown ones are ignored.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct CallbackParams {
    /// State of the sign-in attempt.
    state: Option<String>,
    /// Authorization code.
    code: Option<String>,
    /// Error code of the provider, instead of `code`.
    error: Option<String>,
}

/// Redirects a browser to the OpenID provider, from which it must return to `/v1/session/oidc/callback` within ten minutes.
/// Navigate to this route: failures also end at a page of this server.
#[utoipa::path(get, path = "/v1/session/oidc", tag = "Team",
    responses((status = 303, description = "On to the provider"), (status = 404, description = "This server has none")))]
pub(crate) async fn begin(State(state): State<ApiState>, parts: Parts) -> Result<Response, Problem> {
    let settings = settings(&state)?;
    // Another site is not to sign anybody in, be it as themselves.
    if parts.headers.contains_key("sec-fetch-site") {
        cookie::check_origin(&parts.method, &parts.headers)?;
    }
    let cookies = state.settings.cookies;
    Ok(match settings.provider.begin(state.clock.now()).await {
        Ok((url, attempt)) => go(url.as_str(), &[keep(&state, &attempt)]),
        Err(failure) => land(Some(noted(failure).name()), &[forget(cookies)]),
    })
}

struct Arrived {
    /// Cookie for the browser: the session, or the challenge for a passkey.
    cookie: HeaderValue,
    word: Option<&'static str>,
}

/// Completes a sign-in when a browser returns from the OpenID provider with a code. It redirects to a page of this server: with
/// a session, with `?sign_in=passkey` if a passkey is required first, or with `?sign_in=` and the reason of a refusal.
#[utoipa::path(get, path = "/v1/session/oidc/callback", tag = "Team",
    responses((status = 303, description = "On to a page of this server"), (status = 404, description = "This server has no provider")))]
pub(crate) async fn callback(
    State(state): State<ApiState>, parts: Parts, Query(answer): Query<CallbackParams>,
) -> Result<Response, Problem> {
    let settings = settings(&state)?;
    let cookies = state.settings.cookies;
    let visitor = SignInVisitor::of(&parts, &state);
    state.limits.client(visitor.client)?;
    let arrival = Arrival { state: &state, settings, visitor: &visitor, now: state.clock.now() };
    match arrival.sign_in(&parts.headers, answer).await {
        Ok(Arrived { cookie, word }) => Ok(land(word, &[cookie, forget(cookies)])),
        // Anybody comes back without having been sent off: that tells of nothing, and costs nothing.
        Err(SignInFailure::Refused(why @ Why::Attempt, _)) => Ok(land(Some(why.name()), &[forget(cookies)])),
        Err(SignInFailure::Refused(why, teammate)) => {
            let detail = json!({"by": "oidc", "why": why.name()});
            entry::record_refusal(&state, &visitor, teammate, detail);
            Ok(land(Some(why.name()), &[forget(cookies)]))
        }
        Err(SignInFailure::Problem(problem)) => Err(problem),
    }
}

/// Returns the settings of the provider. 404: no provider is configured.
fn settings(state: &ApiState) -> Result<&OidcSignInConfig, Problem> {
    state.settings.oidc.as_ref().ok_or_else(|| Problem::not_found("way to sign in"))
}

struct Arrival<'a> {
    state: &'a ApiState,
    settings: &'a OidcSignInConfig,
    visitor: &'a SignInVisitor,
    now: Timestamp,
}

impl Arrival<'_> {
    /// Returns the new session of a browser, or the challenge for its passkey.
    async fn sign_in(&self, headers: &HeaderMap, answer: CallbackParams) -> Result<Arrived, SignInFailure> {
        let &Self { state, settings, visitor, now } = self;
        let shown = answer.state.unwrap_or_default();
        let attempt = kept(state, headers).filter(|attempt| attempt.is_answered_by(&shown, now)).ok_or(Why::Attempt)?;
        let code = match (answer.code, answer.error) {
            (Some(code), None) if code.len() <= CODE_MAX => code,
            (_, Some(error)) if error == "access_denied" => return Err(Why::Declined.into()),
            _ => return Err(Why::Provider.into()),
        };
        // Counts as a guess at a key, which is as hard, and costs the provider a request.
        state.limits.keys.attempt(&code, visitor.client)?;
        let person = settings.provider.finish(attempt, code, now).await.map_err(noted)?;
        let mut tx = state.begin().await?;
        let teammate = self.admit(&mut tx, &person).await?;
        let passkeys = passkeys::list(&mut *tx, teammate).await?;
        if !passkeys.is_empty() {
            tx.rollback().await?; // the account is linked with the passkey's answer
            if state.settings.relying_party.is_none() {
                return Err(SignInFailure::Refused(Why::PasskeysUnavailable, Some(teammate)));
            }
            let issuer = settings.provider.issuer().to_owned();
            let shown = FirstFactor::Oidc(ShownAccount { issuer, subject: person.subject });
            let cookie = second_factor::ask_later(state, teammate, &passkeys, &shown).await?;
            return Ok(Arrived { cookie, word: Some(PASSKEY) });
        }
        let session = entry::begin(&mut tx, state, visitor, Owner::Teammate(teammate), json!({"by": "oidc"})).await?;
        tx.commit().await?;
        let SignedIn { session, .. } = entry::read_back(state, session, None).await?;
        let cookie = state.settings.cookies.give(&state.vault, session.id, session.began_at, session.expires_at);
        Ok(Arrived { cookie, word: None })
    }

    /// Returns the teammate whom the provider identified: the owner of the linked account, even if its e-mail address has
    /// changed.
    async fn admit(&self, conn: &mut PgConnection, person: &OidcPerson) -> Result<TeammateId, SignInFailure> {
        if !is_plain_text(&person.subject, SUBJECT_MAX) {
            return Err(Why::Token.into());
        }
        let email = person.email.as_deref().and_then(normal_email).ok_or(Why::Email)?;
        let domains = &self.settings.domains;
        let is_of = |domain: &String| email.rsplit_once('@').is_some_and(|(_, own)| own == domain);
        if !domains.is_empty() && !domains.iter().any(is_of) {
            return Err(Why::Domain.into());
        }
        let account = ProviderAccount { issuer: self.settings.provider.issuer(), subject: &person.subject };
        let known = match oidc::owner(conn, account).await? {
            Some(owner) => owner,
            None => self.introduce(conn, account, &email).await?,
        };
        if known.is_disabled {
            return Err(SignInFailure::Refused(Why::Disabled, Some(known.id)));
        }
        Ok(known.id)
    }

    /// Finds the teammate of a provider account that is not linked yet, by its verified e-mail address, and links the account.
    /// The caller rolls back if the sign-in is refused.
    async fn introduce(
        &self, conn: &mut PgConnection, account: ProviderAccount<'_>, email: &str,
    ) -> Result<TeammateStatus, SignInFailure> {
        let mut known = team::lock_by_email(conn, email).await?;
        if let (None, Some(role)) = (known, self.settings.newcomers) {
            let vault = &self.state.vault;
            // A removed teammate has to be invited: the invitation creates an account.
            if team::was_removed(conn, &removed_email(vault, email), &removed_account(vault, account)).await? {
                return Err(Why::Removed.into());
            }
            self.add(conn, email, role).await?;
            known = team::lock_by_email(conn, email).await?;
        }
        let known = known.ok_or(Why::Unknown)?;
        match link_account(conn, self.state, self.visitor, known.id, account).await? {
            true => Ok(known),
            false => Err(SignInFailure::Refused(Why::OtherAccount, Some(known.id))),
        }
    }

    /// Adds a teammate without an invitation, unless a concurrent request has done so.
    async fn add(&self, conn: &mut PgConnection, email: &str, role: Role) -> Result<(), SignInFailure> {
        let (id, grants) = (TeammateId(self.state.clock.uuid()), Grants(vec![Grant { role, app: None }]));
        if team::add(conn, id, email, self.now).await? {
            team::set_grants(conn, id, &grants).await?;
            let joined = did(self.visitor, id, AuditAction::TeammateJoined).with(json!({"roles": grants}));
            joined.record(conn, 1, self.now).await?;
        }
        Ok(())
    }
}

/// Returns the name of the cookie that a browser keeps during the sign-in at the provider. Its prefix `__Host-` prevents that
/// another host sets one, and signs a person in as someone else. The prefix excludes a cookie limited to the callback's path
/// (RFC 6265bis section 4.1.3), which matters less.
fn cookie_name(cookies: Cookies) -> &'static str {
    if cookies.secure { "__Host-bellwire-oidc" } else { "bellwire-oidc" }
}

/// Builds the cookie. `SameSite=Lax`, because the browser must send it when the provider redirects it back.
fn set_cookie(cookies: Cookies, value: &str, lasts_s: u64) -> HeaderValue {
    let (name, secure) = (cookie_name(cookies), if cookies.secure { "; Secure" } else { "" });
    let text = format!("{name}={value}; Path=/; Max-Age={lasts_s}; HttpOnly; SameSite=Lax{secure}");
    HeaderValue::try_from(text).expect("the value is base64url")
}

fn keep(state: &ApiState, attempt: &OidcAttempt) -> HeaderValue {
    let plain = serde_json::to_vec(attempt).expect("an attempt consists of texts and a number");
    let sealed = state.vault.seal(OIDC_ATTEMPT, Uuid::nil(), &plain);
    set_cookie(state.settings.cookies, &base64url::encode(sealed), ATTEMPT_LASTS.as_secs())
}

fn kept(state: &ApiState, headers: &HeaderMap) -> Option<OidcAttempt> {
    let value =
        cookie::value_of(headers, cookie_name(state.settings.cookies)).filter(|value| value.len() <= COOKIE_MAX)?;
    let plain = state.vault.open(OIDC_ATTEMPT, Uuid::nil(), &base64url::decode(value)?).ok()?;
    serde_json::from_slice(&plain).ok()
}

/// Deletes the cookie, because an attempt can be completed only once.
fn forget(cookies: Cookies) -> HeaderValue {
    set_cookie(cookies, "", 0)
}

/// Redirects a browser to a page of this server. `word` is the reason why it is not signed in yet.
fn land(word: Option<&str>, cookies: &[HeaderValue]) -> Response {
    match word {
        None => go(LANDING, cookies),
        Some(word) => go(&format!("{LANDING}?sign_in={word}"), cookies),
    }
}

/// Redirects a browser and sets cookies.
fn go(there: &str, cookies: &[HeaderValue]) -> Response {
    let there = HeaderValue::from_str(there).expect("URLs are ASCII");
    let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, there)]).into_response();
    for cookie in cookies {
        response.headers_mut().append(header::SET_COOKIE, cookie.clone());
    }
    response
}
