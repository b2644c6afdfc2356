//! `bellwire message`: how it goes, and turning it.

use axum::http::Method;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use serde_json::Value;

use super::local::{Ask, Local, path, rows};
use super::output::{Output, fields, table, text, time};
use super::refusal::Names;

const NAMES: &Names = &[("message", "MESSAGE"), ("key", "--key"), ("limit", "--limit")];

/// The verbs.
#[derive(Debug, Subcommand)]
pub(super) enum Message {
    /// List an app's messages, the newest first.
    List {
        /// The app's short name or id.
        #[arg(long, value_parser = NonEmptyStringValueParser::new())]
        app: String,
        /// How many, 1 to 250.
        #[arg(long, default_value_t = 50)]
        limit: u16,
    },
    /// Show a message and where its deliveries stand.
    #[command(after_help = "Example:\n  bellwire message show msg_0198…")]
    Show(One),
    /// Stop sending within a second, until it is resumed. Its time to live keeps running.
    Pause(One),
    /// Go on sending.
    Resume(One),
    /// Stop sending within a second, for good.
    #[command(
        after_help = "Example, of a message that was sent with a key:\n  bellwire message cancel --app shop --key booking-7"
    )]
    Cancel(Which),
}

/// A message, by its id or by its sender's own name for it.
#[derive(Debug, Args)]
pub(super) struct Which {
    /// The app's short name or id; by default the one that the message is of.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    app: Option<String>,
    /// Its id.
    #[arg(value_parser = NonEmptyStringValueParser::new(), required_unless_present = "key")]
    message: Option<String>,
    /// Its key.
    #[arg(long, value_parser = NonEmptyStringValueParser::new(), conflicts_with = "message", requires = "app")]
    key: Option<String>,
}

impl Which {
    /// Where it is cancelled in the API.
    async fn cancel(self, local: &Local) -> anyhow::Result<String> {
        match (self.app, self.message, self.key) {
            (Some(app), None, Some(key)) => Ok(path(["apps", &app, "messages", "by-key", &key, "cancel"])),
            (app, message, _) => One { app, message: message.unwrap_or_default() }.path(local, Some("cancel")).await,
        }
    }
}

/// A message.
#[derive(Debug, Args)]
pub(super) struct One {
    /// The app's short name or id; by default the one that the message is of.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    app: Option<String>,
    /// Its id.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    message: String,
}

impl One {
    /// Where it is in the API, or one of its verbs.
    async fn path(self, local: &Local, verb: Option<&str>) -> anyhow::Result<String> {
        let app = match self.app {
            Some(app) => app,
            None => local.app_of(&self.message).await?,
        };
        let place = path(["apps", &app, "messages", &self.message]);
        Ok(verb.map_or_else(|| place.clone(), |verb| format!("{place}/{verb}")))
    }
}

impl Message {
    /// Does it.
    pub(super) async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        let (method, path) = match self {
            Self::List { app, limit } => {
                let at = format!("{}?limit={limit}", path(["apps", &app, "messages"]));
                let page = local.ask(Ask { names: NAMES, ..Ask::new(Method::GET, at) }).await?;
                return Ok(out.say(&page, &list(&page))?);
            }
            Self::Show(one) => (Method::GET, one.path(local, None).await?),
            Self::Pause(one) => (Method::POST, one.path(local, Some("pause")).await?),
            Self::Resume(one) => (Method::POST, one.path(local, Some("resume")).await?),
            Self::Cancel(which) => (Method::POST, which.cancel(local).await?),
        };
        let message = local.ask(Ask { names: NAMES, ..Ask::new(method, path) }).await?;
        Ok(out.say(&message, &show(&message))?)
    }
}

/// The counts that add up to `targeted`, whom a sunset rule left out, and those that `accepted` splits into.
const COUNTS: [&str; 17] = [
    "targeted",
    "queued",
    "dispatching",
    "retrying",
    "accepted",
    "gone",
    "expired",
    "dead",
    "cancelled",
    "capped",
    "sunset",
    "awaiting_ack",
    "acknowledged",
    "unconfirmed",
    "displayed",
    "clicked",
    "closed",
];

fn show(message: &Value) -> String {
    let about = fields([
        ("message", text(message, "/id")),
        ("state", text(message, "/state")),
        ("tier", text(message, "/tier")),
        ("to", text(message, "/to")),
        ("accepted", time(message, "/accepted_at")),
        ("expires", time(message, "/expires_at")),
        ("estimate", text(message, "/audience_estimate")),
        ("all found", text(message, "/expanded")),
    ]);
    let line = |name: &&str| {
        let n = message["counts"][*name].as_i64()?;
        (n != 0 || *name == "targeted").then(|| format!("{n:>10}  {}", name.replace('_', " ")))
    };
    let counts: Vec<_> = COUNTS.iter().filter_map(line).collect();
    format!("{about}\n{}", counts.join("\n"))
}

fn list(page: &Value) -> String {
    let row = |message| {
        [
            text(message, "/id"),
            text(message, "/state"),
            text(message, "/tier"),
            time(message, "/accepted_at"),
            text(message, "/audience_estimate"),
            text(message, "/to").chars().take(60).collect(),
        ]
    };
    table(["ID", "STATE", "TIER", "ACCEPTED", "ESTIMATE", "TO"], rows(page).map(row))
}
