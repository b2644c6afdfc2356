//! `bellwire user`: exports and erases the data of a user.

use anyhow::ensure;

use super::output::{TableColumn, columns, time};
use super::verb::{Group, app, group, option, positional, verb};

pub(super) fn user() -> Group {
    let user = || [positional("USER", "{user}", "The site's name for them: `user_id`"), app()];
    let verbs = [
        verb(
            "export",
            "GET /apps/{app}/users/{user}/export",
            "Copy all that is kept of a user to standard output, as one JSON document. It ends in `\"complete\":true`, unless it broke off",
        )
        .takes(user())
        .copies(b"\"complete\":true}\n")
        .examples(["bellwire user export ann@example.com --app shop > ann.json"]),
        verb(
            "erase",
            "DELETE /apps/{app}/users/{user}",
            "Unsubscribe all browsers of a user and forget all that is known of them, for good",
        )
        .takes(user())
        .takes([option("--yes-erase <USER>", "-", "The user once more: what is erased cannot be brought back").required()])
        .shape(|call, _| {
            ensure!(call.text("USER") == call.text("yes-erase"), "--yes-erase: is not the user to be erased");
            Ok(())
        })
        .fields(ERASURE)
        .note_if(
            |erasure| erasure["completed_at"].is_null(),
            "Messages are still being looked through. The maintenance of a running server completes that.",
        )
        .examples(["bellwire user erase ann@example.com --app shop --yes-erase ann@example.com"]),
    ];
    group("user", "Export or erase the data of a user", verbs)
}

const ERASURE: &[TableColumn] = columns! {
    "erasure" => "/id", "subscriptions" => "/subscriptions", "messages" => "/messages", "dead letters" => "/dead_letters",
    "webhook requests" => "/webhook_requests", "requested" time => "/requested_at", "completed" time => "/completed_at",
};
