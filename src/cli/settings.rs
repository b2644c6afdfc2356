//! Settings that verbs accept in addition to their own arguments.

use anyhow::bail;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::client::{Client, DataDirState};
use super::invocation;
use crate::config::{Config, Flags, LogFormat};
use crate::server::telemetry;

/// Settings of a server, all shown in help.
#[derive(Debug, Args)]
pub(super) struct ServerSettings {
    #[command(flatten)]
    flags: Flags,
}

impl ServerSettings {
    /// Reads all settings and starts logging.
    pub(super) fn load(&self) -> anyhow::Result<Config> {
        invocation::remember(&self.flags);
        let config = Config::load(&self.flags)?;
        begin_logging(&config, &config.log)?;
        Ok(config)
    }
}

/// Settings of commands that need few of them. Every setting is accepted, before or after the command's own arguments. `--help`
/// shows only those that locate the data.
#[derive(Debug)]
pub(super) struct FewSettings(pub Flags);

impl Args for FewSettings {
    fn augment_args(command: Command) -> Command {
        let shown = ["config", "data_dir"];
        let hide = |arg: Arg| match arg.get_help_heading() {
            Some("Settings") => {
                let hidden = !shown.contains(&arg.get_id().as_str());
                arg.global(true).hide(hidden)
            }
            _ => arg,
        };
        Flags::augment_args(command).mut_args(hide)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for FewSettings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Flags::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl FewSettings {
    /// Loads the settings and starts logging, at level `warn` by default.
    pub(super) fn load(&self) -> anyhow::Result<Config> {
        invocation::remember(&self.0);
        let config = Config::load(&self.0)?;
        begin_logging(&config, if config.is_default("log") { "warn" } else { &config.log })?;
        Ok(config)
    }

    /// Creates a client of another server, to which the settings of this machine do not apply.
    pub(super) fn remote(&self, server: &str) -> anyhow::Result<Client> {
        if let Some(flag) = invocation::arguments(&self.0).split_whitespace().next() {
            bail!("{flag} names data on this machine, and --server another one: give one of them");
        }
        invocation::remember_server(server);
        telemetry::init("warn", LogFormat::Text)?;
        Client::remote(server)
    }

    /// Reads the settings, opens the client and runs a verb.
    pub(super) async fn with(
        &self, beginning: DataDirState, verb: impl AsyncFnOnce(&Client) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let config = self.load()?;
        let client = Client::open(config, beginning).await?;
        let done = verb(&client).await;
        client.close().await;
        done
    }
}

fn begin_logging(config: &Config, filter: &str) -> anyhow::Result<()> {
    telemetry::init(filter, config.log_format)?;
    for variable in config.unknown_variables() {
        tracing::warn!(
            "{variable} is not a setting and has no effect; `bellwire serve --print-config` shows all settings"
        );
    }
    if let Some(file) = config.passed_over() {
        tracing::warn!(
            "{} is ignored: settings files are not read from the working directory; name it with `--config`",
            file.display()
        );
    }
    Ok(())
}
