//! Sample of a dry run: its first rows with their columns.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::columns::Field;

/// Maximum rows in a sample.
pub(super) const ROWS_MAX: usize = 10;
/// Maximum characters of a value in a sample.
const VALUE_CHARS_MAX: usize = 100;

/// A row of a dry run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct ImportSampleRow {
    /// Number of the line, or of the array element, from 1.
    pub(super) line: i64,
    /// Result of the row: `read`, `left_out` (skipped) or `refused`.
    pub(super) outcome: &'static str,
    /// Cells of the row, including members of nested objects.
    pub(super) cells: Vec<SampleCell>,
}

/// A cell of a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct SampleCell {
    /// Name of the column in the file.
    column: String,
    /// Field that the column maps to. Null: ignored.
    field: Option<String>,
    /// Value, at most 100 characters. Null: empty, ignored or secret.
    value: Option<String>,
}

impl SampleCell {
    /// Creates a cell. Shows only the host of an endpoint, and nothing of keys.
    pub(super) fn new(column: String, field: Option<&Field>, value: &Value) -> Self {
        let text = match value {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            value => Some(value.to_string()),
        };
        let value = match field {
            Some(Field::Endpoint) => {
                text.and_then(|text| Some(format!("{}/…", url::Url::parse(&text).ok()?.host_str()?)))
            }
            Some(field) if !field.is_secret() => text,
            _ => None,
        };
        let shown = |text: String| text.chars().filter(|c| !c.is_control()).take(VALUE_CHARS_MAX).collect();
        let field = field.filter(|field| **field != Field::Nothing).map(|field| match field {
            Field::Attribute(name) => format!("attributes.{name}"),
            field => field.name().to_owned(),
        });
        Self { column, field, value: value.map(shown) }
    }
}
