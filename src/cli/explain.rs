//! `bellwire explain`: one delivery's story in plain words.

use axum::http::Method;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::Value;

use super::local::{Ask, Local, path};
use super::output::{Output, text};
use super::refusal::ArgumentNames;

const NAMES: &ArgumentNames = &[("message", "MESSAGE"), ("subscription", "SUBSCRIPTION")];

#[derive(Debug, Args)]
#[group(skip)] // its verb has the same name
pub(super) struct Explain {
    /// The app's short name or id; by default the one that the message is of.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    app: Option<String>,
    /// Id of the message.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    message: String,
    /// Id of the subscription.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    subscription: String,
}

impl Explain {
    pub(super) async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        let app = match self.app {
            Some(app) => app,
            None => local.app_of(&self.message).await?,
        };
        let at = path(["apps", &app, "messages", &self.message, "deliveries", &self.subscription, "explain"]);
        let explanation = local.ask(Ask { names: NAMES, ..Ask::new(Method::GET, at) }).await?;
        Ok(out.say(&explanation, &show(&explanation))?)
    }
}

fn show(explanation: &Value) -> String {
    let state = format!("State: {}, as of {}.", text(explanation, "/state"), text(explanation, "/now"));
    let story = explanation["story"].as_array().into_iter().flatten();
    std::iter::once(state).chain(story.map(|sentence| text(sentence, "/text"))).collect::<Vec<_>>().join("\n")
}
