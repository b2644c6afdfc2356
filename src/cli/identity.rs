//! `bellwire app identity-key`: what a site's backend signs user tokens with.

use std::path::PathBuf;

use axum::http::Method;
use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use serde_json::{Value, json};

use super::local::{Ask, Local, path, rows};
use super::output::{Output, table, text, time};
use super::refusal::Names;
use super::send::read;

const NAMES: &Names = &[("/name", "--name"), ("/public_key", "--public-key"), ("identity_key", "KEY"), ("app", "APP")];

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum IdentityKey {
    /// Make a secret that your backend signs with, printed once and for all; or take a public key of your backend's pair.
    #[command(after_help = "Examples:
  SECRET=$(bellwire app identity-key create shop --name backend)
  bellwire app identity-key create shop --name backend --public-key public.pem")]
    Create {
        /// The app's short name or id.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        app: String,
        /// Its name for people.
        #[arg(long)]
        name: String,
        /// The file of a public key on P-256, PEM or a JWK; - for standard input.
        #[arg(long, value_name = "FILE")]
        public_key: Option<PathBuf>,
    },
    /// List an app's keys, without their secrets.
    List {
        /// The app's short name or id.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        app: String,
    },
    /// Forget a key at once and for good: what it signed proves nothing any more.
    Delete {
        /// The app's short name or id.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        app: String,
        /// Its id, as `bellwire app identity-key list` shows it.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        key: String,
    },
}

impl IdentityKey {
    /// Does it.
    pub async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        let of = |app: &str| path(["apps", app, "identity-keys"]);
        match self {
            Self::Create { app, name, public_key } => {
                let body = match public_key {
                    None => json!({"name": name}),
                    Some(file) => {
                        let public = String::from_utf8_lossy(&read(&file)?).into_owned();
                        json!({"name": name, "algorithm": "ES256", "public_key": public})
                    }
                };
                let key = local.ask(Ask { body, names: NAMES, ..Ask::new(Method::POST, of(&app)) }).await?;
                let made = if key["secret"].is_string() { "/secret" } else { "/id" };
                out.say(&key, &text(&key, made))?;
                if made == "/secret" {
                    out.note(&format!("Made {}. Keep the secret: it is shown only now.", text(&key, "/id")));
                }
            }
            Self::List { app } => {
                let keys = local.get(of(&app)).await?;
                out.say(&keys, &list(&keys))?;
            }
            Self::Delete { app, key } => {
                let at = path(["apps", &app, "identity-keys", &key]);
                local.ask(Ask { names: NAMES, ..Ask::new(Method::DELETE, at) }).await?;
                out.say(&json!({"id": key, "deleted": true}), &format!("{key} is forgotten."))?;
            }
        }
        Ok(())
    }
}

fn list(keys: &Value) -> String {
    let row = |key| [text(key, "/id"), text(key, "/algorithm"), time(key, "/created_at"), text(key, "/name")];
    table(["ID", "ALGORITHM", "CREATED", "NAME"], rows(keys).map(row))
}
