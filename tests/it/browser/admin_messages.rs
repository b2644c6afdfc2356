//! Messages on the admin page, in Chromium: one is written, tried, sent, watched, paused, resumed, and sent again.

use axum::http::Method;
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::{Value, json};

use super::admin_page::{invite, look_at, says};
use super::chromium::Chromium;
use super::site::Site;
use super::when;
use crate::support::TempDir;

/// Writes into a field, as a person does.
async fn write(chromium: &mut Chromium, name: &str, text: &str) {
    let fill = format!(
        "(() => {{ const it = document.querySelector('[name={name}]'); it.focus(); it.value = {text:?};
            it.dispatchEvent(new Event('input', {{ bubbles: true }})); it.dispatchEvent(new Event('change', {{ bubbles: true }})); }})()"
    );
    chromium.evaluate(&when(&format!("document.querySelector('[name={name}]')"))).await;
    chromium.evaluate(&fill).await;
}

async fn appears(chromium: &mut Chromium, selector: &str) {
    chromium.evaluate(&when(&format!("document.querySelector({selector:?})"))).await;
}

/// Waits for the message's summary sentence.
async fn goes(chromium: &mut Chromium, words: &str) {
    chromium.evaluate(&when(&format!("document.getElementById('going')?.innerText.includes({words:?})"))).await;
}

async fn sign_in(chromium: &mut Chromium, site: &Site, address: &str) {
    chromium.open(address).await;
    chromium.evaluate(&when("document.getElementById('other-way')")).await;
    chromium.click("other-way").await;
    chromium.evaluate(&when("document.getElementById('api_key')")).await;
    let key = &site.app.operator;
    chromium.evaluate(&format!("document.getElementById('api_key').value = {key:?}")).await;
    chromium.click("sign-in").await;
}

/// Holds both lanes, or releases them.
async fn order(site: &Site, order: &str) {
    for gateway in ["fcm", "mozilla"] {
        let lane = site.app.lane(gateway).await;
        site.app.operate(Method::POST, &format!("/v1/gateways/{lane}/{order}"), Value::Null).await.ok(200);
    }
}

async fn messages(site: &Site, query: &str) -> Vec<Value> {
    site.get(&format!("/messages{query}")).await["data"].as_array().unwrap().clone()
}

#[tokio::test]
async fn in_chromium_a_message_is_sent_and_paused() {
    let (site, home) = (Site::for_admins().await, TempDir::new());
    site.app.subscribe_with("fcm", 0..20, json!({"topics": ["news"]})).await;
    site.app.subscribe_with("mozilla", 100..104, json!({"topics": ["news"]})).await;
    site.app.subscribe_with("mozilla", 104..105, json!({"user_id": "ann"})).await;
    let refuse = RuleAction::Answer { status: 400, headers: Vec::new(), body: "The request is malformed.".to_owned() };
    site.app.simulator.add_rule(Rule { endpoints: Some((0..4).collect()), ..Rule::always(refuse) }).unwrap();
    let mut chromium = Chromium::start(home.path()).await;
    chromium.listen().await;

    // Nothing was sent yet; a key leads to where it is written.
    sign_in(&mut chromium, &site, &format!("{}/admin/messages", site.origin)).await;
    chromium.evaluate(&says("Nothing was sent yet.")).await;
    look_at(&mut chromium, "messages-empty").await;
    chromium.press("n").await;
    chromium.evaluate(&says("25 active subscriptions, counted now.")).await;
    look_at(&mut chromium, "composer-empty").await;

    // Whom it reaches, what it takes and how it looks follow what is written.
    chromium.evaluate("document.querySelector('[name=audience][value=topic]').click()").await;
    write(&mut chromium, "topic", "news").await;
    chromium.evaluate(&says("24 active subscriptions, counted now.")).await;
    let octets = "Number(document.querySelector('#meter strong').innerText)";
    let empty = chromium.evaluate(octets).await.as_i64().unwrap();
    write(&mut chromium, "title", "Autumn sale").await;
    write(&mut chromium, "body", "Everything must go: half the price until Sunday, and free delivery.").await;
    chromium.evaluate(&when(&format!("{octets} > {empty}"))).await;
    chromium.evaluate(&when("document.querySelectorAll('.drawing .title').length === 5")).await;
    let titles =
        "[...document.querySelectorAll('.drawing .title')].every((title) => title.innerText === 'Autumn sale')";
    assert_eq!(chromium.evaluate(titles).await, true);
    chromium.evaluate("document.querySelector('.composer details.more').open = true").await;
    write(&mut chromium, "icon", "/icon.png").await;
    write(&mut chromium, "image", "https://cdn.example/sale.jpg").await;
    chromium.click("add-button").await;
    write(&mut chromium, "button-0", "Have a look").await;
    let left_out = "document.querySelector('[data-platform=safari] [data-part=left-out]').innerText";
    let expected = "Not shown: the icon (shows the site’s), the image, and the button.";
    chromium.evaluate(&when(&format!("{left_out} === {expected:?}"))).await;
    chromium.evaluate(&says("Failed pushes are retried up to 10 times")).await;
    look_at(&mut chromium, "composer").await;

    // It is tried on one person first, and a reload loses nothing.
    write(&mut chromium, "test-id", "ann").await;
    chromium.evaluate(&when("!document.getElementById('send-test').disabled")).await;
    chromium.click("send-test").await;
    appears(&mut chromium, "#tested").await;
    site.app.run_until_idle().await;
    chromium
        .evaluate(&when("document.getElementById('tested')?.innerText.includes('the push service accepted it')"))
        .await;
    let tests = messages(&site, "?tier=transactional").await;
    assert_eq!((tests.len(), &tests[0]["to"]), (1, &json!({"users": ["ann"]})));
    chromium.open(&format!("{}/admin/messages/new", site.origin)).await;
    appears(&mut chromium, "[name=title]").await;
    assert_eq!(chromium.evaluate("document.querySelector('[name=title]').value").await, "Autumn sale");

    // It is sent once its number was typed, and by two clicks once. Nothing goes out before it was looked at.
    order(&site, "hold").await;
    chromium.evaluate(&when("document.getElementById('send').innerText === 'Send to 24…'")).await;
    chromium.click("send").await;
    appears(&mut chromium, "#typed").await;
    look_at(&mut chromium, "composer-send").await;
    write(&mut chromium, "typed", "23").await;
    chromium.evaluate(&when("document.getElementById('send-now').disabled")).await;
    write(&mut chromium, "typed", "24").await;
    chromium.evaluate(&when("!document.getElementById('send-now').disabled")).await;
    chromium.evaluate("[1, 2].forEach(() => document.getElementById('send-now').click())").await;
    goes(&mut chromium, "0 of 24 done").await;
    let sent = messages(&site, "?tier=promotional").await;
    assert_eq!(sent.len(), 1, "{sent:?}");
    let message = sent[0]["id"].as_str().unwrap();
    assert_eq!(chromium.evaluate("location.pathname").await, format!("/admin/messages/{message}"));
    let drafts = "Object.keys(sessionStorage).filter((name) => name.startsWith('bellwire.draft'))";
    assert_eq!(chromium.evaluate(drafts).await, json!([]), "what is sent is no draft any more");

    // Paused, nothing goes out; resumed, it does, and the page says so by itself.
    chromium.evaluate(&says("Everything must go")).await;
    chromium.click("pause").await;
    chromium.evaluate(&says("This would pause 24 deliveries")).await;
    look_at(&mut chromium, "message-pause").await;
    chromium.click("steer").await;
    goes(&mut chromium, "Paused: 0 of 24 done").await;
    order(&site, "release").await;
    site.app.run_until_idle().await;
    assert_eq!(site.get(&format!("/messages/{message}")).await["counts"]["queued"], 24);
    look_at(&mut chromium, "message-paused").await;
    chromium.click("resume").await;
    chromium.evaluate(&says("This would resume 24 deliveries")).await;
    chromium.click("steer").await;
    site.until_counts(message, json!({"accepted": 20, "dead": 4})).await;
    goes(&mut chromium, "Done: 20 of 24 accepted; 4 dead.").await;
    let parts = "[...document.querySelectorAll('.parts-legend li')].map((part) => part.dataset.part)";
    assert_eq!(chromium.evaluate(parts).await, json!(["accepted", "dead"]));
    look_at(&mut chromium, "message-done").await;

    // It goes again to those alone for whom it died.
    chromium.click("again").await;
    chromium.evaluate(&says("The message is sent again to 4 recipients only.")).await;
    look_at(&mut chromium, "message-again").await;
    chromium.click("send-again").await;
    chromium.evaluate(&says("Resent to 4 recipients.")).await;
    let again = messages(&site, "").await.remove(0);
    assert_eq!((&again["replay_of"], &again["audience_estimate"]), (&json!(message), &json!(4)));
    site.until_counts(again["id"].as_str().unwrap(), json!({"dead": 4})).await;
    chromium.press_escape().await;
    chromium.evaluate(&when("!document.querySelector('dialog[open]')")).await;

    // Another one can begin where it ended; the list leads to all of them.
    chromium.click("like").await;
    chromium.evaluate(&when("document.querySelector('[name=title]')?.value === 'Autumn sale'")).await;
    chromium.open(&format!("{}/admin/messages?tier=promotional&state=done", site.origin)).await;
    chromium.evaluate(&says("20 of 24 accepted")).await;
    assert_eq!(chromium.evaluate("document.querySelectorAll('tr[data-row]').length").await, 2);
    chromium.open(&format!("{}/admin/messages", site.origin)).await;
    chromium.evaluate(&when("document.querySelectorAll('tr[data-row]').length === 3")).await;
    look_at(&mut chromium, "messages").await;
    chromium.press("j").await;
    chromium.evaluate("document.activeElement.click()").await;
    goes(&mut chromium, "Done: 0 of 4 accepted; 4 dead.").await;

    // The first one was sent within a minute of the page's clock, so it is withdrawn without a question.
    chromium.open(&format!("{}/admin/messages/{message}", site.origin)).await;
    goes(&mut chromium, "Done: 20 of 24 accepted; 4 dead.").await;
    assert_eq!(chromium.evaluate("document.getElementById('withdraw').innerText").await, "Undo");
    chromium.click("withdraw").await;
    chromium.evaluate(&says("Withdrawn")).await;
    chromium.evaluate(&when("!document.getElementById('withdraw')")).await;
    let withdrawal = site.get(&format!("/messages/{message}")).await["counts"]["withdrawal"].clone();
    site.until_counts(withdrawal["removal"].as_str().unwrap(), json!({"accepted": 20})).await;
    chromium.open(&format!("{}/admin/messages/{message}?again", site.origin)).await;
    chromium.evaluate(&says("Withdrawn from browsers: 20 without a report so far.")).await;
    look_at(&mut chromium, "message-withdrawn").await;
    assert_eq!(chromium.complaints(), Vec::<String>::new());

    // What the server would refuse is said beside the field, while it is written.
    chromium.open(&format!("{}/admin/messages/new", site.origin)).await;
    write(&mut chromium, "title", "Autumn sale").await;
    write(&mut chromium, "url", "ftp://shop.example").await;
    chromium.evaluate(&says("It must be an https: URL")).await;
    chromium.evaluate(&when("document.getElementById('send').disabled")).await;
    look_at(&mut chromium, "composer-fault").await;
    write(&mut chromium, "url", "/sale").await;
    chromium.evaluate(&when("!document.getElementById('send').disabled")).await;

    a_viewer_looks_and_is_told_who_could_act(&mut chromium, &site, message).await;
    site.app.finish().await;
}

async fn a_viewer_looks_and_is_told_who_could_act(chromium: &mut Chromium, site: &Site, message: &str) {
    let link = invite(site, "vera@example.com", json!([{"role": "viewer"}])).await;
    let token = link.split_once('#').expect("a token that no server sees").1;
    let ask = |method: &str, body: &str| {
        format!(
            "fetch('/v1/session', {{ method: {method:?}, headers: {{ 'content-type': 'application/json' }}{body} }}).then(({{ status }}) => status)"
        )
    };
    assert_eq!(chromium.evaluate(&ask("DELETE", "")).await, 204);
    let come_in = format!(", body: JSON.stringify({{ link: {token:?} }})");
    assert_eq!(chromium.evaluate(&ask("POST", &come_in)).await, 201);
    chromium.open(&format!("{}/admin/messages/{message}", site.origin)).await;
    goes(chromium, "Done: 20 of 24 accepted").await;
    chromium
        .evaluate(&says("Content for more than ten subscriptions is visible to the role sender on this app."))
        .await;
    assert_eq!(chromium.evaluate("document.getElementById('again')").await, Value::Null);
    let secret = "document.body.innerText.includes('Everything must go')";
    assert_eq!(chromium.evaluate(secret).await, false, "nor what was said");
    look_at(chromium, "message-of-a-viewer").await;
    chromium.open(&format!("{}/admin/messages/new", site.origin)).await;
    chromium
        .evaluate(&says("Your role does not allow sending messages. This requires the role sender on this app."))
        .await;
    assert_eq!(chromium.evaluate("document.querySelector('[name=title]')").await, Value::Null, "nor a draft");
}
