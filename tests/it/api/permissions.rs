//! Data that browsers may set about themselves, data that only servers may set, and the topics of both.

use axum::http::Method;
use bellwire::testkit::server::maintenance::{self, Retention};
use bellwire_telemetry::metrics::Metrics;
use serde_json::{Value, json};

use crate::support::api::{Reply, TestApi, content, fcm, high_rate_limits, registration};
use crate::support::app::{DAY, RETENTION};

/// App with default permissions, the open topic `news` and the closed topic `staff`.
async fn strict() -> TestApi {
    let api = TestApi::with(high_rate_limits(), None).await;
    let app = allow(&api, json!([])).await;
    assert_eq!(app["browsers_may"], json!([]));
    api.put("/topics/news", json!({})).await.ok(201);
    api.put("/topics/staff", json!({"join": "server"})).await.ok(201);
    api
}

async fn allow(api: &TestApi, rights: Value) -> Value {
    let change = json!({"browsers_may": rights});
    api.call(Method::PATCH, "/v1/apps/shop", Some(&api.key), Some(change)).await.ok(200)
}

async fn register(api: &TestApi, name: &str, more: Value) -> Reply {
    api.browse(Method::POST, "/subscriptions", None, Some(registration(&fcm(name), more))).await
}

async fn change(api: &TestApi, subscription: &Value, wish: Value) -> Value {
    let path = format!("/subscriptions/{}", subscription["id"].as_str().unwrap());
    api.browse(Method::PATCH, &path, subscription["token"].as_str(), Some(wish)).await.ok(200)
}

/// The same by the app's server.
async fn change_as_server(api: &TestApi, subscription: &Value, wish: Value) -> Value {
    let path = format!("/v1/apps/shop/subscriptions/{}", subscription["id"].as_str().unwrap());
    api.call(Method::PATCH, &path, Some(&api.key), Some(wish)).await.ok(200)
}

async fn act(api: &TestApi, method: Method, path: &str, body: Option<Value>) -> Reply {
    api.call(method, &format!("/v1/apps/shop{path}"), Some(&api.key), body).await
}

/// Pointer and code of each thing that was left out.
fn refused(answer: &Value) -> Vec<(&str, &str)> {
    let told = answer["refused"].as_array().map_or(&[][..], Vec::as_slice);
    told.iter().map(|one| (one["pointer"].as_str().unwrap(), one["code"].as_str().unwrap())).collect()
}

async fn number(api: &TestApi, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(&api.pool).await.unwrap()
}

async fn keep_house(api: &TestApi) {
    let retention = Retention { history: 90 * DAY, archive: 30 * DAY, ..RETENTION };
    maintenance::keep_house(&api.pool, api.clock.now(), retention).await.unwrap();
}

#[tokio::test]
async fn browser_may_only_join_open_topics() {
    let api = strict().await;
    let wish = json!({"topics": ["vip", "news", "staff"], "tags": ["is_admin"], "attributes": {"plan": "pro"},
        "locale": "de-AT", "timezone": "Europe/Vienna"});
    let made = register(&api, "a", wish.clone()).await.ok(201);
    assert_eq!((&made["topics"], &made["tags"], &made["attributes"]), (&json!(["news"]), &json!([]), &json!({})));
    assert_eq!((&made["locale"], &made["timezone"]), (&json!("de-AT"), &json!("Europe/Vienna")));
    let told = [
        ("/tags", "tags_of_browsers"),
        ("/attributes", "attributes_of_browsers"),
        ("/topics/0", "topic_unknown"),
        ("/topics/2", "topic_closed"),
    ];
    assert_eq!(refused(&made), told);
    assert_eq!(api.get("/topics/vip").await.status, 404);
    let commands = [
        "`bellwire app change shop --browsers-may set_tags`",
        "`bellwire app change shop --browsers-may set_attributes`",
        "`bellwire topic create vip --app shop`",
        "`bellwire topic change staff --app shop --join anyone`",
    ];
    for (one, command) in made["refused"].as_array().unwrap().iter().zip(commands) {
        assert!(one["detail"].as_str().unwrap().contains(command), "{one}");
    }
    assert_eq!(refused(&change(&api, &made, wish.clone()).await), told, "its token allows no more");
    let again = register(&api, "b", json!({"topics": ["news"], "locale": "de"})).await.ok(201);
    assert_eq!(again.get("refused"), None, "{again}");
    assert_eq!(change(&api, &again, json!({"topics": []})).await["topics"], json!([]), "what it joined it may leave");
}

#[tokio::test]
async fn browser_rights_are_granted_separately() {
    let api = strict().await;
    let wish = json!({"topics": ["made"], "tags": ["t"], "attributes": {"n": 1}});
    let made = register(&api, "a", wish.clone()).await.ok(201);
    allow(&api, json!(["set_tags"])).await;
    let changed = change(&api, &made, wish.clone()).await;
    assert_eq!((&changed["tags"], &changed["attributes"]), (&json!(["t"]), &json!({})));
    let told = changed["refused"].to_string();
    assert!(told.contains("--browsers-may set_tags,set_attributes`"), "{told}");
    allow(&api, json!(["set_attributes"])).await;
    let changed = change(&api, &made, wish.clone()).await;
    assert_eq!((&changed["attributes"], refused(&changed)), (&json!({"n": 1}), vec![("/topics/0", "topic_unknown")]));
    allow(&api, json!(["create_topics"])).await;
    let changed = change(&api, &made, wish).await;
    assert_eq!((&changed["topics"], changed.get("refused")), (&json!(["made"]), None), "the rest is as wished by now");
    let topic = api.get("/topics/made").await.ok(200);
    assert_eq!((&topic["made_by"], &topic["join"]), (&json!("browser"), &json!("anyone")));
    let wrong = json!({"browsers_may": ["create_topics", "everything"]});
    let wrong = api.call(Method::PATCH, "/v1/apps/shop", Some(&api.key), Some(wrong)).await;
    assert_eq!(wrong.refusal(), (422, "invalid", vec!["/browsers_may/1"]));
}

#[tokio::test]
async fn browser_cannot_change_server_values() {
    let api = strict().await;
    let made = register(&api, "a", json!({"topics": ["news"]})).await.ok(201);
    let details = json!({"topics": ["news", "staff"], "tags": ["employee"], "attributes": {"team": 7}});
    let set = change_as_server(&api, &made, details.clone()).await;
    assert_eq!((&set["topics"], set.get("refused")), (&json!(["news", "staff"]), None));
    for nothing in [
        json!({"topics": [], "tags": [], "attributes": null}),
        json!({"topics": null, "tags": null, "attributes": {"team": null}}),
    ] {
        let changed = change(&api, &made, nothing).await;
        assert_eq!((&changed["topics"], &changed["tags"]), (&json!(["staff"]), &json!(["employee"])));
        assert_eq!(changed["attributes"], json!({"team": 7}));
        assert_eq!(refused(&changed), [("/tags", "tags_of_browsers"), ("/attributes", "attributes_of_browsers")]);
    }
    let same = change(&api, &made, details).await;
    assert_eq!((&same["topics"], same.get("refused")), (&json!(["news", "staff"]), None), "nothing was left out");
    assert_eq!(change_as_server(&api, &made, json!({"topics": []})).await["topics"], json!([]), "a server may");
}

#[tokio::test]
async fn resubscribed_browser_keeps_its_server_values() {
    let api = strict().await;
    let old = register(&api, "old", json!({})).await.ok(201);
    change_as_server(&api, &old, json!({"topics": ["staff"], "tags": ["employee"]})).await;
    let stranger = register(&api, "stranger", json!({})).await.ok(201);
    let claim = json!({"replaces": {"id": old["id"], "token": stranger["token"]}});
    assert_eq!(register(&api, "thief", claim).await.refusal(), (422, "invalid", vec!["/replaces"]));
    let anew = json!({"replaces": {"id": old["id"], "token": old["token"]}, "topics": ["news"], "tags": []});
    let new = register(&api, "new", anew).await.ok(201);
    assert_eq!((&new["topics"], &new["tags"]), (&json!(["news", "staff"]), &json!(["employee"])));
    assert_eq!(refused(&new), [("/tags", "tags_of_browsers")]);
    assert_eq!(api.get("/topics/staff").await.ok(200)["members"], 1);
}

#[tokio::test]
async fn server_may_set_everything_and_create_topics() {
    let api = strict().await;
    let made =
        api.subscribe(&fcm("a"), json!({"topics": ["vip", "staff"], "tags": ["t"], "attributes": {"n": 1}})).await;
    assert_eq!((&made["topics"], &made["tags"], made.get("refused")), (&json!(["staff", "vip"]), &json!(["t"]), None));
    let vip = api.get("/topics/vip").await.ok(200);
    assert_eq!((&vip["made_by"], &vip["join"]), (&json!("server"), &json!("anyone")));
    let id = made["id"].as_str().unwrap();
    assert_eq!(act(&api, Method::PUT, &format!("/topics/beta/subscriptions/{id}"), None).await.status, 204);
    assert_eq!(api.get("/topics/beta").await.ok(200)["made_by"], "server");
}

#[tokio::test]
async fn topics_are_made_changed_and_removed() {
    let api = strict().await;
    let made = api.put("/topics/sport", json!({})).await.ok(201);
    let expected = json!({"name": "sport", "join": "anyone", "made_by": "server", "display": null, "members": 0,
        "created_at": made["created_at"]});
    assert_eq!(made, expected);
    assert_eq!(made.clone(), api.put("/topics/sport", json!({})).await.ok(200));
    assert_eq!(api.put("/topics/a%20b", json!({})).await.refusal(), (400, "invalid_parameter", vec!["topic"]));
    let odd = api.put("/topics/odd", json!({"join": "members"})).await;
    assert_eq!(odd.refusal(), (422, "invalid", vec!["/join"]));

    let member = register(&api, "a", json!({"topics": ["sport"]})).await.ok(201);
    let closed = act(&api, Method::PATCH, "/topics/sport", Some(json!({"join": "server"}))).await.ok(200);
    assert_eq!((&closed["join"], &closed["members"]), (&json!("server"), &json!(1)), "whoever is in it stays");
    assert_eq!(act(&api, Method::PATCH, "/topics/none", Some(json!({"join": "anyone"}))).await.status, 404);
    let late = register(&api, "b", json!({"topics": ["sport"]})).await.ok(201);
    assert_eq!(refused(&late), [("/topics/0", "topic_closed")]);

    act(&api, Method::PUT, "/policies/topics/sport", Some(json!({"maxAttempts": 1}))).await.ok(200);
    assert_eq!(act(&api, Method::DELETE, "/topics/sport", None).await.status, 204);
    assert_eq!(act(&api, Method::DELETE, "/topics/sport", None).await.refusal(), (404, "not_found", vec![]));
    assert_eq!(api.get("/policies/topics/sport").await.status, 404);
    let path = format!("/subscriptions/{}", member["id"].as_str().unwrap());
    let left = api.get(&path).await.ok(200);
    assert_eq!((&left["state"], &left["topics"]), (&json!("active"), &json!([])));

    api.put("/topics/sport", json!({})).await.ok(201);
    assert_eq!(api.get("/topics/sport").await.ok(200)["members"], 0, "another topic of the same name");
    maintenance::sweep(&api.pool, &api.vault, &Metrics::new(), api.clock.now()).await.unwrap();
    assert_eq!(number(&api, "SELECT count(*) FROM topic_members").await, 0);
    assert_eq!(number(&api, "SELECT count(*) FROM removed_topics").await, 0);
}

#[tokio::test]
async fn topic_stays_while_a_message_fans_out() {
    let api = strict().await;
    for n in 0..101 {
        api.subscribe(&fcm(&n.to_string()), json!({"topics": ["news"]})).await;
    }
    let sent = api.post("/messages", json!({"to": {"topic": "news"}, "content": content()})).await.ok(202);
    let message = sent["id"].as_str().unwrap();
    let early = act(&api, Method::DELETE, "/topics/news", None).await;
    assert_eq!(early.refusal(), (409, "topic_in_use", vec![]));
    assert!(early.json["detail"].as_str().unwrap().contains(message), "{}", early.json);
    api.post(&format!("/messages/{message}/cancel"), json!({})).await.ok(200);
    assert_eq!(act(&api, Method::DELETE, "/topics/news", None).await.status, 204);
    maintenance::sweep(&api.pool, &api.vault, &Metrics::new(), api.clock.now()).await.unwrap();
    assert_eq!(number(&api, "SELECT count(*) FROM topic_members").await, 0);
}

#[tokio::test]
async fn removed_topic_keeps_no_concurrent_member() {
    let api = TestApi::with(high_rate_limits(), None).await;
    let join = async |n: usize| drop(api.subscribe(&fcm(&n.to_string()), json!({"topics": ["t", "u"]})).await);
    let remove = async || {
        let reply = act(&api, Method::DELETE, "/topics/t", None).await;
        assert!(matches!(reply.status, 204 | 404), "{}", reply.json);
    };
    for round in 0..4 {
        let joining = futures_util::future::join_all((0..8).map(|n| join(round * 8 + n)));
        let removing = futures_util::future::join_all((0..4).map(|_| remove()));
        tokio::join!(joining, removing);
    }
    maintenance::sweep(&api.pool, &api.vault, &Metrics::new(), api.clock.now()).await.unwrap();
    let lost = "WITH known AS MATERIALIZED (SELECT id FROM topics) SELECT count(*) FROM topic_members WHERE topic <> ALL (ARRAY(SELECT id FROM known))";
    assert_eq!(number(&api, lost).await, 0);
    assert_eq!(api.get("/topics/u").await.ok(200)["members"], 32);
}

#[tokio::test]
async fn topics_that_browsers_make_leave_servers_their_share() {
    let api = strict().await;
    allow(&api, json!(["create_topics"])).await;
    let fill = "INSERT INTO topics (app, name, made_by, created_at)
                SELECT id, 'filler-' || n, 'browser', created_at FROM apps, generate_series(1, 999) AS n";
    sqlx::query(fill).execute(&api.pool).await.unwrap();
    let made = register(&api, "a", json!({"topics": ["the-last"]})).await.ok(201);
    assert_eq!(made["topics"], json!(["the-last"]));
    let full = change(&api, &made, json!({"topics": ["the-last", "one-more"]})).await;
    assert_eq!((&full["topics"], refused(&full)), (&json!(["the-last"]), vec![("/topics/1", "topics_of_browsers")]));
    api.put("/topics/one-more", json!({})).await.ok(201);
    assert_eq!(change(&api, &made, json!({"topics": ["one-more"]})).await["topics"], json!(["one-more"]));

    let fill = "INSERT INTO topics (app, name, created_at)
                SELECT id, 'more-' || n, created_at FROM apps, generate_series(1, 8997) AS n";
    sqlx::query(fill).execute(&api.pool).await.unwrap();
    assert_eq!(api.put("/topics/too-many", json!({})).await.refusal(), (409, "too_many_topics", vec![]));
    let change = change_as_server(&api, &made, json!({"topics": ["news"]})).await;
    assert_eq!(change["topics"], json!(["news"]));
    assert_eq!(act(&api, Method::DELETE, "/topics/more-1", None).await.status, 204);
    api.put("/topics/fits-again", json!({})).await.ok(201);
}

#[tokio::test]
async fn unused_browser_topics_end_after_a_week() {
    let api = strict().await;
    allow(&api, json!(["create_topics"])).await;
    let all = ["unused", "joined", "closed", "with-policy", "sent-to"];
    let made = register(&api, "a", json!({"topics": all})).await.ok(201);
    change(&api, &made, json!({"topics": ["joined"]})).await;
    act(&api, Method::PATCH, "/topics/closed", Some(json!({"join": "server"}))).await.ok(200);
    act(&api, Method::PUT, "/policies/topics/with-policy", Some(json!({"maxAttempts": 1}))).await.ok(200);
    api.clock.advance(6 * DAY);
    api.post("/messages", json!({"to": {"topic": "sent-to"}, "content": content()})).await.ok(202);
    let names = async || {
        let page = api.get("/topics").await.ok(200);
        let mut names: Vec<String> =
            page["data"].as_array().unwrap().iter().map(|topic| topic["name"].as_str().unwrap().to_owned()).collect();
        names.sort_unstable();
        names
    };
    keep_house(&api).await;
    assert_eq!(names().await.len(), 7, "they are young");
    api.clock.advance(2 * DAY);
    keep_house(&api).await;
    assert_eq!(names().await, ["closed", "joined", "news", "sent-to", "staff", "with-policy"]);
    api.clock.advance(7 * DAY);
    keep_house(&api).await;
    assert_eq!(names().await, ["closed", "joined", "news", "staff", "with-policy"]);
}

#[tokio::test]
async fn app_begins_with_topics_and_rights() {
    let api = TestApi::start().await;
    let new = json!({"slug": "new", "name": "New", "subject": "mailto:push@bellwire.dev", "topics": ["b", "a", "a"],
        "browsers_may": ["set_tags"]});
    let made = api.call(Method::POST, "/v1/apps", Some(&api.operator), Some(new.clone())).await.ok(201);
    assert_eq!(made["browsers_may"], json!(["set_tags"]));
    let topics = api.call(Method::GET, "/v1/apps/new/topics", Some(&api.operator), None).await.ok(200);
    assert_eq!(topics["data"].as_array().unwrap().iter().map(|topic| &topic["name"]).collect::<Vec<_>>(), ["b", "a"]);
    let mut wrong = new;
    (wrong["slug"], wrong["topics"]) = (json!("other"), json!(["a", "/"]));
    let refused = api.call(Method::POST, "/v1/apps", Some(&api.operator), Some(wrong)).await;
    assert_eq!(refused.refusal(), (422, "invalid", vec!["/topics/1"]));
}
