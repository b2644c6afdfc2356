//! `bellwire log-level`: temporary log level of all processes.

use serde_json::Value;

use super::output::{text, time};
use super::verb::{Call, Group, group, option, positional, verb};
use bellwire_core::duration;

pub(super) fn log_level() -> Group {
    let filter =
        "A level (error, warn, info, debug, trace) for all of Bellwire, or levels of its parts; `sqlx` logs statements";
    let verbs = [
        verb("show", "GET /log-level", "Show what is logged beyond what each process was started with").words(show),
        verb("set", "PUT /log-level", "Log more, or less, for a while, in all processes within two seconds")
            .takes([
                positional("FILTER", "/filter", filter),
                option("--for <TIME>", "/seconds", "For how long: 15m, 2h; a minute to a day").default("15m").is(read),
            ])
            .words(show)
            .examples([
                "bellwire log-level set debug",
                "bellwire log-level set bellwire_dispatch=debug --for 1h",
                "bellwire log-level set info,bellwire::api=debug,sqlx=debug --for 5m",
            ]),
        verb("reset", "DELETE /log-level", "Log what each process was started with").words(show),
    ];
    group("log-level", "Change the log level for a while without a restart", verbs)
}

fn read(text: &str) -> Result<Value, &'static str> {
    let lasting = duration::parse(text).ok_or("must be a number and its unit, such as 90s, 15m or 2h")?;
    Ok(i64::try_from(lasting.as_secs()).unwrap_or(i64::MAX).into())
}

fn show(_: &Call<'_>, shown: &Value) -> anyhow::Result<String> {
    Ok(match shown["filter"].is_string() {
        true => format!("{} until {}", text(shown, "/filter"), time(shown, "/until")),
        false => "Each process logs what it was started with (BELLWIRE_LOG).".to_owned(),
    })
}
