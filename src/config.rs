//! All settings with their defaults and bounds. No other module reads the environment.
//!
//! A setting is read from the command line (`--batch-max`), then the environment (`BELLWIRE_BATCH_MAX`), then `bellwire.toml`
//! (`batch_max`), and otherwise has its default. Secrets have no flag, because any user of the machine can read command lines.
//! Settings of OpenTelemetry (`otel_…`) use the variables of its specification, which platforms set for all programs.

mod descriptors;
mod file;
mod flags;
mod setting;
mod settings;
mod sources;
mod template;
mod value;

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use url::Url;
use zeroize::Zeroizing;

use bellwire_gateway::{Egress, Proxy};
use bellwire_net::outbound;
use bellwire_rules::policy;
use bellwire_telemetry::otlp;
use bellwire_vault::master_key::{self, MasterKey};
pub(crate) use descriptors::RECEIVER_CONNECTIONS;
pub(crate) use flags::Flags;
use setting::Setting;
pub use settings::McpAccess;
use settings::SETTINGS;
pub(crate) use settings::{Config, PolicyDefaults};
use sources::{Sources, ValueSource, default_data_dir, name_of};
pub(crate) use template::{man_page, template};
pub(crate) use value::reachable;
pub(crate) use value::{LogFormat, Roles, Secret};

/// Prefix of environment variables, except of settings with their own variable names.
const PREFIX: &str = "BELLWIRE_";
/// Variable with which platforms name a database, possibly of another application.
const COMMON_DATABASE_VARIABLE: &str = "DATABASE_URL";
const FILE_VARIABLE: &str = "BELLWIRE_CONFIG";
/// Variable with a backend's API key, as `bellwire init` prints it and the examples read it. The command line sends the key to
/// a remote server.
pub(crate) const BACKEND_KEY_VARIABLE: &str = "BELLWIRE_KEY";
/// Variable with the URL of the server that the command line uses.
pub(crate) const SERVER_VARIABLE: &str = "BELLWIRE_SERVER";
/// Memory in MiB below which a machine or container is small.
const SMALL_MIB: u32 = 512;
/// Maximum connections to the embedded Postgres on a small machine.
const SMALL_CONNECTIONS: u32 = 10;
/// Replacement of a secret in output.
const MASK: &str = "********";

/// Reason for which the settings cannot be used. The texts are for the operator who started Bellwire.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{name} {found}, but must be {allowed}")]
    Value {
        /// Name of the flag or variable, or the key and file.
        name: String,
        /// Value, unless it is secret.
        found: String,
        allowed: String,
    },
    /// A secret, which is not shown.
    #[error("{name} is not {allowed}")]
    Secret { name: String, allowed: String },
    #[error("{} has the unknown key `{key}`; `bellwire serve --print-config` shows all that there are", file.display())]
    UnknownKey { file: PathBuf, key: String },
    /// The settings file is not TOML, is unreadable, or is writable by another user.
    #[error("{}: {reason}", file.display())]
    File { file: PathBuf, reason: String },
}

/// Registration of this server at the OpenID provider.
#[derive(Debug)]
pub(crate) struct OidcClient<'a> {
    pub issuer: &'a str,
    pub client_id: &'a str,
    pub client_secret: &'a Secret,
}

/// Creates an error about two settings that cannot be combined.
fn wrong(key: &str, found: &str, allowed: &str) -> Error {
    Error::Value { name: key.to_owned(), found: found.to_owned(), allowed: allowed.to_owned() }
}

fn is_setting(key: &str) -> bool {
    SETTINGS.iter().any(|setting| setting.key == key)
}

impl Config {
    /// Reads the settings of this process from flags, environment and file.
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
            file: file.map(|file| file::read(&file, &is_setting)).transpose()?,
            default_data_dir,
            search_path: std::env::var_os("PATH"),
            variables: std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect(),
        };
        Self::read(&sources)?.consistent()
    }

    /// Checks rules that involve several settings.
    fn consistent(mut self) -> Result<Self, Error> {
        if let (None, Some(domain)) = (&self.public_url, &self.acme_domain) {
            // Not with the port of `listen`: the authority, and so everybody, reaches the host at 443.
            self.public_url = Some(Url::parse(&format!("https://{domain}")).expect("a domain makes a URL"));
        }
        if self.batch_min > self.batch_max {
            let allowed = format!("at most batch_max, which is {}", self.batch_max);
            return Err(wrong("batch_min", &format!("is {}", self.batch_min), &allowed));
        }
        if self.master_key_command.is_some() && (self.master_key.is_some() || self.master_key_file.is_some()) {
            let allowed = "given without master_key and master_key_file: the master key comes from one place";
            return Err(wrong("master_key_command", "is given", allowed));
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
            if self.public_url.as_ref().is_some_and(|url| !outbound::is_private(url)) {
                return Err(wrong("public_url", "is not on https", "so with oidc_issuer, unless it is this machine"));
            }
        }
        self.consistently_https()?;
        if self.oidc_newcomer_role.is_some() && self.oidc_domains.is_empty() {
            let allowed =
                "given together with oidc_newcomer_role: without it, every account of the provider could sign in";
            return Err(wrong("oidc_domains", "is empty", allowed));
        }
        Ok(self)
    }

    fn consistently_https(&self) -> Result<(), Error> {
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            let (missing, given) =
                if self.tls_key.is_none() { ("tls_key", "tls_cert") } else { ("tls_cert", "tls_key") };
            return Err(wrong(missing, "is empty", &format!("given together with {given}")));
        }
        if self.tls_cert.is_some() && self.acme_domain.is_some() {
            return Err(wrong("acme_domain", "is given", "empty with tls_cert: certificates come from one of the two"));
        }
        if !self.speaks_https() && self.redirect_listen.is_some() {
            return Err(wrong("redirect_listen", "is given", "empty without tls_cert and acme_domain"));
        }
        if self.speaks_https() && self.public_url.as_ref().is_some_and(|url| url.scheme() != "https") {
            return Err(wrong("public_url", "is not on https", "so with tls_cert and acme_domain"));
        }
        Ok(())
    }

    pub(crate) fn speaks_https(&self) -> bool {
        self.tls_cert.is_some() || self.acme_domain.is_some()
    }

    /// Registration at the OpenID provider, if one is configured.
    pub(crate) fn oidc_client(&self) -> Option<OidcClient<'_>> {
        Some(OidcClient {
            issuer: self.oidc_issuer.as_deref()?,
            client_id: self.oidc_client_id.as_deref()?,
            client_secret: self.oidc_client_secret.as_ref()?,
        })
    }

    /// Returns variables with the prefix of settings that are not settings, sorted. They have no effect, and are mostly
    /// misspelt.
    pub(crate) fn unknown_variables(&self) -> &[String] {
        &self.unknown_variables
    }

    /// Returns a `bellwire.toml` in the current directory that is not read.
    pub(crate) fn passed_over(&self) -> Option<&Path> {
        self.passed_over.as_deref()
    }

    /// Whether a setting has its default, by its key.
    pub(crate) fn is_default(&self, key: &str) -> bool {
        self.given.iter().any(|(setting, given)| setting.key == key && matches!(given.origin, ValueSource::Default))
    }

    /// Returns the source of a setting's value: the flag, variable, or key and file.
    pub(crate) fn origin(&self, key: &str) -> String {
        let (setting, given) = self.given.iter().find(|(setting, _)| setting.key == key).expect("a setting's key");
        name_of(setting, given)
    }

    /// Whether the database URL came from a variable that may be meant for another application.
    pub(crate) fn database_may_be_anothers(&self) -> bool {
        self.database_url.is_some() && self.origin("database_url").starts_with(COMMON_DATABASE_VARIABLE)
    }

    /// Returns the server settings of delivery policies.
    pub(crate) fn policy(&self) -> policy::TierSettings {
        let defaults = match self.policy_defaults {
            PolicyDefaults::Tuned => policy::TierSettings::DEFAULT,
            PolicyDefaults::Guide => policy::TierSettings::GUIDE,
        };
        fn pick<T>(is_default: bool, default: T, given: T) -> T {
            if is_default { default } else { given }
        }
        let is = |key| self.is_default(key);
        policy::TierSettings {
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

    /// Formats all settings with their values and sources as a `bellwire.toml`, with secrets masked.
    pub(crate) fn print(&self) -> String {
        let mut text = String::new();
        for (setting, given) in &self.given {
            let origin = match &given.origin {
                ValueSource::Flag(flag) => format!("--{flag}"),
                ValueSource::Variable(variable) => variable.clone(),
                ValueSource::File(file) => file.display().to_string(),
                ValueSource::Default => "default".to_owned(),
            };
            // A JSON string is a TOML string, too.
            let value = serde_json::Value::from(given.text.as_str());
            // A mask read back would be a wrong secret.
            let comment = if given.text == MASK { "# " } else { "" };
            writeln!(text, "{comment}{} = {value} # {origin}", setting.key).expect("a string takes everything");
        }
        text
    }

    pub(crate) fn base_url(&self) -> Url {
        self.public_url.clone().unwrap_or_else(|| self.local_url(self.listen))
    }

    /// Returns the URL of a listener on this machine.
    pub(crate) fn local_url(&self, address: SocketAddr) -> Url {
        let scheme = if self.speaks_https() { "https" } else { "http" };
        Url::parse(&format!("{scheme}://{}", reachable(address))).expect("an address and a port make a URL")
    }

    /// Proxy for outgoing connections, if one is configured.
    pub(crate) fn egress(&self) -> Option<Egress> {
        let proxy = Proxy::parse(self.egress_proxy.as_ref()?.expose()).ok()?;
        Some(Egress::new(proxy, self.egress_resolve, self.egress_no_proxy.clone()))
    }

    /// OpenTelemetry export settings, if a collector is configured.
    pub(crate) fn otlp(&self) -> Option<otlp::OtlpConfig> {
        let base = self.otel_exporter_otlp_endpoint.as_ref().map(|url| url.as_str().trim_end_matches('/'));
        let below = |path: &str| base.and_then(|base| Url::parse(&format!("{base}/{path}")).ok());
        let traces = self.otel_exporter_otlp_traces_endpoint.clone().or_else(|| below("v1/traces"));
        let metrics = self.otel_exporter_otlp_metrics_endpoint.clone().or_else(|| below("v1/metrics"));
        if self.otel_sdk_disabled || (traces.is_none() && metrics.is_none()) {
            return None;
        }
        let mut resource = self.otel_resource_attributes.clone();
        let named = resource.remove("service.name").filter(|_| self.is_default("otel_service_name"));
        Some(otlp::OtlpConfig {
            traces,
            metrics,
            extra_ca_pem: None,
            headers: self.otel_exporter_otlp_headers.clone(),
            service_name: named.unwrap_or_else(|| self.otel_service_name.clone()),
            resource,
            sampling: self.otel_traces_sampler,
            share: self.otel_traces_sampler_arg,
            metrics_every: Duration::from_millis(self.otel_metric_export_interval.into()),
        })
    }

    /// Returns the duration from which a statement counts as slow.
    pub(crate) fn slow_statement(&self) -> Duration {
        Duration::from_millis(self.slow_statement_ms.into())
    }

    /// Maximum connections to Postgres. Each takes about 4 MiB, so the default is lower for an embedded Postgres on a small machine.
    pub(crate) fn connections(&self) -> u32 {
        let is_small = self.database_url.is_none() && self.postgres_options().memory_mib() < SMALL_MIB;
        let is_free = self.is_default("database_connections");
        let most = if is_small && is_free { SMALL_CONNECTIONS } else { u32::MAX };
        self.database_connections.min(most)
    }

    pub(crate) fn postgres_options(&self) -> bellwire_postgres::Options {
        bellwire_postgres::Options {
            data_dir: self.data_dir.clone(),
            binaries: self.postgres_bin.clone(),
            search_path: self.search_path.clone(),
            is_paced: true,
            memory_mib: Some(self.memory_mib).filter(|memory_mib| *memory_mib > 0),
            ..bellwire_postgres::Options::default()
        }
    }

    pub(crate) fn master_key_source(&self) -> master_key::MasterKeySource {
        if let Some(command) = &self.master_key_command {
            return master_key::MasterKeySource::Command(Zeroizing::new(command.expose().to_owned()));
        }
        match self.master_key.as_ref().and_then(|secret| MasterKey::parse(secret.expose()).ok()) {
            Some(key) => master_key::MasterKeySource::Given(key),
            None => master_key::MasterKeySource::File(
                self.master_key_file.clone().unwrap_or_else(|| self.data_dir.join("master.key")),
            ),
        }
    }
}

fn unknown_variables<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let known = |name: &str| {
        [FILE_VARIABLE, BACKEND_KEY_VARIABLE, SERVER_VARIABLE].contains(&name)
            || SETTINGS.iter().any(|setting| {
                let variable = setting.variable();
                variable == name || setting.file_variable(&variable).is_some_and(|file| file == name)
            })
    };
    // Kubernetes and Docker links describe a service called `bellwire` by such variables to its neighbours.
    let link = |name: &str| ["SERVICE_", "PORT_"].iter().any(|kind| name[PREFIX.len()..].starts_with(kind));
    let ours = |name: &&str| name.starts_with(PREFIX) && *name != "BELLWIRE_PORT";
    let mut unknown: Vec<_> =
        names.filter(ours).filter(|name| !known(name) && !link(name)).map(str::to_owned).collect();
    unknown.sort_unstable();
    unknown
}

#[cfg(test)]
#[path = "../tests/unit/config.rs"]
mod tests;
