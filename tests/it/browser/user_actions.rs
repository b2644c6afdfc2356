//! User actions on the admin page, in Chromium.

use serde_json::json;

use super::admin_page::invite;
use super::chromium::Chromium;
use super::site::Site;
use super::when;

/// Writes into a field, as a person does.
pub(super) async fn write(chromium: &mut Chromium, selector: &str, text: &str) {
    let fill = format!(
        "(() => {{ const it = document.querySelector({selector:?}); it.focus(); it.value = {text:?};
            it.dispatchEvent(new Event('input', {{ bubbles: true }})); it.dispatchEvent(new Event('change', {{ bubbles: true }})); }})()"
    );
    appears(chromium, selector).await;
    chromium.evaluate(&fill).await;
}

/// Selects an option of a list once it exists. An option without a value attribute is found by its text.
pub(super) async fn choose(chromium: &mut Chromium, name: &str, value: &str) {
    let options = format!("[...document.querySelector('[name={name}]')?.options ?? []]");
    chromium.evaluate(&when(&format!("{options}.some((option) => option.value === {value:?})"))).await;
    write(chromium, &format!("[name={name}]"), value).await;
}

pub(super) async fn appears(chromium: &mut Chromium, selector: &str) {
    chromium.evaluate(&when(&format!("document.querySelector({selector:?})"))).await;
}

/// Clicks on a button or a link, once it is there and not disabled.
pub(super) async fn click(chromium: &mut Chromium, selector: &str) {
    let ready = format!("document.querySelector({selector:?}) && !document.querySelector({selector:?}).disabled");
    chromium.evaluate(&when(&ready)).await;
    chromium.evaluate(&format!("document.querySelector({selector:?}).click()")).await;
}

/// Waits until a field has this value.
pub(super) async fn holds(chromium: &mut Chromium, selector: &str, value: &str) {
    chromium.evaluate(&when(&format!("document.querySelector({selector:?})?.value === {value:?}"))).await;
}

/// Comes to an address of the admin page with the operator's key.
pub(super) async fn sign_in(chromium: &mut Chromium, site: &Site, path: &str) {
    chromium.open(&format!("{}/admin{path}", site.origin)).await;
    appears(chromium, "#other-way").await;
    chromium.click("other-way").await;
    appears(chromium, "#api_key").await;
    let key = &site.app.operator;
    chromium.evaluate(&format!("document.getElementById('api_key').value = {key:?}")).await;
    chromium.click("sign-in").await;
}

/// Opens an address of the admin page as a viewer, replacing any earlier session.
pub(super) async fn sign_in_as_viewer(chromium: &mut Chromium, site: &Site, path: &str) {
    let link = invite(site, "vic@example.com", json!([{"role": "viewer"}])).await;
    let token = link.split_once('#').expect("a token").1;
    let body = json!({"link": token, "new_password": "correct horse battery"}).to_string();
    let ask = format!(
        "fetch('/v1/session', {{ method: 'POST', headers: {{ 'content-type': 'application/json' }}, body: {body:?} }})
            .then((response) => response.status)"
    );
    assert_eq!(chromium.evaluate(&ask).await, 201);
    chromium.open(&format!("{}/admin{path}", site.origin)).await;
}
