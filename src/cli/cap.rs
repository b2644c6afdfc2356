//! `bellwire cap`: frequency caps, the maximum messages per person.

use serde_json::{Value, json};

use super::output::{columns, listed, table_of};
use super::verb::{Call, Group, app, group, positional, verb};

pub(super) fn cap() -> Group {
    let help = "Messages to a person, and the window: 2/1d. They count promotional and engagement messages together, or, with \
                `:promotional` or `:engagement` behind it, those alone. Repeatable";
    let verbs = [
        verb("show", "GET /apps/{app}/caps", "Show an app's caps").takes([app()]).words(show),
        verb(
            "set",
            "PUT /apps/{app}/caps",
            "Replace an app's caps by these. All of them hold; they do within a minute",
        )
        .takes([positional("CAP", "/caps", help).is(read).many(), app()])
        .words(show)
        .examples(["bellwire cap set --app shop 2/1d 5/7d", "bellwire cap set --app shop 3/1d 1/1h:promotional"]),
        verb("clear", "PUT /apps/{app}/caps", "Take all caps of an app away")
            .takes([app()])
            .body(json!({"caps": []}))
            .words(show),
    ];
    group("cap", "Limit the messages per person and day or week", verbs)
}

/// Parses the structure of a cap. The API validates the values.
fn read(written: &str) -> Result<Value, String> {
    let (figures, tier) = written.split_once(':').map_or((written, None), |(figures, tier)| (figures, Some(tier)));
    let parts = figures.split_once('/').and_then(|(max, window)| Some((max.parse::<i64>().ok()?, window)));
    let (max, window) = parts.ok_or("must be messages and a window, such as 2/1d or 5/7d:promotional")?;
    let mut cap = json!({"max": max, "window": window});
    if let Some(tier) = tier {
        cap["tiers"] = json!([tier]);
    }
    Ok(cap)
}

fn show(_: &Call<'_>, shown: &Value) -> anyhow::Result<String> {
    Ok(match listed(shown, "caps").next() {
        None => "There are no caps: users receive every message sent to them.".to_owned(),
        Some(_) => {
            table_of(columns! { "MESSAGES" => "/max", "IN" => "/window", "OF" => "/tiers" }, listed(shown, "caps"))
        }
    })
}

#[cfg(test)]
#[path = "../../tests/unit/cli/cap.rs"]
mod tests;
