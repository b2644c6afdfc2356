//! Certificates by ACME (RFC 8555) with TLS-ALPN-01 challenges (RFC 8737): one order, from the account to the certificate
//! chain. The server decides when to order, and stores the result.

pub mod schedule;

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, BodyWrapper, BytesResponse, ChallengeType, HttpClient,
    Identifier, NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use tokio::time::timeout;
use url::Url;
use zeroize::Zeroizing;

use crate::outbound::{OutboundClient, OutboundLimits, PlainHttp};

/// Limits of a request. Certificate chains take a few thousand bytes.
const LIMITS: OutboundLimits =
    OutboundLimits { timeout: Duration::from_secs(30), body_max_bytes: 256 << 10, idle_connections: 2 };

/// Maximum duration of an order. The lease of an order lasts longer.
pub const PATIENCE: Duration = Duration::from_secs(240);
/// Polling of an order's status: after half a second at first, at most a minute.
const ASKED: RetryPolicy =
    RetryPolicy::new().initial_delay(Duration::from_millis(500)).backoff(1.5).timeout(Duration::from_secs(90));
/// Error type of an authority for an unknown account (RFC 8555 section 6.7).
const UNKNOWN_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// Reason for which an order gave no certificate. The texts are for operators.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Protocol(#[from] instant_acme::Error),
    /// The authority did not find the expected proof for this domain.
    #[error("the authority could not see that {domain} is this server: {why}")]
    Unproven { domain: String, why: String },
    /// The authority does not offer TLS-ALPN-01 challenges.
    #[error("the authority does not offer TLS-ALPN-01 for this domain")]
    NotOffered,
    #[error("the authority did not finish within {} s", PATIENCE.as_secs())]
    Slow,
    /// A local step failed, such as publishing the proof.
    #[error("{0}")]
    Own(String),
}

impl Error {
    /// Whether the authority has no such account, so that a new one must be registered.
    pub fn is_unknown_account(&self) -> bool {
        match self {
            Self::Protocol(instant_acme::Error::Api(problem)) => problem.r#type.as_deref() == Some(UNKNOWN_ACCOUNT),
            _ => false,
        }
    }
}

/// Directory, account and domain of an order.
#[derive(Debug, Clone)]
pub struct AcmeConfig {
    pub directory: Url,
    pub domain: String,
    /// Contact address of the operator. `None`: none.
    pub email: Option<String>,
    /// Trusted certificates (PEM) for the authority, in addition to Mozilla's.
    pub extra_ca_pem: Option<Vec<u8>>,
}

pub struct Issued {
    pub chain_pem: String,
    /// Private key (PEM) of the certificate.
    pub key_pem: Zeroizing<String>,
}

pub struct Authority {
    settings: AcmeConfig,
    http: OutboundClient,
}

impl Authority {
    /// Creates a client. Fails if the extra certificates are invalid.
    pub fn new(settings: AcmeConfig) -> Result<Self, Error> {
        let http = OutboundClient::new(settings.extra_ca_pem.as_deref(), None, PlainHttp::Nowhere, LIMITS);
        let http = http.map_err(|error| Error::Own(error.to_string()))?;
        Ok(Self { settings, http })
    }

    /// Registers an account, and returns its credentials: a secret, in JSON.
    pub async fn register(&self) -> Result<Zeroizing<Vec<u8>>, Error> {
        let email = self.settings.email.as_ref().map(|email| format!("mailto:{email}"));
        let contact: Vec<&str> = email.as_deref().into_iter().collect();
        let account = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let directory = self.settings.directory.as_str().to_owned();
        let builder = Account::builder_with_http(Box::new(self.http.clone()));
        let (_, credentials) =
            timeout(PATIENCE, builder.create(&account, directory, None)).await.map_err(|_| Error::Slow)??;
        Ok(Zeroizing::new(serde_json::to_vec(&credentials).map_err(instant_acme::Error::from)?))
    }

    /// Orders a certificate. `present` must publish the digest as the domain's challenge response, until the next call.
    pub async fn order<F>(&self, credentials: &[u8], present: impl Fn([u8; 32]) -> F) -> Result<Issued, Error>
    where
        F: Future<Output = Result<(), Error>>,
    {
        timeout(PATIENCE, self.order_patiently(credentials, present)).await.unwrap_or(Err(Error::Slow))
    }

    async fn order_patiently<F>(&self, credentials: &[u8], present: impl Fn([u8; 32]) -> F) -> Result<Issued, Error>
    where
        F: Future<Output = Result<(), Error>>,
    {
        let credentials: AccountCredentials = serde_json::from_slice(credentials).map_err(instant_acme::Error::from)?;
        let account = Account::builder_with_http(Box::new(self.http.clone())).from_credentials(credentials).await?;
        let domain = [Identifier::Dns(self.settings.domain.clone())];
        let mut order = account.new_order(&NewOrder::new(&domain)).await?;
        prove(&mut order, present).await?;
        match order.poll_ready(&ASKED).await {
            Ok(OrderStatus::Ready) => {}
            Ok(_) => return Err(self.unproven(&mut order, None).await),
            Err(instant_acme::Error::Api(problem)) => return Err(self.unproven(&mut order, problem.detail).await),
            Err(error) => return Err(error.into()),
        }
        let key_pem = Zeroizing::new(order.finalize().await?);
        let chain_pem = order.poll_certificate(&ASKED).await?;
        Ok(Issued { chain_pem, key_pem })
    }

    /// Reason of a failed order: the authority's text for the challenge, else for the order.
    async fn unproven(&self, order: &mut Order, of_order: Option<String>) -> Error {
        let mut why = of_order.unwrap_or_else(|| "no reason given".to_owned());
        let mut authorizations = order.authorizations();
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            let Ok(state) = authorization.refresh().await else { continue };
            let problem = state.challenges.iter().find_map(|challenge| challenge.error.as_ref());
            if let Some(detail) = problem.and_then(|problem| problem.detail.clone()) {
                why = detail;
            }
        }
        Error::Unproven { domain: self.settings.domain.clone(), why }
    }
}

async fn prove<F>(order: &mut Order, present: impl Fn([u8; 32]) -> F) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>>,
{
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue; // the authority remembers an earlier proof
        }
        let mut challenge = authorization.challenge(ChallengeType::TlsAlpn01).ok_or(Error::NotOffered)?;
        let digest = challenge.key_authorization().digest();
        let digest = digest.as_ref().try_into().map_err(|_| Error::Own("SHA-256 has 32 octets".to_owned()))?;
        present(digest).await?;
        challenge.set_ready().await?;
    }
    Ok(())
}

impl HttpClient for OutboundClient {
    fn request(
        &self, request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, instant_acme::Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let Ok(body) = body.collect().await;
            let response = client.exchange(Request::from_parts(head, Full::new(body.to_bytes()))).await;
            response.map(|it| it.map(Full::new).into()).map_err(|error| instant_acme::Error::Other(error.into()))
        })
    }
}
