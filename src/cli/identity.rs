//! `bellwire app identity-key`: keys with which a backend signs user tokens.

use std::path::Path;

use clap::builder::PossibleValue;
use serde_json::Value;

use super::file::read;
use super::output::{TableColumn, columns, text, time};
use super::verb::{Group, Parameter, group, option, positional, verb};

pub(super) fn identity_key() -> Group {
    let create = "Make a secret that your backend signs with, printed once and for all; or take a public key of your backend's pair";
    let form = "Form of proof that your backend creates with the key. The key is not valid for the other form";
    let jwt = PossibleValue::new("jwt").help("Signed JWTs, which expire");
    let hmac =
        PossibleValue::new("hmac").help("The plain HMAC-SHA-256 of the user id, which holds until the key is deleted");
    let public_key = "The file of a public key on P-256, PEM or a JWK; - for standard input";
    let verbs = [
        verb("create", "POST /apps/{app}/identity-keys", create)
            .takes([
                app(),
                option("--name <NAME>", "/name", "Display name").required(),
                option("--form <FORM>", "/form", form).one_of([jwt, hmac]).default("jwt"),
                option("--public-key <FILE>", "/public_key", public_key).read(pem),
            ])
            .shape(|call, body| {
                if call.has("public-key") {
                    body["algorithm"] = "ES256".into();
                }
                Ok(())
            })
            .words(|_, key| Ok(text(key, if has_secret(key) { "/secret" } else { "/id" })))
            .note_if(has_secret, "Made {/id}. Keep the secret: it is shown only now.")
            .examples([
                "SECRET=$(bellwire app identity-key create shop --name backend)",
                "SECRET=$(bellwire app identity-key create shop --name backend --form hmac)",
                "bellwire app identity-key create shop --name backend --public-key public.pem",
            ]),
        verb("list", "GET /apps/{app}/identity-keys", "List an app's keys, without their secrets")
            .takes([app()])
            .table(COLUMNS),
        verb(
            "delete",
            "DELETE /apps/{app}/identity-keys/{identity_key}",
            "Delete a key at once and for good. Proofs made with it are no longer valid",
        )
        .takes([
            app(),
            positional("KEY", "{identity_key}", "Id of the key, as `bellwire app identity-key list` shows it"),
        ])
        .deleted("id", "KEY", "{KEY} is forgotten."),
    ];
    group("identity-key", "Manage what the site's backend signs user tokens with", verbs)
}

fn app() -> Parameter {
    positional("APP", "{app}", "The app's short name or id")
}

fn has_secret(key: &Value) -> bool {
    key["secret"].is_string()
}

fn pem(_: &str, file: &str) -> anyhow::Result<Value> {
    Ok(String::from_utf8_lossy(&read(Path::new(file))?).into())
}

const COLUMNS: &[TableColumn] = columns! {
    "ID" => "/id", "ALGORITHM" => "/algorithm", "FORM" => "/form", "CREATED" time => "/created_at", "NAME" => "/name",
};
