//! Turns the API's problems into what a person at a shell needs: which argument is wrong, and what to do.

use serde_json::Value;

use crate::api::http::problem::{FieldError, Problem, ProblemCode};

/// Pairs of a JSON pointer or parameter of the request and the argument that set it.
pub(super) type ArgumentNames = [(&'static str, &'static str)];

/// Why a verb was refused, for people.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(super) struct CommandError {
    text: String,
    pub code: ProblemCode,
}

impl CommandError {
    /// Writes it out. `body` is what was sent, to quote items of lists from.
    pub(super) fn new(problem: &Problem, body: &Value, names: &ArgumentNames) -> Self {
        let lines: Vec<String> = problem.errors.iter().map(|error| line(error, body, names)).collect();
        let text = match lines.as_slice() {
            [] => format!("{}{}", problem.detail, hint(problem)),
            [line] => line.clone(),
            lines => format!("{} arguments are wrong:\n  {}", lines.len(), lines.join("\n  ")),
        };
        Self { text, code: problem.code }
    }
}

/// The causes of an error, each once: some texts contain those of their own causes.
pub(super) fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            text = if text.is_empty() { cause } else { format!("{text}: {cause}") };
        }
    }
    text
}

fn line(error: &FieldError, body: &Value, names: &ArgumentNames) -> String {
    let place = [&error.pointer, &error.parameter, &error.header].into_iter().flatten().next();
    let place = place.map_or("", String::as_str);
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
    format!("{argument}: {}", error.detail)
}

/// Hint for an object that does not exist: the command that lists such objects.
fn hint(problem: &Problem) -> &'static str {
    let lists = [
        ("app", " `bellwire app list` shows those that there are."),
        ("API key", " `bellwire key list` shows those that there are."),
        ("VAPID key", " `bellwire vapid list` shows those that there are."),
        ("message", " `bellwire message list` shows those that there are."),
        ("campaign", " `bellwire campaign list` shows those that there are."),
        ("template", " `bellwire template list` shows those that there are."),
        ("topic", " `bellwire topic list` shows those that there are."),
        ("segment", " `bellwire segment list` shows those that there are."),
    ];
    let missing =
        |what: &str| problem.code == ProblemCode::NotFound && problem.detail == Problem::not_found(what).detail;
    lists.into_iter().find(|(what, _)| missing(what)).map_or("", |(_, hint)| hint)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(problem: Problem) -> String {
        let body = json!({"origins": ["https://good.example.com", "nonsense"], "slug": "A", "content": {"url": "x"}});
        let names = [("/origins", "--origin"), ("/slug", "SLUG"), ("/content/url", "--url"), ("message", "MESSAGE")];
        CommandError::new(&problem, &body, &names).to_string()
    }

    #[test]
    fn the_argument_is_named_and_an_item_quoted() {
        assert_eq!(told(Problem::invalid_member("/slug", "must be short")), "SLUG: must be short");
        assert_eq!(told(Problem::invalid_member("/origins", "too many")), "--origin: too many");
        assert_eq!(told(Problem::invalid_member("/origins/1", "is none")), "--origin \"nonsense\": is none");
        assert_eq!(told(Problem::invalid_member("/content/urls", "unknown")), "/content/urls: unknown");
        assert_eq!(told(Problem::invalid_parameter("message", "expected")), "MESSAGE: expected");
    }

    #[test]
    fn several_faults_are_told_at_once() {
        let faults = ["/slug", "/origins"].map(|at| FieldError::member(at, "is wrong")).to_vec();
        assert_eq!(told(Problem::invalid(faults)), "2 arguments are wrong:\n  SLUG: is wrong\n  --origin: is wrong");
    }

    #[test]
    fn repeated_cause_is_printed_once() {
        let io = || std::io::Error::other("connection refused");
        let error = anyhow::Error::new(io()).context("the database cannot be used: connection refused").context("list");
        assert_eq!(causes(&error), "list: the database cannot be used: connection refused");
        assert_eq!(causes(&anyhow::Error::new(io()).context("list")), "list: connection refused");
    }

    #[test]
    fn missing_resource_suggests_how_to_find_it() {
        assert_eq!(
            told(Problem::not_found("app")),
            "There is no such app. `bellwire app list` shows those that there are."
        );
    }
}
