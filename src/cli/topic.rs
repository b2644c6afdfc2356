//! `bellwire topic`: named audiences, and who may join them.

use axum::http::Method;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::local::{Ask, Local, path, rows};
use super::output::{Output, fields, table, text, time};
use super::refusal::Names;

const NAMES: &Names = &[("/name", "TOPIC"), ("/join", "--join"), ("topic", "TOPIC"), ("app", "--app")];

/// The verbs.
#[derive(Debug, Subcommand)]
pub(super) enum Topic {
    /// Make a topic.
    #[command(after_help = "Examples:
  bellwire topic create news --app shop
  bellwire topic create staff --app shop --join server")]
    Create {
        #[command(flatten)]
        topic: Named,
        /// Who may join it, and leave it.
        #[arg(long, value_enum, default_value_t)]
        join: Join,
    },
    /// List an app's topics.
    List {
        /// The app's short name or id.
        #[arg(long, value_parser = NonEmptyStringValueParser::new())]
        app: String,
    },
    /// Change who may join a topic. Whoever is in it stays.
    #[command(after_help = "Example:\n  bellwire topic change staff --app shop --join server")]
    Change {
        #[command(flatten)]
        topic: Named,
        /// Who may join it, and leave it.
        #[arg(long, value_enum)]
        join: Join,
    },
    /// Remove a topic and its policy. The subscriptions that were in it stay, without it.
    Delete {
        #[command(flatten)]
        topic: Named,
    },
}

/// Which topic.
#[derive(Debug, Args)]
pub(super) struct Named {
    /// Its name: letters, digits and any of _.~%-
    #[arg(value_name = "TOPIC", value_parser = NonEmptyStringValueParser::new())]
    name: String,
    /// The app's short name or id.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    app: String,
}

/// Who may join a topic.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(super) enum Join {
    /// Browsers, of their own accord, and servers.
    #[default]
    Anyone,
    /// Servers only.
    Server,
}

impl Join {
    fn name(self) -> Option<String> {
        self.to_possible_value().map(|value| value.get_name().to_owned())
    }
}

impl Topic {
    /// Does it.
    pub(super) async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        match self {
            Self::Create { topic: Named { name, app }, join } => {
                let ask = Ask::new(Method::POST, path(["apps", &app, "topics"]));
                let body = json!({"name": name, "join": join.name()});
                let made = local.ask(Ask { body, names: NAMES, ..ask }).await?;
                out.say(&made, &show(&made))?;
            }
            Self::List { app } => {
                let topics = local.list(&path(["apps", &app, "topics"])).await?;
                out.say(&topics, &list(&topics))?;
            }
            Self::Change { topic: Named { name, app }, join } => {
                let ask = Ask::new(Method::PATCH, path(["apps", &app, "topics", &name]));
                let topic = local.ask(Ask { body: json!({"join": join.name()}), names: NAMES, ..ask }).await?;
                out.say(&topic, &show(&topic))?;
            }
            Self::Delete { topic: Named { name, app } } => {
                let ask = Ask::new(Method::DELETE, path(["apps", &app, "topics", &name]));
                local.ask(Ask { names: NAMES, ..ask }).await?;
                out.say(&json!({"name": name, "deleted": true}), &format!("The topic {name} is gone."))?;
            }
        }
        Ok(())
    }
}

fn show(topic: &Value) -> String {
    fields([
        ("topic", text(topic, "/name")),
        ("may be joined by", text(topic, "/join")),
        ("made by", text(topic, "/made_by")),
        ("members", text(topic, "/members")),
        ("created", time(topic, "/created_at")),
    ])
}

fn list(topics: &Value) -> String {
    let row = |topic| {
        [
            text(topic, "/name"),
            text(topic, "/join"),
            text(topic, "/made_by"),
            text(topic, "/members"),
            time(topic, "/created_at"),
        ]
    };
    table(["TOPIC", "JOIN", "MADE BY", "MEMBERS", "CREATED"], rows(topics).map(row))
}
