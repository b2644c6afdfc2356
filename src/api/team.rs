//! `/v1/team`: teammates and their roles.

use aws_lc_rs::rand;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::{PgConnection, PgExecutor};
use utoipa::ToSchema;

use super::ApiState;
use super::http::app_ref::AppRef;
use super::http::auth::TeamAdmin;
use super::http::draft::Draft;
use super::http::extract::{PathId, Query, named_app, null_is_default};
use super::http::idempotency::{Instead, Making, Pending};
use super::http::paging::{Page, Paging};
use super::http::problem::{Faults, Problem, ProblemCode};
use super::http::routes::routes;
use super::session::{LINK_PREFIX, link_mac};
use crate::api::session::email::{EMAIL_RULE, normal_email};
use bellwire_core::base64url;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::TeammateId;
use bellwire_core::role::{Grant, Grants, Role};
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::keys::oidc::{self, ProviderAccount};
use bellwire_store::keys::sessions::{self, Owner};
use bellwire_store::keys::team::{self, Removed, Teammate};
use bellwire_vault::{Purpose, Vault};
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(list, invite))
        .routes(routes!(show, change, delete))
        .routes(routes!(reset))
        .routes(routes!(unlink))
}

const LINK_LASTS: TimeDelta = TimeDelta::days(3);
/// Page that reads a link's token after the `#`. Browsers send that part to no server.
const LINK_PAGE: &str = "/admin/invite#";
/// Maximum roles of a teammate. A teammate with more apps should get a role for all apps.
const ROLES_MAX: usize = 100;

/// Link for one use.
#[derive(Serialize, ToSchema)]
pub(crate) struct Link {
    /// Token of the link, for `link` of `POST /v1/session`. It is shown only now.
    token: String,
    /// Path on this server that the teammate opens.
    path: String,
    /// Expiry of the link.
    expires_at: DateTime<Utc>,
}

/// A teammate and the link for their first sign-in.
#[derive(Serialize, ToSchema)]
pub(crate) struct InvitationResponse {
    #[serde(flatten)]
    teammate: Teammate,
    /// Link to send to the teammate.
    link: Link,
}

/// Role for one app or for all.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewGrant {
    /// Role of the teammate.
    role: Role,
    /// Id or slug of the app. Absent: all apps, and the server itself.
    app: Option<String>,
}

/// Invitation of a teammate.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Invitation {
    /// E-mail address of the teammate. No message is sent to it.
    email: String,
    /// Roles, 1 to 100: each for another app, or one for all apps.
    roles: Vec<NewGrant>,
}

/// Changes of a teammate.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TeammateChange {
    /// New roles, at most 100, which replace all others. Null: none.
    #[serde(default, deserialize_with = "null_is_default")]
    roles: Option<Vec<NewGrant>>,
    /// Whether the teammate is suspended: their sessions end, and they cannot sign in.
    #[serde(default, deserialize_with = "null_is_default")]
    disabled: Option<bool>,
}

/// Lists the team, the latest invitation first.
#[utoipa::path(get, path = "/v1/team", tag = "Team", responses((status = 200, body = Page<Teammate>)))]
pub(crate) async fn list(
    _: TeamAdmin, State(state): State<ApiState>, uri: Uri, Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let cut = paging.cut()?;
    let rows = team::list(&state.pool, cut.ask()).await?;
    Ok(cut.page(rows, |teammate| teammate.id, |teammate| teammate).answer(&uri))
}

/// Returns a teammate.
#[utoipa::path(get, path = "/v1/team/{teammate}", tag = "Team", responses((status = 200, body = Teammate)))]
pub(crate) async fn show(
    _: TeamAdmin, State(state): State<ApiState>, PathId(id): PathId<TeammateId>,
) -> Result<axum::Json<Teammate>, Problem> {
    read(&state.pool, id).await.map(axum::Json)
}

async fn read(executor: impl PgExecutor<'_>, id: TeammateId) -> Result<Teammate, Problem> {
    team::find(executor, id).await?.ok_or_else(unknown)
}

fn unknown() -> Problem {
    Problem::not_found("teammate")
}

/// Invites a person: creates a teammate, and a one-time link that is valid for three days. No e-mail is sent: send the link
/// yourself.
#[utoipa::path(post, path = "/v1/team", tag = "Team", request_body = Invitation,
    responses((status = 201, body = InvitationResponse)))]
pub(crate) async fn invite(
    admin: TeamAdmin, State(state): State<ApiState>, Making(body, mut faults, pending): Making<Invitation>,
) -> Result<Response, Instead> {
    let email = normal_email(&body.email);
    faults.require(email.is_some(), "/email", EMAIL_RULE);
    faults.require(!body.roles.is_empty(), "/roles", "must hold at least one role");
    let grants = read_grants(&state, body.roles, &mut faults).await?;
    faults.finish()?;
    let email = email.expect("what is missing was refused");
    let (id, now) = (TeammateId(state.clock.uuid()), state.clock.now());
    let mut once = pending.begin(&state).await?;
    admin.must_still_be(once.conn()).await?;
    if !team::add(once.conn(), id, &email, now).await? {
        return Err(Problem::new(ProblemCode::EmailTaken, "A teammate with that address already exists.").into());
    }
    team::forget_removed(once.conn(), &removed_email(&state.vault, &email)).await?;
    team::set_grants(once.conn(), id, &grants).await?;
    let link = make_link(once.conn(), &state, id, now).await?;
    let entry = admin.caller.did(None, AuditAction::TeammateInvited, id);
    entry.with(json!({"roles": grants})).record(once.conn(), 1, now).await?;
    let teammate = read(once.conn(), id).await?;
    once.finish(&state, StatusCode::CREATED, &InvitationResponse { teammate, link }).await
}

/// Changes a teammate's roles, or suspends them. The change applies from the next request.
#[utoipa::path(patch, path = "/v1/team/{teammate}", tag = "Team", request_body = TeammateChange, responses((status = 200, body = Teammate)))]
pub(crate) async fn change(
    admin: TeamAdmin, State(state): State<ApiState>, PathId(id): PathId<TeammateId>,
    Draft(body, mut faults, _): Draft<TeammateChange>,
) -> Result<axum::Json<Teammate>, Problem> {
    admin.must_not_be(id)?;
    let grants = match body.roles {
        None => None,
        Some(roles) => Some(read_grants(&state, roles, &mut faults).await?),
    };
    faults.finish()?;
    let now = state.clock.now();
    let mut tx = state.begin().await?;
    admin.must_still_be(&mut tx).await?;
    if !team::lock(&mut tx, id).await? {
        return Err(unknown());
    }
    if let Some(grants) = &grants {
        team::set_grants(&mut tx, id, grants).await?;
    }
    if let Some(disabled) = body.disabled {
        team::set_disabled(&mut tx, id, disabled.then_some(now)).await?;
        if disabled {
            sessions::end_all(&mut tx, Owner::Teammate(id), None, now).await?;
        }
    }
    let entry = admin.caller.did(None, AuditAction::TeammateChanged, id);
    let detail = json!({"roles": grants, "disabled": body.disabled});
    entry.with(detail).record(&mut tx, 1, now).await?;
    tx.commit().await?;
    read(&state.pool, id).await.map(axum::Json)
}

/// Resets a teammate who forgot their password, or whose password or browser may be compromised. The password is deleted, all
/// sessions end, and a new one-time link replaces earlier ones. Passkeys stay: the link requires one, too. Teammates cannot
/// reset themselves: they change their own password with the current one.
#[utoipa::path(post, path = "/v1/team/{teammate}/reset", tag = "Team", responses((status = 200, body = InvitationResponse)))]
pub(crate) async fn reset(
    admin: TeamAdmin, State(state): State<ApiState>, PathId(id): PathId<TeammateId>, pending: Pending,
) -> Result<Response, Instead> {
    // A link sets a password without the current one, which a stranger at a signed-in browser does not have.
    admin.must_not_be(id)?;
    let now = state.clock.now();
    let mut once = pending.begin(&state).await?;
    admin.must_still_be(once.conn()).await?;
    if !team::lock(once.conn(), id).await? {
        return Err(unknown().into());
    }
    team::set_password(once.conn(), &state.vault, id, None).await?;
    sessions::end_all(once.conn(), Owner::Teammate(id), None, now).await?;
    let link = make_link(once.conn(), &state, id, now).await?;
    admin.caller.did(None, AuditAction::TeammateReset, id).record(once.conn(), 1, now).await?;
    let teammate = read(once.conn(), id).await?;
    once.finish(&state, StatusCode::OK, &InvitationResponse { teammate, link }).await
}

/// Unlinks a teammate's account at the OpenID provider, and ends all their sessions. The next account with their e-mail address
/// is linked instead. Use it if the teammate has a new account. If another person now has the e-mail address, suspend the
/// teammate first.
#[utoipa::path(delete, path = "/v1/team/{teammate}/oidc", tag = "Team", responses((status = 204)))]
pub(crate) async fn unlink(
    admin: TeamAdmin, State(state): State<ApiState>, PathId(id): PathId<TeammateId>,
) -> Result<StatusCode, Problem> {
    admin.must_not_be(id)?;
    let now = state.clock.now();
    let mut tx = state.begin().await?;
    admin.must_still_be(&mut tx).await?;
    if !team::lock(&mut tx, id).await? {
        return Err(unknown());
    }
    // A second time it is as it should be.
    if oidc::unlink(&mut tx, id).await? {
        sessions::end_all(&mut tx, Owner::Teammate(id), None, now).await?;
        admin.caller.did(None, AuditAction::TeammateUnlinked, id).record(&mut tx, 1, now).await?;
    }
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a teammate permanently. The audit log keeps their id, and the API keys that they created stay valid. A removed
/// person cannot return through the OpenID provider, unless invited again.
#[utoipa::path(delete, path = "/v1/team/{teammate}", tag = "Team", responses((status = 204)))]
pub(crate) async fn delete(
    admin: TeamAdmin, State(state): State<ApiState>, PathId(id): PathId<TeammateId>,
) -> Result<StatusCode, Problem> {
    admin.must_not_be(id)?;
    let mut tx = state.begin().await?;
    admin.must_still_be(&mut tx).await?;
    if !team::lock(&mut tx, id).await? {
        return Err(unknown());
    }
    let now = state.clock.now();
    remember(&mut tx, &state, id, now).await?;
    team::remove(&mut tx, id).await?;
    admin.caller.did(None, AuditAction::TeammateRemoved, id).record(&mut tx, 1, now).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn remember(conn: &mut PgConnection, state: &ApiState, id: TeammateId, now: Timestamp) -> Result<(), Problem> {
    let email = read(&mut *conn, id).await?.email;
    let accounts = oidc::accounts(conn, id).await?;
    let accounts =
        accounts.iter().map(|(issuer, subject)| removed_account(&state.vault, ProviderAccount { issuer, subject }));
    let removed = Removed { email: removed_email(&state.vault, &email), accounts: accounts.collect() };
    Ok(team::remember_removed(conn, &removed, now).await?)
}

/// Returns the HMAC of a removed teammate's e-mail address, to recognise it later.
pub(super) fn removed_email(vault: &Vault, email: &str) -> [u8; 32] {
    vault.mac(Purpose::RemovedTeammate, &[email.as_bytes()])
}

/// Returns the HMAC of a removed teammate's provider account, to recognise it later.
pub(super) fn removed_account(vault: &Vault, account: ProviderAccount<'_>) -> [u8; 32] {
    vault.mac(Purpose::RemovedTeammate, &[account.issuer.as_bytes(), account.subject.as_bytes()])
}

/// Checks roles and resolves apps. Adds faults to `faults`.
async fn read_grants(state: &ApiState, roles: Vec<NewGrant>, faults: &mut Faults) -> Result<Grants, Problem> {
    let mut grants = Grants::default();
    if roles.len() > ROLES_MAX {
        faults.refuse("/roles", format!("may hold at most {ROLES_MAX} roles"));
        return Ok(grants);
    }
    for (i, NewGrant { role, app }) in roles.into_iter().enumerate() {
        let app = match app.as_deref().map(AppRef::from) {
            None => None,
            Some(app) => match named_app(state, app).await {
                Ok(app) => Some(app.id),
                Err(problem) if problem.status == StatusCode::NOT_FOUND => {
                    faults.refuse(format!("/roles/{i}/app"), "names an app that does not exist");
                    continue;
                }
                Err(problem) => return Err(problem),
            },
        };
        if grants.0.iter().any(|given| given.app == app) {
            faults.refuse(format!("/roles/{i}/app"), "already has a role: each app may have one");
        }
        grants.0.push(Grant { role, app });
    }
    Ok(grants)
}

async fn make_link(conn: &mut PgConnection, state: &ApiState, id: TeammateId, now: Timestamp) -> sqlx::Result<Link> {
    let mut octets = [0; 32];
    rand::fill(&mut octets).expect("the system's randomness");
    let token = format!("{LINK_PREFIX}{}", base64url::encode(octets));
    let expires_at = now + LINK_LASTS;
    team::set_link(conn, id, &link_mac(&state.vault, &token), now, expires_at).await?;
    Ok(Link { path: format!("{LINK_PAGE}{token}"), token, expires_at })
}

#[cfg(test)]
#[path = "../../tests/unit/api/team.rs"]
mod tests;
