//! `bellwire message`: how it goes, and turning it.

use axum::http::Method;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use serde_json::Value;

use super::arguments::AppFlag;
use super::local::{Ask, Local, path};
use super::output::{Output, TableColumn, beginning, fields_of, text, time};
use super::refusal::ArgumentNames;

const NAMES: &ArgumentNames = &[("message", "MESSAGE"), ("key", "--key"), ("limit", "--limit")];

#[derive(Debug, Subcommand)]
pub(super) enum MessageCommand {
    /// List an app's messages, the newest first.
    List {
        #[command(flatten)]
        app: AppFlag,
        /// Maximum number of messages, 1 to 250.
        #[arg(long, default_value_t = 50)]
        limit: u16,
    },
    /// Show a message and where its deliveries stand.
    #[command(after_help = "Example:\n  bellwire message show msg_0198…")]
    Show(One),
    /// Stop sending within a second, until it is resumed. Its time to live keeps running.
    Pause(One),
    /// Resume sending.
    Resume(One),
    /// Stop sending within a second, for good.
    #[command(
        after_help = "Example, of a message that was sent with a key:\n  bellwire message cancel --app shop --key booking-7"
    )]
    Cancel(MessageSelector),
}

/// A message, by its id or by its sender's own name for it.
#[derive(Debug, Args)]
pub(super) struct MessageSelector {
    /// The app's short name or id; by default the one that the message is of.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    app: Option<String>,
    /// Id of the message.
    #[arg(value_parser = NonEmptyStringValueParser::new(), required_unless_present = "key")]
    message: Option<String>,
    /// Idempotency key of the message.
    #[arg(long, value_parser = NonEmptyStringValueParser::new(), conflicts_with = "message", requires = "app")]
    key: Option<String>,
}

impl MessageSelector {
    /// API path of the cancellation.
    async fn cancel(self, local: &Local) -> anyhow::Result<String> {
        match (self.app, self.message, self.key) {
            (Some(app), None, Some(key)) => Ok(path(["apps", &app, "messages", "by-key", &key, "cancel"])),
            (app, message, _) => One { app, message: message.unwrap_or_default() }.path(local, Some("cancel")).await,
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct One {
    /// The app's short name or id; by default the one that the message is of.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    app: Option<String>,
    /// Id of the message.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    message: String,
}

impl One {
    /// API path of the message, or of an action on it.
    async fn path(self, local: &Local, verb: Option<&str>) -> anyhow::Result<String> {
        let app = match self.app {
            Some(app) => app,
            None => local.app_of(&self.message).await?,
        };
        let place = path(["apps", &app, "messages", &self.message]);
        Ok(verb.map_or_else(|| place.clone(), |verb| format!("{place}/{verb}")))
    }
}

impl MessageCommand {
    pub(super) async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        let (method, path) = match self {
            Self::List { app, limit } => {
                let at = format!("{}?limit={limit}", path(["apps", &app, "messages"]));
                return Ok(out.table(COLUMNS, &local.ask(Ask { names: NAMES, ..Ask::new(Method::GET, at) }).await?)?);
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

const FIELDS: &[TableColumn] = &[
    ("message", text, "/id"),
    ("state", text, "/state"),
    ("tier", text, "/tier"),
    ("to", text, "/to"),
    ("received", time, "/received_at"),
    ("send time", time, "/accepted_at"),
    ("expires", time, "/expires_at"),
    ("estimate", text, "/audience_estimate"),
    ("all found", text, "/expanded"),
];

fn show(message: &Value) -> String {
    let about = fields_of(FIELDS, message);
    let line = |name: &&str| {
        let n = message["counts"][*name].as_i64()?;
        (n != 0 || *name == "targeted").then(|| format!("{n:>10}  {}", name.replace('_', " ")))
    };
    let counts: Vec<_> = COUNTS.iter().filter_map(line).collect();
    format!("{about}\n{}", counts.join("\n"))
}

const COLUMNS: &[TableColumn] = &[
    ("ID", text, "/id"),
    ("STATE", text, "/state"),
    ("TIER", text, "/tier"),
    ("ACCEPTED", time, "/accepted_at"),
    ("ESTIMATE", text, "/audience_estimate"),
    ("TO", beginning::<60>, "/to"),
];
