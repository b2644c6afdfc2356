//! Command-line flags of the settings, generated from the same table.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::{SETTINGS, Setting};

/// Flags that were given. Use it with `#[command(flatten)]` in every command that needs settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    pub(super) values: BTreeMap<&'static str, String>,
    pub(super) file: Option<PathBuf>,
}

impl Flags {
    /// Creates flags from pairs of key and value, for the demo and tests.
    pub(crate) fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> Self {
        let known = |key| SETTINGS.iter().find(|setting| setting.key == key);
        let values = pairs.into_iter().map(|(key, value)| (known(key).expect("a setting's key").key, value)).collect();
        Self { values, file: None }
    }
}

impl Flags {
    /// Returns the value of the flag of a setting. `None`: the flag was not given.
    pub(crate) fn value(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

fn argument(setting: &'static Setting) -> Arg {
    let default = if setting.default.is_empty() { "empty" } else { setting.default };
    let help = setting.help.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
    // clap keeps names for the life of the process, and so does this: a few dozen short strings, made once.
    let flag: &'static str = setting.flag().leak();
    let arg = Arg::new(setting.key)
        .long(flag)
        .value_name("VALUE")
        .help(format!("{help} [{}] [default: {default}]", setting.variable()))
        .help_heading("Settings");
    match setting.default {
        "true" | "false" => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        _ => arg,
    }
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help(
                "Settings file, which no other user may own or write [BELLWIRE_CONFIG] [default: bellwire.toml in the data \
                 directory, or /etc/bellwire/bellwire.toml, if there is one]",
            )
            .help_heading("Settings");
        let shown = SETTINGS.iter().filter(|setting| !setting.secret);
        shown.fold(command.arg(file), |command, setting| command.arg(argument(setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |setting: &Setting| matches.get_one::<String>(setting.key).cloned();
        let shown = SETTINGS.iter().filter(|setting| !setting.secret);
        let values = shown.filter_map(|setting| Some((setting.key, given(setting)?))).collect();
        Ok(Self { values, file: matches.get_one::<PathBuf>("config").cloned() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
