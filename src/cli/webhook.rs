//! `bellwire webhook`: who is told over HTTP of what happens.

use axum::http::Method;
use chrono::{DateTime, Utc};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::arguments::AppFlag;
use super::key::moment;
use super::local::{Ask, Local, path};
use super::output::{Output, TableColumn, fields_of, table_of, text, time};
use super::refusal::ArgumentNames;

const NAMES: &ArgumentNames = &[
    ("/name", "--name"),
    ("/url", "--url"),
    ("/events", "--event"),
    ("/max_events", "--max-events"),
    ("/policy", "--policy"),
    ("/overlap_hours", "--overlap-hours"),
    ("/since", "--since"),
    ("/webhook_delivery", "--delivery"),
    ("webhook", "WEBHOOK"),
    ("webhook_delivery", "DELIVERY"),
    ("state", "--state"),
    ("limit", "--limit"),
    ("app", "--app"),
];

#[derive(Debug, Subcommand)]
pub(super) enum Webhook {
    /// Make a webhook. Its secret goes to standard output, now and never again.
    #[command(after_help = "Example:
  bellwire webhook create --app shop --name CRM --url https://hooks.shop.example/bellwire --event delivery.gone,delivery.clicked")]
    Create {
        #[command(flatten)]
        app: AppFlag,
        #[command(flatten)]
        says: Says,
    },
    /// List an app's webhooks.
    List(AppFlag),
    /// Show a webhook.
    Show(WebhookArg),
    /// Change a webhook, enable or disable it.
    #[command(after_help = "Example:\n  bellwire webhook change wh_0198… --app shop --enable")]
    Change {
        #[command(flatten)]
        webhook: WebhookArg,
        #[command(flatten)]
        says: Says,
        /// Enable the webhook: it receives events from now on.
        #[arg(long, conflicts_with = "disable")]
        enable: bool,
        /// Disable the webhook: it receives no events.
        #[arg(long)]
        disable: bool,
    },
    /// Remove a webhook, with all that waits for it.
    Delete(WebhookArg),
    /// Give a webhook a new secret, which goes to standard output; the one until now signs beside it for a while.
    Rotate {
        #[command(flatten)]
        webhook: WebhookArg,
        /// For how many hours, up to 168.
        #[arg(long, default_value_t = 24)]
        overlap_hours: i64,
    },
    /// Send a webhook's receiver an event that tries it out.
    Test(WebhookArg),
    /// List the newest requests to a webhook's receiver, or show one with its tries.
    Deliveries {
        #[command(flatten)]
        webhook: WebhookArg,
        /// Only this request.
        #[arg(value_name = "DELIVERY", value_parser = NonEmptyStringValueParser::new())]
        delivery: Option<String>,
        /// Only those that are pending, delivered or failed.
        #[arg(long, value_parser = ["pending", "delivered", "failed"])]
        state: Option<String>,
        /// Maximum number of requests, up to 250.
        #[arg(long, default_value_t = 20)]
        limit: u16,
    },
    /// Make requests again that had failed.
    #[command(after_help = "Example:\n  bellwire webhook replay wh_0198… --app shop --since 2030-01-31T08:30:00Z")]
    Replay {
        #[command(flatten)]
        webhook: WebhookArg,
        #[command(flatten)]
        which: ResendArgs,
    },
}

#[derive(Debug, Args)]
pub(super) struct WebhookArg {
    /// Id of the webhook
    #[arg(value_name = "WEBHOOK", value_parser = NonEmptyStringValueParser::new())]
    id: String,
    #[command(flatten)]
    app: AppFlag,
}

impl WebhookArg {
    /// API path of the webhook, or of a resource below it.
    fn path<const N: usize>(&self, more: [&str; N]) -> String {
        path(["apps", &self.app, "webhooks", &self.id]) + &path(more)["/v1".len()..]
    }
}

/// Settings of a webhook.
#[derive(Debug, Args)]
pub(super) struct Says {
    /// Display name.
    #[arg(long)]
    name: Option<String>,
    /// URL of the receiver.
    #[arg(long)]
    url: Option<String>,
    /// Event types to send, such as delivery.gone; several separated by commas.
    #[arg(long = "event", value_name = "EVENT", value_delimiter = ',')]
    events: Vec<String>,
    /// Maximum number of events per request, up to 500.
    #[arg(long)]
    max_events: Option<i32>,
    /// Retry policy: a delivery policy as JSON.
    #[arg(long, value_name = "JSON", value_parser = |text: &str| serde_json::from_str::<Value>(text))]
    policy: Option<Value>,
}

impl Says {
    fn body(self) -> Map<String, Value> {
        let Self { name, url, events, max_events, policy } = self;
        let events = (!events.is_empty()).then_some(events);
        let said = json!({"name": name, "url": url, "events": events, "max_events": max_events, "policy": policy});
        let Value::Object(said) = said else { unreachable!("it is an object") };
        said.into_iter().filter(|(_, value)| !value.is_null()).collect()
    }
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct ResendArgs {
    /// All that were made since then.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<DateTime<Utc>>,
    /// Only this request.
    #[arg(long, value_name = "DELIVERY")]
    delivery: Option<String>,
}

impl Webhook {
    pub(super) async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        let ask = |method: Method, at: String| Ask { names: NAMES, ..Ask::new(method, at) };
        match self {
            Self::Create { app, says } => {
                let made = Ask { body: says.body().into(), ..ask(Method::POST, path(["apps", &app, "webhooks"])) };
                let made = local.ask(made).await?;
                out.say(&made, &text(&made, "/secret"))?;
                out.note(&format!("Made {}. Keep the secret: it is shown only now.", text(&made, "/id")));
            }
            Self::List(app) => {
                out.table(COLUMNS, &local.ask(ask(Method::GET, path(["apps", &app, "webhooks"]))).await?)?;
            }
            Self::Show(webhook) => out.fields(FIELDS, &local.ask(ask(Method::GET, webhook.path([]))).await?)?,
            Self::Change { webhook, says, enable, disable } => {
                let mut body = says.body();
                if enable || disable {
                    body.insert("enabled".to_owned(), enable.into());
                }
                let changed = Ask { body: body.into(), ..ask(Method::PATCH, webhook.path([])) };
                out.fields(FIELDS, &local.ask(changed).await?)?;
            }
            Self::Delete(webhook) => {
                local.ask(ask(Method::DELETE, webhook.path([]))).await?;
                out.say(&json!({"id": webhook.id, "deleted": true}), &format!("{} is gone.", webhook.id))?;
            }
            Self::Rotate { webhook, overlap_hours } => {
                let body = json!({"overlap_hours": overlap_hours});
                let rotated = Ask { body, ..ask(Method::POST, webhook.path(["rotate-secret"])) };
                say_rotated(&local.ask(rotated).await?, out)?;
            }
            Self::Test(webhook) => {
                let sent = local.ask(ask(Method::POST, webhook.path(["test"]))).await?;
                out.say(&sent, &text(&sent, "/id"))?;
                let (id, app) = (&webhook.id, &*webhook.app);
                out.note(&format!("It is being sent. The result: `bellwire webhook deliveries {id} --app {app}`."));
            }
            Self::Deliveries { webhook, delivery: Some(delivery), .. } => {
                let shown = local.ask(ask(Method::GET, webhook.path(["deliveries", &delivery]))).await?;
                out.say(&shown, &story(&shown))?;
            }
            Self::Deliveries { webhook, delivery: None, state, limit } => {
                let state = state.map(|state| format!("&state={state}")).unwrap_or_default();
                let at = format!("{}?limit={limit}{state}", webhook.path(["deliveries"]));
                say_page(&local.ask(ask(Method::GET, at)).await?, out)?;
            }
            Self::Replay { webhook, which: ResendArgs { since, delivery } } => {
                let body = json!({"since": since, "webhook_delivery": delivery});
                let done = Ask { body, ..ask(Method::POST, webhook.path(["replay"])) };
                let done = local.ask(done).await?;
                out.say(&done, &format!("{} will be sent again.", text(&done, "/replayed")))?;
            }
        }
        Ok(())
    }
}

fn say_rotated(rotated: &Value, out: Output) -> anyhow::Result<()> {
    out.say(rotated, &text(rotated, "/secret"))?;
    let until = time(rotated, "/former_secret_until");
    out.note(&format!("Keep the secret: it is shown only now. The former one signs beside it until {until}."));
    Ok(())
}

fn say_page(page: &Value, out: Output) -> anyhow::Result<()> {
    out.table(DELIVERIES, page)?;
    if page["done"] == false {
        out.note("There may be more.");
    }
    Ok(())
}

const FIELDS: &[TableColumn] = &[
    ("webhook", text, "/id"),
    ("name", text, "/name"),
    ("url", text, "/url"),
    ("events", text, "/events"),
    ("in a request", text, "/max_events"),
    ("policy", text, "/policy"),
    ("state", text, "/state"),
    ("disabled since it is", text, "/disabled_why"),
    ("breaker", text, "/breaker"),
    ("failing since", time, "/failing_since"),
    ("pending", text, "/pending"),
    ("failed", text, "/failed"),
    ("dropped events", text, "/dropped_events"),
    ("former secret until", time, "/former_secret_until"),
    ("made by", text, "/created_by"),
    ("last changed by", text, "/changed_by"),
];

const COLUMNS: &[TableColumn] = &[
    ("ID", text, "/id"),
    ("STATE", text, "/state"),
    ("BREAKER", text, "/breaker"),
    ("PENDING", text, "/pending"),
    ("FAILED", text, "/failed"),
    ("MADE BY", text, "/created_by"),
    ("NAME", text, "/name"),
    ("URL", text, "/url"),
];

const DELIVERIES: &[TableColumn] = &[
    ("ID", text, "/id"),
    ("STATE", text, "/state"),
    ("EVENTS", text, "/events"),
    ("TRIES", text, "/attempts"),
    ("MADE", time, "/created_at"),
    ("NEXT TRY", time, "/due_at"),
];

const DELIVERY: &[TableColumn] =
    &[("delivery", text, "/id"), ("state", text, "/state"), ("events", text, "/events"), ("next try", time, "/due_at")];

const TRIES: &[TableColumn] = &[
    ("TRY", text, "/number"),
    ("AT", time, "/at"),
    ("STATUS", text, "/http_status"),
    ("MS", text, "/took_ms"),
    ("REASON", text, "/reason"),
];

fn story(delivery: &Value) -> String {
    let tries = delivery["tries"].as_array().into_iter().flatten();
    format!("{}\n\n{}", fields_of(DELIVERY, delivery), table_of(TRIES, tries))
}
