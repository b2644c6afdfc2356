//! Templates on the admin page, in Chromium: a template in two languages is previewed for one user and for all, stored, changed, used in a
//! message and a campaign, and deleted.

use axum::http::Method;
use serde_json::json;

use super::admin_page::{look_at, says};
use super::chromium::Chromium;
use super::site::Site;
use super::user_actions::{appears, choose, click, holds, sign_in, write};
use super::when;
use crate::support::TempDir;

/// Waits for the title in every platform preview.
async fn drawn(chromium: &mut Chromium, title: &str) {
    let titles = format!(
        "document.querySelectorAll('.drawing .title').length === 5
            && [...document.querySelectorAll('.drawing .title')].every((title) => title.innerText === {title:?})"
    );
    chromium.evaluate(&when(&titles)).await;
}

async fn trial(chromium: &mut Chromium, words: &str) {
    click(chromium, "#try-on-all").await;
    chromium.evaluate(&when(&format!("document.getElementById('trial')?.innerText.includes({words:?})"))).await;
}

#[tokio::test]
async fn in_chromium_a_template_is_written_and_sent() {
    let (site, home) = (Site::for_admins().await, TempDir::new());
    let ann = json!({"user_id": "ann", "locale": "de-AT", "attributes": {"name": "Ann"}});
    site.app.subscribe_with("fcm", 0..2, ann).await;
    site.app.subscribe_with("fcm", 2..11, json!({"attributes": {"name": "Bob"}})).await;
    site.app.subscribe_with("mozilla", 11..12, json!({"locale": "en"})).await;
    let mut chromium = Chromium::start(home.path()).await;
    chromium.listen().await;

    // It is previewed during the edit, for a made-up recipient.
    sign_in(&mut chromium, &site, "/templates").await;
    chromium.evaluate(&says("There is no template yet.")).await;
    look_at(&mut chromium, "templates-empty").await;
    chromium.press("n").await;
    write(&mut chromium, "[name=template-name]", "Welcome").await;
    holds(&mut chromium, "[name=template-name]", "welcome").await;
    write(&mut chromium, "[name=title]", "Hello {{ attributes.name").await;
    chromium.evaluate(&when("document.querySelector('.fault')")).await;
    click(&mut chromium, "#save-template").await;
    appears(&mut chromium, ".refused").await;
    write(&mut chromium, "[name=title]", "Hello {{ attributes.name }}").await;
    chromium.evaluate(&says("attributes.name")).await;
    drawn(&mut chromium, "Hello {{ attributes.name }}").await;
    write(&mut chromium, "[name=attributes]", r#"{"name": "Eve"}"#).await;
    drawn(&mut chromium, "Hello Eve").await;
    chromium.evaluate(&when("Number(document.querySelector('#meter strong')?.innerText) > 50")).await;

    // Another language begins with what there is; who gets which is told.
    write(&mut chromium, "[name=add-language]", "de").await;
    click(&mut chromium, "#add-language").await;
    appears(&mut chromium, "#remove-language").await;
    holds(&mut chromium, "[name=title]", "Hello {{ attributes.name }}").await;
    write(&mut chromium, "[name=title]", "Hallo {{ attributes.name }}").await;
    drawn(&mut chromium, "Hallo Eve").await;
    write(&mut chromium, "[name=whom-locale]", "de-AT").await;
    chromium.evaluate(&says("Language of this recipient: German (de).")).await;

    // Tried on all, it fails for the one without a name.
    trial(&mut chromium, "Of 12 recipients, 1 would get no message").await;
    chromium.evaluate(&when("document.querySelectorAll('tr[data-row]').length === 1")).await;
    look_at(&mut chromium, "template-new").await;
    click(&mut chromium, "[name=language][value='0']").await;
    holds(&mut chromium, "[name=title]", "Hello {{ attributes.name }}").await;
    write(&mut chromium, "[name=title]", "Hello {{ attributes.name | default('there') }}").await;
    trial(&mut chromium, "The template renders for all of 12 recipients.").await;
    click(&mut chromium, "[name=cuts]").await;
    click(&mut chromium, "#save-template").await;
    chromium.evaluate(&when("location.pathname === '/admin/templates/welcome'")).await;
    holds(&mut chromium, "[name=title]", "Hello {{ attributes.name | default('there') }}").await;
    let stored = site.get("/templates/welcome").await["template"].clone();
    assert_eq!(stored["locales"]["de"]["content"]["title"], "Hallo {{ attributes.name }}");
    assert_eq!(stored["too_long"], json!({"cut": "body"}));
    let drafts = "Object.keys(sessionStorage).filter((name) => name.startsWith('bellwire.template'))";
    assert_eq!(chromium.evaluate(drafts).await, json!([]), "what is stored is no draft any more");

    // It is changed where it is shown.
    write(&mut chromium, "[name=body]", "You have {{ data.n }} letters").await;
    chromium.evaluate(&says("The template does not render with this data.")).await;
    look_at(&mut chromium, "template").await;
    click(&mut chromium, "#save-template").await;
    appears(&mut chromium, "#saved").await;
    let stored = site.get("/templates/welcome").await["template"].clone();
    assert_eq!(stored["content"]["body"], "You have {{ data.n }} letters");

    // A message names it, tells it something, and is drawn for one of those who get it.
    chromium.open(&format!("{}/admin/messages/new", site.origin)).await;
    click(&mut chromium, "[name=says][value=template]").await;
    choose(&mut chromium, "template", "welcome").await;
    write(&mut chromium, "[name=data]", "[3]").await;
    chromium.evaluate(&says("It must be a JSON object.")).await;
    write(&mut chromium, "[name=data]", r#"{"n": 3}"#).await;
    drawn(&mut chromium, "Hello there").await;
    write(&mut chromium, "[name=drawn-for]", "ann").await;
    drawn(&mut chromium, "Hallo Ann").await;
    chromium.evaluate(&when("document.getElementById('send').innerText === 'Send to 12…'")).await;
    look_at(&mut chromium, "composer-template").await;
    click(&mut chromium, "#send").await;
    write(&mut chromium, "#typed", "12").await;
    click(&mut chromium, "#send-now").await;
    chromium.evaluate(&says("Rendered from a template for each recipient, also in German:")).await;
    let message = site.last_message().await;
    site.until_counts(&message, json!({"accepted": 12})).await;

    // A campaign's draft uses it, too; the deletion dialog shows that.
    let say = json!({"to": {"all": true}, "template": "welcome", "data": {"n": 3}});
    site.call(Method::POST, "/campaigns", json!({"slug": "spring", "name": "Spring", "message": say})).await;
    chromium.open(&format!("{}/admin/campaigns/spring", site.origin)).await;
    chromium.evaluate(&says("The template welcome, version of the last save")).await;
    click(&mut chromium, "#edit").await;
    holds(&mut chromium, "[name=template]", "welcome").await;
    holds(&mut chromium, "[name=data]", "{\n  \"n\": 3\n}").await;
    chromium.open(&format!("{}/admin/templates/welcome", site.origin)).await;
    click(&mut chromium, "#delete").await;
    chromium.evaluate(&says("One open campaign uses the template: Spring.")).await;
    look_at(&mut chromium, "template-delete").await;
    click(&mut chromium, "#do-it").await;
    chromium.evaluate(&says("There is no template yet.")).await;
    let unexpected: Vec<_> = chromium.complaints().into_iter().filter(|said| !is_noted(said)).collect();
    assert_eq!(unexpected, Vec::<String>::new());
    site.app.finish().await;
}

/// Whether a complaint is the browser's note of a draft that was refused.
fn is_noted(said: &str) -> bool {
    ["/templates/preview", "/templates/welcome", "dry_run"].iter().any(|path| said.contains(path))
        && said.contains("422")
}
