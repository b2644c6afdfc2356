//! `/v1/session/passkeys`: the caller's passkeys. `/v1/team/{teammate}/passkeys`: an admin's reset of another teammate's
//! passkeys.

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use chrono::{DateTime, TimeDelta, Utc};
use passki::RegistrationCredential;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::InSession;
use super::relying_party::{CHALLENGE_LASTS, PasskeyChallenge, PasskeyError, RelyingParty, challenge_of};
use crate::api::ApiState;
use crate::api::http::auth::TeamAdmin;
use crate::api::http::extract::{Json, PathId, Query, is_plain_text};
use crate::api::http::paging::{Page, Paging};
use crate::api::http::problem::{Faults, Problem, ProblemCode};
use crate::api::http::routes::routes;
use bellwire_core::id::{PasskeyId, TeammateId};
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::keys::passkeys::{self, AddPasskeyResult, PASSKEYS_MAX, Passkey};
use bellwire_store::keys::sessions::{self, Owner};
use bellwire_store::keys::team;
use bellwire_store::results::WriteOutcome;
use bellwire_vault::{Purpose, Vault};

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(list, add))
        .routes(routes!(begin))
        .routes(routes!(rename, delete))
        .routes(routes!(reset))
}

/// Time after a sign-in during which passkeys can be added and removed. A stranger at a signed-in browser must not gain lasting
/// access.
const RECENT: TimeDelta = TimeDelta::minutes(10);

/// Passkey of a teammate.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PasskeyResponse {
    /// Id of the passkey.
    id: PasskeyId,
    /// Display name of the passkey.
    name: String,
    /// Transports of its authenticator: `usb`, `nfc`, `ble`, `smart-card`, `hybrid` or `internal`.
    transports: Vec<String>,
    /// Time at which the passkey was added.
    created_at: DateTime<Utc>,
    /// Time of the last sign-in with it. Null: never.
    last_used_at: Option<DateTime<Utc>>,
}

impl From<Passkey> for PasskeyResponse {
    fn from(Passkey { id, name, transports, created_at, last_used_at, .. }: Passkey) -> Self {
        Self { id, name, transports, created_at, last_used_at }
    }
}

/// Request to an authenticator to create a passkey.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PasskeyCreation {
    /// Argument of `PublicKeyCredential.parseCreationOptionsFromJSON()`. Pass its result as `publicKey` to
    /// `navigator.credentials.create()`.
    #[schema(value_type = Object)]
    options: Value,
    /// Expiry of the request. It can be answered once.
    expires_at: DateTime<Utc>,
}

/// A passkey that an authenticator has created.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPasskey {
    /// Name, 1 to 64 characters.
    name: String,
    /// Result of `navigator.credentials.create()`, as its `toJSON()` returns it.
    #[schema(value_type = Object)]
    credential: Value,
}

/// Changes of a passkey.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PasskeyChange {
    /// Name, 1 to 64 characters.
    name: String,
}

fn check_name(name: &str) -> Result<(), Problem> {
    let mut faults = Faults::default();
    faults.require(is_plain_text(name, 64), "/name", "must be 1 to 64 characters without control characters");
    faults.finish()
}

/// Lists your passkeys. If you have any, a sign-in by password, one-time link or OpenID provider also requires one of them.
#[utoipa::path(get, path = "/v1/session/passkeys", tag = "Team", responses((status = 200, body = Page<PasskeyResponse>)))]
pub(crate) async fn list(
    caller: InSession, State(state): State<ApiState>, uri: Uri, Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let cut = paging.cut()?;
    let passkeys = passkeys::list(&state.pool, caller.teammate()?).await?;
    Ok(cut.page_of_all(passkeys, |passkey| passkey.id, PasskeyResponse::from).answer(&uri))
}

/// Begins to add a passkey: returns the request to the authenticator, valid for five minutes. Requires a sign-in within the
/// last ten minutes (403, `sign_in_again`), and a server with a public URL (409, `passkeys_unavailable`).
#[utoipa::path(post, path = "/v1/session/passkeys/options", tag = "Team",
    responses((status = 200, body = PasskeyCreation)))]
pub(crate) async fn begin(
    caller: InSession, State(state): State<ApiState>,
) -> Result<axum::Json<PasskeyCreation>, Problem> {
    let (teammate, session) = (recently_in(&caller, &state)?, &caller.signed_in.session);
    let party = relying_party(&state)?;
    let known = passkeys::list(&state.pool, teammate).await?;
    if known.len() as i64 >= PASSKEYS_MAX {
        return Err(too_many());
    }
    let PasskeyChallenge { options, challenge } =
        party.ask_to_make(teammate, session.email.as_deref().unwrap_or_default(), &known);
    let expires_at = state.clock.now() + CHALLENGE_LASTS;
    let mac = challenge_mac(&state.vault, &challenge);
    passkeys::put_challenge_to_add(&state.pool, &mac, teammate, session.id, expires_at).await?;
    Ok(axum::Json(PasskeyCreation { options, expires_at }))
}

/// Adds the passkey that an authenticator has created; at most ten. Requires a sign-in within the last ten minutes (403,
/// `sign_in_again`).
#[utoipa::path(post, path = "/v1/session/passkeys", tag = "Team", responses((status = 201, body = PasskeyResponse)))]
pub(crate) async fn add(
    caller: InSession, State(state): State<ApiState>, Json(NewPasskey { name, credential }, _): Json<NewPasskey>,
) -> Result<(StatusCode, axum::Json<PasskeyResponse>), Problem> {
    let teammate = recently_in(&caller, &state)?;
    let party = relying_party(&state)?;
    check_name(&name)?;
    let refused = |why: PasskeyError| Problem::invalid_member("/credential", why.detail());
    let credential: RegistrationCredential =
        serde_json::from_value(credential).map_err(|_| refused(PasskeyError::Malformed))?;
    let challenge = challenge_of(&credential.response.client_data_json).map_err(refused)?;
    let (mac, session, now) = (challenge_mac(&state.vault, &challenge), caller.signed_in.session.id, state.clock.now());
    let mut tx = state.begin().await?;
    if !passkeys::take_challenge_to_add(&mut tx, &mac, session, now).await? {
        return Err(refused(PasskeyError::Challenge));
    }
    let made = party.read_made(&credential, challenge).map_err(refused)?;
    let passkey = Passkey {
        id: PasskeyId(state.clock.uuid()),
        name,
        credential_id: made.credential_id,
        public_key: made.public_key,
        algorithm: made.algorithm,
        counter: made.counter.into(),
        transports: made.transports,
        created_at: now,
        last_used_at: None,
    };
    match passkeys::add(&mut tx, teammate, &passkey).await? {
        AddPasskeyResult::Done => {}
        AddPasskeyResult::TooMany => return Err(too_many()),
        AddPasskeyResult::Known => {
            return Err(Problem::new(ProblemCode::PasskeyKnown, "This passkey has been added before."));
        }
    }
    caller.did(AuditAction::PasskeyAdded, passkey.id).record(&mut tx, 1, now).await?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, axum::Json(passkey.into())))
}

/// Renames one of your passkeys.
#[utoipa::path(patch, path = "/v1/session/passkeys/{passkey}", tag = "Team",
    responses((status = 200, body = PasskeyResponse)))]
pub(crate) async fn rename(
    caller: InSession, State(state): State<ApiState>, PathId(id): PathId<PasskeyId>,
    Json(PasskeyChange { name }, _): Json<PasskeyChange>,
) -> Result<axum::Json<PasskeyResponse>, Problem> {
    let teammate = caller.teammate()?;
    check_name(&name)?;
    let mut tx = state.begin().await?;
    let renamed = passkeys::rename(&mut tx, teammate, id, &name).await?.ok_or_else(unknown)?;
    caller.did(AuditAction::PasskeyRenamed, id).record(&mut tx, 1, state.clock.now()).await?;
    tx.commit().await?;
    Ok(axum::Json(renamed.into()))
}

/// Removes one of your passkeys. Without any, a password or an OpenID provider alone is enough to sign in. Requires a sign-in
/// within the last ten minutes (403, `sign_in_again`).
#[utoipa::path(delete, path = "/v1/session/passkeys/{passkey}", tag = "Team", responses((status = 204)))]
pub(crate) async fn delete(
    caller: InSession, State(state): State<ApiState>, PathId(id): PathId<PasskeyId>,
) -> Result<StatusCode, Problem> {
    let teammate = recently_in(&caller, &state)?;
    let mut tx = state.begin().await?;
    if passkeys::remove(&mut tx, teammate, id).await? == WriteOutcome::Unknown {
        return Err(unknown());
    }
    caller.did(AuditAction::PasskeyRemoved, id).record(&mut tx, 1, state.clock.now()).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Number of removed passkeys.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PasskeysRemoved {
    /// Number of removed passkeys.
    removed: i64,
}

/// Removes all passkeys of a teammate who has lost an authenticator, and ends all their sessions, because a stranger may have
/// found it. The password stays.
#[utoipa::path(delete, path = "/v1/team/{teammate}/passkeys", tag = "Team",
    responses((status = 200, body = PasskeysRemoved)))]
pub(crate) async fn reset(
    admin: TeamAdmin, State(state): State<ApiState>, PathId(id): PathId<TeammateId>,
) -> Result<axum::Json<PasskeysRemoved>, Problem> {
    // One's own take a sign-in of late, which this does not ask for.
    admin.must_not_be(id)?;
    let now = state.clock.now();
    let mut tx = state.begin().await?;
    admin.must_still_be(&mut tx).await?;
    if !team::lock(&mut tx, id).await? {
        return Err(Problem::not_found("teammate"));
    }
    let removed = passkeys::remove_all(&mut tx, id).await?;
    sessions::end_all(&mut tx, Owner::Teammate(id), None, now).await?;
    admin.caller.did(None, AuditAction::PasskeysReset, id).record(&mut tx, removed, now).await?;
    tx.commit().await?;
    Ok(axum::Json(PasskeysRemoved { removed }))
}

/// Returns the teammate of the session. 403 if they signed in too long ago.
fn recently_in(caller: &InSession, state: &ApiState) -> Result<TeammateId, Problem> {
    let teammate = caller.teammate()?;
    if caller.signed_in.session.began_at + RECENT > state.clock.now() {
        return Ok(teammate);
    }
    let detail = "To add or remove a passkey, sign in again: the last sign-in must be at most ten minutes old.";
    Err(Problem::new(ProblemCode::SignInAgain, detail))
}

/// Returns this server's identity for passkeys. 409: the server has none.
pub(super) fn relying_party(state: &ApiState) -> Result<&RelyingParty, Problem> {
    state.settings.relying_party.as_ref().ok_or_else(|| {
        let detail = "Browsers offer passkeys only for host names with TLS: the operator has to set BELLWIRE_PUBLIC_URL to such an address. `bellwire admin reset-passkeys` deletes the passkeys of a teammate.";
        Problem::new(ProblemCode::PasskeysUnavailable, detail)
    })
}

pub(super) fn challenge_mac(vault: &Vault, challenge: &[u8]) -> [u8; 32] {
    vault.mac(Purpose::PasskeyChallenge, &[challenge])
}

fn too_many() -> Problem {
    Problem::new(
        ProblemCode::TooManyPasskeys,
        format!("You may have at most {PASSKEYS_MAX} passkeys. Remove one first."),
    )
}

fn unknown() -> Problem {
    Problem::not_found("passkey")
}
