//! Settings and limits of the API.

use std::time::Duration;

use url::Url;

use crate::api::session::cookie::Cookies;
use crate::api::session::relying_party::RelyingParty;
use crate::{checks, live, receipts};
use bellwire_core::origin::PageAudience;
use bellwire_core::role::Role;
use bellwire_net::oidc::Provider;
use bellwire_rules::policy;
use bellwire_rules::policy::runaway::Guard;
use bellwire_store::outcomes::rollups::MetricsKept;

/// Messages of one batch, at most.
pub(in crate::api) const BATCH_MAX: usize = 1_000;

/// Rate of accepted requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestRate {
    /// At once; at least 1.
    pub burst: u32,
    /// In the long run; at least 1.
    pub per_minute: u32,
}

/// The example page is served.
#[derive(Debug, Clone, Default)]
pub struct Example {
    /// Callers that may use it.
    pub audience: PageAudience,
    /// URL by which browsers reach this server. `None`: any name of this machine.
    pub public_url: Option<Url>,
}

/// Settings of signing in with a provider.
#[derive(Debug, Clone)]
pub struct OidcSignInConfig {
    /// OpenID provider.
    pub provider: Provider,
    /// Name of the provider for people.
    pub label: String,
    /// Email domains with access, in lower case; empty: any.
    pub domains: Vec<String>,
    /// Role, for all apps, of persons without an invitation. `None`: they are refused. Only with `domains`.
    pub newcomers: Option<Role>,
}

/// Limits of the API.
#[derive(Debug, Clone)]
pub struct ApiConfig {
    /// Most octets of the body of a server's request.
    pub body_max_bytes: usize,
    /// Most octets of the body of a browser's request. Lists of receipts have a limit of their own.
    pub public_body_max_bytes: usize,
    /// Timeout of a request's body.
    pub body_timeout: Duration,
    /// Public requests of one client: an IPv4 address or an IPv6 /64. An IPv6 /48 may do 16 times as much, here and
    /// wherever clients are limited.
    pub per_client: RequestRate,
    /// Public requests of one app.
    pub per_app: RequestRate,
    /// Requests of one API key; each message of a batch counts as one.
    pub per_key: RequestRate,
    /// API keys that one client may show before they have proved to be valid.
    pub guesses_per_client: RequestRate,
    /// Requests with receipts of one client; everybody behind one address counts as one.
    pub receipts_per_client: RequestRate,
    /// Requests with receipts of one app.
    pub receipts_per_app: RequestRate,
    /// Messages to named recipients that wait to be written, at most: more are refused.
    pub sends_waiting_max: usize,
    /// Settings of gathering receipts.
    pub receipts: receipts::ReceiptConfig,
    /// Limits of listeners of the event streams.
    pub live: live::LiveConfig,
    /// Charts of figures over time that are made at a time.
    pub charts_at_once: usize,
    /// Simulations of policies that are made at a time.
    pub simulations_at_once: usize,
    /// Steps of one simulation at most: a million take one to two seconds, and only policies of very many retries need more.
    pub simulation_steps_max: u64,
    /// Searches through deliveries, messages and dead letters that are made at a time: far fewer than connections to the database.
    pub searches_at_once: usize,
    /// Timeout of waiting for a slot. One app has at most half of the slots of each kind.
    pub place_patience: Duration,
    /// Timeout of a client for a part of an export. Afterwards it is disconnected, and its slot is free.
    pub part_timeout: Duration,
    /// Guard against apps that send far more than their size explains.
    pub guard: Guard,
    /// The example page; none: there is none.
    pub example: Option<Example>,
    /// Proxies between us and clients, each of which appends to `X-Forwarded-For`. 0: none, and the header is ignored.
    pub trusted_proxies: usize,
    /// The cookies of sessions.
    pub cookies: Cookies,
    /// Settings of the OpenID provider. `None`: no provider.
    pub oidc: Option<OidcSignInConfig>,
    /// Identity for passkeys. `None`: no passkeys.
    pub relying_party: Option<RelyingParty>,
    /// Retention of metrics over time.
    pub metrics_kept: MetricsKept,
    /// The figures that dispatch takes where a tier sets none.
    pub policy: policy::TierSettings,
    /// Objects of checks, except the database.
    pub setup: checks::Setup,
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self {
            body_max_bytes: 1024 * 1024, // a thousand of the longest user ids, and then some
            public_body_max_bytes: 16 * 1024,
            body_timeout: Duration::from_secs(30),
            per_client: RequestRate { burst: 60, per_minute: 120 },
            per_app: RequestRate { burst: 5_000, per_minute: 60_000 },
            per_key: RequestRate { burst: 40_000, per_minute: 1_200_000 },
            guesses_per_client: RequestRate { burst: 600, per_minute: 600 },
            receipts_per_client: RequestRate { burst: 2_000, per_minute: 12_000 },
            receipts_per_app: RequestRate { burst: 100_000, per_minute: 1_000_000 },
            sends_waiting_max: 8 * BATCH_MAX,
            receipts: receipts::ReceiptConfig::default(),
            live: live::LiveConfig::default(),
            charts_at_once: 4,
            simulations_at_once: 1,
            simulation_steps_max: 1_000_000,
            searches_at_once: 8,
            place_patience: Duration::from_secs(5),
            part_timeout: Duration::from_secs(60),
            guard: Guard::DEFAULT,
            example: Some(Example::default()),
            trusted_proxies: 0,
            cookies: Cookies { secure: false },
            oidc: None,
            relying_party: None,
            metrics_kept: MetricsKept::DEFAULT,
            policy: policy::TierSettings::DEFAULT,
            setup: checks::Setup::default(),
        }
    }
}
