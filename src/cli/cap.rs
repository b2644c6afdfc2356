use axum::http::Method;
use clap::Subcommand;
use serde_json::{Value, json};

use super::arguments::AppFlag;
use super::local::{Ask, Local, path};
use super::output::{Output, table_of, text};
use super::refusal::ArgumentNames;

const NAMES: &ArgumentNames = &[("/caps", "CAP"), ("app", "--app")];

#[derive(Debug, Subcommand)]
pub(super) enum Cap {
    /// Show an app's caps.
    Show(AppFlag),
    /// Replace an app's caps by these. All of them hold; they do within a minute.
    #[command(after_help = "Examples:
  bellwire cap set --app shop 2/1d 5/7d
  bellwire cap set --app shop 3/1d 1/1h:promotional")]
    Set {
        /// Messages to a person, and the window: 2/1d. They count promotional and engagement messages together, or, with
        /// `:promotional` or `:engagement` behind it, those alone. Repeatable.
        #[arg(required = true, value_name = "CAP", value_parser = read)]
        caps: Vec<Value>,
        #[command(flatten)]
        app: AppFlag,
    },
    /// Take all caps of an app away.
    Clear(AppFlag),
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

impl Cap {
    pub(super) async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        let caps = match self {
            Self::Show(app) => local.get(path(["apps", &app, "caps"])).await?,
            Self::Set { caps, app } => replace(local, &app, caps).await?,
            Self::Clear(app) => replace(local, &app, Vec::new()).await?,
        };
        out.say(&caps, &show(&caps))?;
        Ok(())
    }
}

async fn replace(local: &Local, app: &str, caps: Vec<Value>) -> anyhow::Result<Value> {
    let ask = Ask::new(Method::PUT, path(["apps", app, "caps"]));
    local.ask(Ask { body: json!({"caps": caps}), names: NAMES, ..ask }).await
}

fn show(shown: &Value) -> String {
    let caps = shown["caps"].as_array().map(Vec::as_slice).unwrap_or_default();
    if caps.is_empty() {
        return "There are no caps: users receive every message sent to them.".to_owned();
    }
    table_of(&[("MESSAGES", text, "/max"), ("IN", text, "/window"), ("OF", text, "/tiers")], caps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cap_is_messages_per_window_and_tier() {
        assert_eq!(read("2/1d"), Ok(json!({"max": 2, "window": "1d"})));
        assert_eq!(read("5/7d:promotional"), Ok(json!({"max": 5, "window": "7d", "tiers": ["promotional"]})));
        for wrong in ["", "2", "1d/2", "2:promotional"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
