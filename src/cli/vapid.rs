//! `bellwire vapid`: what an app's pushes are signed with.

use std::path::{Path, PathBuf};

use anyhow::Context;
use axum::http::Method;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::arguments::AppFlag;
use super::local::{Ask, Local, path, rows};
use super::output::{Output, TableColumn, text, time};
use super::refusal::ArgumentNames;
use super::send::read;
use bellwire_core::base64url;

const NAMES: &ArgumentNames = &[
    ("/private_key", "FILE"),
    ("/public_key", "--public-key"),
    ("/subject", "the contact"),
    ("/state", "--retired"),
    ("vapid_key", "the key's id"),
];

#[derive(Debug, Subcommand)]
pub(super) enum Vapid {
    /// List an app's VAPID keys and how many subscriptions depend on each.
    List(Of),
    /// Generate a new key for new subscribers. The one before keeps signing for its own.
    #[command(visible_alias = "generate", after_help = "Example:\n  bellwire vapid rotate --app shop")]
    Rotate {
        #[command(flatten)]
        of: Of,
        /// Contact for push services, `mailto:` or `https:`; by default that of the active key.
        #[arg(long, value_name = "CONTACT")]
        subject: Option<String>,
    },
    /// Import a key from another sender, so that its subscribers stay.
    ///
    /// The private key is read from a file, because command lines are visible to all users of a machine. Formats: PEM or DER (PKCS#8 or
    /// SEC1), a JWK, base64 or hex of the 32 bytes, the output of `web-push generate-vapid-keys`, or a `.env`, YAML or JSON file with one
    /// of them.
    #[command(after_help = "Example:
  bellwire vapid import --app shop old-key.pem --public-key BPx…")]
    Import {
        #[command(flatten)]
        of: Of,
        /// The file of the private key; - for standard input.
        file: PathBuf,
        /// Public key in base64, to check that the two belong together.
        #[arg(long, value_name = "BASE64")]
        public_key: Option<String>,
        /// Contact for push services, `mailto:` or `https:`; by default that of the active key.
        #[arg(long, value_name = "CONTACT")]
        subject: Option<String>,
        /// It only signs for subscriptions made with it; new ones get the active key as before.
        #[arg(long)]
        retired: bool,
    },
    /// Print a private key, to take it to another server.
    #[command(after_help = "Example:\n  bellwire vapid export --app shop > vapid.pem")]
    Export {
        #[command(flatten)]
        of: Of,
        /// Id of the key; the active key by default.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        key: Option<String>,
        /// Output format.
        #[arg(long, value_enum, default_value_t = PrivateKeyFormat::Pem)]
        format: PrivateKeyFormat,
    },
    /// Change whom push services may contact about a key's pushes.
    #[command(after_help = "Example:\n  bellwire vapid subject --app shop mailto:push@example.com")]
    Subject {
        #[command(flatten)]
        of: Of,
        /// Contact: a `mailto:` or `https:` URL
        contact: String,
        /// The id of the key; by default the active one.
        #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
        key: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(super) struct Of {
    #[command(flatten)]
    app: AppFlag,
}

/// Encodings of a private key.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum PrivateKeyFormat {
    Pem,
    /// base64url of its 32 octets, as the `web-push` libraries want it.
    Raw,
}

impl Of {
    fn path(&self) -> String {
        path(["apps", &self.app, "vapid-keys"])
    }

    /// The path of that key, or of the active one.
    async fn key(&self, local: &Local, id: Option<String>) -> anyhow::Result<String> {
        let id = match id {
            Some(id) => id,
            None => {
                let keys = local.list(&self.path()).await?;
                let active = rows(&keys).find(|key| key["state"] == "active").context("the app has no active key")?;
                text(active, "/id")
            }
        };
        Ok(path(["apps", &self.app, "vapid-keys", &id]))
    }
}

impl Vapid {
    pub(super) async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        match self {
            Self::List(of) => Ok(out.table(COLUMNS, &local.list(&of.path()).await?)?),
            Self::Rotate { of, subject } => add(local, out, &of, subject, Map::new()).await,
            Self::Import { of, file, public_key, subject, retired } => {
                let mut members = Map::new();
                members.insert("private_key".to_owned(), private_key(&file)?.as_str().into());
                members.extend(public_key.map(|key| ("public_key".to_owned(), key.into())));
                members.extend(retired.then(|| ("state".to_owned(), "retired".into())));
                add(local, out, &of, subject, members).await
            }
            Self::Export { of, key, format } => {
                let at = format!("{}/export", of.key(local, key).await?);
                let pair = local.ask(Ask { names: NAMES, ..Ask::new(Method::POST, at) }).await?;
                let form = match format {
                    PrivateKeyFormat::Pem => "/private_key_pem",
                    PrivateKeyFormat::Raw => "/private_key",
                };
                out.say(&pair, text(&pair, form).trim_end())?;
                let (id, public) = (text(&pair, "/id"), text(&pair, "/public_key"));
                out.note(&format!("The private key of {id}, whose public key is {public}"));
                Ok(())
            }
            Self::Subject { of, contact, key } => {
                let ask = Ask::new(Method::PATCH, of.key(local, key).await?);
                let key = local.ask(Ask { body: json!({"subject": contact}), names: NAMES, ..ask }).await?;
                Ok(out.fields(FIELDS, &key)?)
            }
        }
    }
}

fn private_key(file: &Path) -> anyhow::Result<Zeroizing<String>> {
    let octets = Zeroizing::new(read(file)?);
    // PowerShell writes UTF-16 with a mark. DER is no text.
    if let Some((encoding, _)) = encoding_rs::Encoding::for_bom(&octets) {
        return Ok(Zeroizing::new(encoding.decode(&octets).0.into_owned()));
    }
    // Octets of a number alone may happen to be UTF-8.
    if octets.len() == 32 && octets.iter().any(|octet| octet.is_ascii_control() && !octet.is_ascii_whitespace()) {
        return Ok(Zeroizing::new(base64url::encode(&*octets)));
    }
    Ok(Zeroizing::new(std::str::from_utf8(&octets).map_or_else(|_| base64url::encode(&*octets), str::to_owned)))
}

async fn add(
    local: &Local,
    out: Output,
    of: &Of,
    subject: Option<String>,
    mut members: Map<String, Value>,
) -> anyhow::Result<()> {
    members.extend(subject.map(|subject| ("subject".to_owned(), subject.into())));
    let ask = Ask::new(Method::POST, of.path());
    let key = local.ask(Ask { body: members.into(), names: NAMES, ..ask }).await?;
    out.fields(FIELDS, &key)?;
    if key["state"] == "active" {
        out.note("New subscribers get this key. Pages learn it from the app's config route when they next subscribe.");
    }
    Ok(())
}

const FIELDS: &[TableColumn] = &[
    ("id", text, "/id"),
    ("state", text, "/state"),
    ("contact", text, "/subject"),
    ("public key", text, "/public_key"),
    ("created", time, "/created_at"),
];

const COLUMNS: &[TableColumn] = &[
    ("ID", text, "/id"),
    ("STATE", text, "/state"),
    ("SUBSCRIPTIONS", text, "/subscriptions"),
    ("CREATED", time, "/created_at"),
    ("CONTACT", text, "/subject"),
    ("PUBLIC KEY", text, "/public_key"),
];
