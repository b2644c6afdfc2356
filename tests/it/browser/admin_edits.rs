//! Concurrent edits on the admin page, in Chromium: the second editor sees the first one's change, and one click cannot overwrite it. The
//! first editor may be a program.

use axum::http::Method;
use serde_json::{Value, json};

use super::admin_page::{look_at, says};
use super::chromium::Chromium;
use super::site::Site;
use super::user_actions::{appears, click, holds, sign_in, write};
use super::{until, when};
use crate::support::TempDir;

const CONFLICT: &str = "Another user has changed this since you started.";

async fn open(chromium: &mut Chromium, site: &Site, path: &str) {
    chromium.open(&format!("{}/admin{path}", site.origin)).await;
}

/// Concurrent change through the API.
async fn meanwhile(site: &Site, method: Method, path: &str, body: Value) {
    let reply = site.app.operate(method, &format!("/v1/apps/shop{path}"), body).await;
    assert!((200..300).contains(&reply.status), "{path}: {} {}", reply.status, reply.json);
}

/// Waits until a member of a resource has a value.
async fn until_member(site: &Site, path: &str, pointer: &str, wanted: Value) {
    until(async || site.get(path).await.pointer(pointer).cloned(), |found| *found == Some(wanted.clone())).await;
}

#[tokio::test]
async fn in_chromium_concurrent_edits_do_not_overwrite() {
    let (site, home, elsewhere) = (Site::for_admins().await, TempDir::new(), TempDir::new());
    let template = |title: &str| json!({"content": {"title": title}});
    site.call(Method::PUT, "/templates/welcome", template("Hello")).await;
    site.call(Method::PUT, "/segments/keen", json!({"expression": "tag(\"vip\")"})).await;
    let say = json!({"to": {"all": true}, "content": {"title": "Spring"}});
    site.call(Method::POST, "/campaigns", json!({"slug": "spring", "name": "Spring", "message": say})).await;
    let mut ann = Chromium::start(home.path()).await;
    let mut bob = Chromium::start(elsewhere.path()).await;
    ann.listen().await;

    // Both begin with the same template. Bob saves first; Ann is told, sees his, and overwrites it because she means to.
    sign_in(&mut ann, &site, "/templates/welcome").await;
    sign_in(&mut bob, &site, "/templates/welcome").await;
    for (browser, title) in [(&mut ann, "Hello from Ann"), (&mut bob, "Hello from Bob")] {
        holds(browser, "[name=title]", "Hello").await;
        write(browser, "[name=title]", title).await;
    }
    click(&mut bob, "#save-template").await;
    appears(&mut bob, "#saved").await;
    click(&mut ann, "#save-template").await;
    ann.evaluate(&says(CONFLICT)).await;
    click(&mut ann, ".conflict summary").await;
    ann.evaluate(&says("Hello from Bob")).await;
    look_at(&mut ann, "conflict").await;
    assert_eq!(site.get("/templates/welcome").await["template"]["content"]["title"], "Hello from Bob");
    click(&mut ann, "#overwrite").await;
    appears(&mut ann, "#saved").await;
    assert_eq!(site.get("/templates/welcome").await["template"]["content"]["title"], "Hello from Ann");

    // What Ann began before counts for deleting it, too; and a new one does not replace one of that name.
    click(&mut bob, "#delete").await;
    click(&mut bob, "#do-it").await;
    bob.evaluate(&says(CONFLICT)).await;
    click(&mut bob, "#take-theirs").await;
    holds(&mut bob, "[name=title]", "Hello from Ann").await;
    open(&mut bob, &site, "/templates/-new").await;
    write(&mut bob, "[name=template-name]", "welcome").await;
    write(&mut bob, "[name=title]", "Another one").await;
    click(&mut bob, "#save-template").await;
    bob.evaluate(&says(CONFLICT)).await;
    assert_eq!(site.get("/templates/welcome").await["template"]["content"]["title"], "Hello from Ann");

    // A segment: begun again with theirs.
    open(&mut ann, &site, "/segments/keen").await;
    click(&mut ann, "#edit").await;
    write(&mut ann, "[name=description]", "mine").await;
    let theirs = json!({"expression": "tag(\"vip\")", "description": "theirs"});
    meanwhile(&site, Method::PUT, "/segments/keen", theirs).await;
    click(&mut ann, "#save-segment").await;
    ann.evaluate(&says(CONFLICT)).await;
    click(&mut ann, "#take-theirs").await;
    ann.evaluate(&when("document.querySelector('.lead')?.innerText.startsWith('theirs')")).await;
    click(&mut ann, "#edit").await;
    holds(&mut ann, "[name=description]", "theirs").await;

    // A campaign's draft.
    open(&mut ann, &site, "/campaigns/spring/edit").await;
    write(&mut ann, "[name=body]", "Mine").await;
    let say = json!({"to": {"all": true}, "content": {"title": "Spring", "body": "Theirs"}});
    meanwhile(&site, Method::PUT, "/campaigns/spring", json!({"slug": "spring", "name": "Spring", "message": say}))
        .await;
    click(&mut ann, "#save").await;
    ann.evaluate(&says(CONFLICT)).await;
    assert_eq!(site.get("/campaigns/spring/plan").await["message"]["content"]["body"], "Theirs");
    click(&mut ann, "#overwrite").await;
    ann.evaluate(&when("location.pathname === '/admin/campaigns/spring'")).await;
    until_member(&site, "/campaigns/spring/plan", "/message/content/body", json!("Mine")).await;

    // A policy.
    open(&mut ann, &site, "/policies/tiers/promotional").await;
    write(&mut ann, "#field-maxAttempts", "3").await;
    click(&mut ann, "#save-policy").await;
    meanwhile(&site, Method::PUT, "/policies/tiers/promotional", json!({"maxAttempts": 9})).await;
    click(&mut ann, "#confirm-policy").await;
    ann.evaluate(&says(CONFLICT)).await;
    click(&mut ann, "#overwrite").await;
    until_member(&site, "/policies/tiers/promotional", "/policy/maxAttempts", json!(3)).await;

    // Caps, the guard and the app's own settings.
    open(&mut ann, &site, "/frequency").await;
    click(&mut ann, "#add-cap").await;
    click(&mut ann, "#change-caps").await;
    meanwhile(&site, Method::PUT, "/caps", json!({"caps": [{"max": 9, "window": "9d"}]})).await;
    click(&mut ann, "#do-it").await;
    ann.evaluate(&says(CONFLICT)).await;
    click(&mut ann, "#take-theirs").await;
    ann.evaluate(&when("document.getElementById('caps')?.innerText.includes('9 days')")).await;
    ann.evaluate("document.querySelector('details:has(#change-guard)').open = true").await;
    write(&mut ann, "[name=factor]", "5").await;
    click(&mut ann, "#change-guard").await;
    meanwhile(&site, Method::PUT, "/guard", json!({"factor": 3, "floor": 5})).await;
    click(&mut ann, "#do-it").await;
    ann.evaluate(&says(CONFLICT)).await;
    click(&mut ann, "#overwrite").await;
    until_member(&site, "/guard", "/factor", json!(5)).await;
    open(&mut ann, &site, "/settings/apps?app=shop").await;
    write(&mut ann, "[name=name]", "Mine").await;
    click(&mut ann, "#change-app").await;
    meanwhile(&site, Method::PATCH, "", json!({"name": "Theirs"})).await;
    click(&mut ann, "#do-it").await;
    ann.evaluate(&says(CONFLICT)).await;
    look_at(&mut ann, "conflict-dialog").await;
    click(&mut ann, "#take-theirs").await;
    holds(&mut ann, "[name=name]", "Theirs").await;
    let unexpected: Vec<_> = ann.complaints().into_iter().filter(|said| !said.contains("412")).collect();
    assert_eq!(unexpected, Vec::<String>::new());
    site.app.finish().await;
}
