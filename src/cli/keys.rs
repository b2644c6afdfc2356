use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use super::admin::{self, NewMasterKey};
use super::invocation::quoted;
use super::output::{Output, table};
use super::{EXIT_CODES, ServerSettings};
use bellwire_vault::master_key::MasterKeySource;

const BY_COMMAND: &str = "BELLWIRE_MASTER_KEY_COMMAND=";

/// Actions on the master key.
#[derive(Debug, Subcommand)]
pub(super) enum MasterKey {
    /// Wrap the data keys under a new master key. Running servers continue to work; give servers elsewhere the new master key before they
    /// next start.
    #[command(after_help = EXIT_CODES)]
    Rotate(Rotate),
}

/// Source of the new master key.
#[derive(Debug, Args)]
pub(super) struct Rotate {
    /// The new key is in this file; it is created there if missing, in an existing directory. By default the file of the master key is replaced.
    #[arg(long, value_name = "FILE", conflicts_with = "to_command")]
    to_file: Option<PathBuf>,
    /// The new key is what this command of the shell prints.
    #[arg(long, value_name = "COMMAND")]
    to_command: Option<String>,
    #[command(flatten)]
    settings: ServerSettings,
}

impl MasterKey {
    pub(super) async fn run(self, out: Output) -> anyhow::Result<()> {
        let Self::Rotate(Rotate { to_file, to_command, settings }) = self;
        let new = match (to_file, to_command) {
            (Some(file), _) => NewMasterKey::InFile(file),
            (None, Some(command)) => NewMasterKey::PrintedBy(command),
            (None, None) => NewMasterKey::InPlace,
        };
        let config = settings.load()?;
        let setting = setting(&new)?;
        let next = match &setting {
            Some(line) => {
                let old = match config.master_key_source() {
                    MasterKeySource::Given(_) => "\nand remove BELLWIRE_MASTER_KEY",
                    MasterKeySource::Command(_) if !line.starts_with(BY_COMMAND) => {
                        "\nand remove BELLWIRE_MASTER_KEY_COMMAND"
                    }
                    _ => "",
                };
                format!("\nBefore the next start of a server, set\n  {line}{old}")
            }
            None => String::new(),
        };
        let rotation = admin::rotate_master_key(&config, new).await?;
        let text = format!(
            "The data keys are wrapped by the new master key. Keep the old key as long as you keep earlier backups.{next}"
        );
        Ok(out.say(&json!({"rotation": rotation, "setting": setting}), &text)?)
    }
}

/// Returns the setting with which servers find the new key. `None`: the setting does not change.
fn setting(new: &NewMasterKey) -> std::io::Result<Option<String>> {
    Ok(match new {
        NewMasterKey::InPlace => None,
        NewMasterKey::InFile(file) => {
            Some(format!("BELLWIRE_MASTER_KEY_FILE={}", quoted(&std::path::absolute(file)?.display().to_string())))
        }
        NewMasterKey::PrintedBy(command) => Some(format!("{BY_COMMAND}{}", quoted(command))),
    })
}

/// Actions on data keys.
#[derive(Debug, Subcommand)]
pub(super) enum KeysCommand {
    /// Add a seal key. It takes over in a minute, and the role `maintenance` seals anew under it what is kept for long.
    #[command(after_help = EXIT_CODES)]
    Rotate(ServerSettings),
    /// List the seal keys, and what is still sealed under each.
    #[command(after_help = EXIT_CODES)]
    List(ServerSettings),
}

impl KeysCommand {
    pub(super) async fn run(self, out: Output) -> anyhow::Result<()> {
        match self {
            Self::Rotate(settings) => {
                let added = admin::add_seal_key(&settings.load()?).await?;
                let text = format!(
                    "Seal key {} was added; it takes over at {}. `bellwire keys list` shows how far its work has come.",
                    added.number,
                    added.seals_from.format("%H:%M:%SZ")
                );
                Ok(out.say(&serde_json::to_value(added)?, &text)?)
            }
            Self::List(settings) => {
                let keys = admin::seal_keys(&settings.load()?).await?;
                let row = |key: &bellwire_store::keys::resealing::SealKey| {
                    let since = key.seals_from.format("%Y-%m-%d %H:%M:%SZ").to_string();
                    [key.number.to_string(), since, key.sealed.to_string(), key.sealed_values.to_string()]
                };
                let text = table(["KEY", "SEALS FROM", "SEALED", "EVER SEALED"], keys.iter().map(row));
                Ok(out.say(&json!({"data": keys}), &text)?)
            }
        }
    }
}
