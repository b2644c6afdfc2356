//! `bellwire campaign`: plans that end in messages.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use axum::http::Method;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::arguments::AppFlag;
use super::local::{Ask, Local, path};
use super::output::{Output, TableColumn, fields_of, table_of, text, time};
use super::refusal::ArgumentNames;
use super::send::read;
use super::watch::{COME_BACK, Frames};

const NAMES: &ArgumentNames =
    &[("campaign", "CAMPAIGN"), ("app", "--app"), ("/slug", "--slug"), ("/users", "--user"), ("/variant", "--variant")];
/// Minimum time between two reads of a watched campaign, however many events arrive.
const WATCHED_EVERY: Duration = Duration::from_secs(1);
/// Maximum time without an event before the campaign is read anyway. Small messages cause no event until they are done.
const QUIET_MAX: Duration = Duration::from_secs(10);
/// Event types that the watch subscribes to.
const KINDS: &str = "campaign,message";

#[derive(Debug, Subcommand)]
pub(super) enum Campaign {
    /// Make a campaign, as a draft.
    #[command(after_help = "Example:\n  bellwire campaign create spring.json --app shop")]
    Create {
        /// Campaign plan in JSON, as the API accepts it; - for standard input.
        #[arg(value_name = "FILE")]
        plan: PathBuf,
        #[command(flatten)]
        app: AppFlag,
        /// The same key makes the same campaign only once.
        #[arg(long, value_name = "KEY")]
        idempotency_key: Option<String>,
    },
    /// Write the plan of a draft anew.
    Change {
        #[command(flatten)]
        campaign: One,
        /// Campaign plan in JSON, as the API accepts it; - for standard input.
        #[arg(value_name = "FILE")]
        plan: PathBuf,
    },
    /// List an app's campaigns, the newest first.
    List(AppFlag),
    /// Show a campaign and how it goes.
    Show(One),
    /// Print what its author wrote, in JSON.
    Plan(One),
    /// Send it to named users now, as a message of its own.
    #[command(after_help = "Example:\n  bellwire campaign test spring --app shop --user 42 --variant b")]
    Test {
        #[command(flatten)]
        campaign: One,
        /// User id of a recipient; repeatable.
        #[arg(long = "user", value_name = "USER", required = true)]
        users: Vec<String>,
        /// Variant to send; the first by default.
        #[arg(long, value_name = "NAME")]
        variant: Option<String>,
    },
    /// Start it: it goes out when it is due.
    Start(One),
    /// Stop sending within a second, until it is resumed.
    Pause(One),
    /// Resume sending.
    Resume(One),
    /// Stop sending within a second, for good.
    Cancel(One),
    /// Make a draft with the plan of a campaign.
    Clone {
        #[command(flatten)]
        campaign: One,
        /// Slug of the copy.
        #[arg(long)]
        slug: String,
    },
    /// Delete a draft, or a campaign that is over.
    Delete(One),
    /// Tell when it would run, whom each of its messages would reach, and what would be refused. Nothing is sent.
    DryRun(One),
    /// List its runs, the latest first: what became of each, and how its click rate compares with that of the run before.
    #[command(after_help = "Example:\n  bellwire campaign runs daily --app shop --limit 7")]
    Runs {
        #[command(flatten)]
        campaign: One,
        /// Maximum number of campaigns, newest first.
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=250))]
        limit: u16,
    },
    /// Show how it goes as it goes, until it is done: a bar on a terminal, a line for each change elsewhere.
    Watch(One),
}

#[derive(Debug, Args)]
pub(super) struct One {
    /// Slug or id of the campaign.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    campaign: String,
    #[command(flatten)]
    app: AppFlag,
}

impl One {
    fn path(&self) -> String {
        path(["apps", &self.app, "campaigns", &self.campaign])
    }

    fn verb(&self, verb: &str) -> String {
        format!("{}/{verb}", self.path())
    }
}

impl Campaign {
    pub(super) async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        let ask = match &self {
            Self::Create { plan, app, idempotency_key } => Ask {
                body: read_plan(plan)?,
                idempotency_key: idempotency_key.as_deref(),
                ..Ask::new(Method::POST, path(["apps", app, "campaigns"]))
            },
            Self::Change { campaign, plan } => Ask { body: read_plan(plan)?, ..Ask::new(Method::PUT, campaign.path()) },
            Self::List(app) => {
                let page = local.list(&path(["apps", app, "campaigns"])).await?;
                return Ok(out.table(COLUMNS, &page)?);
            }
            Self::Runs { campaign, limit } => {
                let at = format!("{}?limit={limit}", campaign.verb("runs"));
                return Ok(out.table(RUNS, &local.ask(Ask { names: NAMES, ..Ask::new(Method::GET, at) }).await?)?);
            }
            Self::Plan(one) => {
                let plan = local.ask(Ask { names: NAMES, ..Ask::new(Method::GET, one.verb("plan")) }).await?;
                return Ok(out.say(&plan, &serde_json::to_string_pretty(&plan)?)?);
            }
            Self::Test { campaign, users, variant } => {
                let body = match variant {
                    Some(variant) => json!({"users": users, "variant": variant}),
                    None => json!({"users": users}),
                };
                let asked = Ask { body, names: NAMES, ..Ask::new(Method::POST, campaign.verb("test")) };
                let sent = local.ask(asked).await?;
                return Ok(out.say(&sent, &text(&sent, "/id"))?);
            }
            Self::Delete(one) => {
                local.ask(Ask { names: NAMES, ..Ask::new(Method::DELETE, one.path()) }).await?;
                let gone = format!("The campaign {} is gone.", one.campaign);
                return Ok(out.say(&json!({"campaign": one.campaign, "deleted": true}), &gone)?);
            }
            Self::DryRun(one) => {
                let told = local.ask(Ask { names: NAMES, ..Ask::new(Method::POST, one.verb("dry-run")) }).await?;
                return Ok(out.say(&told, &dry_run(&told))?);
            }
            Self::Watch(one) => return watch(one, local, out).await,
            Self::Clone { campaign, slug } => {
                Ask { body: json!({"slug": slug}), names: NAMES, ..Ask::new(Method::POST, campaign.verb("clone")) }
            }
            Self::Show(one) => Ask { names: NAMES, ..Ask::new(Method::GET, one.path()) },
            Self::Start(one) => Ask { names: NAMES, ..Ask::new(Method::POST, one.verb("start")) },
            Self::Pause(one) => Ask { names: NAMES, ..Ask::new(Method::POST, one.verb("pause")) },
            Self::Resume(one) => Ask { names: NAMES, ..Ask::new(Method::POST, one.verb("resume")) },
            Self::Cancel(one) => Ask { names: NAMES, ..Ask::new(Method::POST, one.verb("cancel")) },
        };
        let campaign = local.ask(ask).await?;
        Ok(out.say(&campaign, &show(&campaign))?)
    }
}

fn read_plan(file: &std::path::Path) -> anyhow::Result<Value> {
    serde_json::from_slice(&read(file)?).with_context(|| format!("{} is not JSON", file.display()))
}

const DRY_RUN_MESSAGES: &[TableColumn] = &[
    ("DUE", time, "/due_at"),
    ("VARIANT", text, "/variant"),
    ("SHARE", text, "/share"),
    ("REACHES", text, "/audience_estimate"),
    ("OFF BY", text, "/audience_margin"),
];

fn dry_run(told: &Value) -> String {
    let listed = |member: &str| told[member].as_array().map(Vec::as_slice).unwrap_or_default();
    let messages = table_of(DRY_RUN_MESSAGES, listed("messages"));
    let refused =
        listed("refused").iter().map(|fault| format!("\n{} {}", text(fault, "/pointer"), text(fault, "/detail")));
    let about = fields_of(&[("begins", time, "/begins_at"), ("messages not shown", text, "/more_messages")], told);
    format!("{about}\n{messages}{}", refused.collect::<String>())
}

const FIELDS: &[TableColumn] = &[
    ("campaign", text, "/slug"),
    ("id", text, "/id"),
    ("name", text, "/name"),
    ("state", text, "/state"),
    ("tier", text, "/tier"),
    ("runs", text, "/runs"),
    ("next", time, "/next_at"),
];

const VARIANTS: &[TableColumn] = &[
    ("VARIANT", text, "/name"),
    ("TARGETED", text, "/counts/targeted"),
    ("ACCEPTED", text, "/counts/accepted"),
    ("DISPLAYED", text, "/reports/displayed"),
    ("CLICKED", text, "/reports/clicked"),
    ("CLICK RATE", |variant, _| rate(variant), ""),
];

fn show(campaign: &Value) -> String {
    let about = fields_of(FIELDS, campaign);
    let variants = campaign["progress"]["variants"].as_array().map(Vec::as_slice).unwrap_or_default();
    if variants.is_empty() {
        return about;
    }
    let variants = table_of(VARIANTS, variants);
    let sum = match campaign["runs"].as_i64() {
        Some(runs @ 2..) => format!("all {runs} runs together, "),
        _ => String::new(),
    };
    format!("{about}\n{sum}{}\n{variants}", line(campaign))
}

/// The click rate of a variant with its bounds.
fn rate(variant: &Value) -> String {
    let percent = |name: &str| variant["reports"][name].as_f64().map(|rate| rate * 100.0);
    match (percent("click_rate"), percent("click_rate_from"), percent("click_rate_to")) {
        (Some(rate), Some(from), Some(to)) => format!("{rate:.1} % ({from:.1} to {to:.1})"),
        _ => "-".to_owned(),
    }
}

const COLUMNS: &[TableColumn] = &[
    ("CAMPAIGN", text, "/slug"),
    ("STATE", text, "/state"),
    ("TIER", text, "/tier"),
    ("RUNS", text, "/runs"),
    ("NEXT", time, "/next_at"),
    ("NAME", text, "/name"),
];

const RUNS: &[TableColumn] = &[
    ("RUN", text, "/run"),
    ("AT", time, "/at"),
    ("TARGETED", text, "/total/targeted"),
    ("ACCEPTED", text, "/total/accepted"),
    ("DISPLAYED", text, "/reports/displayed"),
    ("CLICKED", text, "/reports/clicked"),
    ("CLICK RATE", |run, _| rate(run), ""),
    ("SINCE THE RUN BEFORE", |run, _| since(run), ""),
];

/// Describes the change of the click rate from the previous run, in percentage points. Includes the certainty that the rate is higher or
/// lower.
fn since(run: &Value) -> String {
    let number = |name: &str| run["before"][name].as_f64();
    let (Some(change), Some(higher)) = (number("click_rate"), number("higher")) else { return "-".to_owned() };
    let (way, certain) = if higher >= 0.5 { ("higher", higher) } else { ("lower", 1.0 - higher) };
    // Rounded down: nothing that was counted is quite certain.
    format!("{:+.1} points ({way} with {:.0} %)", change * 100.0, (certain * 100.0).floor().min(99.0))
}

/// Status of a campaign on one line.
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
async fn watch(one: &One, local: &Local, out: Output) -> anyhow::Result<()> {
    let happened = Notify::new();
    tokio::select! {
        seen = see(one, local, out, &happened) => seen,
        broken = listen(one, local, &happened) => broken,
    }
}

/// Notifies `happened` for each event of the app's messages or campaigns. Returns only if the server refuses the stream.
async fn listen(one: &One, local: &Local, happened: &Notify) -> anyhow::Result<()> {
    let at = format!("{}?kinds={KINDS}", path(["apps", &one.app, "events", "stream"]));
    let mut last: Option<String> = None;
    loop {
        let (after, mut frames) = (last.clone(), Frames::default());
        let ask = Ask { names: NAMES, last_event_id: after.as_deref(), ..Ask::new(Method::GET, at.clone()) };
        let take = |octets: &[u8]| {
            if !frames.push(octets).is_empty() {
                happened.notify_one();
            }
            Ok(())
        };
        local.stream(ask, take).await?;
        last = frames.last_id.or(last);
        tokio::time::sleep(COME_BACK).await;
    }
}

/// Shows how a campaign goes whenever something has happened.
async fn see(one: &One, local: &Local, out: Output, happened: &Notify) -> anyhow::Result<()> {
    let is_drawn = !out.json && std::io::stderr().is_terminal();
    let target = if is_drawn { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len}\n{msg}").context("a template of ours")?;
    let bar = ProgressBar::with_draw_target(Some(0), target).with_style(style);
    let mut last = String::new();
    loop {
        let campaign = local.ask(Ask { names: NAMES, ..Ask::new(Method::GET, one.path()) }).await?;
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
            return if is_drawn { Ok(out.say(&campaign, &show(&campaign))?) } else { Ok(()) };
        }
        last = line;
        tokio::time::sleep(WATCHED_EVERY).await;
        let _ = tokio::time::timeout(QUIET_MAX, happened.notified()).await; // either way it is time to look
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_shows_progress_and_confidence() {
        let campaign = json!({"state": "sending", "progress": {"eta": "2026-12-01T09:00:00Z", "rate_per_second": 12.5,
            "total": {"targeted": 100, "waiting": 60, "accepted": 38, "gone": 2, "expired": 0, "dead": 0, "cancelled": 0, "capped": 0}}});
        let said = "sending: 40 of 100 ended, 38 accepted, 2 not, 12.5/s, until 2026-12-01 09:00:00Z";
        assert_eq!(line(&campaign), said);
        let mut held = campaign;
        held["progress"]["eta"] = Value::Null;
        held["progress"]["held"] = json!([{"gateway": "apple", "until": "2026-12-01T05:51:00Z"}]);
        let said =
            "sending: 40 of 100 ended, 38 accepted, 2 not, 12.5/s, not before 2026-12-01 05:51:00Z: apple is held";
        assert_eq!(line(&held), said);
        let known = json!({"reports": {"click_rate": 0.1, "click_rate_from": 0.05, "click_rate_to": 0.2}});
        assert_eq!((rate(&known).as_str(), rate(&json!({"reports": null})).as_str()), ("10.0 % (5.0 to 20.0)", "-"));
    }

    #[test]
    fn runs_are_compared_with_uncertainty() {
        let since = |change: f64, higher: f64| since(&json!({"before": {"click_rate": change, "higher": higher}}));
        assert_eq!(since(0.012, 0.97), "+1.2 points (higher with 97 %)");
        assert_eq!(since(-0.012, 0.001), "-1.2 points (lower with 99 %)");
        assert_eq!(super::since(&json!({"before": null})), "-");
    }
}
