//! The admin page: in Chromium with an operator's key, in Firefox by the one-time link of an invitation.

use axum::http::Method;
use serde_json::{Value, json};

use super::admin_page::{invite, look_at, says, with_a_campaign};
use super::chromium::Chromium;
use super::push_clients::start_firefox;
use super::site::Site;
use super::when;
use crate::support::TempDir;

async fn lanes(site: &Site) -> Vec<Value> {
    let listed = site.app.operate(Method::GET, "/v1/gateways", Value::Null).await.ok(200);
    listed["data"].as_array().unwrap().clone()
}

#[tokio::test]
async fn in_chromium_an_operator_holds_a_lane() {
    let (site, home) = (with_a_campaign().await, TempDir::new());
    let mut chromium = Chromium::start(home.path()).await;
    chromium.listen().await;
    let lane = site.app.lane("mozilla").await;
    let address = format!("{}/admin/push-services/{lane}", site.origin);

    // A signed-out user gets the sign-in form, and then the requested page.
    chromium.open(&address).await;
    chromium.evaluate(&says("Sign in")).await;
    look_at(&mut chromium, "sign-in").await;
    chromium.click("other-way").await;
    chromium.evaluate(&when("document.getElementById('api_key')")).await;
    chromium.evaluate("document.getElementById('api_key').value = 'bw_wrong'").await;
    chromium.click("sign-in").await;
    chromium.evaluate(&when("document.querySelector('[role=alert]')")).await;
    let key = &site.app.operator;
    chromium.evaluate(&format!("document.getElementById('api_key').value = {key:?}")).await;
    chromium.click("sign-in").await;
    chromium.evaluate(&says("Healthy")).await;
    assert_eq!(chromium.evaluate("location.href").await, json!(address));

    // A lane is held, with a reason, after it was said what that does; and released.
    chromium.click("hold").await;
    chromium.evaluate(&says("8 active subscriptions")).await;
    look_at(&mut chromium, "order").await;
    chromium.evaluate("document.getElementById('order-reason').value = 'their status page is red'").await;
    chromium.click("give-order").await;
    chromium.evaluate(&says("An operator holds Mozilla until")).await;
    let held = lanes(&site).await.into_iter().find(|held| held["lane"] == lane).unwrap();
    assert_eq!(held["origins"][0]["held_note"], "their status page is red");
    look_at(&mut chromium, "lane-held").await;
    chromium.open(&format!("{}/admin/", site.origin)).await;
    chromium.evaluate(&says("An operator holds Mozilla until")).await;
    chromium.open(&address).await;
    chromium.evaluate(&when("document.getElementById('release')")).await;
    chromium.click("release").await;
    chromium.evaluate(&when("document.querySelector('dialog[open]')")).await;
    chromium.click("give-order").await;
    chromium.evaluate(&says("Healthy")).await;

    // The overview has the campaign's figures; keys lead on.
    chromium.press("g").await;
    chromium.press("o").await;
    chromium.evaluate(&says("All well")).await;
    chromium.evaluate(&says("The push service rejected the request")).await;
    chromium.evaluate(&when("document.querySelector('.plot canvas')")).await;
    let legend = chromium.evaluate("document.querySelector('.legend').innerText.replace(/\\s+/g, ' ')").await;
    assert_eq!(legend, "Accepted 25 Gone 3 Dead 4");
    chromium.evaluate(&says("Live")).await;
    look_at(&mut chromium, "overview").await;
    chromium.press("?").await;
    chromium.evaluate(&when("document.querySelector('dialog[open] kbd')")).await;
    look_at(&mut chromium, "keys").await;
    chromium.press_escape().await;
    chromium.evaluate(&when("!document.querySelector('dialog[open]')")).await;
    chromium.press("g").await;
    chromium.press("l").await;
    chromium.evaluate(&when("document.querySelectorAll('tr[data-row]').length === 2")).await;
    look_at(&mut chromium, "lanes").await;

    // Dead letters say what helps, and how many it is, before anything is done.
    chromium.press("g").await;
    chromium.press("x").await;
    chromium.evaluate(&says("The push service rejected the request")).await;
    look_at(&mut chromium, "dead-letters").await;
    chromium.open(&format!("{}/admin/dead-letters?reason=bad_request", site.origin)).await;
    chromium.evaluate(&says("The request is malformed.")).await;
    look_at(&mut chromium, "dead-letters-of-a-reason").await;
    chromium.evaluate("document.querySelector('[data-do=discard]').click()").await;
    chromium.evaluate(&says("4 dead letters would be discarded")).await;
    chromium.click("handle").await;
    chromium.evaluate(&says("Discarded: 4 dead letters.")).await;
    assert_eq!(site.get("/dead-letters?state=discarded").await["data"].as_array().map(Vec::len), Some(4));

    assert_eq!(chromium.complaints(), Vec::<String>::new());

    // What cannot be had is said, with a way to try again.
    chromium.block(&["*/v1/gateways*"]).await;
    chromium.open(&format!("{}/admin/push-services?gateway=fcm", site.origin)).await;
    chromium.evaluate(&says("Could not load the push services.")).await;
    look_at(&mut chromium, "failed").await;
    chromium.block(&[]).await;
    chromium.evaluate("document.querySelector('.failed button').click()").await;
    chromium.evaluate(&when("document.querySelectorAll('tr[data-row]').length === 1")).await;
    chromium.evaluate(&says("Live")).await;
    chromium.block(&["*/v1/gateways*"]).await;
    site.app.operate(Method::POST, &format!("/v1/gateways/{lane}/hold"), Value::Null).await.ok(200);
    chromium.evaluate(&says("As of")).await; // the event came, the figures did not
    look_at(&mut chromium, "stale").await;
    site.app.finish().await;
}

#[tokio::test]
async fn in_firefox_an_invited_teammate_sets_a_password() {
    let (site, profile) = (with_a_campaign().await, TempDir::new());
    let link = invite(&site, "ann@example.com", json!([{"role": "viewer"}])).await;
    let mut firefox = start_firefox(&site, &profile.path().join("profile"), &json!({})).await;

    firefox.open(&format!("{}{link}", site.origin)).await;
    firefox.evaluate(&says("Welcome")).await;
    firefox.evaluate(&says("This link is for ann@example.com, viewer of all apps.")).await;
    assert_eq!(firefox.evaluate("location.hash").await, "", "no history keeps the link");
    firefox.keep_picture("admin-invite-firefox", 1280, 900).await;
    firefox.evaluate("document.getElementById('new_password').value = 'correct horse battery'").await;
    firefox.click("set-password").await;
    firefox.evaluate(&says("All well")).await;
    firefox.keep_picture("admin-overview-firefox", 1280, 900).await;

    // A viewer is not offered what takes an operator, and is told so.
    let lane = site.app.lane("mozilla").await;
    firefox.open(&format!("{}/admin/push-services/{lane}?app=shop", site.origin)).await;
    firefox.evaluate(&says("This requires the role operator for all apps.")).await;
    assert_eq!(firefox.evaluate("document.getElementById('hold')").await, Value::Null);
    firefox.evaluate(&says("Live")).await;
    let hold = format!("/v1/gateways/{lane}/hold");
    site.app.operate(Method::POST, &hold, json!({"reason": "seen by others at once"})).await.ok(200);
    firefox.evaluate(&says("seen by others at once")).await;
    site.app.operate(Method::POST, &format!("/v1/gateways/{lane}/release"), Value::Null).await.ok(200);
    firefox.open(&format!("{}/admin/dead-letters", site.origin)).await;
    firefox.evaluate(&says("This requires the role sender on this app.")).await;

    // A session that ends elsewhere leads to the way in, and back.
    let ended = "fetch('/v1/session', { method: 'DELETE' }).then((response) => response.status)";
    assert_eq!(firefox.evaluate(ended).await, 204);
    firefox.open(&format!("{}/admin/push-services", site.origin)).await;
    firefox.evaluate(&says("Sign in")).await;
    firefox.evaluate("document.getElementById('email').value = 'ann@example.com'").await;
    firefox.evaluate("document.getElementById('password').value = 'correct horse battery'").await;
    firefox.click("sign-in").await;
    firefox.evaluate(&when("document.querySelectorAll('tr[data-row]').length === 2")).await;
    firefox.keep_picture("admin-lanes-firefox", 1280, 900).await;
    assert_eq!(firefox.complaints(), Vec::<String>::new());

    firefox.quit().await;
    site.app.finish().await;
}
