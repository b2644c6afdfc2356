//! `bellwire log-level`: what is seen in the log of all processes, for a while.

use std::time::Duration;

use axum::http::Method;
use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use serde_json::{Value, json};

use super::local::{Ask, Local, path};
use super::output::{Output, text, time};
use super::refusal::ArgumentNames;
use bellwire_core::duration;

const NAMES: &ArgumentNames = &[("/filter", "FILTER"), ("/seconds", "--for")];

#[derive(Debug, Subcommand)]
pub(super) enum LogLevel {
    /// Show what is logged beyond what each process was started with.
    Show,
    /// Log more, or less, for a while, in all processes within two seconds.
    #[command(after_help = "Examples:
  bellwire log-level set debug
  bellwire log-level set bellwire_dispatch=debug --for 1h
  bellwire log-level set info,bellwire::api=debug,sqlx=debug --for 5m")]
    Set {
        /// A level (error, warn, info, debug, trace) for all of Bellwire, or levels of its parts; `sqlx` logs statements.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        filter: String,
        /// For how long: 15m, 2h; a minute to a day.
        #[arg(long = "for", value_name = "TIME", default_value = "15m", value_parser = read)]
        lasting: Duration,
    },
    /// Log what each process was started with.
    Reset,
}

fn read(text: &str) -> Result<Duration, &'static str> {
    duration::parse(text).ok_or("must be a number and its unit, such as 90s, 15m or 2h")
}

impl LogLevel {
    pub(super) async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        let path = path(["log-level"]);
        let shown = match self {
            Self::Show => local.get(path).await?,
            Self::Set { filter, lasting } => {
                let body = json!({"filter": filter, "seconds": i64::try_from(lasting.as_secs()).unwrap_or(i64::MAX)});
                local.ask(Ask { body, names: NAMES, ..Ask::new(Method::PUT, path) }).await?
            }
            Self::Reset => local.ask(Ask::new(Method::DELETE, path)).await?,
        };
        out.say(&shown, &told(&shown))?;
        Ok(())
    }
}

fn told(shown: &Value) -> String {
    match shown["filter"].is_string() {
        true => format!("{} until {}", text(shown, "/filter"), time(shown, "/until")),
        false => "Each process logs what it was started with (BELLWIRE_LOG).".to_owned(),
    }
}
