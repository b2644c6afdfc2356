//! `bellwire admin`: the people who sign in to this server.

use anyhow::Context;
use axum::http::Method;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::local::{Ask, DataDirState, Local, path, rows};
use super::output::{Output, TableColumn, text, time};
use super::refusal::ArgumentNames;
use bellwire_core::role::Role;

const NAMES: &ArgumentNames = &[("/email", "EMAIL"), ("/roles", "--app"), ("teammate", "EMAIL")];

#[derive(Debug, Subcommand)]
pub(super) enum Team {
    /// Invite a teammate: print a one-time sign-up link that is valid for three days. Send the link yourself.
    #[command(after_help = "Examples:
  bellwire admin invite ann@example.com --role admin
  bellwire admin invite ben@example.com --role sender --app shop")]
    Invite {
        /// Email address, used to sign in. Bellwire sends no email.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        email: String,
        #[command(flatten)]
        roles: Roles,
    },
    /// List who may sign in, and what they may do.
    #[command(after_help = "Example:\n  bellwire admin list")]
    List,
    /// Set a teammate's roles, replacing all earlier roles.
    #[command(after_help = "Example:\n  bellwire admin change ben@example.com --role viewer")]
    Change {
        #[command(flatten)]
        teammate: Teammate,
        #[command(flatten)]
        roles: Roles,
    },
    /// Reset a teammate's account: delete the password, end the sessions and print a new one-time link. A registered passkey stays
    /// required.
    #[command(after_help = "Example:\n  bellwire admin reset ann@example.com")]
    Reset(Teammate),
    /// Delete all passkeys of a teammate who lost them, and end the sessions. The password stays.
    #[command(after_help = "Example:\n  bellwire admin reset-passkeys ann@example.com")]
    ResetPasskeys(Teammate),
    /// Disable a teammate's account: end the sessions and block sign-in.
    #[command(after_help = "Example:\n  bellwire admin disable ben@example.com")]
    Disable(Teammate),
    /// Enable a disabled account again.
    #[command(after_help = "Example:\n  bellwire admin enable ben@example.com")]
    Enable(Teammate),
    /// Unlink a teammate's account at the OpenID provider and end the sessions. The next account with the same address is linked instead.
    #[command(after_help = "Example:\n  bellwire admin unlink ben@example.com")]
    Unlink(Teammate),
    /// Delete a teammate for good. API keys that the teammate created stay valid.
    #[command(after_help = "Example:\n  bellwire admin remove ben@example.com")]
    Remove(Teammate),
}

#[derive(Debug, Args)]
pub(super) struct Teammate {
    /// Email address or id, as `bellwire admin list` shows them.
    #[arg(value_name = "EMAIL", value_parser = NonEmptyStringValueParser::new())]
    teammate: String,
}

/// Roles, and the apps they apply to.
#[derive(Debug, Args)]
pub(super) struct Roles {
    /// Role to grant; each role includes the lower ones.
    #[arg(long, value_enum)]
    role: Role,
    /// On this app: its short name or id; repeatable, or separated by commas. Without it: on all apps, and on the server itself.
    #[arg(long = "app", value_name = "APP", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    apps: Vec<String>,
}

impl Roles {
    fn json(&self) -> Value {
        let role = self.role;
        match self.apps.as_slice() {
            [] => json!([{"role": role}]),
            apps => apps.iter().map(|app| json!({"role": role, "app": app})).collect(),
        }
    }
}

impl Team {
    /// Whether it may come first.
    pub(super) fn beginning(&self) -> DataDirState {
        if let Self::Invite { .. } = self { DataDirState::Here } else { DataDirState::Before }
    }

    pub(super) async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        match self {
            Self::Invite { email, roles } => {
                let body = json!({"email": email, "roles": roles.json()});
                let ask = Ask { body, names: NAMES, ..Ask::new(Method::POST, path(["team"])) };
                say_link(local, local.ask(ask).await?, out)?;
            }
            Self::List => out.table(COLUMNS, &local.list(&path(["team"])).await?)?,
            Self::Change { teammate, roles } => {
                let changed = change(local, &teammate, json!({"roles": roles.json()})).await?;
                out.say(&changed, &format!("{} is {}.", text(&changed, "/email"), in_words(&changed)))?;
            }
            Self::Reset(teammate) => {
                let at = format!("{}/reset", find(local, &teammate).await?);
                say_link(local, local.ask(Ask { names: NAMES, ..Ask::new(Method::POST, at) }).await?, out)?;
            }
            Self::ResetPasskeys(teammate) => {
                let at = format!("{}/passkeys", find(local, &teammate).await?);
                let reset = local.ask(Ask { names: NAMES, ..Ask::new(Method::DELETE, at) }).await?;
                let (who, removed) = (teammate.teammate, text(&reset, "/removed"));
                out.say(&reset, &format!("{who} no longer has a passkey; removed: {removed}."))?;
            }
            Self::Disable(teammate) => {
                let changed = change(local, &teammate, json!({"disabled": true})).await?;
                out.say(&changed, &format!("{} is shut out.", text(&changed, "/email")))?;
            }
            Self::Enable(teammate) => {
                let changed = change(local, &teammate, json!({"disabled": false})).await?;
                out.say(&changed, &format!("{} may sign in.", text(&changed, "/email")))?;
            }
            Self::Unlink(teammate) => {
                let at = format!("{}/oidc", find(local, &teammate).await?);
                local.ask(Ask { names: NAMES, ..Ask::new(Method::DELETE, at) }).await?;
                let unlinked = teammate.teammate;
                let text = format!("{unlinked} has no account at the OpenID provider that is linked.");
                out.say(&json!({"unlinked": unlinked}), &text)?;
            }
            Self::Remove(teammate) => {
                let at = find(local, &teammate).await?;
                local.ask(Ask { names: NAMES, ..Ask::new(Method::DELETE, at) }).await?;
                let removed = teammate.teammate;
                out.say(&json!({"removed": removed}), &format!("{removed} is removed."))?;
            }
        }
        Ok(())
    }
}

/// Finds a teammate by address or id and returns the API path.
async fn find(local: &Local, Teammate { teammate }: &Teammate) -> anyhow::Result<String> {
    let team = local.list(&path(["team"])).await?;
    let email = teammate.trim().to_lowercase();
    let found = rows(&team).find(|row| row["email"] == *email || row["id"] == *teammate);
    let id = found.and_then(|row| row["id"].as_str());
    let id = id.with_context(|| format!("teammate {teammate} does not exist; `bellwire admin list` shows all"))?;
    Ok(path(["team", id]))
}

async fn change(local: &Local, teammate: &Teammate, body: Value) -> anyhow::Result<Value> {
    let at = find(local, teammate).await?;
    local.ask(Ask { body, names: NAMES, ..Ask::new(Method::PATCH, at) }).await
}

/// Prints a one-time link, and when it ends.
fn say_link(local: &Local, mut invited: Value, out: Output) -> anyhow::Result<()> {
    let url = format!("{}{}", local.server, text(&invited, "/link/path"));
    let (email, ends) = (text(&invited, "/email"), time(&invited, "/link/expires_at"));
    invited["link"]["url"] = url.clone().into();
    out.say(&invited, &url)?;
    out.note(&format!("Send this link to {email}: it lets them in once, until {ends}, and is shown only now."));
    Ok(())
}

/// The roles of a teammate, in words.
fn in_words(teammate: &Value) -> String {
    let role = |grant: &Value| match grant["app"].as_str() {
        Some(app) => format!("{} of {app}", text(grant, "/role")),
        None => format!("{} of everything", text(grant, "/role")),
    };
    let roles: Vec<String> = teammate["roles"].as_array().into_iter().flatten().map(role).collect();
    if roles.is_empty() { "without a role".to_owned() } else { roles.join(", ") }
}

const COLUMNS: &[TableColumn] = &[
    ("ID", text, "/id"),
    ("EMAIL", text, "/email"),
    ("ROLES", |teammate, _| in_words(teammate), ""),
    ("PASSWORD", text, "/has_password"),
    ("PASSKEYS", text, "/passkeys"),
    ("LINK UNTIL", time, "/link_expires_at"),
    ("OPENID SINCE", time, "/oidc_linked_at"),
    ("SHUT OUT", time, "/disabled_at"),
];
