//! Frequency page of the admin page, in Chromium: engagement figures, a held app and its release, and caps.

use axum::http::Method;
use bellwire::testkit::server::maintenance;
use bellwire_core::delivery::{Ending, ReceiptKind};
use bellwire_rules::policy::runaway::Guard;
use bellwire_store::queue::guards;
use serde_json::{Value, json};

use super::admin_page::{look_at, says};
use super::chromium::Chromium;
use super::site::Site;
use super::user_actions::{click, sign_in, write};
use super::when;
use crate::support::TempDir;

/// The number of a fact among those of figures over time: endings by their own, and what was asked and reported after 20.
const ASKED: i16 = 20;

/// Notes what browsers of a push service made of what they were sent today.
async fn note(site: &Site, gateway: &str, [displayed, clicked, closed]: [i64; 3]) {
    let lane = i32::try_from(site.app.lane(gateway).await).unwrap();
    let [shown, opened, shut, ..] = ReceiptKind::ALL.map(|kind| ASKED + kind as i16);
    let accepted = Ending::Accepted as i16;
    for (fact, n) in [(accepted, 2_000), (ASKED, 2_000), (shown, displayed), (opened, clicked), (shut, closed)] {
        sqlx::query("INSERT INTO rollup_notes (minute, lane, tier, fact, n) VALUES ($1, $2, 3, $3, $4)")
            .bind(site.app.clock.now() - chrono::TimeDelta::hours(1))
            .bind(lane)
            .bind(fact)
            .bind(n)
            .execute(&site.app.pool)
            .await
            .unwrap();
    }
    maintenance::fold_metrics(&site.app.pool).await.expect("the database answers");
}

/// Waits for the page's summary sentence.
async fn sentence(chromium: &mut Chromium, words: &str) {
    chromium.evaluate(&when(&format!("document.getElementById('too-much')?.innerText.includes({words:?})"))).await;
}

async fn guard(site: &Site) -> Value {
    site.get("/guard").await
}

#[tokio::test]
async fn in_chromium_a_held_app_is_released() {
    let (site, home) = (Site::for_admins().await, TempDir::new());
    site.app.subscribe("fcm", 0..3).await;
    site.app.subscribe("mozilla", 100..101).await;
    let mut chromium = Chromium::start(home.path()).await;
    chromium.listen().await;

    // Nothing was sent yet, so engagement is unknown.
    sign_in(&mut chromium, &site, "/frequency").await;
    sentence(&mut chromium, "Unknown").await;
    chromium.evaluate(&says("Nothing was sent within 56 days.")).await;
    chromium.evaluate(&says("There are no caps")).await;
    look_at(&mut chromium, "frequency-empty").await;

    // More goes out than the app's size explains: it is held, which comes before what people make of it.
    site.app.operate(Method::PUT, "/v1/apps/shop/guard", json!({"factor": 1, "floor": 5})).await.ok(200);
    for _ in 0..3 {
        site.send(json!({"title": "Sale"})).await;
    }
    note(&site, "fcm", [1_000, 3, 100]).await;
    note(&site, "mozilla", [800, 80, 0]).await;
    guards::watch(&site.app.pool, Guard::DEFAULT, site.app.clock.now()).await.expect("the database answers");
    assert_eq!(guard(&site).await["held"], json!(["promotional", "engagement"]));
    site.call(Method::POST, "/messages", json!({"to": {"all": true}, "content": {"title": "Held"}})).await;
    chromium.open(&format!("{}/admin/frequency", site.origin)).await;
    sentence(&mut chromium, "Promotional and engagement messages are on hold since").await;
    chromium.evaluate(&says("Too frequent")).await;
    chromium.evaluate(&says("0.3 % of 1,000")).await;
    chromium.evaluate(&when("document.querySelector('[data-load=other] .badge').innerText === 'On hold'")).await;
    look_at(&mut chromium, "frequency-held").await;

    // Released once it was said what that does, people have their say.
    click(&mut chromium, "#release").await;
    chromium.evaluate(&says("Promotional and engagement messages are sent again within a second: ")).await;
    look_at(&mut chromium, "frequency-release").await;
    click(&mut chromium, "#do-it").await;
    sentence(
        &mut chromium,
        "Too frequent: few subscribers click or most dismiss the notifications, in browsers of Google.",
    )
    .await;
    assert_eq!(guard(&site).await["held"], json!([]));
    site.app.run_until_idle().await;

    // So caps are set, after they were read once more.
    click(&mut chromium, "#add-cap").await;
    write(&mut chromium, "[name=cap-max-0]", "3").await;
    click(&mut chromium, "#add-cap").await;
    write(&mut chromium, "[name=cap-tiers-1]", "promotional").await;
    write(&mut chromium, "[name=cap-max-1]", "0").await;
    write(&mut chromium, "[name=cap-window-1]", "12").await;
    write(&mut chromium, "[name=cap-unit-1]", "h").await;
    click(&mut chromium, "#change-caps").await;
    chromium.evaluate(&says("It must be a whole number from 1 to 50.")).await;
    chromium.evaluate(&says("One field needs attention.")).await;
    look_at(&mut chromium, "frequency-caps-refused").await;
    write(&mut chromium, "[name=cap-max-1]", "1").await;
    click(&mut chromium, "#change-caps").await;
    chromium.evaluate(&says("A user gets at most 3 promotional and engagement messages together in 1 day.")).await;
    chromium.evaluate(&says("A user gets at most one promotional message in 12 h.")).await;
    click(&mut chromium, "#do-it").await;
    chromium.evaluate(&when("document.getElementById('caps')?.innerText.includes('in 12 h')")).await;
    let both = json!({"tiers": ["promotional", "engagement"], "max": 3, "window": "1d"});
    let promotional = json!({"tiers": ["promotional"], "max": 1, "window": "12h"});
    assert_eq!(site.get("/caps").await["caps"], json!([both, promotional]));

    // The guard goes by other figures, or is turned off.
    chromium.evaluate("document.querySelector('details:has(#change-guard)').open = true").await;
    write(&mut chromium, "[name=factor]", "0").await;
    click(&mut chromium, "#change-guard").await;
    chromium.evaluate(&says("The guard is disabled: all messages are sent.")).await;
    click(&mut chromium, "#do-it").await;
    chromium.evaluate(&says("The guard is disabled.")).await;
    assert_eq!(guard(&site).await["limit"], Value::Null);
    look_at(&mut chromium, "frequency").await;
    assert_eq!(chromium.complaints(), Vec::<String>::new());
    site.app.finish().await;
}
