//! An example of each request body. Tests send them to the handlers, so that they stay valid.

use serde_json::{Value, json};

use bellwire_core::event_type::EventType;

/// Returns the example of a body by the name of its schema. A body without a schema name is a delivery policy.
pub(super) fn of(schema: Option<&str>) -> Option<Value> {
    let filter = json!({"reason": "unauthorized", "state": "open"});
    Some(match schema {
        None => json!({"baseDelayMs": 2_000, "maxDelayMs": 60_000, "maxAttempts": 5, "jitterPercent": 0.2}),
        Some("NewApp") => json!({
            "slug": "shop", "name": "Shop", "subject": "mailto:push@shop.example", "origins": ["https://shop.example"],
            "topics": ["news"],
        }),
        Some("AppChange") => json!({"origins": ["https://shop.example", "https://www.shop.example"]}),
        Some("NewApiKey") => json!({"name": "backend", "scopes": ["send", "read", "subscribers"]}),
        Some("NewIdentityKey") => json!({"name": "backend", "form": "jwt"}),
        Some("NewVapidKey") => json!({"subject": "mailto:push@shop.example"}),
        Some("VapidKeyChange") => json!({"subject": "mailto:push@shop.example"}),
        Some("DeliveryPolicy") => json!({"maxAttempts": 3}),
        Some("TopicRequest") => json!({"join": "anyone", "display": {
            "title": "News", "description": "Once a week", "position": 1, "texts": {"de": {"title": "Neuigkeiten"}},
        }}),
        Some("TopicChange") => json!({"join": "server"}),
        Some("RestoreRequest") => {
            json!({"lane": 7, "since": "2026-12-01T08:00:00Z", "until": "2026-12-01T09:00:00Z", "dry_run": true})
        }
        Some("SegmentRequest") => json!({
            "expression": "(plan = \"pro\" or tag(\"beta\")) and last_seen < 30d", "description": "Who pays, or tries what is new",
        }),
        Some("SegmentPreviewRequest") => json!({"segment": "country in (\"AT\", \"DE\") and not topic(\"news\")"}),
        Some("MessageRequest") => json!({
            "to": {"topic": "news"}, "tier": "promotional", "ttl": 86_400,
            "content": {"title": "Hello", "body": "It works", "url": "https://shop.example/"},
        }),
        Some("MessageUpdate") => json!({"content": {"title": "Shoes", "body": "Now for 10 euro"}}),
        Some("UserWithdrawal") => json!({"key": "news-7"}),
        Some("WithdrawalNotice") => json!({"title": "Shop", "body": "This offer has ended."}),
        Some("LinkCheckRequest") => json!({"url": "https://shop.example/spring"}),
        Some("LinkRequest") => json!({"link": "bwl_5C1dV4m2sY"}),
        Some("Template") => template(),
        Some("TemplatePreviewRequest") => json!({"template": template(), "recipient": {"attributes": {"name": "Ann"}}}),
        Some("TemplateCheckRequest") => json!({"template": template(), "to": {"topic": "news"}}),
        Some("CampaignPlan") => json!({
            "slug": "spring", "name": "Spring sale",
            "message": {"to": {"topic": "news"}, "content": {"title": "Spring is here", "url": "/spring"}},
            "variants": [
                {"name": "plain", "message": {}},
                {"name": "offer", "message": {"content": {"title": "20 % off, until Sunday"}}},
            ],
            "schedule": {"at": "2027-03-01T09:00", "timezone": "Europe/Vienna"},
            "pace": {"per_minute": 60_000}, "test": {"share": 0.2, "after": 14_400}, "holdout": 0.05,
        }),
        Some("UserEventBatch") => json!({"events": [
            {"id": "c-9", "name": "cart_added", "user_id": "u_1", "properties": {"product": "Coat", "total": 90}},
            {"id": "o-17", "name": "bought", "user_id": "u_1"},
        ]}),
        Some("TrackedEvent") => json!({"name": "cart_added", "properties": {"product": "Coat"}}),
        Some("ConversionBatch") => json!({"conversions": [
            {"id": "o-17", "name": "order", "user_id": "u_1", "value": 49.9, "currency": "EUR"},
        ]}),
        Some("BrowserConversion") => json!({"id": "o-17", "name": "order", "value": 49.9, "currency": "EUR"}),
        Some("PreferencesLinkRequest") => json!({"expires_in": "90d", "locale": "de"}),
        Some("OptInReport") => {
            json!({"steps": ["accepted", "asked"], "layout": "card", "variant": "short", "page": "/cart"})
        }
        Some("MeasurementSettings") => json!({
            "window": "7d", "after": "clicked", "attribution": "last", "link_tags": {"hosts": ["shop.example"]},
        }),
        Some("CampaignClone") => json!({"slug": "summer"}),
        Some("CampaignTestSend") => json!({"users": ["u_1"], "variant": "offer"}),
        Some("MessageBatch") => json!({"messages": [
            {"to": {"users": ["u_1"]}, "tier": "transactional", "content": {"title": "Your code: 471 100"}},
            {"to": {"users": ["u_2"]}, "tier": "transactional", "content": {"title": "Your code: 815 442"}, "idempotency_key": "login-815"},
        ]}),
        Some("NewSubscription") => json!({
            "subscription": {
                "endpoint": "https://fcm.googleapis.com/fcm/send/dKx7pQ",
                "keys": {
                    "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
                    "auth": "BTBZMqHH6r4Tts7J_aSIgg",
                },
            },
            "topics": ["news"], "timezone": "Europe/Berlin",
        }),
        Some("SubscriptionChange") => json!({"topics": ["news", "offers"]}),
        Some("DiagnosisReport") => json!({"checks": [
            {"name": "permission", "ok": false, "found": "denied", "advice": "Allow notifications in the site's settings."},
        ]}),
        Some("ReceiptReports") => json!({"receipt": "AZR6PI8AcAAAAAECAwQFBgcICQoLDA0ODw", "kind": "displayed"}),
        Some("CalendarSettings") => json!({
            "timezone": "Europe/Berlin", "quiet_hours": {"from": "22:00", "to": "08:00"},
            "off_peak": [{"from": "10:00", "to": "16:00"}],
        }),
        Some("PromptSettings") => json!({
            "topics": ["news"], "visits": 2, "seconds": 10, "texts": {"en": {"title": "Want to hear of new arrivals?"}},
        }),
        Some("CapSettings") => json!({"caps": [
            {"tiers": ["promotional", "engagement"], "max": 2, "window": "1d"},
            {"tiers": ["promotional"], "max": 5, "window": "7d"},
        ]}),
        Some("GuardRequest") => json!({"factor": 5}),
        Some("LogLevelRequest") => json!({"filter": "info,bellwire_dispatch=debug", "seconds": 900}),
        Some("NewWebhook") => json!({
            "name": "CRM", "url": "https://hooks.shop.example/bellwire",
            "events": [EventType::DeliveryGone, EventType::DeliveryDead, EventType::DeliveryClicked, EventType::CampaignState],
        }),
        Some("WebhookChange") => json!({"enabled": true}),
        Some("SecretRotation") => json!({"overlap_hours": 24}),
        Some("WebhookReplay") => json!({"since": "2027-01-15T08:00:00Z"}),
        Some("Slas") => json!({"transactional": 10}),
        Some("FlowRequest") => json!({"rate": 100, "period": "1s", "parallelism": 20}),
        Some("LaneOrderRequest") => json!({"seconds": 600, "reason": "the push service announced an outage"}),
        Some("PolicyPreviewRequest") => json!({"tier": "transactional", "topic": "news", "policy": {"retries": 3}}),
        Some("ReplayRequest") => json!({"filter": filter, "dry_run": true, "cap": 10_000}),
        Some("DiscardRequest") => json!({"filter": filter, "cap": 10_000}),
        Some("SignIn") => json!({"email": "ann@example.com", "password": "correct horse battery staple"}),
        Some("NewPasskey") => json!({
            "name": "blue key",
            "credential": {
                "id": "dMhbtkvW4pP_gZkXBNnVXg", "rawId": "dMhbtkvW4pP_gZkXBNnVXg", "type": "public-key",
                "response": {"clientDataJSON": "eyJ0eXBl…", "attestationObject": "o2NmbXRk…", "transports": ["usb"]},
                "clientExtensionResults": {},
            },
        }),
        Some("PasskeyChange") => json!({"name": "blue key"}),
        Some("PasswordChange") => json!({"current_password": "correct horse", "new_password": "battery staple"}),
        Some("Invitation") => json!({"email": "ann@example.com", "roles": [{"role": "sender", "app": "shop"}]}),
        Some("TeammateChange") => json!({"roles": [{"role": "viewer"}], "disabled": false}),
        Some(_) => return None,
    })
}

fn template() -> Value {
    json!({
        "content": {"title": "Hello {{ attributes.name | default('there') }}", "url": "/for/{{ user_id | default('you') }}"},
        "locales": {"de": {"content": {"title": "Hallo {{ attributes.name | default('du') }}"}}},
        "too_long": {"cut": "body"},
    })
}

/// Returns an example of a file of subscriptions.
pub(super) fn file() -> Value {
    json!([{
        "endpoint": "https://fcm.googleapis.com/fcm/send/eWFudDpleGFtcGxl",
        "keys": {
            "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
            "auth": "BTBZMqHH6r4Tts7J_aSIgg",
        },
        "user_id": "ann",
        "tags": ["beta"],
    }])
}
