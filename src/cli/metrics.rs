//! `bellwire metrics`: figures over time.

use axum::http::Method;
use chrono::{DateTime, TimeDelta, Utc};
use clap::builder::NonEmptyStringValueParser;
use serde_json::Value;
use url::form_urlencoded;

use super::key::moment;
use super::local::{Ask, Local, path, rows};
use super::output::{Output, columns, text, time};
use super::refusal::ArgumentNames;
use bellwire_core::clock::Clock;

const NAMES: &ArgumentNames = &[
    ("app", "--app"),
    ("since", "--since"),
    ("until", "--until"),
    ("step", "--step"),
    ("measures", "--measure"),
    ("by", "--by"),
    ("gateway", "--gateway"),
    ("tier", "--tier"),
    ("message", "--message"),
];
/// Default measures.
const MEASURES: &str = "accepted,gone,expired,dead,cancelled,acceptance_rate,latency_p50,latency_p95";

#[derive(Debug, clap::Args)]
pub(super) struct Figures {
    /// Only of this app: its short name or id; all apps unless given.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    app: Option<String>,
    /// From then on: a day or a time in UTC, such as 2030-01-31 or 2030-01-31T08:30:00Z; a day ago unless given.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<DateTime<Utc>>,
    /// Until then; now unless given.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<DateTime<Utc>>,
    /// Length of a step, such as 5m, 1h or 1d; one sum for all unless given.
    #[arg(long)]
    step: Option<String>,
    /// Measures to show, such as accepted, error_rate or subscriptions_lost; several by commas.
    #[arg(long = "measure", value_name = "MEASURES", default_value = MEASURES)]
    measures: String,
    /// Dimensions to group by, such as gateway, tier or app; several by commas.
    #[arg(long, value_name = "DIMENSIONS")]
    by: Option<String>,
    /// Only these push services.
    #[arg(long)]
    gateway: Option<String>,
    /// Only these tiers; several by commas.
    #[arg(long)]
    tier: Option<String>,
    /// Only this message, to more than 100 recipients.
    #[arg(long)]
    message: Option<String>,
}

impl Figures {
    pub(super) async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        let until = self.until.unwrap_or_else(|| Clock::system().now());
        let since = self.since.unwrap_or(until - TimeDelta::days(1));
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("since", &since.to_rfc3339()).append_pair("until", &until.to_rfc3339());
        query.append_pair("measures", &self.measures);
        for (name, value) in [
            ("step", &self.step),
            ("by", &self.by),
            ("gateway", &self.gateway),
            ("tier", &self.tier),
            ("message", &self.message),
        ] {
            query.extend_pairs(value.iter().map(|value| (name, value)));
        }
        let route = self.app.as_deref().map_or_else(|| path(["metrics"]), |app| path(["apps", app, "metrics"]));
        let at = format!("{route}?{}", query.finish());
        let shown = local.ask(Ask { names: NAMES, ..Ask::new(Method::GET, at) }).await?;
        let complete =
            format!("Complete until {}; later figures may still grow.", time(&shown, "/metadata/complete_until"));
        Ok(out.say(&shown, &format!("{}\n\n{complete}", self.table(&shown)))?)
    }

    fn table(&self, shown: &Value) -> String {
        let listed = |names: &str| names.split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>();
        let (dimensions, measures) = (self.by.as_deref().map_or_else(Vec::new, listed), listed(&self.measures));
        let at = self.step.iter().map(|_| "AT".to_owned());
        let unit = |name: &str| if name.starts_with("latency_") { " (S)" } else { "" };
        let named = dimensions.iter().chain(&measures).map(|name| name.to_uppercase() + unit(name));
        let row = |point: &Value| {
            let at = self.step.iter().map(|_| time(point, "/time_bucket"));
            let groups = dimensions.iter().map(|name| text(point, &format!("/dimensions/{name}")));
            let values = measures.iter().map(|name| value(point, name));
            at.chain(groups).chain(values).collect()
        };
        columns(std::iter::once(at.chain(named).collect()).chain(rows(shown).map(row)))
    }
}

/// Formats the value of a measure: integers unchanged, others with three decimals.
fn value(point: &Value, measure: &str) -> String {
    match &point["metrics"][measure] {
        Value::Number(number) if number.is_f64() => format!("{:.3}", number.as_f64().unwrap_or_default()),
        _ => text(point, &format!("/metrics/{measure}")),
    }
}
