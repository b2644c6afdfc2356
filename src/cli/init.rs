//! `bellwire init`: creates everything that a site needs, in one command.

use anyhow::bail;
use axum::http::Method;
use serde_json::json;

use super::client::{ApiRequest, path};
use super::invocation;
use super::output::text;
use super::refusal::CommandError;
use super::verb::{Call, Verb, option, positional, verb};
use crate::api::http::problem::ProblemCode;
use bellwire_webpush::keys::check_subject;

/// Topic created for a new site.
const TOPIC: &str = "news";
/// Contact of its VAPID key if the site's address is not acceptable to push services.
const NO_CONTACT: &str = "mailto:push@example.com";
/// Scopes of the backend's API key: send messages, read results, and assign browsers to users.
const SCOPES: [&str; 3] = ["send", "read", "subscribers"];

pub(super) fn init() -> Verb {
    let origins = "An origin that your pages are served from, such as http://localhost:3000 or https://shop.example.com; repeatable";
    let subject =
        "Contact for push services, `mailto:` or `https:`; by default the first origin, if it is on the Internet";
    verb("init", "POST /apps", "Create an app for your site, and print the code to paste")
        .takes([
            positional("SLUG", "/slug", "Short name of the app: lower-case letters, digits and hyphens"),
            option("--origin <ORIGIN>", "/origins", origins).many().required(),
            option("--subject <CONTACT>", "/subject", subject),
        ])
        .body(json!({"topics": [TOPIC]}))
        .shape(|call, body| {
            body["name"] = call.value("SLUG");
            if !call.has("subject") {
                let own = call.value("origin")[0].clone();
                body["subject"] =
                    if own.as_str().is_some_and(|own| check_subject(own).is_ok()) { own } else { NO_CONTACT.into() };
            }
            Ok(())
        })
        .run(|call| Box::pin(run(call)))
        .examples(["bellwire init shop --origin http://localhost:3000"])
        .may_come_first()
}

/// Snippets for the page, the service worker and the backend.
struct Snippets {
    worker: String,
    page: String,
    send: String,
}

impl Snippets {
    fn of(slug: &str, server: &str) -> Self {
        Self {
            worker: format!(
                "importScripts(\"{server}/sdk/service-worker.js\");\nbellwire.appUrl = \"{server}/v1/apps/{slug}\";"
            ),
            page: format!(
                r##"<button id="notify">Notify me</button>
<script type="module">
  import {{ init }} from "{server}/sdk/bellwire.js";
  const bellwire = init({{ app: "{slug}" }});
  document.querySelector("#notify").onclick = async () => {{
    const result = await bellwire.subscribe({{ topics: ["{TOPIC}"] }});
    if (!result.ok) alert(result.message);
  }};
</script>"##
            ),
            send: format!("bellwire send --app {slug} --topic {TOPIC} --title Hello --body \"It works\""),
        }
    }
}

async fn run(call: &Call<'_>) -> anyhow::Result<()> {
    let (slug, request) = (call.text("SLUG"), call.request().await?);
    let made = match call.client.ask(&request).await {
        Err(error) if CommandError::is(&error, &[ProblemCode::SlugTaken]) => bail!(
            "there is an app {slug} already, and nothing was changed. `bellwire app show {slug}` shows it, `bellwire topic list --app \
             {slug}` its topics, and `bellwire key create --app {slug} --name backend --scope {}` makes another key",
            SCOPES.join(",")
        ),
        made => made?,
    };
    let key = ApiRequest::new(Method::POST, path(["apps", &slug, "api-keys"]));
    let key = call.client.ask(&key.body(json!({"name": "backend", "scopes": SCOPES}))).await?;
    let Snippets { worker, page, send } = Snippets::of(&slug, &call.client.server);
    let secret = text(&key, "/secret");
    let people = format!(
        "Made the app {slug} with a VAPID key, the topic {TOPIC} and a key for your backend.\n\n\
         Keep the key, it is shown only now:\n\nBELLWIRE_KEY={secret}\n\n\
         In /service-worker.js on your site, at the top:\n\n{worker}\n\n\
         On your page:\n\n{page}\n\n\
         To send, once a visitor has pressed the button:\n\n{send}\n"
    );
    call.out.say(
        &json!({"app": made, "key": key, "worker": worker, "page": page, "send": invocation::complete(&send)}),
        &people,
    )?;
    if request.body["subject"] == NO_CONTACT {
        call.out.note(&format!(
            "Before you go public, name a contact for push services: bellwire vapid subject --app {slug} mailto:you@your.domain"
        ));
    }
    Ok(())
}
