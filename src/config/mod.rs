//! Every setting, with its default and bounds, once. The environment is read only here.
//!
//! A setting is looked for on the command line (`--batch-max`), then in the environment (`BELLWIRE_BATCH_MAX`), then in
//! `bellwire.toml` (`batch_max`), and has a default otherwise. Secrets have no flag: any user of the machine can read
//! command lines. Settings of OpenTelemetry (`otel_…`) have the variables of its specification, which platforms set for all that
//! runs on them.

mod file;
mod flags;
mod sources;
pub(crate) mod trust;
mod value;

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderMap;
use url::Url;

use crate::api::example::Audience;
use crate::checks;
use crate::model::role::Role;
use crate::oidc;
use crate::otlp::{self, Sampling};
use crate::policy;
use crate::postgres;
use crate::vault::master_key::{self, MasterKey};
pub(crate) use flags::Flags;
use sources::{Given, Origin, Sources, default_data_dir, name_of};
pub(crate) use value::reachable;
pub(crate) use value::{LogFormat, Roles, Secret};
use value::{
    collector, duration, fraction, headers, keyword, list, listener, name, number, optional, parsed, path, private_url,
    roles, secret, share, switch, text,
};

/// What every variable begins with, but for those that have names of their own.
const PREFIX: &str = "BELLWIRE_";
/// The variable by which platforms name a database, be it meant for us or for another application.
const COMMON_DATABASE_VARIABLE: &str = "DATABASE_URL";
/// The variable that names a file of settings.
const FILE_VARIABLE: &str = "BELLWIRE_CONFIG";
/// What is printed for a secret.
const MASK: &str = "********";

/// Why the settings cannot be used. The texts are written for the person who started Bellwire.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A value is not allowed.
    #[error("{name} {found}, but must be {allowed}")]
    Value {
        /// Where it was given: the flag, variable, or key and file.
        name: String,
        /// The value, unless it is secret.
        found: String,
        /// What is allowed.
        allowed: String,
    },
    /// The file has a key that is no setting.
    #[error("{} has the unknown key `{key}`; `bellwire serve --print-config` shows all that there are", file.display())]
    UnknownKey {
        /// The file.
        file: PathBuf,
        /// The key.
        key: String,
    },
    /// The file is not TOML, cannot be read, or may have been written by somebody else.
    #[error("{}: {reason}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// What is known of a setting before it has a value.
#[derive(Debug)]
struct Setting {
    /// Its name in the file; flag and variable follow from it.
    key: &'static str,
    help: &'static [&'static str],
    default: &'static str,
    secret: bool,
}

impl Setting {
    fn variable(&self) -> String {
        let name = self.key.to_ascii_uppercase();
        if self.key.starts_with("otel_") { name } else { format!("{PREFIX}{name}") }
    }

    /// A variable that is looked at when its own is not set: the name that every platform gives it.
    fn common_variable(&self) -> Option<&'static str> {
        (self.key == "database_url").then_some(COMMON_DATABASE_VARIABLE)
    }

    fn flag(&self) -> String {
        self.key.replace('_', "-")
    }
}

/// Declares each setting once: its documentation is also its help, its type the field's.
macro_rules! settings {
    ($($(#[doc = $help:literal])+ $key:ident: $type:ty = $default:literal, $visibility:ident, $kind:expr;)+) => {
        /// All settings, checked.
        #[derive(Debug, Clone)]
        pub(crate) struct Config {
            $($(#[doc = $help])+ pub $key: $type,)+
            /// Each setting as it was given, and where, with secrets masked: for `--print-config`.
            given: Vec<(&'static Setting, Given)>,
            /// `PATH`, to find Postgres in.
            search_path: Option<std::ffi::OsString>,
            /// Variables that look like settings and are none.
            unknown_variables: Vec<String>,
            /// A file in the current directory that looks like one of settings and is not read.
            passed_over: Option<PathBuf>,
        }

        const SETTINGS: &[Setting] = &[$(Setting {
            key: stringify!($key),
            help: &[$($help),+],
            default: $default,
            secret: settings!(@ $visibility),
        }),+];

        impl Config {
            fn read(sources: &Sources<'_>) -> Result<Self, Error> {
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
    /// The URL under which browsers reach this server; empty: derived from `listen`.
    public_url: Option<Url> = "", shown, optional(parsed("a URL, such as https://push.example.com, or empty"));
    /// Where the embedded Postgres and the master key live; empty: /var/lib/bellwire for root, otherwise
    /// ~/.local/share/bellwire.
    data_dir: PathBuf = "", shown, path();
    /// A Postgres of your own, 15 or later: postgres://user:password@host/database; empty: an embedded one is run. Without
    /// it DATABASE_URL is taken, unless its database holds another application's tables.
    database_url: Option<Secret> = "", masked, optional(secret("a URL that begins with postgres://", |text| {
        text.starts_with("postgres://") || text.starts_with("postgresql://")
    }));
    /// The directory of the programs `postgres` and `initdb`; empty: the newest that is installed.
    postgres_bin: Option<PathBuf> = "", shown, optional(path());
    /// Connections to Postgres, at most.
    database_connections: u32 = "24", shown, number(6..=500);
    /// What this process does: `api` answers requests, `worker` delivers, `maintenance` cleans up. Every role must run
    /// somewhere.
    roles: Roles = "api,worker,maintenance", shown, roles();
    /// What is logged: a level (error, warn, info, debug, trace), or directives such as info,bellwire::dispatch=debug.
    log: String = "info", shown, parsed::<tracing_subscriber::EnvFilter>("a level or directives, such as info").into_text();
    /// How log lines look.
    log_format: LogFormat = "text", shown, keyword(&[("text", LogFormat::Text), ("json", LogFormat::Json)]);
    /// The master key, 32 octets in base64; empty: it is in `master_key_file`.
    master_key: Option<Secret> = "", masked, optional(secret("32 octets in base64", |text| MasterKey::parse(text).is_ok()));
    /// The file of the master key, made at the first start with mode 0600; empty: master.key in `data_dir`.
    master_key_file: Option<PathBuf> = "", shown, optional(path());
    /// Address and port of a listener for /metrics, without authentication: for loopback or a private network only; empty:
    /// none. At `listen` /metrics takes an API key.
    metrics_listen: Option<SocketAddr> = "", shown, optional(listener());
    /// Connections that may be open at a time.
    connections_max: u32 = "10000", shown, number(16..=1_000_000);
    /// Connections that one client address (IPv6: a /64) may have open at a time. Without meaning where `trusted_proxies`
    /// is above 0: all come from the proxy.
    connections_per_client: u32 = "512", shown, number(1..=1_000_000);
    /// How long a connection may stay open without a request; longer than a proxy in front keeps it, so that the proxy
    /// does not find it closed.
    idle_timeout: Duration = "150s", shown, duration(Duration::from_secs(1)..=Duration::from_secs(3_600));
    /// How long a request's line and headers may take, from their first octet on.
    header_timeout: Duration = "15s", shown, duration(Duration::from_secs(1)..=Duration::from_secs(600));
    /// Octets of a request's line and headers, at most.
    header_limit_octets: u32 = "16384", shown, number(8_192..=262_144);
    /// How long a request's body may take.
    body_timeout: Duration = "30s", shown, duration(Duration::from_secs(1)..=Duration::from_secs(600));
    /// Octets of the body of a server's request, at most.
    body_limit_octets: u32 = "1048576", shown, number(16_384..=67_108_864);
    /// Octets of the body of a browser's request, at most; a list of 100 receipts may have 99,200 in any case.
    public_body_limit_octets: u32 = "16384", shown, number(4_096..=1_048_576);
    /// Requests per second that may be made with one API key.
    key_rate_per_second: u32 = "20000", shown, number(1..=1_000_000);
    /// Requests that may be made with one API key at once before that rate holds.
    key_burst: u32 = "40000", shown, number(1..=10_000_000);
    /// API keys per minute that one client address may show that are not valid, or were not shown before since the start.
    key_guesses_per_minute: u32 = "600", shown, number(1..=1_000_000);
    /// Such API keys that one client address may show at once before that rate holds.
    key_guesses_burst: u32 = "600", shown, number(1..=1_000_000);
    /// Requests per minute that one client address (IPv6: a /64; a /48 16 times as many, here and below) may make to the
    /// public routes.
    public_rate_per_minute: u32 = "120", shown, number(1..=1_000_000);
    /// Requests that one client address may make at once before that rate holds.
    public_burst: u32 = "60", shown, number(1..=1_000_000);
    /// Requests per minute that all clients together may make to the public routes of one app.
    public_app_rate_per_minute: u32 = "60000", shown, number(1..=1_000_000);
    /// Requests that all clients together may make to one app at once before that rate holds.
    public_app_burst: u32 = "5000", shown, number(1..=1_000_000);
    /// Requests with receipts per minute that one client address may make; everybody behind it counts.
    receipt_rate_per_minute: u32 = "12000", shown, number(1..=1_000_000);
    /// Requests with receipts that one client address may make at once before that rate holds.
    receipt_burst: u32 = "2000", shown, number(1..=1_000_000);
    /// Requests with receipts per minute that all clients together may make to one app.
    receipt_app_rate_per_minute: u32 = "1000000", shown, number(1..=10_000_000);
    /// Requests with receipts that all clients together may make to one app at once before that rate holds.
    receipt_app_burst: u32 = "100000", shown, number(1..=10_000_000);
    /// Whether the example page is served at /example/, with an app of its own: `auto`, to browsers on this machine only;
    /// `true`, to everybody; `false`, to nobody.
    example: Option<Audience> = "auto", shown, keyword(&[
        ("auto", Some(Audience::ThisMachine)), ("true", Some(Audience::Everybody)), ("false", None),
    ]);
    /// The OpenID provider by which teammates may sign in: its issuer, to the letter as the provider writes it, such as
    /// https://accounts.google.com; empty: none. It takes the next two and `public_url`, under which the provider is to
    /// know /v1/session/oidc/callback.
    oidc_issuer: Option<String> = "", shown, optional(private_url());
    /// What the OpenID provider calls this server.
    oidc_client_id: Option<String> = "", shown, optional(text(255));
    /// The secret by which the OpenID provider knows this server.
    oidc_client_secret: Option<Secret> = "", masked, optional(secret("1 to 1024 characters", |text| (1..=1_024).contains(&text.len())));
    /// What people call the OpenID provider; empty: by its host.
    oidc_label: Option<String> = "", shown, optional(text(64));
    /// Domains of the email addresses that are let in by the OpenID provider, such as example.com; empty: any, of teammates who
    /// were invited.
    oidc_domains: Vec<String> = "", shown, list();
    /// What somebody of these domains becomes, for all apps, whom nobody has invited: `viewer`, `sender`, `operator`; `none`: they
    /// are not let in. Admins are invited.
    oidc_newcomer_role: Option<Role> = "none", shown, keyword(&[
        ("none", None), ("viewer", Some(Role::Viewer)), ("sender", Some(Role::Sender)), ("operator", Some(Role::Operator)),
    ]);
    /// Certificates (PEM) that the OpenID provider is trusted by, beside Mozilla's.
    oidc_ca_file: Option<PathBuf> = "", shown, optional(path());
    /// Proxies in front that add to X-Forwarded-For: a client's address is the one that the outermost of them saw. 0:
    /// the header is not believed.
    trusted_proxies: u32 = "0", shown, number(0..=8);
    /// Hosts that stand for gateways, as `host=gateway` or `host=gateway@ip:port` to connect there instead: for the
    /// simulator and for private push services.
    gateways: Vec<String> = "", shown, list();
    /// Certificates (PEM) that gateways are trusted by, beside Mozilla's.
    gateway_ca_file: Option<PathBuf> = "", shown, optional(path());
    /// Whether endpoints may resolve to this machine: for the simulator only.
    allow_loopback: bool = "false", shown, switch();
    /// Connections to each origin of a gateway, at most.
    connections_per_gateway: u32 = "4", shown, number(1..=64);
    /// Requests of a lane in flight, at most; the lane finds its own limit below.
    lane_concurrency_max: u32 = "400", shown, number(1..=10_000);
    /// Recipients of a batch, at least.
    batch_min: u32 = "50", shown, number(1..=500);
    /// Recipients of a batch, at most.
    batch_max: u32 = "500", shown, number(1..=500);
    /// The share of failures that opens a circuit breaker: above 0, at most 1. The web-push retry guide says 0.05. This and
    /// the next four are for tiers without figures of their own.
    circuit_failure_threshold: f64 = "0.25", shown, share();
    /// That share counts from so many POSTs in a minute on.
    circuit_min_attempts: u32 = "400", shown, number(1..=1_000_000);
    /// So many POSTs that failed in a row open a circuit breaker, too.
    circuit_consecutive_failures: u32 = "5", shown, number(1..=1_000);
    /// How long a circuit breaker opens at first.
    circuit_open: Duration = "30s", shown, duration(Duration::from_secs(1)..=Duration::from_secs(600));
    /// How long it opens at most: each trip that follows soon doubles it up to this. As long as the first: it does not grow,
    /// as the web-push retry guide has it.
    circuit_open_max: Duration = "60s", shown, duration(Duration::from_secs(1)..=Duration::from_secs(600));
    /// An app is held when it sends, within a quarter of an hour, more than so many deliveries for each of its active
    /// subscriptions, and `runaway_floor` more; 0: never. Apps may have figures of their own.
    runaway_factor: u32 = "10", shown, number(0..=1_000);
    /// So many deliveries within a quarter of an hour hold no app, however small it is.
    runaway_floor: u32 = "10000", shown, number(0..=1_000_000_000);
    /// What holds for tiers without a policy of their own: what this server was tuned to (`tuned`), or all that the web-push
    /// retry guide publishes (`guide`): 5 retries from 2 s to 60 s, and of the five settings before those that are not given.
    policy_defaults: PolicyDefaults = "tuned", shown,
        keyword(&[("tuned", PolicyDefaults::Tuned), ("guide", PolicyDefaults::Guide)]);
    /// Days that messages, their attempts and receipts are kept; more than the longest time to live, which is 28 days.
    retention_days: u32 = "35", shown, number(30..=3_650);
    /// Days that dead letters, the trail of what was done with them, and events are kept.
    dead_letter_retention_days: u32 = "30", shown, number(1..=3_650);
    /// Days that subscriptions are kept after they ended (gone, unsubscribed, replaced, expired); never for less than
    /// `retention_days`, so that their deliveries can be looked up.
    subscription_retention_days: u32 = "90", shown, number(1..=3_650);
    /// Days that figures over time are kept by the minute.
    minute_metrics_retention_days: u32 = "2", shown, number(1..=30);
    /// Days that figures over time are kept by the hour.
    hour_metrics_retention_days: u32 = "90", shown, number(1..=3_650);
    /// Days that figures over time are kept by the day.
    day_metrics_retention_days: u32 = "1825", shown, number(1..=36_500);
    /// Days that the audit log is kept; 0: for ever. It tells who did what from where, which is personal, too.
    audit_log_retention_days: u32 = "730", shown, number(0..=36_500);
    /// A collector of OpenTelemetry that takes OTLP over HTTP (`http/protobuf`, by convention at port 4318), such as
    /// http://127.0.0.1:4318: traces and metrics are sent to /v1/traces and /v1/metrics beneath it; empty: to nobody.
    otel_exporter_otlp_endpoint: Option<Url> = "", shown, optional(collector());
    /// Headers of requests to the collector, as name=value, separated by commas; values percent-encoded.
    otel_exporter_otlp_headers: HeaderMap = "", masked, headers();
    /// What the collector knows this server by.
    otel_service_name: String = "bellwire", shown, name();
    /// Which requests are traced: `parentbased_…`, those that their traced caller says, and of the others all, none or a share.
    otel_traces_sampler: Sampling = "parentbased_always_on", shown, keyword(&[
        ("always_on", Sampling::AlwaysOn),
        ("always_off", Sampling::AlwaysOff),
        ("traceidratio", Sampling::Share),
        ("parentbased_always_on", Sampling::ParentOrAlwaysOn),
        ("parentbased_always_off", Sampling::ParentOrAlwaysOff),
        ("parentbased_traceidratio", Sampling::ParentOrShare),
    ]);
    /// The share of requests that the two samplers `…traceidratio` trace: from 0 to 1.
    otel_traces_sampler_arg: f64 = "1", shown, fraction();
    /// Milliseconds from one sending of metrics to the next.
    otel_metric_export_interval: u32 = "60000", shown, number(1_000..=3_600_000);
    /// How long a stop waits for requests and deliveries in flight.
    shutdown_deadline: Duration = "20s", shown, duration(Duration::from_secs(1)..=Duration::from_secs(600));
}

/// Where the defaults of delivery policies come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PolicyDefaults {
    /// This server's simulations.
    Tuned,
    /// The web-push retry guide.
    Guide,
}

/// What this server is to an OpenID provider.
#[derive(Debug)]
pub(crate) struct OidcClient<'a> {
    /// The provider's issuer, to the letter.
    pub issuer: &'a str,
    /// What it calls this server.
    pub client_id: &'a str,
    /// By which it knows it.
    pub client_secret: &'a Secret,
}

/// One setting goes not with another.
fn wrong(key: &str, found: &str, allowed: &str) -> Error {
    Error::Value { name: key.to_owned(), found: found.to_owned(), allowed: allowed.to_owned() }
}

impl Config {
    /// Reads the settings of this process: flags, environment, file.
    pub(crate) fn load(flags: &Flags) -> Result<Self, Error> {
        // Compose files and unit files pass empty variables for what is not set.
        let environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let default_data_dir = default_data_dir(nix::unistd::geteuid().is_root(), &environment);
        let data_dir = flags.values.get("data_dir").cloned().or_else(|| environment("BELLWIRE_DATA_DIR"));
        let data_dir = PathBuf::from(data_dir.unwrap_or_else(|| default_data_dir.clone()));
        let named = flags.file.clone().or_else(|| environment(FILE_VARIABLE).map(PathBuf::from));
        let file = file::find(named, &data_dir);
        let sources = Sources {
            flags: &flags.values,
            environment: &environment,
            passed_over: file::passed_over(file.as_deref()),
            file: file.map(|file| file::read(&file)).transpose()?,
            default_data_dir,
            search_path: std::env::var_os("PATH"),
            variables: std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect(),
        };
        Self::read(&sources)?.consistent()
    }

    /// Checks what one setting alone cannot tell.
    fn consistent(self) -> Result<Self, Error> {
        if self.batch_min > self.batch_max {
            let allowed = format!("at most batch_max, which is {}", self.batch_max);
            return Err(wrong("batch_min", &format!("is {}", self.batch_min), &allowed));
        }
        if self.oidc_issuer.is_some() {
            let missing = [
                ("oidc_client_id", self.oidc_client_id.is_none()),
                ("oidc_client_secret", self.oidc_client_secret.is_none()),
                ("public_url", self.public_url.is_none()),
            ];
            if let Some((key, _)) = missing.into_iter().find(|(_, is_missing)| *is_missing) {
                return Err(wrong(key, "is empty", "given together with oidc_issuer"));
            }
            if self.public_url.as_ref().is_some_and(|url| !oidc::is_private(url)) {
                return Err(wrong("public_url", "is not on https", "so with oidc_issuer, unless it is this machine"));
            }
        }
        if self.oidc_newcomer_role.is_some() && self.oidc_domains.is_empty() {
            let allowed = "given together with oidc_newcomer_role: it would let in whomever the provider knows";
            return Err(wrong("oidc_domains", "is empty", allowed));
        }
        Ok(self)
    }

    /// What we are to the OpenID provider, if one is named.
    pub(crate) fn oidc_client(&self) -> Option<OidcClient<'_>> {
        Some(OidcClient {
            issuer: self.oidc_issuer.as_deref()?,
            client_id: self.oidc_client_id.as_deref()?,
            client_secret: self.oidc_client_secret.as_ref()?,
        })
    }

    /// Variables that are named like settings but are none: mostly misspelt, and without effect.
    pub(crate) fn unknown_variables(&self) -> &[String] {
        &self.unknown_variables
    }

    /// A `bellwire.toml` in the current directory that is not read.
    pub(crate) fn passed_over(&self) -> Option<&Path> {
        self.passed_over.as_deref()
    }

    /// Whether a setting, named by its key, was left at its default.
    pub(crate) fn is_default(&self, key: &str) -> bool {
        self.given.iter().any(|(setting, given)| setting.key == key && matches!(given.origin, Origin::Default))
    }

    /// What gave a setting, named by its key, its value: the flag, variable, or key and file.
    pub(crate) fn origin(&self, key: &str) -> String {
        let (setting, given) = self.given.iter().find(|(setting, _)| setting.key == key).expect("a setting's key");
        name_of(setting, given)
    }

    /// Whether the database was named by a variable that may be meant for another application.
    pub(crate) fn database_may_be_anothers(&self) -> bool {
        self.database_url.is_some() && self.origin("database_url") == COMMON_DATABASE_VARIABLE
    }

    /// The server's figures of delivery policies.
    pub(crate) fn policy(&self) -> policy::Settings {
        let defaults = match self.policy_defaults {
            PolicyDefaults::Tuned => policy::Settings::DEFAULT,
            PolicyDefaults::Guide => policy::Settings::GUIDE,
        };
        fn pick<T>(is_default: bool, default: T, given: T) -> T {
            if is_default { default } else { given }
        }
        let is = |key| self.is_default(key);
        policy::Settings {
            circuit_failure_threshold: pick(
                is("circuit_failure_threshold"),
                defaults.circuit_failure_threshold,
                self.circuit_failure_threshold,
            ),
            circuit_attempts_min: self.circuit_min_attempts,
            circuit_failures_in_a_row: self.circuit_consecutive_failures,
            circuit_open: self.circuit_open,
            circuit_open_max: pick(is("circuit_open_max"), defaults.circuit_open_max, self.circuit_open_max),
            ..defaults
        }
    }

    /// What is in force and where it comes from, as a `bellwire.toml`, with secrets masked.
    pub(crate) fn print(&self) -> String {
        let mut text = String::new();
        for (setting, given) in &self.given {
            let origin = match &given.origin {
                Origin::Flag(flag) => format!("--{flag}"),
                Origin::Variable(variable) => variable.clone(),
                Origin::File(file) => file.display().to_string(),
                Origin::Default => "default".to_owned(),
            };
            // A JSON string is a TOML string, too.
            let value = serde_json::Value::from(given.text.as_str());
            // A mask read back would be a wrong secret.
            let comment = if given.text == MASK { "# " } else { "" };
            writeln!(text, "{comment}{} = {value} # {origin}", setting.key).expect("a string takes everything");
        }
        text
    }

    /// The URL under which browsers reach this server.
    pub(crate) fn base_url(&self) -> Url {
        self.public_url.clone().unwrap_or_else(|| {
            Url::parse(&format!("http://{}", reachable(self.listen))).expect("an address and a port make a URL")
        })
    }

    /// What is told to a collector of OpenTelemetry, if there is one.
    pub(crate) fn otlp(&self) -> Option<otlp::Settings> {
        Some(otlp::Settings {
            endpoint: self.otel_exporter_otlp_endpoint.clone()?,
            headers: self.otel_exporter_otlp_headers.clone(),
            service_name: self.otel_service_name.clone(),
            sampling: self.otel_traces_sampler,
            share: self.otel_traces_sampler_arg,
            metrics_every: Duration::from_millis(self.otel_metric_export_interval.into()),
        })
    }

    /// How to run the embedded Postgres.
    pub(crate) fn postgres_options(&self) -> postgres::Options {
        postgres::Options {
            data_dir: self.data_dir.clone(),
            binaries: self.postgres_bin.clone(),
            search_path: self.search_path.clone(),
            ..postgres::Options::default()
        }
    }

    /// What checks look at.
    pub(crate) fn setup(&self) -> checks::Setup {
        let file = match self.master_key_source() {
            master_key::Source::File(file) => Some(file),
            master_key::Source::Given(_) => None,
        };
        checks::Setup {
            listen: self.listen,
            public_url: self.public_url.clone(),
            master_key_file: file,
            data_dir: self.database_url.is_none().then(|| self.data_dir.clone()),
        }
    }

    /// Where the master key comes from.
    pub(crate) fn master_key_source(&self) -> master_key::Source {
        match self.master_key.as_ref().and_then(|secret| MasterKey::parse(secret.expose()).ok()) {
            Some(key) => master_key::Source::Given(key),
            None => master_key::Source::File(
                self.master_key_file.clone().unwrap_or_else(|| self.data_dir.join("master.key")),
            ),
        }
    }
}

fn unknown_variables<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let known = |name: &str| name == FILE_VARIABLE || SETTINGS.iter().any(|setting| setting.variable() == name);
    // Kubernetes and Docker links describe a service called `bellwire` by such variables to its neighbours.
    let link = |name: &str| ["SERVICE_", "PORT_"].iter().any(|kind| name[PREFIX.len()..].starts_with(kind));
    let ours = |name: &&str| name.starts_with(PREFIX) && *name != "BELLWIRE_PORT";
    let mut unknown: Vec<_> =
        names.filter(ours).filter(|name| !known(name) && !link(name)).map(str::to_owned).collect();
    unknown.sort_unstable();
    unknown
}

#[cfg(test)]
mod tests;
