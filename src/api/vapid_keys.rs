//! `/v1/apps/{app}/vapid-keys`: VAPID keys of an app. The active key is for new subscriptions. Retired keys still sign for the
//! subscriptions created with them.

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use utoipa::ToSchema;

use super::ApiState;
use super::http::auth::{MayExport, MayManageKeys, MayRead, Server};
use super::http::draft::Draft;
use super::http::extract::{PathId, Query};
use super::http::idempotency::{Instead, Making};
use super::http::paging::{Page, Paging};
use super::http::problem::{Faults, Problem, ProblemCode};
use super::http::routes::routes;
use bellwire_core::id::{AppId, VapidKeyId};
use bellwire_store::WriteOutcome;
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::keys::vapid_keys::{self, AddVapidKeyResult, Role, VapidKey};
use bellwire_vault::VAPID_PRIVATE;
use bellwire_webpush::keys::{KeyError, SigningKey, check_subject};
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(show, change)).routes(routes!(export))
}

/// VAPID key to generate or, with `private_key`, to import.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewVapidKey {
    /// Contact for push services, `mailto:` or `https:`. By default that of the active key.
    subject: Option<String>,
    /// State of the new key. By default `active`. A generated key is always active.
    #[serde(default)]
    state: Role,
    /// Private key to import: PEM, a JWK as text, base64 or hex of its 32 bytes, or base64 of DER.
    private_key: Option<String>,
    /// Public key in base64, to verify that it matches the private key.
    public_key: Option<String>,
}

/// Changes of a key.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VapidKeyChange {
    /// Contact for push services, `mailto:` or `https:`.
    subject: String,
}

/// VAPID key pair, for another server.
#[derive(Serialize, ToSchema)]
pub(crate) struct VapidKeyExport {
    #[serde(flatten)]
    key: VapidKey,
    /// Private key in base64url, as most `web-push` libraries expect it.
    private_key: String,
    /// Private key as PKCS#8 PEM.
    private_key_pem: String,
}

pub(super) async fn add(
    conn: &mut PgConnection, state: &ApiState, app: AppId, pair: &SigningKey, subject: &str, role: Role,
) -> Result<VapidKey, Problem> {
    let now = state.clock.now();
    let retired_at = (role == Role::Retired).then_some(now);
    let key = VapidKey {
        id: VapidKeyId(state.clock.uuid()),
        app,
        public_key: pair.public().to_vec(),
        subject: subject.to_owned(),
        state: role,
        created_at: now,
        retired_at,
        subscriptions: None,
    };
    let sealed = state.vault.seal(VAPID_PRIVATE, key.id, pair.expose_private());
    match vapid_keys::add(conn, &key, &sealed).await? {
        AddVapidKeyResult::Done => Ok(key),
        AddVapidKeyResult::Known => {
            Err(Problem::new(ProblemCode::VapidKeyKnown, "The app has this VAPID key already."))
        }
    }
}

fn read_pair(body: &NewVapidKey, faults: &mut Faults) -> Option<SigningKey> {
    let Some(private) = &body.private_key else {
        faults.require(body.public_key.is_none(), "/public_key", "is allowed only with `private_key`");
        faults.require(
            body.state == Role::Active,
            "/state",
            "a generated key must be active, because no browser uses it yet",
        );
        return Some(SigningKey::generate());
    };
    match SigningKey::import(private, body.public_key.as_deref()) {
        Ok(pair) => Some(pair),
        Err(error) => {
            let beside = matches!(error, KeyError::PublicKey | KeyError::Mismatch) && body.public_key.is_some();
            faults.refuse(if beside { "/public_key" } else { "/private_key" }, error.to_string());
            None
        }
    }
}

/// Generates or imports a VAPID key. If the new key is active, the previous one is retired: it still signs for its own
/// subscriptions.
#[utoipa::path(post, path = "/v1/apps/{app}/vapid-keys", tag = "VAPID keys", request_body = NewVapidKey,
    responses((status = 201, body = VapidKey)))]
pub(crate) async fn create(
    server: Server<MayManageKeys>, State(state): State<ApiState>,
    Making(body, mut faults, pending): Making<NewVapidKey>,
) -> Result<Response, Instead> {
    let pair = read_pair(&body, &mut faults);
    if let Some(Err(error)) = body.subject.as_deref().map(check_subject) {
        faults.refuse("/subject", error.to_string());
    }
    faults.finish()?;
    let pair = pair.expect("missing members were refused");
    let subject = match body.subject {
        Some(subject) => subject,
        None => vapid_keys::active(&state.pool, server.app.id).await?.subject,
    };
    let mut once = pending.begin(&state).await?;
    let key = add(once.conn(), &state, server.app.id, &pair, &subject, body.state).await?;
    let made = if body.private_key.is_some() { AuditAction::VapidKeyImported } else { AuditAction::VapidKeyCreated };
    server.did(made, key.id).record(once.conn(), 1, key.created_at).await?;
    if key.state == Role::Active {
        server.did(AuditAction::VapidKeyActivated, key.id).record(once.conn(), 1, key.created_at).await?;
    }
    once.finish(&state, StatusCode::CREATED, &key).await
}

/// Lists the app's keys, the newest first, each with its number of active subscriptions.
#[utoipa::path(get, path = "/v1/apps/{app}/vapid-keys", tag = "VAPID keys",
    responses((status = 200, body = Page<VapidKey>)))]
pub(crate) async fn list(
    server: Server<MayRead>, State(state): State<ApiState>, uri: Uri, Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let cut = paging.cut()?;
    let rows = vapid_keys::list(&state.pool, server.app.id, cut.ask()).await?;
    Ok(cut.page(rows, |key| key.id, |key| key).answer(&uri))
}

/// Returns a VAPID key.
#[utoipa::path(get, path = "/v1/apps/{app}/vapid-keys/{vapid_key}", tag = "VAPID keys",
    responses((status = 200, body = VapidKey)))]
pub(crate) async fn show(
    server: Server<MayRead>, State(state): State<ApiState>, PathId(id): PathId<VapidKeyId>,
) -> Result<axum::Json<VapidKey>, Problem> {
    Ok(axum::Json(find(&state, server.app.id, id).await?))
}

/// Changes the contact of a VAPID key.
#[utoipa::path(patch, path = "/v1/apps/{app}/vapid-keys/{vapid_key}", tag = "VAPID keys", request_body = VapidKeyChange,
    responses((status = 200, body = VapidKey)))]
pub(crate) async fn change(
    server: Server<MayManageKeys>, State(state): State<ApiState>, PathId(id): PathId<VapidKeyId>,
    Draft(body, mut faults, _): Draft<VapidKeyChange>,
) -> Result<axum::Json<VapidKey>, Problem> {
    if let Err(error) = check_subject(&body.subject) {
        faults.refuse("/subject", error.to_string());
    }
    faults.finish()?;
    let mut tx = state.begin().await?;
    if vapid_keys::set_subject(&mut *tx, server.app.id, id, &body.subject).await? == WriteOutcome::Done {
        server.did(AuditAction::VapidKeyChanged, id).record(&mut tx, 1, state.clock.now()).await?;
        tx.commit().await?;
    }
    Ok(axum::Json(find(&state, server.app.id, id).await?))
}

/// Exports a key pair, so that the app's subscribers can move to another server.
#[utoipa::path(post, path = "/v1/apps/{app}/vapid-keys/{vapid_key}/export", tag = "VAPID keys",
    responses((status = 200, body = VapidKeyExport)))]
pub(crate) async fn export(
    server: Server<MayExport>, State(state): State<ApiState>, PathId(id): PathId<VapidKeyId>,
) -> Result<axum::Json<VapidKeyExport>, Problem> {
    let not_found = || Problem::not_found("VAPID key");
    let key = find(&state, server.app.id, id).await?;
    let mut tx = state.begin().await?;
    let sealed = vapid_keys::private_key(&mut *tx, server.app.id, id).await?.ok_or_else(not_found)?;
    server.did(AuditAction::VapidKeyExported, id).record(&mut tx, 1, state.clock.now()).await?;
    tx.commit().await?;
    let private = zeroize::Zeroizing::new(state.vault.open(VAPID_PRIVATE, id, &sealed)?);
    let pair = <[u8; 32]>::try_from(private.as_slice()).ok().and_then(|octets| SigningKey::from_private(octets).ok());
    let pair = pair.ok_or_else(|| {
        tracing::error!("a stored VAPID private key is not a key");
        Problem::internal()
    })?;
    tracing::info!(vapid_key = %id, "a VAPID private key was exported");
    Ok(axum::Json(VapidKeyExport {
        key,
        private_key: pair.expose_raw().to_string(),
        private_key_pem: pair.expose_pem().to_string(),
    }))
}

async fn find(state: &ApiState, app: AppId, id: VapidKeyId) -> Result<VapidKey, Problem> {
    vapid_keys::find(&state.pool, app, id).await?.ok_or_else(|| Problem::not_found("VAPID key"))
}
