//! Output of commands: JSON for programs, short text and tables for people.

use std::io::{self, Write};

use serde_json::Value;

use super::invocation;

/// Output format.
#[derive(Debug, Clone, Copy)]
pub(super) struct Output {
    pub json: bool,
}

impl Output {
    /// Prints an answer for machines or for people.
    pub(super) fn say(self, machine: &Value, people: &str) -> io::Result<()> {
        if self.json { writeln!(Stdout, "{machine}") } else { writeln!(Stdout, "{}", invocation::complete(people)) }
    }

    /// Adds something for people, beside what is printed for programs.
    pub(super) fn note(self, text: &str) {
        if !self.json {
            eprintln!("{}", invocation::complete(text));
        }
    }
}

/// Standard output. Fails with [`ClosedPipe`] if its reader has left, as `head` does.
pub(super) struct Stdout;

impl Write for Stdout {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        io::stdout().write(octets).map_err(ClosedPipe::name)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush().map_err(ClosedPipe::name)
    }
}

/// Standard output has no reader: nothing failed, and nothing is left to say.
#[derive(Debug, thiserror::Error)]
#[error("standard output has no reader")]
pub(super) struct ClosedPipe;

impl ClosedPipe {
    fn name(error: io::Error) -> io::Error {
        if error.kind() == io::ErrorKind::BrokenPipe { io::Error::new(error.kind(), Self) } else { error }
    }

    /// Whether this is why a verb ended.
    pub(super) fn ended(error: &anyhow::Error) -> bool {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        inner.is_some_and(|inner| inner.is::<Self>())
    }
}

/// Formats the value at a JSON pointer for people; a dash for a missing or null value.
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

/// Beginning of a text, of at most `max` characters.
pub(super) fn beginning<const CHARACTERS: usize>(value: &Value, pointer: &str) -> String {
    text(value, pointer).chars().take(CHARACTERS).collect()
}

/// A time to the second.
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

/// Items of a member that is an array; none of any other.
pub(super) fn listed<'a>(value: &'a Value, member: &str) -> impl Iterator<Item = &'a Value> {
    value[member].as_array().into_iter().flatten()
}

pub(super) fn table<const N: usize>(headings: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    columns_of(std::iter::once(headings.map(str::to_owned)).chain(rows).map(Vec::from))
}

/// Heading of a column or name of a field, how its value is shown, and the pointer to that value.
pub(super) type TableColumn = (&'static str, fn(&Value, &str) -> String, &'static str);

/// Columns of a table or fields of a list: `"HEADING" => "/pointer"`, with the function between that shows the value, unless as text.
macro_rules! columns {
    (@) => { $crate::cli::output::text };
    (@ $show:path) => { $show };
    ($($heading:literal $($show:path)? => $pointer:literal),+ $(,)?) => {
        &[$(($heading, columns!(@ $($show)?), $pointer)),+]
    };
}
pub(super) use columns;

/// A table with a row for each value.
pub(super) fn table_of<'a>(shown: &[TableColumn], values: impl IntoIterator<Item = &'a Value>) -> String {
    let row = |value| shown.iter().map(|(_, show, pointer)| show(value, pointer)).collect();
    columns_of(
        std::iter::once(shown.iter().map(|(heading, ..)| (*heading).to_owned()).collect())
            .chain(values.into_iter().map(row)),
    )
}

/// Rows of which the first one has the headings, in columns.
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

/// Names and values, one field a line.
pub(super) fn fields_of(shown: &[TableColumn], value: &Value) -> String {
    let width = shown.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
    let line = |(name, show, pointer): &TableColumn| format!("{name:<width$}  {}", show(value, pointer));
    shown.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
#[path = "../../tests/unit/cli/output.rs"]
mod tests;
