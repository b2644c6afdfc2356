//! `bellwire key`: API keys of apps, of operators and of what reads metrics.

use axum::http::Method;
use chrono::{DateTime, NaiveDate, NaiveTime, Utc};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use serde_json::json;

use super::local::{Ask, DataDirState, Local, path};
use super::output::{Output, TableColumn, text, time};
use super::refusal::ArgumentNames;
use bellwire_core::scope::Scope;

const NAMES: &ArgumentNames =
    &[("/name", "--name"), ("/scopes", "--scope"), ("/expires_at", "--expires-at"), ("api_key", "KEY")];

#[derive(Debug, Subcommand)]
pub(super) enum Key {
    /// Make an API key. Its secret is printed, once and for all.
    #[command(after_help = "Examples:
  KEY=$(bellwire key create --operator --name me)
  KEY=$(bellwire key create --operator --scope metrics --name prometheus)
  KEY=$(bellwire key create --app shop --scope send,read --name server)")]
    Create {
        #[command(flatten)]
        owner: Owner,
        /// Display name.
        #[arg(long)]
        name: String,
        /// Scopes of the key; repeatable, or separated by commas. With --operator: `operator` by default, or `metrics`.
        #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',', required_unless_present = "operator")]
        scopes: Vec<Scope>,
        /// Expiry: a day or a time in UTC, such as 2030-01-31 or 2030-01-31T08:30:00Z; no expiry by default.
        #[arg(long, value_name = "TIME", value_parser = moment)]
        expires_at: Option<DateTime<Utc>>,
    },
    /// List API keys, without their secrets.
    #[command(after_help = "Example:\n  bellwire key list --app shop")]
    List(Owner),
    /// Revoke an API key at once and for good, and with it the keys that it made.
    #[command(after_help = "Example:\n  bellwire key revoke --app shop ak_0198…")]
    Revoke {
        #[command(flatten)]
        owner: Owner,
        /// Id of the key, as `bellwire key list` shows it.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        key: String,
        /// Leave the keys that it made valid, and those that these made: for a key that is replaced, not stolen.
        #[arg(long)]
        keep_descendants: bool,
    },
}

/// The app, or operators, whose keys are meant.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct Owner {
    /// Of the app of that short name or id.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    app: Option<String>,
    /// Of no app: for operators, who may do everything in all apps, or to read the server's metrics.
    #[arg(long)]
    operator: bool,
}

impl Owner {
    fn path(&self) -> String {
        match &self.app {
            Some(app) => path(["apps", app, "api-keys"]),
            None => path(["api-keys"]),
        }
    }
}

impl Key {
    /// Whether it may come first.
    pub(super) fn beginning(&self) -> DataDirState {
        match self {
            Self::Create { owner: Owner { operator: true, .. }, .. } => DataDirState::Here,
            _ => DataDirState::Before,
        }
    }

    pub(super) async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        match self {
            Self::Create { owner, name, scopes, expires_at } => {
                let scopes = if scopes.is_empty() { vec![Scope::Operator] } else { scopes };
                let body = json!({"name": name, "scopes": scopes, "expires_at": expires_at});
                let key = local.ask(Ask { body, names: NAMES, ..Ask::new(Method::POST, owner.path()) }).await?;
                out.say(&key, &text(&key, "/secret"))?;
                let (id, scopes) = (text(&key, "/id"), text(&key, "/scopes"));
                out.note(&format!("Made {id} ({scopes}). Keep the secret: it is shown only now."));
            }
            Self::List(owner) => out.table(COLUMNS, &local.list(&owner.path()).await?)?,
            Self::Revoke { owner, key, keep_descendants } => {
                let of_key = &path([&key])["/v1".len()..];
                let at = format!("{}{of_key}?keep_descendants={keep_descendants}", owner.path());
                let done = local.ask(Ask { names: NAMES, ..Ask::new(Method::DELETE, at) }).await?;
                let told = match done["revoked"].as_i64() {
                    Some(n @ 2..) => format!("{key} is revoked, and {} that it made or these did.", n - 1),
                    _ => format!("{key} is revoked."),
                };
                out.say(&json!({"id": key, "revoked": done["revoked"]}), &told)?;
            }
        }
        Ok(())
    }
}

/// A time, or the beginning of a day.
pub(super) fn moment(text: &str) -> Result<DateTime<Utc>, &'static str> {
    let day = || text.parse::<NaiveDate>().ok().map(|day| day.and_time(NaiveTime::MIN).and_utc());
    text.parse().ok().or_else(day).ok_or("must be such as 2030-01-31 or 2030-01-31T08:30:00Z")
}

const COLUMNS: &[TableColumn] = &[
    ("ID", text, "/id"),
    ("SECRET", |key, hint| format!("{}…", text(key, hint)), "/hint"),
    ("SCOPES", text, "/scopes"),
    ("CREATED", time, "/created_at"),
    ("EXPIRES", time, "/expires_at"),
    ("REVOKED", time, "/revoked_at"),
    ("LAST USED", text, "/last_used_on"),
    ("MADE BY", text, "/created_by"),
    ("NAME", text, "/name"),
];
