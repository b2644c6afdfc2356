//! `bellwire app`: sites that send.

use clap::builder::{BoolValueParser, TypedValueParser as _};
use serde_json::{Value, json};

use super::identity::identity_key;
use super::output::{TableColumn, columns, fields_of, time};
use super::verb::{Call, Group, flag, group, named_app, number, option, positional, time as moment, verb, word};

/// Value of `--browsers-may` for no permissions.
const NOTHING: &str = "nothing";

pub(super) fn app() -> Group {
    let rights = |help| option("--browsers-may <RIGHT>", "/browsers_may", help).several();
    let origins = |spec, to, help| option(spec, to, help).many();
    let first_prune = "Time of the first prune: a day or a time in UTC, such as 2030-01-31 or 2030-01-31T08:30:00Z";
    let weight = "Share of the send capacity while several apps have deliveries waiting, relative to an app of weight 1: 1 to 100";
    let let_in = "Whether endpoints on hosts of no known push service are let in";
    let verbs = [
        verb("create", "POST /apps", "Make an app with its first VAPID key")
            .takes([
                positional("SLUG", "/slug", "Slug: lower-case letters, digits and hyphens"),
                option(
                    "--subject <CONTACT>",
                    "/subject",
                    "Contact for push services, `mailto:` or `https:` [the `sub` claim of VAPID]",
                )
                .required(),
                option("--name <NAME>", "/name", "Display name; the slug by default"),
                origins(
                    "--origin <ORIGIN>",
                    "/origins",
                    "An origin that browsers may call from, such as https://shop.example.com; repeatable",
                ),
                flag("--allow-other-gateways", "/allow_other_gateways", "Let in endpoints on hosts of no known push service"),
                option("--topic <TOPIC>", "/topics", "A topic to begin with, which anyone may join; repeatable").many(),
                rights(
                    "Rights of browsers beyond joining and leaving topics: create_topics, set_tags, set_attributes; repeatable, or \
                     separated by commas",
                ),
            ])
            .shape(|call, body| {
                if !call.has("name") {
                    body["name"] = call.value("SLUG");
                }
                no_rights(call, body)
            })
            .words(|_, made| {
                let key = fields_of(columns! { "application server key" => "/vapid_key/public_key" }, made);
                Ok(format!("{}\n{key}", fields_of(FIELDS, made)))
            })
            .note(
                "Pages subscribe with that key. A key for the app's servers:\n  \
                 bellwire key create --app {SLUG} --scope send,read --name server",
            )
            .examples([
                "bellwire app create shop --subject mailto:push@example.com --origin https://shop.example.com --topic news",
            ])
            .may_come_first(),
        verb("list", "GET /apps", "List all apps").list(COLUMNS),
        verb("show", "GET /apps/{app}", "Show an app").takes([named_app()]).fields(FIELDS),
        verb("change", "PATCH /apps/{app}", "Change an app: what is not given stays")
            .takes([
                named_app(),
                option("--name <NAME>", "/name", "New display name"),
                origins("--add-origin <ORIGIN>", "/add_origins", "One more origin that browsers may call from; repeatable"),
                origins(
                    "--remove-origin <ORIGIN>",
                    "/remove_origins",
                    "Origin to remove: browsers there may no longer call the API; repeatable",
                ),
                option("--allow-other-gateways <BOOL>", "/allow_other_gateways", let_in).is(BoolValueParser::new().map(Value::from)),
                rights(
                    "All that browsers may do beyond joining and leaving topics: create_topics, set_tags, set_attributes, track_events, report_conversions, or nothing; \
                     repeatable, or separated by commas",
                ),
                option("--weight <NUMBER>", "/weight", weight).is(number(..)),
            ])
            .shape(no_rights)
            .fields(FIELDS)
            .examples([
                "bellwire app change shop --add-origin https://www.shop.example.com --remove-origin http://localhost:3000",
            ]),
        verb(
            "release",
            "POST /apps/{app}/guard/release",
            "Let an app send again that the runaway guard holds. What it sent so far counts no longer",
        )
        .takes([named_app()])
        .says("{APP} is held no more: it may send {/limit} deliveries in a quarter of an hour."),
        verb(
            "restore-pruned",
            "POST /apps/{app}/subscriptions/restore",
            "Make subscriptions active again that their push service called gone. Those that were unsubscribed, erased or replaced stay so",
        )
        .takes([
            named_app(),
            option("--lane <NUMBER>", "/lane", "Only those of this lane, by its number; all lanes by default").is(number(..)),
            moment("--since <TIME>", "/since", first_prune).required(),
            moment("--until <TIME>", "/until", "Time of the last prune; now by default"),
            flag("--dry-run", "/dry_run", "Count them, and restore none"),
        ])
        .run(|call| Box::pin(restore_pruned(call)))
        .words(|_, done| {
            let would = if done["dry_run"] == true { "would be" } else { "are" };
            Ok(format!("{} subscriptions {would} active again.", done["restored"]))
        })
        .examples([
            "bellwire app restore-pruned shop --lane 3 --since 2030-01-31T08:00:00Z --until 2030-01-31T08:30:00Z --dry-run",
            "bellwire app restore-pruned shop --since 2030-01-31T08:00:00Z",
        ]),
        verb("losses", "GET /apps/{app}/lost-subscriptions", "Show lost subscriptions by day and push service")
            .takes([named_app(), option("--days <DAYS>", "?days", "Days up to today: 1 to 366, by default 30").is(number(1..=366))])
            .list(columns! { "DAY" => "/day", "PUSH SERVICE" => "/gateway", "KEY" => "/vapid_key_id", "GONE" => "/gone", "SUSPENDED" => "/suspended" })
            .examples(["bellwire app losses shop --days 7"]),
        verb(
            "delete",
            "DELETE /apps/{app}",
            "Delete an app for good, with its subscriptions, messages and keys. Sending stops at once. A running server deletes the rows",
        )
        .takes([
            named_app(),
            option(
                "--yes-delete <SLUG>",
                "?confirm",
                "The slug once more, as confirmation: deletion cannot be undone",
            )
            .is(word())
            .required(),
        ])
        .fields(FIELDS)
        .note("The app no longer sends. The maintenance of a running server deletes its data.")
        .examples(["bellwire app delete shop --yes-delete shop"]),
    ];
    group("app", "Create, list and change apps", verbs).and(identity_key())
}

/// Converts `nothing` to an empty list of permissions.
fn no_rights(_: &Call<'_>, body: &mut Value) -> anyhow::Result<()> {
    if body["browsers_may"] == json!([NOTHING]) {
        body["browsers_may"] = json!([]);
    }
    Ok(())
}

/// Repeats the request until no subscriptions are left to restore.
async fn restore_pruned(call: &Call<'_>) -> anyhow::Result<()> {
    let mut restored = 0;
    loop {
        let mut done = call.ask().await?;
        restored += done["restored"].as_u64().unwrap_or(0);
        if done["more"] != true {
            done["restored"] = restored.into();
            return call.print(&done);
        }
        call.out.note(&format!("{restored} subscriptions are active again."));
    }
}

const FIELDS: &[TableColumn] = columns! {
    "app" => "/slug", "id" => "/id", "name" => "/name", "origins" => "/origins", "lets other gateways in" => "/allow_other_gateways",
    "browsers may" => "/browsers_may", "weight" => "/weight", "created" time => "/created_at", "being deleted since" time => "/deleting_at",
};
const COLUMNS: &[TableColumn] = columns! {
    "APP" => "/slug", "ID" => "/id", "CREATED" time => "/created_at", "NAME" => "/name",
};
