//! `bellwire admin`: the people who sign in to this server.

use anyhow::Context;
use axum::http::Method;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::local::{Ask, Beginning, Local, path, rows};
use super::output::{Output, Shown, text, time};
use super::refusal::Names;
use bellwire_core::role::Role;

const NAMES: &Names = &[("/email", "EMAIL"), ("/roles", "--app"), ("teammate", "EMAIL")];

/// The verbs.
#[derive(Debug, Subcommand)]
pub(super) enum Team {
    /// Invite somebody: print a one-time link that lets them in and works for three days. Send it to them.
    #[command(after_help = "Examples:
  bellwire admin invite ann@example.com --role admin
  bellwire admin invite ben@example.com --role sender --app shop")]
    Invite {
        /// Their address, by which they sign in. Nothing is sent there.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        email: String,
        #[command(flatten)]
        roles: Roles,
    },
    /// List who may sign in, and what they may do.
    #[command(after_help = "Example:\n  bellwire admin list")]
    List,
    /// Set what somebody may do, in place of all their roles.
    #[command(after_help = "Example:\n  bellwire admin change ben@example.com --role viewer")]
    Change {
        #[command(flatten)]
        teammate: Teammate,
        #[command(flatten)]
        roles: Roles,
    },
    /// Let somebody begin anew: forget their password, end their sessions, print a new one-time link. It asks for a passkey if
    /// they have one.
    #[command(after_help = "Example:\n  bellwire admin reset ann@example.com")]
    Reset(Teammate),
    /// Let somebody in without a passkey who has lost theirs: remove all of them, end their sessions. The password stays.
    #[command(after_help = "Example:\n  bellwire admin reset-passkeys ann@example.com")]
    ResetPasskeys(Teammate),
    /// Shut somebody out: end their sessions and let them sign in no more.
    #[command(after_help = "Example:\n  bellwire admin disable ben@example.com")]
    Disable(Teammate),
    /// Let somebody sign in again who was shut out.
    #[command(after_help = "Example:\n  bellwire admin enable ben@example.com")]
    Enable(Teammate),
    /// Unlink somebody's account at the OpenID provider and end their sessions: the next account with their address takes its place.
    #[command(after_help = "Example:\n  bellwire admin unlink ben@example.com")]
    Unlink(Teammate),
    /// Remove somebody for good. The API keys that they made stay valid.
    #[command(after_help = "Example:\n  bellwire admin remove ben@example.com")]
    Remove(Teammate),
}

/// Whom.
#[derive(Debug, Args)]
pub(super) struct Teammate {
    /// Their address or id, as `bellwire admin list` shows them.
    #[arg(value_name = "EMAIL", value_parser = NonEmptyStringValueParser::new())]
    teammate: String,
}

/// What somebody may do, and where.
#[derive(Debug, Args)]
pub(super) struct Roles {
    /// What they may do; each role includes those before it.
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
    pub(super) fn beginning(&self) -> Beginning {
        if let Self::Invite { .. } = self { Beginning::Here } else { Beginning::Before }
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
                out.say(&reset, &format!("{who} has no passkey any more; removed: {removed}."))?;
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

/// Where a teammate is found, by address or id.
async fn find(local: &Local, Teammate { teammate }: &Teammate) -> anyhow::Result<String> {
    let team = local.list(&path(["team"])).await?;
    let email = teammate.trim().to_lowercase();
    let found = rows(&team).find(|row| row["email"] == *email || row["id"] == *teammate);
    let id = found.and_then(|row| row["id"].as_str());
    let id = id.with_context(|| format!("nobody here is {teammate}; `bellwire admin list` shows who is"))?;
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

const COLUMNS: &[Shown] = &[
    ("ID", text, "/id"),
    ("EMAIL", text, "/email"),
    ("ROLES", |teammate, _| in_words(teammate), ""),
    ("PASSWORD", text, "/has_password"),
    ("PASSKEYS", text, "/passkeys"),
    ("LINK UNTIL", time, "/link_expires_at"),
    ("OPENID SINCE", time, "/oidc_linked_at"),
    ("SHUT OUT", time, "/disabled_at"),
];
