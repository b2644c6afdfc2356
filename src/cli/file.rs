//! Reads files and JSON given in arguments.

use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

/// Parses the JSON of an argument: the argument itself, or @FILE.
pub(super) fn given_json(argument: &str, given: &str) -> anyhow::Result<Value> {
    let octets = match given.strip_prefix('@') {
        Some(file) => read(Path::new(file))?,
        None => given.as_bytes().to_vec(),
    };
    serde_json::from_slice(&octets).with_context(|| format!("{argument} is not JSON"))
}

/// Parses the JSON in a file.
pub(super) fn file_of_json(argument: &str, file: &str) -> anyhow::Result<Value> {
    serde_json::from_slice(&read(Path::new(file))?).with_context(|| format!("{argument}: {file} is not JSON"))
}

pub(super) fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    let mut octets = Vec::new();
    let done = if file == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut octets).map(drop)
    } else {
        std::fs::read(file).map(|read| octets = read)
    };
    done.with_context(|| format!("cannot read {}", file.display()))?;
    Ok(octets)
}
