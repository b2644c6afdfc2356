use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;

use anyhow::Context;
use clap::Args;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::admin;
use super::output::{Output, Stdout};
use super::{ServerSettings, invocation};
use crate::config::{self, Config, LogFormat};
use crate::server::{self, context::Migrations};
use bellwire_core::origin::PageAudience;
use bellwire_net::http_server::inherited::Inherited;

/// Arguments of `bellwire serve`.
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Refuse to start on an old schema instead of migrating it.
    #[arg(long)]
    no_migrate: bool,
    /// Print the settings in force and where they come from, secrets masked, and exit.
    #[arg(long)]
    print_config: bool,
    /// Print a file of all settings, each explained and commented out, for /etc/bellwire/bellwire.toml, and exit.
    #[arg(long)]
    print_template: bool,
    #[command(flatten)]
    settings: ServerSettings,
}

/// Runs a server until a signal stops it. Uses the socket of the service manager if one was passed.
pub(super) async fn serve(args: Serve, inherited: Inherited, out: Output) -> anyhow::Result<()> {
    if args.print_template {
        return Ok(Stdout.write_all(config::template().as_bytes())?);
    }
    let mut config = args.settings.load()?;
    if args.print_config {
        return Ok(Stdout.write_all(config.print().as_bytes())?);
    }
    admin::raise_open_files();
    let migrations = if args.no_migrate { Migrations::Check } else { Migrations::Apply };
    let listener = match inherited.listener().context("the socket of the service manager cannot be used")? {
        Some(listener) => {
            config.listen = listener.local_addr()?; // independent of the settings
            listener
        }
        None => {
            let bound = TcpListener::bind(config.listen).await;
            bound.map_err(|error| server::listeners::cannot_listen(config.listen, "--listen", error))?
        }
    };
    let shutdown = told_to_stop()?;
    // Machines that read the log find the same in its event "started".
    let told = (config.log_format == LogFormat::Text && !out.json).then(|| config.clone());
    let started = |address| {
        if let Some(config) = told {
            eprint!("{}", invocation::complete(&welcome(&config, address)));
        }
    };
    server::run(config, migrations, listener, started, shutdown).await
}

/// Returns a future that completes at SIGTERM, Ctrl-C or SIGHUP. SIGHUP is ignored if the process was started with `nohup`.
pub(super) fn told_to_stop() -> anyhow::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    // To listen for it would undo that it is ignored.
    let mut hangup = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) };
    Ok(async move {
        let hung_up = async {
            match &mut hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hung_up => {}
        }
    })
}

/// Whether the parent process set SIGHUP to be ignored; `false` where the system does not report it (proc_pid_status(5)).
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// Text for the first start: addresses, data directory and next steps.
fn welcome(config: &Config, address: SocketAddr) -> String {
    let here = config.local_url(address).as_str().trim_end_matches('/').to_owned();
    let url = match &config.public_url {
        Some(url) => url.as_str().trim_end_matches('/').to_owned(),
        None => here.clone(),
    };
    let data = match config.database_url {
        Some(_) => format!("the Postgres of {}", config.origin("database_url")),
        None => config.data_dir.display().to_string(),
    };
    let settings = if config.database_url.is_some() { " (with the same database and master key)" } else { "" };
    let example = match config.example.filter(|_| config.roles.api) {
        Some(PageAudience::Everybody) => format!("  Try:   {url}/example/\n"),
        Some(PageAudience::ThisMachine) if config.trusted_proxies == 0 => {
            format!("  Try:   {here}/example/ (on this machine)\n")
        }
        _ => String::new(),
    };
    let invite = "bellwire admin invite you@example.com --role admin";
    let admin = match config.roles.api {
        true => format!("  Admin: {url}/admin/ (a link to sign in: {invite}{settings})\n"),
        false => String::new(),
    };
    let first = match config.roles.api {
        true => format!("Bellwire is up at {url} (API: {url}/openapi.json)"),
        false => format!("Bellwire is up, without the API; its health: {here}/readyz"),
    };
    format!(
        "\n  {first}\n{admin}{example}  Data:  {data}\n  A key: bellwire key create --operator --name me{settings}\n  Stop:  Ctrl-C\n\n"
    )
}

#[cfg(test)]
#[path = "../../tests/unit/cli/serve.rs"]
mod tests;
