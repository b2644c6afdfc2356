//! Answers of the admin page to "why did this person not get it?" and "who is this?", in Chromium: as a sender with an operator's key, and
//! as a viewer.

use axum::http::Method;
use bellwire_core::lane::Gateway;
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::{Value, json};

use super::admin_page::{invite, look_at, says};
use super::chromium::Chromium;
use super::site::Site;
use super::{until, when};
use crate::support::TempDir;

/// A site on which ann has two devices; Mozilla is overloaded, so what goes to one of them is retried in an hour.
struct Story {
    site: Site,
    /// Ann's at Mozilla.
    desk: String,
    /// To ann, and to everybody.
    messages: [String; 2],
    /// Id of the rule for the outage of Mozilla.
    outage: u64,
}

async fn with_an_outage() -> Story {
    let site = Site::for_admins().await;
    let about = json!({"user_id": "ann", "tags": ["vip"], "attributes": {"plan": "gold"}, "topics": ["news"], "timezone": "Europe/Vienna"});
    site.app.subscribe_with("fcm", 0..1, about.clone()).await;
    let desk = site.app.subscribe_with("mozilla", 1..2, about).await.remove(0).id;
    site.app.subscribe("fcm", 2..8).await;
    let overloaded =
        RuleAction::Answer { status: 503, headers: Vec::new(), body: "The bridge is overloaded.".to_owned() };
    let ill = Rule { gateway: Some(Gateway::Mozilla), ..Rule::always(overloaded) };
    let outage = site.app.simulator.add_rule(ill).unwrap();
    let to = |to: Value| {
        json!({"to": to, "ttl": 86_400, "content": {"title": "Your parcel"},
            "policy": {"retries": 4, "retryDelay": "3600000"}})
    };
    let first = site.send_message(to(json!({"users": ["ann"]}))).await;
    let second = site.send_message(to(json!({"all": true}))).await;
    site.until_counts(&first, json!({"targeted": 2, "accepted": 1, "retrying": 1})).await;
    site.until_counts(&second, json!({"targeted": 8, "accepted": 7, "retrying": 1})).await;
    site.app.sweep().await; // as maintenance does every few seconds
    Story { site, desk, messages: [first, second], outage }
}

impl Story {
    fn page(&self, path: &str) -> String {
        format!("{}/admin{path}", self.site.origin)
    }

    fn delivery(&self, n: usize) -> String {
        format!("/deliveries/shop/{}/{}", self.messages[n], self.desk)
    }

    /// A delivery of ann's at Mozilla, once it is in that state.
    async fn until_state(&self, n: usize, state: &str) -> Value {
        let path = format!("/messages/{}/deliveries/{}", self.messages[n], self.desk);
        let look = async || {
            self.site.app.run_until_idle().await;
            self.site.get(&path).await
        };
        until(look, |delivery| delivery["state"] == state).await
    }
}

/// Writes into a field as a person does.
fn write(id: &str, text: &str) -> String {
    format!(
        "(() => {{ const it = document.getElementById({id:?}); it.value = {text:?};
            it.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()"
    )
}

const ROWS: &str = "document.querySelectorAll('tbody tr[data-row]').length";

async fn sign_in_with_key(chromium: &mut Chromium, story: &Story) {
    chromium.open(&story.page("/deliveries")).await;
    chromium.evaluate(&says("Sign in")).await;
    chromium.click("other-way").await;
    chromium.evaluate(&when("document.getElementById('api_key')")).await;
    let key = &story.site.app.operator;
    chromium.evaluate(&format!("document.getElementById('api_key').value = {key:?}")).await;
    chromium.click("sign-in").await;
}

#[tokio::test]
async fn in_chromium_a_missed_delivery_is_explained() {
    let (story, home) = (with_an_outage().await, TempDir::new());
    let mut chromium = Chromium::start(home.path()).await;
    chromium.listen().await;
    sign_in_with_key(&mut chromium, &story).await;

    // A person is found by the site's name for them; keys walk the list, and Enter opens a row.
    chromium.evaluate(&says("Enter a person")).await;
    look_at(&mut chromium, "deliveries-begin").await;
    chromium.evaluate(&write("who", "ann")).await;
    chromium.click("find").await;
    chromium.evaluate(&when(&format!("{ROWS} === 4"))).await;
    look_at(&mut chromium, "deliveries-of-a-person").await;
    chromium.open(&story.page("/deliveries?who=ann&state=retrying")).await;
    chromium.evaluate(&when(&format!("{ROWS} === 2"))).await;
    chromium.evaluate(&says("The bridge is overloaded.")).await;
    chromium.evaluate("document.activeElement.blur()").await;
    chromium.press("j").await;
    let focus = "document.activeElement.closest('tr')?.rowIndex";
    assert_eq!(chromium.evaluate(focus).await, 1);
    chromium.press("j").await;
    chromium.press("k").await;
    assert_eq!(chromium.evaluate(focus).await, 1);
    chromium.evaluate("document.activeElement.click()").await;

    // The story, with the push service's words, what comes next, and a report of it.
    chromium.evaluate(&when("document.querySelector('.timeline [data-when=next]')")).await;
    assert_eq!(chromium.evaluate("location.pathname").await, format!("/admin{}", story.delivery(1)));
    assert_eq!(chromium.evaluate("document.getElementById('delivery-state').dataset.state").await, "retrying");
    assert_eq!(chromium.evaluate("document.querySelector('blockquote').innerText").await, "The bridge is overloaded.");
    look_at(&mut chromium, "delivery").await;
    chromium.click("report").await;
    chromium.evaluate(&when("document.getElementById('report-text')")).await;
    let report = chromium.evaluate("document.getElementById('report-text').textContent").await;
    let report = report.as_str().unwrap();
    assert!(report.contains(&story.messages[1]) && report.contains("mozilla answered 503"), "{report}");
    look_at(&mut chromium, "delivery-report").await;
    chromium.press_escape().await;
    chromium.evaluate(&when("!document.querySelector('dialog[open]')")).await;
    chromium.evaluate("document.querySelector('#raw summary').click()").await;
    chromium.evaluate(&when("document.querySelector('#raw[open] table')")).await;

    // One is called off, the other one sent now that Mozilla is well again.
    chromium.click("cancel").await;
    chromium.evaluate(&says("This message is not sent to this one Mozilla device")).await;
    look_at(&mut chromium, "delivery-cancel").await;
    chromium.click("take").await;
    chromium.evaluate(&when("document.getElementById('delivery-state')?.dataset.state === 'cancelled'")).await;
    story.until_state(1, "cancelled").await;
    story.site.app.simulator.remove_rule(story.outage);
    chromium.open(&story.page(&story.delivery(0))).await;
    chromium.evaluate(&when("document.getElementById('retry')")).await;
    chromium.click("retry").await;
    chromium.evaluate(&says("The delivery becomes due now instead of")).await;
    chromium.click("take").await;
    chromium.evaluate(&when("document.getElementById('done')")).await;
    story.until_state(0, "accepted").await;
    chromium.open(&story.page(&story.delivery(0))).await;
    chromium.evaluate(&when("document.getElementById('delivery-state')?.dataset.state === 'accepted'")).await;
    look_at(&mut chromium, "delivery-accepted").await;

    // With person and message, each of their devices is told of.
    chromium.open(&story.page(&format!("/deliveries?who=ann&message={}", story.messages[1]))).await;
    chromium.evaluate(&when(&format!("{ROWS} === 2"))).await;
    look_at(&mut chromium, "deliveries-by-device").await;
    assert_eq!(chromium.complaints(), Vec::<String>::new());
    story.site.app.finish().await;
}

#[tokio::test]
async fn in_chromium_a_person_is_tested_and_erased() {
    let (story, home) = (with_an_outage().await, TempDir::new());
    let link = invite(&story.site, "vic@example.com", json!([{"role": "viewer"}])).await;
    let mut chromium = Chromium::start(home.path()).await;
    chromium.listen().await;

    // A viewer sees all of it, and is told who could act.
    chromium.open(&story.page("/deliveries")).await;
    let token = link.split_once('#').expect("a token").1;
    let body = json!({"link": token, "new_password": "correct horse battery"}).to_string();
    let ask = format!(
        "fetch('/v1/session', {{ method: 'POST', headers: {{ 'content-type': 'application/json' }}, body: {body:?} }})
            .then((response) => response.status)"
    );
    assert_eq!(chromium.evaluate(&ask).await, 201);
    chromium.open(&story.page(&story.delivery(0))).await;
    chromium
        .evaluate(&says(
            "Your role does not allow retrying or cancelling deliveries. This requires the role sender on this app.",
        ))
        .await;
    chromium.open(&story.page("/subscribers/shop/users/ann")).await;
    chromium
        .evaluate(&says("Your role does not allow erasing people. This requires the role operator on this app."))
        .await;
    let offered = "['retry', 'cancel', 'erase'].some((id) => document.getElementById(id)) || !!document.querySelector('[data-do=test]')";
    assert_eq!(chromium.evaluate(offered).await, false);
    chromium.evaluate("fetch('/v1/session', { method: 'DELETE' }).then((response) => response.status)").await;

    sign_in_with_key(&mut chromium, &story).await;
    chromium.evaluate(&says("Enter a person")).await;
    chromium.open(&story.page("/subscribers")).await;
    chromium.evaluate(&says("8 active subscriptions")).await;
    chromium.evaluate(&when("document.querySelectorAll('.plot canvas').length === 2")).await;
    look_at(&mut chromium, "subscribers").await;
    chromium.open(&story.page("/subscribers?tag=vip")).await;
    chromium.evaluate(&when(&format!("{ROWS} === 2"))).await;
    look_at(&mut chromium, "subscribers-by-tag").await;
    chromium.evaluate("document.querySelector('tr[data-row] a').click()").await;

    // One person: what is known of their devices, and never where they are reached.
    chromium.evaluate(&when("document.getElementById('quiet')?.innerText.includes('Europe/Vienna')")).await;
    chromium.evaluate(&says("gold")).await;
    chromium.evaluate(&when(&format!("{ROWS} === 4"))).await;
    look_at(&mut chromium, "person").await;
    let shown = chromium.evaluate("document.documentElement.outerHTML").await;
    assert!(!shown.as_str().unwrap().contains("bellwire.test"), "an endpoint is shown");

    // A test push goes to one device, and its story is a click away.
    story.site.app.simulator.remove_rule(story.outage);
    chromium.evaluate("document.querySelector('[data-do=test]').click()").await;
    chromium.evaluate(&when("document.getElementById('send-test')")).await;
    look_at(&mut chromium, "test-push").await;
    chromium.click("send-test").await;
    chromium.evaluate(&when("document.getElementById('test-sent')")).await;
    let message = story.site.last_message().await;
    story.site.until_counts(&message, json!({"targeted": 1, "accepted": 1})).await;
    chromium.evaluate("document.querySelector('#test-sent a').click()").await;
    chromium.evaluate(&when("document.getElementById('delivery-state')?.dataset.state === 'accepted'")).await;

    // Erased is only who was named, and everything of theirs.
    chromium.open(&story.page("/subscribers/shop/users/ann")).await;
    chromium.evaluate(&when("document.getElementById('erase')")).await;
    let data = chromium.evaluate("fetch(document.getElementById('take-data').href).then((it) => it.json())").await;
    assert_eq!((&data["user_id"], &data["complete"]), (&json!("ann"), &json!(true)), "{data}");
    assert!(data["deliveries"].as_array().is_some_and(|found| !found.is_empty()), "{data}");
    chromium.click("erase").await;
    chromium.evaluate(&says("This cannot be undone. It deletes")).await;
    assert_eq!(chromium.evaluate("document.getElementById('erase-now').disabled").await, true);
    look_at(&mut chromium, "erase").await;
    chromium.evaluate(&write("erase-name", "ann")).await;
    chromium.evaluate(&when("!document.getElementById('erase-now').disabled")).await;
    // A server without free connections responds with a retry delay; the client retries.
    let told = "document.getElementById('erased') ?? document.querySelector('dialog [role=alert]')";
    for _ in 0..5 {
        chromium.click("erase-now").await;
        chromium.evaluate(&when(told)).await;
        if chromium.evaluate(&format!("({told}).id")).await == "erased" {
            break;
        }
    }
    chromium.evaluate(&says("No record names this person now.")).await;
    look_at(&mut chromium, "erased").await;
    assert_eq!(story.site.get("/subscriptions?user_id=ann").await["data"], json!([]));
    let retry = format!("/v1/apps/shop/messages/{}/deliveries/{}/retry", story.messages[0], story.desk);
    story.site.app.call(Method::POST, &retry, Value::Null).await.ok(409);
    assert_eq!(chromium.complaints(), Vec::<String>::new());
    story.site.app.finish().await;
}
