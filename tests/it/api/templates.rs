//! Stored templates, and what is checked of a template before anything is sent.

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::api::{Reply, TestApi, fcm, high_rate_limits};

fn template(title: &str) -> Value {
    json!({"content": {"title": title}})
}

async fn put(api: &TestApi, name: &str, template: Value) -> Reply {
    api.call(Method::PUT, &format!("/v1/apps/shop/templates/{name}"), Some(&api.key), Some(template)).await
}

async fn count(api: &TestApi, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(&api.pool).await.unwrap()
}

#[tokio::test]
async fn template_is_stored_listed_and_removed() {
    let api = TestApi::start().await;
    let made = put(&api, "welcome", template("wh1sper {{ user_id }}")).await.ok(201);
    assert_eq!(
        (&made["name"], &made["template"]["content"]["title"]),
        (&json!("welcome"), &json!("wh1sper {{ user_id }}"))
    );
    put(&api, "other", template("T")).await.ok(201);
    let again = put(&api, "welcome", json!({"content": {"title": "Hi"}, "too_long": {"cut": "body"}})).await.ok(200);
    assert_eq!((&again["created_at"], &again["template"]["too_long"]), (&made["created_at"], &json!({"cut": "body"})));
    let listed = api.get("/templates?limit=1").await.ok(200);
    assert_eq!((&listed["data"][0]["name"], &listed["data"][0]["template"]), (&json!("other"), &Value::Null));
    let next = api.get(&format!("/templates?iterator={}", listed["iterator"].as_str().unwrap())).await.ok(200);
    assert_eq!((&next["data"][0]["name"], &next["done"]), (&json!("welcome"), &json!(true)));
    assert_eq!(api.get("/templates/welcome").await.ok(200)["template"], again["template"]);
    api.call(Method::DELETE, "/v1/apps/shop/templates/welcome", Some(&api.key), None).await.ok(204);
    for method in [Method::GET, Method::DELETE] {
        assert_eq!(api.call(method, "/v1/apps/shop/templates/welcome", Some(&api.key), None).await.status, 404);
    }
    let log = api.get("/audit-log").await.ok(200);
    let entries: Vec<_> = log["data"].as_array().unwrap().iter().filter(|e| e["target"] == "welcome").collect();
    let mut actions: Vec<_> = entries.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    actions.sort_unstable(); // all of one moment
    assert_eq!(actions, ["template.removed", "template.set", "template.set"]);
    assert!(!log.to_string().contains("wh1sper"));
    let plain = "SELECT count(*) FROM templates WHERE position('wh1sper'::bytea IN content) > 0";
    assert_eq!(count(&api, plain).await, 0);
    for name in ["Upper", "-dash", "a_b", &"x".repeat(65)] {
        assert_eq!(
            put(&api, name, template("T")).await.refusal(),
            (400, "invalid_parameter", vec!["template"]),
            "{name}"
        );
    }
}

#[tokio::test]
async fn wrong_template_is_refused_with_line_and_column() {
    let api = TestApi::start().await;
    let wrong = json!({
        "content": {"title": "{{ name }}", "body": "a\n{{ user_id | shout }}", "url": "ftp://a.example/"},
        "locales": {"de": {"content": {"title": "{% if %}"}}}
    });
    let refused = put(&api, "welcome", wrong).await;
    let pointers = ["/content/title", "/content/body", "/content/url", "/locales/de/content/title"];
    assert_eq!(refused.refusal(), (422, "invalid", pointers.to_vec()));
    let details: Vec<_> =
        refused.json["errors"].as_array().unwrap().iter().map(|e| e["detail"].as_str().unwrap()).collect();
    assert!(details[0].starts_with("line 1, column 4: `name` is not defined; known are `user_id`"), "{details:?}");
    assert!(details[1].starts_with("line 2, column ") && details[1].contains("`shout` is no filter"), "{details:?}");
    let unknown = put(&api, "welcome", json!({"content": {"title": "T", "colour": "red"}, "too_long": "shrink"})).await;
    assert_eq!(unknown.refusal().0, 422);
    let large = put(&api, "welcome", json!({"content": {"title": "T", "data": {"a": vec!["x"; 12_000]}}})).await;
    assert_eq!(large.refusal(), (422, "invalid", vec![""]));
    assert_eq!(count(&api, "SELECT count(*) FROM templates").await, 0);
}

#[tokio::test]
async fn templated_message_is_tried_on_real_recipients() {
    let api = TestApi::start().await;
    put(&api, "city", template("In {{ data.city }}")).await.ok(201);
    let refusal = async |body: Value| {
        let reply = api.post("/messages", body).await;
        let (status, _, places) = reply.refusal();
        let places: Vec<String> = places.into_iter().map(str::to_owned).collect();
        (status, places, reply.json["errors"][0]["detail"].as_str().unwrap_or_default().to_owned())
    };
    let to = json!({"all": true});
    for (more, pointer, words) in [
        (json!({"template": "none"}), "/template", "names a template that does not exist in this app"),
        (json!({"template": "No!"}), "/template", "must be 1 to 64 lower-case"),
        (json!({"template": "city"}), "/template", "/content/title: line 1, column 7: `data.city` is not defined"),
        (
            json!({"template": template("{{ data.x }}")}),
            "/template/content/title",
            "line 1, column 4: `data.x` is not defined",
        ),
        (json!({"template": template("T"), "content": {"title": "T"}}), "/content", "cannot be combined with"),
        (json!({"template": template("T"), "payload": "x"}), "/payload", "cannot be combined with"),
        (json!({"content": {"title": "T"}, "data": {}}), "/data", "only with `template`"),
        (json!({"template": template("T"), "data": {"x": "x".repeat(9_000)}}), "/data", "at most 8192 octets"),
        (
            json!({"template": {"content": {"title": "T", "body": "{{ data.x }}"}}, "data": {"x": "x".repeat(3_000)}}),
            "/template/content/body",
            "at most 2000 characters",
        ),
        (json!({}), "/content", "give `content`, `payload` or `template`"),
    ] {
        let mut body = json!({"to": to});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (status, places, detail) = refusal(body.clone()).await;
        assert_eq!((status, places), (422, vec![pointer.to_owned()]), "{body}");
        assert!(detail.contains(words), "{detail}");
    }
    api.subscribe(&fcm("ann"), json!({"user_id": "ann", "attributes": {"name": "Ann"}})).await;
    api.subscribe(&fcm("bea"), json!({"user_id": "bea", "attributes": {"name": "s3cr3t".repeat(60)}})).await;
    let named = json!({"to": to, "template": template("{{ attributes.nmae }}")});
    let (status, places, detail) = refusal(named.clone()).await;
    assert_eq!((status, places), (422, vec!["/template/content/title".to_owned()]));
    assert!(detail.ends_with("`| default(…)` gives it a value (for 2 of 2 recipients that were tried)"), "{detail}");
    assert!(!detail.contains("s3cr3t"));
    let dry = api.post("/messages?dry_run=true", named).await;
    assert_eq!(dry.refusal().0, 422, "a dry run tries as much");
    let long = json!({"to": to, "template": template("{{ attributes.name }}")});
    let taken = api.post("/messages", long).await.ok(202);
    assert_eq!(
        taken["warnings"][0]["pointer"], "/template/content/title",
        "it is for the template's own rule: {taken}"
    );
    assert_eq!(count(&api, "SELECT count(*) FROM messages").await, 1);
}

#[tokio::test]
async fn batch_messages_use_stored_or_own_templates() {
    let api = TestApi::with(high_rate_limits(), None).await;
    api.subscribe(&fcm("ann"), json!({"user_id": "ann", "attributes": {"name": "Ann"}})).await;
    put(&api, "code", template("{{ attributes.name }}: {{ data.code }}")).await.ok(201);
    let message = |template: Value, data: Value| json!({"to": {"users": ["ann"]}, "template": template, "data": data});
    let messages = json!([
        message(json!("code"), json!({"code": 1})),
        message(json!("code"), json!({"code": 2})),
        message(json!("code"), json!({})),
        message(template("{{ attributes.nmae }}"), json!({})),
        message(json!("none"), json!({})),
    ]);
    let sent = api.post("/messages/batch", json!({"messages": messages})).await.ok(200);
    let statuses: Vec<_> = sent["results"].as_array().unwrap().iter().map(|r| r["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [202, 202, 422, 422, 422]);
    assert_eq!(sent["results"][2]["problem"]["errors"][0]["pointer"], "/messages/2/template");
}

#[tokio::test]
async fn preview_shows_each_language_with_its_size() {
    let api = TestApi::start().await;
    let made =
        api.subscribe(&fcm("ann"), json!({"user_id": "ann", "locale": "de-AT", "attributes": {"name": "Ann"}})).await;
    let template = json!({
        "content": {"title": "Hello {{ attributes.name }}", "url": "/for/{{ user_id }}"},
        "compact": {"title": "{{ attributes.short }}"},
        "locales": {"de": {"content": {"title": "Hallo {{ attributes.name }}, {{ data.city }}"}}}
    });
    let data = json!({"city": "Linz"});
    for whom in [
        json!({"user": "ann"}),
        json!({"subscription": made["id"]}),
        json!({"recipient": {"user_id": "ann", "locale": "de", "attributes": {"name": "Ann"}}}),
    ] {
        let mut body = json!({"template": template, "data": data});
        body.as_object_mut().unwrap().extend(whom.as_object().unwrap().clone());
        let shown = api.post("/templates/preview", body).await.ok(200);
        assert_eq!((&shown["locale"], shown["variants"].as_array().unwrap().len()), (&json!("de"), 2));
        let [own, german] = [&shown["variants"][0], &shown["variants"][1]];
        assert_eq!(own["content"], json!({"title": "Hello Ann", "url": "https://shop.example/for/ann"}));
        assert_eq!(own["faults"][0]["pointer"], "/template/compact/title");
        assert_eq!(
            german["content"],
            json!({"title": "Hallo Ann, Linz", "url": "https://shop.example/", "lang": "de"})
        );
        assert_eq!((&german["locale"], &german["faults"]), (&json!("de"), &json!([])));
        // What the byte meter of the composer counts: the same JSON without our envelope.
        let sent = r#"{"web_push":8030,"mutable":true,"notification":{"title":"Hallo Ann, Linz","navigate":"https://shop.example/","mutable":true,"lang":"de"}}"#;
        assert_eq!(german["octets"], sent.len());
    }
    let nobody = api.post("/templates/preview", json!({"template": template, "data": data})).await.ok(200);
    assert_eq!((&nobody["locale"], &nobody["variants"][0]["content"]), (&Value::Null, &Value::Null));
    assert_eq!(nobody["variants"][0]["faults"][0]["pointer"], "/template/content/title");
    for (more, place) in [
        (json!({"user": "nobody"}), "/user"),
        (json!({"user": "\n"}), "/user"),
        (json!({"user": "ann", "recipient": {}}), ""),
        (json!({"recipient": {"attributes": {"x": "x".repeat(9_000)}}}), "/recipient"),
    ] {
        let mut body = json!({"template": template, "data": data});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(api.post("/templates/preview", body).await.refusal(), (422, "invalid", vec![place]));
    }
    assert_eq!(count(&api, "SELECT count(*) FROM messages").await, 0);
}

#[tokio::test]
async fn check_tries_all_recipients_and_lists_failures() {
    let api = TestApi::with(high_rate_limits(), None).await;
    for n in 0..30 {
        let attributes = match n {
            0..24 => json!({}),
            24 => json!({"name": "x".repeat(300)}),
            _ => json!({"name": "Ann"}),
        };
        let topics = if n >= 20 { json!(["news"]) } else { json!([]) };
        api.subscribe(
            &fcm(&n.to_string()),
            json!({"user_id": format!("u{n}"), "attributes": attributes, "topics": topics}),
        )
        .await;
    }
    let check = async |to: Value| {
        api.post("/templates/check", json!({"template": template("{{ attributes.name }}"), "to": to})).await
    };
    let all = check(json!({"all": true})).await.ok(200);
    let sums = |told: &Value| ["checked", "unrenderable", "too_long"].map(|name| told[name].as_u64().unwrap());
    assert_eq!((sums(&all), &all["done"]), ([30, 24, 1], &json!(true)));
    let failures = all["failures"].as_array().unwrap();
    assert_eq!(failures.len(), 20);
    assert_eq!(
        (&failures[0]["reason"], &failures[0]["pointer"]),
        (&json!("unrenderable"), &json!("/template/content/title"))
    );
    let topic = check(json!({"topic": "news"})).await.ok(200);
    assert_eq!((sums(&topic), topic["failures"].as_array().unwrap().len()), ([10, 4, 1], 5));
    let users = check(json!({"users": ["u0", "u29", "nobody"]})).await.ok(200);
    assert_eq!(sums(&users), [2, 1, 0]);
    assert_eq!(check(json!({})).await.refusal(), (422, "invalid", vec!["/to"]));
    assert_eq!(count(&api, "SELECT count(*) FROM messages").await, 0);
}

#[tokio::test]
async fn templated_content_follows_content_permission() {
    let api = TestApi::start().await;
    // What is for ten or fewer may be for one.
    for user in ["ann", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"] {
        api.subscribe(&fcm(user), json!({"user_id": user})).await;
    }
    let body = |to: Value| json!({"to": to, "template": template("{{ user_id }} {{ data.x }}"), "data": {"x": 1}});
    let sent = api.post("/messages", body(json!({"all": true}))).await.ok(202);
    let shown = api.get(&format!("/messages/{}/content", sent["id"].as_str().unwrap())).await.ok(200);
    assert_eq!((&shown["content_state"], &shown["data"]), (&json!("shown"), &json!({"x": 1})));
    assert_eq!(shown["template"]["content"]["title"], "{{ user_id }} {{ data.x }}");
    let sent = api.post("/messages", body(json!({"users": ["ann"]}))).await.ok(202);
    let withheld = api.get(&format!("/messages/{}/content", sent["id"].as_str().unwrap())).await.ok(200);
    assert_eq!(withheld, json!({"content_state": "withheld"}));
}

#[tokio::test]
async fn guide_examples_render_as_documented() {
    let api = TestApi::start().await;
    let guide = include_str!("../../../docs/templates.md");
    let blocks: Vec<Value> = guide
        .split("```json\n")
        .skip(1)
        .map(|rest| serde_json::from_str(rest.split("```").next().unwrap()).expect("JSON"))
        .collect();
    let previews: Vec<_> = blocks.chunks(2).collect();
    assert!(previews.len() >= 4, "requests and what comes of them follow each other");
    for pair in previews {
        let shown = api.post("/templates/preview", pair[0].clone()).await.ok(200);
        let variants = shown["variants"].as_array().unwrap();
        let chosen = variants.iter().find(|variant| variant["locale"] == shown["locale"]).unwrap();
        assert_eq!((&chosen["content"], &chosen["faults"]), (&pair[1], &json!([])), "{}", pair[0]);
    }
}

#[tokio::test]
async fn preview_of_known_people_needs_read_permission() {
    let api = TestApi::start().await;
    let attributes = json!({"user_id": "ann", "attributes": {"city": "Linz"}});
    let ann = api.subscribe(&fcm("ann"), attributes).await;
    let key = async |scopes: Value| {
        let made = api.post("/api-keys", json!({"name": "n", "scopes": scopes})).await.ok(201);
        made["secret"].as_str().unwrap().to_owned()
    };
    let (sender, reader) = (key(json!(["send"])).await, key(json!(["send", "read"])).await);
    let preview = async |key: &str, whom: Value| {
        let mut body = json!({"template": template("{{ attributes.city }}")});
        body.as_object_mut().unwrap().extend(whom.as_object().unwrap().clone());
        api.call(Method::POST, "/v1/apps/shop/templates/preview", Some(key), Some(body)).await
    };
    for whom in [json!({"user": "ann"}), json!({"subscription": ann["id"]}), json!({"user": "nobody"})] {
        let refused = preview(&sender, whom.clone()).await;
        assert_eq!(refused.refusal(), (403, "forbidden", vec![]), "{whom}");
        assert!(refused.json["detail"].as_str().unwrap().contains("`read`"), "{}", refused.json);
    }
    let title = |shown: Value| shown["variants"][0]["content"]["title"].clone();
    for whom in [json!({"user": "ann"}), json!({"subscription": ann["id"]})] {
        assert_eq!(title(preview(&reader, whom).await.ok(200)), "Linz");
    }
    let made_up = json!({"recipient": {"attributes": {"city": "Graz"}}});
    assert_eq!(title(preview(&sender, made_up).await.ok(200)), "Graz");
    preview(&sender, json!({})).await.ok(200);
    let teammate = api.teammate("sam@example.com", json!([{"app": "shop", "role": "sender"}])).await;
    let body = Some(json!({"template": template("{{ attributes.city }}"), "user": "ann"}));
    assert_eq!(title(teammate.call(Method::POST, "/v1/apps/shop/templates/preview", body).await.ok(200)), "Linz");
}
