//! `bellwire vapid`: VAPID keys of an app.

use std::path::Path;

use anyhow::Context as _;
use clap::builder::PossibleValue;
use serde_json::Value;
use zeroize::Zeroizing;

use super::client::{ApiRequest, path};
use super::file::read;
use super::output::{TableColumn, columns, rows, text, time};
use super::verb::{Call, Group, Parameter, app, flag, group, option, positional, verb, word};
use bellwire_core::base64url;

pub(super) fn vapid() -> Group {
    let subject = || {
        let help = "Contact for push services, `mailto:` or `https:`; by default that of the active key";
        option("--subject <CONTACT>", "/subject", help)
    };
    let raw = PossibleValue::new("raw").help("base64url of its 32 octets, as the `web-push` libraries want it");
    let verbs = [
        verb(
            "list",
            "GET /apps/{app}/vapid-keys",
            "List an app's VAPID keys and how many subscriptions depend on each",
        )
        .takes([app()])
        .list(COLUMNS),
        verb(
            "rotate",
            "POST /apps/{app}/vapid-keys",
            "Generate a new key for new subscribers. The one before keeps signing for its own",
        )
        .takes([app(), subject()])
        .fields(FIELDS)
        .note_if(is_active, NEW_KEY)
        .with(|command| command.visible_alias("generate"))
        .examples(["bellwire vapid rotate --app shop"]),
        verb("import", "POST /apps/{app}/vapid-keys", "Import a key from another sender, so that its subscribers stay")
            .with(|command| command.long_about(ABOUT_IMPORT))
            .takes([
                app(),
                positional("FILE", "/private_key", "The file of the private key; - for standard input")
                    .read(private_key),
                option(
                    "--public-key <BASE64>",
                    "/public_key",
                    "Public key in base64, to check that the two belong together",
                ),
                subject(),
                flag(
                    "--retired",
                    "/state",
                    "It only signs for subscriptions made with it; new ones get the active key as before",
                )
                .sets("retired"),
            ])
            .fields(FIELDS)
            .note_if(is_active, NEW_KEY)
            .examples(["bellwire vapid import --app shop old-key.pem --public-key BPx…"]),
        verb(
            "export",
            "POST /apps/{app}/vapid-keys/{vapid_key}/export",
            "Print a private key, to take it to another server",
        )
        .takes([
            app(),
            or_active(positional("[KEY]", "{vapid_key}", "Id of the key; the active key by default")),
            option("--format <FORMAT>", "-", "Output format").one_of(["pem".into(), raw]).default("pem"),
        ])
        .words(|call, pair| {
            let form = if call.text("format") == "pem" { "/private_key_pem" } else { "/private_key" };
            Ok(text(pair, form).trim_end().to_owned())
        })
        .note("The private key of {/id}, whose public key is {/public_key}")
        .examples(["bellwire vapid export --app shop > vapid.pem"]),
        verb(
            "subject",
            "PATCH /apps/{app}/vapid-keys/{vapid_key}",
            "Change whom push services may contact about a key's pushes",
        )
        .takes([
            app(),
            positional("CONTACT", "/subject", "Contact: a `mailto:` or `https:` URL"),
            or_active(option("--key <ID>", "{vapid_key}", "The id of the key; by default the active one").is(word())),
        ])
        .fields(FIELDS)
        .examples(["bellwire vapid subject --app shop mailto:push@example.com"]),
    ];
    group("vapid", "Manage the VAPID keys of an app", verbs)
}

const ABOUT_IMPORT: &str = "Import a key from another sender, so that its subscribers stay.

The private key is read from a file, because command lines are visible to all users of a machine. Formats: PEM or DER (PKCS#8 or SEC1), \
a JWK, base64 or hex of the 32 bytes, the output of `web-push generate-vapid-keys`, or a `.env`, YAML or JSON file with one of them.";

const NEW_KEY: &str =
    "New subscribers get this key. Pages learn it from the app's config route when they next subscribe.";

fn is_active(key: &Value) -> bool {
    key["state"] == "active"
}

/// Lets an argument default to the active key.
fn or_active(key: Parameter) -> Parameter {
    key.find(|call, given| Box::pin(find_active(call, given)))
}

async fn find_active(call: &Call<'_>, given: Value) -> anyhow::Result<Value> {
    if !given.is_null() {
        return Ok(given);
    }
    let keys = call.client.list(ApiRequest::get(path(["apps", &call.text("app"), "vapid-keys"]))).await?;
    Ok(rows(&keys).find(|key| is_active(key)).context("the app has no active key")?["id"].clone())
}

fn private_key(_: &str, file: &str) -> anyhow::Result<Value> {
    let octets = Zeroizing::new(read(Path::new(file))?);
    // PowerShell writes UTF-16 with a mark. DER is no text.
    if let Some((encoding, _)) = encoding_rs::Encoding::for_bom(&octets) {
        return Ok(encoding.decode(&octets).0.into());
    }
    // Octets of a number alone may happen to be UTF-8.
    if octets.len() == 32 && octets.iter().any(|octet| octet.is_ascii_control() && !octet.is_ascii_whitespace()) {
        return Ok(base64url::encode(&*octets).into());
    }
    Ok(std::str::from_utf8(&octets).map_or_else(|_| base64url::encode(&*octets), str::to_owned).into())
}

const FIELDS: &[TableColumn] = columns! {
    "id" => "/id", "state" => "/state", "contact" => "/subject", "public key" => "/public_key", "created" time => "/created_at",
};
const COLUMNS: &[TableColumn] = columns! {
    "ID" => "/id", "STATE" => "/state", "SUBSCRIPTIONS" => "/subscriptions", "CREATED" time => "/created_at", "CONTACT" => "/subject",
    "PUBLIC KEY" => "/public_key",
};
