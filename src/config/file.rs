//! The settings file: its location, its permissions, and its parser.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Error;
use bellwire_postgres::trust::{self, Untrusted};

const NAME: &str = "bellwire.toml";
/// Directory of the settings file if the data directory has none.
const SYSTEM_DIR: &str = "/etc/bellwire";

pub(super) type Values = (PathBuf, BTreeMap<String, String>);

/// Returns the settings file to read: the one given, or else the first one that exists. A file in the current directory is not
/// read automatically, because any user may have written it.
pub(super) fn find(named: Option<PathBuf>, data_dir: &Path) -> Option<PathBuf> {
    let there = || [data_dir, Path::new(SYSTEM_DIR)].map(|dir| dir.join(NAME)).into_iter().find(|file| file.exists());
    named.or_else(there)
}

/// Returns the settings file in the current directory, if there is one that is not read.
pub(super) fn passed_over(read: Option<&Path>) -> Option<PathBuf> {
    let here = std::fs::canonicalize(NAME).ok()?;
    let read = read.and_then(|file| std::fs::canonicalize(file).ok());
    (read.as_ref() != Some(&here)).then_some(here)
}

/// Reads the file, if no other user can write to it. Refuses unknown keys.
pub(super) fn read(file: &Path, is_setting: &dyn Fn(&str) -> bool) -> Result<Values, Error> {
    let failed = |reason: String| Error::File { file: file.to_owned(), reason };
    trust::check(file).map_err(|why| match why {
        Untrusted::Io { source, .. } => failed(source.to_string()),
        why => failed(format!("not read, because another user may have written it: {why}")),
    })?;
    let text = std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    parse(file, &text, is_setting)
}

/// Parses the file. Numbers, booleans and arrays may be written as such or as text.
pub(super) fn parse(file: &Path, text: &str, is_setting: &dyn Fn(&str) -> bool) -> Result<Values, Error> {
    let failed = |reason: String| Error::File { file: file.to_owned(), reason };
    // The parser's own text would quote the line, which may hold a secret.
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| text[..span.start].lines().count().max(1));
        failed(format!("line {line}: {}", error.message()))
    })?;
    let mut values = BTreeMap::new();
    for (key, value) in table {
        if !is_setting(&key) {
            return Err(Error::UnknownKey { file: file.to_owned(), key });
        }
        let text = text_of(&value)
            .ok_or_else(|| failed(format!("`{key}` must be a string, number, boolean or list of them")))?;
        values.insert(key, text);
    }
    Ok((file.to_owned(), values))
}

fn text_of(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(switch) => Some(switch.to_string()),
        toml::Value::Array(items) => Some(items.iter().map(text_of).collect::<Option<Vec<_>>>()?.join(",")),
        _ => None,
    }
}
