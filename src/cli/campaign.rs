//! `bellwire campaign`: manages campaigns.

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;
use tokio::sync::Notify;

use super::client::{ApiRequest, path};
use super::file::file_of_json;
use super::output::{TableColumn, columns, fields_of, listed, table_of, text, time};
use super::verb::{Call, Group, Verb, app, group, limit, number, option, positional, verb};
use super::watch::{Frame, follow};

/// Minimum time between two reads of a watched campaign, however many events arrive.
const WATCHED_EVERY: Duration = Duration::from_secs(1);
/// Maximum time without an event before the campaign is read anyway. Small messages cause no event until they are done.
const QUIET_MAX: Duration = Duration::from_secs(10);
/// Event types that the watch subscribes to.
const KINDS: &str = "campaign,message";

pub(super) fn campaign() -> Group {
    let plan = || {
        positional("FILE", "", "Campaign plan in JSON, as the API accepts it; - for standard input").read(file_of_json)
    };
    let runs = "List its runs, the latest first: what became of each, and how its click rate compares with that of the run before";
    let verbs = [
        verb("create", "POST /apps/{app}/campaigns", "Make a campaign, as a draft")
            .takes([
                plan(),
                app(),
                option("--idempotency-key <KEY>", "Idempotency-Key", "The same key makes the same campaign only once"),
            ])
            .words(show)
            .examples(["bellwire campaign create spring.json --app shop"]),
        one("change", "PUT /apps/{app}/campaigns/{campaign}", "Write the plan of a draft anew").takes([plan()]),
        verb("list", "GET /apps/{app}/campaigns", "List an app's campaigns, the newest first")
            .takes([app()])
            .list(COLUMNS),
        one("show", "GET /apps/{app}/campaigns/{campaign}", "Show a campaign and how it goes"),
        one("plan", "GET /apps/{app}/campaigns/{campaign}/plan", "Print what its author wrote, in JSON")
            .words(|_, plan| Ok(serde_json::to_string_pretty(plan)?)),
        one(
            "test",
            "POST /apps/{app}/campaigns/{campaign}/test",
            "Send it to named users now, as a message of its own",
        )
        .takes([
            option("--user <USER>", "/users", "User id of a recipient; repeatable").many().required(),
            option("--variant <NAME>", "/variant", "Variant to send; the first by default"),
        ])
        .says("{/id}")
        .examples(["bellwire campaign test spring --app shop --user 42 --variant b"]),
        one("start", "POST /apps/{app}/campaigns/{campaign}/start", "Start it: it goes out when it is due"),
        one(
            "pause",
            "POST /apps/{app}/campaigns/{campaign}/pause",
            "Stop sending within a second, until it is resumed",
        ),
        one("resume", "POST /apps/{app}/campaigns/{campaign}/resume", "Resume sending"),
        one("cancel", "POST /apps/{app}/campaigns/{campaign}/cancel", "Stop sending within a second, for good"),
        one(
            "withdraw",
            "POST /apps/{app}/campaigns/{campaign}/withdraw",
            "Cancel it, and remove its messages from the browsers that have them",
        )
        .takes([option("--yes-withdraw <CAMPAIGN>", "-", "The campaign once more: this cannot be undone").required()])
        .shape(|call, _| {
            let is_confirmed = call.text("CAMPAIGN") == call.text("yes-withdraw");
            let (written, campaign) = (call.text("yes-withdraw"), call.text("CAMPAIGN"));
            ensure!(is_confirmed, "--yes-withdraw {written}: write {campaign}, the campaign to be withdrawn");
            Ok(())
        }),
        one("clone", "POST /apps/{app}/campaigns/{campaign}/clone", "Make a draft with the plan of a campaign")
            .takes([option("--slug <SLUG>", "/slug", "Slug of the copy").required()]),
        one("delete", "DELETE /apps/{app}/campaigns/{campaign}", "Delete a draft, or a campaign that is over").deleted(
            "campaign",
            "CAMPAIGN",
            "The campaign {CAMPAIGN} is gone.",
        ),
        one(
            "dry-run",
            "POST /apps/{app}/campaigns/{campaign}/dry-run",
            "Tell when it would run, whom each of its messages would reach, and what would be refused. Nothing is sent",
        )
        .words(dry_run),
        one("runs", "GET /apps/{app}/campaigns/{campaign}/runs", runs)
            .takes([limit("20", "Maximum number of campaigns, newest first")
                .is(number(1..=250))
                .with(|arg| arg.value_name("N"))])
            .table(RUNS)
            .examples(["bellwire campaign runs daily --app shop --limit 7"]),
        one(
            "watch",
            "GET /apps/{app}/campaigns/{campaign}",
            "Show how it goes as it goes, until it is done: a bar on a terminal, a line for each change elsewhere",
        )
        .run(|call| Box::pin(watch(call))),
    ];
    group("campaign", "Plan, start, follow, pause and cancel campaigns", verbs)
}

/// Declares a verb about a campaign, which prints the campaign unless declared otherwise.
fn one(name: &'static str, request: &'static str, about: &'static str) -> Verb {
    verb(name, request, about)
        .takes([positional("CAMPAIGN", "{campaign}", "Slug or id of the campaign"), app()])
        .words(show)
}

const DRY_RUN_MESSAGES: &[TableColumn] = columns! {
    "DUE" time => "/due_at", "VARIANT" => "/variant", "SHARE" => "/share", "REACHES" => "/audience_estimate", "OFF BY" => "/audience_margin",
};

fn dry_run(_: &Call<'_>, told: &Value) -> anyhow::Result<String> {
    let messages = table_of(DRY_RUN_MESSAGES, listed(told, "messages"));
    let refused = listed(told, "refused").map(|fault| {
        format!(
            "
{} {}",
            text(fault, "/pointer"),
            text(fault, "/detail")
        )
    });
    let about = fields_of(columns! { "begins" time => "/begins_at", "messages not shown" => "/more_messages" }, told);
    Ok(format!(
        "{about}
{messages}{}",
        refused.collect::<String>()
    ))
}

const FIELDS: &[TableColumn] = columns! {
    "campaign" => "/slug", "id" => "/id", "name" => "/name", "state" => "/state", "tier" => "/tier", "runs" => "/runs",
    "next" time => "/next_at",
};

const VARIANTS: &[TableColumn] = columns! {
    "VARIANT" => "/name", "TARGETED" => "/counts/targeted", "ACCEPTED" => "/counts/accepted", "DISPLAYED" => "/reports/displayed",
    "CLICKED" => "/reports/clicked", "CLICK RATE" rate => "",
};

fn show(_: &Call<'_>, campaign: &Value) -> anyhow::Result<String> {
    let about = fields_of(FIELDS, campaign);
    let variants = || listed(&campaign["progress"], "variants");
    if variants().next().is_none() {
        return Ok(about);
    }
    let variants = table_of(VARIANTS, variants());
    let sum = match campaign["runs"].as_i64() {
        Some(runs @ 2..) => format!("all {runs} runs together, "),
        _ => String::new(),
    };
    Ok(format!("{about}\n{sum}{}\n{variants}", line(campaign)))
}

/// Formats the click rate of a variant with its bounds.
fn rate(variant: &Value, _: &str) -> String {
    let percent = |name: &str| variant["reports"][name].as_f64().map(|rate| rate * 100.0);
    match (percent("click_rate"), percent("click_rate_from"), percent("click_rate_to")) {
        (Some(rate), Some(from), Some(to)) => format!("{rate:.1} % ({from:.1} to {to:.1})"),
        _ => "-".to_owned(),
    }
}

const COLUMNS: &[TableColumn] = columns! {
    "CAMPAIGN" => "/slug", "STATE" => "/state", "TIER" => "/tier", "RUNS" => "/runs", "NEXT" time => "/next_at", "NAME" => "/name",
};

const RUNS: &[TableColumn] = columns! {
    "RUN" => "/run", "AT" time => "/at", "TARGETED" => "/total/targeted", "ACCEPTED" => "/total/accepted",
    "DISPLAYED" => "/reports/displayed", "CLICKED" => "/reports/clicked", "CLICK RATE" rate => "", "SINCE THE RUN BEFORE" since => "",
};

/// Describes the change of the click rate from the previous run, in percentage points. Includes the certainty that the rate is higher or
/// lower.
fn since(run: &Value, _: &str) -> String {
    let number = |name: &str| run["before"][name].as_f64();
    let (Some(change), Some(higher)) = (number("click_rate"), number("higher")) else { return "-".to_owned() };
    let (way, certain) = if higher >= 0.5 { ("higher", higher) } else { ("lower", 1.0 - higher) };
    // Rounded down: nothing that was counted is quite certain.
    format!("{:+.1} points ({way} with {:.0} %)", change * 100.0, (certain * 100.0).floor().min(99.0))
}

/// Formats the status of a campaign on one line.
fn line(campaign: &Value) -> String {
    let total = &campaign["progress"]["total"];
    let n = |name: &str| total[name].as_i64().unwrap_or(0);
    let ended = n("targeted") - n("waiting");
    let rate = campaign["progress"]["rate_per_second"].as_f64();
    let rate = rate.map(|rate| format!(", {rate}/s")).unwrap_or_default();
    let eta = campaign["progress"]["eta"].is_string().then(|| format!(", until {}", time(campaign, "/progress/eta")));
    let held = campaign.pointer("/progress/held/0/gateway").and_then(Value::as_str).map(|gateway| {
        let until = campaign["progress"]["held"][0]["until"].is_string();
        let until = until.then(|| format!("not before {}: ", time(campaign, "/progress/held/0/until")));
        format!(", {}{gateway} is held", until.unwrap_or_default())
    });
    let bad = n("gone") + n("expired") + n("dead") + n("cancelled") + n("capped");
    format!(
        "{}: {ended} of {} ended, {} accepted, {bad} not{rate}{}",
        text(campaign, "/state"),
        n("targeted"),
        n("accepted"),
        eta.or(held).unwrap_or_default()
    )
}

/// Reads a campaign whenever the event stream has an event of its app's messages or campaigns. Returns once the campaign cannot change
/// further.
async fn watch(call: &Call<'_>) -> anyhow::Result<()> {
    let happened = Notify::new();
    tokio::select! {
        seen = see(call, &happened) => seen,
        broken = listen(call, &happened) => broken,
    }
}

/// Notifies `happened` for each event of the app's messages or campaigns. Returns only if the server refuses the stream.
async fn listen(call: &Call<'_>, happened: &Notify) -> anyhow::Result<()> {
    let stream = format!("{}?kinds={KINDS}", path(["apps", &call.text("app"), "events", "stream"]));
    let request = ApiRequest::get(stream).names(&[("app", "--app")]);
    let take = |_: &Frame| {
        happened.notify_one();
        Ok(())
    };
    follow(call.client, request, take).await
}

/// Prints the status of a campaign after each event.
async fn see(call: &Call<'_>, happened: &Notify) -> anyhow::Result<()> {
    let out = call.out;
    let is_drawn = !out.json && std::io::stderr().is_terminal();
    let target = if is_drawn { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len}\n{msg}").context("a template of ours")?;
    let bar = ProgressBar::with_draw_target(Some(0), target).with_style(style);
    let mut last = String::new();
    loop {
        let campaign = call.ask().await?;
        let progress = &campaign["progress"];
        let n = |pointer: &str| progress.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        let ended = n("/total/targeted").saturating_sub(n("/total/waiting"));
        let whole = if progress["expanded"] == true { n("/total/targeted") } else { n("/audience_estimate") };
        bar.set_length(whole.max(ended));
        bar.set_position(ended);
        let line = line(&campaign);
        bar.set_message(line.clone());
        if !is_drawn && line != last {
            out.say(&campaign, &line)?;
        }
        if matches!(campaign["state"].as_str(), Some("done" | "cancelled" | "draft")) {
            bar.abandon();
            return if is_drawn { call.print(&campaign) } else { Ok(()) };
        }
        last = line;
        tokio::time::sleep(WATCHED_EVERY).await;
        let _ = tokio::time::timeout(QUIET_MAX, happened.notified()).await; // either way it is time to look
    }
}

#[cfg(test)]
#[path = "../../tests/unit/cli/campaign.rs"]
mod tests;
