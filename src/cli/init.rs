//! `bellwire init`: everything that a site needs to begin with, in one command.

use anyhow::bail;
use axum::http::Method;
use clap::Args;
use serde_json::json;

use super::app;
use super::invocation;
use super::local::{Ask, Local, path};
use super::output::{Output, text};
use super::refusal::CommandError;
use crate::api::http::problem::ProblemCode;
use bellwire_webpush::keys::check_subject;

/// The topic that a site begins with.
const TOPIC: &str = "news";
/// Contact of its VAPID key where the site's address is none that push services take.
const NOBODY: &str = "mailto:push@example.com";
/// Scopes of a backend's API key: send messages, read results, and assign browsers to users.
const SCOPES: [&str; 3] = ["send", "read", "subscribers"];

#[derive(Debug, Args)]
#[group(skip)] // the verb has the same name
pub(super) struct Init {
    /// Short name of the app: lower-case letters, digits and hyphens.
    slug: String,
    /// An origin that your pages are served from, such as http://localhost:3000 or https://shop.example.com; repeatable.
    #[arg(long = "origin", value_name = "ORIGIN", required = true)]
    origins: Vec<String>,
    /// Contact for push services, `mailto:` or `https:`; by default the first origin, if it is on the Internet.
    #[arg(long, value_name = "CONTACT")]
    subject: Option<String>,
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
            send: invocation::complete(&format!(
                "bellwire send --app {slug} --topic {TOPIC} --title Hello --body \"It works\""
            ))
            .into_owned(),
        }
    }
}

impl Init {
    pub(super) async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        let Self { slug, origins, subject } = self;
        let own = origins.first().filter(|origin| check_subject(origin).is_ok());
        let subject = subject.or_else(|| own.cloned()).unwrap_or_else(|| NOBODY.to_owned());
        let body = json!({"slug": slug, "name": slug, "subject": subject, "origins": origins, "topics": [TOPIC]});
        let ask = Ask { body, names: app::NAMES, ..Ask::new(Method::POST, path(["apps"])) };
        let made = match local.ask(ask).await {
            Err(error)
                if error
                    .downcast_ref()
                    .is_some_and(|refusal: &CommandError| refusal.code == ProblemCode::SlugTaken) =>
            {
                bail!(
                    "there is an app {slug} already, and nothing was changed. `bellwire app show {slug}` shows it, \
                     `bellwire topic list --app {slug}` its topics, and `bellwire key create --app {slug} --name backend \
                     --scope {}` makes another key",
                    SCOPES.join(",")
                );
            }
            made => made?,
        };
        let body = json!({"name": "backend", "scopes": SCOPES});
        let key = local.ask(Ask { body, ..Ask::new(Method::POST, path(["apps", &slug, "api-keys"])) }).await?;
        let Snippets { worker, page, send } = Snippets::of(&slug, &local.server);
        let secret = text(&key, "/secret");
        let people = format!(
            "Made the app {slug} with a VAPID key, the topic {TOPIC} and a key for your backend.\n\n\
             Keep the key, it is shown only now:\n\nBELLWIRE_KEY={secret}\n\n\
             In /service-worker.js on your site, at the top:\n\n{worker}\n\n\
             On your page:\n\n{page}\n\n\
             To send, once a visitor has pressed the button:\n\n{send}\n"
        );
        out.say(&json!({"app": made, "key": key, "worker": worker, "page": page, "send": send}), &people)?;
        if subject == NOBODY {
            out.note(&format!(
                "Before you go public, name a contact for push services: bellwire vapid subject --app {slug} mailto:you@your.domain"
            ));
        }
        Ok(())
    }
}
