//! `bellwire audit`: who did what.

use axum::http::Method;
use chrono::{DateTime, Utc};
use clap::Subcommand;
use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use serde_json::Value;
use url::form_urlencoded;

use super::key::moment;
use super::local::{Ask, Local, path, rows};
use super::output::{Output, table, text, time};
use super::refusal::Names;
use crate::store::keys::audit::Action;

const NAMES: &Names = &[("app", "--app"), ("actor", "--actor"), ("action", "--action"), ("limit", "--limit")];

/// The verbs.
#[derive(Debug, Subcommand)]
pub(super) enum Audit {
    /// List what was done, the latest first.
    #[command(after_help = "Examples:
  bellwire audit list --app shop --since 2030-01-31
  bellwire audit list --action vapid_key.exported
  bellwire audit list --actor ak_0198…")]
    List {
        /// Only to this app: its short name or id.
        #[arg(long, value_parser = NonEmptyStringValueParser::new())]
        app: Option<String>,
        /// Only by this: the id of an API key or a teammate, `local` for the command line, or `nobody` for sign-ins that failed.
        #[arg(long)]
        actor: Option<String>,
        /// Only this.
        #[arg(long, hide_possible_values = true,
            value_parser = PossibleValuesParser::new(Action::ALL.iter().map(|action| action.name())))]
        action: Option<String>,
        /// Then or later: a day or a time in UTC, such as 2030-01-31 or 2030-01-31T08:30:00Z.
        #[arg(long, value_name = "TIME", value_parser = moment)]
        since: Option<DateTime<Utc>>,
        /// Before then.
        #[arg(long, value_name = "TIME", value_parser = moment)]
        until: Option<DateTime<Utc>>,
        /// How many, 1 to 250.
        #[arg(long, default_value_t = 50)]
        limit: u16,
    },
}

impl Audit {
    /// Does it.
    pub(super) async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        let Self::List { app, actor, action, since, until, limit } = self;
        let mut query = form_urlencoded::Serializer::new(format!("limit={limit}"));
        for (name, value) in [("app", app), ("actor", actor), ("action", action)] {
            query.extend_pairs(value.map(|value| (name, value)));
        }
        for (name, value) in [("since", since), ("until", until)] {
            query.extend_pairs(value.map(|value| (name, value.to_rfc3339())));
        }
        let at = format!("{}?{}", path(["audit-log"]), query.finish());
        let page = local.ask(Ask { names: NAMES, ..Ask::new(Method::GET, at) }).await?;
        Ok(out.say(&page, &list(&page))?)
    }
}

fn list(page: &Value) -> String {
    let row = |entry| {
        [
            time(entry, "/at"),
            text(entry, "/actor"),
            text(entry, "/address"),
            text(entry, "/action"),
            text(entry, "/n"),
            text(entry, "/target"),
            text(entry, "/detail").chars().take(80).collect(),
        ]
    };
    table(["AT", "ACTOR", "ADDRESS", "ACTION", "N", "TARGET", "DETAIL"], rows(page).map(row))
}
