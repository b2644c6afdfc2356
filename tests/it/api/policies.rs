//! Delivery policies: who sets them where, what is refused, what a preview shows, and headers that beat a body.

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::api::{Reply, TestApi, content, fcm};

impl TestApi {
    async fn set_policy(&self, place: &str, policy: Value) -> Reply {
        self.call(Method::PUT, &format!("/v1/apps/shop/policies/{place}"), Some(&self.key), Some(policy)).await
    }

    async fn delete(&self, place: &str) -> Reply {
        self.call(Method::DELETE, &format!("/v1/apps/shop/policies/{place}"), Some(&self.key), None).await
    }

    async fn preview(&self, body: Value) -> Value {
        self.post("/policies/preview", body).await.ok(200)
    }

    async fn allow_retries(&self, n: i64) -> Reply {
        let change = json!({ "max_retries": n });
        self.call(Method::PATCH, "/v1/apps/shop", Some(&self.key), Some(change)).await
    }

    /// Sends to everybody under these headers.
    async fn send_under(&self, more: Value, headers: &[(&str, &str)]) -> Reply {
        let mut body = json!({"to": {"all": true}});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        if body.get("payload").is_none() {
            body["content"] = content();
        }
        self.call_with(Method::POST, "/v1/apps/shop/messages", Some(&self.key), Some(body), headers).await
    }
}

fn guide(attempts: u32) -> Value {
    json!({ "maxAttempts": attempts })
}

/// A policy that sets one member each of SNS's three.
fn sns(member: &str, n: u32) -> Value {
    match member {
        "retry" => json!({"healthyRetryPolicy": {"numRetries": n}}),
        "throttle" => json!({"throttlePolicy": {"maxReceivesPerSecond": n}}),
        "request" => json!({"requestPolicy": {"headerContentType": format!("text/plain; v={n}")}}),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn tier_policy_is_set_shown_and_removed() {
    let api = TestApi::start().await;
    let untouched = api.get("/policies/tiers/transactional").await.ok(200);
    assert_eq!(
        untouched,
        json!({"level": "tier", "name": "transactional", "policy": null, "in_force": {"baseDelayMs": 1000,
            "maxDelayMs": 60000, "maxAttempts": 8, "jitterPercent": 0.2, "immediateRetries": 1,
            "circuitFailureThreshold": 0.25, "circuitMinAttempts": 400, "circuitConsecutiveFailures": 5,
            "circuitOpenMs": 30000, "circuitOpenMaxMs": 60000, "retryTokenTtlSec": 300}})
    );
    let policy = json!({"healthyRetryPolicy": {"minDelayTarget": 0, "numRetries": 2}, "sicklyRetryPolicy": {"a": "x"},
        "guaranteed": false, "circuitOpenMs": 60000});
    let set = api.set_policy("tiers/1", policy).await.ok(200);
    let warned: Vec<_> = set["warnings"].as_array().unwrap().iter().map(|w| w["pointer"].as_str().unwrap()).collect();
    assert_eq!(warned, ["/sicklyRetryPolicy", "/guaranteed", "/healthyRetryPolicy/minDelayTarget"]);
    let kept = json!({"healthyRetryPolicy": {"minDelayTarget": 0, "numRetries": 2}, "circuitOpenMs": 60000});
    assert_eq!(set["policy"], kept, "what is ignored is not kept");
    assert_eq!((&set["name"], &set["in_force"]["circuitOpenMs"]), (&json!("transactional"), &json!(60000)));
    assert_eq!(set["in_force"]["healthyRetryPolicy"]["maxDelayTarget"], 20);

    api.set_policy("topics/news", guide(2)).await.ok(200);
    let all = api.get("/policies").await.ok(200);
    let tiers: Vec<_> = all["tiers"].as_array().unwrap().iter().map(|tier| tier["policy"].clone()).collect();
    assert_eq!(tiers, [kept, Value::Null, Value::Null]);
    assert_eq!(all["max_retries"], 5);
    assert_eq!(api.get("/policies/topics").await.ok(200)["data"][0]["name"], "news");
    assert_eq!(all["presets"], json!(["sns-aws-managed", "sns-customer-managed", "guide"]));

    for _ in 0..2 {
        api.delete("tiers/transactional").await.ok(204);
    }
    assert_eq!(api.get("/policies/tiers/1").await.ok(200), untouched);
    for bad in ["0", "4", "Promotional"] {
        let reply = api.get(&format!("/policies/tiers/{bad}")).await;
        assert_eq!(reply.refusal(), (400, "invalid_parameter", vec!["tier"]));
    }
}

#[tokio::test]
async fn topic_policy_precedes_members_and_survives_replacement() {
    let api = TestApi::start().await;
    assert_eq!(api.get("/policies/topics/news").await.status, 404);
    assert_eq!(api.delete("topics/news").await.status, 404);
    let policy = json!({"disableSubscriptionOverrides": true});
    api.set_policy("topics/news", policy.clone()).await.ok(200);
    let shown = api.get("/policies/topics/news").await.ok(200);
    assert_eq!(shown, json!({"level": "topic", "name": "news", "policy": policy}));
    assert_eq!(api.get("/topics/news").await.ok(200)["members"], 0);
    for name in ["a", "b"] {
        api.set_policy(&format!("topics/{name}"), guide(1)).await.ok(200);
    }
    api.delete("topics/a").await.ok(204);
    assert_eq!(api.get("/policies/topics/a").await.ok(200)["policy"], Value::Null);
    let page = api.get("/policies/topics?limit=1").await.ok(200);
    assert_eq!((&page["data"][0]["name"], &page["done"]), (&json!("b"), &json!(false)));
    let next = format!("/policies/topics?limit=1&iterator={}", page["iterator"].as_str().unwrap());
    let page = api.get(&next).await.ok(200);
    assert_eq!((&page["data"][0]["name"], &page["done"]), (&json!("news"), &json!(true)));

    let old = api.subscribe(&fcm("old"), json!({})).await;
    let at = |subscription: &Value| format!("subscriptions/{}", subscription["id"].as_str().unwrap());
    assert_eq!(api.set_policy(&at(&old), guide(3)).await.ok(200)["policy"], guide(3));
    let new = api.subscribe(&fcm("new"), json!({"replaces": {"id": old["id"]}})).await;
    assert_eq!(api.get(&format!("/policies/{}", at(&new))).await.ok(200)["policy"], guide(3));
    // One that was known already takes the policy on, too, unless it has its own.
    let known = api.subscribe(&fcm("known"), json!({})).await;
    api.subscribe(&fcm("known"), json!({"replaces": {"id": new["id"]}})).await;
    assert_eq!(api.get(&format!("/policies/{}", at(&known))).await.ok(200)["policy"], guide(3));
    api.set_policy(&at(&known), guide(4)).await.ok(200);
    let other = api.subscribe(&fcm("other"), json!({})).await;
    api.set_policy(&at(&other), guide(5)).await.ok(200);
    api.subscribe(&fcm("other"), json!({"replaces": {"id": known["id"]}})).await;
    assert_eq!(api.get(&format!("/policies/{}", at(&other))).await.ok(200)["policy"], guide(5));
    api.delete(&at(&new)).await.ok(204);
    assert_eq!(api.get(&format!("/policies/{}", at(&new))).await.ok(200)["policy"], Value::Null);
    let (_, stranger) = api.make_app("other").await;
    let theirs = format!("/v1/apps/other/policies/{}", at(&new));
    for (method, body) in [(Method::GET, None), (Method::PUT, Some(guide(1))), (Method::DELETE, None)] {
        assert_eq!(api.call(method, &theirs, Some(&stranger), body).await.status, 404, "another app's subscription");
    }
}

#[tokio::test]
async fn wrong_policy_is_refused_with_pointers_everywhere() {
    let api = TestApi::start().await;
    let subscription = api.subscribe(&fcm("a"), json!({})).await;
    let subscription = format!("subscriptions/{}", subscription["id"].as_str().unwrap());
    let places = ["tiers/2", "topics/news", subscription.as_str()];
    for (policy, pointer, word) in [
        (
            json!({"healthyRetryPolicy": {"minDelayTarget": 30}}),
            "/healthyRetryPolicy/minDelayTarget",
            "20 (the default)",
        ),
        (
            json!({"healthyRetryPolicy": {"minDelayTarget": 3600, "maxDelayTarget": 3600, "numRetries": 2}}),
            "/healthyRetryPolicy",
            "7200.00 s in total",
        ),
        (json!({"throttlePolicy": {"maxReceivesPerSecond": 0}}), "/throttlePolicy/maxReceivesPerSecond", "from 1"),
        (json!({"retries": 6}), "/retries", "maximum, 5"),
        (json!({"retryDelay": "1000 *"}), "/retryDelay", "at character 7"),
        (json!({"baseDelayMs": 0}), "/baseDelayMs", "from 1"),
        (json!({"baseDelayMs": 5, "retries": 1}), "", "mixes the forms"),
        (json!({"tries": 5}), "/tries", "unknown member"),
        (json!("fast"), "", "must be an object"),
        (json!([]), "", "must be an object"),
        (Value::Null, "", "must be an object"),
    ] {
        for place in places {
            let refused = api.set_policy(place, policy.clone()).await;
            assert_eq!(refused.refusal(), (422, "invalid", vec![pointer]), "{place} {policy}");
            assert!(refused.json["errors"][0]["detail"].as_str().unwrap().contains(word), "{}", refused.json);
        }
        let sent = api.send_under(json!({ "policy": policy }), &[]).await;
        if !policy.is_null() {
            assert_eq!(sent.refusal(), (422, "invalid", vec![format!("/policy{pointer}").as_str()]), "{policy}");
        }
        let tried = api.post("/policies/preview", json!({ "policy": policy })).await;
        assert_eq!(tried.status, if policy.is_null() { 200 } else { 422 });
    }
    for (policy, allowed) in [
        (json!({"circuitOpenMs": 5000}), "tiers/2"),
        (json!({"disableSubscriptionOverrides": false}), "topics/news"),
        (json!({"requestPolicy": {"headerContentType": "text/html"}}), ""),
    ] {
        for place in places {
            let fits = place == allowed || (allowed.is_empty() && place != "topics/news");
            assert_eq!(
                api.set_policy(place, policy.clone()).await.status,
                if fits { 200 } else { 422 },
                "{place} {policy}"
            );
        }
    }
}

#[tokio::test]
async fn registering_a_policy_needs_its_scope() {
    let app = crate::support::TestApp::start().await;
    let known = app.subscribe("fcm", 0..1).await.remove(0);
    let minted = app.simulator.mint("fcm.bellwire.test", 0, Some(&app.application_server_key)).unwrap();
    let with = |policy: Value| {
        json!({"policy": policy, "subscription": {"endpoint": minted.endpoint,
            "keys": {"p256dh": minted.p256dh, "auth": minted.auth}}})
    };
    const PATH: &str = "/v1/apps/shop/subscriptions";
    app.call(Method::POST, PATH, with(json!({"retries": 2}))).await.ok(200);
    let set = format!("/v1/apps/shop/policies/subscriptions/{}", known.id);
    assert_eq!(app.get(&set).await["policy"], json!({"retries": 2}));
    app.call(Method::POST, PATH, with(Value::Null)).await.ok(200);
    assert_eq!(app.get(&set).await["policy"], json!({"retries": 2}), "whoever says nothing changes nothing");
    let refreshed = app.call(Method::POST, PATH, with(sns("throttle", 4))).await.ok(200);
    assert_eq!(refreshed["warnings"][0]["pointer"], "/policy", "it says nothing of retries: {refreshed}");
    let refused = app.call(Method::POST, PATH, with(json!({"circuitOpenMs": 5_000}))).await;
    assert_eq!((refused.status, &refused.json["errors"][0]["pointer"]), (422, &json!("/policy/circuitOpenMs")));
    assert!(refused.json["errors"][0]["detail"].as_str().unwrap().contains("tier"), "{}", refused.json);
    let key = json!({"name": "registrar", "scopes": ["subscribers"]});
    let key = app.call(Method::POST, "/v1/apps/shop/api-keys", key).await.ok(201);
    let refused = app.call_as(Method::POST, PATH, key["secret"].as_str().unwrap(), with(json!({"retries": 9}))).await;
    assert_eq!(refused.status, 403, "{}", refused.json);
    app.finish().await;
}

#[tokio::test]
async fn policy_without_retries_is_reported() {
    let api = TestApi::start().await;
    let policy = json!({"policy": sns("throttle", 4)});
    let open = async |headers: &[(&str, &str)]| {
        let sent = api.send_under(policy.clone(), headers).await.ok(202);
        let warnings = sent["warnings"].as_array().cloned().unwrap_or_default();
        warnings.iter().filter(|warning| warning["pointer"] == "/policy").count()
    };
    assert_eq!(open(&[]).await, 1);
    assert_eq!(open(&[("bellwire-retries", "2")]).await, 0);
}

#[tokio::test]
async fn guide_breaker_names_use_guide_defaults() {
    let api = TestApi::start().await;
    for (policy, threshold) in [
        (json!({"circuitOpenMs": 45_000}), 0.05),
        (json!({"retryTokenTtlSec": 60}), 0.05),
        (json!({"circuitMinAttempts": 100}), 0.25),
        (json!({"circuitOpenMs": 45_000, "retries": 2}), 0.25),
    ] {
        let set = api.set_policy("tiers/3", policy.clone()).await.ok(200);
        assert_eq!(set["in_force"]["circuitFailureThreshold"], threshold, "{policy}");
    }
}

#[tokio::test]
async fn tier_is_read_by_number_or_refused() {
    let api = TestApi::start().await;
    let preview = api.preview(json!({"tier": 1})).await;
    assert_eq!(preview["tier"], "transactional");
    for wrong in [json!(4), json!("promo"), json!(true)] {
        let refused = api.post("/policies/preview", json!({ "tier": wrong })).await;
        assert_eq!(refused.refusal(), (422, "invalid", vec!["/tier"]), "{wrong}");
        let detail = refused.json["errors"][0]["detail"].as_str().unwrap();
        let rule = "must be `transactional`, `promotional` or `engagement` or `1`, `2` or `3`";
        assert_eq!(detail, format!("{rule} (found {wrong})"));
    }
}

#[tokio::test]
async fn app_maximum_bounds_and_cuts_retries() {
    let api = TestApi::start().await;
    assert_eq!(api.get("").await.ok(200)["max_retries"], 5);
    for bad in [-1, 1_001, 70_000] {
        assert_eq!(api.allow_retries(bad).await.refusal(), (422, "invalid", vec!["/max_retries"]));
    }
    assert_eq!(api.allow_retries(8).await.ok(200)["max_retries"], 8);
    assert_eq!(api.get("").await.ok(200)["max_retries"], 8);
    api.set_policy("tiers/2", json!({"retries": 8, "retryDelay": "1000"})).await.ok(200);
    assert_eq!(api.preview(json!({})).await["timetable"]["retries"], 8);
    assert_eq!(api.preview(json!({"policy": {"retryDelay": "1"}})).await["timetable"]["retries"], 8, "the default");
    let sent = api.send_under(json!({"policy": {"retries": 8}}), &[]).await;
    assert_eq!(sent.status, 202);
    api.allow_retries(3).await.ok(200);
    assert_eq!(api.preview(json!({})).await["timetable"]["retries"], 3);
    assert_eq!(api.get("/policies/tiers/2").await.ok(200)["in_force"]["retries"], 3);
    let refused = api.send_under(json!({"policy": {"retries": 8}}), &[]).await;
    assert_eq!(refused.refusal(), (422, "invalid", vec!["/policy/retries"]));
}

#[tokio::test]
async fn first_layer_that_sets_a_member_wins() {
    let api = TestApi::start().await;
    let subscription = api.subscribe(&fcm("a"), json!({})).await["id"].as_str().unwrap().to_owned();
    for member in ["retry", "throttle", "request"] {
        let of = async |policy: Option<Value>| {
            let mut body = json!({"tier": "engagement", "topic": "news", "subscription": subscription});
            if let Some(policy) = policy {
                body["policy"] = policy;
            }
            let shown = api.preview(body).await;
            let value = match member {
                "retry" => shown["timetable"]["retries"].clone(),
                "throttle" => shown["policy"]["throttlePolicy"]["maxReceivesPerSecond"].clone(),
                _ => shown["policy"]["requestPolicy"]["headerContentType"].clone(),
            };
            let said = &shown["set_by"];
            let others = ["retry", "throttle", "request"].into_iter().filter(|other| *other != member);
            assert!(others.clone().all(|other| said[other] == "default"), "{shown}");
            (said[member].as_str().unwrap().to_owned(), value)
        };
        let value = |n: u32| match member {
            "request" => json!(format!("text/plain; v={n}")),
            _ => json!(n),
        };
        api.set_policy("topics/news", json!({})).await.ok(200);
        let default = if member == "retry" { json!(5) } else { Value::Null };
        assert_eq!(of(None).await, ("default".into(), default));
        api.set_policy("tiers/3", sns(member, 4)).await.ok(200);
        assert_eq!(of(None).await, ("tier".into(), value(4)));
        api.set_policy("topics/news", sns(member, 3)).await.ok(200);
        assert_eq!(of(None).await, ("topic".into(), value(3)));
        api.set_policy(&format!("subscriptions/{subscription}"), sns(member, 2)).await.ok(200);
        assert_eq!(of(None).await, ("subscription".into(), value(2)));
        assert_eq!(of(Some(sns(member, 1))).await, ("message".into(), value(1)));
        // A topic that allows no overrides, once with a word of its own and once without.
        let mut silencing = sns(member, 3);
        silencing["disableSubscriptionOverrides"] = json!(true);
        api.set_policy("topics/news", silencing).await.ok(200);
        assert_eq!(of(None).await, ("topic".into(), value(3)));
        api.set_policy("topics/news", json!({"disableSubscriptionOverrides": true})).await.ok(200);
        assert_eq!(of(None).await, ("tier".into(), value(4)));
        assert_eq!(of(Some(sns(member, 1))).await, ("message".into(), value(1)));
        api.delete("tiers/3").await.ok(204);
        api.delete(&format!("subscriptions/{subscription}")).await.ok(204);
    }
}

#[tokio::test]
async fn a_preview_shows_the_timetable_and_sends_nothing() {
    let api = TestApi::start().await;
    let example = json!({"healthyRetryPolicy": {"minDelayTarget": 1, "maxDelayTarget": 60, "numRetries": 50,
        "numNoDelayRetries": 3, "numMinDelayRetries": 2, "numMaxDelayRetries": 35, "backoffFunction": "exponential"},
        "throttlePolicy": {"maxReceivesPerSecond": 10}, "guaranteed": false});
    let shown = api.preview(json!({ "policy": example })).await;
    let table = &shown["timetable"];
    assert_eq!((&table["form"], &table["retries"], &table["posts"]), (&json!("sns"), &json!(50), &json!(51)));
    let close = |value: &Value, expected: f64| (value.as_f64().unwrap() - expected).abs() < 0.005;
    assert!(close(&table["window_s"], 2_228.96) && close(&table["shortest_window_s"], 0.8 * 2_228.96), "{table}");
    let rows = table["rows"].as_array().unwrap();
    let phases: Vec<_> = rows.iter().map(|row| (row["first"].as_u64(), row["last"].as_u64(), &row["phase"])).collect();
    assert_eq!(phases[0], (Some(1), Some(3), &json!("immediate")));
    assert_eq!(phases[1], (Some(4), Some(5), &json!("pre_backoff")));
    assert_eq!(phases[phases.len() - 1], (Some(16), Some(50), &json!("post_backoff")));
    assert_eq!(shown["warnings"][0]["pointer"], "/policy/guaranteed");
    assert_eq!(shown["set_by"], json!({"retry": "message", "throttle": "message", "request": "default"}));

    let long = api.preview(json!({"policy": {"preset": "sns-aws-managed"}})).await;
    assert_eq!((&long["timetable"]["retries"], &long["when_throttled"]["retries"]), (&json!(4_332), &json!(50)));
    assert_eq!(long["timetable"]["cut_short"]["retries_allowed"], 100_015, "the time to live of a day ends before");
    assert!(long.to_string().len() < 8_192, "equal steps share a row");
    let presets = api.get("/policies/presets").await.ok(200)["data"].clone();
    assert!(close(&presets[0]["timetable"]["window_s"], 2_000_049.67), "{presets}");
    assert!(close(&presets[1]["timetable"]["window_s"], 24_089.61), "{presets}");
    for preset in presets.as_array().unwrap() {
        assert_eq!(preset["policy"], json!({"preset": preset["name"]}));
    }

    // As a policy of a place, it stands in for what is set there.
    api.set_policy("tiers/2", guide(2)).await.ok(200);
    let tried = api.preview(json!({"policy": guide(4), "level": "tier"})).await;
    assert_eq!((&tried["timetable"]["retries"], &tried["set_by"]["retry"]), (&json!(4), &json!("tier")));
    assert_eq!(api.preview(json!({})).await["timetable"]["retries"], 2, "nothing was stored");
    let new = json!({"policy": guide(4), "level": "topic", "topic": "not-yet"});
    assert_eq!(api.preview(new).await["set_by"]["retry"], "topic");

    let messages = api.get("/messages").await.ok(200);
    assert!(messages["data"].as_array().unwrap().is_empty() && api.told().is_empty());
}

#[tokio::test]
async fn preview_returns_text_or_chart() {
    let api = TestApi::start().await;
    let ask = |format: &str| {
        axum::http::Request::post(format!("/v1/apps/shop/policies/preview?format={format}"))
            .header("authorization", format!("Bearer {}", api.key))
            .header("content-type", "application/json")
            .body(axum::body::Body::from(json!({"policy": {"retries": 2, "retryDelay": "1500"}}).to_string()))
            .unwrap()
    };
    let answer = async |format: &str| {
        let response = tower::ServiceExt::oneshot(api.router.clone(), ask(format)).await.unwrap();
        let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
        let body = axum::body::to_bytes(response.into_body(), 65_536).await.unwrap();
        (kind, String::from_utf8(body.to_vec()).unwrap())
    };
    let (kind, svg) = answer("svg").await;
    assert!(kind == "image/svg+xml" && svg.starts_with("<svg ") && svg.contains("promotional"), "{svg}");
    let (kind, text) = answer("text").await;
    assert_eq!(kind, "text/plain; charset=utf-8");
    assert!(text.ends_with("2 retries, 3 POSTs at most, over 3.00 s (3.00–3.00 s with jitter)\n"), "{text}");
    assert_eq!(api.send(ask("pdf")).await.refusal(), (400, "invalid_parameter", vec!["format"]));
    for (body, pointer) in [
        (json!({"topic": "nobody-joined"}), "/topic"),
        (json!({"topic": "\0"}), "/topic"),
        (json!({"subscription": "sub_01920000-0000-7000-8000-000000000000"}), "/subscription"),
        (json!({"level": "tier"}), "/level"),
        (json!({"policy": {"circuitOpenMs": 5000}}), "/policy/circuitOpenMs"),
        (json!({"tiers": 1}), "/tiers"),
    ] {
        assert_eq!(
            api.post("/policies/preview", body.clone()).await.refusal(),
            (422, "invalid", vec![pointer]),
            "{body}"
        );
    }
}

#[tokio::test]
async fn unreadable_stored_policy_is_reported_and_skipped() {
    let api = TestApi::start().await;
    api.set_policy("tiers/2", guide(2)).await.ok(200);
    sqlx::query("UPDATE tier_settings SET policy = '{\"maxAttempts\": \"many\"}'").execute(&api.pool).await.unwrap();
    let shown = api.get("/policies/tiers/2").await.ok(200);
    assert_eq!(shown["in_force"]["maxAttempts"], 10);
    assert!(shown["warnings"][0]["detail"].as_str().unwrap().contains("skipped"), "{shown}");
    let preview = api.preview(json!({})).await;
    assert_eq!((&preview["timetable"]["retries"], &preview["set_by"]["retry"]), (&json!(10), &json!("default")));
    assert!(preview["warnings"][0]["detail"].as_str().unwrap().contains("maxAttempts"), "{preview}");
}

#[tokio::test]
async fn retry_headers_override_the_body() {
    let api = TestApi::start().await;
    let sns = json!({"healthyRetryPolicy": {"numRetries": 9}, "throttlePolicy": {"maxReceivesPerSecond": 2},
        "guaranteed": true});
    for (headers, body, policy) in [
        (&[("bellwire-retries", "3")][..], json!({}), json!({"retries": 3})),
        (
            &[("upstash-retries", "2"), ("upstash-retry-delay", "pow(2, retried) * 1000")],
            json!({"policy": {"retries": 4}}),
            json!({"retries": 2, "retryDelay": "pow(2, retried) * 1000"}),
        ),
        (
            &[("bellwire-retry-delay", "1000")],
            json!({"policy": sns}),
            json!({"retryDelay": "1000", "throttlePolicy": {"maxReceivesPerSecond": 2}}),
        ),
        (&[("bellwire-retries", "1"), ("upstash-retries", "1")], json!({"policy": guide(9)}), json!({"retries": 1})),
    ] {
        let sent = api.send_under(body.clone(), headers).await.ok(202);
        let shown = api.get(&format!("/messages/{}", sent["id"].as_str().unwrap())).await.ok(200);
        assert_eq!(shown["policy"], policy, "{headers:?} {body}");
        let warned = sent["warnings"].as_array().is_some_and(|all| all.iter().any(|one| one["pointer"] != "/to"));
        assert_eq!(warned, body["policy"].get("guaranteed").is_some(), "{sent}");
    }
}

#[tokio::test]
async fn wrong_retry_headers_are_named() {
    let api = TestApi::start().await;
    for (headers, name, word) in [
        (&[("bellwire-retries", "x")][..], "Bellwire-Retries", "integer"),
        (&[("upstash-retries", "6")], "Upstash-Retries", "maximum, 5"),
        (&[("bellwire-retry-delay", "1000 +")], "Bellwire-Retry-Delay", "at character 7"),
        (&[("upstash-retry-delay", "0 - 1")], "Upstash-Retry-Delay", "negative when retried is 0"),
        (&[("bellwire-retries", "1"), ("upstash-retries", "2")], "Upstash-Retries", "contradicts `Bellwire-Retries`"),
    ] {
        for path in ["/v1/apps/shop/messages", "/v1/apps/shop/messages?dry_run=true"] {
            let body = json!({"to": {"all": true}, "content": content()});
            let refused = api.call_with(Method::POST, path, Some(&api.key), Some(body), headers).await;
            assert_eq!(refused.refusal(), (400, "invalid_header", vec![name]), "{headers:?}");
            assert!(refused.json["errors"][0]["detail"].as_str().unwrap().contains(word), "{}", refused.json);
        }
    }
    let key = ("idempotency-key", "k");
    let first = api.send_under(json!({}), &[key, ("bellwire-retries", "1")]).await.ok(202);
    let again = api.send_under(json!({}), &[key, ("upstash-retries", "1")]).await.ok(202);
    assert_eq!(first["id"], again["id"]);
    for other in [&[key][..], &[key, ("bellwire-retries", "2")]] {
        assert_eq!(api.send_under(json!({}), other).await.refusal(), (422, "idempotency_key_reused", vec![]));
    }
}

#[tokio::test]
async fn raw_payload_leaves_room_for_content_type() {
    let api = TestApi::start().await;
    let policy = json!({"requestPolicy": {"headerContentType": "application/json"}});
    let send = async |octets: usize, envelope: bool, policy: Value| {
        let more = json!({"payload": "x".repeat(octets), "envelope": envelope, "policy": policy});
        api.send_under(more, &[]).await
    };
    // 17 octets for the member's name and quotes, 18 for the value; 5 of the envelope's reserve were free.
    assert_eq!(send(3_833 + 5 - 34, true, policy.clone()).await.status, 202);
    let refused = send(3_833 + 5 - 33, true, policy.clone()).await;
    assert_eq!(refused.refusal(), (422, "invalid", vec!["/payload"]));
    assert!(refused.json["detail"].as_str().unwrap().contains("1 octets too long"), "{}", refused.json);
    assert_eq!(send(3_833, true, json!({})).await.status, 202);
    assert_eq!(send(3_993, false, policy).await.status, 202, "without an envelope nothing is named");
}
