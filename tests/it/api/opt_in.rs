//! Settings of the prompt, and topics that pages offer.

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::api::TestApi;

const PROMPT: &str = "/prompt";

#[tokio::test]
async fn prompt_settings_reach_pages() {
    let api = TestApi::start().await;
    let unset = api.get(PROMPT).await.ok(200);
    assert_eq!((&unset["enabled"], &unset["visits"], &unset["texts"]), (&json!(false), &json!(1), &json!({})));
    let page = api.browse(Method::GET, "/config", None, None).await.ok(200);
    assert_eq!((&page["prompt"], &page["topics"]), (&unset, &json!([])));

    let written = json!({
        "enabled": true, "layout": "bar", "topics": ["news"], "visits": 2, "seconds": 10, "scroll_percent": 50,
        "event": "order", "share_percent": 20, "no_days": 365, "not_now_days": 1,
        "texts": {"de": {"title": "Neues erfahren?"}, "pt-BR": {"accept": "Sim"}},
        "variants": [{"name": "short", "weight": 3, "layout": null, "texts": {}}],
    });
    assert_eq!(api.put(PROMPT, written.clone()).await.ok(200), written);
    assert_eq!(api.get(PROMPT).await.ok(200), written);
    let page = api.browse(Method::GET, "/config", None, None).await.ok(200);
    assert_eq!(page["prompt"], written);
    let partial = api.put(PROMPT, json!({"visits": 3})).await.ok(200);
    assert_eq!(
        (&partial["enabled"], &partial["layout"], &partial["visits"]),
        (&json!(true), &json!("card"), &json!(3))
    );
}

#[tokio::test]
async fn wrong_prompt_settings_are_named() {
    let api = TestApi::start().await;
    let long = "x".repeat(301);
    let wrong = json!({
        "topics": ["no topic!"], "visits": 0, "seconds": 3_601, "scroll_percent": -1, "event": "", "share_percent": 101,
        "no_days": 0, "not_now_days": 366, "texts": {"not a language": {}, "de": {"titel": "x", "title": long}},
    });
    let refused = api.put(PROMPT, wrong).await;
    let (status, code, mut pointers) = refused.refusal();
    pointers.sort_unstable();
    assert_eq!((status, code), (422, "invalid"));
    let named = [
        "/event",
        "/no_days",
        "/not_now_days",
        "/scroll_percent",
        "/seconds",
        "/share_percent",
        "/texts/de/titel",
        "/texts/de/title",
        "/texts/not a language",
        "/topics/0",
        "/visits",
    ];
    assert_eq!(pointers, named);
    for (body, pointer) in [(json!({"layout": "window"}), "/layout"), (json!({"colour": "red"}), "/colour")] {
        assert_eq!(api.put(PROMPT, body).await.refusal().2, [pointer]);
    }
    let much: Value = (10..36)
        .map(|n| {
            (format!("l{n}"), json!({"title": "x".repeat(300), "body": "x".repeat(300), "accept": "x".repeat(300)}))
        })
        .collect();
    assert_eq!(api.put(PROMPT, json!({"texts": much})).await.refusal().2, ["/texts"]);
    assert_eq!(api.get(PROMPT).await.ok(200)["enabled"], false);
}

#[tokio::test]
async fn pages_offer_topics_in_their_order() {
    let api = TestApi::start().await;
    let topic = async |name: &str, body: Value| api.put(&format!("/topics/{name}"), body).await.json;
    let display = json!({
        "title": "News", "description": "Weekly", "position": 2, "texts": {"de": {"title": "Neuigkeiten"}},
    });
    assert_eq!(topic("news", json!({"display": display})).await["display"], display);
    topic("offers", json!({"display": {"title": "Offers", "position": 1}})).await;
    topic("staff", json!({"join": "server", "display": {"title": "Staff"}})).await;
    topic("hidden", json!({})).await;
    let offered = async || {
        let page = api.browse(Method::GET, "/config", None, None).await.ok(200);
        page["topics"].as_array().unwrap().clone()
    };
    let news = json!({
        "name": "news", "title": "News", "description": "Weekly", "texts": {"de": {"title": "Neuigkeiten"}},
    });
    let offers = json!({"name": "offers", "title": "Offers", "description": null, "texts": {}});
    assert_eq!(offered().await, [offers.clone(), news.clone()]);

    // Without the member, a topic keeps its entry. Null removes it.
    topic("news", json!({})).await;
    let first = json!({"display": {"title": "Aktuelles", "position": 0}});
    api.call(Method::PATCH, "/v1/apps/shop/topics/hidden", Some(&api.operator), Some(first)).await.ok(200);
    let null = json!({"display": null});
    api.call(Method::PATCH, "/v1/apps/shop/topics/offers", Some(&api.operator), Some(null)).await.ok(200);
    let names: Vec<Value> = offered().await.iter().map(|topic| topic["name"].clone()).collect();
    assert_eq!(names, ["hidden", "news"]);

    let wrong = json!({"display": {"title": "", "position": 1_001, "texts": {"d": {"title": "x", "description": ""}}}});
    let refused = api.put("/topics/news", wrong).await;
    let (_, _, mut pointers) = refused.refusal();
    pointers.sort_unstable();
    let named = ["/display/position", "/display/texts/d", "/display/texts/d/description", "/display/title"];
    assert_eq!(pointers, named);
}

#[tokio::test]
async fn pages_offer_at_most_fifty_topics() {
    let api = TestApi::start().await;
    for n in 0..51 {
        let display = json!({"display": {"title": format!("Topic {n:02}")}});
        api.put(&format!("/topics/t{n}"), display).await.ok(201);
    }
    let page = api.browse(Method::GET, "/config", None, None).await.ok(200);
    assert_eq!(page["topics"].as_array().unwrap().len(), 50);
}
