//! `bellwire explain`: explains one delivery in plain words.

use serde_json::Value;

use super::message::{app_of_message, message};
use super::output::{listed, text};
use super::verb::{Call, Verb, positional, verb};

pub(super) fn explain() -> Verb {
    verb(
        "explain",
        "GET /apps/{app}/messages/{message}/deliveries/{subscription}/explain",
        "Explain one delivery: rules, responses, retries, next attempt",
    )
    .takes([app_of_message(), message(), positional("SUBSCRIPTION", "{subscription}", "Id of the subscription")])
    .words(show)
    .examples(["bellwire explain msg_0198… sub_0197…"])
}

fn show(_: &Call<'_>, explanation: &Value) -> anyhow::Result<String> {
    let state = format!("State: {}, as of {}.", text(explanation, "/state"), text(explanation, "/now"));
    let story = listed(explanation, "story").map(|sentence| text(sentence, "/text"));
    Ok(std::iter::once(state).chain(story).collect::<Vec<_>>().join("\n"))
}
