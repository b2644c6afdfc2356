//! Files that packages ship with the program: shell completions and man pages, generated from the command-line definition.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::Context as _;
use clap::Command;
use clap_complete::Shell;

use super::output::Stdout;
use crate::config;

/// Prints the completion script of a shell.
pub(super) fn completions(command: Command, shell: Shell) -> io::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut visible(&command), "bellwire", &mut text);
    Stdout.write_all(&text)
}

/// Writes a man page for each command (`bellwire.1`, `bellwire-app-create.1`) and for the settings file (`bellwire.toml.5`).
pub(super) fn man(command: Command, directory: &Path) -> anyhow::Result<()> {
    let failed = || format!("cannot write man pages to {}", directory.display());
    fs::create_dir_all(directory).with_context(failed)?;
    clap_mangen::generate_to(command, directory).with_context(failed)?;
    let mut page = Vec::new();
    config::man_page().to_writer(&mut page)?;
    fs::write(directory.join("bellwire.toml.5"), page).with_context(failed)
}

/// Prints the OpenAPI document, indented.
pub(super) fn openapi() -> anyhow::Result<()> {
    let document = serde_json::to_string_pretty(&crate::api::document())?;
    Ok(writeln!(Stdout, "{document}")?)
}

/// Returns the command without its hidden arguments. Completions would offer them, because every verb accepts every setting.
pub(super) fn visible(command: &Command) -> Command {
    // clap keeps names for the life of the process, and so does this, which ends right after.
    let name: &'static str = command.get_name().to_owned().leak();
    Command::new(name)
        .about(command.get_about().cloned().unwrap_or_default())
        .args(command.get_arguments().filter(|argument| !argument.is_hide_set()))
        .groups(command.get_groups())
        .subcommands(command.get_subcommands().map(visible))
}
