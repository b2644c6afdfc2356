//! Unit tests of `src/cli/refusal.rs`, which includes them.

use serde_json::json;

use super::*;
use crate::api::http::problem::FieldError;

fn told(problem: Problem) -> String {
    let body = json!({"origins": ["https://good.example.com", "nonsense"], "slug": "A", "content": {"url": "x"}});
    let names = [("/origins", "--origin"), ("/slug", "SLUG"), ("/content/url", "--url"), ("message", "MESSAGE")];
    CommandError::new(&serde_json::from_slice(&problem.body()).unwrap(), &body, &names).to_string()
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
fn missing_resource_suggests_how_to_find_it() {
    assert_eq!(
        told(Problem::not_found("app")),
        "There is no such app. `bellwire app list` shows those that there are."
    );
}

#[test]
fn repeated_cause_is_printed_once() {
    let io = || std::io::Error::other("connection refused");
    let error = anyhow::Error::new(io()).context("the database cannot be used: connection refused").context("list");
    assert_eq!(causes(&error), "list: the database cannot be used: connection refused");
    assert_eq!(causes(&anyhow::Error::new(io()).context("list")), "list: connection refused");
}
