//! `bellwire send`: sends one message.

use std::path::Path;

use anyhow::{anyhow, ensure};
use clap::ArgGroup;
use serde_json::{Value, json};

use super::client::{ApiRequest, path};
use super::file::{file_of_json, read};
use super::output::{listed, rows, text};
use super::verb::{Call, Parameter, Verb, app, flag, json_or_file, number, option, tier, verb};
use bellwire_core::base64url;
use bellwire_core::delivery::Urgency;
use bellwire_core::duration;

/// Minimum similarity of names, 0 to 1, for a suggestion.
const SIMILAR_MIN: f64 = 0.75;
const SIMILAR_MAX: usize = 3;

pub(super) fn send() -> Verb {
    let recipients = ["all", "topic", "user", "subscription", "message"];
    let one = ArgGroup::new("to").args(recipients);
    let any = ArgGroup::new("recipients").args(recipients).arg("segment").required(true).multiple(true);
    verb("send", "POST /apps/{app}/messages", "Send a message to some or all subscribers")
        .takes([app()])
        .takes(audience())
        .takes(content())
        .takes(delivery())
        .names([
            ("/to", "--all, --topic, --segment, --user or --subscription"),
            ("/sunset", "--unclicked, --unclicked-for"),
            ("/content", "the notification"),
        ])
        .with(|command| command.groups([one, any]))
        .shape(has_content)
        .run(|call| Box::pin(run(call)))
        .words(|call, sent| {
            let nothing = || format!("Nothing was sent: {}.", count(sent));
            Ok(if call.has("dry-run") { nothing() } else { text(sent, "/id") })
        })
        .examples([
            "bellwire send --app shop --user 42 --tier transactional --title 'Your parcel is here'",
            "bellwire send --app shop --topic news --title 'New in' --url https://shop.example.com/new --dry-run",
            "bellwire send --app shop --segment 'plan = \"pro\" and last_seen < 30d' --title 'For you'",
            "bellwire send --app shop --topic news --unclicked 10 --unclicked-for 60d --title 'New in'",
            "bellwire send --app shop --topic news --template welcome --data '{\"city\": \"Linz\"}'",
            "bellwire send --app shop --user 42 --title 'Your table is booked for 19:00' --at 2026-12-01T17:00 \
             --timezone Europe/Vienna --key booking-7",
            "bellwire send --app shop --message message.json",
        ])
        .remark("Prints the message's id. `bellwire message show` shows the progress.")
}

/// Returns the arguments that select recipients: one audience, a segment, and a sunset rule.
fn audience() -> [Parameter; 9] {
    let not_to_few = |parameter: Parameter| parameter.conflicts("user subscription message");
    let message = "A whole message in JSON, as the API takes it; - for standard input";
    let segment = "To those alone of everyone, or of a topic, who belong to this segment: its name, or an expression";
    let unclicked = "Leave out who was shown so many messages, 1 to 100, since they last clicked one";
    let unclicked_for = "Leave out who was shown messages for so long, such as 60d, and clicked none";
    let welcome = "But not who subscribed less long ago than that; 30d by default";
    [
        flag("--all", "/to/all", "To every subscription of the app"),
        option("--topic <TOPIC>", "/to/topic", "To everyone in this topic"),
        option("--user <USER>", "/to/users", "To every subscription of this user; repeatable").many(),
        option("--subscription <ID>", "/to/subscriptions", "To this subscription; repeatable").many(),
        option("--message <FILE>", "", message).read(file_of_json).conflicts(
            "title template payload payload-file no-envelope unclicked unclicked-for \
             welcome tier ttl urgency collapse-key at timezone key",
        ),
        not_to_few(option("--segment <SEGMENT>", "/to/segment", segment)),
        not_to_few(option("--unclicked <N>", "/sunset/unclicked", unclicked).is(number(..))),
        not_to_few(option("--unclicked-for <SPAN>", "/sunset/unclicked_for", unclicked_for)),
        option("--welcome <SPAN>", "/sunset/welcome", welcome),
    ]
}

fn content() -> [Parameter; 11] {
    let of_notification = |parameter: Parameter| parameter.with(|arg| arg.requires("title"));
    let template = "Instead of a notification: the name of a template, which is filled in for each recipient";
    let data = "Data for the template: a JSON object, or @FILE";
    let payload = "Instead of a notification: text for the page's own push handler";
    let no_envelope = "Send the payload untouched, without the envelope that receipts need";
    [
        option("--title <TITLE>", "/content/title", "First line of the notification"),
        of_notification(option("--body <BODY>", "/content/body", "Text below the title")),
        of_notification(option("--url <URL>", "/content/url", "URL that a click opens")),
        of_notification(option("--icon <URL>", "/content/icon", "URL of a small picture")),
        of_notification(option("--image <URL>", "/content/image", "URL of a large picture")),
        of_notification(option(
            "--tag <TAG>",
            "/content/tag",
            "A notification replaces one shown earlier under the same tag",
        )),
        option("--template <NAME>", "/template", template).conflicts("title"),
        json_or_file("--data <JSON>", "/data", data).with(|arg| arg.requires("template")),
        option("--payload <TEXT>", "/payload", payload).conflicts("title template"),
        option("--payload-file <FILE>", "/payload", "The same from a file, of any octets; - for standard input")
            .read(|_, file| Ok(json!({"base64": base64url::encode(read(Path::new(file))?)})))
            .conflicts("title payload template"),
        flag("--no-envelope", "/envelope", no_envelope).sets(false),
    ]
}

fn delivery() -> [Parameter; 9] {
    let ttl = "Time that push services may keep the message: seconds, or a duration such as 30m, 12h, 7d; by default the tier's";
    let urgency = "Urgency: push services use it to decide whether to wake a device; by default the tier's";
    let collapse_key = "Push services keep only the newest message of this key for a browser that is away";
    let at = "Time to send: such as 2026-12-01T09:00:00Z, at most 90 days ahead; without an offset with --timezone";
    let zone = "The IANA time zone of --at, such as Europe/Vienna";
    let key = "Your own name for it, by which it can be cancelled: `bellwire message cancel --app … --key KEY`";
    [
        tier("/tier", "Decides retries, weight and defaults; promotional by default"),
        option("--ttl <TTL>", "/ttl", ttl).is(seconds),
        option("--urgency <URGENCY>", "/urgency", urgency).one_of(Urgency::ALL.map(Urgency::name)),
        option("--collapse-key <KEY>", "/collapse_key", collapse_key),
        option("--at <TIME>", "/send_at", at),
        option("--timezone <ZONE>", "/timezone", zone).with(|arg| arg.requires("at")),
        option("--key <KEY>", "/key", key),
        option("--idempotency-key <KEY>", "Idempotency-Key", "The same key sends the same message only once"),
        flag("--dry-run", "?dry_run", "Check the message and count its recipients. Nothing is sent"),
    ]
}

fn has_content(call: &Call<'_>, body: &mut Value) -> anyhow::Result<()> {
    let has_content = ["content", "template", "payload"].iter().any(|content| body.get(content).is_some());
    ensure!(
        has_content || call.has("message"),
        "no content given: use --title for a notification, --template, --payload for the page's own handler, or --message"
    );
    Ok(())
}

async fn run(call: &Call<'_>) -> anyhow::Result<()> {
    let sent = match call.ask().await {
        Ok(sent) => sent,
        Err(error) => return Err(with_similar_topics(call, error).await),
    };
    for warning in listed(&sent, "warnings") {
        call.out.note(&format!("Note: {}: {}", text(warning, "/pointer"), text(warning, "/detail")));
    }
    call.print(&sent)?;
    if call.has("dry-run") {
        return Ok(());
    }
    call.out.note(
        &call.fill(&format!("{}. How it goes: bellwire message show --app {{app}} {{/id}}", count(&sent)), &sent),
    );
    if !call.client.delivers().await? {
        call.out.note("No server is running that delivers: it goes out as soon as one does.");
    }
    Ok(())
}

fn count(sent: &Value) -> String {
    let reached = match sent["audience_estimate"].as_i64() {
        Some(1) => "1 subscription".to_owned(),
        n => format!("{} subscriptions", n.unwrap_or(0)),
    };
    format!("{reached} to send to, {} out of reach", text(sent, "/unreachable"))
}

pub(super) fn seconds(text: &str) -> Result<Value, String> {
    let parsed: Option<u64> = text.parse().ok().or_else(|| duration::parse(text).map(|duration| duration.as_secs()));
    parsed.map(Value::from).ok_or_else(|| "must be a number of seconds, or such as 30m, 12h, 7d".to_owned())
}

/// Adds the names of similar topics to the error of a topic that does not exist.
async fn with_similar_topics(call: &Call<'_>, error: anyhow::Error) -> anyhow::Error {
    let topic = call.text("topic");
    if !error.to_string().contains(&format!("topic {topic:?} does not exist in this app")) {
        return error;
    }
    let topics =
        call.client.list(ApiRequest::get(path(["apps", &call.text("app"), "topics"]))).await.unwrap_or_default();
    let names = similar(&topic, &topics);
    if names.is_empty() { error } else { anyhow!("{error}; similar: {}", names.join(", ")) }
}

/// Returns the names in a list that are most similar.
fn similar<'a>(name: &str, list: &'a Value) -> Vec<&'a str> {
    let names = rows(list).filter_map(|known| known["name"].as_str());
    let names = names.map(|known| (strsim::jaro_winkler(known, name), known));
    let mut names: Vec<_> = names.filter(|(likeness, _)| *likeness >= SIMILAR_MIN).collect();
    names.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    names.into_iter().map(|(_, name)| name).take(SIMILAR_MAX).collect()
}
