//! Converts lists and figures to CSV or NDJSON if `Accept` begins with that media type. Members of objects become columns such
//! as `metrics.accepted`; arrays stay JSON.

use std::collections::BTreeSet;

use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Map, Value};

use super::problem::Problem;
use crate::api::http::csv_cells::neutralise;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TableFormat {
    Csv,
    Ndjson,
}

impl TableFormat {
    fn accepted(headers: &HeaderMap) -> Option<Self> {
        let first = headers.get(header::ACCEPT)?.to_str().ok()?.split([',', ';']).next()?.trim().to_ascii_lowercase();
        [Self::Csv, Self::Ndjson].into_iter().find(|format| format.media_type().split(';').next() == Some(&first))
    }

    const fn media_type(self) -> &'static str {
        match self {
            Self::Csv => "text/csv; charset=utf-8",
            Self::Ndjson => "application/x-ndjson",
        }
    }

    fn write(self, rows: Vec<Map<String, Value>>) -> Option<Vec<u8>> {
        match self {
            Self::Ndjson => {
                let lines = rows.iter().map(|row| serde_json::to_string(row).map(|line| line + "\n"));
                lines.collect::<Result<String, _>>().ok().map(String::into_bytes)
            }
            Self::Csv => csv(&rows.into_iter().map(flat).collect::<Vec<_>>()),
        }
    }
}

/// Returns the rows of a response: its `data`, or the response itself as one row.
fn rows(mut body: Value) -> Option<Vec<Map<String, Value>>> {
    let rows = match body.get_mut("data").map(Value::take) {
        Some(Value::Array(rows)) => rows,
        _ => vec![body],
    };
    rows.into_iter().map(|row| if let Value::Object(row) = row { Some(row) } else { None }).collect()
}

fn flat(row: Map<String, Value>) -> Map<String, Value> {
    let mut cells = Map::new();
    for (name, value) in row.into_iter().filter(|(name, _)| name != "links") {
        match value {
            Value::Object(inner) => {
                cells.extend(flat(inner).into_iter().map(|(of, value)| (format!("{name}.{of}"), value)));
            }
            value => drop(cells.insert(name, value)),
        }
    }
    cells
}

fn csv(rows: &[Map<String, Value>]) -> Option<Vec<u8>> {
    let names: BTreeSet<&String> = rows.iter().flat_map(Map::keys).collect();
    let mut csv = csv::Writer::from_writer(Vec::new());
    if !names.is_empty() {
        csv.write_record(&names).ok()?;
    }
    for row in rows {
        let cell = |name: &&String| match row.get(*name) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => neutralise(text.clone()),
            Some(other) => other.to_string(),
        };
        csv.write_record(names.iter().map(cell)).ok()?;
    }
    csv.into_inner().ok()
}

/// Converts a successful JSON response to the accepted format. Streams are unchanged.
pub(crate) async fn convert(request: Request, next: Next) -> Response {
    let format = TableFormat::accepted(request.headers()).filter(|_| request.method() == Method::GET);
    let response = next.run(request).await;
    let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    let is_whole = response.body().size_hint().exact().is_some();
    let Some(format) = format.filter(|_| is_json && is_whole && response.status() == StatusCode::OK) else {
        return response;
    };
    let (mut head, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX).await.ok(); // it is in memory
    let rows = body.and_then(|body| rows(serde_json::from_slice(&body).ok()?));
    let Some(table) = rows.and_then(|rows| format.write(rows)) else { return Problem::internal().into_response() };
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(format.media_type()));
    Response::from_parts(head, Body::from(table))
}
