//! `bellwire topic`: named audiences, and who may join them.

use axum::http::Method;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use super::arguments::AppFlag;
use super::local::{Ask, Local, path};
use super::output::{Output, TableColumn, text, time};
use super::refusal::ArgumentNames;
use super::send::given_json;

const NAMES: &ArgumentNames = &[("/join", "--join"), ("/policy", "--policy"), ("topic", "TOPIC"), ("app", "--app")];

#[derive(Debug, Subcommand)]
pub(super) enum Topic {
    /// Create a topic.
    #[command(after_help = "Examples:
  bellwire topic create news --app shop
  bellwire topic create staff --app shop --join server
  bellwire topic create orders --app shop --policy @policy.json")]
    Create {
        #[command(flatten)]
        topic: TopicArg,
        /// Clients that may join and leave the topic.
        #[arg(long, value_enum, default_value_t)]
        join: Join,
        /// Delivery policy of messages to it: JSON, or @FILE.
        #[arg(long, value_parser = NonEmptyStringValueParser::new())]
        policy: Option<String>,
    },
    /// List an app's topics.
    List(AppFlag),
    /// Change who may join a topic. Current subscribers stay.
    #[command(after_help = "Example:\n  bellwire topic change staff --app shop --join server")]
    Change {
        #[command(flatten)]
        topic: TopicArg,
        /// Clients that may join and leave the topic.
        #[arg(long, value_enum)]
        join: Join,
    },
    /// Remove a topic and its policy. The subscriptions that were in it stay, without it.
    Delete(TopicArg),
}

#[derive(Debug, Args)]
pub(super) struct TopicArg {
    /// Name: letters, digits and any of _.~%-
    #[arg(value_name = "TOPIC", value_parser = NonEmptyStringValueParser::new())]
    name: String,
    #[command(flatten)]
    app: AppFlag,
}

/// Clients that may join a topic.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(super) enum Join {
    /// Browsers, of their own accord, and servers.
    #[default]
    Anyone,
    Server,
}

impl Join {
    fn name(self) -> Option<String> {
        self.to_possible_value().map(|value| value.get_name().to_owned())
    }
}

impl Topic {
    pub(super) async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        match self {
            Self::Create { topic: TopicArg { name, app }, join, policy } => {
                let ask = Ask::new(Method::PUT, path(["apps", &app, "topics", &name]));
                let policy = policy.map(|policy| given_json("--policy", &policy)).transpose()?;
                let body = json!({"join": join.name(), "policy": policy});
                out.fields(FIELDS, &local.ask(Ask { body, names: NAMES, only_creates: true, ..ask }).await?)?;
            }
            Self::List(app) => out.table(COLUMNS, &local.list(&path(["apps", &app, "topics"])).await?)?,
            Self::Change { topic: TopicArg { name, app }, join } => {
                let ask = Ask::new(Method::PATCH, path(["apps", &app, "topics", &name]));
                let topic = local.ask(Ask { body: json!({"join": join.name()}), names: NAMES, ..ask }).await?;
                out.fields(FIELDS, &topic)?;
            }
            Self::Delete(TopicArg { name, app }) => {
                let ask = Ask::new(Method::DELETE, path(["apps", &app, "topics", &name]));
                local.ask(Ask { names: NAMES, ..ask }).await?;
                out.say(&json!({"name": name, "deleted": true}), &format!("The topic {name} is gone."))?;
            }
        }
        Ok(())
    }
}

const FIELDS: &[TableColumn] = &[
    ("topic", text, "/name"),
    ("may be joined by", text, "/join"),
    ("made by", text, "/made_by"),
    ("members", text, "/members"),
    ("created", time, "/created_at"),
];

const COLUMNS: &[TableColumn] = &[
    ("TOPIC", text, "/name"),
    ("JOIN", text, "/join"),
    ("MADE BY", text, "/made_by"),
    ("MEMBERS", text, "/members"),
    ("CREATED", time, "/created_at"),
];
