//! `GET /v1/session/methods`: ways to sign in, for the sign-in page.

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::oidc;
use crate::api::ApiState;

/// A way to sign in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SignInMethod {
    /// E-mail address and password, by `POST /v1/session`.
    Password,
    /// One-time link, by `POST /v1/session`.
    Link,
    /// Operator's key, by `POST /v1/session`.
    ApiKey,
    /// OpenID provider, by navigating to `oidc.path`.
    Oidc,
}

/// Ways to sign in to this server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SignInMethods {
    /// Available ways to sign in.
    methods: Vec<SignInMethod>,
    /// OpenID provider. Null: none is configured.
    oidc: Option<OidcMethod>,
}

/// Sign-in with an OpenID provider.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OidcMethod {
    /// Display name of the provider.
    label: String,
    /// Path on this server to which the browser navigates. Not for requests from scripts.
    path: &'static str,
}

/// Returns the ways to sign in to this server, for a sign-in page.
#[utoipa::path(get, path = "/v1/session/methods", tag = "Team", responses((status = 200, body = SignInMethods)))]
pub(crate) async fn show(State(state): State<ApiState>) -> axum::Json<SignInMethods> {
    let mut methods = vec![SignInMethod::Password, SignInMethod::Link, SignInMethod::ApiKey];
    let oidc = state.settings.oidc.as_ref();
    methods.extend(oidc.map(|_| SignInMethod::Oidc));
    let oidc = oidc.map(|settings| OidcMethod { label: settings.label.clone(), path: oidc::BEGIN });
    axum::Json(SignInMethods { methods, oidc })
}
