//! `bellwire template`: what is written once and sent often.

use std::path::PathBuf;

use anyhow::Context as _;
use axum::http::Method;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::arguments::AppFlag;
use super::local::{Ask, Local, path};
use super::output::{Output, TableColumn, text, time};
use super::refusal::ArgumentNames;
use super::send::{given_json, read};

const NAMES: &ArgumentNames = &[
    ("template", "TEMPLATE"),
    ("app", "--app"),
    ("/template", "TEMPLATE"),
    ("/data", "--data"),
    ("/user", "--user"),
    ("/subscription", "--subscription"),
    ("/to", "--all or --topic"),
    ("/to/topic", "--topic"),
];

#[derive(Debug, Subcommand)]
pub(super) enum TemplateCommand {
    /// Make a template, or write it anew. Messages that were sent before stay as they are.
    #[command(after_help = "Example:
  echo '{\"content\": {\"title\": \"Hello {{ attributes.name | default(\\\"there\\\") }}\"}}' |
    bellwire template put welcome --app shop --file -")]
    Put {
        #[command(flatten)]
        template: TemplateArg,
        /// The template in JSON, as the API takes it; - for standard input.
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
    },
    /// List an app's templates.
    List(AppFlag),
    /// Show a template, in JSON.
    Show(TemplateArg),
    /// Remove a template. Messages that were sent before are delivered all the same.
    Delete(TemplateArg),
    /// Show what comes of a template in each of its languages. Nothing is sent.
    #[command(
        after_help = "Example:\n  bellwire template preview welcome --app shop --user 42 --data '{\"city\": \"Linz\"}'"
    )]
    Preview {
        #[command(flatten)]
        template: TemplateArg,
        #[command(flatten)]
        data: Data,
        /// Render for this user's browser; by default for an unknown user.
        #[arg(long)]
        user: Option<String>,
        /// Render for this subscription.
        #[arg(long, value_name = "ID", conflicts_with = "user")]
        subscription: Option<String>,
    },
    /// Try a template on everybody whom a message would reach, for up to ten seconds. Nothing is sent.
    #[command(after_help = "Example:\n  bellwire template check welcome --app shop --topic news")]
    Check {
        #[command(flatten)]
        template: TemplateArg,
        #[command(flatten)]
        data: Data,
        /// On every subscription of the app.
        #[arg(long, required_unless_present = "topic", conflicts_with = "topic")]
        all: bool,
        /// On everyone in this topic.
        #[arg(long)]
        topic: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(super) struct TemplateArg {
    /// Name: lower-case letters, digits and hyphens
    #[arg(value_name = "TEMPLATE", value_parser = NonEmptyStringValueParser::new())]
    name: String,
    #[command(flatten)]
    app: AppFlag,
}

impl TemplateArg {
    fn path(&self) -> String {
        path(["apps", &self.app, "templates", &self.name])
    }
}

/// Template data.
#[derive(Debug, Args)]
pub(super) struct Data {
    /// Data for the template: a JSON object, or @FILE.
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
}

impl Data {
    fn value(&self) -> anyhow::Result<Value> {
        self.data.as_deref().map_or(Ok(Value::Null), |given| given_json("--data", given))
    }
}

impl TemplateCommand {
    pub(super) async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        match self {
            Self::Put { template, file } => {
                let body = serde_json::from_slice(&read(&file)?)
                    .with_context(|| format!("--file: {} is not JSON", file.display()))?;
                let put = local.ask(Ask { body, names: NAMES, ..Ask::new(Method::PUT, template.path()) }).await?;
                out.say(&put, &format!("The template {} is stored.", text(&put, "/name")))?;
            }
            Self::List(app) => out.table(COLUMNS, &local.list(&path(["apps", &app, "templates"])).await?)?,
            Self::Show(template) => {
                let shown = local.ask(Ask { names: NAMES, ..Ask::new(Method::GET, template.path()) }).await?;
                out.say(&shown, &serde_json::to_string_pretty(&shown["template"])?)?;
            }
            Self::Delete(template) => {
                local.ask(Ask { names: NAMES, ..Ask::new(Method::DELETE, template.path()) }).await?;
                let name = &template.name;
                out.say(&json!({"name": name, "deleted": true}), &format!("The template {name} is gone."))?;
            }
            Self::Preview { template: TemplateArg { name, app }, data, user, subscription } => {
                let body = given([
                    ("template", name.into()),
                    ("data", data.value()?),
                    ("user", user.into()),
                    ("subscription", subscription.into()),
                ]);
                let ask = Ask::new(Method::POST, path(["apps", &app, "templates", "preview"]));
                let shown = local.ask(Ask { body, names: NAMES, ..ask }).await?;
                out.say(&shown, &preview(&shown)?)?;
            }
            Self::Check { template: TemplateArg { name, app }, data, all, topic } => {
                let to = if all { json!({"all": true}) } else { json!({"topic": topic}) };
                let body = given([("template", name.into()), ("data", data.value()?), ("to", to)]);
                let ask = Ask::new(Method::POST, path(["apps", &app, "templates", "check"]));
                let checked = local.ask(Ask { body, names: NAMES, ..ask }).await?;
                out.say(&checked, &check(&checked))?;
            }
        }
        Ok(())
    }
}

const COLUMNS: &[TableColumn] =
    &[("TEMPLATE", text, "/name"), ("CHANGED", time, "/changed_at"), ("CREATED", time, "/created_at")];

/// The members that are given.
fn given<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(members.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.to_owned(), v)).collect())
}

fn preview(shown: &Value) -> anyhow::Result<String> {
    let mut told = Vec::new();
    for variant in shown["variants"].as_array().into_iter().flatten() {
        let chosen = if variant["locale"] == shown["locale"] { ", which they would be sent" } else { "" };
        let language = variant["locale"].as_str().unwrap_or("in its own language");
        told.push(format!("{language}{chosen}, {} octets:", text(variant, "/octets")));
        if !variant["content"].is_null() {
            told.push(serde_json::to_string_pretty(&variant["content"])?);
        }
        told.extend(faults(&variant["faults"]));
    }
    Ok(told.join("\n"))
}

fn check(checked: &Value) -> String {
    let n = |name: &str| text(checked, &format!("/{name}"));
    let rest = if checked["done"] == true { "all of them" } else { "there are more" };
    let sums = format!(
        "tried on {} ({rest}): {} cannot be filled in, {} too long",
        n("checked"),
        n("unrenderable"),
        n("too_long")
    );
    std::iter::once(sums).chain(faults(&checked["failures"])).collect::<Vec<_>>().join("\n")
}

fn faults(faults: &Value) -> impl Iterator<Item = String> {
    let line = |fault: &Value| {
        let whom = fault["subscription"].as_str().map(|id| format!("{id} ")).unwrap_or_default();
        format!("  {whom}{}: {}", text(fault, "/pointer"), text(fault, "/detail"))
    };
    faults.as_array().into_iter().flatten().map(line)
}
