//! Unit tests of `src/cli/verb/group.rs`, which includes them.

use serde_json::Value;

use super::*;

fn verbs(group: Group) -> Vec<Verb> {
    let inner = group.groups.into_iter().flat_map(verbs);
    inner.collect::<Vec<_>>().into_iter().chain(group.verbs).collect()
}

/// Paths with and without each section in brackets.
fn variants(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('[') else { return vec![path.to_owned()] };
    let (section, after) = rest.split_once(']').expect("a closed section");
    let all = ["", section].into_iter().flat_map(|section| variants(&format!("{before}{section}{after}")));
    all.collect()
}

#[test]
fn declared_requests_are_routes() {
    let document = serde_json::to_value(crate::api::document()).expect("JSON");
    let verbs = verbs(crate::cli::declared());
    assert!(verbs.len() > 60, "{}", verbs.len());
    for verb in verbs {
        let method = verb.method.as_str().to_lowercase();
        let is_route =
            |path: &String| document["paths"][format!("/v1{path}")].get(&method).is_some_and(Value::is_object);
        assert!(variants(verb.path).iter().any(is_route), "{} {}", verb.method, verb.path);
    }
}

#[test]
fn parts_of_paths_have_arguments() {
    for verb in verbs(crate::cli::declared()) {
        for part in verb.path.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(part, _)| part) {
            assert!(verb.parameters.iter().any(|it| it.to == format!("{{{part}}}")), "{} {part}", verb.path);
        }
    }
}
