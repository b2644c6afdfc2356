//! `bellwire message`: shows, pauses, resumes and cancels messages.

use serde_json::Value;

use super::output::{TableColumn, beginning, columns, fields_of, time};
use super::verb::{Call, Group, Parameter, app, group, limit, option, positional, verb, word};

pub(super) fn messages() -> Group {
    let one = || [app_of_message(), message()];
    let key = || option("--key <KEY>", "{key}", "Idempotency key of the message").is(word());
    let verbs = [
        verb("list", "GET /apps/{app}/messages", "List an app's messages, the newest first")
            .takes([app(), limit("50", "Maximum number of messages, 1 to 250")])
            .table(COLUMNS),
        verb("show", "GET /apps/{app}/messages/{message}", "Show a message and where its deliveries stand")
            .takes(one())
            .words(show)
            .examples(["bellwire message show msg_0198…"]),
        verb(
            "pause",
            "POST /apps/{app}/messages/{message}/pause",
            "Stop sending within a second, until it is resumed. Its time to live keeps running",
        )
        .takes(one())
        .words(show),
        verb("resume", "POST /apps/{app}/messages/{message}/resume", "Resume sending").takes(one()).words(show),
        verb(
            "cancel",
            "POST /apps/{app}/messages[/by-key/{key}][/{message}]/cancel",
            "Stop sending within a second, for good",
        )
        .takes([
            app_of_message(),
            message().with(|arg| arg.required(false).required_unless_present("key")),
            key().conflicts("MESSAGE").with(|arg| arg.requires("app")),
        ])
        .words(show)
        .with(|command| {
            let example = "bellwire message cancel --app shop --key booking-7";
            command.after_help(format!("Example, of a message that was sent with a key:\n  {example}"))
        }),
        verb(
            "withdraw",
            "POST /apps/{app}/messages[/by-key/{key}][/{message}]/withdraw",
            "Stop sending, and remove it from the browsers that have it",
        )
        .takes([
            app_of_message(),
            message().with(|arg| arg.required(false).required_unless_present("key")),
            key().conflicts("MESSAGE").with(|arg| arg.requires("app")),
        ])
        .words(show)
        .examples(["bellwire message withdraw msg_0198…", "bellwire message withdraw --app shop --key price-17"]),
    ];
    group("message", "List, show, pause, resume, cancel and withdraw messages", verbs)
}

/// Argument with the id of the message.
pub(super) fn message() -> Parameter {
    positional("MESSAGE", "{message}", "Id of the message")
}

/// Argument with the app of the message. By default it is looked up.
pub(super) fn app_of_message() -> Parameter {
    let help = "The app's short name or id; by default the one that the message is of";
    option("--app <APP>", "{app}", help).is(word()).find(|call, given| Box::pin(find_app(call, given)))
}

async fn find_app(call: &Call<'_>, given: Value) -> anyhow::Result<Value> {
    if given.is_null() { call.client.app_of(&call.text("MESSAGE")).await.map(Value::from) } else { Ok(given) }
}

/// Counts that are printed: those that add up to `targeted`, recipients excluded by a sunset rule, and the parts of `accepted`.
const COUNTS: &str = "targeted queued dispatching retrying accepted gone expired dead cancelled capped sunset awaiting_ack \
                      acknowledged unconfirmed displayed clicked closed";

const FIELDS: &[TableColumn] = columns! {
    "message" => "/id", "state" => "/state", "tier" => "/tier", "to" => "/to", "received" time => "/received_at",
    "send time" time => "/accepted_at", "expires" time => "/expires_at", "estimate" => "/audience_estimate", "all found" => "/expanded",
};

fn show(_: &Call<'_>, message: &Value) -> anyhow::Result<String> {
    let about = fields_of(FIELDS, message);
    let line = |name: &str| {
        let n = message["counts"][name].as_i64()?;
        (n != 0 || name == "targeted").then(|| format!("{n:>10}  {}", name.replace('_', " ")))
    };
    let mut counts: Vec<_> = COUNTS.split_whitespace().filter_map(line).collect();
    let withdrawn = ["removed", "prevented", "missed", "unknown"].map(|name| {
        let n = message["counts"]["withdrawal"][name].as_i64()?;
        (n != 0).then(|| format!("{n:>10}  withdrawn: {name}"))
    });
    counts.extend(withdrawn.into_iter().flatten());
    Ok(format!("{about}\n{}", counts.join("\n")))
}

const COLUMNS: &[TableColumn] = columns! {
    "ID" => "/id", "STATE" => "/state", "TIER" => "/tier", "ACCEPTED" time => "/accepted_at", "ESTIMATE" => "/audience_estimate",
    "TO" beginning::<60> => "/to",
};
