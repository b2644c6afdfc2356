//! Settings and limits of the API.

use std::time::Duration;

use url::Url;

use crate::api::session::cookie::Cookies;
use crate::api::session::relying_party::RelyingParty;
use crate::config::McpAccess;
use crate::{checks, live, receipts};
use bellwire_core::origin::PageAudience;
use bellwire_core::role::Role;
use bellwire_net::oidc::Provider;
use bellwire_rules::policy;
use bellwire_rules::policy::runaway::Guard;
use bellwire_store::outcomes::rollups::MetricsKept;

/// Maximum messages of a batch.
pub(in crate::api) const BATCH_MAX: usize = 1_000;

/// Rate of accepted requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestRate {
    /// Maximum burst, at least 1.
    pub burst: u32,
    /// Sustained rate per minute, at least 1.
    pub per_minute: u32,
}

/// Settings of the example page.
#[derive(Debug, Clone, Default)]
pub struct Example {
    /// Callers that may use the example page.
    pub audience: PageAudience,
    /// URL by which browsers reach this server. `None`: any name of this machine.
    pub public_url: Option<Url>,
}

/// Settings of sign-in with an OpenID provider.
#[derive(Debug, Clone)]
pub struct OidcSignInConfig {
    /// OpenID provider.
    pub provider: Provider,
    /// Display name of the provider.
    pub label: String,
    /// Allowed domains of e-mail addresses, in lower case. Empty: any.
    pub domains: Vec<String>,
    /// Role, for all apps, of people without an invitation. `None`: they are refused. Requires `domains`.
    pub newcomers: Option<Role>,
}

/// Limits of the API.
#[derive(Debug, Clone)]
pub struct ApiConfig {
    /// Maximum bytes of a body in a request with an API key or session.
    pub body_max_bytes: usize,
    /// Maximum bytes of a body in a browser's request. Lists of receipts have their own limit.
    pub public_body_max_bytes: usize,
    /// Maximum time in which the body of a request must arrive.
    pub body_timeout: Duration,
    /// Rate of public requests of one client: an IPv4 address or an IPv6 /64. An IPv6 /48 has 16 times this rate, as for all
    /// limits by client.
    pub per_client: RequestRate,
    /// Rate of public requests of one app.
    pub per_app: RequestRate,
    /// Rate of requests of one API key. Each message of a batch counts.
    pub per_key: RequestRate,
    /// Rate of unproven API keys of one client.
    pub guesses_per_client: RequestRate,
    /// Rate of receipt requests of one client. All browsers behind one address count together.
    pub receipts_per_client: RequestRate,
    /// Rate of receipt requests of one app.
    pub receipts_per_app: RequestRate,
    /// Maximum messages to named recipients that wait to be stored. More are refused.
    pub sends_waiting_max: usize,
    /// Settings for collecting receipts.
    pub receipts: receipts::ReceiptConfig,
    /// Limits of clients of the event streams.
    pub live: live::LiveConfig,
    /// Maximum concurrent charts.
    pub charts_at_once: usize,
    /// Maximum concurrent policy simulations.
    pub simulations_at_once: usize,
    /// Maximum steps of one simulation. A million take one to two seconds, and only policies with very many retries need more.
    pub simulation_steps_max: u64,
    /// Maximum concurrent searches through deliveries, messages and dead letters. Must be far below the number of database
    /// connections.
    pub searches_at_once: usize,
    /// Maximum wait for a slot. One app has at most half of the slots of each kind.
    pub place_patience: Duration,
    /// Maximum time for a client to read one part of an export. Then it is disconnected, and its slot is free.
    pub part_timeout: Duration,
    /// Runaway guard: limits of apps that send far more than their size explains.
    pub guard: Guard,
    /// The example page. `None`: disabled.
    pub example: Option<Example>,
    /// Tools at `/mcp`.
    pub mcp: McpAccess,
    /// Number of proxies between clients and this server, each of which appends to `X-Forwarded-For`. 0: the header is ignored.
    pub trusted_proxies: usize,
    /// Settings of session cookies.
    pub cookies: Cookies,
    /// Settings of the OpenID provider. `None`: no provider.
    pub oidc: Option<OidcSignInConfig>,
    /// Identity for passkeys. `None`: no passkeys.
    pub relying_party: Option<RelyingParty>,
    /// Retention of metrics over time.
    pub metrics_kept: MetricsKept,
    /// Delivery settings where a policy of a tier sets none.
    pub policy: policy::TierSettings,
    /// Inputs of the checks, except the database.
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
            mcp: McpAccess::Read,
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
