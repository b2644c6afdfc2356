//! Import and export on the admin page, in Chromium: a file is tried, its columns are mapped, it is imported, an interrupted import is
//! resumed, and everything is exported. The composer excludes inactive subscribers.

use axum::http::{Method, Request};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::admin_page::{look_at, says};
use super::chromium::Chromium;
use super::site::Site;
use super::user_actions::{appears, choose, click, sign_in, sign_in_as_viewer, write};
use super::{until, when};
use crate::support::TempDir;
use crate::support::api::LOOPBACK;
use crate::support::push_service::Browser;

/// Chooses a file with this content.
async fn choose_file(chromium: &mut Chromium, name: &str, says: &str) {
    appears(chromium, "#import-file").await;
    let choose = format!(
        "(() => {{ const held = new DataTransfer(); held.items.add(new File([{says:?}], {name:?}));
            const it = document.getElementById('import-file'); it.files = held.files;
            it.dispatchEvent(new Event('change', {{ bubbles: true }})); }})()"
    );
    chromium.evaluate(&choose).await;
}

fn subscription(name: &str) -> Value {
    Browser::new("fcm.bellwire.test", name).to_json()
}

async fn subscriptions(site: &Site) -> usize {
    site.get("/subscriptions?limit=250").await["data"].as_array().unwrap().len()
}

#[tokio::test]
async fn in_chromium_an_interrupted_import_resumes() {
    let (site, home) = (Site::for_admins().await, TempDir::new());
    let mut chromium = Chromium::start(home.path()).await;
    chromium.listen().await;
    sign_in(&mut chromium, &site, "/transfers").await;
    chromium.evaluate(&says("No imports yet.")).await;
    look_at(&mut chromium, "transfers-empty").await;

    // A file of another sender: nothing is known of its columns, so nothing of it would be taken.
    let row = |name: &str| {
        let made = subscription(name);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        format!(
            "{},{},{},{name}\n",
            text(&made["endpoint"]),
            text(&made["keys"]["p256dh"]),
            text(&made["keys"]["auth"])
        )
    };
    let file = format!("abo,p256dh,auth,kunde\n{}{}http://elsewhere.example/x,no,no,eve\n", row("ann"), row("bob"));
    choose_file(&mut chromium, "kunden.csv", &file).await;
    assert_eq!(chromium.evaluate("document.getElementById('take-in').disabled").await, true);
    click(&mut chromium, "#try-import").await;
    chromium.evaluate(&when("document.querySelector('#import-done[data-dry-run=true]')")).await;
    chromium.evaluate(&says("no subscriptions would be new")).await;
    choose(&mut chromium, "column-abo", "endpoint").await;
    choose(&mut chromium, "column-kunde", "user_id").await;
    chromium.evaluate(&when("document.getElementById('take-in').disabled")).await;
    look_at(&mut chromium, "transfers-columns").await;

    // Tried once more it says what would come of it; only that can be taken in.
    click(&mut chromium, "#try-import").await;
    chromium.evaluate(&says("2 subscriptions would be new")).await;
    chromium.evaluate(&when("document.querySelectorAll('#import-done tr[data-row]').length > 0")).await;
    look_at(&mut chromium, "transfers-tried").await;
    assert_eq!(subscriptions(&site).await, 0);
    click(&mut chromium, "#take-in").await;
    chromium.evaluate(&says("Import 2 subscriptions")).await;
    look_at(&mut chromium, "transfers-take-in").await;
    click(&mut chromium, "#do-it").await;
    chromium.evaluate(&when("document.querySelector('#import-done[data-dry-run=false]')")).await;
    assert_eq!(subscriptions(&site).await, 2);
    assert_eq!(site.get("/subscriptions?user_id=ann").await["data"].as_array().map(Vec::len), Some(1));

    // The report is a file, too.
    let saved = "new Promise((resolve) => { const made = URL.createObjectURL; URL.createObjectURL = (blob) => {
            URL.createObjectURL = made; resolve(blob.text()); return made.call(URL, blob); };
            document.querySelector('.save-report').click(); })";
    let report = chromium.evaluate(saved).await;
    let report = report.as_str().unwrap();
    assert!(report.starts_with("line,field,reason\r\n4,") && report.contains("\r\n4,\"endpoint\","), "{report}");

    // Another file broke off; with its file chosen once more it goes on where it was.
    let lines: Vec<String> = ["cid", "dan"].iter().map(|name| subscription(name).to_string()).collect();
    let broken = Request::post("/v1/apps/shop/imports").header("content-type", "application/json");
    let broken = broken.header("authorization", format!("Bearer {}", site.key)).extension(LOOPBACK);
    assert_eq!(
        site.app.router.clone().oneshot(broken.body(axum::body::Body::from("[")).unwrap()).await.unwrap().status(),
        400
    );
    let import = site.get("/imports").await["data"][0].clone();
    assert_eq!((&import["format"], &import["finished_at"]), (&json!("json"), &Value::Null), "{import}");
    let id = import["id"].as_str().unwrap();
    chromium.open(&format!("{}/admin/transfers?import={id}", site.origin)).await;
    chromium.evaluate(&says("Running")).await;
    choose_file(&mut chromium, "rest.json", &format!("[{}]", lines.join(","))).await;
    click(&mut chromium, "#go-on-file").await;
    let done =
        until(async || site.get(&format!("/imports/{id}")).await, |import| !import["finished_at"].is_null()).await;
    assert_eq!((&done["lines"], &done["added"]), (&json!(2), &json!(2)), "{done}");
    appears(&mut chromium, "#import-done").await;
    look_at(&mut chromium, "transfers").await;

    // All of it is taken out again: the file is whole, and it is written down who took it.
    let file = chromium.evaluate("fetch(document.querySelector('[data-take=all]').href).then((it) => it.text())").await;
    let lines: Vec<Value> = file.as_str().unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).count();
    assert_eq!((of("app"), of("subscription"), &lines.last().unwrap()["type"]), (1, 4, &json!("end")));
    let file = chromium.evaluate("fetch(document.querySelector('[data-take=csv]').href).then((it) => it.text())").await;
    assert!(file.as_str().unwrap().starts_with("type,id,endpoint,"), "{file}");
    chromium.open(&format!("{}/admin/transfers", site.origin)).await;
    chromium.evaluate(&says("Complete")).await;
    look_at(&mut chromium, "transfers-out").await;

    // A viewer sees what came in, and is told who could bring something in.
    sign_in_as_viewer(&mut chromium, &site, "/transfers").await;
    chromium.evaluate(&says("Your role does not allow imports. This requires the role operator on this app.")).await;
    chromium.evaluate(&says("Your role does not allow exports. This requires the role admin on this app.")).await;
    chromium.evaluate(&when("document.querySelectorAll('tr[data-row]').length >= 4")).await;
    let offered = "document.getElementById('import-file') || document.querySelector('[data-take]')";
    assert_eq!(chromium.evaluate(&format!("!!({offered})")).await, false);
    assert_eq!(chromium.complaints(), Vec::<String>::new());
    site.app.finish().await;
}

#[tokio::test]
async fn in_chromium_composer_sets_sunset_and_own_hour() {
    let (site, home) = (Site::for_admins().await, TempDir::new());
    site.app.subscribe("fcm", 0..2).await;
    let mut chromium = Chromium::start(home.path()).await;
    chromium.listen().await;

    // A message: what is wrong with the rule stands beside it, what it means below.
    sign_in(&mut chromium, &site, "/messages/new").await;
    write(&mut chromium, "[name=title]", "New in").await;
    click(&mut chromium, "#sunset summary").await;
    write(&mut chromium, "[name=unclicked]", "900").await;
    appears(&mut chromium, "[name=unclicked][aria-invalid=true]").await;
    write(&mut chromium, "[name=unclicked]", "10").await;
    write(&mut chromium, "[name=unclicked-for]", "60d").await;
    chromium.evaluate(&says("Subscribers who were shown 10 messages or more and messages over 60d or longer")).await;
    chromium.evaluate(&when("document.getElementById('send').innerText === 'Send to 2…'")).await;
    look_at(&mut chromium, "composer-sunset").await;
    click(&mut chromium, "[name=tier][value=transactional]").await;
    chromium.evaluate(&when("!document.getElementById('sunset')")).await;
    click(&mut chromium, "[name=tier][value=promotional]").await;
    chromium.evaluate(&when("document.getElementById('send').innerText === 'Send to 2…'")).await;
    click(&mut chromium, "#send").await;
    write(&mut chromium, "#typed", "2").await;
    click(&mut chromium, "#send-now").await;
    let message = async || site.get("/messages").await["data"][0].clone();
    let sent = until(message, |message| !message.is_null()).await;
    assert_eq!(sent["sunset"], json!({"unclicked": 10, "unclicked_for": "60d", "welcome": "30d"}), "{sent}");

    // A campaign, to each at their own hour; it comes back as it was.
    chromium.open(&format!("{}/admin/campaigns/-new", site.origin)).await;
    write(&mut chromium, "[name=campaign-name]", "Spring").await;
    write(&mut chromium, "[name=title]", "Spring is here").await;
    click(&mut chromium, "#sunset summary").await;
    write(&mut chromium, "[name=unclicked]", "5").await;
    click(&mut chromium, "[name=when][value=cron]").await;
    click(&mut chromium, "[name=own-hour]").await;
    chromium.evaluate(&says("From then on, each subscriber gets it within 24 hours at their best hour")).await;
    look_at(&mut chromium, "campaign-own-hour").await;
    click(&mut chromium, "#save").await;
    chromium.evaluate(&when("location.pathname === '/admin/campaigns/spring'")).await;
    chromium.evaluate(&says("Subscribers who were shown 5 messages or more since their last click are excluded")).await;
    let plan = site.get("/campaigns/spring/plan").await;
    assert_eq!(
        (&plan["message"]["sunset"]["unclicked"], &plan["schedule"]["hour"]),
        (&json!(5), &json!("best")),
        "{plan}"
    );
    click(&mut chromium, "#edit").await;
    chromium.evaluate(&when("document.querySelector('[name=own-hour]')?.checked")).await;
    chromium.evaluate(&when("document.querySelector('[name=unclicked]')?.value === '5'")).await;
    let unexpected: Vec<_> = chromium.complaints().into_iter().filter(|said| !said.contains("dry_run")).collect();
    assert_eq!(unexpected, Vec::<String>::new());
    site.app.call(Method::DELETE, "/v1/apps/shop/campaigns/spring", Value::Null).await.ok(204);
    site.app.finish().await;
}
