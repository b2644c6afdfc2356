//! `bellwire key`: API keys of apps, operators and metrics scrapers.

use anyhow::ensure;
use clap::ArgGroup;
use clap::builder::{EnumValueParser, TypedValueParser as _};
use serde_json::{Value, json};

use super::output::{TableColumn, columns, text, time};
use super::verb::{Call, Group, Verb, flag, group, option, positional, time as moment, verb, word};
use bellwire_core::scope::Scope;

pub(super) fn key() -> Group {
    let scopes =
        "Scopes of the key; repeatable, or separated by commas. With --operator: `operator` by default, or `metrics`";
    let scopes = option("--scope <SCOPE>", "/scopes", scopes)
        .is(EnumValueParser::<Scope>::new().map(|scope| json!(scope)))
        .several();
    let expiry = "Expiry: a day or a time in UTC, such as 2030-01-31 or 2030-01-31T08:30:00Z; no expiry by default";
    let keep = "Leave the keys that it made valid, and those that these made: for a key that is replaced, not stolen";
    let verbs = [
        owned("create", "POST [/apps/{app}]/api-keys", "Make an API key. Its secret is printed, once and for all")
            .takes([
                option("--name <NAME>", "/name", "Display name").required(),
                scopes.with(|arg| arg.required_unless_present("operator")),
                moment("--expires-at <TIME>", "/expires_at", expiry),
            ])
            .shape(|call, body| {
                if !call.has("scope") {
                    body["scopes"] = json!([Scope::Operator]);
                }
                check_owner(call, body)
            })
            .says("{/secret}")
            .note("Made {/id} ({/scopes}). Keep the secret: it is shown only now.")
            .examples([
                "KEY=$(bellwire key create --operator --name me)",
                "KEY=$(bellwire key create --operator --scope metrics --name prometheus)",
                "KEY=$(bellwire key create --app shop --scope send,read --name server)",
            ])
            .may_come_first(),
        owned("list", "GET [/apps/{app}]/api-keys", "List API keys, without their secrets")
            .list(COLUMNS)
            .examples(["bellwire key list --app shop"]),
        owned(
            "revoke",
            "DELETE [/apps/{app}]/api-keys/{api_key}",
            "Revoke an API key at once and for good, and with it the keys that it made",
        )
        .takes([
            positional("KEY", "{api_key}", "Id of the key, as `bellwire key list` shows it"),
            flag("--keep-descendants", "?keep_descendants", keep),
        ])
        .words(revoked)
        .machine(|call, done| json!({"id": call.value("KEY"), "revoked": done["revoked"]}))
        .examples(["bellwire key revoke --app shop ak_0198…"]),
    ];
    group("key", "Create, list and revoke API keys", verbs)
}

/// Declares a verb about the keys of an app, or of the server.
fn owned(name: &'static str, request: &'static str, about: &'static str) -> Verb {
    let operator = "Of no app: for operators, who may do everything in all apps, or to read the server's metrics";
    let owner = [
        option("--app <APP>", "{app}", "Of the app of that short name or id").is(word()),
        flag("--operator", "-", operator),
    ];
    let group = ArgGroup::new("owner").args(["app", "operator"]).required(true);
    verb(name, request, about).takes(owner).with(|command| command.group(group)).shape(check_owner)
}

fn check_owner(call: &Call<'_>, _: &mut Value) -> anyhow::Result<()> {
    let may_reach = !call.has("operator") || call.client.context().is_some();
    ensure!(may_reach, "--operator: keys of operators are managed only on the server itself, without --server");
    Ok(())
}

fn revoked(call: &Call<'_>, done: &Value) -> anyhow::Result<String> {
    let key = call.text("KEY");
    Ok(match done["revoked"].as_i64() {
        Some(n @ 2..) => format!("{key} is revoked, and {} that it made or these did.", n - 1),
        _ => format!("{key} is revoked."),
    })
}

fn secret(key: &Value, hint: &str) -> String {
    format!("{}…", text(key, hint))
}

const COLUMNS: &[TableColumn] = columns! {
    "ID" => "/id", "SECRET" secret => "/hint", "SCOPES" => "/scopes", "CREATED" time => "/created_at", "EXPIRES" time => "/expires_at",
    "REVOKED" time => "/revoked_at", "LAST USED" => "/last_used_on", "MADE BY" => "/created_by", "NAME" => "/name",
};
