//! Completes commands in texts for people, so that they work as printed.
//!
//! Texts name a command as `bellwire held list`. The program may have another path, and the settings that locate the database
//! may have been given as flags. [`complete`] inserts both, wherever a text for people is printed.

use std::borrow::Cow;
use std::sync::OnceLock;

use clap::CommandFactory as _;

use super::Cli;
use crate::config::Flags;

const NAME: &str = "bellwire ";
const SERVER_FLAG: &str = " --server ";
/// Settings that locate the data, which a following command needs, too.
const REPEATED: [&str; 3] = ["data_dir", "master_key_file", "postgres_bin"];

const ON_SERVER: &str = "admin backup doctor health held keys master-key migrate postgres restore serve";

/// Whether a command works on local data, and so not with `--server`.
pub(super) fn is_on_server(verb: &str) -> bool {
    ON_SERVER.split(' ').any(|name| name == verb)
}

/// Flags of this invocation that a following command needs, each after a space.
static FLAGS: OnceLock<String> = OnceLock::new();

/// Stores the flags of this invocation for [`complete`]. Only the first call has an effect.
pub(super) fn remember(flags: &Flags) {
    let _ = FLAGS.set(arguments(flags));
}

/// Stores the server of this invocation for [`complete`].
pub(super) fn remember_server(server: &str) {
    let _ = FLAGS.set(format!("{SERVER_FLAG}{}", quoted(server)));
}

/// Completes the commands in a text: this program's path instead of its name, and the flags of this invocation after the verb.
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

/// Returns the flags that locate the data, each after a space.
pub(super) fn arguments(flags: &Flags) -> String {
    let file = flags.file().map(|file| ("config", file.display().to_string()));
    let values = REPEATED.iter().filter_map(|key| Some((*key, flags.value(key)?.to_owned())));
    let argument = |(key, value): (&str, String)| format!(" --{} {}", key.replace('_', "-"), quoted(&value));
    file.into_iter().chain(values).map(argument).collect()
}

/// Quotes a word for the shell, where it needs that.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:=@,%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
#[path = "../../tests/unit/cli/invocation.rs"]
mod tests;
