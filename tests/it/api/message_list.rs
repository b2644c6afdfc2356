//! Message list: filters, progress, and messages to many recipients.

use std::time::Duration;

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::api::{TestApi, content, fcm, high_rate_limits};

/// The ids of a page, the newest first.
async fn listed(api: &TestApi, query: &str) -> Vec<String> {
    let page = api.get(&format!("/messages?{query}")).await.ok(200);
    page["data"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

async fn sent(api: &TestApi, to: Value, tier: &str) -> String {
    api.clock.advance(Duration::from_secs(1)); // ids of one millisecond are in no order
    let body = json!({"to": to, "tier": tier, "content": content()});
    api.post("/messages", body).await.ok(202)["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn list_filters_by_state_tier_and_topic() {
    let api = TestApi::start().await;
    let ann = api.subscribe(&fcm("ann"), json!({"topics": ["news", "offers"]})).await["id"].clone();
    let code = sent(&api, json!({"subscriptions": [ann]}), "transactional").await;
    let news = sent(&api, json!({"topic": "news"}), "promotional").await;
    let offers = sent(&api, json!({"topic": "offers"}), "promotional").await;
    let digest = sent(&api, json!({"all": true}), "engagement").await;
    let done = sent(&api, json!({"users": ["nobody"]}), "transactional").await;
    api.post(&format!("/messages/{news}/pause"), Value::Null).await.ok(200);
    api.post(&format!("/messages/{digest}/cancel"), Value::Null).await.ok(200);
    for (query, expected) in [
        ("", vec![&done, &digest, &offers, &news, &code]),
        ("state=sending", vec![&offers, &code]),
        ("state=paused", vec![&news]),
        ("state=cancelled", vec![&digest]),
        ("state=done", vec![&done]),
        ("tier=promotional", vec![&offers, &news]),
        ("tier=1&state=done", vec![&done]),
        ("topic=news", vec![&news]),
        ("topic=news&state=sending", vec![]),
    ] {
        assert_eq!(listed(&api, query).await.iter().collect::<Vec<_>>(), expected, "{query}");
    }
    // Pages of it lead from one to the next.
    let first = api.get("/messages?tier=transactional&limit=1").await;
    assert!(first.header("link").contains("tier=transactional"), "{:?}", first.headers);
    let first = first.ok(200);
    assert_eq!((&first["data"][0]["id"], &first["done"]), (&json!(done), &json!(false)));
    let query = format!("tier=transactional&limit=1&iterator={}", first["iterator"].as_str().unwrap());
    assert_eq!(listed(&api, &query).await, [code]);
}

#[tokio::test]
async fn filtered_page_scans_a_bounded_number() {
    let api = TestApi::start().await;
    let rare = sent(&api, json!({"users": ["nobody"]}), "engagement").await;
    sqlx::query(
        "INSERT INTO messages (id, app, tier, state, audience, content, ttl_s, urgency, audience_estimate, accepted_at, expires_at)
         SELECT ('ffffffff-0000-0000-0000-' || lpad(to_hex(n), 12, '0'))::uuid, app, 1, state, audience, content, ttl_s, urgency, 0, accepted_at, expires_at
         FROM messages, generate_series(1, 5000) n",
    )
    .execute(&api.pool)
    .await
    .unwrap();
    let page = api.get("/messages?tier=engagement").await.ok(200);
    assert_eq!((&page["data"], &page["done"]), (&json!([]), &json!(false)), "not found yet, and said so");
    let query = format!("tier=engagement&iterator={}", page["iterator"].as_str().unwrap());
    let page = api.get(&format!("/messages?{query}")).await.ok(200);
    assert_eq!((&page["data"][0]["id"], &page["done"], &page["iterator"]), (&json!(rare), &json!(true), &Value::Null));
}

#[tokio::test]
async fn listed_message_shows_its_progress() {
    let api = TestApi::start().await;
    for n in 0..4 {
        api.subscribe(&fcm(&n.to_string()), json!({})).await;
    }
    let message = sent(&api, json!({"all": true}), "promotional").await;
    sqlx::query("UPDATE message_counts SET accepted = 2, dead = 1").execute(&api.pool).await.unwrap();
    sqlx::query(
        "INSERT INTO receipt_counts (message, acknowledged, displayed, clicked) SELECT id, 2, 2, 1 FROM messages",
    )
    .execute(&api.pool)
    .await
    .unwrap();
    sent(&api, json!({"users": ["nobody"]}), "promotional").await;
    let page = api.get("/messages").await.ok(200);
    let nothing = json!({"targeted": 0, "waiting": 0, "accepted": 0, "gone": 0, "expired": 0, "dead": 0, "cancelled": 0, "capped": 0,
        "displayed": 0, "clicked": 0});
    assert_eq!(page["data"][0]["progress"], nothing);
    let some = json!({"targeted": 4, "waiting": 1, "accepted": 2, "gone": 0, "expired": 0, "dead": 1, "cancelled": 0, "capped": 0,
        "displayed": 2, "clicked": 1});
    assert_eq!((&page["data"][1]["id"], &page["data"][1]["progress"]), (&json!(message), &some));
    assert_eq!(page["data"][1]["counts"], Value::Null, "which are counted for one message at a time");
}

#[tokio::test]
async fn broadcast_content_needs_the_send_scope() {
    let api = TestApi::start().await;
    let ann = api.subscribe(&fcm("ann"), json!({"user_id": "ann", "topics": ["news", "few"]})).await["id"].clone();
    for n in 0..10 {
        let topics: &[&str] = if n < 9 { &["news", "few"] } else { &["news"] };
        api.subscribe(&fcm(&n.to_string()), json!({"topics": topics})).await;
    }
    let notification =
        json!({"title": "Autumn sale", "body": "Everything must go", "url": "https://shop.example/sale"});
    let say = async |to: Value, what: Value| {
        let mut body = json!({"to": to});
        body.as_object_mut().unwrap().extend(what.as_object().unwrap().clone());
        api.post("/messages", body).await.ok(202)["id"].as_str().unwrap().to_owned()
    };
    let news = say(
        json!({"topic": "news"}),
        json!({"content": notification, "compact": {"title": "Sale", "url": "https://shop.example/"}}),
    )
    .await;
    let all = say(json!({"all": true}), json!({"payload": "{\"sale\":1}"})).await;
    let few = say(json!({"topic": "few"}), json!({"content": {"title": "Your code is 4710"}})).await;
    let code = say(json!({"subscriptions": [ann]}), json!({"content": {"title": "Your code is 4711"}})).await;
    let to_ann = say(json!({"users": ["ann"]}), json!({"content": {"title": "Your code is 4712"}})).await;

    let shown = |id: &str| format!("/messages/{id}/content");
    assert_eq!(
        api.get(&shown(&news)).await.ok(200),
        json!({"content_state": "shown", "content": notification, "compact": {"title": "Sale", "url": "https://shop.example/"}})
    );
    let raw = json!({"content_state": "shown", "payload": "{\"sale\":1}", "envelope": true});
    assert_eq!(api.get(&shown(&all)).await.ok(200), raw);
    // A topic may have been made for one person, who has some browsers.
    for to_somebody in [&few, &code, &to_ann] {
        assert_eq!(api.get(&shown(to_somebody)).await.ok(200), json!({"content_state": "withheld"}));
    }
    let viewer = api.teammate("viewer@example.com", json!([{"role": "viewer", "app": "shop"}])).await;
    let sender = api.teammate("sender@example.com", json!([{"role": "sender", "app": "shop"}])).await;
    let path = format!("/v1/apps/shop{}", shown(&news));
    assert_eq!(viewer.get(&path).await.ok(200), json!({"content_state": "withheld"}));
    assert_eq!(sender.get(&path).await.ok(200)["content"]["title"], "Autumn sale");

    // What is deleted is said to be, and another app has no such message.
    sqlx::query("UPDATE messages SET content = NULL").execute(&api.pool).await.unwrap();
    assert_eq!(api.get(&shown(&news)).await.ok(200), json!({"content_state": "deleted"}));
    let (_, stranger) = api.make_app("other").await;
    let elsewhere = format!("/v1/apps/other{}", shown(&news));
    assert_eq!(api.call(Method::GET, &elsewhere, Some(&stranger), None).await.status, 404);
}

/// Titles of a list by the ids of their messages. Null: absent.
fn titles(list: &Value, ids: &[&String]) -> Vec<Value> {
    let rows = list["data"].as_array().unwrap();
    let of = |id: &String| rows.iter().find(|row| row["id"] == **id || row["message"] == **id);
    ids.iter().map(|id| of(id).unwrap_or_else(|| panic!("{id} in {rows:?}"))["title"].clone()).collect()
}

#[tokio::test]
async fn only_callers_who_may_send_see_titles() {
    let api = TestApi::start().await;
    for n in 0..11 {
        let topics: &[&str] = if n < 10 { &["few", "news"] } else { &["news"] };
        api.subscribe(&fcm(&n.to_string()), json!({"user_id": format!("u{n}"), "topics": topics})).await;
    }
    api.put("/templates/code", json!({"content": {"title": "Code for {{ user_id }}"}})).await.ok(201);
    let say = async |to: Value, what: Value| {
        let mut body = json!({"to": to});
        body.as_object_mut().unwrap().extend(what.as_object().unwrap().clone());
        api.post("/messages", body).await.ok(202)["id"].as_str().unwrap().to_owned()
    };
    let sale = || json!({"content": {"title": "Sale"}});
    let all = say(json!({"all": true}), sale()).await;
    let segment = say(json!({"segment": "not tag('nobody')"}), sale()).await;
    let inline = say(json!({"topic": "news"}), json!({"template": {"content": {"title": "{{ user_id }}"}}})).await;
    let stored = say(json!({"users": ["u1"]}), json!({"template": "code"})).await;
    let readable = [&all, &segment, &inline, &stored];
    // These are shown to no caller: each may be for one person.
    let few = say(json!({"topic": "few"}), sale()).await;
    let user = say(json!({"users": ["u1"]}), sale()).await;
    let private = say(json!({"users": ["u1"]}), json!({"template": {"content": {"title": "Code 4711"}}})).await;
    let raw = say(json!({"all": true}), json!({"payload": "{}"})).await;
    let sealed = [&few, &user, &private, &raw];

    let mut lists = Vec::new();
    let (list, one) = ("/v1/apps/shop/messages", format!("/v1/apps/shop/messages/{all}"));
    let found = "/v1/apps/shop/deliveries?user_id=u1";
    for role in ["viewer", "sender", "operator", "admin"] {
        let caller = api.teammate(&format!("{role}@example.com"), json!([{"role": role, "app": "shop"}])).await;
        let replies = [caller.get(list).await.ok(200), caller.get(&one).await.ok(200), caller.get(found).await.ok(200)];
        lists.push((role, role != "viewer", replies));
    }
    for (name, scopes) in [("reads", json!(["read", "export"])), ("sends", json!(["read", "send"]))] {
        let made = api.post("/api-keys", json!({"name": name, "scopes": scopes})).await.ok(201);
        let key = made["secret"].as_str();
        let get = async |path| api.call(Method::GET, path, key, None).await.ok(200);
        lists.push((name, name == "sends", [get(list).await, get(&one).await, get(found).await]));
    }
    for (caller, sees, [list, one, found]) in lists {
        let shown = |title: &str| if sees { json!(title) } else { Value::Null };
        let expected = [shown("Sale"), shown("Sale"), shown("{{ user_id }}"), shown("Code for {{ user_id }}")];
        assert_eq!(titles(&list, &readable), expected, "{caller}");
        assert_eq!(titles(&list, &sealed), vec![Value::Null; 4], "{caller}");
        assert_eq!(one["title"], shown("Sale"), "{caller}");
        assert_eq!(titles(&found, &[&stored, &user]), [shown("Code for {{ user_id }}"), Value::Null], "{caller}");
    }
}

#[tokio::test]
async fn message_shows_its_sender_on_all_paths() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let ann = api.subscribe(&fcm("ann"), json!({"user_id": "ann"})).await["id"].clone();
    for n in 0..100 {
        api.subscribe(&fcm(&n.to_string()), json!({})).await; // so that a message to all is fanned out
    }
    let key = api.get("/api-keys").await.ok(200)["data"][0]["id"].clone();
    let to = |to: Value| json!({"to": to, "content": content()});
    let (one, all) = (to(json!({"subscriptions": [ann]})), to(json!({"all": true})));
    let mut sent = Vec::new();
    for body in [&one, &all] {
        sent.push((api.post("/messages", body.clone()).await.ok(202)["id"].clone(), key.clone()));
    }
    let batch = api.post("/messages/batch", json!({"messages": [one]})).await.ok(200);
    sent.push((batch["results"][0]["message"]["id"].clone(), key.clone()));
    let ben = api.teammate("ben@example.com", json!([{"role": "sender", "app": "shop"}])).await;
    for body in [&one, &all] {
        let reply = ben.call(Method::POST, "/v1/apps/shop/messages", Some(body.clone())).await.ok(202);
        sent.push((reply["id"].clone(), json!(ben.teammate())));
    }
    for (message, sender) in &sent {
        let shown = api.get(&format!("/messages/{}", message.as_str().unwrap_or("?"))).await.ok(200);
        assert_eq!(shown["sent_by"], *sender, "{shown}");
    }
    let listed = api.get("/messages").await.ok(200)["data"].clone();
    for (message, sender) in &sent {
        let row = listed.as_array().unwrap().iter().find(|row| row["id"] == *message).unwrap();
        assert_eq!(row["sent_by"], *sender);
    }
}
