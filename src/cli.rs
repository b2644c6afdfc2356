//! The command line: parses arguments, reads settings, sets up logging and runs one verb.
//!
//! Verbs about apps, keys and messages are API requests ([`client`]), to the router in this process or to another server
//! (`--server`). So there is one implementation of all checks. Output for scripts (a secret, an id) is alone on standard
//! output; text for people goes to standard error.

pub(crate) mod admin;
mod app;
mod audit;
mod backup;
mod campaign;
mod cap;
mod client;
mod dead_letters;
mod explain;
mod export;
mod file;
mod generate;
mod health;
mod held;
mod help;
mod identity;
mod import;
mod init;
mod invocation;
mod key;
mod keys;
mod log_level;
mod mcp;
mod message;
mod metrics;
mod output;
mod policy;
mod refusal;
mod segment;
mod send;
mod serve;
mod settings;
mod team;
mod template;
mod topic;
mod user;
mod vapid;
mod verb;
mod watch;
mod webhook;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::checks::{CheckResult, Health};
use crate::config;
use crate::demo;
use crate::server::telemetry;
use bellwire_core::delivery::Tier;
use bellwire_core::scope::Scope;
use bellwire_net::http_server::inherited::Inherited;
use bellwire_simulator::gateways;
use bellwire_telemetry::panics;
use help::{
    BACKUP_EXAMPLES, COMPLETIONS_EXAMPLE, EXIT_CODES, MCP_EXAMPLES, MORE_SETTINGS, OPENAPI_EXAMPLE, RESTORE_EXAMPLES,
    SIMULATOR_EXAMPLE,
};
use output::{ClosedPipe, Output};
use settings::{FewSettings, ServerSettings};
use url::Url;
use verb::{Declared, Group, group};

/// Tasks that a runtime thread runs before it polls sockets again.
const EVENT_INTERVAL: u32 = 7;

const FAILED: u8 = 1;
const WRONG_USAGE: u8 = 2;
const NEEDS_ATTENTION: u8 = 3;

/// Self-hosted web-push delivery server: one binary and Postgres.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_CODES, propagate_version = true)]
struct Cli {
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    /// Ask the server at URL, by the key in BELLWIRE_KEY [BELLWIRE_SERVER].
    #[arg(long, global = true, value_name = "URL", env = config::SERVER_VARIABLE, hide_env = true)]
    server: Option<String>,
    #[command(subcommand)]
    verb: Verb,
}

impl Cli {
    /// Returns the server of `--server`. Fails if the verb needs data of its own machine.
    fn server(&self, verb: &str) -> anyhow::Result<Option<String>> {
        let server = self.server.clone().filter(|server| !server.is_empty());
        anyhow::ensure!(
            server.is_none() || !invocation::is_on_server(verb),
            "{verb} runs only on the server itself, on its data: run it there, without --server and BELLWIRE_SERVER"
        );
        Ok(server)
    }
}

#[derive(Debug, Subcommand)]
enum Verb {
    #[command(flatten)]
    Declared(Declared),
    /// Run the server until SIGTERM or Ctrl-C.
    #[command(after_help = EXIT_CODES)]
    Serve(serve::Serve),
    /// Show delivery policies, and simulate them.
    #[command(subcommand, after_help = EXIT_CODES)]
    Policy(policy::Policy),
    /// Deliver a campaign to simulated browsers, and check the counts.
    #[command(after_help = EXIT_CODES)]
    Demo(demo::Args),
    /// Back up the whole database while servers run.
    ///
    /// The backup does not contain the master key: keep a copy of it in another place.
    #[command(after_help = BACKUP_EXAMPLES)]
    Backup(backup::Backup),
    /// Restore a backup into an empty database.
    ///
    /// Deliveries that were pending are held: they may have been sent after the backup.
    #[command(after_help = RESTORE_EXAMPLES)]
    Restore(backup::Restore),
    /// List, resume or cancel what a restore holds back.
    #[command(after_help = MORE_SETTINGS)]
    Held(held::Held),
    /// Migrate the database without serving.
    #[command(after_help = EXIT_CODES)]
    Migrate {
        /// Migrate even while workers of another version are at work, which then send twice; unless given, it waits half a
        /// minute for their end.
        #[arg(long)]
        force: bool,
        /// Then distribute subscriptions, their topics, attempts and receipts over the machines of the Citus cluster whose
        /// coordinator the database is: once, with all servers stopped. Done again, it notes anew where users have browsers.
        #[arg(long)]
        distribute: bool,
        #[command(flatten)]
        settings: ServerSettings,
    },
    /// Check settings, server, database and network.
    ///
    /// It changes nothing, and names the command that fixes a problem.
    #[command(after_help = EXIT_CODES)]
    Doctor {
        /// Make no network connection except to the database: neither to push services, nor to the server's public URL.
        #[arg(long)]
        offline: bool,
        /// Also check the web app manifest of the site with this page, which iPhones and iPads need. May be repeated.
        #[arg(long, value_name = "URL", value_parser = admin::site, conflicts_with = "offline")]
        site: Vec<Url>,
        #[command(flatten)]
        settings: ServerSettings,
    },
    /// Check whether the server on this machine can serve.
    ///
    /// For health checks of containers. The server at the address `listen` can serve if its database responds.
    #[command(after_help = EXIT_CODES)]
    Health(FewSettings),
    /// Print the completion script of a shell. Packages install it.
    #[command(after_help = COMPLETIONS_EXAMPLE)]
    Completions {
        /// Name of the shell.
        shell: clap_complete::Shell,
    },
    /// Print the OpenAPI description of the REST API as JSON.
    ///
    /// Needs no server and no database.
    #[command(after_help = OPENAPI_EXAMPLE)]
    Openapi,
    /// Serve the Model Context Protocol: the API as tools for language models.
    ///
    /// Clients of the protocol start it, and speak to it on standard input and output. With --server and BELLWIRE_KEY the tools are those
    /// that the key may use; without them all, on the data of this machine. Tools only read, unless --allow-write is given.
    #[command(after_help = MCP_EXAMPLES)]
    Mcp(mcp::Mcp),
    /// Write man pages into a directory. Packages install them.
    Man {
        /// Target directory; created if missing.
        directory: PathBuf,
    },
    /// Manage the key that encrypts all other keys.
    #[command(subcommand)]
    MasterKey(keys::MasterKey),
    /// Manage the keys that encrypt secrets in the database.
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Manage the embedded Postgres.
    #[command(subcommand)]
    Postgres(PostgresVerb),
    /// Run simulated push services for tests.
    ///
    /// They check, decrypt and count pushes, and return the configured failures.
    ///
    /// Prints one line of JSON once it serves: the address of its HTTP interface, and where each host listens.
    #[command(after_help = SIMULATOR_EXAMPLE)]
    SimulateGateway(gateways::Args),
}

#[derive(Debug, Subcommand)]
enum PostgresVerb {
    /// Move the embedded Postgres to the newest major version that is installed, or to that of `postgres_bin`. Stop the server before.
    #[command(after_help = EXIT_CODES)]
    Upgrade(ServerSettings),
}

/// Returns the verbs that are a single API request.
fn declared() -> Group {
    let groups = [
        app::app(),
        topic::topic(),
        segment::segment(),
        user::user(),
        webhook::webhook(),
        cap::cap(),
        template::template(),
        vapid::vapid(),
        key::key(),
        team::team(),
        audit::audit(),
        message::messages(),
        campaign::campaign(),
        dead_letters::dead_letters(),
        log_level::log_level(),
    ];
    let single = [
        init::init(),
        send::send(),
        watch::watch(),
        explain::explain(),
        metrics::metrics(),
        import::import(),
        export::export(),
    ];
    let single = group("", "", single);
    groups.into_iter().fold(single, Group::and)
}

/// Runs the program and returns its exit code.
pub fn main() -> ExitCode {
    panics::watch();
    let matches = help::grouped(Cli::command()).try_get_matches().unwrap_or_else(|error| refuse(&error));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| refuse(&error));
    match cli.server(matches.subcommand_name().unwrap_or_default()).and_then(|server| run(cli, server)) {
        Ok(code) => code,
        Err(error) if ClosedPipe::ended(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bellwire: {}", invocation::complete(&refusal::causes(&error)));
            let wrong_usage = error.is::<config::Error>() || error.is::<policy::WrongPolicy>();
            ExitCode::from(if wrong_usage { WRONG_USAGE } else { FAILED })
        }
    }
}

/// Prints an error of the arguments, with a hint if there is one, and ends the process.
fn refuse(error: &clap::Error) -> ! {
    let printed = error.print();
    if let Some(hint) = hint(error).filter(|_| printed.is_ok()) {
        eprintln!("\n{hint}");
    }
    std::process::exit(error.exit_code())
}

/// Returns the remedy for arguments that people expect, but that do not exist or lack a value.
fn hint(error: &clap::Error) -> Option<String> {
    let names = |name: &str| error.context().any(|(_, value)| value.to_string().contains(name));
    match error.kind() {
        ErrorKind::UnknownArgument if names("--database-url") => Some(
            "The URL contains a password, so it is no argument: set BELLWIRE_DATABASE_URL, or database_url in bellwire.toml."
                .to_owned(),
        ),
        ErrorKind::MissingRequiredArgument if names("--scope") => Some(format!("Scopes: {}", Scope::names())),
        _ => None,
    }
}

/// Reads a tier by name or number; help shows the names.
fn a_tier() -> impl TypedValueParser<Value = Tier> {
    let [transactional, promotional, engagement] = Tier::ALL.map(|tier| PossibleValue::new(tier.name()));
    let known = [transactional.alias("1"), promotional.alias("2"), engagement.alias("3")];
    PossibleValuesParser::new(known).try_map(|name| name.parse::<Tier>())
}

fn run(cli: Cli, server: Option<String>) -> anyhow::Result<ExitCode> {
    let inherited = Inherited::take(); // while this is the only thread
    // A campaign keeps hundreds of short tasks ready; at tokio's usual 61 polls between looks at the sockets a one-time code
    // would wait for many of them at each of its round trips.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .event_interval(EVENT_INTERVAL)
        .build()
        .context("cannot start threads")?;
    runtime.block_on(dispatch(cli.verb, server, inherited, Output { json: cli.json }))
}

/// Runs a verb.
async fn dispatch(verb: Verb, server: Option<String>, inherited: Inherited, out: Output) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Serve(args) => serve::serve(args, inherited, out).await?,
        Verb::Declared(chosen) => chosen.run(server.as_deref(), out).await?,
        Verb::Migrate { force, distribute, settings } => {
            telemetry::init("warn,bellwire_store=info", config::LogFormat::Text)?;
            admin::migrate(&settings.load()?, force, distribute, out).await?;
        }
        Verb::Doctor { offline, site, settings } => {
            return doctor(out, &admin::doctor(&settings.load()?, offline, &site).await);
        }
        Verb::Health(settings) => health::ask(&settings.0, out).await?,
        Verb::Completions { shell } => generate::completions(Cli::command(), shell)?,
        Verb::Openapi => generate::openapi()?,
        Verb::Man { directory } => generate::man(Cli::command(), &directory)?,
        Verb::Backup(backup) => backup.run(out).await?,
        Verb::Restore(restore) => restore.run(out).await?,
        Verb::Held(held) => held.run(out).await?,
        Verb::MasterKey(verb) => verb.run(out).await?,
        Verb::Keys(verb) => verb.run(out).await?,
        Verb::Postgres(PostgresVerb::Upgrade(settings)) => {
            let upgraded = admin::upgrade_postgres(&settings.load()?).await?;
            let bellwire_postgres::Upgraded { from, to, old } = &upgraded;
            let text = format!(
                "Postgres {from} became {to}. The old cluster is in {}; delete it when everything works.",
                old.display()
            );
            out.say(&serde_json::to_value(&upgraded)?, &text)?;
        }
        Verb::Mcp(mcp) => mcp.run(server.as_deref()).await?,
        Verb::Policy(verb) => verb.run(out)?,
        Verb::Demo(args) => {
            let adds_up = demo::run(&args, out.json, serve::told_to_stop()?, std::io::stdout()).await?;
            return Ok(if adds_up { ExitCode::SUCCESS } else { ExitCode::from(FAILED) });
        }
        Verb::SimulateGateway(args) => {
            telemetry::init("info", config::LogFormat::Text)?;
            admin::raise_open_files();
            gateways::run(args, serve::told_to_stop()?, std::io::stdout()).await.context("the simulator")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn doctor(out: Output, findings: &[CheckResult]) -> anyhow::Result<ExitCode> {
    let healthy = findings.iter().all(|finding| finding.health == Health::Ok);
    let lines: Vec<String> = findings
        .iter()
        .map(|finding| {
            let mark = match finding.health {
                Health::Ok => "ok",
                Health::Warning => "warning",
                Health::Failure => "FAILURE",
            };
            let more = finding.advice.iter().chain(&finding.line).map(|more| format!("\n{:<30} {more}", ""));
            format!("{mark:<8} {:<21} {}{}", finding.check, finding.detail, more.collect::<String>())
        })
        .collect();
    out.say(&serde_json::json!({"healthy": healthy, "findings": findings}), &lines.join("\n"))?;
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::from(NEEDS_ATTENTION) })
}

#[cfg(test)]
#[path = "../tests/unit/cli/arguments.rs"]
mod tests;
