//! `GET /v1/session/methods`: what the page in front of a session is to offer.

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::oidc;
use crate::api::ApiState;

/// A way to sign in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Method {
    /// Address and password, by `POST /v1/session`.
    Password,
    /// A one-time link, likewise.
    Link,
    /// An operator's key, likewise.
    ApiKey,
    /// At the OpenID provider, to which `oidc.path` leads.
    Oidc,
}

/// Ways to sign in to this server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SignInMethods {
    /// The ways that there are.
    methods: Vec<Method>,
    /// The OpenID provider. Null: there is none.
    oidc: Option<OidcMethod>,
}

/// Signing in at an OpenID provider.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OidcMethod {
    /// Name of the provider for people.
    label: String,
    /// Path on this server for the browser: a navigation, not a request of a script.
    path: &'static str,
}

/// Returns the ways to sign in to this server, for a sign-in page.
#[utoipa::path(get, path = "/v1/session/methods", tag = "Team", responses((status = 200, body = SignInMethods)))]
pub(crate) async fn show(State(state): State<ApiState>) -> axum::Json<SignInMethods> {
    let mut methods = vec![Method::Password, Method::Link, Method::ApiKey];
    let oidc = state.settings.oidc.as_ref();
    methods.extend(oidc.map(|_| Method::Oidc));
    let oidc = oidc.map(|settings| OidcMethod { label: settings.label.clone(), path: oidc::BEGIN });
    axum::Json(SignInMethods { methods, oidc })
}
