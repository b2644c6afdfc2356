use axum::http::Method;
use chrono::{DateTime, Utc};
use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use serde_json::{Map, Value, json};

use super::identity::IdentityKey;
use super::key::moment;
use super::local::{Ask, DataDirState, Local, path};
use super::output::{Output, TableColumn, fields_of, text, time};
use super::refusal::ArgumentNames;

pub(super) const NAMES: &ArgumentNames = &[
    ("/slug", "SLUG"),
    ("/name", "--name"),
    ("/origins", "--origin"),
    ("/subject", "--subject"),
    ("/topics", "--topic"),
    ("/browsers_may", "--browsers-may"),
    ("/weight", "--weight"),
    ("app", "APP"),
    ("confirm", "--yes-delete"),
];

/// The same where origins are added.
const CHANGE_NAMES: &ArgumentNames = &[
    ("/name", "--name"),
    ("/add_origins", "--add-origin"),
    ("/remove_origins", "--remove-origin"),
    ("/browsers_may", "--browsers-may"),
    ("/weight", "--weight"),
    ("app", "APP"),
];

const RESTORE_NAMES: &ArgumentNames =
    &[("/lane", "--lane"), ("/since", "--since"), ("/until", "--until"), ("app", "APP")];

/// Value of `--browsers-may` for an empty set of rights.
const NOTHING: &str = "nothing";

#[derive(Debug, Subcommand)]
pub(super) enum App {
    /// Make an app with its first VAPID key.
    #[command(after_help = "Example:
  bellwire app create shop --subject mailto:push@example.com --origin https://shop.example.com --topic news")]
    Create {
        /// Slug: lower-case letters, digits and hyphens.
        slug: String,
        /// Contact for push services, `mailto:` or `https:` [the `sub` claim of VAPID].
        #[arg(long, value_name = "CONTACT")]
        subject: String,
        /// Display name; the slug by default.
        #[arg(long)]
        name: Option<String>,
        /// An origin that browsers may call from, such as https://shop.example.com; repeatable.
        #[arg(long = "origin", value_name = "ORIGIN")]
        origins: Vec<String>,
        /// Let in endpoints on hosts of no known push service.
        #[arg(long)]
        allow_other_gateways: bool,
        /// A topic to begin with, which anyone may join; repeatable.
        #[arg(long = "topic", value_name = "TOPIC")]
        topics: Vec<String>,
        /// Rights of browsers beyond joining and leaving topics: create_topics, set_tags, set_attributes; repeatable, or separated by
        /// commas.
        #[arg(long, value_name = "RIGHT", value_delimiter = ',')]
        browsers_may: Vec<String>,
    },
    /// List all apps.
    List,
    /// Show an app.
    Show {
        /// Slug or id of the app.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        app: String,
    },
    /// Change an app: what is not given stays.
    #[command(after_help = "Example:
  bellwire app change shop --add-origin https://www.shop.example.com --remove-origin http://localhost:3000")]
    Change {
        /// Slug or id of the app.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        app: String,
        /// New display name.
        #[arg(long)]
        name: Option<String>,
        /// One more origin that browsers may call from; repeatable.
        #[arg(long = "add-origin", value_name = "ORIGIN")]
        added: Vec<String>,
        /// Origin to remove: browsers there may no longer call the API; repeatable.
        #[arg(long = "remove-origin", value_name = "ORIGIN")]
        removed: Vec<String>,
        /// Whether endpoints on hosts of no known push service are let in.
        #[arg(long, value_name = "BOOL")]
        allow_other_gateways: Option<bool>,
        /// All that browsers may do beyond joining and leaving topics: create_topics, set_tags, set_attributes, or nothing;
        /// repeatable, or separated by commas.
        #[arg(long, value_name = "RIGHT", value_delimiter = ',')]
        browsers_may: Vec<String>,
        /// Share of the send capacity while several apps have deliveries waiting, relative to an app of weight 1: 1 to 100.
        #[arg(long, value_name = "NUMBER")]
        weight: Option<i64>,
    },
    /// Let an app send again that the runaway guard holds. What it sent so far counts no longer.
    Release {
        /// Slug or id of the app.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        app: String,
    },
    /// Make subscriptions active again that their push service called gone. Those that were unsubscribed, erased or replaced stay so.
    #[command(after_help = "Examples:
  bellwire app restore-pruned shop --lane 3 --since 2030-01-31T08:00:00Z --until 2030-01-31T08:30:00Z --dry-run
  bellwire app restore-pruned shop --since 2030-01-31T08:00:00Z")]
    RestorePruned {
        /// Slug or id of the app.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        app: String,
        /// Only those of this lane, by its number; all lanes by default.
        #[arg(long, value_name = "NUMBER")]
        lane: Option<i32>,
        /// Time of the first prune: a day or a time in UTC, such as 2030-01-31 or 2030-01-31T08:30:00Z.
        #[arg(long, value_name = "TIME", value_parser = moment)]
        since: DateTime<Utc>,
        /// Time of the last prune; now by default.
        #[arg(long, value_name = "TIME", value_parser = moment)]
        until: Option<DateTime<Utc>>,
        /// Count them, and restore none.
        #[arg(long)]
        dry_run: bool,
    },
    /// Delete an app for good, with its subscriptions, messages and keys. Sending stops at once. A running server deletes the rows.
    #[command(after_help = "Example:
  bellwire app delete shop --yes-delete shop")]
    Delete {
        /// Slug or id of the app.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        app: String,
        /// The slug once more, as confirmation: deletion cannot be undone.
        #[arg(long, value_name = "SLUG", value_parser = NonEmptyStringValueParser::new())]
        yes_delete: String,
    },
    /// Manage what the site's backend signs user tokens with.
    IdentityKey {
        #[command(subcommand)]
        verb: IdentityKey,
    },
}

impl App {
    /// Whether it may come first.
    pub(super) fn beginning(&self) -> DataDirState {
        if matches!(self, Self::Create { .. }) { DataDirState::Here } else { DataDirState::Before }
    }

    pub(super) async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        match self {
            Self::Create { slug, subject, name, origins, allow_other_gateways, topics, browsers_may } => {
                let name = name.unwrap_or_else(|| slug.clone());
                let body = json!({
                    "slug": slug, "name": name, "subject": subject, "origins": origins,
                    "allow_other_gateways": allow_other_gateways, "topics": topics,
                    "browsers_may": rights(browsers_may),
                });
                let made = local.ask(Ask { body, names: NAMES, ..Ask::new(Method::POST, path(["apps"])) }).await?;
                let key = fields_of(&[("application server key", text, "/vapid_key/public_key")], &made);
                out.say(&made, &format!("{}\n{key}", fields_of(FIELDS, &made)))?;
                out.note(&format!(
                    "Pages subscribe with that key. A key for the app's servers:\n  \
                     bellwire key create --app {slug} --scope send,read --name server"
                ));
            }
            Self::List => out.table(COLUMNS, &local.list(&path(["apps"])).await?)?,
            Self::Show { app } => out.fields(FIELDS, &local.get(path(["apps", &app])).await?)?,
            Self::Change { app, name, added, removed, allow_other_gateways, browsers_may, weight } => {
                let mut body = Map::new();
                body.extend(name.map(|name| ("name".to_owned(), name.into())));
                body.insert("add_origins".to_owned(), added.into());
                body.insert("remove_origins".to_owned(), removed.into());
                body.extend(allow_other_gateways.map(|let_in| ("allow_other_gateways".to_owned(), let_in.into())));
                let all = (!browsers_may.is_empty()).then(|| rights(browsers_may));
                body.extend(all.map(|rights| ("browsers_may".to_owned(), rights.into())));
                body.extend(weight.map(|weight| ("weight".to_owned(), weight.into())));
                let ask = Ask::new(Method::PATCH, path(["apps", &app]));
                let app = local.ask(Ask { body: body.into(), names: CHANGE_NAMES, ..ask }).await?;
                out.fields(FIELDS, &app)?;
            }
            Self::Release { app } => {
                let ask = Ask::new(Method::POST, path(["apps", &app, "release"]));
                let guard = local.ask(Ask { names: NAMES, ..ask }).await?;
                let limit = text(&guard, "/limit");
                let told = format!("{app} is held no more: it may send {limit} deliveries in a quarter of an hour.");
                out.say(&guard, &told)?;
            }
            Self::RestorePruned { app, lane, since, until, dry_run } => {
                let body = json!({"lane": lane, "since": since, "until": until, "dry_run": dry_run});
                restore_pruned(local, out, &app, body).await?;
            }
            Self::Delete { app, yes_delete } => {
                let confirm: String = url::form_urlencoded::byte_serialize(yes_delete.as_bytes()).collect();
                let place = format!("{}?confirm={confirm}", path(["apps", &app]));
                out.fields(FIELDS, &local.ask(Ask { names: NAMES, ..Ask::new(Method::DELETE, place) }).await?)?;
                out.note("The app no longer sends. The maintenance of a running server deletes its data.");
            }
            Self::IdentityKey { verb } => verb.run(local, out).await?,
        }
        Ok(())
    }
}

/// Restores until none are left.
async fn restore_pruned(local: &Local, out: Output, app: &str, body: Value) -> anyhow::Result<()> {
    let mut restored = 0;
    loop {
        let ask = Ask::new(Method::POST, path(["apps", app, "subscriptions", "restore"]));
        let mut done = local.ask(Ask { body: body.clone(), names: RESTORE_NAMES, ..ask }).await?;
        restored += done["restored"].as_u64().unwrap_or(0);
        if done["more"] != true {
            done["restored"] = restored.into();
            let would = if done["dry_run"] == true { "would be" } else { "are" };
            return Ok(out.say(&done, &format!("{restored} subscriptions {would} active again."))?);
        }
        out.note(&format!("{restored} subscriptions are active again."));
    }
}

fn rights(named: Vec<String>) -> Vec<String> {
    if named == [NOTHING] { Vec::new() } else { named }
}

const FIELDS: &[TableColumn] = &[
    ("app", text, "/slug"),
    ("id", text, "/id"),
    ("name", text, "/name"),
    ("origins", text, "/origins"),
    ("lets other gateways in", text, "/allow_other_gateways"),
    ("browsers may", text, "/browsers_may"),
    ("weight", text, "/weight"),
    ("created", time, "/created_at"),
    ("being deleted since", time, "/deleting_at"),
];

const COLUMNS: &[TableColumn] =
    &[("APP", text, "/slug"), ("ID", text, "/id"), ("CREATED", time, "/created_at"), ("NAME", text, "/name")];
