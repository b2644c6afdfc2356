//! `bellwire audit`: who did what.

use axum::http::Method;
use chrono::{DateTime, Utc};
use clap::Subcommand;
use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use url::form_urlencoded;

use super::key::moment;
use super::local::{Ask, Local, path};
use super::output::{Output, TableColumn, beginning, text, time};
use super::refusal::ArgumentNames;
use bellwire_store::keys::audit::AuditAction;

const NAMES: &ArgumentNames = &[("app", "--app"), ("actor", "--actor"), ("action", "--action"), ("limit", "--limit")];

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
        /// Only this action.
        #[arg(long, hide_possible_values = true,
            value_parser = PossibleValuesParser::new(AuditAction::ALL.iter().map(|action| action.name())))]
        action: Option<String>,
        /// Then or later: a day or a time in UTC, such as 2030-01-31 or 2030-01-31T08:30:00Z.
        #[arg(long, value_name = "TIME", value_parser = moment)]
        since: Option<DateTime<Utc>>,
        /// Only entries before this time.
        #[arg(long, value_name = "TIME", value_parser = moment)]
        until: Option<DateTime<Utc>>,
        /// Maximum number of entries, 1 to 250.
        #[arg(long, default_value_t = 50)]
        limit: u16,
    },
}

impl Audit {
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
        Ok(out.table(COLUMNS, &local.ask(Ask { names: NAMES, ..Ask::new(Method::GET, at) }).await?)?)
    }
}

const COLUMNS: &[TableColumn] = &[
    ("AT", time, "/at"),
    ("ACTOR", text, "/actor"),
    ("ADDRESS", text, "/address"),
    ("ACTION", text, "/action"),
    ("N", text, "/n"),
    ("TARGET", text, "/target"),
    ("DETAIL", beginning::<80>, "/detail"),
];
