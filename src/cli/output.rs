//! Output of commands: JSON, or text and tables for people.

use std::io::{self, Write};

use serde_json::Value;

use super::invocation;

/// Output format and functions of a command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Output {
    pub json: bool,
}

impl Output {
    /// Prints a response as JSON or as text.
    pub(super) fn say(self, machine: &Value, people: &str) -> io::Result<()> {
        if self.json { writeln!(Stdout, "{machine}") } else { writeln!(Stdout, "{}", invocation::complete(people)) }
    }

    /// Prints a text for people to standard error.
    pub(super) fn note(self, text: &str) {
        if !self.json {
            eprintln!("{}", invocation::complete(text));
        }
    }
}

/// Standard output. Fails with [`ClosedPipe`] if its reader has exited, as `head` does.
pub(super) struct Stdout;

impl Write for Stdout {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        io::stdout().write(octets).map_err(ClosedPipe::name)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush().map_err(ClosedPipe::name)
    }
}

/// Standard output has no reader. This is no failure, and nothing more is printed.
#[derive(Debug, thiserror::Error)]
#[error("standard output has no reader")]
pub(super) struct ClosedPipe;

impl ClosedPipe {
    fn name(error: io::Error) -> io::Error {
        if error.kind() == io::ErrorKind::BrokenPipe { io::Error::new(error.kind(), Self) } else { error }
    }

    /// Whether a verb ended for this reason.
    pub(super) fn ended(error: &anyhow::Error) -> bool {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        inner.is_some_and(|inner| inner.is::<Self>())
    }
}

/// Formats the value at a JSON pointer. A missing or null value is a dash.
pub(super) fn text(value: &Value, pointer: &str) -> String {
    match value.pointer(pointer) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(yes)) => (if *yes { "yes" } else { "no" }).to_owned(),
        Some(Value::Array(items)) if items.is_empty() => "-".to_owned(),
        Some(Value::Array(items)) if items.iter().all(Value::is_string) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
        }
        Some(other) => other.to_string(),
    }
}

/// Formats at most `max` characters of a text.
pub(super) fn beginning<const CHARACTERS: usize>(value: &Value, pointer: &str) -> String {
    text(value, pointer).chars().take(CHARACTERS).collect()
}

/// Formats a time to the second.
pub(super) fn time(value: &Value, pointer: &str) -> String {
    let text = text(value, pointer);
    match chrono::DateTime::parse_from_rfc3339(&text) {
        Ok(time) => time.to_utc().format("%Y-%m-%d %H:%M:%SZ").to_string(),
        Err(_) => text,
    }
}

/// Rows of a page.
pub(super) fn rows(page: &Value) -> impl Iterator<Item = &Value> {
    listed(page, "data")
}

/// Returns the items of an array member, or none for another type.
pub(super) fn listed<'a>(value: &'a Value, member: &str) -> impl Iterator<Item = &'a Value> {
    value[member].as_array().into_iter().flatten()
}

pub(super) fn table<const N: usize>(headings: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    columns_of(std::iter::once(headings.map(str::to_owned)).chain(rows).map(Vec::from))
}

/// Column or field: heading, formatting function, and pointer to the value.
pub(super) type TableColumn = (&'static str, fn(&Value, &str) -> String, &'static str);

/// Declares columns of a table or fields of a list: `"HEADING" => "/pointer"`, optionally with a formatting function in
/// between.
macro_rules! columns {
    (@) => { $crate::cli::output::text };
    (@ $show:path) => { $show };
    ($($heading:literal $($show:path)? => $pointer:literal),+ $(,)?) => {
        &[$(($heading, columns!(@ $($show)?), $pointer)),+]
    };
}
pub(super) use columns;

/// Formats a table with one row per value.
pub(super) fn table_of<'a>(shown: &[TableColumn], values: impl IntoIterator<Item = &'a Value>) -> String {
    let row = |value| shown.iter().map(|(_, show, pointer)| show(value, pointer)).collect();
    columns_of(
        std::iter::once(shown.iter().map(|(heading, ..)| (*heading).to_owned()).collect())
            .chain(values.into_iter().map(row)),
    )
}

/// Aligns rows in columns. The first row has the headings.
pub(super) fn columns_of(rows: impl Iterator<Item = Vec<String>>) -> String {
    let rows: Vec<Vec<String>> = rows.collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Formats names and values, one field per line.
pub(super) fn fields_of(shown: &[TableColumn], value: &Value) -> String {
    let width = shown.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
    let line = |(name, show, pointer): &TableColumn| format!("{name:<width$}  {}", show(value, pointer));
    shown.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
#[path = "../../tests/unit/cli/output.rs"]
mod tests;
