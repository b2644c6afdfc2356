//! `bellwire dead-letters`: lists, replays, discards and exports failed deliveries.

use anyhow::ensure;
use serde_json::{Value, json};

use super::output::{TableColumn, beginning, columns, listed, rows, table, text, time};
use super::send::seconds;
use super::verb::{Call, Group, Parameter, Verb, app, flag, group, limit, number, option, tier, time as moment, verb};
use bellwire_core::lane::Gateway;

pub(super) fn dead_letters() -> Group {
    let by = option("--by <BY>", "?by", "Field to group by").default("reason");
    let replay = "Send open dead letters again, to their original recipients. Each dead letter is replayed at most once, so the command is \
                  safe to repeat";
    let ttl = "Time that push services may keep the message, from now: seconds, or a duration such as 30m, 12h, 7d; by default the \
               original TTL";
    let verbs = [
        verb("list", "GET /apps/{app}/dead-letters", "List dead letters, the newest first")
            .takes([app()])
            .takes(filter(true))
            .takes([state(), limit("50", "Maximum number of dead letters, 1 to 250")])
            .table(COLUMNS)
            .examples(["bellwire dead-letters list --app shop --state open --reason retries_exhausted"]),
        verb("groups", "GET /apps/{app}/dead-letters/groups", "Count dead letters by what they have in common")
            .takes([by.one_of(["reason", "gateway", "status", "tier", "message", "day"]), app()])
            .takes(filter(true))
            .takes([state()])
            .words(|call, groups| Ok(grouped(&call.text("by"), rows(groups))))
            .examples(["bellwire dead-letters groups --app shop --by reason --state open"]),
        handling("replay", "POST /apps/{app}/dead-letters/replay", replay)
            .takes([option("--ttl <TTL>", "/ttl", ttl).is(seconds)])
            .examples([
                "bellwire dead-letters replay --app shop --message msg_0198… --dry-run",
                "bellwire dead-letters replay --app shop --reason unauthorized --ttl 12h",
            ]),
        handling("discard", "POST /apps/{app}/dead-letters/discard", "Put open dead letters aside")
            .examples(["bellwire dead-letters discard --app shop --reason bad_request --until 2030-01-31"]),
        verb(
            "export",
            "GET /apps/{app}/dead-letters/export",
            "Copy dead letters out to standard output, without their content",
        )
        .takes([app()])
        .takes(filter(true))
        .takes([
            state(),
            option("--format <FORMAT>", "?format", "Output format").one_of(["csv", "ndjson"]).default("csv"),
        ])
        .copies(b"")
        .examples(["bellwire dead-letters export --app shop --state open > letters.csv"]),
    ];
    group("dead-letters", "List, replay, discard and export failed deliveries", verbs)
}

/// Returns the filter arguments, for the query or for `filter` in the body.
fn filter(is_query: bool) -> [Parameter; 10] {
    macro_rules! to {
        ($name:literal) => {
            if is_query { concat!("?", $name) } else { concat!("/filter/", $name) }
        };
    }
    let since = "Died then or later: a day or a time in UTC, such as 2030-01-31 or 2030-01-31T08:30:00Z";
    [
        option("--reason <REASON>", to!("reason"), "Why they died, such as `retries_exhausted`"),
        option("--status <STATUS>", to!("status"), "HTTP status of the last answer").is(number(..)),
        option("--message <MESSAGE>", to!("message"), "Id of the message"),
        option("--subscription <SUBSCRIPTION>", to!("subscription"), "Id of the subscription"),
        option("--topic <TOPIC>", to!("topic"), "The topic that the message was addressed to"),
        tier(to!("tier"), "Tier of the message"),
        option("--gateway <GATEWAY>", to!("gateway"), "Gateway that got the deliveries")
            .one_of(Gateway::ALL.map(Gateway::name)),
        moment("--since <TIME>", to!("since"), since),
        moment("--until <TIME>", to!("until"), "Only those that failed before this time"),
        option("--retries <RETRIES>", to!("retries"), "Retries that were made").is(number(..)),
    ]
}

fn state() -> Parameter {
    let states = ["open", "replayed", "discarded", "closed"];
    option("--state <STATE>", "?state", "State of the dead letters; any by default").one_of(states)
}

/// Declares a verb that replays or discards the open dead letters of a filter.
fn handling(name: &'static str, request: &'static str, about: &'static str) -> Verb {
    let cap = "Maximum number of dead letters, 1 to 100,000; 10,000 by default";
    verb(name, request, about)
        .takes([app()])
        .takes(filter(false))
        .takes([
            flag("--all", "-", "Select every open dead letter; required if no filter is given"),
            flag("--dry-run", "/dry_run", "Only count the dead letters"),
            option("--cap <CAP>", "/cap", cap).is(number(..)),
        ])
        .body(json!({"filter": {}}))
        .shape(|call, body| {
            let selects = body["filter"] != json!({}) || call.has("all");
            ensure!(selects, "no dead letters selected: use --reason, --message … or --all");
            Ok(())
        })
        .words(handled)
}

fn handled(call: &Call<'_>, handled: &Value) -> anyhow::Result<String> {
    let n = |name: &str| handled[name].as_i64().unwrap_or(0);
    let what = call.name();
    let mut lines = vec![match handled["dry_run"].as_bool() {
        Some(true) => format!("{} open letters fit; this would {what} {}.", n("matched"), n("remaining")),
        _ => format!("{} of {} letters done, {} left.", n("handled"), n("matched"), n("remaining")),
    }];
    if n("unreachable") > 0 {
        lines.push(format!(
            "Of the selected ones, {} are for subscriptions that are no longer active.",
            n("unreachable")
        ));
    }
    if n("user_left") > 0 {
        lines.push(format!(
            "Of those that fit, {} were addressed to users who have left the browser: others would see them.",
            n("user_left")
        ));
    }
    for (by, groups) in [("reason", "by_reason"), ("message", "by_message")] {
        if listed(handled, groups).next().is_some() {
            lines.push(format!("\n{}", grouped(by, listed(handled, groups))));
        }
    }
    Ok(lines.join("\n"))
}

fn grouped<'a>(by: &str, groups: impl Iterator<Item = &'a Value>) -> String {
    let row = |group| [text(group, "/count"), time(group, "/newest"), text(group, "/key")];
    table(["COUNT", "NEWEST", &by.to_uppercase()], groups.map(row))
}

const COLUMNS: &[TableColumn] = columns! {
    "ID" => "/id", "DIED" time => "/at", "STATE" => "/state", "REASON" => "/reason", "STATUS" => "/status", "RETRIES" => "/retries",
    "GATEWAY" => "/gateway", "MESSAGE" => "/message", "WORDS" beginning::<60> => "/detail",
};
