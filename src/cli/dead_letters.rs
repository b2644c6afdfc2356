//! `bellwire dead-letters`: finding deliveries that failed, sending them again, putting them aside, copying them out.

use std::io::Write as _;

use axum::http::Method;
use chrono::{DateTime, Utc};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use url::form_urlencoded;

use super::a_tier;
use super::arguments::AppFlag;
use super::key::moment;
use super::local::{Ask, Local, path};
use super::output::{Output, Stdout, TableColumn, beginning, table, text, time};
use super::refusal::ArgumentNames;
use super::send::seconds;
use bellwire_core::delivery::Tier;
use bellwire_core::lane::Gateway;

const NAMES: &ArgumentNames = &[
    ("/filter/reason", "--reason"),
    ("/filter/status", "--status"),
    ("/filter/message", "--message"),
    ("/filter/subscription", "--subscription"),
    ("/cap", "--cap"),
    ("/ttl", "--ttl"),
    ("reason", "--reason"),
    ("status", "--status"),
    ("message", "--message"),
    ("subscription", "--subscription"),
    ("limit", "--limit"),
];

const STATES: [&str; 4] = ["open", "replayed", "discarded", "closed"];

#[derive(Debug, Subcommand)]
pub(super) enum DeadLetters {
    /// List dead letters, the newest first.
    #[command(after_help = "Example:\n  bellwire dead-letters list --app shop --state open --reason retries_exhausted")]
    List {
        #[command(flatten)]
        which: SelectionArgs,
        #[command(flatten)]
        state: StateArg,
        /// Maximum number of dead letters, 1 to 250.
        #[arg(long, default_value_t = 50)]
        limit: u16,
    },
    /// Count dead letters by what they have in common.
    #[command(after_help = "Example:\n  bellwire dead-letters groups --app shop --by reason --state open")]
    Groups {
        /// Field to group by.
        #[arg(long, default_value = "reason", value_parser = PossibleValuesParser::new(
            ["reason", "gateway", "status", "tier", "message", "day"]))]
        by: String,
        #[command(flatten)]
        which: SelectionArgs,
        #[command(flatten)]
        state: StateArg,
    },
    /// Send open dead letters again, to their original recipients. Each dead letter is replayed at most once, so the command is safe to
    /// repeat.
    #[command(after_help = "Examples:
  bellwire dead-letters replay --app shop --message msg_0198… --dry-run
  bellwire dead-letters replay --app shop --reason unauthorized --ttl 12h")]
    Replay {
        #[command(flatten)]
        handling: Handling,
        /// Time that push services may keep the message, from now: seconds, or a duration such as 30m, 12h, 7d; by default the original
        /// TTL.
        #[arg(long, value_parser = seconds)]
        ttl: Option<u64>,
    },
    /// Put open dead letters aside.
    #[command(
        after_help = "Example:\n  bellwire dead-letters discard --app shop --reason bad_request --until 2030-01-31"
    )]
    Discard(Handling),
    /// Copy dead letters out to standard output, without their content.
    #[command(after_help = "Example:\n  bellwire dead-letters export --app shop --state open > letters.csv")]
    Export {
        #[command(flatten)]
        which: SelectionArgs,
        #[command(flatten)]
        state: StateArg,
        /// Output format.
        #[arg(long, default_value = "csv", value_parser = PossibleValuesParser::new(["csv", "ndjson"]))]
        format: String,
    },
}

#[derive(Debug, Args)]
pub(super) struct SelectionArgs {
    #[command(flatten)]
    app: AppFlag,
    #[command(flatten)]
    filter: FilterArgs,
}

/// Letters that fit all of it.
#[derive(Debug, Args)]
struct FilterArgs {
    /// Why they died, such as `retries_exhausted`.
    #[arg(long)]
    reason: Option<String>,
    /// HTTP status of the last answer.
    #[arg(long)]
    status: Option<i16>,
    /// Id of the message.
    #[arg(long)]
    message: Option<String>,
    /// Id of the subscription.
    #[arg(long)]
    subscription: Option<String>,
    /// The topic that the message was addressed to.
    #[arg(long)]
    topic: Option<String>,
    /// Tier of the message.
    #[arg(long, value_parser = a_tier())]
    tier: Option<Tier>,
    /// Gateway that got the deliveries.
    #[arg(long, value_parser = PossibleValuesParser::new(Gateway::ALL.map(Gateway::name)))]
    gateway: Option<String>,
    /// Died then or later: a day or a time in UTC, such as 2030-01-31 or 2030-01-31T08:30:00Z.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<DateTime<Utc>>,
    /// Only those that failed before this time.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<DateTime<Utc>>,
    /// Retries that were made.
    #[arg(long)]
    retries: Option<i32>,
}

#[derive(Debug, Args)]
pub(super) struct StateArg {
    /// State of the dead letters; any by default.
    #[arg(long, value_parser = PossibleValuesParser::new(STATES))]
    state: Option<String>,
}

/// Selection of open dead letters, and a limit on their number.
#[derive(Debug, Args)]
pub(super) struct Handling {
    #[command(flatten)]
    which: SelectionArgs,
    /// Select every open dead letter; required if no filter is given.
    #[arg(long)]
    all: bool,
    /// Only count the dead letters.
    #[arg(long)]
    dry_run: bool,
    /// Maximum number of dead letters, 1 to 100,000; 10,000 by default.
    #[arg(long)]
    cap: Option<i64>,
}

impl FilterArgs {
    /// The members that were given.
    fn members(&self) -> Map<String, Value> {
        let all = json!({
            "reason": self.reason, "status": self.status, "message": self.message, "subscription": self.subscription,
            "topic": self.topic, "tier": self.tier.map(Tier::name), "gateway": self.gateway, "since": self.since, "until": self.until,
            "retries": self.retries,
        });
        let Value::Object(all) = all else { return Map::new() };
        all.into_iter().filter(|(_, value)| !value.is_null()).collect()
    }
}

impl SelectionArgs {
    /// The path of a route, with the filter and more in its query.
    fn path(&self, route: &str, state: &StateArg, more: &[(&str, &str)]) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in self.filter.members() {
            query.append_pair(&name, value.as_str().unwrap_or(&value.to_string()));
        }
        query.extend_pairs(state.state.iter().map(|state| ("state", state)));
        query.extend_pairs(more);
        format!("{}{route}?{}", path(["apps", &self.app, "dead-letters"]), query.finish())
    }
}

impl DeadLetters {
    pub(super) async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        let get = async |path| local.ask(Ask { names: NAMES, ..Ask::new(Method::GET, path) }).await;
        match self {
            Self::List { which, state, limit } => {
                out.table(COLUMNS, &get(which.path("", &state, &[("limit", &limit.to_string())])).await?)?;
            }
            Self::Groups { by, which, state } => {
                let groups = get(which.path("/groups", &state, &[("by", &by)])).await?;
                out.say(&groups, &grouped(&by, &groups["data"]))?;
            }
            Self::Replay { handling, ttl } => handling.run(local, out, "replay", ttl).await?,
            Self::Discard(handling) => handling.run(local, out, "discard", None).await?,
            Self::Export { which, state, format } => {
                let path = which.path("/export", &state, &[("format", &format)]);
                let ask = Ask { names: NAMES, ..Ask::new(Method::GET, path) };
                local.stream(ask, |octets| Stdout.write_all(octets)).await?;
            }
        }
        Ok(())
    }
}

impl Handling {
    async fn run(self, local: &Local, out: Output, what: &str, ttl: Option<u64>) -> anyhow::Result<()> {
        let filter = self.which.filter.members();
        if filter.is_empty() && !self.all {
            anyhow::bail!("no dead letters selected: use --reason, --message … or --all");
        }
        let mut body = json!({"filter": filter, "dry_run": self.dry_run, "cap": self.cap});
        if let Some(ttl) = ttl {
            body["ttl"] = ttl.into();
        }
        let at = path(["apps", &self.which.app, "dead-letters", what]);
        let handled = local.ask(Ask { body, names: NAMES, ..Ask::new(Method::POST, at) }).await?;
        out.say(&handled, &told(what, &handled))?;
        Ok(())
    }
}

fn told(what: &str, handled: &Value) -> String {
    let n = |name: &str| handled[name].as_i64().unwrap_or(0);
    let mut lines = vec![match handled["dry_run"].as_bool() {
        Some(true) => format!("{} open letters fit; this would {what} {}.", n("matched"), n("remaining")),
        _ => format!("{} of {} letters done, {} left.", n("handled"), n("matched"), n("remaining")),
    }];
    if n("unreachable") > 0 {
        lines.push(format!(
            "Of the selected ones, {} are for subscriptions that are no longer active.",
            n("unreachable")
        ));
    }
    if n("user_left") > 0 {
        lines.push(format!(
            "Of those that fit, {} were addressed to users who have left the browser: others would see them.",
            n("user_left")
        ));
    }
    for (by, groups) in [("reason", &handled["by_reason"]), ("message", &handled["by_message"])] {
        if groups.as_array().is_some_and(|groups| !groups.is_empty()) {
            lines.push(format!("\n{}", grouped(by, groups)));
        }
    }
    lines.join("\n")
}

fn grouped(by: &str, groups: &Value) -> String {
    let row = |group| [text(group, "/count"), time(group, "/newest"), text(group, "/key")];
    table(["COUNT", "NEWEST", &by.to_uppercase()], groups.as_array().into_iter().flatten().map(row))
}

const COLUMNS: &[TableColumn] = &[
    ("ID", text, "/id"),
    ("DIED", time, "/at"),
    ("STATE", text, "/state"),
    ("REASON", text, "/reason"),
    ("STATUS", text, "/status"),
    ("RETRIES", text, "/retries"),
    ("GATEWAY", text, "/gateway"),
    ("MESSAGE", text, "/message"),
    ("WORDS", beginning::<60>, "/detail"),
];
