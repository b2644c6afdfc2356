//! `bellwire metrics`: metrics over time.

use chrono::TimeDelta;
use serde_json::{Value, json};

use super::output::{columns_of, rows, text, time};
use super::verb::{Call, Verb, moment, option, time as time_option, verb, word};
use bellwire_core::clock::Clock;

/// Measures that are shown by default.
const MEASURES: &str = "accepted,gone,expired,dead,cancelled,acceptance_rate,latency_p50,latency_p95";

pub(super) fn metrics() -> Verb {
    let since =
        "From then on: a day or a time in UTC, such as 2030-01-31 or 2030-01-31T08:30:00Z; a day ago unless given";
    let measures = "Measures to show, such as accepted, error_rate or subscriptions_lost; several by commas";
    let by = "Dimensions to group by, such as gateway, tier or app; several by commas";
    verb("metrics", "GET [/apps/{app}]/metrics", "Print metrics of deliveries, receipts and subscriptions")
        .takes([
            option("--app <APP>", "{app}", "Only of this app: its short name or id; all apps unless given").is(word()),
            time_option("--since <TIME>", "?since", since)
                .find(|call, given| Box::pin(async { a_day_ago(call, given) })),
            time_option("--until <TIME>", "?until", "Until then; now unless given"),
            option("--step <STEP>", "?step", "Length of a step, such as 5m, 1h or 1d; one sum for all unless given"),
            option("--measure <MEASURES>", "?measures", measures).default(MEASURES),
            option("--by <DIMENSIONS>", "?by", by),
            option("--gateway <GATEWAY>", "?gateway", "Only these push services"),
            option("--tier <TIER>", "?tier", "Only these tiers; several by commas"),
            option("--message <MESSAGE>", "?message", "Only this message, to more than 100 recipients"),
        ])
        .words(|call, shown| {
            let complete = call.fill("Complete until {/metadata/complete_until}; later figures may still grow.", shown);
            Ok(format!("{}\n\n{complete}", table(call, shown)))
        })
        .examples([
            "bellwire metrics --app shop --step 1h --by gateway",
            "bellwire metrics --since 2030-01-01 --until 2030-02-01 --step 1d --measure subscriptions_lost --by reason",
        ])
}

fn a_day_ago(call: &Call<'_>, given: Value) -> anyhow::Result<Value> {
    let until = moment(&call.text("until")).unwrap_or_else(|_| Clock::system().now());
    Ok(if given.is_null() { json!(until - TimeDelta::days(1)) } else { given })
}

fn table(call: &Call<'_>, shown: &Value) -> String {
    let listed = |option: &str| call.text(option).split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>();
    let dimensions = if call.has("by") { listed("by") } else { Vec::new() };
    let (measures, step) = (listed("measure"), call.has("step"));
    let at = step.then(|| "AT".to_owned());
    let unit = |name: &str| if name.starts_with("latency_") { " (S)" } else { "" };
    let named = dimensions.iter().chain(&measures).map(|name| name.to_uppercase() + unit(name));
    let row = |point: &Value| {
        let at = step.then(|| time(point, "/time_bucket"));
        let groups = dimensions.iter().map(|name| text(point, &format!("/dimensions/{name}")));
        let values = measures.iter().map(|name| value(point, name));
        at.into_iter().chain(groups).chain(values).collect()
    };
    columns_of(std::iter::once(at.into_iter().chain(named).collect()).chain(rows(shown).map(row)))
}

/// Formats the value of a measure: integers unchanged, others with three decimals.
fn value(point: &Value, measure: &str) -> String {
    match &point["metrics"][measure] {
        Value::Number(number) if number.is_f64() => format!("{:.3}", number.as_f64().unwrap_or_default()),
        _ => text(point, &format!("/metrics/{measure}")),
    }
}
