//! Table of settings, each with its name, type, default, bounds and help.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderMap;
use url::Url;

use super::setting::Setting;
use super::sources::{RawValue, Sources};
use super::value::{
    LogFormat, Roles, Secret, attributes, collector, domain, duration, each, fraction, headers, https_url, keyword,
    list, listener, mailbox, name, number, optional, parsed, path, private_url, roles, secret, share, switch, text,
};
use super::{Error, unknown_variables};
use bellwire_core::origin::PageAudience;
use bellwire_core::role::Role;
use bellwire_gateway::{Exempt, Nat64, Proxy, Resolve};
use bellwire_telemetry::otlp::Sampling;
use bellwire_vault::master_key::MasterKey;

/// Sources of the default delivery policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PolicyDefaults {
    /// Defaults from this project's simulations.
    Tuned,
    /// The web-push retry guide.
    Guide,
}

/// Tools that `/mcp` offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpAccess {
    /// None: the route does not exist.
    Off,
    /// Tools that change nothing.
    Read,
    /// All tools.
    Write,
}

/// Declares the settings. A doc comment is the help text of its setting, and the field's type is its type.
macro_rules! settings {
    ($($(#[doc = $help:literal])+ $key:ident: $type:ty = $default:literal, $visibility:ident, $kind:expr;)+) => {
        #[derive(Debug, Clone)]
        pub(crate) struct Config {
            $($(#[doc = $help])+ pub $key: $type,)+
            /// Settings as given, with their sources and secrets masked, for `--print-config`.
            pub(super) given: Vec<(&'static Setting, RawValue)>,
            /// `PATH`, to search Postgres in.
            pub(super) search_path: Option<std::ffi::OsString>,
            /// Environment variables that look like settings but are none.
            pub(super) unknown_variables: Vec<String>,
            /// A settings file in the current directory that is not read.
            pub(super) passed_over: Option<PathBuf>,
        }

        pub(super) const SETTINGS: &[Setting] = &[$(Setting {
            key: stringify!($key),
            help: &[$($help),+],
            default: $default,
            secret: settings!(@ $visibility),
        }),+];

        impl Config {
            pub(super) fn read(sources: &Sources<'_>) -> Result<Self, Error> {
                let mut given = Vec::with_capacity(SETTINGS.len());
                let mut settings = SETTINGS.iter();
                $(let $key: $type = sources.value(settings.next().expect("one for each field"), &$kind, &mut given)?;)+
                Ok(Self {
                    $($key,)+
                    given,
                    search_path: sources.search_path.clone(),
                    unknown_variables: unknown_variables(sources.variables.iter().map(String::as_str)),
                    passed_over: sources.passed_over.clone(),
                })
            }
        }
    };
    (@ shown) => { false };
    (@ masked) => { true };
}

settings! {
    /// Address and port of the HTTP server.
    listen: SocketAddr = "127.0.0.1:8787", shown, listener();
    /// Certificate file (PEM, with its chain) for `listen`, which then speaks HTTPS. The file is read again when it changes.
    /// Empty: none.
    tls_cert: Option<PathBuf> = "", shown, optional(path());
    /// Private key file (PEM) of that certificate.
    tls_key: Option<PathBuf> = "", shown, optional(path());
    /// Host name for a certificate by ACME, such as push.example.com; `listen` then speaks HTTPS. Empty: none. The authority
    /// must reach `listen` at port 443 of that host. Setting it accepts the authority's terms of service.
    acme_domain: Option<String> = "", shown, optional(domain());
    /// URL of the ACME directory; Let's Encrypt by default.
    acme_directory: Url = "https://acme-v02.api.letsencrypt.org/directory", shown, https_url();
    /// Contact address for the ACME authority; empty: none.
    acme_email: Option<String> = "", shown, optional(mailbox());
    /// Trusted certificates (PEM) for the ACME authority, in addition to Mozilla's.
    acme_ca_file: Option<PathBuf> = "", shown, optional(path());
    /// Address and port of a listener that redirects browsers to HTTPS, such as 0.0.0.0:80; empty: none. Requires `tls_cert` or
    /// `acme_domain`.
    redirect_listen: Option<SocketAddr> = "", shown, optional(listener());
    /// Strict-Transport-Security period, sent in HTTPS responses at `public_url`; 0s: the header is not sent.
    hsts_max_age: Duration = "365d", shown, duration(Duration::ZERO..=Duration::from_secs(63_072_000));
    /// URL under which browsers reach this server; empty: derived from `acme_domain`, else from `listen`.
    public_url: Option<Url> = "", shown, optional(parsed("a URL, such as https://push.example.com, or empty"));
    /// Directory of the embedded Postgres and the master key; empty: /var/lib/bellwire for root, otherwise ~/.local/share/bellwire.
    data_dir: PathBuf = "", shown, path();
    /// URL of your own Postgres, 15 or later: postgres://user:password@host/database; empty: an embedded Postgres. Several
    /// hosts (…@a:5432,b:5432/database) are copies, one of which is the primary. If it is not set, DATABASE_URL is used, unless
    /// that database has another application's tables.
    database_url: Option<Secret> = "", masked, optional(secret("a URL that begins with postgres://", |text| {
        text.starts_with("postgres://") || text.starts_with("postgresql://")
    }));
    /// URL of standbys of that Postgres for reading lists, charts, searches and exports, which may then be stale; empty: the
    /// primary is read.
    read_database_url: Option<Secret> = "", masked, optional(secret("a URL that begins with postgres://", |text| {
        text.starts_with("postgres://") || text.starts_with("postgresql://")
    }));
    /// Maximum lag of a standby for these reads. While it lags more, the primary is read.
    read_lag_max: Duration = "5s", shown, duration(Duration::from_secs(1)..=Duration::from_secs(600));
    /// Directory of the programs `postgres` and `initdb`; empty: the newest installed version.
    postgres_bin: Option<PathBuf> = "", shown, optional(path());
    /// Memory in MiB for which the embedded Postgres is configured. From 2048 MiB, Postgres gets 256 MiB; below, one eighth. 0:
    /// the memory of this machine or container.
    memory_mib: u32 = "0", shown, number(0..=16_777_216);
    /// Maximum connections of this process to Postgres. The default is 10 for an embedded Postgres with less than 512 MiB. Postgres must
    /// allow the sum of all processes by `max_connections`.
    database_connections: u32 = "25", shown, number(6..=500);
    /// Roles of this process: `api` serves requests, `worker` delivers, `maintenance` cleans up. Each role needs at least
    /// one process.
    roles: Roles = "api,worker,maintenance", shown, roles();
    /// Log filter: a level (error, warn, info, debug, trace), or directives such as info,bellwire_dispatch=debug.
    log: String = "info", shown, parsed::<tracing_subscriber::EnvFilter>("a level or directives, such as info").into_text();
    /// Log format: `text` or `json`.
    log_format: LogFormat = "text", shown, keyword(&[("text", LogFormat::Text), ("json", LogFormat::Json)]);
    /// Master key, 32 bytes in base64; empty: it is read from `master_key_file`.
    master_key: Option<Secret> = "", masked, optional(secret("32 octets in base64", |text| MasterKey::parse(text).is_ok()));
    /// File of the master key, created at the first start with mode 0600; empty: master.key in `data_dir`.
    master_key_file: Option<PathBuf> = "", shown, optional(path());
    /// Shell command that prints the master key, such as the client of a key management service. It runs at each start and after a new seal
    /// key. Empty: the key comes from `master_key` or `master_key_file`.
    master_key_command: Option<Secret> = "", masked, optional(secret("a command of 1 to 4096 characters", |text| (1..=4_096).contains(&text.len())));
    /// Duration in milliseconds from which a database statement is logged (without its values) and counted as slow.
    slow_statement_ms: u32 = "1000", shown, number(1..=60_000);
    /// Address and port of a listener for /metrics without authentication, only on loopback or a private network; empty: none.
    /// /metrics at `listen` requires an API key.
    metrics_listen: Option<SocketAddr> = "", shown, optional(listener());
    /// Maximum open connections. At the limit, the connection that is idle for longest is closed for a new one.
    connections_max: u32 = "10000", shown, number(16..=1_000_000);
    /// Maximum open connections per client address (IPv6: per /64), a quarter of them in TLS handshakes. An IPv6 /48 may have
    /// four times as many. Not applied if `trusted_proxies` is above 0, because all connections come from the proxy.
    connections_per_client: u32 = "512", shown, number(1..=1_000_000);
    /// Maximum time that a connection may be idle. It should exceed the idle timeout of a proxy in front, so that the proxy
    /// closes first.
    idle_timeout: Duration = "150s", shown, duration(Duration::from_secs(1)..=Duration::from_secs(3_600));
    /// Timeout for a request's line and headers, from their first byte; also for a TLS handshake.
    header_timeout: Duration = "15s", shown, duration(Duration::from_secs(1)..=Duration::from_secs(600));
    /// Maximum bytes of a request's line and headers.
    header_limit_octets: u32 = "16384", shown, number(8_192..=262_144);
    /// Timeout for a request's body.
    body_timeout: Duration = "30s", shown, duration(Duration::from_secs(1)..=Duration::from_secs(600));
    /// Maximum bytes of the body of a backend's request.
    body_limit_octets: u32 = "1048576", shown, number(16_384..=67_108_864);
    /// Maximum bytes of the body of a browser's request. A list of 100 receipts may always have 99,200.
    public_body_limit_octets: u32 = "16384", shown, number(4_096..=1_048_576);
    /// Maximum rate of one API key, in requests per second.
    key_rate_per_second: u32 = "20000", shown, number(1..=1_000_000);
    /// Maximum burst of one API key, in requests.
    key_burst: u32 = "40000", shown, number(1..=10_000_000);
    /// Maximum rate of unproven API keys (invalid, or not used since the start) per client address and minute.
    key_guesses_per_minute: u32 = "600", shown, number(1..=1_000_000);
    /// Maximum burst of unproven API keys per client address.
    key_guesses_burst: u32 = "600", shown, number(1..=1_000_000);
    /// Maximum rate of one client address (IPv6: a /64; a /48 has 16 times the limit, here and below) at the public routes, in
    /// requests per minute.
    public_rate_per_minute: u32 = "120", shown, number(1..=1_000_000);
    /// Maximum burst of one client address at the public routes, in requests.
    public_burst: u32 = "60", shown, number(1..=1_000_000);
    /// Maximum rate of all clients together at the public routes of one app, in requests per minute.
    public_app_rate_per_minute: u32 = "60000", shown, number(1..=1_000_000);
    /// Maximum burst of all clients together at the public routes of one app, in requests.
    public_app_burst: u32 = "5000", shown, number(1..=1_000_000);
    /// Maximum rate of requests with receipts per client address and minute. All browsers behind one address count together.
    receipt_rate_per_minute: u32 = "12000", shown, number(1..=1_000_000);
    /// Maximum burst of requests with receipts per client address.
    receipt_burst: u32 = "2000", shown, number(1..=1_000_000);
    /// Maximum rate of requests with receipts per app and minute, of all clients together.
    receipt_app_rate_per_minute: u32 = "1000000", shown, number(1..=10_000_000);
    /// Maximum burst of requests with receipts per app, of all clients together.
    receipt_app_burst: u32 = "100000", shown, number(1..=10_000_000);
    /// Audience of the example page at /example/. `auto`: browsers on this machine; `true`: everyone; `false`: no page.
    example: Option<PageAudience> = "auto", shown, keyword(&[
        ("auto", Some(PageAudience::ThisMachine)), ("true", Some(PageAudience::Everybody)), ("false", None),
    ]);
    /// Tools for language models at /mcp (Model Context Protocol), with an API key. `read`: those that change nothing; `write`: all that the
    /// key may do; `off`: no route.
    mcp: McpAccess = "read", shown, keyword(&[("off", McpAccess::Off), ("read", McpAccess::Read), ("write", McpAccess::Write)]);
    /// Issuer of the OpenID provider for sign-in, exactly as the provider writes it, such as https://accounts.google.com;
    /// empty: none. Requires `oidc_client_id`, `oidc_client_secret` and `public_url`. At the provider, register
    /// /v1/session/oidc/callback below `public_url` as the redirect URL.
    oidc_issuer: Option<String> = "", shown, optional(private_url());
    /// Client id of this server at the OpenID provider.
    oidc_client_id: Option<String> = "", shown, optional(text(255));
    /// Client secret of this server at the OpenID provider.
    oidc_client_secret: Option<Secret> = "", masked, optional(secret("1 to 1024 characters", |text| (1..=1_024).contains(&text.len())));
    /// Display name of the OpenID provider; empty: its host.
    oidc_label: Option<String> = "", shown, optional(text(64));
    /// Allowed domains of the provider's email addresses, such as example.com; empty: any, for invited teammates.
    oidc_domains: Vec<String> = "", shown, list();
    /// Role, for all apps, of newcomers from these domains without an invitation: `viewer`, `sender`, `operator`; `none`: they cannot sign
    /// in. The admin role requires an invitation.
    oidc_newcomer_role: Option<Role> = "none", shown, keyword(&[
        ("none", None), ("viewer", Some(Role::Viewer)), ("sender", Some(Role::Sender)), ("operator", Some(Role::Operator)),
    ]);
    /// Trusted certificates (PEM) for the OpenID provider, in addition to Mozilla's.
    oidc_ca_file: Option<PathBuf> = "", shown, optional(path());
    /// Number of proxies in front that append to X-Forwarded-For; 0: the header is ignored. The client address is the one that
    /// the outermost proxy saw. X-Forwarded-Proto is used in the same way.
    trusted_proxies: u32 = "0", shown, number(0..=8);
    /// Hosts that act as push services, as `host=gateway`, or `host=gateway@ip:port` to connect to that address: for the
    /// simulator and private push services.
    gateways: Vec<String> = "", shown, list();
    /// Trusted certificates (PEM) for push services, in addition to Mozilla's.
    gateway_ca_file: Option<PathBuf> = "", shown, optional(path());
    /// Whether endpoints may resolve to this machine. Only for the simulator.
    allow_loopback: bool = "false", shown, switch();
    /// Proxy for connections to push services, webhooks and the OpenID provider: http://proxy:3128, socks5://proxy:1080 or
    /// socks5h://proxy:1080. Credentials go before the host: user:password@. Empty: no proxy.
    egress_proxy: Option<Secret> = "", masked, optional(secret(Proxy::ALLOWED, |text| Proxy::parse(text).is_ok()));
    /// Hosts that are reached without the proxy: names (with their subdomains), addresses, networks such as 10.0.0.0/8, or *
    /// for all. This machine is always reached directly.
    egress_no_proxy: Vec<Exempt> = "", shown, each("a comma-separated list of host names, addresses, networks such as 10.0.0.0/8, or *");
    /// Resolver of host names. `here`: this server, which gives the proxy a checked address. `proxy`: the proxy, for known push services
    /// and the hosts of `gateways`; this server still resolves and checks other names. socks5h:// implies `proxy`.
    egress_resolve: Resolve = "here", shown, keyword(&[("here", Resolve::Here), ("proxy", Resolve::Proxy)]);
    /// Prefixes with which this network translates IPv6 to IPv4 (NAT64), each of 32, 40, 48, 56, 64 or 96 bits. An address with
    /// such a prefix is allowed if its embedded IPv4 address is.
    nat64_prefixes: Vec<Nat64> = "64:ff9b::/96", shown,
        each("a comma-separated list of IPv6 prefixes of 32, 40, 48, 56, 64 or 96 bits, such as 64:ff9b::/96");
    /// Maximum connections to each origin of a push service.
    connections_per_gateway: u32 = "4", shown, number(1..=64);
    /// Maximum requests of a lane in flight. The lane finds its own limit below that.
    lane_concurrency_max: u32 = "400", shown, number(1..=10_000);
    /// Whether payloads are encrypted eight at a time on processors with AVX-512 IFMA.
    multi_buffer: bool = "true", shown, switch();
    /// Minimum recipients of a batch.
    batch_min: u32 = "50", shown, number(1..=500);
    /// Maximum recipients of a batch.
    batch_max: u32 = "500", shown, number(1..=500);
    /// Share of failures that opens a circuit breaker: above 0, at most 1. The web-push retry guide recommends 0.05. This and
    /// the next four settings are defaults for tiers without their own values.
    circuit_failure_threshold: f64 = "0.25", shown, share();
    /// Minimum number of POSTs in a minute for that share to count.
    circuit_min_attempts: u32 = "400", shown, number(1..=1_000_000);
    /// Number of consecutive failed POSTs that also opens a circuit breaker.
    circuit_consecutive_failures: u32 = "5", shown, number(1..=1_000);
    /// Initial open time of a circuit breaker.
    circuit_open: Duration = "30s", shown, duration(Duration::from_secs(1)..=Duration::from_secs(600));
    /// Maximum open time of a circuit breaker: each further trip in short succession doubles the open time up to this limit. Equal to the
    /// initial time: constant, as in the web-push retry guide.
    circuit_open_max: Duration = "60s", shown, duration(Duration::from_secs(1)..=Duration::from_secs(600));
    /// Limit of the runaway guard. An app is held if it sends more than this number of deliveries per active subscription, plus
    /// `runaway_floor`, within 15 minutes. 0: no limit. Apps may override it.
    runaway_factor: u32 = "10", shown, number(0..=1_000);
    /// Number of deliveries within 15 minutes that the runaway guard always allows, in addition to `runaway_factor`.
    runaway_floor: u32 = "10000", shown, number(0..=1_000_000_000);
    /// Defaults for tiers without their own policy. `tuned`: this server's tuned values. `guide`: the values of the web-push
    /// retry guide (5 retries from 2 s to 60 s), also for those of the five circuit breaker settings that are not set.
    policy_defaults: PolicyDefaults = "tuned", shown,
        keyword(&[("tuned", PolicyDefaults::Tuned), ("guide", PolicyDefaults::Guide)]);
    /// Days to keep messages, attempts and receipts: more than the longest time to live of 28 days.
    retention_days: u32 = "35", shown, number(30..=3_650);
    /// Days to keep dead letters, records of operations on them, and events.
    dead_letter_retention_days: u32 = "30", shown, number(1..=3_650);
    /// Days to keep ended subscriptions (gone, unsubscribed, replaced, expired). A value below `retention_days` counts as
    /// `retention_days`, so that their deliveries can be looked up.
    subscription_retention_days: u32 = "90", shown, number(1..=3_650);
    /// Days to keep accepted webhook requests. Failed ones are kept as long as dead letters.
    webhook_retention_days: u32 = "3", shown, number(1..=365);
    /// Days to keep click times of a user after the last receipt.
    habit_retention_days: u32 = "400", shown, number(1..=3_650);
    /// Days to keep events of users: as long as segments look back, and triggers wait.
    user_event_retention_days: u32 = "90", shown, number(1..=3_650);
    /// Days to keep metrics by the minute.
    minute_metrics_retention_days: u32 = "2", shown, number(1..=30);
    /// Days to keep metrics by the hour.
    hour_metrics_retention_days: u32 = "90", shown, number(1..=3_650);
    /// Days to keep metrics by the day.
    day_metrics_retention_days: u32 = "1825", shown, number(1..=36_500);
    /// Days to keep the audit log; 0: forever. Its entries contain personal data.
    audit_log_retention_days: u32 = "730", shown, number(0..=36_500);
    /// OpenTelemetry collector for OTLP over HTTP (`http/protobuf`), such as http://127.0.0.1:4318. Traces go to /v1/traces and metrics to
    /// /v1/metrics below it. Empty: no export.
    otel_exporter_otlp_endpoint: Option<Url> = "", shown, optional(collector());
    /// URL for traces, used unchanged.
    otel_exporter_otlp_traces_endpoint: Option<Url> = "", shown, optional(collector());
    /// URL for metrics, used unchanged.
    otel_exporter_otlp_metrics_endpoint: Option<Url> = "", shown, optional(collector());
    /// Trusted certificates (PEM) for the collector, in addition to Mozilla's.
    otel_exporter_otlp_certificate: Option<PathBuf> = "", shown, optional(path());
    /// Headers of requests to the collector, as name=value with percent-encoded values, separated by commas.
    otel_exporter_otlp_headers: HeaderMap = "", masked, headers();
    /// Disables the export.
    otel_sdk_disabled: bool = "false", shown, switch();
    /// Attributes of exported telemetry, in the form of the headers.
    otel_resource_attributes: BTreeMap<String, String> = "", shown, attributes();
    /// Service name in exported telemetry.
    otel_service_name: String = "bellwire", shown, name();
    /// Requests to trace. The `parentbased_…` values follow the caller's sampling decision; untraced callers count as for the plain values:
    /// all, none or a share.
    otel_traces_sampler: Sampling = "parentbased_always_on", shown, keyword(&[
        ("always_on", Sampling::AlwaysOn),
        ("always_off", Sampling::AlwaysOff),
        ("traceidratio", Sampling::Share),
        ("parentbased_always_on", Sampling::ParentOrAlwaysOn),
        ("parentbased_always_off", Sampling::ParentOrAlwaysOff),
        ("parentbased_traceidratio", Sampling::ParentOrShare),
    ]);
    /// Share of requests that the samplers `…traceidratio` trace, from 0 to 1.
    otel_traces_sampler_arg: f64 = "1", shown, fraction();
    /// Interval between exports of metrics, in milliseconds.
    otel_metric_export_interval: u32 = "60000", shown, number(1_000..=3_600_000);
    /// Maximum time that a stop waits for requests and deliveries in flight.
    shutdown_deadline: Duration = "20s", shown, duration(Duration::from_secs(1)..=Duration::from_secs(600));
}
