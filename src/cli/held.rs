//! `bellwire held`: manages what a restore has held back.

use anyhow::{Context as _, bail};
use axum::http::Method;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sqlx::PgPool;

use super::client::{ApiRequest, Client, DataDirState, path};
use super::output::{Output, table, text, time};
use super::settings::FewSettings;
use bellwire_core::id::AppId;
use bellwire_store::operations::restoring::{self, HeldWork as What};

/// Maximum campaigns and messages listed.
const AT_ONCE: i64 = 200;

#[derive(Debug, Subcommand)]
enum HeldCommand {
    /// List campaigns and messages that a restore has held back, up to 200.
    List(Of),
    /// Resume all held deliveries. Deliveries that the earlier server sent after the backup are sent again. A browser drops the repeat
    /// while it remembers the id.
    Resume(Of),
    /// Cancel all of them.
    Cancel(Of),
}

#[derive(Debug, Args)]
struct Of {
    /// Only of this app: its short name or id.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    app: Option<String>,
}

/// Arguments of `bellwire held`.
#[derive(Debug, Args)]
#[group(skip)] // the verb has the same name
pub(super) struct Held {
    #[command(subcommand)]
    verb: HeldCommand,
    #[command(flatten)]
    settings: FewSettings,
}

impl Held {
    pub(super) async fn run(self, out: Output) -> anyhow::Result<()> {
        self.settings.with(DataDirState::Before, async |client| self.verb.run(client, out).await).await
    }
}

impl HeldCommand {
    async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let (of, verb) = match self {
            Self::List(of) => return list(client, of, out).await,
            Self::Resume(of) => (of, "resume"),
            Self::Cancel(of) => (of, "cancel"),
        };
        let app = app_id(client, of.app.as_deref()).await?;
        let mut turned = 0_u64;
        loop {
            let held = restoring::held(pool(client)?, app, AT_ONCE).await?;
            if held.is_empty() {
                break;
            }
            let before = turned;
            for (app, what) in held {
                turned += u64::from(turn(client, app, what, verb).await?);
            }
            if turned == before {
                bail!("the remaining messages cannot be resumed or cancelled; `bellwire held list` shows them");
            }
        }
        restoring::clear(pool(client)?).await?;
        let word = if verb == "resume" { "resumed" } else { "cancelled" };
        Ok(out.say(&json!({word: turned}), &format!("{turned} campaigns and messages were {word}."))?)
    }
}

/// Returns the database. Fails with `--server`.
fn pool(client: &Client) -> anyhow::Result<&PgPool> {
    Ok(&client.context().context("held deliveries are in the database of the server")?.pool)
}

/// Resumes or cancels one campaign or message. Returns `false` if it has already ended.
async fn turn(client: &Client, app: AppId, what: What, verb: &str) -> anyhow::Result<bool> {
    let place = place(app, what);
    client
        .ask(&ApiRequest::new(Method::POST, format!("{place}/{verb}")))
        .await
        .with_context(|| format!("{place}: cannot {verb} it"))?;
    Ok(true)
}

fn place(app: AppId, what: What) -> String {
    let app = app.to_string();
    match what {
        What::Campaign(id) => path(["apps", &app, "campaigns", &id.to_string()]),
        What::Message(id) => path(["apps", &app, "messages", &id.to_string()]),
    }
}

async fn app_id(client: &Client, app: Option<&str>) -> anyhow::Result<Option<AppId>> {
    let Some(app) = app else { return Ok(None) };
    let found = client.get(path(["apps", app])).await?;
    let id = found["id"].as_str().and_then(|id| id.parse().ok());
    Ok(Some(id.context("an app without an id")?))
}

async fn list(client: &Client, of: Of, out: Output) -> anyhow::Result<()> {
    let app = app_id(client, of.app.as_deref()).await?;
    let mut rows = Vec::new();
    for (app, what) in restoring::held(pool(client)?, app, AT_ONCE).await? {
        let mut shown = client.get(place(app, what)).await?;
        shown["app"] = app.to_string().into();
        shown["kind"] = match what {
            What::Campaign(_) => "campaign",
            What::Message(_) => "message",
        }
        .into();
        rows.push(shown);
    }
    let last = restoring::last(pool(client)?).await?;
    let row = |shown: &Value| {
        let left = ["queued", "dispatching", "retrying"]
            .iter()
            .filter_map(|count| shown["counts"][count].as_i64())
            .sum::<i64>();
        let left = if shown["counts"].is_object() { left.to_string() } else { "-".to_owned() };
        [
            text(shown, "/kind"),
            text(shown, "/id"),
            text(shown, "/app"),
            text(shown, "/tier"),
            time(shown, "/expires_at"),
            left,
        ]
    };
    let mut people = table(["KIND", "ID", "APP", "TIER", "EXPIRES", "WAITING"], rows.iter().map(row));
    if let Some(last) = last {
        people.push_str(&format!("\nThe database is as it was at {}.", last.backed_up_at.format("%Y-%m-%dT%H:%M:%SZ")));
    }
    Ok(out.say(&json!({"data": rows, "backed_up_at": last.map(|last| last.backed_up_at)}), &people)?)
}
