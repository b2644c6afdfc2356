//! Environment of the demo: a server process with its embedded Postgres, and the push-service simulator in this process. Everything listens
//! on free ports of 127.0.0.1.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{Instant, sleep, timeout};

use super::client::{Caller, Client};
use super::faults;
use super::history;
use super::progress::Progress;
use super::site::{APP, ORIGIN, TOPIC, host_of, text};
use crate::config::{Config, Flags};
use crate::server::context::{Context, Migrations};
use bellwire_core::base64url;
use bellwire_core::lane::Gateway;
use bellwire_core::scope::Scope;
use bellwire_gateway::HostMapping;
use bellwire_postgres::GUARD;
use bellwire_simulator::gateways::{self, HostSpec, LogbookLimits, Simulator};
use bellwire_store::keys::api_keys;

const START_DEADLINE: Duration = Duration::from_secs(60);
/// Maximum time for the server and its Postgres to stop.
const STOP_DEADLINE: Duration = Duration::from_secs(60);
/// Additional records of the simulator, for pushes that users send while the demo keeps running.
const SPARE: usize = 10_000;
/// Interval between polls of a starting server.
const POLL: Duration = Duration::from_millis(20);

/// A directory that is deleted with its value, unless it is to be kept.
#[derive(Debug)]
struct DataDir {
    path: PathBuf,
    kept: bool,
}

impl DataDir {
    fn make(kept: bool) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("bellwire-demo-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        let dir = Self { path, kept };
        // Started by root, Postgres runs as another user, who has to pass.
        std::fs::set_permissions(&dir.path, std::fs::Permissions::from_mode(0o711))?;
        Ok(dir)
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        if !self.kept {
            // The server's guard has done it already, unless the server never started.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

pub(super) struct Setup {
    pub simulator: Simulator,
    pub api: Client,
    pub operator: String,
    /// API key of the app with all its scopes.
    pub key: String,
    pub application_server_key: Vec<u8>,
    server: Child,
    leash: ChildStdin,
    dir: DataDir,
}

impl Setup {
    /// Starts all processes and creates the app. `browsers`: maximum number to register. A demo that stays up also gets a shop with a
    /// history.
    pub(super) async fn start(
        seed: u64, browsers: u32, messages: u32, keep: bool, progress: &Progress, interrupted: impl Future<Output = ()>,
    ) -> anyhow::Result<Self> {
        let records = (browsers + messages) as usize;
        let simulator = Simulator::start(gateways::Options {
            hosts: Gateway::ALL.map(|gateway| HostSpec::new(gateway, host_of(gateway))).to_vec(),
            seed,
            limits: LogbookLimits { deliveries: records + SPARE, plaintexts: records + SPARE },
            ..gateways::Options::default()
        })
        .await?;
        // Data of a demo that does not start is of no use.
        let mut dir = DataDir::make(false)?;
        let ca_file = dir.path.join("simulator-ca.pem");
        tokio::fs::write(&ca_file, simulator.ca_pem()).await?;
        let settings = settings(&dir.path, &ca_file, &simulator);
        let operator = prepare(&settings, seed, keep, progress, interrupted).await?;
        dir.kept = keep;
        let (server, leash, address) = start_server(&settings, &dir).await?;
        let mut setup = Self {
            simulator,
            api: Client::new(format!("http://{address}")),
            operator,
            key: String::new(),
            application_server_key: Vec::new(),
            server,
            leash,
            dir,
        };
        match setup.make_app().await {
            Ok(()) => Ok(setup),
            Err(error) => {
                setup.stop().await?;
                Err(error)
            }
        }
    }

    async fn make_app(&mut self) -> anyhow::Result<()> {
        let operator = Caller::Key(&self.operator);
        let app = json!({"slug": APP, "name": "Demo", "origins": [ORIGIN], "subject": "mailto:push@example.com",
            "allow_other_gateways": true, "topics": [TOPIC]});
        self.api.post(operator, "/v1/apps", &app).await?;
        let key = json!({"name": "the shop's server", "scopes": Scope::OF_APPS});
        let key = self.api.post(operator, &format!("/v1/apps/{APP}/api-keys"), &key).await?;
        self.key = text(&key, "secret")?.to_owned();
        // What a page asks for before it subscribes.
        let config = self.api.get(Caller::Page(ORIGIN), &format!("/v1/apps/{APP}/config")).await?;
        let public = base64url::decode_any(text(&config, "application_server_key")?);
        self.application_server_key = public.context("the application server key is not base64url")?;
        Ok(())
    }

    pub(super) fn server(&self) -> Caller<'_> {
        Caller::Key(&self.key)
    }

    pub(super) fn data_dir(&self) -> &Path {
        &self.dir.path
    }

    pub(super) fn log(&self) -> PathBuf {
        log_of(&self.dir.path)
    }

    pub(super) fn last_words(&self) -> String {
        last_words(&self.dir.path)
    }

    /// Waits for the unexpected end of the server, and returns the error.
    pub(super) async fn server_ended(&mut self) -> anyhow::Error {
        match self.server.wait().await {
            Ok(status) => anyhow::anyhow!("the server ended ({status}): {}", last_words(&self.dir.path)),
            Err(error) => error.into(),
        }
    }

    /// Stops all processes and, unless they are kept, deletes the data.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        drop(self.leash);
        let ended = timeout(STOP_DEADLINE, self.server.wait()).await;
        self.simulator.stop().await;
        let status = ended.context("the server did not stop in time")??;
        if !status.success() {
            bail!("the server stopped with {status}: {}", last_words(&self.dir.path));
        }
        Ok(())
    }
}

/// Returns the settings of the demo's server. Other environment variables apply, too, except the database URL.
fn settings(dir: &Path, ca_file: &Path, simulator: &Simulator) -> Vec<(&'static str, String)> {
    let mapped = |host: gateways::HostMapping| {
        HostMapping { host: host.host, gateway: host.gateway, address: Some(host.addr) }.to_string()
    };
    let gateways: Vec<String> = simulator.hosts().into_iter().map(mapped).collect();
    let mut settings: Vec<(&'static str, String)> = [
        ("listen", "127.0.0.1:0"),
        ("roles", "api,worker,maintenance"),
        ("log", "info"),
        ("log_format", "json"),
        ("database_url", ""),
        ("master_key", ""),
        ("master_key_file", ""),
        ("allow_loopback", "false"),
        // Ten thousand browsers behind one address would be an attack anywhere else.
        ("public_rate_per_minute", "1000000"),
        ("public_burst", "1000000"),
        ("public_app_rate_per_minute", "1000000"),
        ("public_app_burst", "1000000"),
        ("circuit_open", faults::CIRCUIT_OPEN),
        ("receipt_rate_per_minute", "1000000"),
        ("receipt_burst", "1000000"),
        // Longer than the shop's history.
        ("retention_days", "120"),
        ("dead_letter_retention_days", "120"),
        ("subscription_retention_days", "120"),
        ("shutdown_deadline", "5s"),
    ]
    .map(|(key, value)| (key, value.to_owned()))
    .to_vec();
    settings.push(("gateways", gateways.join(",")));
    settings.push(("gateway_ca_file", ca_file.display().to_string()));
    settings.push(("data_dir", dir.display().to_string()));
    settings
}

/// Makes the database and the operator's key and, for a demo that stays up, a shop with a history.
async fn prepare(
    settings: &[(&'static str, String)], seed: u64, keep: bool, progress: &Progress,
    interrupted: impl Future<Output = ()>,
) -> anyhow::Result<String> {
    let config = Config::load(&Flags::from_pairs(settings.iter().cloned()))?;
    let mut context = Context::open(&config, Migrations::Apply).await?;
    let made = tokio::select! {
        made = prepare_in(&mut context, &config, seed, keep, progress) => made,
        () = interrupted => Err(anyhow::anyhow!("interrupted")),
    };
    context.close().await;
    made
}

async fn prepare_in(
    context: &mut Context, config: &Config, seed: u64, keep: bool, progress: &Progress,
) -> anyhow::Result<String> {
    let Context { pool, vault, clock, .. } = &*context;
    let (_, operator) = api_keys::create(pool, vault, None, "operator", &[Scope::Operator], None, clock).await?;
    if keep {
        progress.say("living through ninety days of a shop");
        history::make(context, config, seed, &operator).await.context("making the history of the shop")?;
    }
    Ok(operator)
}

/// Starts `bellwire serve` and waits for its address in the log.
async fn start_server(
    settings: &[(&'static str, String)], dir: &DataDir,
) -> anyhow::Result<(Child, ChildStdin, SocketAddr)> {
    let log = std::fs::File::create(log_of(&dir.path))?;
    let erased = if dir.kept { "".as_ref() } else { dir.path.as_os_str() };
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(GUARD).arg("bellwire-demo").arg(erased);
    command
        .arg(std::env::current_exe()?)
        .arg("serve")
        .env_remove("DATABASE_URL")
        .env_remove("BELLWIRE_DATABASE_URL")
        .env_remove("BELLWIRE_MASTER_KEY");
    let flags = settings.iter().filter(|(key, _)| !matches!(*key, "database_url" | "master_key"));
    command.args(flags.map(|(key, value)| format!("--{}={value}", key.replace('_', "-"))));
    // Ctrl-C is for the demo, which then stops the server.
    command.process_group(0);
    let mut server = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).spawn()?;
    let leash = server.stdin.take().context("the guard has no standard input")?;
    let deadline = Instant::now() + START_DEADLINE;
    while Instant::now() < deadline {
        if let Some(address) = address_in(&dir.path) {
            return Ok((server, leash, address));
        }
        if server.try_wait()?.is_some() {
            bail!("the server did not start: {}", last_words(&dir.path));
        }
        sleep(POLL).await;
    }
    bail!("the server did not start in time: {}", last_words(&dir.path))
}

fn log_of(dir: &Path) -> PathBuf {
    dir.join("server.log")
}

/// Address in the log line of the server's start.
fn address_in(dir: &Path) -> Option<SocketAddr> {
    let log = std::fs::read_to_string(log_of(dir)).ok()?;
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.filter(|event| event["message"] == "started").find_map(|event| event["address"].as_str()?.parse().ok())
}

fn last_words(dir: &Path) -> String {
    let log = std::fs::read_to_string(log_of(dir)).unwrap_or_default();
    log.lines().last().unwrap_or("no output").to_owned()
}
