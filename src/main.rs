//! The command line: arguments → settings → logging → one verb. What verbs do is in the library.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use bellwire::admin::{self, Finding, Health};
use bellwire::config::{self, Config, Flags};
use bellwire::demo;
use bellwire::foundation::Migrations;
use bellwire::telemetry;
use clap::{Args, Parser, Subcommand};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EXIT_CODES: &str = "Exit codes:
  0  done
  1  failed; standard error says why
  2  wrong arguments or settings
  3  doctor found something that needs attention";

const FAILED: u8 = 1;
const WRONG_USAGE: u8 = 2;
const NEEDS_ATTENTION: u8 = 3;

/// Self-hosted web-push delivery server: one binary and Postgres.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_CODES, propagate_version = true)]
struct Cli {
    /// Answer in JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the server until SIGTERM or Ctrl-C.
    #[command(after_help = EXIT_CODES)]
    Serve(Serve),
    /// Deliver a campaign to simulated browsers on this machine, with faults, and check the account.
    #[command(after_help = EXIT_CODES)]
    Demo(demo::Args),
    /// Bring the database up to date, without serving.
    #[command(after_help = EXIT_CODES)]
    Migrate(Settings),
    /// Check what a start depends on, without changing anything.
    #[command(after_help = EXIT_CODES)]
    Doctor(Settings),
    /// Manage the key that protects all others.
    #[command(subcommand, after_help = EXIT_CODES)]
    MasterKey(MasterKeyVerb),
}

#[derive(Debug, Args)]
struct Serve {
    /// Refuse to start on an old schema instead of migrating it.
    #[arg(long)]
    no_migrate: bool,
    /// Print the settings in force and where they come from, secrets masked, and exit.
    #[arg(long)]
    print_config: bool,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Subcommand)]
enum MasterKeyVerb {
    /// Replace the file of the master key and wrap the data keys anew. Restart servers elsewhere with the new file.
    #[command(after_help = EXIT_CODES)]
    Rotate(Settings),
}

#[derive(Debug, Args)]
struct Settings {
    #[command(flatten)]
    flags: Flags,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bellwire: {error:#}");
            ExitCode::from(if error.is::<config::Error>() { WRONG_USAGE } else { FAILED })
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
    runtime.block_on(async {
        match cli.verb {
            Verb::Serve(args) => serve(args).await,
            Verb::Demo(args) => match demo::run(&args, cli.json, told_to_stop()?, std::io::stdout()).await? {
                true => Ok(ExitCode::SUCCESS),
                false => Ok(ExitCode::from(FAILED)),
            },
            Verb::Migrate(settings) => {
                admin::migrate(&settings.load()?).await?;
                say(cli.json, &serde_json::json!({"migrated": true}), "The database is up to date.")
            }
            Verb::Doctor(settings) => doctor(cli.json, &admin::doctor(&settings.load()?).await),
            Verb::MasterKey(MasterKeyVerb::Rotate(settings)) => {
                let rotation = admin::rotate_master_key(&settings.load()?).await?;
                say(
                    cli.json,
                    &serde_json::json!({"rotation": rotation}),
                    "The data keys are wrapped by the new master key.",
                )
            }
        }
    })
}

impl Settings {
    /// Reads all settings and starts logging.
    fn load(&self) -> anyhow::Result<Config> {
        let config = Config::load(&self.flags)?;
        telemetry::init(&config.log, config.log_format)?;
        Ok(config)
    }
}

async fn serve(args: Serve) -> anyhow::Result<ExitCode> {
    let config = args.settings.load()?;
    if args.print_config {
        std::io::stdout().write_all(config.print().as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    admin::raise_open_files();
    let migrations = if args.no_migrate { Migrations::Check } else { Migrations::Apply };
    let listener =
        TcpListener::bind(config.listen).await.with_context(|| format!("cannot listen on {}", config.listen))?;
    bellwire::run(config, migrations, listener, told_to_stop()?).await?;
    Ok(ExitCode::SUCCESS)
}

/// Is ready on SIGTERM or Ctrl-C.
fn told_to_stop() -> anyhow::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Prints an answer for machines or for people.
fn say(json: bool, machine: &serde_json::Value, people: &str) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout();
    if json {
        writeln!(out, "{machine}")?
    } else {
        writeln!(out, "{people}")?
    }
    Ok(ExitCode::SUCCESS)
}

fn doctor(json: bool, findings: &[Finding]) -> anyhow::Result<ExitCode> {
    let healthy = findings.iter().all(|finding| finding.health == Health::Ok);
    let lines: Vec<String> = findings
        .iter()
        .map(|finding| {
            let mark = match finding.health {
                Health::Ok => "ok",
                Health::Warning => "warning",
                Health::Failure => "FAILURE",
            };
            format!("{mark:<8} {:<11} {}", finding.check, finding.detail)
        })
        .collect();
    say(json, &serde_json::json!({"healthy": healthy, "findings": findings}), &lines.join("\n"))?;
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::from(NEEDS_ATTENTION) })
}
