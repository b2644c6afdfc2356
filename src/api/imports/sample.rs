//! First rows of a dry run, column by column, for the person who decides about the import.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::columns::Field;

/// Most rows of a sample.
pub(super) const ROWS_MAX: usize = 10;
/// Most characters of a value that are shown.
const VALUE_CHARS_MAX: usize = 100;

/// A row of a dry run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct SampleRow {
    /// The line, from 1; of an array, the number of the element.
    pub(super) line: i64,
    /// `read`, `left_out` or `refused`.
    pub(super) outcome: &'static str,
    /// Cells or members, including those of nested objects.
    pub(super) cells: Vec<SampleCell>,
}

/// A cell of a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct SampleCell {
    /// Name of the column in the file.
    column: String,
    /// Member that it is read as; null: it is ignored.
    field: Option<String>,
    /// Value, at most 100 characters. Null: empty, ignored, or a secret.
    value: Option<String>,
}

impl SampleCell {
    /// Shows a cell. Of an endpoint the host alone, of keys nothing.
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
