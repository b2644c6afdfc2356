//! A shop in which each changing operation can be done once.

use std::time::Duration;

use axum::http::Method;
use bellwire_core::clock::uuid_of;
use bellwire_core::id::{DeadLetterId, MessageId, SubscriptionId};
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::outcomes::alerts::{self, Alert, AlertKind};
use bellwire_webpush::keys::SigningKey;
use serde_json::{Value, json};

use crate::support::api::{TestApi, content, fcm};
use crate::support::authenticator::Authenticator;
use crate::support::passkeys::{add_passkey, passkey_config, passkey_options};

/// Query of the app deletion, an operator-only action.
pub(super) const DELETION: &str = "?confirm=shop";

/// A request that changes something, and the actions that it is.
pub(super) type Deed = (Method, String, Value, &'static [AuditAction]);

/// A shop in which everything can be done once, and the cookie of an admin.
pub(super) async fn stage() -> (TestApi, String, Vec<Deed>) {
    let api = TestApi::with(passkey_config(), None).await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let more = json!({"user_id": "otto@example.com", "topics": ["news"]});
    let subscription = text(&api.subscribe(&fcm("a"), more).await["id"]);
    let other = api.subscribe(&fcm("b"), json!({})).await;
    let message = json!({"to": {"all": true}, "content": content()});
    let message = text(&api.post("/messages", message).await.ok(202)["id"]);
    let at = api.clock.now() + Duration::from_secs(3_600);
    let reminder =
        json!({"to": {"users": ["otto@example.com"]}, "content": content(), "send_at": at, "key": "reminder"});
    api.post("/messages", reminder).await.ok(202);
    let receiver = json!({"name": "n", "url": "https://hooks.example.com/", "events": ["delivery.gone"]});
    let webhook = format!("/webhooks/{}", text(&api.post("/webhooks", receiver.clone()).await.ok(201)["id"]));
    let api_key = text(&api.post("/api-keys", json!({"name": "n", "scopes": ["read"]})).await.ok(201)["id"]);
    let identity_key = text(&api.post("/identity-keys", json!({"name": "n"})).await.ok(201)["id"]);
    let vapid_key = text(&api.app["vapid_key"]["id"]);
    let alert = Alert { app: None, kind: AlertKind::Sli, subject: "x", detail: "y" };
    alerts::raise(&mut api.pool.acquire().await.unwrap(), &alert, api.clock.now()).await.unwrap();
    let alerts = api.call(Method::GET, "/v1/alerts", Some(&api.operator), None).await.ok(200);
    let alert = text(&alerts["data"][0]["id"]);
    let browser = api.teammate("admin@example.com", json!([{"role": "admin"}])).await;
    let passkey = add_passkey(&browser, &mut Authenticator::new(1)).await;
    let passkey = format!("/v1/session/passkeys/{}", text(&passkey["id"]));
    let made = json!({"name": "n", "credential": Authenticator::new(2).make(&passkey_options(&browser).await)});
    let admin = browser.cookie;
    let elsewhere = api.teammate("elsewhere@example.com", json!([{"role": "admin"}])).await;
    let elsewhere = format!("/v1/sessions/{}", elsewhere.id());
    let letters = [dead_letter(&api, &subscription, &message).await, dead_letter(&api, &subscription, &message).await];
    let (ann, _) = api.invite("ann@example.com", json!([{"role": "viewer"}])).await;
    let teammate = format!("/v1/team/{}", text(&ann["id"]));
    sqlx::query(
        "INSERT INTO oidc_accounts SELECT id, 'https://id.example', 's-1', created_at FROM teammates WHERE email LIKE 'ann%'",
    )
    .execute(&api.pool)
    .await
    .unwrap();
    let operator = api.operator.clone();
    // As if it had run away.
    sqlx::query(
        "INSERT INTO flows (id, app, reset_at, changed_at, held_tiers, held_at) VALUES (gen_random_uuid(), $1, $2, $2, '{2,3}', $2)",
    )
    .bind(api.app_id().0)
    .bind(api.clock.now())
    .execute(&api.pool)
    .await
    .unwrap();
    // Empties the log for this test. To the owner of the database it is an ordinary table.
    sqlx::raw_sql(
        "ALTER TABLE audit_log DISABLE TRIGGER USER; DELETE FROM audit_log; ALTER TABLE audit_log ENABLE TRIGGER USER",
    )
    .execute(&api.pool)
    .await
    .unwrap();

    let new_app = json!({"slug": "new", "name": "New", "subject": "mailto:a@example.com"});
    let retired = json!({"private_key": *SigningKey::generate().expose_raw(), "state": "retired"});
    let window = json!({"timezone": "Europe/Vienna"});
    let shop = |path: &str| format!("/v1/apps/shop{path}");
    let invitation = json!({"email": "ben@example.com", "roles": [{"role": "viewer"}]});
    let (post, put, patch, delete) = (Method::POST, Method::PUT, Method::PATCH, Method::DELETE);
    let mut deeds: Vec<Deed> = vec![
        (post.clone(), "/v1/apps".to_owned(), new_app, &[AuditAction::AppCreated]),
        (patch.clone(), shop(""), json!({"origins": ["https://new.example"]}), &[AuditAction::AppChanged]),
        (post.clone(), shop("/api-keys"), json!({"name": "n", "scopes": ["send"]}), &[AuditAction::ApiKeyCreated]),
        (delete.clone(), shop(&format!("/api-keys/{api_key}")), Value::Null, &[AuditAction::ApiKeyRevoked]),
        (post.clone(), shop("/identity-keys"), json!({"name": "m"}), &[AuditAction::IdentityKeyCreated]),
        (
            delete.clone(),
            shop(&format!("/identity-keys/{identity_key}")),
            Value::Null,
            &[AuditAction::IdentityKeyRemoved],
        ),
        (post.clone(), shop("/vapid-keys"), json!({}), &[AuditAction::VapidKeyCreated, AuditAction::VapidKeyActivated]),
        (post.clone(), shop("/vapid-keys"), retired, &[AuditAction::VapidKeyImported]),
        (put.clone(), shop("/topics/staff"), json!({}), &[AuditAction::TopicCreated]),
        (patch.clone(), shop("/topics/staff"), json!({"join": "server"}), &[AuditAction::TopicChanged]),
        (delete.clone(), shop("/topics/staff"), Value::Null, &[AuditAction::TopicRemoved]),
        (put.clone(), shop("/segments/beta"), json!({"expression": "tag('beta')"}), &[AuditAction::SegmentSet]),
        (delete.clone(), shop("/segments/beta"), Value::Null, &[AuditAction::SegmentRemoved]),
        (post.clone(), shop("/webhooks"), receiver.clone(), &[AuditAction::WebhookCreated]),
        (patch.clone(), shop(&webhook), json!({"enabled": false}), &[AuditAction::WebhookChanged]),
        (post.clone(), shop(&format!("{webhook}/rotate-secret")), json!({}), &[AuditAction::WebhookSecretRotated]),
        (
            post.clone(),
            shop(&format!("{webhook}/replay")),
            json!({"since": "2026-01-01T00:00:00Z"}),
            &[AuditAction::WebhookReplayed],
        ),
        (delete.clone(), shop(&webhook), Value::Null, &[AuditAction::WebhookRemoved]),
        (post.clone(), shop("/messages/by-key/reminder/cancel"), Value::Null, &[AuditAction::MessageCancelled]),
        (
            patch.clone(),
            shop("/messages/by-key/reminder"),
            json!({"content": content()}),
            &[AuditAction::MessageUpdated],
        ),
        (post.clone(), shop("/messages/by-key/reminder/withdraw"), Value::Null, &[AuditAction::MessageWithdrawn]),
        (
            post.clone(),
            shop("/users/otto@example.com/withdraw"),
            json!({"tag": "chat-7"}),
            &[AuditAction::MessageWithdrawn],
        ),
        (put.clone(), shop("/measurement"), json!({"window": "7d"}), &[AuditAction::AppChanged]),
        (delete.clone(), shop("/measurement"), Value::Null, &[AuditAction::AppChanged]),
        (put.clone(), shop("/withdrawal-notice"), json!({"title": "Shop"}), &[AuditAction::AppChanged]),
        (delete.clone(), shop("/withdrawal-notice"), Value::Null, &[AuditAction::AppChanged]),
        (put.clone(), shop("/templates/hi"), json!({"content": {"title": "Hi"}}), &[AuditAction::TemplateSet]),
        (delete.clone(), shop("/templates/hi"), Value::Null, &[AuditAction::TemplateRemoved]),
        (
            patch,
            shop(&format!("/vapid-keys/{vapid_key}")),
            json!({"subject": "mailto:b@example.com"}),
            &[AuditAction::VapidKeyChanged],
        ),
        (post.clone(), shop(&format!("/vapid-keys/{vapid_key}/export")), Value::Null, &[AuditAction::VapidKeyExported]),
        (
            post.clone(),
            shop(&format!("/dead-letters/{}/replay", letters[0])),
            Value::Null,
            &[AuditAction::DeadLettersExported, AuditAction::DeadLettersReplayed], // the response contains the content
        ),
        (
            post.clone(),
            shop(&format!("/dead-letters/{}/discard", letters[1])),
            Value::Null,
            &[AuditAction::DeadLettersExported, AuditAction::DeadLettersDiscarded],
        ),
        (post.clone(), shop("/dead-letters/replay"), json!({"filter": {}}), &[AuditAction::DeadLettersReplayed]),
        (post.clone(), shop("/dead-letters/discard"), json!({"filter": {}}), &[AuditAction::DeadLettersDiscarded]),
        (
            Method::GET,
            shop("/dead-letters/export?format=ndjson&reason=gone"),
            Value::Null,
            &[AuditAction::DeadLettersExported],
        ),
        (Method::GET, shop("/export"), Value::Null, &[AuditAction::AppExported]),
        (post.clone(), shop("/imports"), json!([]), &[AuditAction::ImportBegun, AuditAction::ImportFinished]),
        (
            post.clone(),
            shop("/subscriptions/restore"),
            json!({"since": "2020-01-01T00:00:00Z"}),
            &[AuditAction::SubscriptionsRestored],
        ),
        (put.clone(), shop("/calendar"), window, &[AuditAction::CalendarChanged]),
        (put.clone(), shop("/slas"), json!({"transactional": 10}), &[AuditAction::SlasChanged]),
        (delete.clone(), shop("/calendar"), Value::Null, &[AuditAction::CalendarChanged]),
        (delete.clone(), shop("/slas"), Value::Null, &[AuditAction::SlasChanged]),
        (delete.clone(), shop("/guard"), Value::Null, &[AuditAction::GuardChanged]),
        (put.clone(), shop("/prompt"), json!({"visits": 2}), &[AuditAction::AppChanged]),
        (delete.clone(), shop("/prompt"), Value::Null, &[AuditAction::AppChanged]),
        (delete.clone(), shop("/caps"), Value::Null, &[AuditAction::CapsChanged]),
        (post.clone(), shop("/guard/release"), Value::Null, &[AuditAction::AppReleased]),
        (put.clone(), shop("/guard"), json!({"factor": 5}), &[AuditAction::GuardChanged]),
        (put.clone(), shop("/caps"), json!({"caps": [{"max": 2, "window": "1d"}]}), &[AuditAction::CapsChanged]),
        (post.clone(), format!("/v1/alerts/{alert}/resolve"), Value::Null, &[AuditAction::AlertResolved]),
        (put.clone(), "/v1/log-level".to_owned(), json!({"filter": "debug"}), &[AuditAction::LogLevelSet]),
        (delete.clone(), "/v1/log-level".to_owned(), Value::Null, &[AuditAction::LogLevelReset]),
        (post.clone(), "/v1/session".to_owned(), json!({"api_key": operator}), &[AuditAction::SessionBegun]),
        (post.clone(), "/v1/session".to_owned(), json!({"link": "bwl_x"}), &[AuditAction::SessionRefused]),
        (post.clone(), "/v1/session/passkeys".to_owned(), made, &[AuditAction::PasskeyAdded]),
        (Method::PATCH, passkey.clone(), json!({"name": "m"}), &[AuditAction::PasskeyRenamed]),
        (delete.clone(), passkey, Value::Null, &[AuditAction::PasskeyRemoved]),
        (
            put.clone(),
            "/v1/session/password".to_owned(),
            json!({"new_password": "correct horse"}),
            &[AuditAction::PasswordSet],
        ),
        (delete.clone(), elsewhere, Value::Null, &[AuditAction::SessionEnded]),
        (delete.clone(), "/v1/sessions".to_owned(), Value::Null, &[AuditAction::SessionEnded]),
        (post.clone(), "/v1/team".to_owned(), invitation, &[AuditAction::TeammateInvited]),
        (Method::PATCH, teammate.clone(), json!({"disabled": false}), &[AuditAction::TeammateChanged]),
        (post.clone(), format!("{teammate}/reset"), Value::Null, &[AuditAction::TeammateReset]),
        (delete.clone(), format!("{teammate}/passkeys"), Value::Null, &[AuditAction::PasskeysReset]),
        (delete.clone(), format!("{teammate}/oidc"), Value::Null, &[AuditAction::TeammateUnlinked]),
        (delete.clone(), teammate, Value::Null, &[AuditAction::TeammateRemoved]),
    ];
    for place in ["tiers/1".to_owned(), "topics/news".to_owned(), format!("subscriptions/{subscription}")] {
        let path = shop(&format!("/policies/{place}"));
        deeds.push((put.clone(), path.clone(), json!({"retries": 3}), &[AuditAction::PolicySet]));
        deeds.push((delete.clone(), path, Value::Null, &[AuditAction::PolicyRemoved]));
    }
    for flow in [shop("/flow"), "/v1/gateways/1/flow".to_owned()] {
        deeds.push((put.clone(), flow.clone(), json!({"rate": 5}), &[AuditAction::FlowSet]));
        deeds.push((post.clone(), format!("{flow}/pause"), Value::Null, &[AuditAction::FlowPaused]));
        deeds.push((post.clone(), format!("{flow}/resume"), Value::Null, &[AuditAction::FlowResumed]));
        deeds.push((post.clone(), format!("{flow}/reset"), Value::Null, &[AuditAction::FlowReset]));
        deeds.push((delete.clone(), flow, Value::Null, &[AuditAction::FlowRemoved]));
    }
    let orders: [(&str, &'static [AuditAction]); 5] = [
        ("hold", &[AuditAction::LaneHeld]),
        ("release", &[AuditAction::LaneReleased]),
        ("open", &[AuditAction::LaneOpened]),
        ("close", &[AuditAction::LaneClosed]),
        ("probe", &[AuditAction::LaneProbed]),
    ];
    deeds.extend(orders.map(|(order, action)| (post.clone(), format!("/v1/gateways/1/{order}"), Value::Null, action)));
    let turns: [(&str, &'static [AuditAction]); 4] = [
        ("pause", &[AuditAction::MessagePaused]),
        ("resume", &[AuditAction::MessageResumed]),
        ("cancel", &[AuditAction::MessageCancelled]),
        ("withdraw", &[AuditAction::MessageWithdrawn]),
    ];
    let steered = |turn: &str| shop(&format!("/messages/{message}/{turn}"));
    deeds.extend(turns.map(|(turn, action)| (post.clone(), steered(turn), Value::Null, action)));
    let campaign = json!({"slug": "spring", "message": {"to": {"all": true}, "content": content()}});
    deeds.push((post.clone(), shop("/campaigns"), campaign.clone(), &[AuditAction::CampaignCreated]));
    deeds.push((put, shop("/campaigns/spring"), campaign, &[AuditAction::CampaignChanged]));
    let turns: [(&str, &'static [AuditAction]); 4] = [
        ("start", &[AuditAction::CampaignStarted]),
        ("pause", &[AuditAction::CampaignPaused]),
        ("resume", &[AuditAction::CampaignResumed]),
        ("cancel", &[AuditAction::CampaignCancelled]),
    ];
    let of_campaign = |turn: &str| shop(&format!("/campaigns/spring/{turn}"));
    deeds.extend(turns.map(|(turn, action)| (post.clone(), of_campaign(turn), Value::Null, action)));
    let autumn = json!({"slug": "autumn", "message": {"to": {"all": true}, "content": content()}});
    deeds.push((post.clone(), shop("/campaigns"), autumn, &[AuditAction::CampaignCreated]));
    for (turn, action) in [
        ("start", &[AuditAction::CampaignStarted] as &'static [AuditAction]),
        ("withdraw", &[AuditAction::CampaignWithdrawn]),
    ] {
        deeds.push((post.clone(), shop(&format!("/campaigns/autumn/{turn}")), Value::Null, action));
    }
    deeds.push((
        post.clone(),
        shop("/campaigns/spring/clone"),
        json!({"slug": "summer"}),
        &[AuditAction::CampaignCreated],
    ));
    deeds.push((delete.clone(), shop("/campaigns/spring"), Value::Null, &[AuditAction::CampaignDeleted]));
    deeds.push((Method::GET, shop("/users/otto@example.com/export"), Value::Null, &[AuditAction::UserExported]));
    let erase = shop(&format!("/subscriptions/{}/erase", text(&other["id"])));
    deeds.push((post.clone(), erase, Value::Null, &[AuditAction::SubscriptionErased]));
    let erased: &[AuditAction] = &[AuditAction::UserErased, AuditAction::UserErasureCompleted];
    deeds.push((delete.clone(), shop("/users/otto@example.com"), Value::Null, erased));
    deeds.push((delete, shop(DELETION), Value::Null, &[AuditAction::AppDeleted]));
    (api, admin, deeds)
}

/// A dead letter of that message to that subscription.
async fn dead_letter(api: &TestApi, subscription: &str, message: &str) -> DeadLetterId {
    let (subscription, message): (SubscriptionId, MessageId) =
        (subscription.parse().unwrap(), message.parse().unwrap());
    let id = uuid_of(api.clock.now());
    sqlx::query(
        "INSERT INTO dead_letters (app, id, shard, message, subscription, lane, tier, reason, retries, at)
         SELECT app, $1, shard, $2, id, lane, 2, 'bad_request', 0, $3 FROM subscriptions WHERE id = $4",
    )
    .bind(id)
    .bind(message.0)
    .bind(api.clock.now())
    .bind(subscription.0)
    .execute(&api.pool)
    .await
    .unwrap();
    DeadLetterId(id)
}
