//! Last step of each way to sign in: a new session or a refusal, with its audit entry.

use std::net::IpAddr;

use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use chrono::TimeDelta;
use serde_json::{Value, json};
use sqlx::PgConnection;
use tracing::Instrument as _;

use super::SessionResponse;
use crate::api::ApiState;
use crate::api::http::extract::is_plain_text;
use crate::api::http::limits::RefusalScope;
use crate::api::http::problem::{Problem, ProblemCode};
use crate::api::http::signed_in::SignedIn;
use bellwire_core::id::{SessionId, TeammateId};
use bellwire_store::keys::api_keys::ApiKey;
use bellwire_store::keys::audit::{Actor, AuditAction, AuditEntry, Who};
use bellwire_store::keys::oidc::{self, ProviderAccount};
use bellwire_store::keys::passkeys::ShownLink;
use bellwire_store::keys::sessions::{self, NewSession, Owner};
use bellwire_store::keys::team;

/// Maximum length of a session: a working day.
const SESSION_LASTS: TimeDelta = TimeDelta::hours(12);
/// Maximum stored characters of a browser's `User-Agent`.
const BROWSER_MAX: usize = 200;

pub(super) struct SignInVisitor {
    /// Client address. 0.0.0.0 if the request has no socket.
    pub(super) client: IpAddr,
    pub(super) address: Option<IpAddr>,
    browser: Option<String>,
}

impl SignInVisitor {
    pub(super) fn of(parts: &Parts, state: &ApiState) -> Self {
        let browser = parts.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
        let browser = browser.map(|text| text.chars().take(BROWSER_MAX).collect::<String>());
        Self {
            client: state.limits.client_of(&parts.headers, &parts.extensions),
            address: state.limits.known_address(&parts.headers, &parts.extensions),
            browser: browser.filter(|text| is_plain_text(text, BROWSER_MAX)),
        }
    }
}

/// Uses a teammate's link, and sets the password given with it. Returns `false` if the link is invalid. Of two concurrent
/// requests with the same link, one succeeds.
pub(super) async fn use_link(
    conn: &mut PgConnection, state: &ApiState, visitor: &SignInVisitor, id: TeammateId, link: &ShownLink,
) -> Result<bool, Problem> {
    let now = state.clock.now();
    if team::use_link(conn, &link.mac, now).await? != Some(id) {
        return Ok(false);
    }
    if let Some(hash) = &link.password_hash {
        team::set_password(conn, &state.vault, id, Some(hash)).await?;
        sessions::end_all(conn, Owner::Teammate(id), None, now).await?;
        let actor = Actor { who: Who::Teammate(id), address: visitor.address };
        AuditEntry::new(actor, None, AuditAction::PasswordSet, id).record(conn, 1, now).await?;
    }
    Ok(true)
}

/// Begins a session, and records in the audit log how the teammate signed in.
pub(super) async fn begin(
    conn: &mut PgConnection, state: &ApiState, visitor: &SignInVisitor, owner: Owner, by: Value,
) -> Result<SessionId, Problem> {
    let (id, now) = (SessionId(state.clock.uuid()), state.clock.now());
    let new = NewSession {
        id,
        owner,
        began_at: now,
        expires_at: now + SESSION_LASTS,
        address: visitor.address,
        browser: visitor.browser.as_deref(),
    };
    sessions::begin(conn, &new).await?;
    let who = match owner {
        Owner::Teammate(id) => Who::Teammate(id),
        Owner::Key(id) => Who::Operator(id),
    };
    let entry = AuditEntry::new(Actor { who, address: visitor.address }, None, AuditAction::SessionBegun, id);
    entry.with(by).record(conn, 1, now).await?;
    Ok(id)
}

/// Reads the new session, as its next request will read it.
pub(super) async fn read_back(state: &ApiState, session: SessionId, key: Option<ApiKey>) -> Result<SignedIn, Problem> {
    let session = sessions::find(&state.pool, session, state.clock.now()).await?.ok_or_else(super::ended)?;
    Ok(SignedIn { session, key })
}

/// Builds the response of a successful sign-in: the session and its cookie.
pub(super) async fn let_in(state: &ApiState, session: SessionId, key: Option<ApiKey>) -> Result<Response, Problem> {
    let signed_in = read_back(state, session, key).await?;
    let session = &signed_in.session;
    let cookie = state.settings.cookies.give(&state.vault, session.id, session.began_at, session.expires_at);
    let view = axum::Json(SessionResponse::from(&signed_in));
    Ok((StatusCode::CREATED, [(header::SET_COOKIE, cookie)], view).into_response())
}

/// Refuses a sign-in, with the same response whether the teammate exists or not.
pub(super) fn refuse(
    state: &ApiState, visitor: &SignInVisitor, teammate: Option<TeammateId>, way: &'static str,
) -> Problem {
    let detail = match way {
        "password" => "The email address or password is wrong.",
        "link" => "This link has been used, has expired, or was replaced by another one. Ask for a new one.",
        _ => "The API key is unknown, expired or revoked.",
    };
    refuse_saying(detail, state, visitor, teammate, json!({"by": way}))
}

/// Refuses a sign-in with this text, and records the attempt in the audit log.
pub(super) fn refuse_saying(
    detail: &'static str, state: &ApiState, visitor: &SignInVisitor, teammate: Option<TeammateId>, by: Value,
) -> Problem {
    record_refusal(state, visitor, teammate, by);
    Problem::new(ProblemCode::SignInRefused, detail)
}

/// Records a failed sign-in, unless the client has failed so often recently that a later entry includes it.
///
/// The response does not wait for the record: a response that takes as long as a commit would reveal that a teammate exists.
/// Entries about teammates and about unknown names are limited separately, because a stranger could use up the latter.
pub(super) fn record_refusal(state: &ApiState, visitor: &SignInVisitor, teammate: Option<TeammateId>, detail: Value) {
    let at = if teammate.is_some() { RefusalScope::Teammate } else { RefusalScope::UnknownName };
    let Some(n) = state.limits.refused(visitor.client, at) else { return };
    // What was given as a name may be a password by mistake.
    let target = teammate.map_or_else(|| "unknown".to_owned(), |id| id.to_string());
    let actor = Actor { who: Who::Nobody, address: visitor.address };
    let entry = AuditEntry::new(actor, None, AuditAction::SessionRefused, target).with(detail);
    let (pool, now) = (state.pool.clone(), state.clock.now());
    // No more of these than the log has room for.
    tokio::spawn(
        async move {
            let written = async { entry.record(&mut *pool.acquire().await?, n, now).await };
            if let Err(error) = written.await {
                tracing::warn!(%error, n, "refused sign-ins were not recorded in the audit log");
            }
        }
        .in_current_span(),
    );
}

/// Links a provider account to a teammate. Returns `false` if the account belongs to another teammate, or the teammate has
/// another account.
pub(super) async fn link_account(
    conn: &mut PgConnection, state: &ApiState, visitor: &SignInVisitor, teammate: TeammateId,
    account: ProviderAccount<'_>,
) -> sqlx::Result<bool> {
    let now = state.clock.now();
    if oidc::link(conn, teammate, account, now).await? {
        did(visitor, teammate, AuditAction::TeammateLinked).record(conn, 1, now).await?;
        return Ok(true);
    }
    Ok(oidc::owner(conn, account).await?.is_some_and(|owner| owner.id == teammate))
}

/// Returns the audit entry of a teammate's own action before a session exists.
pub(super) fn did(visitor: &SignInVisitor, teammate: TeammateId, action: AuditAction) -> AuditEntry {
    let actor = Actor { who: Who::Teammate(teammate), address: visitor.address };
    AuditEntry::new(actor, None, action, teammate)
}
