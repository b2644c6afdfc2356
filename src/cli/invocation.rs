//! Commands in texts for people, completed so that they work as printed.
//!
//! Texts name a command as `bellwire held list`. The program may have another path, and the settings that lead to this database may
//! have been given as flags. [`complete`] puts both in, wherever a text for people is printed.

use std::borrow::Cow;
use std::sync::OnceLock;

use clap::CommandFactory as _;

use super::Cli;
use crate::config::Flags;

const NAME: &str = "bellwire ";
const SERVER_FLAG: &str = " --server ";
/// Settings that lead to the data, and so belong to every command that follows. The others have no part in where a command acts.
const REPEATED: [&str; 3] = ["data_dir", "master_key_file", "postgres_bin"];

const ON_SERVER: &str = "admin backup doctor health held keys master-key migrate postgres restore serve";

/// Whether a command works on the data of its own machine, and so not with `--server`.
pub(super) fn is_on_server(verb: &str) -> bool {
    ON_SERVER.split(' ').any(|name| name == verb)
}

/// Flags of this invocation that a following command needs, each after a space; empty if there are none.
static FLAGS: OnceLock<String> = OnceLock::new();

/// Keeps the flags of this invocation for [`complete`]. The first call of a process counts.
pub(super) fn remember(flags: &Flags) {
    let _ = FLAGS.set(arguments(flags));
}

/// Keeps the server that was asked for [`complete`].
pub(super) fn remember_server(server: &str) {
    let _ = FLAGS.set(format!("{SERVER_FLAG}{}", quoted(server)));
}

/// Completes the commands of a text: this program's path instead of its name, and the flags of this invocation after the verb.
pub(super) fn complete(text: &str) -> Cow<'_, str> {
    let program = std::env::args().next().unwrap_or_else(|| NAME.trim_end().to_owned());
    completed(text, &program, FLAGS.get().map_or("", String::as_str))
}

fn completed<'a>(text: &'a str, program: &str, flags: &str) -> Cow<'a, str> {
    if !text.contains(NAME) || (program == NAME.trim_end() && flags.is_empty()) {
        return Cow::Borrowed(text);
    }
    let (cli, mut completed, mut rest) = (Cli::command(), String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(NAME) {
        let (before, after) = (&rest[..at], &rest[at + NAME.len()..]);
        let verb = &after[..after.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(after.len())];
        let is_apart = before.chars().next_back().is_none_or(|c| c.is_whitespace() || matches!(c, '`' | '(' | '\''));
        completed.push_str(before);
        match cli.find_subcommand(verb) {
            Some(_) if is_apart && flags.starts_with(SERVER_FLAG) && is_on_server(verb) => {
                completed.extend([NAME, verb]);
            }
            Some(_) if is_apart => completed.extend([&quoted(program), " ", verb, flags]),
            _ => completed.extend([NAME, verb]),
        }
        rest = &after[verb.len()..];
    }
    completed.push_str(rest);
    Cow::Owned(completed)
}

/// Flags that lead to the data, each after a space.
pub(super) fn arguments(flags: &Flags) -> String {
    let file = flags.file().map(|file| ("config", file.display().to_string()));
    let values = REPEATED.iter().filter_map(|key| Some((*key, flags.value(key)?.to_owned())));
    let argument = |(key, value): (&str, String)| format!(" --{} {}", key.replace('_', "-"), quoted(&value));
    file.into_iter().chain(values).map(argument).collect()
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:=@,%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
#[path = "../../tests/unit/cli/invocation.rs"]
mod tests;
