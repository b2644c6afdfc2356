//! `bellwire template`: stored templates.

use serde_json::Value;

use super::file::file_of_json;
use super::output::{TableColumn, columns, listed, text, time};
use super::verb::{Call, Group, Parameter, app, flag, group, json_or_file, option, positional, verb};

pub(super) fn template() -> Group {
    let template = |to| [positional("TEMPLATE", to, "Name: lower-case letters, digits and hyphens"), app()];
    let data = || json_or_file("--data <JSON>", "/data", "Data for the template: a JSON object, or @FILE");
    let file = "The template in JSON, as the API takes it; - for standard input";
    let verbs = [
        verb(
            "put",
            "PUT /apps/{app}/templates/{template}",
            "Make a template, or write it anew. Messages that were sent before stay as they are",
        )
        .takes(template("{template}"))
        .takes([option("--file <FILE>", "", file).required().read(file_of_json)])
        .says("The template {/name} is stored.")
        .examples([
            "echo '{\"content\": {\"title\": \"Hello {{ attributes.name | default(\\\"there\\\") }}\"}}' |\n    \
             bellwire template put welcome --app shop --file -",
        ]),
        verb("list", "GET /apps/{app}/templates", "List an app's templates").takes([app()]).list(COLUMNS),
        verb("show", "GET /apps/{app}/templates/{template}", "Show a template, in JSON")
            .takes(template("{template}"))
            .words(|_, shown| Ok(serde_json::to_string_pretty(&shown["template"])?)),
        verb(
            "delete",
            "DELETE /apps/{app}/templates/{template}",
            "Remove a template. Messages that were sent before are delivered all the same",
        )
        .takes(template("{template}"))
        .deleted("name", "TEMPLATE", "The template {TEMPLATE} is gone."),
        verb(
            "preview",
            "POST /apps/{app}/templates/preview",
            "Show what comes of a template in each of its languages. Nothing is sent",
        )
        .takes(template("/template"))
        .takes([
            data(),
            option("--user <USER>", "/user", "Render for this user's browser; by default for an unknown user"),
            option("--subscription <ID>", "/subscription", "Render for this subscription").conflicts("user"),
        ])
        .words(preview)
        .examples(["bellwire template preview welcome --app shop --user 42 --data '{\"city\": \"Linz\"}'"]),
        verb(
            "check",
            "POST /apps/{app}/templates/check",
            "Try a template on everybody whom a message would reach, for up to ten seconds. Nothing is sent",
        )
        .takes(template("/template"))
        .takes([data(), all(), option("--topic <TOPIC>", "/to/topic", "On everyone in this topic")])
        .names([("/to", "--all or --topic")])
        .words(check)
        .examples(["bellwire template check welcome --app shop --topic news"]),
    ];
    group("template", "Create, try, list and delete templates", verbs)
}

fn all() -> Parameter {
    let all = flag("--all", "/to/all", "On every subscription of the app").conflicts("topic");
    all.with(|arg| arg.required_unless_present("topic"))
}

const COLUMNS: &[TableColumn] =
    columns! { "TEMPLATE" => "/name", "CHANGED" time => "/changed_at", "CREATED" time => "/created_at" };

fn preview(_: &Call<'_>, shown: &Value) -> anyhow::Result<String> {
    let mut told = Vec::new();
    for variant in listed(shown, "variants") {
        let chosen = if variant["locale"] == shown["locale"] { ", which they would be sent" } else { "" };
        let language = variant["locale"].as_str().unwrap_or("in its own language");
        told.push(format!("{language}{chosen}, {} octets:", text(variant, "/octets")));
        if !variant["content"].is_null() {
            told.push(serde_json::to_string_pretty(&variant["content"])?);
        }
        told.extend(faults(variant, "faults"));
    }
    Ok(told.join("\n"))
}

fn check(_: &Call<'_>, checked: &Value) -> anyhow::Result<String> {
    let n = |name: &str| text(checked, &format!("/{name}"));
    let rest = if checked["done"] == true { "all of them" } else { "there are more" };
    let (tried, failed, long) = (n("checked"), n("unrenderable"), n("too_long"));
    let sums = format!("tried on {tried} ({rest}): {failed} cannot be filled in, {long} too long");
    Ok(std::iter::once(sums).chain(faults(checked, "failures")).collect::<Vec<_>>().join("\n"))
}

fn faults<'a>(shown: &'a Value, member: &str) -> impl Iterator<Item = String> + use<'a> {
    let line = |fault: &Value| {
        let whom = fault["subscription"].as_str().map(|id| format!("{id} ")).unwrap_or_default();
        format!("  {whom}{}: {}", text(fault, "/pointer"), text(fault, "/detail"))
    };
    shown[member].as_array().into_iter().flatten().map(line)
}
