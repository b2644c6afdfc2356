//! OpenID provider for sign-in of teammates (OpenID Connect Core 1.0, authorization code flow with PKCE). The provider proves
//! an identity; the API decides about permissions.
//!
//! ```text
//! begin ── discovery, remembered ──► where to send the browser, and what to remember of it meanwhile
//! finish ─ code ─► token endpoint ─► ID token ─ signature, issuer, audience, nonce, expiry ─► Person
//! ```

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use openidconnect::ClientSecret;
use openidconnect::core::{
    CoreAuthenticationFlow, CoreClient, CoreClientAuthMethod, CoreErrorResponseType, CoreIdToken, CoreIdTokenVerifier,
    CoreJwsSigningAlgorithm, CoreProviderMetadata,
};
use openidconnect::{
    AsyncHttpClient, AuthType, AuthorizationCode, ClaimsVerificationError, ClientId, CsrfToken, EndpointMaybeSet,
    EndpointNotSet, EndpointSet, HttpRequest, HttpResponse, IssuerUrl, Nonce, PkceCodeChallenge, PkceCodeVerifier,
    RedirectUrl, RequestTokenError, Scope, SignatureVerificationError, TokenResponse as _,
};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use tokio::sync::{Mutex, Semaphore};
use tracing::warn;
use url::Url;

use crate::outbound::{ExchangeError, OutboundClient, OutboundLimits, PlainHttp, causes};
use bellwire_core::clock::Timestamp;
use bellwire_gateway::Egress;

/// Time limit of a request to the provider.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// Age from which the provider's cached metadata are read again.
const FRESH_FOR: Duration = Duration::from_secs(3_600);
/// Age from which the provider's cached keys are read again if a token names an unknown key.
const KEYS_FRESH_FOR: Duration = Duration::from_secs(60);
/// Pause after a failed request for metadata. Requests that waited for it do not repeat it.
const PAUSE: Duration = TIMEOUT;
const AT_ONCE: usize = 32;
/// Maximum duration of a sign-in at the provider.
pub const ATTEMPT_LASTS: Duration = Duration::from_secs(600);
/// Maximum logged characters of an error, part of which may come from the provider.
const SAID_MAX: usize = 300;
/// Difference between the clocks of the provider and this server within which `iat` is accepted.
const ISSUED_LEEWAY: Duration = Duration::from_secs(60);

/// Provider, and this server's registration as its client.
#[derive(Debug, Clone)]
pub struct OidcConfig {
    /// Issuer, exactly as in the provider's tokens.
    pub issuer: String,
    /// Client identifier at the provider.
    pub client_id: String,
    /// Client secret at the provider. `Debug` does not show it.
    pub client_secret: ClientSecret,
    /// URL to which the provider redirects browsers after sign-in.
    pub redirect_url: String,
    /// Trusted certificates (PEM) for the provider, in addition to Mozilla's roots.
    pub extra_ca_pem: Option<Vec<u8>>,
    /// Proxy for requests to the provider. `None`: direct.
    pub egress: Option<Egress>,
    /// Timeout of each request to the provider.
    pub timeout: Duration,
}

/// Reason for which the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The issuer or the redirect URL is not a valid URL.
    #[error("not a URL: {0}")]
    Url(#[from] url::ParseError),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] bellwire_gateway::SettingsError),
}

/// Reasons why a sign-in failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OidcFailure {
    /// The provider did not respond, or with an invalid response. The text is for the log.
    #[error("the OpenID provider cannot be used: {0}")]
    Unavailable(String),
    /// The provider rejected the code, or its response fails verification. The text is for the log.
    #[error("the OpenID provider's response failed verification: {0}")]
    Refused(String),
    #[error("too many sign-ins at the OpenID provider are in progress")]
    Busy,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OidcPerson {
    /// Permanent identifier at the provider (`sub`).
    pub subject: String,
    /// Email address, if the provider has verified it.
    pub email: Option<String>,
}

/// State of a sign-in, which the browser keeps while its user is at the provider. It contains secrets: encrypt it.
#[derive(Serialize, Deserialize)]
pub struct OidcAttempt {
    state: CsrfToken,
    nonce: Nonce,
    verifier: PkceCodeVerifier,
    until_s: i64,
}

impl OidcAttempt {
    /// Whether a response of the provider belongs to this attempt, and is in time.
    pub fn is_answered_by(&self, state: &str, now: Timestamp) -> bool {
        let is_ours = self.state.secret().as_bytes().ct_eq(state.as_bytes());
        bool::from(is_ours) && now.timestamp() < self.until_s
    }
}

/// Provider client. Cheap to clone; clones share the cached metadata.
#[derive(Clone)]
pub struct Provider(Arc<ProviderInner>);

struct ProviderInner {
    issuer: IssuerUrl,
    client_id: ClientId,
    client_secret: ClientSecret,
    redirect_url: RedirectUrl,
    http: OutboundClient,
    known: Mutex<ProviderCache>,
    places: Semaphore,
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Provider({})", self.0.issuer.as_str())
    }
}

#[derive(Default)]
struct ProviderCache {
    metadata: Option<Arc<CoreProviderMetadata>>,
    read_at: Option<Timestamp>,
    /// Time of the last request for metadata, successful or not.
    asked_at: Option<Timestamp>,
}

impl ProviderCache {
    /// Whether cached data are older than `fresh_for`, and no request failed just now.
    fn is_due(&self, fresh_for: Duration, now: Timestamp) -> bool {
        let has_passed = |since: Option<Timestamp>, time| since.is_none_or(|since| since + time <= now);
        has_passed(self.read_at, fresh_for) && has_passed(self.asked_at, PAUSE)
    }
}

type ProviderClient =
    CoreClient<EndpointSet, EndpointNotSet, EndpointNotSet, EndpointNotSet, EndpointMaybeSet, EndpointMaybeSet>;

impl Provider {
    /// Builds the client. It requests nothing before the first sign-in.
    pub fn new(settings: OidcConfig) -> Result<Self, SettingsError> {
        let issuer = IssuerUrl::new(settings.issuer)?;
        // The keys of a provider take a few thousand bytes.
        let limits = OutboundLimits { timeout: settings.timeout, body_max_bytes: 1 << 20, idle_connections: 0 };
        let plain_http = PlainHttp::like(issuer.url());
        let http = OutboundClient::new(settings.extra_ca_pem.as_deref(), settings.egress, plain_http, limits)?;
        Ok(Self(Arc::new(ProviderInner {
            issuer,
            client_id: ClientId::new(settings.client_id),
            client_secret: settings.client_secret,
            redirect_url: RedirectUrl::new(settings.redirect_url)?,
            http,
            known: Mutex::default(),
            places: Semaphore::new(AT_ONCE),
        })))
    }

    pub fn issuer(&self) -> &str {
        self.0.issuer.as_str()
    }

    /// Returns the URL to which the browser is redirected to sign in, and the state that it must keep meanwhile.
    pub async fn begin(&self, now: Timestamp) -> Result<(Url, OidcAttempt), OidcFailure> {
        let metadata = self.metadata(FRESH_FOR, now).await?;
        let client = self.client(&metadata);
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let flow = CoreAuthenticationFlow::AuthorizationCode;
        let (url, state, nonce) = client
            .authorize_url(flow, CsrfToken::new_random, Nonce::new_random)
            .add_scope(Scope::new("email".to_owned()))
            .set_pkce_challenge(challenge)
            .url();
        if !self.0.http.admits(&url) {
            return Err(OidcFailure::Unavailable("its authorization endpoint is not on https".to_owned()));
        }
        Ok((url, OidcAttempt { state, nonce, verifier, until_s: (now + ATTEMPT_LASTS).timestamp() }))
    }

    /// Exchanges the code for the identity that the provider confirmed.
    pub async fn finish(&self, attempt: OidcAttempt, code: String, now: Timestamp) -> Result<OidcPerson, OidcFailure> {
        let _place = self.0.places.try_acquire().map_err(|_| OidcFailure::Busy)?;
        let metadata = self.metadata(FRESH_FOR, now).await?;
        let client = self.client(&metadata);
        let request =
            client.exchange_code(AuthorizationCode::new(code)).map_err(|why| OidcFailure::unavailable(&why))?;
        let tokens = request.set_pkce_verifier(attempt.verifier).request_async(&self.0.http).await;
        let tokens = tokens.map_err(|why| match &why {
            RequestTokenError::ServerResponse(answer) if *answer.error() == CoreErrorResponseType::InvalidGrant => {
                OidcFailure::refused(&why)
            }
            _ => OidcFailure::unavailable(&why),
        })?;
        let token = tokens.id_token().ok_or_else(|| OidcFailure::Refused("there is no ID token in it".to_owned()))?;
        let checked = match self.check(token, &metadata, &attempt.nonce, now) {
            // The provider may have changed its keys since.
            Err(ClaimsVerificationError::SignatureVerification(SignatureVerificationError::NoMatchingKey)) => {
                let metadata = self.metadata(KEYS_FRESH_FOR, now).await?;
                self.check(token, &metadata, &attempt.nonce, now)
            }
            checked => checked,
        };
        checked.map_err(|why| OidcFailure::refused(&why))
    }

    /// Verifies an ID token: issued by the provider, for this client and this attempt, and still valid. Returns its identity.
    fn check(
        &self, token: &CoreIdToken, metadata: &CoreProviderMetadata, nonce: &Nonce, now: Timestamp,
    ) -> Result<OidcPerson, ClaimsVerificationError> {
        // As for a public client: then no signature by our own secret (HS256) is accepted, for any header of a token.
        let verifier = CoreIdTokenVerifier::new_public_client(
            self.0.client_id.clone(),
            self.0.issuer.clone(),
            metadata.jwks().clone(),
        )
        .set_allowed_algs([CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256, CoreJwsSigningAlgorithm::EcdsaP256Sha256])
        .set_time_fn(move || now)
        .set_issue_time_verifier_fn(move |issued| match issued > now + ISSUED_LEEWAY {
            true => Err(format!("`iat` {issued} lies ahead of this server's clock, {now}: compare the clocks")),
            false => Ok(()),
        });
        let claims = token.claims(&verifier, nonce)?;
        let email = claims.email().filter(|_| claims.email_verified() == Some(true));
        Ok(OidcPerson {
            subject: claims.subject().as_str().to_owned(),
            email: email.map(|email| email.as_str().to_owned()),
        })
    }

    fn client(&self, metadata: &CoreProviderMetadata) -> ProviderClient {
        let ProviderInner { client_id, client_secret, redirect_url, .. } = &*self.0;
        let takes = |method| {
            let methods = metadata.token_endpoint_auth_methods_supported();
            methods.is_none_or(|methods| methods.contains(&method))
        };
        // The way that every provider has to know, unless it says that it does not (OpenID Connect Discovery section 3).
        let by_body = !takes(CoreClientAuthMethod::ClientSecretBasic) && takes(CoreClientAuthMethod::ClientSecretPost);
        CoreClient::from_provider_metadata(metadata.clone(), client_id.clone(), Some(client_secret.clone()))
            .set_redirect_uri(redirect_url.clone())
            .set_auth_type(if by_body { AuthType::RequestBody } else { AuthType::BasicAuth })
    }

    /// Returns the provider's metadata and keys, refreshed if older than `fresh_for` and if the provider responds. One caller refreshes;
    /// concurrent callers wait for its result.
    async fn metadata(&self, fresh_for: Duration, now: Timestamp) -> Result<Arc<CoreProviderMetadata>, OidcFailure> {
        let mut known = self.0.known.lock().await;
        if known.is_due(fresh_for, now) {
            match CoreProviderMetadata::discover_async(self.0.issuer.clone(), &self.0.http).await {
                Ok(metadata) => (known.metadata, known.read_at) = (Some(Arc::new(metadata)), Some(now)),
                Err(why) => warn!(why = said(&why), "the OpenID provider's metadata could not be read"),
            }
            // Not before: a caller that disconnects during the request would block the others.
            known.asked_at = Some(now);
        }
        known.metadata.clone().ok_or_else(|| OidcFailure::Unavailable("its metadata has not been read yet".to_owned()))
    }
}

impl<'c> AsyncHttpClient<'c> for OutboundClient {
    type Error = ExchangeError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, ExchangeError>> + Send + 'c>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(async move { Ok(self.exchange(request.map(Into::into)).await?.map(Into::into)) })
    }
}

impl OidcFailure {
    fn unavailable(why: &(dyn Error + 'static)) -> Self {
        Self::Unavailable(said(why))
    }

    fn refused(why: &(dyn Error + 'static)) -> Self {
        Self::Refused(said(why))
    }
}

/// Formats an error with its causes on one line, truncated for the log.
fn said(why: &(dyn Error + 'static)) -> String {
    let text = causes(Some(why));
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SAID_MAX).collect()
}

#[cfg(test)]
#[path = "../../../tests/crates/net/unit/oidc.rs"]
mod tests;
