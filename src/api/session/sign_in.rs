//! `POST /v1/session`: sign-in by password, link or operator's key, and the passkey step. OpenID Connect starts in
//! [`super::oidc`].

use std::net::IpAddr;

use axum::extract::{FromRequest as _, Request, State};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use zeroize::Zeroizing;

use super::SessionResponse;
use super::entry::{SignInVisitor, begin, let_in, refuse, use_link};
use super::second_factor::{self, PasskeyRequest};
use crate::api::ApiState;
use crate::api::http::auth::find;
use crate::api::http::extract::{BodyLimit, Json};
use crate::api::http::limits::{HashedName, SignInAttempt, Wait};
use crate::api::http::problem::{Faults, Problem};
use crate::api::session::email::{EMAIL_RULE, normal_email};
use crate::api::session::passwords::{Password, PasswordPermit, Requester};
use bellwire_core::id::TeammateId;
use bellwire_core::role::{Grant, Grants};
use bellwire_core::scope::Scope;
use bellwire_net::http_server::address::household;
use bellwire_store::keys::api_keys;
use bellwire_store::keys::passkeys::{FirstFactor, ShownLink};
use bellwire_store::keys::sessions::{self, Owner};
use bellwire_store::keys::team;
use bellwire_vault::{Purpose, Vault};

pub(crate) const LINK_PREFIX: &str = "bwl_";
/// Maximum bytes of a sign-in request.
const BODY_MAX: usize = 4_096;

/// A secret in a request. `Debug` hides it, and its memory is zeroed on drop.
#[derive(Deserialize)]
#[serde(from = "String")]
pub(crate) struct PresentedSecret(Zeroizing<String>);

impl From<String> for PresentedSecret {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl std::fmt::Debug for PresentedSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PresentedSecret(…)")
    }
}

/// Credentials of a sign-in: `email` and `password`, `api_key`, `link`, or `oidc` after the provider's redirect. With `passkey`
/// if one was requested.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignIn {
    /// E-mail address of the teammate.
    email: Option<String>,
    /// Password of the teammate.
    #[schema(value_type = Option<String>)]
    password: Option<Password>,
    /// Operator's key, `bw_…`. The session has its permissions and ends with it.
    #[schema(value_type = Option<String>)]
    api_key: Option<PresentedSecret>,
    /// Token of a one-time link, `bwl_…`: the part after the `#`.
    #[schema(value_type = Option<String>)]
    link: Option<PresentedSecret>,
    /// New password, together with `link`: 12 characters to 512 bytes, and not the e-mail address.
    #[schema(value_type = Option<String>)]
    new_password: Option<Password>,
    /// `true` on a page that the server opened with `?sign_in=passkey` after the OpenID provider: the response requests the
    /// passkey (202).
    oidc: Option<bool>,
    /// Result of `navigator.credentials.get()` for the `options` of a 202, as its `toJSON()` returns it.
    #[schema(value_type = Option<Object>)]
    passkey: Option<Value>,
}

enum Way {
    Password(String, Password),
    Key(PresentedSecret),
    Link(PresentedSecret, Option<Password>),
    Oidc,
    Passkey(Value),
}

impl SignIn {
    fn way(self) -> Result<Way, Problem> {
        let Self { email, password, api_key, link, new_password, oidc, passkey } = self;
        let oidc = oidc.unwrap_or_default();
        match (email, password, api_key, link, new_password, oidc, passkey) {
            (Some(email), Some(password), None, None, None, false, None) => Ok(Way::Password(email, password)),
            (None, None, Some(key), None, None, false, None) => Ok(Way::Key(key)),
            (None, None, None, Some(link), new, false, None) => Ok(Way::Link(link, new)),
            (None, None, None, None, None, true, None) => Ok(Way::Oidc),
            (None, None, None, None, None, false, Some(passkey)) => Ok(Way::Passkey(passkey)),
            _ => Err(Problem::invalid_member(
                "",
                "must hold either `email` and `password`, or `api_key`, or `link` and possibly `new_password`, or `oidc`, or \
                 `passkey`",
            )),
        }
    }
}

/// Signs in and starts a session. The session cookie cannot be used by scripts and other sites. The session ends after 30
/// minutes without a request, after 12 hours, or by sign-out. After each failure the required delay is longer (429), and excess
/// sign-ins should be retried (503). If the teammate has a passkey, the first response (202) requests it, and a second request
/// with its answer signs in.
#[utoipa::path(post, path = "/v1/session", tag = "Team", request_body = SignIn,
    responses((status = 201, body = SessionResponse),
        (status = 202, body = PasskeyRequest, description = "There is no session yet: a passkey has to sign this first")))]
pub(crate) async fn sign_in(State(state): State<ApiState>, request: Request) -> Result<Response, Problem> {
    let (visitor, headers, body) = read::<SignIn>(&state, request).await?;
    match body.way()? {
        Way::Password(email, password) => by_password(&state, &visitor, &email, password).await,
        Way::Key(key) => by_key(&state, &visitor, &key.0).await,
        Way::Link(link, new_password) => by_link(&state, &visitor, &link.0, new_password).await,
        Way::Oidc => second_factor::ask_on(&state, &visitor, &headers).await,
        Way::Passkey(answer) => second_factor::by_passkey(&state, &visitor, answer).await,
    }
}

/// A one-time link.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkRequest {
    /// Token of the link, `bwl_…`: the part after the `#`.
    #[schema(value_type = String)]
    link: PresentedSecret,
}

/// Account of a one-time link.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LinkAccount {
    /// E-mail address of the teammate.
    email: String,
    /// Roles of the teammate.
    #[schema(value_type = Vec<Grant>)]
    roles: Grants,
}

/// Returns the account of a one-time link, which stays valid. An invalid link counts as a failed sign-in.
#[utoipa::path(post, path = "/v1/session/link", tag = "Team", request_body = LinkRequest,
    responses((status = 200, body = LinkAccount)))]
pub(crate) async fn show_link(
    State(state): State<ApiState>, request: Request,
) -> Result<axum::Json<LinkAccount>, Problem> {
    let (visitor, _, LinkRequest { link }) = read(&state, request).await?;
    let id = teammate_of(&state, &visitor, &link.0, &link_mac(&state.vault, &link.0)).await?;
    let teammate = team::find(&state.pool, id).await?.ok_or_else(|| refuse(&state, &visitor, None, "link"))?;
    Ok(axum::Json(LinkAccount { email: teammate.email, roles: teammate.roles }))
}

/// Reads the body of a request without a session.
async fn read<T: DeserializeOwned + ToSchema>(
    state: &ApiState, request: Request,
) -> Result<(SignInVisitor, HeaderMap, T), Problem> {
    let (mut parts, body) = request.into_parts();
    // Another site must not sign a user in under a foreign account. Programs send no such header, and need no cookie for this.
    if parts.headers.contains_key("sec-fetch-site") || parts.headers.contains_key(header::ORIGIN) {
        super::cookie::check_origin(&parts.method, &parts.headers)?;
    }
    let visitor = SignInVisitor::of(&parts, state);
    // Anybody may ask, so that costs little: neither memory nor, too often, a look into the database.
    state.limits.client(visitor.client)?;
    let headers = parts.headers.clone();
    parts.extensions.insert(BodyLimit(BODY_MAX));
    let Json(body, _) = Json::<T>::from_request(Request::from_parts(parts, body), state).await?;
    Ok((visitor, headers, body))
}

async fn by_password(
    state: &ApiState, visitor: &SignInVisitor, email: &str, password: Password,
) -> Result<Response, Problem> {
    let email = normal_email(email).ok_or_else(|| Problem::invalid_member("/email", EMAIL_RULE))?;
    let guess = Guess::begin(state, &email, visitor.client).await?;
    let known = team::credentials(&state.pool, &state.vault, &email).await?;
    let id = known.as_ref().map(|known| known.id);
    // A disabled account has no password.
    let hash = known.filter(|known| known.disabled_at.is_none()).and_then(|known| known.password_hash);
    let is_right = guess.check(password, hash.clone()).await?;
    let Some(teammate) = id.filter(|_| is_right) else { return Err(refuse(state, visitor, id, "password")) };
    // Only now: neither a response nor its delay reveals which accounts have a passkey.
    if let Some(request) = second_factor::ask(state, teammate, &FirstFactor::Password).await? {
        return Ok(request);
    }
    let mut tx = state.begin().await?;
    // It may have been changed while it was hashed, because it has leaked.
    if !team::keep_credentials(&mut tx, &state.vault, teammate, hash.as_deref()).await? {
        drop(tx);
        return Err(refuse(state, visitor, id, "password"));
    }
    let session = begin(&mut tx, state, visitor, Owner::Teammate(teammate), json!({"by": "password"})).await?;
    tx.commit().await?;
    let_in(state, session, None).await
}

/// Attempt at a password. It counts as a failure until it succeeds.
pub(super) struct Guess<'a> {
    state: &'a ApiState,
    attempt: SignInAttempt<'a>,
    email: &'a str,
    client: IpAddr,
    is_known: bool,
}

impl<'a> Guess<'a> {
    /// Begins an attempt. 429: too many failures of this client or for this name. The response is the same for unknown names.
    pub(super) async fn begin(state: &'a ApiState, email: &'a str, client: IpAddr) -> Result<Self, Problem> {
        let name: HashedName = state.vault.mac(Purpose::SignIn, &[email.as_bytes()]);
        let begin = |is_known| state.limits.sign_ins.attempt(name, client, is_known, state.clock.now());
        let (attempt, is_known) = match begin(false) {
            Ok(attempt) => (attempt, false),
            Err(Wait::Anybody(problem)) => return Err(problem),
            Err(Wait::Strangers(problem)) => match sessions::knows(&state.pool, email, household(client)).await? {
                true => (begin(true).map_err(Wait::into_problem)?, true),
                false => return Err(problem),
            },
        };
        Ok(Self { state, attempt, email, client, is_known })
    }

    /// Verifies the password. The caller decides about the response. 503: too many sign-ins at a time.
    pub(super) async fn check(self, password: Password, hash: Option<String>) -> Result<bool, Problem> {
        let place = match self.place().await {
            Ok(place) => place,
            Err(busy) => {
                self.attempt.undone();
                return Err(busy);
            }
        };
        let is_right = self.state.passwords.verify(place, password, hash).await?;
        if is_right {
            self.attempt.succeeded();
        }
        Ok(is_right)
    }

    async fn place(&self) -> Result<PasswordPermit, Problem> {
        let Self { state, .. } = self;
        let refused = match state.passwords.place(if self.is_known { Requester::ByKnown } else { Requester::ByAnybody })
        {
            Err(refused) if !self.is_known => refused,
            placed => return placed,
        };
        match sessions::knows(&state.pool, self.email, household(self.client)).await? {
            true => state.passwords.place(Requester::ByKnown),
            false => Err(refused),
        }
    }
}

async fn by_key(state: &ApiState, visitor: &SignInVisitor, secret: &str) -> Result<Response, Problem> {
    let attempt = state.limits.keys.attempt(secret, visitor.client)?;
    let found = find(state, (api_keys::mac(&state.vault, secret), None)).await?;
    let Some((key, _)) = found else {
        attempt.failed();
        return Err(refuse(state, visitor, None, "api_key"));
    };
    attempt.succeeded(key.id.into())?;
    if !key.may(Scope::Operator) {
        return Err(Problem::forbidden_member("/api_key", "must be an operator's key"));
    }
    let mut tx = state.begin().await?;
    let session = begin(&mut tx, state, visitor, Owner::Key(key.id), json!({"by": "api_key"})).await?;
    tx.commit().await?;
    let_in(state, session, Some(key)).await
}

async fn by_link(
    state: &ApiState, visitor: &SignInVisitor, token: &str, new_password: Option<Password>,
) -> Result<Response, Problem> {
    let mac = link_mac(&state.vault, token);
    let id = teammate_of(state, visitor, token, &mac).await?;
    let password_hash = match new_password {
        None => None,
        Some(password) => {
            let email = team::find(&state.pool, id).await?.map(|teammate| teammate.email).unwrap_or_default();
            let mut faults = Faults::default();
            if let Some(fault) = password.fault(&email) {
                faults.refuse("/new_password", fault);
            }
            faults.finish()?;
            Some(state.passwords.hash(password).await?)
        }
    };
    let link = ShownLink { mac, password_hash };
    if let Some(request) = second_factor::ask(state, id, &FirstFactor::Link(link.clone())).await? {
        return Ok(request);
    }
    let mut tx = state.begin().await?;
    if !use_link(&mut tx, state, visitor, id, &link).await? {
        drop(tx);
        return Err(refuse(state, visitor, Some(id), "link"));
    }
    let session = begin(&mut tx, state, visitor, Owner::Teammate(id), json!({"by": "link"})).await?;
    tx.commit().await?;
    let_in(state, session, None).await
}

/// Returns the teammate of a valid link.
async fn teammate_of(
    state: &ApiState, visitor: &SignInVisitor, token: &str, mac: &[u8; 32],
) -> Result<TeammateId, Problem> {
    // Counts as a guess at a key, which is as hard.
    let attempt = state.limits.keys.attempt(token, visitor.client)?;
    let found = team::link_of(&state.pool, mac, state.clock.now()).await?;
    if found.is_none() {
        attempt.failed();
    }
    found.ok_or_else(|| refuse(state, visitor, None, "link"))
}

/// Returns the HMAC under which a link's token is stored.
pub(crate) fn link_mac(vault: &Vault, token: &str) -> [u8; 32] {
    vault.mac(Purpose::Link, &[token.as_bytes()])
}
