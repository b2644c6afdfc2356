//! Converts API problems to errors for the command line: the faulty argument, and what to do.

use axum::http::StatusCode;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::output::{listed, text};
use crate::api::http::problem::{Problem, ProblemCode, ProblemKind};

/// Pairs of a JSON pointer or parameter, and the argument that set it.
pub(super) type ArgumentNames = [(&'static str, &'static str)];

/// Error of a verb, as text to display.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(super) struct CommandError {
    text: String,
    code: String,
}

impl CommandError {
    /// Formats a problem of the API. `body` is the request, from which offending list items are quoted.
    pub(super) fn new(problem: &Value, body: &Value, names: &ArgumentNames) -> Self {
        let lines: Vec<String> = listed(problem, "errors").map(|error| line(error, body, names)).collect();
        let text = match lines.as_slice() {
            [] => not_found(problem).unwrap_or_else(|| text(problem, "/detail")),
            [line] => line.clone(),
            lines => format!("{} arguments are wrong:\n  {}", lines.len(), lines.join("\n  ")),
        };
        Self { text, code: problem["code"].as_str().unwrap_or_default().to_owned() }
    }

    /// Adds the server, its HTTP status, and the remedy.
    pub(super) fn from(self, server: &str, status: StatusCode) -> Self {
        let remedy = match status {
            StatusCode::UNAUTHORIZED => "Set BELLWIRE_KEY to a valid API key of this server.",
            _ => ProblemKind::find(&self.code).map_or("", |kind| kind.remedy),
        };
        Self { text: format!("{}\n  ({server} answered {status}. {remedy})", self.text), ..self }
    }

    /// Whether the error is a problem with one of these codes.
    pub(super) fn is(error: &anyhow::Error, codes: &[ProblemCode]) -> bool {
        error.downcast_ref::<Self>().is_some_and(|refusal| codes.iter().any(|code| code.name() == refusal.code))
    }
}

/// Joins the causes of an error. Omits a cause that the previous text contains.
pub(super) fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            text = if text.is_empty() { cause } else { format!("{text}: {cause}") };
        }
    }
    text
}

fn line(error: &Value, body: &Value, names: &ArgumentNames) -> String {
    let place =
        ["pointer", "parameter", "header"].into_iter().find_map(|place| error[place].as_str()).unwrap_or_default();
    let named = names.iter().filter_map(|(at, name)| Some((name, place.strip_prefix(at)?)));
    let best = named.filter(|(_, rest)| rest.is_empty() || rest.starts_with('/')).min_by_key(|(_, rest)| rest.len());
    let argument = match best {
        None if place.is_empty() => "the message".to_owned(),
        None => place.to_owned(),
        Some((name, "")) => (*name).to_owned(),
        // An item of a list: which one is not obvious.
        Some((name, rest)) => match body.pointer(place) {
            Some(Value::String(item)) => format!("{name} {item:?}"),
            _ => format!("{name} ({rest})"),
        },
    };
    format!("{argument}: {}", text(error, "/detail"))
}

/// Describes a missing object: its name in the path of the request, and the command that lists such objects. `None`: another
/// problem.
fn not_found(problem: &Value) -> Option<String> {
    const LISTS: [(&str, &str, &str); 8] = [
        ("app", "/apps/", "app"),
        ("API key", "/api-keys/", "key"),
        ("VAPID key", "/vapid-keys/", "vapid"),
        ("message", "/messages/", "message"),
        ("campaign", "/campaigns/", "campaign"),
        ("template", "/templates/", "template"),
        ("topic", "/topics/", "topic"),
        ("segment", "/segments/", "segment"),
    ];
    let is_missing = |what: &str| {
        problem["code"] == ProblemCode::NotFound.name() && problem["detail"] == Problem::not_found(what).detail
    };
    let (what, before, command) = LISTS.into_iter().find(|(what, ..)| is_missing(what))?;
    let path = problem["instance"].as_str().and_then(|path| path.split_once(before));
    let name = path.map(|(_, rest)| rest.split(['/', '?']).next().unwrap_or_default());
    let missing = match name {
        Some(name) => format!("There is no {what} {:?}.", percent_decode_str(name).decode_utf8_lossy()),
        None => text(problem, "/detail"),
    };
    Some(format!("{missing} `bellwire {command} list` shows those that there are."))
}

#[cfg(test)]
#[path = "../../tests/unit/cli/refusal.rs"]
mod tests;
