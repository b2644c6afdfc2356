//! `bellwire webhook`: receivers of events over HTTP.

use clap::ArgGroup;
use serde_json::Value;

use super::output::{TableColumn, columns, fields_of, listed, rows, table_of, time};
use super::verb::{Call, Group, Parameter, app, flag, group, limit, number, option, positional, time as moment, verb};

pub(super) fn webhook() -> Group {
    let webhook = || [positional("WEBHOOK", "{webhook}", "Id of the webhook"), app()];
    let hours = option("--overlap-hours <OVERLAP_HOURS>", "/overlap_hours", "For how many hours, up to 168")
        .is(number(..))
        .default("24");
    let enable =
        flag("--enable", "/enabled", "Enable the webhook: it receives events from now on").conflicts("disable");
    let disable = flag("--disable", "/enabled", "Disable the webhook: it receives no events").sets(false);
    let verbs = [
        verb(
            "create",
            "POST /apps/{app}/webhooks",
            "Make a webhook. Its secret goes to standard output, now and never again",
        )
        .takes([app()])
        .takes(settings())
        .says("{/secret}")
        .note("Made {/id}. Keep the secret: it is shown only now.")
        .examples([
            "bellwire webhook create --app shop --name CRM --url https://hooks.shop.example/bellwire --event delivery.gone,delivery.clicked",
        ]),
        verb("list", "GET /apps/{app}/webhooks", "List an app's webhooks").takes([app()]).table(COLUMNS),
        verb("show", "GET /apps/{app}/webhooks/{webhook}", "Show a webhook").takes(webhook()).fields(FIELDS),
        verb("change", "PATCH /apps/{app}/webhooks/{webhook}", "Change a webhook, enable or disable it")
            .takes(webhook())
            .takes(settings())
            .takes([enable, disable])
            .fields(FIELDS)
            .examples(["bellwire webhook change wh_0198… --app shop --enable"]),
        verb("delete", "DELETE /apps/{app}/webhooks/{webhook}", "Remove a webhook, with all that waits for it")
            .takes(webhook())
            .deleted("id", "WEBHOOK", "{WEBHOOK} is gone."),
        verb(
            "rotate",
            "POST /apps/{app}/webhooks/{webhook}/rotate-secret",
            "Give a webhook a new secret, which goes to standard output; the one until now signs beside it for a while",
        )
        .takes(webhook())
        .takes([hours])
        .says("{/secret}")
        .note("Keep the secret: it is shown only now. The former one signs beside it until {/former_secret_until}."),
        verb("test", "POST /apps/{app}/webhooks/{webhook}/test", "Send a webhook's receiver an event that tries it out")
            .takes(webhook())
            .note("It is being sent. The result: `bellwire webhook deliveries {WEBHOOK} --app {app}`."),
        verb(
            "deliveries",
            "GET /apps/{app}/webhooks/{webhook}/deliveries[/{webhook_delivery}]",
            "List the newest requests to a webhook's receiver, or show one with its attempts",
        )
        .takes(webhook())
        .takes([
            positional("[DELIVERY]", "{webhook_delivery}", "Only this request"),
            option("--state <STATE>", "?state", "Only those that are pending, delivered or failed")
                .one_of(["pending", "delivered", "failed"]),
            limit("20", "Maximum number of requests, up to 250").find(|call, given| Box::pin(of_list(call, given))),
        ])
        .words(deliveries),
        verb("replay", "POST /apps/{app}/webhooks/{webhook}/replay", "Make requests again that had failed")
            .takes(webhook())
            .takes([
                moment("--since <TIME>", "/since", "All that were made since then"),
                option("--delivery <DELIVERY>", "/webhook_delivery", "Only this request"),
            ])
            .with(|command| command.group(ArgGroup::new("which").args(["since", "delivery"]).required(true)))
            .says("{/replayed} will be sent again.")
            .examples(["bellwire webhook replay wh_0198… --app shop --since 2030-01-31T08:30:00Z"]),
    ];
    group("webhook", "Manage webhooks, and resend failed requests", verbs)
}

fn settings() -> [Parameter; 5] {
    let events = "Event types to send, such as delivery.gone; several separated by commas";
    let json = |text: &str| serde_json::from_str::<Value>(text);
    [
        option("--name <NAME>", "/name", "Display name"),
        option("--url <URL>", "/url", "URL of the receiver"),
        option("--event <EVENT>", "/events", events).several(),
        option("--max-events <MAX_EVENTS>", "/max_events", "Maximum number of events per request, up to 500")
            .is(number(..)),
        option("--policy <JSON>", "/policy", "Retry policy: a delivery policy as JSON").is(json),
    ]
}

/// Returns the limit, unless a single request is shown.
async fn of_list(call: &Call<'_>, given: Value) -> anyhow::Result<Value> {
    Ok(if call.has("DELIVERY") { Value::Null } else { given })
}

fn deliveries(_: &Call<'_>, shown: &Value) -> anyhow::Result<String> {
    Ok(match shown["data"].is_array() {
        true => table_of(DELIVERIES, rows(shown)),
        false => format!("{}\n\n{}", fields_of(DELIVERY, shown), table_of(TRIES, listed(shown, "recent_attempts"))),
    })
}

const FIELDS: &[TableColumn] = columns! {
    "webhook" => "/id", "name" => "/name", "url" => "/url", "events" => "/events", "in a request" => "/max_events",
    "policy" => "/policy", "state" => "/state", "disabled since it is" => "/disabled_why", "breaker" => "/breaker",
    "failing since" time => "/failing_since", "pending" => "/pending", "failed" => "/failed", "dropped events" => "/dropped_events",
    "former secret until" time => "/former_secret_until", "made by" => "/created_by", "last changed by" => "/changed_by",
};
const COLUMNS: &[TableColumn] = columns! {
    "ID" => "/id", "STATE" => "/state", "BREAKER" => "/breaker", "PENDING" => "/pending", "FAILED" => "/failed",
    "MADE BY" => "/created_by", "NAME" => "/name", "URL" => "/url",
};
const DELIVERIES: &[TableColumn] = columns! {
    "ID" => "/id", "STATE" => "/state", "EVENTS" => "/events", "TRIES" => "/attempts", "MADE" time => "/created_at",
    "NEXT TRY" time => "/due_at",
};
const DELIVERY: &[TableColumn] = columns! {
    "delivery" => "/id", "state" => "/state", "events" => "/events", "next try" time => "/due_at",
};
const TRIES: &[TableColumn] = columns! {
    "TRY" => "/number", "AT" time => "/at", "STATUS" => "/http_status", "MS" => "/took_ms", "REASON" => "/reason",
};
