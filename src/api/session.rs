//! `/v1/session` and `/v1/sessions`: signs in and out, and lists sessions.

pub(crate) mod cookie;
pub(crate) mod email;
mod entry;
mod methods;
pub(crate) mod oidc;
pub(crate) mod passkeys;
pub(crate) mod passwords;
pub(crate) mod relying_party;
pub(crate) mod second_factor;
mod sign_in;

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::ApiState;
use super::http::caller::CallerIdentity;
use super::http::extract::{Json, PathId, Query};
use super::http::paging::{Page, Paging};
use super::http::problem::{Faults, Problem};
use super::http::routes::{Access, Argument, routes};
use super::http::signed_in::{SignedIn, ended, enter};
use crate::api::session::passwords::Password;
use bellwire_core::id::{ApiKeyId, SessionId, TeammateId};
use bellwire_core::role::{Grant, Grants, Role};

use bellwire_store::keys::audit::{Actor, AuditAction, AuditEntry};
use bellwire_store::keys::sessions::{self, Owner, SessionRow};
use bellwire_store::keys::team;
use cookie::IDLE_MAX;
pub(crate) use sign_in::{__path_sign_in, LINK_PREFIX, link_mac, sign_in};
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(show, sign_in, sign_out))
        .routes(routes!(set_password))
        .routes(routes!(sign_in::show_link))
        .routes(routes!(methods::show))
        .routes(routes!(oidc::begin))
        .routes(routes!(oidc::callback))
        .routes(routes!(list, end_others))
        .routes(routes!(end))
        .merge(passkeys::routes())
}

/// Time after a sign-in by link in which a first password may be set without another proof.
const FRESH: TimeDelta = TimeDelta::minutes(15);

/// Handler argument: caller with a session.
#[derive(Debug)]
pub(crate) struct InSession {
    signed_in: SignedIn,
    actor: Actor,
}

impl InSession {
    fn did(&self, action: AuditAction, target: impl std::fmt::Display) -> AuditEntry {
        AuditEntry::new(self.actor, None, action, target)
    }

    /// Returns the signed-in teammate. 403: the session is that of an operator's key.
    fn teammate(&self) -> Result<TeammateId, Problem> {
        match self.signed_in.session.owner {
            Owner::Teammate(id) => Ok(id),
            Owner::Key(_) => {
                Err(Problem::forbidden("This is for teammates; you are signed in with an operator's key."))
            }
        }
    }
}

impl FromRequestParts<ApiState> for InSession {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let signed_in = enter(parts, state).await?.ok_or_else(ended)?;
        let actor =
            Actor { who: signed_in.who(), address: state.limits.known_address(&parts.headers, &parts.extensions) };
        Ok(Self { signed_in, actor })
    }
}

impl Argument for InSession {
    const ACCESS: &'static [Access] = &[("session", &[])];
}

/// Session of the caller, with its permissions.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionResponse {
    /// Id of the session.
    id: SessionId,
    /// Signed-in teammate. Null: an operator's key.
    teammate: Option<TeammateId>,
    /// E-mail address of the teammate.
    email: Option<String>,
    /// Operator's key of the session. Null: a teammate.
    api_key: Option<ApiKeyId>,
    /// Roles of the teammate. An operator's key is `admin` everywhere, except for the team.
    #[schema(value_type = Vec<Grant>)]
    roles: Grants,
    /// Whether the caller may invite teammates, change their roles and remove them.
    may_change_team: bool,
    /// Time of its start.
    began_at: DateTime<Utc>,
    /// Time at which the session ends at the latest. Without a request for 30 minutes it ends earlier.
    expires_at: DateTime<Utc>,
}

impl From<&SignedIn> for SessionResponse {
    fn from(SignedIn { session, key }: &SignedIn) -> Self {
        let (teammate, api_key) = match session.owner {
            Owner::Teammate(id) => (Some(id), None),
            Owner::Key(id) => (None, Some(id)),
        };
        let roles = match key {
            Some(_) => Grants(vec![Grant { role: Role::Admin, app: None }]),
            None => session.grants.clone(),
        };
        Self {
            id: session.id,
            teammate,
            email: session.email.clone(),
            api_key,
            roles,
            may_change_team: session.grants.may_change_team(),
            began_at: session.began_at,
            expires_at: session.expires_at,
        }
    }
}

/// Returns the session of the caller, with its permissions.
#[utoipa::path(get, path = "/v1/session", tag = "Team", responses((status = 200, body = SessionResponse)))]
pub(crate) async fn show(caller: InSession) -> axum::Json<SessionResponse> {
    axum::Json((&caller.signed_in).into())
}

/// Signs out: ends the session and deletes its cookie.
#[utoipa::path(delete, path = "/v1/session", tag = "Team", responses((status = 204)))]
pub(crate) async fn sign_out(caller: InSession, State(state): State<ApiState>) -> Result<Response, Problem> {
    let id = caller.signed_in.session.id;
    end_one(&state, id, None, &caller.did(AuditAction::SessionEnded, id)).await?;
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, state.settings.cookies.take())]).into_response())
}

async fn end_one(state: &ApiState, id: SessionId, of: Option<Owner>, entry: &AuditEntry) -> Result<(), Problem> {
    let now = state.clock.now();
    let mut tx = state.begin().await?;
    if !sessions::end(&mut tx, id, of, now).await? {
        return Err(Problem::not_found("session"));
    }
    entry.record(&mut tx, 1, now).await?;
    Ok(tx.commit().await?)
}

/// Password to set.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PasswordChange {
    /// Current password. Optional if there is none and you signed in within the last 15 minutes.
    #[schema(value_type = Option<String>)]
    current_password: Option<Password>,
    /// New password: 12 characters to 512 bytes, and not your e-mail address.
    #[schema(value_type = String)]
    new_password: Password,
}

/// Sets the caller's password. All other sessions of the teammate end.
#[utoipa::path(put, path = "/v1/session/password", tag = "Team", responses((status = 204)))]
pub(crate) async fn set_password(
    caller: InSession, State(state): State<ApiState>, parts: Parts, Json(body, _): Json<PasswordChange>,
) -> Result<StatusCode, Problem> {
    let (id, session) = (caller.teammate()?, &caller.signed_in.session);
    let email = session.email.as_deref().unwrap_or_default();
    let mut faults = Faults::default();
    if let Some(fault) = body.new_password.fault(email) {
        faults.refuse("/new_password", fault);
    }
    faults.finish()?;
    let known = team::credentials(&state.pool, &state.vault, email).await?.and_then(|known| known.password_hash);
    match (known.clone(), body.current_password) {
        (None, _) if session.began_at + FRESH > state.clock.now() => {}
        (None, _) => return Err(Problem::forbidden("To set a first password, sign in again with a one-time link.")),
        (Some(_), None) => {
            return Err(Problem::invalid_member(
                "/current_password",
                "is required, because you already have a password",
            ));
        }
        (Some(hash), Some(password)) => {
            let client = state.limits.client_of(&parts.headers, &parts.extensions);
            let guess = sign_in::Guess::begin(&state, email, client).await?;
            if !guess.check(password, Some(hash)).await? {
                // Guesses in another user's browser must be visible.
                let refused = caller.did(AuditAction::SessionRefused, id).with(json!({"by": "current_password"}));
                refused.record(&mut *state.pool.acquire().await?, 1, state.clock.now()).await?;
                return Err(Problem::forbidden_member("/current_password", "is not your password"));
            }
        }
    }
    let hash = state.passwords.hash(body.new_password).await?;
    let now = state.clock.now();
    let mut tx = state.begin().await?;
    // A reset may have deleted it, and ended this session, while it was hashed.
    if !team::keep_credentials(&mut tx, &state.vault, id, known.as_deref()).await?
        || !sessions::keep(&mut tx, session.id, now).await?
    {
        return Err(ended());
    }
    team::set_password(&mut tx, &state.vault, id, Some(&hash)).await?;
    sessions::end_all(&mut tx, session.owner, Some(session.id), now).await?;
    caller.did(AuditAction::PasswordSet, id).record(&mut tx, 1, now).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists the caller's sessions, the latest first.
#[utoipa::path(get, path = "/v1/sessions", tag = "Team", responses((status = 200, body = Page<SessionRow>)))]
pub(crate) async fn list(
    caller: InSession, State(state): State<ApiState>, uri: Uri, Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let (cut, now) = (paging.cut()?, state.clock.now());
    let session = &caller.signed_in.session;
    let rows = sessions::list(&state.pool, session.owner, now - IDLE_MAX, now, cut.ask()).await?;
    let show = |row: SessionRow| SessionRow { is_this: row.id == session.id, ..row };
    Ok(cut.page(rows, |row| row.id, show).answer(&uri))
}

/// Ends one of the caller's sessions. A caller that may change the team can end any session.
#[utoipa::path(delete, path = "/v1/sessions/{session}", tag = "Team", responses((status = 204)))]
pub(crate) async fn end(
    caller: InSession, State(state): State<ApiState>, PathId(id): PathId<SessionId>,
) -> Result<StatusCode, Problem> {
    let session = &caller.signed_in.session;
    let of = (!session.grants.may_change_team()).then_some(session.owner);
    end_one(&state, id, of, &caller.did(AuditAction::SessionEnded, id)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Number of ended sessions.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionsEndedResponse {
    /// Number of ended sessions.
    ended: i64,
}

/// Ends all sessions of the caller except this one.
#[utoipa::path(delete, path = "/v1/sessions", tag = "Team", responses((status = 200, body = SessionsEndedResponse)))]
pub(crate) async fn end_others(
    caller: InSession, State(state): State<ApiState>,
) -> Result<axum::Json<SessionsEndedResponse>, Problem> {
    let (session, now) = (&caller.signed_in.session, state.clock.now());
    let mut tx = state.begin().await?;
    let ended = sessions::end_all(&mut tx, session.owner, Some(session.id), now).await?;
    let target = caller.actor.who.name();
    caller.did(AuditAction::SessionEnded, target).record(&mut tx, ended, now).await?;
    tx.commit().await?;
    Ok(axum::Json(SessionsEndedResponse { ended }))
}

/// Converts the caller of a session, for routes that also accept keys.
impl From<SignedIn> for CallerIdentity {
    fn from(SignedIn { session, key }: SignedIn) -> Self {
        match session.owner {
            Owner::Teammate(id) => Self::Teammate(id, session.grants),
            Owner::Key(_) => Self::Key(key.expect("an operator's session is read with its key")),
        }
    }
}
