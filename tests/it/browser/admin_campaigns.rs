//! Campaigns and segments on the admin page, in Chromium: a segment is created in rows and as text. A campaign to it is written, tested,
//! started, watched to its end, copied and deleted. Another one is started by events. Viewers see no actions.

use axum::http::Method;
use bellwire::testkit::server::campaigns;
use bellwire_core::clock::Clock;
use chrono::TimeDelta;
use serde_json::{Value, json};

use super::admin_page::{invite, look_at, says};
use super::chromium::Chromium;
use super::site::Site;
use super::user_actions::{appears, choose, click, holds, sign_in, write};
use super::when;
use crate::support::TempDir;
use crate::support::campaigns::run_scheduler;

/// The scheduler looks again at what goes out once this is over.
const WATCHED_AGAIN: TimeDelta = TimeDelta::seconds(11);

/// Closes the dialog and immediately opens the next one. Browsers report the close only afterwards.
const CLOSE_AND_START: &str = "new Promise((resolve) => {
    const dialog = document.querySelector('dialog');
    dialog.addEventListener('close', () => setTimeout(resolve, 0, true));
    dialog.close();
    document.getElementById('start').click();
})";

/// Waits for the campaign's summary sentence.
async fn goes(chromium: &mut Chromium, words: &str) {
    chromium.evaluate(&when(&format!("document.getElementById('going')?.innerText.includes({words:?})"))).await;
}

/// A look of the scheduler so much later, and all that comes of it.
async fn advance(site: &Site, later: TimeDelta) {
    let clock = Clock::stub(site.app.clock.now() + later);
    campaigns::advance(&site.app.pool, &site.app.vault, &clock).await.expect("the database answers");
    site.app.run_until_idle().await;
}

async fn campaign(site: &Site, slug: &str) -> Value {
    site.get(&format!("/campaigns/{slug}")).await
}

#[tokio::test]
async fn in_chromium_a_segment_is_built_and_shown() {
    let (site, home) = (Site::for_admins().await, TempDir::new());
    site.app.subscribe_with("fcm", 0..20, json!({"tags": ["beta"], "topics": ["news"]})).await;
    site.app.subscribe_with("mozilla", 100..104, json!({"topics": ["news"]})).await;
    site.app.subscribe_with("mozilla", 104..105, json!({"user_id": "ann"})).await;
    let mut chromium = Chromium::start(home.path()).await;
    chromium.listen().await;

    // Nothing is there yet, and each page says what would be. A segment is made by rows, which write its text.
    sign_in(&mut chromium, &site, "/segments").await;
    chromium.evaluate(&says("There is no segment yet.")).await;
    look_at(&mut chromium, "segments-empty").await;
    chromium.press("n").await;
    write(&mut chromium, "[name=segment-name]", "Testers").await;
    click(&mut chromium, "#add-condition").await;
    write(&mut chromium, "[data-part=subject]", "tag").await;
    write(&mut chromium, "[data-part=value]", "beta").await;
    holds(&mut chromium, "[name=expression]", r#"tag("beta")"#).await;
    chromium.evaluate(&says("of 25 active subscriptions")).await;

    // Text writes rows, too; what the parser refuses is shown where it is, and what rows cannot show stays text.
    write(&mut chromium, "[name=expression]", r#"tag("beta") and gateway ~ "fcm""#).await;
    chromium.evaluate(&when("document.querySelector('.position mark')?.innerText === '~'")).await;
    chromium.evaluate(&says("Rows are shown when the text is valid.")).await;
    look_at(&mut chromium, "segment-refused").await;
    write(&mut chromium, "[name=expression]", r#"not (tag("beta") or tag("x"))"#).await;
    chromium.evaluate(&says("edit it as text")).await;
    write(&mut chromium, "[name=expression]", r#"tag("beta") and gateway = "fcm""#).await;
    chromium.evaluate(&when("document.querySelectorAll('.condition').length === 2")).await;
    look_at(&mut chromium, "segment-new").await;
    click(&mut chromium, "#save-segment").await;
    appears(&mut chromium, "#expression").await;
    assert_eq!(site.get("/segments/testers").await["expression"], r#"tag("beta") and gateway = "fcm""#);
    chromium.evaluate(&when("document.querySelectorAll('tr[data-row]').length === 20")).await;
    look_at(&mut chromium, "segment").await;
    let unexpected: Vec<_> = chromium.complaints().into_iter().filter(|said| !is_noted(said)).collect();
    assert_eq!(unexpected, Vec::<String>::new());
    site.app.finish().await;
}

/// Whether a complaint is the browser's note of an expression that was refused.
fn is_noted(said: &str) -> bool {
    said.contains("/segments/preview") && said.contains("422")
}

#[tokio::test]
async fn in_chromium_a_campaign_runs_and_is_copied() {
    let (site, home) = (Site::for_admins().await, TempDir::new());
    site.app.subscribe_with("fcm", 0..20, json!({"tags": ["beta"]})).await;
    site.app.subscribe_with("mozilla", 104..105, json!({"user_id": "ann"})).await;
    site.call(Method::PUT, "/segments/testers", json!({"expression": "tag(\"beta\")"})).await;
    let mut chromium = Chromium::start(home.path()).await;
    chromium.listen().await;

    // A campaign to it: its reach follows, two texts, and a schedule in words.
    sign_in(&mut chromium, &site, "/campaigns").await;
    chromium.evaluate(&says("There is no campaign yet.")).await;
    look_at(&mut chromium, "campaigns-empty").await;
    chromium.press("n").await;
    write(&mut chromium, "[name=campaign-name]", "Autumn sale").await;
    click(&mut chromium, "[name=narrowed][value=stored]").await;
    choose(&mut chromium, "segment", "testers").await;
    chromium.evaluate(&when("document.querySelector('#reach strong')?.innerText === '20'")).await;
    write(&mut chromium, "[name=title]", "Autumn is here").await;
    click(&mut chromium, "#add-variant").await;
    write(&mut chromium, "[name=title]", "20 % off").await;
    click(&mut chromium, "[name=when][value=cron]").await;
    write(&mut chromium, "[name=timezone]", "UTC").await;
    chromium.evaluate(&says("Every Monday at 09:00, UTC time. Next runs")).await;
    click(&mut chromium, "[name=when][value=now]").await;
    look_at(&mut chromium, "campaign-composer").await;
    click(&mut chromium, "#save").await;
    goes(&mut chromium, "Draft: nothing is sent").await;
    assert_eq!(chromium.evaluate("location.pathname").await, "/admin/campaigns/autumn-sale");
    let plan = site.get("/campaigns/autumn-sale/plan").await;
    assert_eq!(plan["message"]["to"], json!({"all": true, "segment": "testers"}));
    let titles = [0, 1].map(|n| plan["variants"][n]["message"]["content"]["title"].clone());
    assert_eq!(titles, ["Autumn is here", "20 % off"]);

    // A change of the draft comes back as it was written.
    click(&mut chromium, "#edit").await;
    holds(&mut chromium, "[name=campaign-name]", "Autumn sale").await;
    write(&mut chromium, "[name=campaign-name]", "Autumn sale, the last").await;
    click(&mut chromium, "#save").await;
    chromium.evaluate(&says("Autumn sale, the last")).await;

    // It is tried on one person, and started once its number was typed.
    click(&mut chromium, "#test").await;
    write(&mut chromium, "#test-users", "ann").await;
    click(&mut chromium, "#do-it").await;
    chromium.evaluate(&says("Sent to one browser.")).await;
    // What closes one dialog is told late, and leaves alone the next.
    chromium.evaluate(CLOSE_AND_START).await;
    chromium.evaluate(&says("Audience: all subscribers in the segment testers: 20 active subscriptions")).await;
    look_at(&mut chromium, "campaign-start").await;
    write(&mut chromium, "#typed", "19").await;
    chromium.evaluate(&when("document.getElementById('start-now').disabled")).await;
    write(&mut chromium, "#typed", "20").await;
    click(&mut chromium, "#start-now").await;
    chromium.evaluate(&when("document.getElementById('pause')")).await;
    assert_eq!(campaign(&site, "autumn-sale").await["state"], "scheduled");

    // Paused, nothing goes out; resumed, it does, and the page says so by itself.
    click(&mut chromium, "#pause").await;
    click(&mut chromium, "#do-it").await;
    goes(&mut chromium, "Paused").await;
    advance(&site, TimeDelta::zero()).await;
    assert_eq!(campaign(&site, "autumn-sale").await["runs"], 0);
    click(&mut chromium, "#resume").await;
    click(&mut chromium, "#do-it").await;
    chromium.evaluate(&when("document.getElementById('pause')")).await;
    advance(&site, TimeDelta::zero()).await;
    goes(&mut chromium, "Sending").await;
    advance(&site, WATCHED_AGAIN).await;
    assert_eq!(campaign(&site, "autumn-sale").await["state"], "done");
    goes(&mut chromium, "Done: all 20 were accepted.").await;
    chromium.evaluate(&says("No winner")).await;
    chromium.evaluate(&when("document.querySelectorAll('.intervals .name').length === 2")).await;
    click(&mut chromium, "#by-locale").await;
    chromium.evaluate(&when("document.querySelector('[aria-label=\"By language\"] tr[data-row]')")).await;
    look_at(&mut chromium, "campaign-done").await;

    // A copy is a draft, which may go again. The message that it ended in leads back to it; both are in the list, and in the month.
    click(&mut chromium, "#clone").await;
    write(&mut chromium, "#copy-slug", "winter").await;
    click(&mut chromium, "#do-it").await;
    holds(&mut chromium, ".composer [name=slug]", "winter").await;
    let made = site.last_message().await;
    chromium.open(&format!("{}/admin/messages/{made}", site.origin)).await;
    chromium.evaluate(&when("document.getElementById('campaign')?.innerText === 'Autumn sale, the last'")).await;
    click(&mut chromium, "#campaign").await;
    goes(&mut chromium, "Done: all 20 were accepted.").await;
    chromium.open(&format!("{}/admin/campaigns", site.origin)).await;
    chromium.evaluate(&when("document.querySelectorAll('tr[data-row]').length === 2")).await;
    chromium.evaluate(&says("all 20 accepted")).await;
    look_at(&mut chromium, "campaigns").await;
    chromium.open(&format!("{}/admin/campaigns/winter", site.origin)).await;
    chromium.evaluate(&says("20 % off")).await;
    click(&mut chromium, "#delete").await;
    chromium.evaluate(&says("so subscribers notice nothing")).await;
    click(&mut chromium, "#do-it").await;
    chromium.evaluate(&when("document.querySelectorAll('tr[data-row]').length === 1")).await;
    click(&mut chromium, "#as-calendar").await;
    appears(&mut chromium, ".calendar .entry[data-is=was]").await;
    look_at(&mut chromium, "campaigns-month").await;

    // It is withdrawn, once its number was typed.
    chromium.open(&format!("{}/admin/campaigns/autumn-sale", site.origin)).await;
    click(&mut chromium, "#withdraw").await;
    chromium.evaluate(&says("remove its messages from 20 browsers")).await;
    look_at(&mut chromium, "campaign-withdraw").await;
    write(&mut chromium, "#typed", "20").await;
    click(&mut chromium, "#withdraw-now").await;
    chromium.evaluate(&says("Withdrawn")).await;
    chromium.evaluate(&when("!document.getElementById('withdraw')")).await;
    site.app.run_until_idle().await;
    assert_eq!(campaign(&site, "autumn-sale").await["progress"]["withdrawal"]["unknown"], 20);
    // What the page was still asking of the copy when it was deleted is not found.
    let is_late = |said: &String| said.contains("/campaigns/winter") && said.contains("404");
    let unexpected: Vec<_> = chromium.complaints().into_iter().filter(|said| !is_late(said)).collect();
    assert_eq!(unexpected, Vec::<String>::new());
    site.app.finish().await;
}

/// Waits for the number of a step of the funnel.
async fn step_has(chromium: &mut Chromium, step: &str, n: u32) {
    let number = format!("document.querySelector('#trigger [data-step={step}] strong')?.innerText");
    chromium.evaluate(&when(&format!("{number} === '{n}'"))).await;
}

#[tokio::test]
async fn in_chromium_a_trigger_is_written_and_watched() {
    let (site, home) = (Site::for_admins().await, TempDir::new());
    for (n, user) in [(0, "ann"), (1, "ben")] {
        site.app.subscribe_with("fcm", n..n + 1, json!({"user_id": user})).await;
    }
    let mut chromium = Chromium::start(home.path()).await;
    chromium.listen().await;

    // The form makes a sentence of the trigger. A fault of the server is shown at its field.
    sign_in(&mut chromium, &site, "/campaigns").await;
    chromium.evaluate(&says("There is no campaign yet.")).await;
    chromium.press("n").await;
    write(&mut chromium, "[name=campaign-name]", "Reminder").await;
    write(&mut chromium, "[name=title]", "Your cart waits").await;
    click(&mut chromium, "[name=when][value=event]").await;
    write(&mut chromium, "[name=event]", "cart_added").await;
    write(&mut chromium, "[name=condition]", "total >= 50").await;
    write(&mut chromium, "[name=unless]", "bought").await;
    choose(&mut chromium, "limit", "per").await;
    let sentence = "30 minutes after cart_added with total >= 50, unless bought; at most once a week.";
    chromium.evaluate(&says(sentence)).await;
    look_at(&mut chromium, "campaign-trigger").await;
    write(&mut chromium, "[name=condition]", r#"tag("beta")"#).await;
    click(&mut chromium, "#save").await;
    appears(&mut chromium, "[name=condition][aria-invalid=true]").await;
    write(&mut chromium, "[name=condition]", "total >= 50").await;
    click(&mut chromium, "#save").await;
    goes(&mut chromium, "Draft: nothing is sent").await;
    chromium.evaluate(&says(sentence)).await;
    let schedule = json!({"on": "event:cart_added", "where": "total >= 50", "after": "30m",
        "unless": "event:bought", "at_most": "once per 7d"});
    assert_eq!(site.get("/campaigns/reminder/plan").await["schedule"], schedule);
    click(&mut chromium, "#edit").await;
    holds(&mut chromium, "[name=unless]", "bought").await;
    chromium.open(&format!("{}/admin/campaigns/reminder", site.origin)).await;
    click(&mut chromium, "#start").await;
    write(&mut chromium, "#typed", "2").await;
    click(&mut chromium, "#start-now").await;
    appears(&mut chromium, "#pause").await;
    run_scheduler(&site.app).await;
    goes(&mut chromium, "Waiting for events").await;

    // Ann's event was half an hour ago, so her message is due; Ben's event was now.
    let report = async |user: &str, age: TimeDelta| {
        let at = (site.app.clock.now() - age).to_rfc3339();
        let event = json!({"name": "cart_added", "user_id": user, "at": at, "properties": {"total": 59}});
        site.call(Method::POST, "/events", json!({"events": [event]})).await;
    };
    report("ann", TimeDelta::minutes(31)).await;
    goes(&mut chromium, "1 entered, 1 waits, 0 sent.").await;
    run_scheduler(&site.app).await;
    goes(&mut chromium, "1 entered, 0 wait, 1 sent.").await;
    report("ben", TimeDelta::zero()).await;
    for (step, n) in [("Entered", 2), ("Waiting", 1), ("Sent", 1)] {
        step_has(&mut chromium, step, n).await;
    }
    look_at(&mut chromium, "campaign-trigger-funnel").await;

    // The page of a person has what the person waits for; the list names no time.
    chromium.open(&format!("{}/admin/subscribers/shop/users/ben", site.origin)).await;
    chromium.evaluate(&says("Event cart_added")).await;
    look_at(&mut chromium, "person-waits").await;
    click(&mut chromium, "[aria-label='Waits for'] a").await;
    goes(&mut chromium, "2 entered, 1 waits, 1 sent.").await;
    chromium.open(&format!("{}/admin/campaigns", site.origin)).await;
    chromium.evaluate(&says("by events")).await;
    let is_refusal = |said: &String| said.contains("/campaigns") && said.contains("422");
    let unexpected: Vec<_> = chromium.complaints().into_iter().filter(|said| !is_refusal(said)).collect();
    assert_eq!(unexpected, Vec::<String>::new());
    site.app.finish().await;
}

#[tokio::test]
async fn in_chromium_a_viewer_sees_plans_without_actions() {
    let (site, home) = (Site::for_admins().await, TempDir::new());
    site.app.subscribe_with("fcm", 0..3, json!({"tags": ["beta"]})).await;
    let plan = json!({"slug": "spring", "message": {"to": {"all": true}, "content": {"title": "Spring"}}});
    site.call(Method::POST, "/campaigns", plan).await;
    site.call(Method::PUT, "/segments/testers", json!({"expression": "tag(\"beta\")"})).await;
    site.call(Method::PUT, "/templates/welcome", json!({"content": {"title": "Hello {{ data.name }}"}})).await;
    let link = invite(&site, "ann@example.com", json!([{"role": "viewer", "app": "shop"}])).await;
    let (_, token) = link.split_once('#').expect("a token");
    let mut chromium = Chromium::start(home.path()).await;
    chromium.open(&format!("{}/admin/", site.origin)).await;
    let enter = format!(
        "fetch('/v1/session', {{ method: 'POST', headers: {{ 'content-type': 'application/json' }},
            body: JSON.stringify({{ link: {token:?} }}) }}).then((response) => response.status)"
    );
    assert_eq!(chromium.evaluate(&enter).await, 201);
    for (path, why) in [
        ("/campaigns", "Your role does not allow writing campaigns."),
        ("/campaigns/-new", "Your role does not allow writing campaigns."),
        ("/campaigns/spring", "Your role does not allow starting, stopping or copying campaigns."),
        ("/segments", "Your role does not allow creating segments."),
        ("/segments/-new", "Your role does not allow creating segments."),
        ("/segments/testers", "Your role does not allow changing or deleting segments."),
        ("/templates", "Your role does not allow writing templates."),
        ("/templates/-new", "Your role does not allow writing templates."),
        ("/templates/welcome", "Your role does not allow changing or deleting templates."),
        ("/frequency", "Your role does not allow changing caps."),
    ] {
        chromium.open(&format!("{}/admin{path}", site.origin)).await;
        chromium.evaluate(&says(why)).await;
        let offered = "[...document.querySelectorAll('main button')].map((button) => button.innerText.trim())
            .filter((text) => /^(Start|Pause|Resume|Cancel|Copy|Try|Delete|Change|Save|Make)/.test(text))";
        assert_eq!(chromium.evaluate(offered).await, json!([]), "{path}");
    }
    site.app.finish().await;
}
