//! `bellwire app identity-key`: what a site's backend signs user tokens with.

use std::path::PathBuf;

use axum::http::Method;
use clap::builder::NonEmptyStringValueParser;
use clap::{Subcommand, ValueEnum};
use serde_json::json;

use super::local::{Ask, Local, path};
use super::output::{Output, TableColumn, text, time};
use super::refusal::ArgumentNames;
use super::send::read;

const NAMES: &ArgumentNames = &[
    ("/name", "--name"),
    ("/form", "--form"),
    ("/public_key", "--public-key"),
    ("identity_key", "KEY"),
    ("app", "APP"),
];

/// Forms of identity proof that a backend can create with a key.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(super) enum ProofFormArg {
    /// Signed JWTs, which expire.
    #[default]
    Jwt,
    /// The plain HMAC-SHA-256 of the user id, which holds until the key is deleted.
    Hmac,
}

#[derive(Debug, Subcommand)]
pub(super) enum IdentityKey {
    /// Make a secret that your backend signs with, printed once and for all; or take a public key of your backend's pair.
    #[command(after_help = "Examples:
  SECRET=$(bellwire app identity-key create shop --name backend)
  SECRET=$(bellwire app identity-key create shop --name backend --form hmac)
  bellwire app identity-key create shop --name backend --public-key public.pem")]
    Create {
        /// The app's short name or id.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        app: String,
        /// Display name.
        #[arg(long)]
        name: String,
        /// Form of proof that your backend creates with the key. The key is not valid for the other form.
        #[arg(long, value_enum, default_value_t)]
        form: ProofFormArg,
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
    /// Delete a key at once and for good. Proofs made with it are no longer valid.
    Delete {
        /// The app's short name or id.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        app: String,
        /// Id of the key, as `bellwire app identity-key list` shows it.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        key: String,
    },
}

impl IdentityKey {
    pub(super) async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        let of = |app: &str| path(["apps", app, "identity-keys"]);
        match self {
            Self::Create { app, name, form, public_key } => {
                let form = form.to_possible_value().map(|value| value.get_name().to_owned());
                let mut body = json!({"name": name, "form": form});
                if let Some(file) = public_key {
                    body["algorithm"] = "ES256".into();
                    body["public_key"] = String::from_utf8_lossy(&read(&file)?).into();
                }
                let key = local.ask(Ask { body, names: NAMES, ..Ask::new(Method::POST, of(&app)) }).await?;
                let made = if key["secret"].is_string() { "/secret" } else { "/id" };
                out.say(&key, &text(&key, made))?;
                if made == "/secret" {
                    out.note(&format!("Made {}. Keep the secret: it is shown only now.", text(&key, "/id")));
                }
            }
            Self::List { app } => out.table(COLUMNS, &local.get(of(&app)).await?)?,
            Self::Delete { app, key } => {
                let at = path(["apps", &app, "identity-keys", &key]);
                local.ask(Ask { names: NAMES, ..Ask::new(Method::DELETE, at) }).await?;
                out.say(&json!({"id": key, "deleted": true}), &format!("{key} is forgotten."))?;
            }
        }
        Ok(())
    }
}

const COLUMNS: &[TableColumn] = &[
    ("ID", text, "/id"),
    ("ALGORITHM", text, "/algorithm"),
    ("FORM", text, "/form"),
    ("CREATED", time, "/created_at"),
    ("NAME", text, "/name"),
];
