//! Webhooks on the admin page, in Chromium: a webhook is created, tested, edited concurrently, and deleted. Requests that its receiver
//! refused are replayed. Viewers have read access.

use axum::http::Method;
use bellwire::testkit::hooks::Sender;
use bellwire_core::lane::Gateway;
use serde_json::{Value, json};

use super::admin_page::{look_at, says};
use super::chromium::Chromium;
use super::site::Site;
use super::user_actions::{appears, click, sign_in, sign_in_as_viewer, write};
use super::{until, when};
use crate::support::TempDir;
use crate::support::push_service::PushService;
use crate::support::webhooks::webhook_sender;

const HOST: &str = "hooks.example.com";

async fn webhook(site: &Site, id: &str) -> Value {
    site.get(&format!("/webhooks/{id}")).await
}

/// Tries the webhook by the button, and lets what is due be sent once it is there.
async fn try_it(chromium: &mut Chromium, site: &Site, sender: &Sender, id: &str) {
    click(chromium, "#test").await;
    click(chromium, "#test-now").await;
    until(async || webhook(site, id).await["pending"].clone(), |pending| *pending == 1).await;
    sender.run_until_idle().await.expect("the database answers");
}

async fn trial(chromium: &mut Chromium, words: &str) {
    chromium.evaluate(&when(&format!("document.getElementById('trial')?.innerText.includes({words:?})"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_chromium_a_webhook_is_replayed() {
    let receiver = PushService::start(&[(HOST, Gateway::Other)]).await;
    let site = Site::for_admins_beside((receiver.hosts.clone(), receiver.ca_pem.clone())).await;
    let home = TempDir::new();
    let app = &site.app;
    let sender = webhook_sender(app);
    let mut chromium = Chromium::start(home.path()).await;
    chromium.listen().await;

    // One is made; what is wrong with its address stands beside that. Its secret is shown once.
    sign_in(&mut chromium, &site, "/webhooks").await;
    chromium.evaluate(&says("There is no webhook yet.")).await;
    look_at(&mut chromium, "webhooks-empty").await;
    chromium.press("n").await;
    write(&mut chromium, "[name=webhook-name]", "CRM").await;
    write(&mut chromium, "[name=webhook-url]", "http://hooks.example.com/in").await;
    click(&mut chromium, "#save-webhook").await;
    appears(&mut chromium, "[name=webhook-url][aria-invalid=true] + .fault").await;
    look_at(&mut chromium, "webhook-new").await;
    write(&mut chromium, "[name=webhook-url]", &format!("https://{HOST}/in?token=abc")).await;
    click(&mut chromium, "[name=events][value='delivery.accepted']").await;
    click(&mut chromium, "#save-webhook").await;
    chromium.evaluate(&when("document.getElementById('webhook-secret')?.innerText.startsWith('whsec_')")).await;
    look_at(&mut chromium, "webhook-secret").await;
    click(&mut chromium, "#have-it").await;
    chromium.evaluate(&says("Nothing was sent to it yet.")).await;
    let made = site.get("/webhooks").await["data"][0].clone();
    let id = made["id"].as_str().unwrap();
    assert_eq!(made["events"].as_array().map(Vec::len), Some(5), "{made}");
    assert_eq!(chromium.evaluate("document.body.innerText.includes('whsec_')").await, false);

    // It is tried, and works.
    try_it(&mut chromium, &site, &sender, id).await;
    trial(&mut chromium, "The receiver responded 201").await;
    look_at(&mut chromium, "webhook-trial").await;
    chromium.press_escape().await;
    chromium.evaluate(&when("document.querySelectorAll('tr[data-row]').length === 1")).await;

    // During the edit another user changes its name and policy: the page reports that, and one click does not overwrite it.
    click(&mut chromium, "#edit").await;
    write(&mut chromium, "[name=webhook-name]", "Warehouse").await;
    let theirs = json!({"name": "Shop floor", "policy": {"healthyRetryPolicy": {"numRetries": 0}}});
    site.app.operate(Method::PATCH, &format!("/v1/apps/shop/webhooks/{id}"), theirs).await.ok(200);
    click(&mut chromium, "#save-webhook").await;
    chromium.evaluate(&says("Another user has changed this since you started.")).await;
    click(&mut chromium, ".conflict summary").await;
    chromium.evaluate(&says("Shop floor")).await;
    look_at(&mut chromium, "webhook-conflict").await;
    assert_eq!(webhook(&site, id).await["name"], "Shop floor");
    click(&mut chromium, "#take-theirs").await;
    chromium.evaluate(&when("document.querySelector('h1').innerText === 'Shop floor'")).await;
    click(&mut chromium, "#edit").await;
    write(&mut chromium, "[name=webhook-name]", "Warehouse").await;
    click(&mut chromium, "#save-webhook").await;
    chromium.evaluate(&when("document.querySelector('h1').innerText === 'Warehouse'")).await;
    assert_eq!(webhook(&site, id).await["policy"], json!({"healthyRetryPolicy": {"numRetries": 0}}), "it stays");

    // What its receiver refuses is told with what came back, and replayed: one, and all.
    receiver.answer_next(&[500]);
    try_it(&mut chromium, &site, &sender, id).await;
    trial(&mut chromium, "The receiver responded 500").await;
    chromium.press_escape().await;
    chromium.evaluate(&when("document.getElementById('failed')?.innerText === '1'")).await;
    look_at(&mut chromium, "webhook").await;
    chromium.open(&format!("{}/admin/webhooks/{id}?state=failed", site.origin)).await;
    chromium.evaluate(&when("document.querySelectorAll('tr[data-row]').length === 1")).await;
    click(&mut chromium, "tr[data-row] a").await;
    chromium.evaluate(&when("document.getElementById('request-state')?.dataset.state === 'failed'")).await;
    chromium.evaluate(&says("webhook.test")).await;
    look_at(&mut chromium, "webhook-request").await;
    click(&mut chromium, "#replay").await;
    click(&mut chromium, "#do-it").await;
    chromium.evaluate(&when("document.getElementById('request-state')?.dataset.state === 'pending'")).await;
    receiver.answer_next(&[500, 500]);
    site.call(Method::POST, &format!("/webhooks/{id}/test"), Value::Null).await;
    sender.run_until_idle().await.expect("the database answers");
    chromium.open(&format!("{}/admin/webhooks/{id}", site.origin)).await;
    click(&mut chromium, "#replay-all").await;
    chromium.evaluate(&says("2 failed requests are sent again")).await;
    look_at(&mut chromium, "webhook-replay").await;
    click(&mut chromium, "#do-it").await;
    chromium.evaluate(&when("document.getElementById('pending')?.innerText === '2'")).await;
    sender.run_until_idle().await.expect("the database answers");
    assert_eq!(webhook(&site, id).await["failed"], 0);

    // Another secret; off and on; gone.
    click(&mut chromium, "#rotate").await;
    click(&mut chromium, "#do-it").await;
    chromium.evaluate(&when("document.getElementById('webhook-secret')?.innerText.startsWith('whsec_')")).await;
    chromium.press_escape().await;
    chromium.evaluate(&says("Former secret valid until")).await;
    click(&mut chromium, "#switch").await;
    click(&mut chromium, "#do-it").await;
    chromium.evaluate(&says("A user disabled it.")).await;
    assert_eq!(webhook(&site, id).await["state"], "disabled");
    chromium.evaluate(&when("!document.getElementById('test')")).await;
    chromium.open(&format!("{}/admin/webhooks", site.origin)).await;
    chromium.evaluate(&says("Warehouse")).await;
    look_at(&mut chromium, "webhooks").await;
    assert!(
        !chromium.evaluate("document.body.innerText").await.as_str().unwrap().contains("token"),
        "a secret is shown"
    );

    // A viewer sees it all, and is told who could act.
    sign_in_as_viewer(&mut chromium, &site, &format!("/webhooks/{id}")).await;
    chromium
        .evaluate(&says(
            "Your role does not allow testing, changing or deleting webhooks. This requires the role admin",
        ))
        .await;
    let offered =
        "['test', 'edit', 'switch', 'rotate', 'delete', 'replay-all'].some((id) => document.getElementById(id))";
    assert_eq!(chromium.evaluate(offered).await, false);
    chromium.evaluate("fetch('/v1/session', { method: 'DELETE' }).then((response) => response.status)").await;

    sign_in(&mut chromium, &site, &format!("/webhooks/{id}")).await;
    click(&mut chromium, "#switch").await;
    click(&mut chromium, "#do-it").await;
    appears(&mut chromium, "#test").await;
    click(&mut chromium, "#delete").await;
    chromium.evaluate(&says("The receiver gets no further events.")).await;
    look_at(&mut chromium, "webhook-delete").await;
    click(&mut chromium, "#do-it").await;
    chromium.evaluate(&says("There is no webhook yet.")).await;
    let unexpected: Vec<_> = chromium.complaints().into_iter().filter(|said| !is_noted(said)).collect();
    assert_eq!(unexpected, Vec::<String>::new());
    site.app.finish().await;
}

/// Whether a console message reports a refused URL, or the poll of an open page just after its session ended.
fn is_noted(said: &str) -> bool {
    said.contains("/webhooks") && (said.contains("422") || said.contains("401") && said.contains("/deliveries?"))
}
