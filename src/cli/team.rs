//! `bellwire admin`: teammates who sign in to this server.

use anyhow::Context as _;
use clap::builder::{EnumValueParser, TypedValueParser as _};
use serde_json::{Value, json};

use super::client::{ApiRequest, path};
use super::output::{TableColumn, columns, listed, rows, text, time};
use super::verb::{Call, Group, Parameter, Verb, group, option, positional, verb, word};
use bellwire_core::role::Role;

pub(super) fn team() -> Group {
    let reset = "Reset a teammate's account: delete the password, end the sessions and print a new one-time link. A registered passkey \
                 stays required";
    let unlink = "Unlink a teammate's account at the OpenID provider and end the sessions. The next account with the same address is \
                  linked instead";
    let unlinked = "{EMAIL} has no account at the OpenID provider that is linked.";
    let verbs = [
        verb(
            "invite",
            "POST /team",
            "Invite a teammate: print a one-time sign-up link that is valid for three days. Send the link yourself",
        )
        .takes([positional("EMAIL", "/email", "Email address, used to sign in. Bellwire sends no email")])
        .takes(roles())
        .shape(set_roles)
        .run(|call| Box::pin(link(call)))
        .says("{/link/url}")
        .note(LINK_NOTE)
        .examples([
            "bellwire admin invite ann@example.com --role admin",
            "bellwire admin invite ben@example.com --role sender --app shop",
        ])
        .may_come_first(),
        verb("list", "GET /team", "List who may sign in, and what they may do")
            .list(COLUMNS)
            .examples(["bellwire admin list"]),
        about_one("change", "PATCH /team/{teammate}", "Set a teammate's roles, replacing all earlier roles")
            .takes(roles())
            .shape(set_roles)
            .words(|_, changed| Ok(format!("{} is {}.", text(changed, "/email"), in_words(changed, ""))))
            .examples(["bellwire admin change ben@example.com --role viewer"]),
        about_one("reset", "POST /team/{teammate}/reset", reset)
            .run(|call| Box::pin(link(call)))
            .says("{/link/url}")
            .note(LINK_NOTE)
            .examples(["bellwire admin reset ann@example.com"]),
        about_one(
            "reset-passkeys",
            "DELETE /team/{teammate}/passkeys",
            "Delete all passkeys of a teammate who lost them, and end the sessions. The password stays",
        )
        .says("{EMAIL} no longer has a passkey; removed: {/removed}.")
        .examples(["bellwire admin reset-passkeys ann@example.com"]),
        about_one(
            "disable",
            "PATCH /team/{teammate}",
            "Disable a teammate's account: end the sessions and block sign-in",
        )
        .body(json!({"disabled": true}))
        .says("{/email} is shut out.")
        .examples(["bellwire admin disable ben@example.com"]),
        about_one("enable", "PATCH /team/{teammate}", "Enable a disabled account again")
            .body(json!({"disabled": false}))
            .says("{/email} may sign in.")
            .examples(["bellwire admin enable ben@example.com"]),
        about_one("unlink", "DELETE /team/{teammate}/oidc", unlink)
            .says(unlinked)
            .machine(|call, _| json!({"unlinked": call.value("EMAIL")}))
            .examples(["bellwire admin unlink ben@example.com"]),
        about_one(
            "remove",
            "DELETE /team/{teammate}",
            "Delete a teammate for good. API keys that the teammate created stay valid",
        )
        .says("{EMAIL} is removed.")
        .machine(|call, _| json!({"removed": call.value("EMAIL")}))
        .examples(["bellwire admin remove ben@example.com"]),
    ];
    group("admin", "Invite people to this server, and set their roles", verbs)
}

/// Declares a verb about a teammate.
fn about_one(name: &'static str, request: &'static str, about: &'static str) -> Verb {
    let teammate = positional("EMAIL", "{teammate}", "Email address or id, as `bellwire admin list` shows them");
    verb(name, request, about).takes([teammate.find(|call, given| Box::pin(find(call, given)))])
}

/// Finds the id of a teammate by address or id.
async fn find(call: &Call<'_>, given: Value) -> anyhow::Result<Value> {
    let team = call.client.list(ApiRequest::get(path(["team"]))).await?;
    let teammate = text(&given, "");
    let email = teammate.trim().to_lowercase();
    let found = rows(&team).find(|row| row["email"] == *email || row["id"] == *teammate);
    let found =
        found.with_context(|| format!("teammate {teammate} does not exist; `bellwire admin list` shows all"))?;
    Ok(found["id"].clone())
}

/// Arguments with roles and their apps.
fn roles() -> [Parameter; 2] {
    let apps = "On this app: its short name or id; repeatable, or separated by commas. Without it: on all apps, and on the server itself";
    let role = EnumValueParser::<Role>::new().map(|role| json!(role));
    [
        option("--role <ROLE>", "-", "Role to grant; each role includes the lower ones").is(role).required(),
        option("--app <APP>", "/roles", apps).is(word()).several(),
    ]
}

fn set_roles(call: &Call<'_>, body: &mut Value) -> anyhow::Result<()> {
    let (role, apps) = (call.value("role"), call.value("app"));
    body["roles"] = match apps.as_array() {
        None => json!([{"role": role}]),
        Some(apps) => apps.iter().map(|app| json!({"role": role, "app": app})).collect(),
    };
    Ok(())
}

/// Prints a one-time link and its expiry.
async fn link(call: &Call<'_>) -> anyhow::Result<()> {
    let mut invited = call.ask().await?;
    let url = format!("{}{}", call.client.server, text(&invited, "/link/path"));
    invited["link"]["url"] = url.into();
    call.print(&invited)
}

/// Formats the roles of a teammate.
fn in_words(teammate: &Value, _: &str) -> String {
    let role = |grant: &Value| match grant["app"].as_str() {
        Some(app) => format!("{} of {app}", text(grant, "/role")),
        None => format!("{} of everything", text(grant, "/role")),
    };
    let roles: Vec<String> = listed(teammate, "roles").map(role).collect();
    if roles.is_empty() { "without a role".to_owned() } else { roles.join(", ") }
}

const LINK_NOTE: &str =
    "Send this link to {/email}: it lets them in once, until {/link/expires_at}, and is shown only now.";

const COLUMNS: &[TableColumn] = columns! {
    "ID" => "/id", "EMAIL" => "/email", "ROLES" in_words => "", "PASSWORD" => "/has_password", "PASSKEYS" => "/passkeys",
    "LINK UNTIL" time => "/link_expires_at", "OPENID SINCE" time => "/oidc_linked_at", "SHUT OUT" time => "/disabled_at",
};
