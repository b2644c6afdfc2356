//! The command line: arguments → settings → logging → one verb.
//!
//! Verbs about apps, keys and messages are requests to the API's own router, called in this process ([`local`]): one
//! door and one set of checks. What they make and scripts want (a secret, an id) stands alone on standard output; what
//! is for people goes to standard error.

pub(crate) mod admin;
mod app;
mod arguments;
mod audit;
mod backup;
mod campaign;
mod cap;
mod dead_letters;
mod explain;
mod export;
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
mod local;
mod log_level;
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
mod watch;
mod webhook;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

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
    BACKUP_EXAMPLES, COMPLETIONS_EXAMPLE, EXIT_CODES, EXPLAIN_EXAMPLE, EXPORT_EXAMPLES, IMPORT_EXAMPLES, INIT_EXAMPLE,
    METRICS_EXAMPLES, MORE_SETTINGS, OPENAPI_EXAMPLE, RESTORE_EXAMPLES, SIMULATOR_EXAMPLE,
};
use local::DataDirState;
use output::{ClosedPipe, Output};
use settings::{FewSettings, ServerSettings};

/// Tasks that a thread runs before it looks at the sockets again.
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
    #[command(subcommand)]
    verb: Verb,
}

/// A verb with verbs of its own, and the settings that name the database.
#[derive(Debug, Args)]
struct CommandGroup<Verbs: Subcommand> {
    #[command(subcommand)]
    verb: Verbs,
    #[command(flatten)]
    settings: FewSettings,
}

/// The arguments of a verb, and the settings that name the database.
#[derive(Debug, Args)]
struct Single<Arguments: Args> {
    #[command(flatten)]
    verb: Arguments,
    #[command(flatten)]
    settings: FewSettings,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the server until SIGTERM or Ctrl-C.
    #[command(after_help = EXIT_CODES)]
    Serve(serve::Serve),
    /// Create an app for your site, and print the code to paste.
    #[command(after_help = INIT_EXAMPLE)]
    Init(Single<init::Init>),
    /// Create, list and change apps.
    #[command(after_help = MORE_SETTINGS)]
    App(CommandGroup<app::App>),
    /// Create, list, change and delete topics.
    #[command(after_help = MORE_SETTINGS)]
    Topic(CommandGroup<topic::Topic>),
    /// Set, list, count and delete segments.
    #[command(after_help = MORE_SETTINGS)]
    Segment(CommandGroup<segment::Segment>),
    /// Export or erase the data of a user.
    #[command(after_help = MORE_SETTINGS)]
    User(CommandGroup<user::User>),
    /// Manage webhooks, and resend failed requests.
    #[command(after_help = MORE_SETTINGS)]
    Webhook(CommandGroup<webhook::Webhook>),
    /// Limit the messages per person and day or week.
    #[command(after_help = MORE_SETTINGS)]
    Cap(CommandGroup<cap::Cap>),
    /// Create, try, list and delete templates.
    #[command(after_help = MORE_SETTINGS)]
    Template(CommandGroup<template::TemplateCommand>),
    /// Manage the VAPID keys of an app.
    #[command(after_help = MORE_SETTINGS)]
    Vapid(CommandGroup<vapid::Vapid>),
    /// Export an app, secrets included, for another server.
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(Single<export::Export>),
    /// Import subscriptions of another sender, or an exported app.
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(Single<import::Import>),
    /// Create, list and revoke API keys.
    #[command(after_help = MORE_SETTINGS)]
    Key(CommandGroup<key::Key>),
    /// Invite people to this server, and set their roles.
    #[command(after_help = MORE_SETTINGS)]
    Admin(CommandGroup<team::Team>),
    /// List the actions of keys, people and the command line.
    #[command(after_help = MORE_SETTINGS)]
    Audit(CommandGroup<audit::Audit>),
    /// Print metrics of deliveries, receipts and subscriptions.
    #[command(after_help = METRICS_EXAMPLES)]
    Metrics(Single<Box<metrics::Figures>>),
    /// Send a message to some or all subscribers.
    Send(Single<Box<send::Send>>),
    /// List, show, pause, resume and cancel messages.
    #[command(after_help = MORE_SETTINGS)]
    Message(CommandGroup<message::MessageCommand>),
    /// Plan, start, follow, pause and cancel campaigns.
    #[command(after_help = MORE_SETTINGS)]
    Campaign(CommandGroup<campaign::Campaign>),
    /// Follow events live: campaigns, push services, alerts, outcomes.
    ///
    /// Runs until Ctrl-C. A page on a terminal, a line for each event elsewhere, and a line of JSON for each with `--json`.
    #[command(after_help = MORE_SETTINGS)]
    Watch(Single<watch::Watch>),
    /// Explain one delivery: rules, responses, retries, next attempt.
    #[command(after_help = EXPLAIN_EXAMPLE)]
    Explain(Single<explain::Explain>),
    /// List, replay, discard and export failed deliveries.
    #[command(after_help = MORE_SETTINGS)]
    DeadLetters(CommandGroup<Box<dead_letters::DeadLetters>>),
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
    Held(CommandGroup<held::HeldCommand>),
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
        #[command(flatten)]
        settings: ServerSettings,
    },
    /// Change the log level for a while without a restart.
    #[command(after_help = MORE_SETTINGS)]
    LogLevel(CommandGroup<log_level::LogLevel>),
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

/// Runs the program and returns its exit code.
pub fn main() -> ExitCode {
    panics::watch();
    let matches = help::grouped(Cli::command()).try_get_matches().unwrap_or_else(|error| refuse(&error));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| refuse(&error));
    match run(cli) {
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

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let inherited = Inherited::take(); // while this is the only thread
    // A campaign keeps hundreds of short tasks ready; at tokio's usual 61 polls between looks at the sockets a one-time code
    // would wait for many of them at each of its round trips.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .event_interval(EVENT_INTERVAL)
        .build()
        .context("cannot start threads")?;
    runtime.block_on(dispatch(cli.verb, inherited, Output { json: cli.json }))
}

/// Does what was asked for. A line or two for each verb: as long as there are verbs.
async fn dispatch(verb: Verb, inherited: Inherited, out: Output) -> anyhow::Result<ExitCode> {
    macro_rules! run {
        ($chosen:ident, $beginning:expr) => {
            $chosen.settings.with($beginning, async |local| $chosen.verb.run(local, out).await).await?
        };
    }
    match verb {
        Verb::Serve(args) => serve::serve(args, inherited, out).await?,
        Verb::App(chosen) => run!(chosen, chosen.verb.beginning()),
        Verb::Init(chosen) => run!(chosen, DataDirState::Here),
        Verb::Topic(chosen) => run!(chosen, DataDirState::Before),
        Verb::User(chosen) => run!(chosen, DataDirState::Before),
        Verb::Segment(chosen) => run!(chosen, DataDirState::Before),
        Verb::Webhook(chosen) => run!(chosen, DataDirState::Before),
        Verb::Cap(chosen) => run!(chosen, DataDirState::Before),
        Verb::LogLevel(chosen) => run!(chosen, DataDirState::Before),
        Verb::Template(chosen) => run!(chosen, DataDirState::Before),
        Verb::Vapid(chosen) => run!(chosen, DataDirState::Before),
        Verb::Export(chosen) => run!(chosen, DataDirState::Before),
        Verb::Import(chosen) => run!(chosen, DataDirState::Here),
        Verb::Key(chosen) => run!(chosen, chosen.verb.beginning()),
        Verb::Admin(chosen) => run!(chosen, chosen.verb.beginning()),
        Verb::Audit(chosen) => run!(chosen, DataDirState::Before),
        Verb::Metrics(chosen) => run!(chosen, DataDirState::Before),
        Verb::Send(chosen) => run!(chosen, DataDirState::Before),
        Verb::Message(chosen) => run!(chosen, DataDirState::Before),
        Verb::Campaign(chosen) => run!(chosen, DataDirState::Before),
        Verb::Watch(chosen) => run!(chosen, DataDirState::Before),
        Verb::Explain(chosen) => run!(chosen, DataDirState::Before),
        Verb::DeadLetters(chosen) => run!(chosen, DataDirState::Before),
        Verb::Migrate { force, distribute, settings } => {
            admin::migrate(&settings.load()?, force, distribute, out).await?;
        }
        Verb::Doctor { offline, settings } => return doctor(out, &admin::doctor(&settings.load()?, offline).await),
        Verb::Health(settings) => health::ask(&settings.0, out).await?,
        Verb::Completions { shell } => generate::completions(Cli::command(), shell)?,
        Verb::Openapi => generate::openapi()?,
        Verb::Man { directory } => generate::man(Cli::command(), &directory)?,
        Verb::Backup(backup) => backup.run(out).await?,
        Verb::Restore(restore) => restore.run(out).await?,
        Verb::Held(chosen) => run!(chosen, DataDirState::Before),
        Verb::MasterKey(verb) => verb.run(out).await?,
        Verb::Keys(verb) => verb.run(out).await?,
        Verb::Postgres(PostgresVerb::Upgrade(settings)) => {
            let upgraded = admin::upgrade_postgres(&settings.load()?).await?;
            let bellwire_postgres::Upgraded { from, to, old } = &upgraded;
            let text = format!(
                "Postgres {from} became {to}. The cluster of before is {}; delete it when all is well.",
                old.display()
            );
            out.say(&serde_json::to_value(&upgraded)?, &text)?;
        }
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
mod tests {
    use super::*;
    use crate::config::Flags;

    #[test]
    fn every_argument_is_sound() {
        Cli::command().debug_assert();
        generate::visible(&Cli::command()).debug_assert();
    }

    #[test]
    fn expected_arguments_get_a_hint() {
        for (arguments, hinted) in [
            (&["bellwire", "app", "list", "--database-url", "postgres://x"][..], "BELLWIRE_DATABASE_URL"),
            (&["bellwire", "key", "create", "--app", "shop", "--name", "x"], "send"),
        ] {
            let error = Cli::try_parse_from(arguments).unwrap_err();
            assert!(hint(&error).is_some_and(|hint| hint.contains(hinted)), "{arguments:?}: {:?}", hint(&error));
        }
    }

    #[test]
    fn settings_are_taken_behind_every_verb() {
        let cli = Cli::try_parse_from(["bellwire", "app", "list", "--data-dir", "/x", "--json"]).unwrap();
        let Verb::App(CommandGroup { settings, .. }) = cli.verb else { panic!("{cli:?}") };
        assert!(cli.json);
        assert_eq!(settings.0, Flags::from_pairs([("data_dir", "/x".to_owned())]));
    }
}
