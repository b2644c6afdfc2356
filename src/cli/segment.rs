//! `bellwire segment`: named expressions that select subscriptions.

use serde_json::Value;

use super::output::{TableColumn, beginning, columns, listed, text, time};
use super::verb::{Call, Group, app, flag, group, limit, option, positional, verb};

pub(super) fn segment() -> Group {
    let segment = || [positional("SEGMENT", "{segment}", "Name: lower-case letters, digits and hyphens"), app()];
    let source = |to| [positional("SEGMENT", to, "A segment's name, or an expression"), app()];
    let expression = "Expression that selects the subscriptions; docs/segments.md has the grammar";
    let verbs = [
        verb(
            "set",
            "PUT /apps/{app}/segments/{segment}",
            "Create or replace a segment. Messages already sent keep the earlier expression",
        )
        .takes(segment())
        .takes([
            positional("EXPRESSION", "/expression", expression),
            option("--description <TEXT>", "/description", "Description for people"),
        ])
        .fields(FIELDS)
        .examples([
            "bellwire segment set paying --app shop 'plan = \"pro\" or tag(\"beta\")'",
            "bellwire segment set sleeping --app shop 'last_seen > 60d' --description 'Away for two months'",
        ]),
        verb("list", "GET /apps/{app}/segments", "List an app's segments").takes([app()]).list(COLUMNS),
        verb("show", "GET /apps/{app}/segments/{segment}", "Show a segment").takes(segment()).fields(FIELDS),
        verb(
            "delete",
            "DELETE /apps/{app}/segments/{segment}",
            "Delete a segment. Messages already sent keep its expression",
        )
        .takes(segment())
        .deleted("name", "SEGMENT", "The segment {SEGMENT} is gone."),
        verb("count", "POST /apps/{app}/segments/preview", "Tell how many belong to a segment, or to an expression")
            .takes(source("/segment"))
            .takes([flag("--exact", "/exact", "Count one by one instead of estimating from a sample")])
            .words(count)
            .examples([
                "bellwire segment count paying --app shop",
                "bellwire segment count 'country in (\"AT\", \"DE\") and last_seen < 30d' --app shop --exact",
            ]),
        verb(
            "members",
            "GET /apps/{app}/subscriptions",
            "List the newest subscriptions that belong to a segment, or to an expression",
        )
        .takes(source("?segment"))
        .takes([limit("20", "Maximum number of subscriptions, up to 250")])
        .table(MEMBERS),
    ];
    group("segment", "Set, list, count and delete segments", verbs)
}

fn count(call: &Call<'_>, preview: &Value) -> anyhow::Result<String> {
    for warning in listed(preview, "warnings") {
        call.out.note(&format!("Note: it {}", text(warning, "/detail")));
    }
    let reach = &preview["reach"];
    let how = match reach["exact"] == true {
        true => "counted".to_owned(),
        false => format!("give or take {}", text(reach, "/margin")),
    };
    Ok(format!("{} of {} active subscriptions, {how}", text(reach, "/count"), text(reach, "/of")))
}

const FIELDS: &[TableColumn] = columns! {
    "segment" => "/name", "expression" => "/expression", "description" => "/description", "made" time => "/created_at",
    "changed" time => "/changed_at",
};
const COLUMNS: &[TableColumn] = columns! {
    "SEGMENT" => "/name", "CHANGED" time => "/changed_at", "EXPRESSION" beginning::<100> => "/expression",
};
const MEMBERS: &[TableColumn] = columns! {
    "ID" => "/id", "GATEWAY" => "/gateway", "USER" => "/user_id", "LAST SEEN" time => "/last_seen",
};
