//! What verbs print: JSON for programs, short text and tables for people.

use std::io::{self, Write};

use serde_json::Value;

/// In which form to answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Output {
    /// JSON instead of text.
    pub json: bool,
}

impl Output {
    /// Prints an answer for machines or for people.
    pub(super) fn say(self, machine: &Value, people: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.json { writeln!(out, "{machine}") } else { writeln!(out, "{people}") }
    }

    /// Adds something for people, beside what is printed for programs.
    pub(super) fn note(self, text: &str) {
        if !self.json {
            eprintln!("{text}");
        }
    }
}

/// What stands at that pointer, as a person would write it; a dash for nothing.
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

/// A time to the second.
pub(super) fn time(value: &Value, pointer: &str) -> String {
    let text = text(value, pointer);
    match chrono::DateTime::parse_from_rfc3339(&text) {
        Ok(time) => time.to_utc().format("%Y-%m-%d %H:%M:%SZ").to_string(),
        Err(_) => text,
    }
}

/// Rows under headings, in columns.
pub(super) fn table<const N: usize>(headings: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    columns(std::iter::once(headings.map(str::to_owned)).chain(rows).map(Vec::from))
}

/// Rows of which the first one has the headings, in columns.
pub(super) fn columns(rows: impl Iterator<Item = Vec<String>>) -> String {
    let rows: Vec<Vec<String>> = rows.collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Names and what they stand for, one a line.
pub(super) fn fields<const N: usize>(fields: [(&str, String); N]) -> String {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| format!("{name:<width$}  {value}");
    fields.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a".to_owned(), "1".to_owned()], ["übung".to_owned(), String::new()]];
        assert_eq!(table(["NAME", "N"], rows), "NAME   N\na      1\nübung");
    }

    #[test]
    fn values_are_written_as_people_do() {
        let value = json!({"list": ["a", "b"], "none": null, "flag": true, "at": "2027-01-15T08:00:00.123456Z"});
        assert_eq!(text(&value, "/list"), "a, b");
        assert_eq!(text(&value, "/none"), "-");
        assert_eq!(text(&value, "/flag"), "yes");
        assert_eq!(time(&value, "/at"), "2027-01-15 08:00:00Z");
        assert_eq!(time(&value, "/none"), "-");
    }
}
