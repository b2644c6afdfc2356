//! Audit log: every change by a credential is recorded with actor and address, and entries stay.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request};
use bellwire::testkit::api::ApiConfig;
use bellwire::testkit::server::maintenance::{self, Retention};
use bellwire_core::clock::uuid_of;
use bellwire_core::id::{DeadLetterId, MessageId, SubscriptionId};
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::outcomes::alerts::{self, Alert, AlertKind};
use bellwire_webpush::keys::SigningKey;
use serde_json::{Value, json};

use crate::support::api::{TestApi, content, fcm};
use crate::support::app::{DAY, RETENTION};
use crate::support::authenticator::Authenticator;
use crate::support::openapi::{openapi_description, operations};
use crate::support::passkeys::{add_passkey, passkey_config, passkey_options};

/// Operations that are no GET and have no entry, and why. All others are deeds of [`stage`].
const UNLOGGED: [(&str, &str); 25] = [
    ("POST /v1/apps/{app}/subscriptions", "single registrations are many, and browsers' own"),
    ("PATCH /v1/apps/{app}/subscriptions/{subscription}", "the same"),
    ("DELETE /v1/apps/{app}/subscriptions/{subscription}", "the same"),
    ("POST /v1/apps/{app}/subscriptions/{subscription}/diagnoses", "browsers diagnose themselves"),
    ("PATCH /v1/apps/{app}/diagnoses/{code}", "the same"),
    ("PUT /v1/apps/{app}/topics/{topic}/subscriptions/{subscription}", "single memberships are many"),
    ("DELETE /v1/apps/{app}/topics/{topic}/subscriptions/{subscription}", "the same"),
    ("POST /v1/apps/{app}/messages", "a message is its own record"),
    ("POST /v1/apps/{app}/messages/batch", "the same"),
    ("POST /v1/apps/{app}/messages/{message}/deliveries/{subscription}/retry", "a delivery's story tells of it"),
    ("POST /v1/apps/{app}/messages/{message}/deliveries/{subscription}/cancel", "the same"),
    ("POST /v1/apps/{app}/imports/{import}", "its beginning is logged, and its end"),
    ("POST /v1/apps/{app}/receipts", "browsers report; nobody decides anything"),
    ("POST /v1/apps/{app}/campaigns/{campaign}/dry-run", "changes nothing"),
    ("POST /v1/apps/{app}/campaigns/{campaign}/test", "a message is its own record"),
    ("POST /v1/apps/{app}/webhooks/{webhook}/test", "its delivery is its own record"),
    ("POST /v1/apps/{app}/link-check", "changes nothing"),
    ("POST /v1/apps/{app}/segments/preview", "changes nothing"),
    ("POST /v1/apps/{app}/templates/check", "changes nothing"),
    ("POST /v1/apps/{app}/templates/preview", "changes nothing"),
    ("POST /v1/apps/{app}/policies/preview", "changes nothing"),
    ("POST /v1/apps/{app}/policies/simulate", "changes nothing"),
    ("POST /v1/session/passkeys/options", "only asks; what comes of it is logged"),
    ("POST /v1/session/link", "changes nothing"),
    ("DELETE /v1/session", "is done last, by itself"),
];

/// A request that changes something, and the actions that it is.
type Deed = (Method, String, Value, &'static [AuditAction]);

/// A shop in which everything can be done once, and the cookie of an admin.
async fn stage() -> (TestApi, String, Vec<Deed>) {
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

/// Query of the app deletion, an operator-only action.
const DELETION: &str = "?confirm=shop";

/// Does it, with the app's key where that may, and signed in as an admin where no key may.
async fn status(api: &TestApi, admin: &str, (method, path, body, _): &Deed) -> u16 {
    let of_app = path.starts_with("/v1/apps/") && !path.ends_with(DELETION);
    let body = Some(body.clone()).filter(|body| !body.is_null());
    if path.starts_with("/v1/session") || path.starts_with("/v1/team") {
        let headers = [("cookie", admin), ("sec-fetch-site", "same-origin")];
        return api.call_with(method.clone(), path, None, body, &headers).await.status;
    }
    let key = if of_app { &api.key } else { &api.operator };
    api.call(method.clone(), path, Some(key), body).await.status
}

async fn log(api: &TestApi, query: &str) -> Vec<Value> {
    let path = format!("/v1/audit-log?limit=250{query}");
    let page = api.call(Method::GET, &path, Some(&api.operator), None).await.ok(200);
    page["data"].as_array().unwrap().clone()
}

#[tokio::test]
async fn key_actions_are_logged_or_do_not_happen() {
    let (api, admin, deeds) = stage().await;
    // What comes of an OpenID provider is looked at where there is one; what the command line alone does has no request.
    let elsewhere = [
        AuditAction::TeammateJoined,
        AuditAction::TeammateLinked,
        AuditAction::DatabaseRestored,
        AuditAction::MasterKeyRotated,
        AuditAction::SealKeyAdded,
        AuditAction::ToolCalled,
    ];
    let here = AuditAction::ALL.iter().filter(|action| !elsewhere.contains(action));
    let mut never: BTreeSet<&str> = here.map(|action| action.name()).collect();
    for deed in &deeds {
        let (method, path, _, actions) = deed;
        // While the log takes nothing, nothing is done: it would be there, or be refused, when it is done again.
        sqlx::raw_sql("ALTER TABLE audit_log ADD CONSTRAINT full_ CHECK (false) NOT VALID")
            .execute(&api.pool)
            .await
            .unwrap();
        // Whom nothing is done for is answered before the log is written, lest the time tell who is a teammate.
        let is_refusal = *actions == [AuditAction::SessionRefused];
        let unlogged = if is_refusal { 401 } else { 500 };
        assert_eq!(status(&api, &admin, deed).await, unlogged, "{method} {path}");
        sqlx::raw_sql("ALTER TABLE audit_log DROP CONSTRAINT full_").execute(&api.pool).await.unwrap();
        api.clock.advance(Duration::from_secs(1));
        let since = api.clock.now().format("&since=%Y-%m-%dT%H:%M:%SZ").to_string();
        let expected = if is_refusal { 401..402 } else { 200..300 };
        assert!(expected.contains(&status(&api, &admin, deed).await), "{method} {path}");
        let mut entries = log(&api, &since).await;
        while is_refusal && entries.is_empty() {
            entries = log(&api, &since).await;
        }
        let mut logged: Vec<_> = entries.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
        logged.sort_unstable();
        let mut expected: Vec<_> = actions.iter().map(|action| action.name()).collect();
        expected.sort_unstable();
        assert_eq!(logged, expected, "{method} {path}");
        assert!(entries.iter().all(|entry| !entry["target"].as_str().unwrap().is_empty()), "{entries:?}");
        never.retain(|action| !expected.contains(action));
    }
    assert!(never.is_empty(), "no request of this test is {never:?}: add one to `stage`");
    let signed_in = api.teammate("last@example.com", json!([{"role": "viewer"}])).await;
    assert_eq!(signed_in.call(Method::DELETE, "/v1/session", None).await.status, 204);
    assert_eq!(log(&api, "&action=session.ended").await[0]["actor"], signed_in.session["teammate"]);
    let text = Value::from(log(&api, "").await).to_string();
    for secret in ["otto", "bw_", "bwi_", "PRIVATE", api.key.as_str()] {
        assert!(!text.contains(secret), "{secret} is in the log");
    }
}

/// Whether a path is of that template: how many of its segments stand there to the letter.
fn likeness(template: &str, path: &str) -> Option<usize> {
    let (template, path): (Vec<_>, Vec<_>) = (template.split('/').collect(), path.split('/').collect());
    let fits = |(known, given): (&&str, &&str)| known.starts_with('{') || known == given;
    (template.len() == path.len() && template.iter().zip(&path).all(fits))
        .then(|| template.iter().filter(|segment| !segment.starts_with('{')).count())
}

#[tokio::test]
async fn each_changing_operation_is_logged_or_listed() {
    let (api, _, deeds) = stage().await;
    let all = operations(&openapi_description(&api).await);
    let mut logged = BTreeSet::new();
    for (method, path, ..) in &deeds {
        let path = path.split('?').next().unwrap();
        let likely = all.iter().filter(|(_, known, _)| known == method);
        let found = likely.max_by_key(|(template, ..)| likeness(template, path));
        let (template, ..) = found.filter(|(template, ..)| likeness(template, path).is_some()).expect("described");
        logged.insert(format!("{method} {template}"));
    }
    let unlogged: BTreeSet<_> = UNLOGGED.iter().map(|(operation, _)| (*operation).to_owned()).collect();
    let both: Vec<_> = logged.intersection(&unlogged).collect();
    assert!(both.is_empty(), "{both:?} are logged: take them out of UNLOGGED");
    let changing = all.iter().filter(|(_, method, _)| *method != Method::GET);
    let changing: BTreeSet<_> = changing.map(|(path, method, _)| format!("{method} {path}")).collect();
    let unknown: Vec<_> = changing.iter().filter(|it| !logged.contains(*it) && !unlogged.contains(*it)).collect();
    assert!(unknown.is_empty(), "{unknown:?}: record an entry and add a deed to `stage`, or name it in UNLOGGED");
    let gone: Vec<_> = unlogged.difference(&changing).collect();
    assert!(gone.is_empty(), "{gone:?} are none any more");
}

#[tokio::test]
async fn entry_names_actor_origin_target_and_count() {
    let settings = ApiConfig { trusted_proxies: 1, ..ApiConfig::default() };
    let api = TestApi::with(settings, None).await;
    for name in ["a", "b"] {
        api.subscribe(&fcm(name), json!({"user_id": "otto"})).await;
    }
    let erase = async |key: &str, client: &str| {
        let headers = [("x-forwarded-for", client)];
        let path = "/v1/apps/shop/users/otto";
        api.call_with(Method::DELETE, path, Some(key), None, &headers).await.ok(200);
    };
    erase(&api.key, "made-up, 192.0.2.7").await;
    api.clock.advance(Duration::from_secs(1));
    erase(&api.operator, "::ffff:192.0.2.8").await;
    let entries = log(&api, "&action=user.erased").await;
    let keys = api.get("/api-keys").await.ok(200);
    let [second, first] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!((&first["actor"], &first["actor_kind"]), (&keys["data"][0]["id"], &json!("api_key")));
    assert_eq!((&first["address"], &first["n"], &first["app"]), (&json!("192.0.2.7"), &json!(2), &api.app["id"]));
    assert_eq!(
        (&second["actor_kind"], &second["address"], &second["n"]),
        (&json!("operator"), &json!("192.0.2.8"), &json!(0))
    );
    let label = first["target"].as_str().unwrap();
    assert!(label.starts_with("user:") && label.len() == 21 && first["target"] == second["target"], "{label}");
    let made = log(&api, "&action=api_key.created&actor=local").await;
    assert_eq!(
        (&made[0]["actor"], &made[0]["actor_kind"], &made[0]["address"]),
        (&json!("local"), &json!("local"), &Value::Null)
    );
    // The app's log hides the address of an operator.
    let own = api.get("/audit-log?action=user.erased").await.ok(200);
    let addresses: Vec<_> = own["data"].as_array().unwrap().iter().map(|entry| &entry["address"]).collect();
    assert_eq!(addresses, [&Value::Null, &json!("192.0.2.7")]);
    let id = second["actor"].as_str().unwrap();
    let by_operator =
        async |more: &str| log(&api, &format!("&action=user.erased&app=shop&actor={id}{more}")).await.len();
    assert_eq!(by_operator("").await, 1);
    assert_eq!(by_operator("&until=2027-01-15T08:00:01Z").await, 0);
    assert_eq!(by_operator("&since=2027-01-15T08:00:01Z").await, 1);
}

#[tokio::test]
async fn app_reads_only_its_own_log() {
    let api = TestApi::start().await;
    let (other, stranger) = api.make_app("other").await;
    let theirs = api.call(Method::GET, "/v1/apps/other/audit-log", Some(&stranger), None).await.ok(200);
    let apps: BTreeSet<_> =
        theirs["data"].as_array().unwrap().iter().map(|entry| entry["app"].as_str().unwrap()).collect();
    assert_eq!(apps, BTreeSet::from([other["id"].as_str().unwrap()]));
    assert_eq!(api.call(Method::GET, "/v1/apps/shop/audit-log", Some(&stranger), None).await.status, 404);
    let page = api.get("/audit-log?limit=1").await.ok(200);
    let next = api.get(&format!("/audit-log?limit=1&iterator={}", page["iterator"].as_str().unwrap())).await.ok(200);
    assert!(next["done"] == true && page["data"][0]["id"] != next["data"][0]["id"], "{page} {next}");
    for (query, name) in
        [("actor=me", "actor"), ("action=app.eaten", "action"), ("since=tomorrow", "since"), ("app=shop", "app")]
    {
        let refused = api.get(&format!("/audit-log?{query}")).await;
        assert_eq!(refused.refusal(), (400, "invalid_parameter", vec![name]), "{query}");
    }
    let none = api.call(Method::GET, "/v1/audit-log?app=none", Some(&api.operator), None).await;
    assert_eq!(none.refusal(), (404, "not_found", vec![]));
}

#[tokio::test]
async fn only_retention_removes_log_entries() {
    let api = TestApi::start().await;
    for statement in ["UPDATE audit_log SET n = 7", "DELETE FROM audit_log", "TRUNCATE audit_log"] {
        let refused = sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&api.pool).await.unwrap_err();
        assert!(refused.to_string().contains("append-only"), "{statement}: {refused}");
    }
    let before = log(&api, "").await.len();
    api.clock.advance(DAY * 10);
    api.post("/vapid-keys", json!({})).await.ok(201);
    let keep = async |audit_log| {
        let retention = Retention { audit_log, ..RETENTION };
        maintenance::keep_house(&api.pool, api.clock.now(), retention).await.unwrap();
        log(&api, "").await.len()
    };
    assert_eq!(keep(None).await, before + 2, "for ever");
    assert_eq!(keep(Some(DAY * 11)).await, before + 2);
    assert_eq!(keep(Some(DAY * 9)).await, 2, "what was rotated today");
    let refused = sqlx::query("DELETE FROM audit_log").execute(&api.pool).await.unwrap_err();
    assert!(refused.to_string().contains("append-only"), "also on a connection that retention used: {refused}");
}

/// The address of a peer that no proxy stands before.
#[tokio::test]
async fn peer_is_the_client_without_a_proxy() {
    let api = TestApi::start().await;
    let request = Request::builder()
        .method(Method::POST)
        .uri("/v1/apps/shop/vapid-keys")
        .header("authorization", format!("Bearer {}", api.key))
        .header("content-type", "application/json")
        .header("x-forwarded-for", "203.0.113.9")
        .extension(axum::extract::ConnectInfo(std::net::SocketAddr::from(([192, 0, 2, 9], 4711))));
    api.send(request.body(Body::from("{}")).unwrap()).await.ok(201);
    assert_eq!(log(&api, "&action=vapid_key.activated").await[0]["address"], "192.0.2.9");
}
