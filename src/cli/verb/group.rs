//! Groups of declared verbs, as clap commands.

use clap::error::ErrorKind;
use clap::{ArgMatches, Args as _, Command, Error, FromArgMatches, Subcommand};

use super::{Call, Verb};
use crate::cli::help::MORE_SETTINGS;
use crate::cli::output::Output;
use crate::cli::settings::FewSettings;

/// Command that consists of verbs and further groups.
pub(in crate::cli) struct Group {
    name: &'static str,
    about: &'static str,
    verbs: Vec<Verb>,
    groups: Vec<Group>,
}

pub(in crate::cli) fn group(name: &'static str, about: &'static str, verbs: impl IntoIterator<Item = Verb>) -> Group {
    Group { name, about, verbs: verbs.into_iter().collect(), groups: Vec::new() }
}

impl Group {
    pub(in crate::cli) fn and(mut self, group: Group) -> Self {
        self.groups.push(group);
        self
    }

    fn command(&self) -> Command {
        let command = Command::new(self.name).about(self.about).subcommand_required(true).arg_required_else_help(true);
        let groups = self.groups.iter().map(Group::command);
        command.subcommands(self.verbs.iter().map(Verb::command).chain(groups))
    }

    fn find<'a>(&'a self, matches: &'a ArgMatches) -> Option<(&'a Verb, &'a ArgMatches)> {
        let (name, matches) = matches.subcommand()?;
        if let Some(verb) = self.verbs.iter().find(|verb| verb.command.get_name() == name) {
            return Some((verb, matches));
        }
        self.groups.iter().find(|group| group.name == name)?.find(matches)
    }
}

impl Verb {
    fn command(&self) -> Command {
        self.command.clone().args(self.parameters.iter().map(|parameter| parameter.arg.clone()))
    }
}

/// A chosen verb, with its arguments and the settings.
#[derive(Debug)]
pub(in crate::cli) struct Declared {
    matches: ArgMatches,
    pub(in crate::cli) settings: FewSettings,
}

impl Declared {
    /// Runs the verb on local data, or at the given server.
    pub(in crate::cli) async fn run(&self, server: Option<&str>, out: Output) -> anyhow::Result<()> {
        let all = crate::cli::declared();
        let (verb, matches) = all.find(&self.matches).expect("clap has checked the name");
        if let Some(server) = server {
            let client = &self.settings.remote(server)?;
            return Call { verb, matches, client, out }.run().await;
        }
        self.settings.with(verb.beginning, async |client| Call { verb, matches, client, out }.run().await).await
    }
}

impl Subcommand for Declared {
    fn augment_subcommands(command: Command) -> Command {
        let Group { verbs, groups, .. } = crate::cli::declared();
        let groups = groups.iter().map(|group| group.command().after_help(MORE_SETTINGS));
        groups
            .chain(verbs.iter().map(Verb::command))
            .fold(command, |command, it| command.subcommand(FewSettings::augment_args(it)))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        let Group { verbs, groups, .. } = crate::cli::declared();
        groups.iter().any(|group| group.name == name) || verbs.iter().any(|verb| verb.command.get_name() == name)
    }
}

impl FromArgMatches for Declared {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let (_, chosen) = matches.subcommand().ok_or_else(|| Error::new(ErrorKind::MissingSubcommand))?;
        Ok(Self { matches: matches.clone(), settings: FewSettings::from_arg_matches(chosen)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/cli/group.rs"]
mod tests;
