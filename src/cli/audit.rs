//! `bellwire audit`: lists actions of people.

use super::output::{TableColumn, beginning, columns, time};
use super::verb::{Group, group, limit, option, time as moment, verb, word};
use bellwire_store::keys::audit::AuditAction;

pub(super) fn audit() -> Group {
    let actor = "Only by this: the id of an API key or a teammate, `local` for the command line, or `nobody` for sign-ins that failed";
    let actions = AuditAction::ALL.iter().map(|action| action.name());
    let list = verb("list", "GET /audit-log", "List what was done, the latest first")
        .takes([
            option("--app <APP>", "?app", "Only to this app: its short name or id").is(word()),
            option("--actor <ACTOR>", "?actor", actor),
            option("--action <ACTION>", "?action", "Only this action")
                .one_of(actions)
                .with(|arg| arg.hide_possible_values(true)),
            moment(
                "--since <TIME>",
                "?since",
                "Then or later: a day or a time in UTC, such as 2030-01-31 or 2030-01-31T08:30:00Z",
            ),
            moment("--until <TIME>", "?until", "Only entries before this time"),
            limit("50", "Maximum number of entries, 1 to 250"),
        ])
        .table(COLUMNS)
        .examples([
            "bellwire audit list --app shop --since 2030-01-31",
            "bellwire audit list --action vapid_key.exported",
            "bellwire audit list --actor ak_0198…",
        ]);
    group("audit", "List the actions of keys, people and the command line", [list])
}

const COLUMNS: &[TableColumn] = columns! {
    "AT" time => "/at", "ACTOR" => "/actor", "ADDRESS" => "/address", "ACTION" => "/action", "N" => "/n", "TARGET" => "/target",
    "DETAIL" beginning::<80> => "/detail",
};
