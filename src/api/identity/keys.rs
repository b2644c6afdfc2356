//! `/v1/apps/{app}/identity-keys`: keys with which a backend signs user tokens. Also checks the user token of a browser
//! ([`crate::api::identity`]).

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use zeroize::Zeroizing;

use crate::api::ApiState;
use crate::api::http::auth::{MayManageKeys, MayRead, Server, unknown_key};
use crate::api::http::extract::{PathId, Query, is_plain_text};
use crate::api::http::idempotency::{Instead, Making};
use crate::api::http::paging::{Page, Paging};
use crate::api::http::problem::{Faults, FieldError, Problem, ProblemCode};
use crate::api::http::routes::routes;
use crate::api::identity::{Key, ProofForm, prove};
use bellwire_core::id::IdentityKeyId;
use bellwire_store::WriteOutcome;
use bellwire_store::keys::apps::App;
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::keys::identity_keys::{self, AddIdentityKeyResult, IdentityKey, KEYS_MAX};
use bellwire_vault::IDENTITY_SECRET;
use utoipa_axum::router::OpenApiRouter;

pub(in crate::api) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(delete))
}

/// Signature algorithm of a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) enum Algorithm {
    /// HMAC with SHA-256, with a secret shared by the server and your backend.
    #[default]
    #[serde(rename = "HS256")]
    Hs256,
    /// ECDSA on P-256. Your backend keeps the private key, and the server has the public key.
    #[serde(rename = "ES256")]
    Es256,
}

/// An identity key, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct IdentityKeyResponse {
    /// Id of the key, for the `kid` of tokens.
    id: IdentityKeyId,
    /// Display name of the key.
    name: String,
    /// Algorithm of signatures.
    algorithm: Algorithm,
    /// Form of the proof: a JWT, or the HMAC of the user id.
    form: ProofForm,
    /// Time of the creation.
    created_at: DateTime<Utc>,
    /// Secret for your backend: the whole text is the key, including the prefix. It is shown only now.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
}

impl From<IdentityKey> for IdentityKeyResponse {
    fn from(key: IdentityKey) -> Self {
        let algorithm = algorithm_of(&key);
        let (id, form, created_at) = (key.id, form_of(&key), key.created_at);
        Self { id, name: key.name, algorithm, form, created_at, secret: None }
    }
}

pub(in crate::api) fn algorithm_of(key: &IdentityKey) -> Algorithm {
    if key.secret.is_some() { Algorithm::Hs256 } else { Algorithm::Es256 }
}

fn form_of(key: &IdentityKey) -> ProofForm {
    ProofForm::from_name(&key.form).unwrap_or_default()
}

/// Key to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewIdentityKey {
    /// Display name of the key, 1 to 200 characters.
    name: String,
    /// Algorithm of signatures. By default `HS256`.
    #[serde(default)]
    algorithm: Algorithm,
    /// Form of the proof. By default `jwt`. `hmac` requires `HS256`. A key is valid for one form only.
    #[serde(default)]
    form: ProofForm,
    /// For `ES256`: the public key, as PEM text or JWK.
    #[schema(value_type = Option<PublicKeyInput>)]
    public_key: Option<Value>,
    /// For `HS256`: an existing secret of your backend, 32 to 255 bytes of ASCII. By default one is generated.
    secret: Option<String>,
}

/// Public key of a new identity key.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes JSON, is never built")]
enum PublicKeyInput {
    /// PEM text.
    Pem(String),
    /// JWK (RFC 7517).
    #[schema(value_type = Object)]
    Jwk(Value),
}

/// Lists the identity keys of an app.
#[utoipa::path(get, path = "/v1/apps/{app}/identity-keys", tag = "Identity",
    responses((status = 200, body = Page<IdentityKeyResponse>)))]
pub(crate) async fn list(
    server: Server<MayRead>, State(state): State<ApiState>, uri: Uri, Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let cut = paging.cut()?;
    let keys = identity_keys::list(&state.pool, server.app.id).await?;
    Ok(cut.page_of_all(keys, |key| key.id, IdentityKeyResponse::from).answer(&uri))
}

/// Creates a secret or stores a public key. Earlier keys stay valid until they are deleted. When the API key that created it is
/// revoked, the identity key is deleted, too, unless `keep_descendants` is set. An API key with an expiry cannot create
/// identity keys.
#[utoipa::path(post, path = "/v1/apps/{app}/identity-keys", tag = "Identity", request_body = NewIdentityKey,
    responses((status = 201, body = IdentityKeyResponse)))]
pub(crate) async fn create(
    server: Server<MayManageKeys>, State(state): State<ApiState>,
    Making(body, mut faults, pending): Making<NewIdentityKey>,
) -> Result<Response, Instead> {
    if server.caller.expires_at().is_some() {
        let detail = "An identity key never expires, so an API key that expires cannot create it.";
        return Err(Problem::forbidden(detail).into());
    }
    faults.require(is_plain_text(&body.name, 200), "/name", "must be 1 to 200 characters without control characters");
    let made = read_key(&body, &mut faults);
    faults.finish()?;
    let (key, secret) = made.expect("missing members were refused");
    let id = IdentityKeyId(state.clock.uuid());
    let (sealed, public_key) = match &key {
        Key::Hs256(secret) | Key::Hmac(secret) => (Some(state.vault.seal(IDENTITY_SECRET, id, secret)), None),
        Key::Es256(point) => (None, Some(point.to_vec())),
    };
    let row = IdentityKey {
        id,
        name: body.name,
        algorithm: key.algorithm().to_owned(),
        form: key.form().name().to_owned(),
        secret: sealed,
        public_key,
        made_by: server.caller.actor().who.key(),
        created_at: state.clock.now(),
    };
    let mut once = pending.begin(&state).await?;
    match identity_keys::add(once.conn(), server.app.id, &row).await? {
        AddIdentityKeyResult::Done => {}
        AddIdentityKeyResult::TooMany => {
            let detail =
                format!("An app may have at most {KEYS_MAX} identity keys. Delete one that is no longer in use.");
            return Err(Problem::new(ProblemCode::TooManyIdentityKeys, detail).into());
        }
        AddIdentityKeyResult::Revoked => return Err(unknown_key().into()),
    }
    let entry = server.did(AuditAction::IdentityKeyCreated, id);
    entry.with(json!({"name": row.name, "algorithm": row.algorithm})).record(once.conn(), 1, row.created_at).await?;
    let secret = secret.map(|secret| secret.to_string());
    once.finish(&state, StatusCode::CREATED, &IdentityKeyResponse { secret, ..row.into() }).await
}

/// Returns the requested key and, if it was generated here, its secret.
fn read_key(wanted: &NewIdentityKey, faults: &mut Faults) -> Option<(Key, Option<Zeroizing<String>>)> {
    let public = wanted.public_key.as_ref();
    if wanted.algorithm == Algorithm::Hs256 {
        faults.require(public.is_none(), "/public_key", "is allowed only with `\"algorithm\": \"ES256\"`");
        let secret = wanted.secret.as_ref().map_or_else(Key::generate, |secret| Zeroizing::new(secret.clone()));
        let fits = (32..=255).contains(&secret.len()) && secret.bytes().all(|octet| octet.is_ascii_graphic());
        faults.require(fits, "/secret", "must be 32 to 255 characters of ASCII, without spaces");
        return Some((shared(wanted.form, secret.as_bytes().to_vec().into()), Some(secret)));
    }
    faults.require(wanted.secret.is_none(), "/secret", "is allowed only with `\"algorithm\": \"HS256\"`");
    faults.require(
        wanted.form == ProofForm::Jwt,
        "/form",
        "must be `jwt` with ES256: an HMAC requires a shared secret",
    );
    let text = match public {
        Some(Value::String(pem)) => pem.clone(),
        Some(jwk) => jwk.to_string(),
        None => String::new(),
    };
    let key = Key::from_public(&text);
    faults.require(key.is_some(), "/public_key", "must be a public key on P-256: PEM text, or a JWK");
    key.map(|key| (key, None))
}

fn shared(form: ProofForm, secret: Zeroizing<Vec<u8>>) -> Key {
    match form {
        ProofForm::Jwt => Key::Hs256(secret),
        ProofForm::Hmac => Key::Hmac(secret),
    }
}

/// Deletes a key at once and permanently: tokens signed by it are no longer valid. Subscriptions keep their users.
#[utoipa::path(delete, path = "/v1/apps/{app}/identity-keys/{identity_key}", tag = "Identity",
    responses((status = 204)))]
pub(crate) async fn delete(
    server: Server<MayManageKeys>, State(state): State<ApiState>, PathId(id): PathId<IdentityKeyId>,
) -> Result<StatusCode, Problem> {
    let mut tx = state.begin().await?;
    if identity_keys::remove(&mut *tx, server.app.id, id).await? == WriteOutcome::Unknown {
        return Err(Problem::not_found("identity key"));
    }
    server.did(AuditAction::IdentityKeyRemoved, id).record(&mut tx, 1, state.clock.now()).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Checks the user of a subscription. Browsers need a user token, servers do not. A given token is always checked.
pub(in crate::api) async fn check_user(
    state: &ApiState, app: &App, is_server: bool, user: Option<&str>, token: Option<&str>,
) -> Result<(), Problem> {
    let (user, token) = match (user, token) {
        (None, None) => return Ok(()),
        (Some(_), None) if is_server => return Ok(()),
        (Some(_), None) => {
            let detail =
                "A browser can set the user of a subscription only with a `user_token` signed by the site's backend.";
            let mut problem = Problem::forbidden(detail);
            problem.errors.push(FieldError::member(
                "/user_id",
                "requires a `user_token`, or an API key with the scope `subscribers`",
            ));
            return Err(problem);
        }
        (None, Some(_)) => return Err(Problem::invalid_member("/user_token", "is allowed only with `user_id`")),
        (Some(user), Some(token)) => (user, token),
    };
    let keys = keys_of(state, app).await?;
    let id = app.id.to_string();
    prove(token, user, [&id, &app.slug], &keys, state.clock.now()).map_err(|unproven| {
        let detail = format!("The user token {unproven}.");
        let mut problem = Problem::new(unproven.code(), detail);
        problem.errors.push(FieldError::member("/user_token", unproven.to_string()));
        problem
    })
}

async fn keys_of(state: &ApiState, app: &App) -> Result<Vec<(IdentityKeyId, Key)>, Problem> {
    let rows = identity_keys::list(&state.pool, app.id).await?;
    let mut keys = Vec::with_capacity(rows.len());
    for row in rows {
        let form = form_of(&row);
        let key = match (row.secret, row.public_key.and_then(|point| point.try_into().ok())) {
            (Some(sealed), _) => shared(form, state.vault.open(IDENTITY_SECRET, row.id, &sealed)?.into()),
            (None, Some(point)) => Key::Es256(point),
            (None, None) => continue, // the table does not allow it
        };
        keys.push((row.id, key));
    }
    Ok(keys)
}
