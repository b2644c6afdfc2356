//! Request bodies of the routes that need one.

use serde_json::{Value, json};

use crate::support::api::{content, fcm, registration};

/// The query and the body of a request that is fine. `n` is another number each time.
pub(super) fn request(operation: &str, n: u32) -> (&'static str, Value) {
    let body = match operation {
        "DELETE /v1/apps/{app}" => return ("?confirm=shop", Value::Null),
        "GET /v1/metrics" | "GET /v1/apps/{app}/metrics" => {
            let range = "?since=2026-01-01T00:00:00Z&until=2027-01-01T00:00:00Z&measures=accepted";
            return (range, Value::Null);
        }
        "GET /v1/apps/{app}/deliveries" => return ("?user_id=ann", Value::Null),
        "GET /v1/apps/{app}/dead-letters/groups" => return ("?by=reason", Value::Null),
        "POST /v1/apps/{app}/policies/simulate" => return ("?scenario=calm&deliveries=100", json!({})),
        "GET /v1/apps/{app}/dead-letters/export" => return ("?format=ndjson", Value::Null),
        "POST /v1/apps" => json!({"slug": format!("walk-{n}"), "name": "n", "subject": "mailto:a@bellwire.dev"}),
        "POST /v1/apps/{app}/api-keys" => json!({"name": "n", "scopes": ["keys"]}),
        "POST /v1/apps/{app}/identity-keys" => json!({"name": "n"}),
        "PUT /v1/apps/{app}/segments/{segment}" => json!({"expression": "tag('beta')"}),
        "POST /v1/apps/{app}/segments/preview" => json!({"segment": "tag('beta')"}),
        "POST /v1/apps/{app}/webhooks" => {
            json!({"name": "n", "url": "https://hooks.example.com/", "events": ["delivery.gone"]})
        }
        "POST /v1/apps/{app}/webhooks/{webhook}/replay" => json!({"since": "2026-01-01T00:00:00Z"}),
        "PUT /v1/apps/{app}/topics/{topic}" => json!({"join": "anyone"}),
        "PATCH /v1/apps/{app}/vapid-keys/{vapid_key}" => json!({"subject": "mailto:a@bellwire.dev"}),
        "POST /v1/apps/{app}/subscriptions" => registration(&fcm(&format!("walk-{n}")), json!({})),
        "POST /v1/apps/{app}/receipts" | "POST /v1/apps/{app}/imports" | "POST /v1/apps/{app}/imports/{import}" => {
            json!([])
        }
        "POST /v1/apps/{app}/messages" => json!({"to": {"all": true}, "content": content()}),
        "POST /v1/apps/{app}/messages/batch" => json!({"messages": [{"to": {"users": ["ann"]}, "content": content()}]}),
        "POST /v1/apps/{app}/events" => json!({"events": [{"name": "bought", "user_id": "ann"}]}),
        "POST /v1/apps/{app}/subscriptions/{subscription}/events" => json!({"name": "bought"}),
        "POST /v1/apps/{app}/conversions" => json!({"conversions": [{"name": "order", "user_id": "ann"}]}),
        "POST /v1/apps/{app}/subscriptions/{subscription}/conversions" => json!({"name": "order"}),
        "POST /v1/apps/{app}/prompt/steps" => json!({"steps": ["shown"], "layout": "card", "page": "/"}),
        "PUT /v1/apps/{app}/measurement" => json!({"window": "7d"}),
        "GET /v1/apps/{app}/trigger-entries" => return ("?user_id=ann", Value::Null),
        "POST /v1/apps/{app}/campaigns" | "PUT /v1/apps/{app}/campaigns/{campaign}" => campaign(n),
        "POST /v1/apps/{app}/campaigns/{campaign}/clone" => json!({"slug": format!("walk-{n}")}),
        "POST /v1/apps/{app}/campaigns/{campaign}/test" => json!({"users": ["ann"]}),
        "POST /v1/apps/{app}/subscriptions/restore" => json!({"since": "2020-01-01T00:00:00Z"}),
        "POST /v1/apps/{app}/dead-letters/replay" | "POST /v1/apps/{app}/dead-letters/discard" => json!({"filter": {}}),
        "PUT /v1/apps/{app}/templates/{template}" => json!({"content": content()}),
        "POST /v1/apps/{app}/templates/preview" => json!({"template": {"content": content()}}),
        "POST /v1/apps/{app}/templates/check" => json!({"template": {"content": content()}, "to": {"all": true}}),
        "POST /v1/session" => json!({"api_key": "an operator's"}),
        "POST /v1/session/link" => json!({"link": "of an account"}),
        "POST /v1/apps/{app}/link-check" => json!({"url": "https://shop.example.com/"}),
        "POST /v1/session/passkeys" => json!({"name": "n", "credential": {"of": "an authenticator"}}),
        "PATCH /v1/session/passkeys/{passkey}" => json!({"name": "n"}),
        "PATCH /v1/apps/{app}/diagnoses/{code}" => {
            json!({"checks": [{"name": "clock", "ok": false, "found": "an hour off", "advice": "Set it."}]})
        }
        "PATCH /v1/apps/{app}/messages/by-key/{key}" => json!({"content": content()}),
        "POST /v1/apps/{app}/users/{user}/withdraw" => json!({"tag": "chat-7"}),
        "PUT /v1/apps/{app}/withdrawal-notice" => json!({"title": "Shop"}),
        "PUT /v1/log-level" => json!({"filter": "debug"}),
        "PUT /v1/session/password" => json!({"new_password": "correct horse battery"}),
        "POST /v1/team" => json!({"email": format!("walk-{n}@example.com"), "roles": [{"role": "viewer"}]}),
        "PATCH /v1/team/{teammate}" => json!({"roles": []}),
        "PUT /v1/apps/{app}/caps" => json!({"caps": [{"max": 2, "window": "1d"}]}),
        "PUT /v1/apps/{app}/calendar" => json!({"timezone": "Europe/Vienna"}),
        "PUT /v1/apps/{app}/flow" | "PUT /v1/gateways/{lane}/flow" => json!({"rate": 5}),
        "PATCH /v1/apps/{app}"
        | "PATCH /v1/apps/{app}/webhooks/{webhook}"
        | "POST /v1/apps/{app}/webhooks/{webhook}/rotate-secret"
        | "PATCH /v1/apps/{app}/subscriptions/{subscription}"
        | "PATCH /v1/apps/{app}/topics/{topic}"
        | "POST /v1/apps/{app}/policies/preview"
        | "POST /v1/apps/{app}/users/{user}/preferences-link"
        | "POST /v1/apps/{app}/vapid-keys"
        | "POST /v1/gateways/{lane}/close"
        | "POST /v1/gateways/{lane}/hold"
        | "POST /v1/gateways/{lane}/open"
        | "POST /v1/gateways/{lane}/probe"
        | "POST /v1/gateways/{lane}/release"
        | "PUT /v1/apps/{app}/guard"
        | "PUT /v1/apps/{app}/prompt"
        | "PUT /v1/apps/{app}/policies/subscriptions/{subscription}"
        | "PUT /v1/apps/{app}/policies/tiers/{tier}"
        | "PUT /v1/apps/{app}/policies/topics/{topic}"
        | "PUT /v1/apps/{app}/slas" => json!({}),
        _ => Value::Null,
    };
    ("", body)
}

/// The plan of a campaign.
pub(super) fn campaign(n: u32) -> Value {
    json!({"slug": format!("walk-{n}"), "message": {"to": {"all": true}, "content": content()}})
}
