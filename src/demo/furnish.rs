//! Extra content of a demo that keeps running, so that every admin page has data. Created only through the public API and the
//! command line.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use chrono::{TimeDelta, Utc};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::Method;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use super::client::Caller;
use super::progress::Progress;
use super::setup::Setup;
use super::site::{APP, TOPIC, gateway_of, host_of, text};
use bellwire_core::base64url;
use bellwire_core::lane::Gateway;
use bellwire_core::scope::Scope;
use bellwire_simulator::gateways::{Rule, RuleAction};

/// Slug of a second app, whose VAPID key is being replaced and whose campaigns run slowly.
const JOURNAL: &str = "journal";
const READERS: u32 = 400;
/// Number of its subscriptions that use the new VAPID key.
const MOVED: u32 = 248;
/// Number of the first app's browsers registered by its backend, with user ids, tags and attributes.
const CUSTOMERS: u32 = 120;
const BEYOND: u32 = 1_000_000;
/// Concurrent requests.
const AT_ONCE: usize = 16;
/// Maximum time until sent content is visible.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(200);

/// The user of the demo's sign-in link, and colleagues.
const TEAM: [(&str, &str, Option<&str>); 4] = [
    ("ann@example.com", "admin", None),
    ("ben@example.com", "operator", None),
    ("cora@example.com", "sender", Some(APP)),
    ("dan@example.com", "viewer", Some(JOURNAL)),
];

/// Creates the content, and returns the path of the one-time link for the first teammate.
pub(super) async fn furnish(setup: &Setup, progress: &Progress) -> anyhow::Result<String> {
    progress.say("adding what there is to look at: apps, topics, policies, teammates, keys, a hold, retries");
    let furnisher = Furnisher { setup, operator: Caller::Key(&setup.operator) };
    furnisher.shop().await?;
    furnisher.keys().await?;
    furnisher.journal().await?;
    furnisher.troubles().await?;
    team(setup.data_dir()).await
}

struct Furnisher<'a> {
    setup: &'a Setup,
    operator: Caller<'a>,
}

impl Furnisher<'_> {
    async fn put(&self, path: &str, body: Value) -> anyhow::Result<Value> {
        self.setup.api.call(self.operator, Method::PUT, path, body.to_string().into()).await
    }

    async fn post(&self, path: &str, body: Value) -> anyhow::Result<Value> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.setup.api.call(self.operator, Method::POST, path, body.into()).await
    }

    async fn patch(&self, path: &str, body: Value) -> anyhow::Result<Value> {
        self.setup.api.call(self.operator, Method::PATCH, path, body.to_string().into()).await
    }

    /// Fills the first app like a shop: topics with policies, and people.
    async fn shop(&self) -> anyhow::Result<()> {
        let app = format!("/v1/apps/{APP}");
        self.patch(&app, json!({"name": "Winter shop", "add_origins": [self.setup.api.base()]})).await?;
        for (topic, join) in [("offers", "anyone"), ("releases", "anyone"), ("staff", "server")] {
            self.put(&format!("{app}/topics/{topic}"), json!({"join": join})).await?;
        }
        let patient = json!({"baseDelayMs": 60_000, "maxDelayMs": 600_000, "maxAttempts": 8, "jitterPercent": 0.2});
        self.put(&format!("{app}/policies/topics/offers"), patient).await?;
        let codes = json!({"retries": 3, "retryDelay": "pow(2, retried) * 1000"});
        self.put(&format!("{app}/policies/tiers/transactional"), codes).await?;
        let topics = [TOPIC, "offers", "releases", "staff"];
        let cities =
            [("Berlin", "Europe/Berlin", "de"), ("Lisbon", "Europe/Lisbon", "pt"), ("Osaka", "Asia/Tokyo", "ja")];
        let people = (0..CUSTOMERS).map(|n| {
            let (city, timezone, locale) = cities[n as usize % cities.len()];
            let tags = if n % 5 == 0 { json!([city.to_lowercase(), "vip"]) } else { json!([city.to_lowercase()]) };
            // Some people have two browsers.
            json!({"user_id": format!("customer-{}", n / 2), "tags": tags, "attributes": {"city": city, "orders": n % 9},
                "topics": [topics[n as usize % topics.len()]], "locale": locale, "timezone": timezone})
        });
        self.register(APP, &self.setup.application_server_key, BEYOND, people.collect()).await.map(drop)
    }

    /// Creates API keys in each state, and an identity key.
    async fn keys(&self) -> anyhow::Result<()> {
        let app = format!("/v1/apps/{APP}");
        let soon = Utc::now() + TimeDelta::days(9);
        for (name, scopes, expires_at) in [
            ("newsletter tool", json!([Scope::Send]), None),
            ("agency, until the relaunch", json!([Scope::Read, Scope::Subscribers]), Some(soon)),
            ("old backend", json!([Scope::Send, Scope::Read]), None),
        ] {
            let made = self
                .post(&format!("{app}/api-keys"), json!({"name": name, "scopes": scopes, "expires_at": expires_at}))
                .await?;
            if name.starts_with("old") {
                let path = format!("{app}/api-keys/{}", text(&made, "id")?);
                self.setup.api.call(self.operator, Method::DELETE, &path, Default::default()).await?;
            }
        }
        self.post(&format!("{app}/identity-keys"), json!({"name": "shop backend"})).await.map(drop)
    }

    /// Creates a second app with a new VAPID key for most of its subscriptions, a rate limit, and running and paused campaigns.
    async fn journal(&self) -> anyhow::Result<()> {
        let app = format!("/v1/apps/{JOURNAL}");
        let body = json!({"slug": JOURNAL, "name": "Journal", "origins": ["https://journal.example", self.setup.api.base()],
            "subject": "mailto:push@example.com", "allow_other_gateways": true, "topics": ["daily", "weekend"]});
        self.post("/v1/apps", body).await?;
        let body = json!({"slug": "support", "name": "Support desk", "origins": ["https://help.example"],
            "subject": "mailto:push@example.com"});
        self.post("/v1/apps", body).await?;
        let topics =
            |n: u32| json!({"topics": [if n.is_multiple_of(3) { "weekend" } else { "daily" }], "locale": "en"});
        let before = self.public_key(&app).await?;
        let ids = self.register(JOURNAL, &before, 2 * BEYOND, (0..READERS).map(topics).collect()).await?;
        self.send(
            &app,
            json!({"to": {"all": true}, "content": {"title": "Good morning", "body": "Five things before breakfast."}}),
        )
        .await?;
        self.post(&format!("{app}/vapid-keys"), json!({})).await?;
        let after = self.public_key(&app).await?;
        let moved = ids.iter().take(MOVED as usize).map(|id| json!({"replaces": {"id": id}})).collect();
        self.register(JOURNAL, &after, 3 * BEYOND, moved).await?;
        self.put(&format!("{app}/flow"), json!({"rate": 20, "period": 60})).await?;
        let quiet = json!({"timezone": "Europe/Berlin", "quiet_hours": {"from": "22:00", "to": "07:00"},
            "off_peak": [{"days": ["mon", "tue", "wed", "thu", "fri"], "from": "10:00", "to": "16:00"}]});
        let running = json!({"to": {"all": true}, "tier": "transactional",
            "content": {"title": "Election night", "body": "The first results are in."}});
        self.send(&app, running).await?;
        let paused =
            self.send(&app, json!({"to": {"topic": "weekend"}, "content": {"title": "The long read"}})).await?;
        self.post(&format!("{app}/messages/{paused}/pause"), Value::Null).await?;
        let cancelled =
            self.send(&app, json!({"to": {"topic": "daily"}, "content": {"title": "Sent by mistake"}})).await?;
        self.post(&format!("{app}/messages/{cancelled}/cancel"), Value::Null).await?;
        self.put(&format!("{app}/calendar"), quiet).await.map(drop)
    }

    /// Creates dead letters of several kinds, deliveries to retry, and a held lane with waiting deliveries.
    async fn troubles(&self) -> anyhow::Result<()> {
        let app = format!("/v1/apps/{APP}");
        let answer = |status, body: &str| RuleAction::Answer { status, headers: Vec::new(), body: body.to_owned() };
        let share = |share, action| Rule { share: Some(share), ..Rule::always(action) };
        for rule in [
            share([0.50, 0.53], RuleAction::BadRequest),
            share([0.54, 0.56], RuleAction::Redirect { to: "https://elsewhere.example/".to_owned() }),
            share([0.57, 0.58], answer(418, "This endpoint is a teapot.")),
        ] {
            self.setup.simulator.add_rule(rule)?;
        }
        let news =
            json!({"to": {"topic": TOPIC}, "content": {"title": "New in this week", "body": "Boots, and a sale."}});
        let first = self.send(&app, news).await?;
        self.until(&app, &first, |message| message["state"] == "done").await?;
        let busy = share([0.10, 0.25], RuleAction::Unavailable { retry_after_s: None });
        self.setup.simulator.add_rule(Rule { gateway: Some(Gateway::Mozilla), ..busy })?;
        let lane = self.lane(Gateway::Apple).await?;
        let hold = json!({"seconds": 7_200, "reason": "their status page is red"});
        self.post(&format!("/v1/gateways/{lane}/hold"), hold).await?;
        let slow = json!({"baseDelayMs": 300_000, "maxDelayMs": 600_000, "maxAttempts": 8});
        let waiting = json!({"to": {"topic": TOPIC}, "ttl": 86_400, "policy": slow,
            "content": {"title": "Free returns until the end of January", "url": "https://shop.example/returns"}});
        let waiting = self.send(&app, waiting).await?;
        self.until(&app, &waiting, |message| message["counts"]["retrying"].as_u64() > Some(0)).await
    }

    async fn send(&self, app: &str, mut body: Value) -> anyhow::Result<String> {
        let defaults = json!({"ttl": 7_200});
        for (name, value) in defaults.as_object().into_iter().flatten() {
            body.as_object_mut().context("a message is an object")?.entry(name).or_insert_with(|| value.clone());
        }
        let sent = self.post(&format!("{app}/messages"), body).await?;
        Ok(text(&sent, "id")?.to_owned())
    }

    /// Waits until a message has the wanted state, for a limited time. If it never has, only the admin page lacks some content.
    async fn until(&self, app: &str, message: &str, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if wanted(&self.setup.api.get(self.operator, &format!("{app}/messages/{message}")).await?) {
                return Ok(());
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    async fn public_key(&self, app: &str) -> anyhow::Result<Vec<u8>> {
        let keys = self.setup.api.get(self.operator, &format!("{app}/vapid-keys")).await?;
        let public = base64url::decode_any(text(&keys["data"][0], "public_key")?);
        public.context("a public key is not base64url")
    }

    async fn lane(&self, gateway: Gateway) -> anyhow::Result<i64> {
        let app = self.setup.api.get(self.operator, &format!("/v1/apps/{APP}")).await?;
        let lanes = self.setup.api.get(self.operator, "/v1/gateways").await?;
        let mut all = lanes["data"].as_array().into_iter().flatten();
        let found = all.find(|lane| lane["app"] == app["id"] && lane["gateway"] == gateway.name());
        found.and_then(|lane| lane["lane"].as_i64()).context("the lane is there: its browsers are registered")
    }

    /// Registers browsers as the app's backend, with their attributes in `known`. Returns the ids of their subscriptions.
    async fn register(&self, app: &str, key: &[u8], first: u32, known: Vec<Value>) -> anyhow::Result<Vec<String>> {
        let one = |(n, mut body): (u32, Value)| async move {
            let minted = self.setup.simulator.mint(&host_of(gateway_of(n)), first + n, Some(key)).context("minting")?;
            body["subscription"] =
                json!({"endpoint": minted.endpoint, "keys": {"p256dh": minted.p256dh, "auth": minted.auth}});
            let made = self.post(&format!("/v1/apps/{app}/subscriptions"), body).await?;
            Ok(text(&made, "id")?.to_owned())
        };
        stream::iter((0..).zip(known)).map(one).buffered(AT_ONCE).try_collect().await
    }
}

/// Invites all teammates with `bellwire admin invite`, and returns the path of the first one's link.
async fn team(data: &Path) -> anyhow::Result<String> {
    let mut first = None;
    for (email, role, app) in TEAM {
        let mut command = Command::new(std::env::current_exe()?);
        command.env_remove("DATABASE_URL").env_remove("BELLWIRE_DATABASE_URL").env_remove("BELLWIRE_MASTER_KEY");
        command.args(["admin", "invite", email, "--role", role, "--json", "--data-dir"]).arg(data);
        command.args(app.map(|app| format!("--app={app}")));
        let output = command.output().await?;
        if !output.status.success() {
            bail!("{email} cannot be invited: {}", String::from_utf8_lossy(&output.stderr));
        }
        let invited: Value = serde_json::from_slice(&output.stdout)?;
        first.get_or_insert(text(&invited["link"], "path")?.to_owned());
    }
    first.context("the team has a member")
}
