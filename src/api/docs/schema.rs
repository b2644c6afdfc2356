//! Renders JSON schemas as text and as HTML tables.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value;

use super::{DocName, items, members, page, read, text, words};
use crate::api::http::problem::Problem;

const BOUNDS: [&str; 9] =
    ["format", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "default"];

/// Renders the type of a value, with links to schemas that have a page.
pub(super) fn kind(schema: &Value) -> Markup {
    let choices = ["oneOf", "anyOf", "allOf"].into_iter().find_map(|word| schema[word].as_array());
    html! {
        @if let Some(name) = schema["$ref"].as_str().and_then(|place| place.rsplit('/').next()) {
            a href={ "/docs/schemas/" (name) } { (name) }
        } @else if let Some(choices) = choices {
            @for (n, choice) in choices.iter().enumerate() {
                @if n > 0 { @if schema["allOf"].is_array() { " and " } @else { " or " } }
                (kind(choice))
            }
        } @else if schema["items"].is_object() {
            "list of " (kind(&schema["items"]))
        } @else {
            (names(&schema["type"]))
            @if schema["properties"].is_object() { (table(schema)) }
            @else if schema["additionalProperties"].is_object() { " of " (kind(&schema["additionalProperties"])) }
        }
        @if let Some(known) = schema["enum"].as_array() {
            ": " @for (n, one) in known.iter().enumerate() { @if n > 0 { ", " } code { (one) } }
        }
        span.soft { @for word in BOUNDS { @if let Some(bound) = schema.get(word) { " " (word) " " code { (bound) } } } }
    }
}

fn names(kind: &Value) -> String {
    match kind {
        Value::String(name) => name.clone(),
        Value::Array(names) => names.iter().map(text).collect::<Vec<_>>().join(" or "),
        _ => "anything".to_owned(),
    }
}

/// Renders the members of an object as a table.
fn table(schema: &Value) -> Markup {
    let required = items(&schema["required"]);
    html! {
        table {
            @for (name, member) in members(&schema["properties"]) {
                tr {
                    td { code { (name) } @if required.iter().any(|known| known == name) { span.soft { " required" } } }
                    td { (kind(member)) }
                    td { (words(text(&member["description"]))) }
                }
            }
        }
    }
}

pub(super) async fn show(State(description): State<Arc<Value>>, name: DocName) -> Result<Response, Problem> {
    let name = read(name)?;
    let schema = description["components"]["schemas"].get(&name).ok_or_else(|| Problem::not_found("schema"))?;
    Ok(page(&name, "", &html! { p { (words(text(&schema["description"]))) } (kind(schema)) }))
}
