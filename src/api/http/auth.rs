//! Authentication of API keys, operators, signed-in teammates and browsers. The argument types of a handler declare the allowed
//! callers.

use std::fmt::Display;
use std::marker::PhantomData;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, header};
use sqlx::PgConnection;
use uuid::Uuid;

use super::app_ref::AppRef;
use super::caller::{Caller, CallerIdentity};
use super::extract::{IDEMPOTENCY_KEY, Recheck, named_app, path_param};
use super::known_keys::{CachedKey, CredentialKey};
use super::limits::KeyUsage;
use super::problem::{Problem, ProblemCode};
use super::signed_in;
use crate::api::ApiState;
use bellwire_core::base64url;
use bellwire_core::id::{AppId, TeammateId};
use bellwire_core::permission::Speaker;
use bellwire_core::role::Role;
use bellwire_core::scope::Scope;
use bellwire_store::audience::subscriptions::Right;
use bellwire_store::keys::api_keys::{self, ApiKey};
use bellwire_store::keys::apps::App;
use bellwire_store::keys::audit::{AuditAction, AuditEntry};
use bellwire_store::keys::team;
use bellwire_store::operations::idempotency::{KeyScope, KeyedRequest};
use bellwire_vault::Vault;

pub(crate) const TOKEN_PREFIX: &str = "bt_";

pub(crate) fn write_token(token: &[u8; 32]) -> String {
    format!("{TOKEN_PREFIX}{}", base64url::encode(token))
}

pub(crate) fn read_token(text: &str) -> Option<[u8; 32]> {
    base64url::decode(text.strip_prefix(TOKEN_PREFIX)?)?.try_into().ok()
}

pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, secret) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
}

/// Marks a request made within this process, which has all rights. Requests from a socket start without extensions, so a client
/// cannot forge the mark.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Local;

fn is_local(extensions: &Extensions) -> bool {
    extensions.get::<Local>().is_some()
}

/// Whether a request is not from a browser of a visitor: it has an API key or a session cookie, valid or not, or is local.
pub(crate) fn is_servers(state: &ApiState, headers: &HeaderMap, extensions: &Extensions) -> bool {
    is_local(extensions)
        || bearer(headers).is_some_and(|secret| secret.starts_with(api_keys::PREFIX))
        || state.settings.cookies.shown(headers).is_some()
}

/// Identity of an authenticated caller. Stored in the request's extensions for [`super::idempotency`], which may respond before
/// the handler.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Admitted {
    /// Id of the API key or teammate. Nil: the command line.
    pub caller: Uuid,
    pub app: Option<AppId>,
}

/// Stores the identity of the caller in the request's extensions.
fn note_admitted(parts: &mut Parts, caller: &Caller, app: Option<AppId>) {
    if parts.headers.contains_key(IDEMPOTENCY_KEY) {
        parts.extensions.insert(Admitted { caller: caller.counted_as().unwrap_or_default(), app });
    }
}

/// Scope that a route requires, as a type.
pub(crate) trait Needed {
    const SCOPE: Scope;
}

macro_rules! needed {
    ($($name:ident = $scope:ident),+) => { $(
        /// Marker type of routes that require this scope.
        #[derive(Debug)]
        pub(crate) struct $name;
        impl Needed for $name { const SCOPE: Scope = Scope::$scope; }
    )+ };
}
needed!(
    MaySend = Send,
    MayRead = Read,
    MayChangeSubscribers = Subscribers,
    MaySteerMessages = Messages,
    MaySetPolicies = Policies,
    MayChangeSettings = Settings,
    MayManageKeys = Keys,
    MayExport = Export
);

/// Caller that acts for the app in the path and has the route's scope: an API key, or a teammate whose role includes the scope.
#[derive(Debug)]
pub(crate) struct Server<S> {
    pub app: App,
    pub caller: Caller,
    scope: PhantomData<S>,
}

impl<S> Server<S> {
    /// Builds the identity of a request with an idempotency key. `parts` are its contents, which a repeat must have unchanged.
    pub(crate) fn keyed_request(&self, vault: &Vault, route: &str, key: &str, parts: &[&[u8]]) -> KeyedRequest {
        let caller = self.caller.counted_as().unwrap_or_default();
        KeyedRequest::new(vault, KeyScope { caller, app: Some(self.app.id), route }, key, parts)
    }

    /// Returns the audit entry of an action on the app. Write it in the same transaction.
    pub(crate) fn did(&self, action: AuditAction, target: impl Display) -> AuditEntry {
        self.caller.did(Some(self.app.id), action, target)
    }
}

impl<S: Needed> FromRequestParts<ApiState> for Server<S> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let app: AppRef = path_param(parts, state, "app").await?.as_str().into();
        if is_local(&parts.extensions) {
            let app = named_app(state, app).await?;
            note_admitted(parts, &Caller::LOCAL, Some(app.id));
            return Ok(Self { app, caller: Caller::LOCAL, scope: PhantomData });
        }
        let (holder, app) = authenticate(parts, state, Some(app)).await?;
        let caller = Caller::new(holder, app.as_ref().map(|app| app.id), parts, state);
        caller.require(S::SCOPE)?;
        // Another app is not told from one that does not exist.
        let app = app.ok_or_else(|| Problem::not_found("app"))?;
        note_admitted(parts, &caller, Some(app.id));
        Ok(Self { app, caller, scope: PhantomData })
    }
}

/// Caller that operates the server: an operator's key, or a teammate with the role operator for all apps.
#[derive(Debug)]
pub(crate) struct Operator {
    pub caller: Caller,
}

impl FromRequestParts<ApiState> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let caller = of_server(parts, state).await?;
        caller.require(Scope::Operator)?;
        note_admitted(parts, &caller, None);
        Ok(Self { caller })
    }
}

/// Caller that may read data of the server as a whole: an operator, or a teammate with any role for all apps.
#[derive(Debug)]
pub(crate) struct Watcher;

impl FromRequestParts<ApiState> for Watcher {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let caller = of_server(parts, state).await?;
        match &caller.holder {
            CallerIdentity::Teammate(_, grants) if grants.may_watch_server() => Ok(Self),
            CallerIdentity::Teammate(..) => Err(caller.lacks(Scope::Operator, Role::Viewer)),
            _ => caller.require(Scope::Operator).map(|()| Self),
        }
    }
}

/// Caller that may read data of all apps and the server, or of the apps for which a teammate has a role.
#[derive(Debug)]
pub(crate) struct Onlooker {
    pub caller: Caller,
    /// Readable apps. `None`: all apps, and the server itself.
    pub apps: Option<Vec<AppId>>,
}

impl Onlooker {
    pub(crate) fn sees(&self, app: AppId) -> bool {
        self.apps.as_ref().is_none_or(|apps| apps.contains(&app))
    }
}

impl FromRequestParts<ApiState> for Onlooker {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let caller = of_server(parts, state).await?;
        let apps = match &caller.holder {
            CallerIdentity::Teammate(_, grants) => grants.apps(),
            _ => caller.require(Scope::Operator).map(|()| None)?,
        };
        if apps.as_ref().is_some_and(Vec::is_empty) {
            return Err(Problem::forbidden("This requires the role `viewer` on an app, or for all apps."));
        }
        Ok(Self { caller, apps })
    }
}

/// Caller that may change the team: a signed-in admin for all apps, or the command line. API keys may not, because a teammate
/// added with a key would outlive it.
#[derive(Debug)]
pub(crate) struct TeamAdmin {
    pub caller: Caller,
}

impl TeamAdmin {
    /// Refuses an action of a teammate on their own account. So at least one admin always remains, and a stranger at a
    /// signed-in browser cannot gain lasting access without a password or passkey.
    pub(crate) fn must_not_be(&self, teammate: TeammateId) -> Result<(), Problem> {
        match self.caller.holder {
            CallerIdentity::Teammate(id, _) if id == teammate => {
                let detail = "You cannot change, reset or remove yourself. Another admin can, or `bellwire admin` on the server.";
                Err(Problem::new(ProblemCode::NotYourself, detail))
            }
            _ => Ok(()),
        }
    }
}

impl TeamAdmin {
    /// Checks, in the transaction that changes the team, that the caller is still an admin. 401: another admin removed that
    /// right.
    pub(crate) async fn must_still_be(&self, conn: &mut PgConnection) -> Result<(), Problem> {
        match self.caller.holder {
            CallerIdentity::Teammate(id, _) if !team::may_change_team(conn, id).await? => Err(signed_in::ended()),
            _ => Ok(()),
        }
    }
}

impl FromRequestParts<ApiState> for TeamAdmin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let caller = of_server(parts, state).await?;
        match &caller.holder {
            CallerIdentity::Local => {}
            CallerIdentity::Teammate(_, grants) if grants.may_change_team() => {}
            CallerIdentity::Teammate(..) => return Err(caller.lacks(Scope::Operator, Role::Admin)),
            CallerIdentity::Key(_) => {
                return Err(Problem::forbidden(
                    "No key changes the team: sign in as an admin, or use `bellwire admin` on the server.",
                ));
            }
        }
        note_admitted(parts, &caller, None);
        Ok(Self { caller })
    }
}

/// Caller that reads the server's metrics: a key with the scope for metrics, or an operator.
#[derive(Debug)]
pub(crate) struct Scraper;

impl FromRequestParts<ApiState> for Scraper {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        of_server(parts, state).await?.require(Scope::Metrics).map(|()| Self)
    }
}

/// Caller with any valid API key. Sessions of browsers are refused.
#[derive(Debug)]
pub(crate) struct KeyHolder(pub Caller);

impl FromRequestParts<ApiState> for KeyHolder {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        if is_local(&parts.extensions) {
            return Ok(Self(Caller::LOCAL));
        }
        let (key, _) = authenticate_key(parts, state, None).await?;
        Ok(Self(Caller::new(CallerIdentity::Key(key), None, parts, state)))
    }
}

async fn of_server(parts: &mut Parts, state: &ApiState) -> Result<Caller, Problem> {
    if is_local(&parts.extensions) {
        return Ok(Caller::LOCAL);
    }
    let (holder, _) = authenticate(parts, state, None).await?;
    Ok(Caller::new(holder, None, parts, state))
}

/// Returns the app in the path, if the caller has access to it.
pub(crate) async fn app_of(parts: &Parts, state: &ApiState) -> Option<AppId> {
    let mut parts = parts.clone();
    let app: AppRef = path_param(&mut parts, state, "app").await.ok()?.as_str().into();
    let app = match is_local(&parts.extensions) {
        true => Some(named_app(state, app).await.ok()?),
        false => authenticate(&mut parts, state, Some(app)).await.ok()?.1,
    };
    app.map(|app| app.id)
}

/// Authenticates a request, and returns the app in its path, if the caller has access to it.
async fn authenticate(
    parts: &mut Parts, state: &ApiState, app: Option<AppRef>,
) -> Result<(CallerIdentity, Option<App>), Problem> {
    let Some(signed_in) = signed_in::enter(parts, state).await? else {
        let (key, app) = authenticate_key(parts, state, app).await?;
        return Ok((CallerIdentity::Key(key), app));
    };
    let holder = CallerIdentity::from(signed_in);
    let Some(app) = app else { return Ok((holder, None)) };
    let app = named_app(state, app).await?;
    match &holder {
        CallerIdentity::Teammate(_, grants) if !grants.know(app.id) => Err(Problem::not_found("app")),
        _ => Ok((holder, Some(app))),
    }
}

async fn authenticate_key(
    parts: &mut Parts, state: &ApiState, app: Option<AppRef>,
) -> Result<(ApiKey, Option<App>), Problem> {
    let secret = bearer(&parts.headers)
        .filter(|secret| secret.starts_with(api_keys::PREFIX))
        .ok_or_else(|| Problem::unauthorized("This requires an API key: `Authorization: Bearer bw_…`."))?;
    let client = state.limits.client_of(&parts.headers, &parts.extensions);
    let attempt = state.limits.keys.attempt(secret, client)?;
    let shown = (api_keys::mac(&state.vault, secret), app);
    let Some((key, app)) = find(state, shown.clone()).await? else {
        attempt.failed();
        return Err(unknown_key());
    };
    let budget = attempt.succeeded(key.id.into())?;
    if let Some(account) = parts.extensions.get::<KeyUsage>() {
        account.note(budget);
    }
    parts.extensions.insert(Recheck::new(move |state| {
        let shown = shown.clone();
        async move { find(&state, shown).await?.map(drop).ok_or_else(unknown_key) } // mostly out of memory
    }));
    Ok((key, app))
}

/// Returns a valid key, and the named app if the key may access it.
pub(crate) async fn find(state: &ApiState, shown: CredentialKey) -> Result<Option<CachedKey>, Problem> {
    let now = state.clock.now();
    let reading = match state.known_keys.recall(&shown, now) {
        Ok(known) => return Ok(Some(known)),
        Err(reading) => reading,
    };
    let (id, slug) = shown.1.as_ref().map_or((None, None), AppRef::parts);
    let found = api_keys::authenticate(&state.pool, &shown.0, id, slug, now).await?;
    if let Some((key, _)) = &found
        && key.last_used_on.is_none_or(|day| day < now.date_naive())
        // Once a day. A failed write does not refuse the request.
        && let Err(error) = api_keys::note_use(&state.pool, key.id, now.date_naive()).await
    {
        tracing::warn!(%error, "the last use of an API key could not be recorded");
    }
    // What is not there yet may be there a moment later: only what is complete is remembered.
    if let Some(read) = found.as_ref().filter(|(_, app)| app.is_some() == shown.1.is_some()) {
        state.known_keys.remember(reading, shown, read.clone());
    }
    Ok(found)
}

/// Returns a 401 problem: the key is unknown or no longer valid.
pub(crate) fn unknown_key() -> Problem {
    Problem::invalid_token("The API key is unknown, expired or revoked.")
}

/// Caller that may register and manage subscriptions: an API key or teammate with the route's scope, or a browser.
#[derive(Debug)]
pub(crate) struct RegistrationCaller<S> {
    pub app: App,
    /// Whether the caller has an API key or a session, and is not a visitor's browser.
    pub server: bool,
    pub caller: Option<Caller>,
    token: Option<[u8; 32]>,
    scope: PhantomData<S>,
}

impl<S> RegistrationCaller<S> {
    pub(crate) fn right(&self) -> Right<'_> {
        if self.server { Right::Server } else { Right::Browser(self.token.as_ref()) }
    }

    /// Returns the caller's role for a change of a subscription: server or browser.
    pub(crate) fn speaker(&self) -> Speaker {
        if self.server { Speaker::Server } else { Speaker::Browser(self.app.browsers_may.clone()) }
    }

    /// Refuses a browser without a subscription token.
    pub(crate) fn must_show_something(&self) -> Result<(), Problem> {
        if self.server || self.token.is_some() {
            return Ok(());
        }
        Err(Problem::unauthorized(
            "This requires the subscription's token (`Bearer bt_…`) or an API key (`Bearer bw_…`).",
        ))
    }
}

impl<S: Needed> FromRequestParts<ApiState> for RegistrationCaller<S> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        if is_servers(state, &parts.headers, &parts.extensions) {
            let Server { app, caller, scope } = Server::from_request_parts(parts, state).await?;
            return Ok(Self { app, server: true, caller: Some(caller), token: None, scope });
        }
        let token = match bearer(&parts.headers) {
            None if parts.headers.contains_key(header::AUTHORIZATION) => {
                return Err(Problem::invalid_token("`Authorization` must be `Bearer` and a token."));
            }
            None => None,
            Some(text) => {
                Some(read_token(text).ok_or_else(|| Problem::invalid_token("This server did not issue the token."))?)
            }
        };
        let app = parts.extensions.get::<App>().cloned();
        let app = app.expect("`cors::public` stands before every route that lets browsers in");
        Ok(Self { app, server: false, caller: None, token, scope: PhantomData })
    }
}
