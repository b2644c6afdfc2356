//! Browsers of the shop: who they are, and what they report.

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use super::{HOUR, HOURS, SHOP, content};
use crate::demo::client::{Caller, Client};
use crate::demo::site::{ORIGIN, gateway_of, host_of, text};
use bellwire_core::clock::Clock;
use bellwire_core::lane::Gateway;
use bellwire_simulator::gateways::{Delivery, Simulator};

/// Index of the first browser, above those of the other apps.
const FIRST: u32 = 4_000_000;
/// Requests under way at the same time.
const AT_ONCE: usize = 16;
/// Reports of a request, at most (the API's limit).
const REPORTS_MAX: usize = 100;
/// Share of notifications that are displayed: others reach browsers that stay closed for days.
const DISPLAYED: f64 = 0.72;
/// Share of displayed notifications that are closed by hand.
const CLOSED: f64 = 0.3;
/// Shares of the reports by hours after the push.
const BY_HOUR: [f64; HOURS] = [0.46, 0.22, 0.12, 0.09, 0.07, 0.04];
const CITIES: [(&str, &str, &str); 4] = [
    ("Vienna", "Europe/Vienna", "de-AT"),
    ("Berlin", "Europe/Berlin", "de"),
    ("London", "Europe/London", "en-GB"),
    ("Lyon", "Europe/Paris", "fr"),
];

#[derive(Debug)]
struct Visitor {
    gateway: Gateway,
    endpoint: String,
    user: Option<String>,
    /// Id of its subscription; null for an imported one.
    id: Option<String>,
    /// Deliveries that it reported.
    reported: usize,
}

/// All browsers that have notifications on.
#[derive(Debug)]
pub(super) struct Browsers {
    present: Vec<Visitor>,
    next: u32,
    /// The app's VAPID public key.
    key: Vec<u8>,
    random: StdRng,
}

impl Browsers {
    pub(super) fn new(seed: u64, key: Vec<u8>) -> Self {
        Self { present: Vec::new(), next: 0, key, random: StdRng::seed_from_u64(seed) }
    }

    /// A new browser and its person, and what the shop knows of them.
    fn mint(&mut self, simulator: &Simulator) -> anyhow::Result<(Visitor, Value)> {
        let n = self.next;
        self.next += 1;
        let gateway = gateway_of(n * 7);
        let minted = simulator.mint(&host_of(gateway), FIRST + n, Some(&self.key)).context("minting")?;
        let user = (!n.is_multiple_of(3)).then(|| format!("customer-{}", 1_000 + n));
        let (city, timezone, locale) = CITIES[(n / 2) as usize % CITIES.len()];
        let orders = n * n % 11;
        let tags = if orders >= 8 { json!(["vip"]) } else { json!([]) };
        let known = json!({
            "subscription": {"endpoint": minted.endpoint, "keys": {"p256dh": minted.p256dh, "auth": minted.auth}},
            "user_id": user, "locale": locale, "timezone": timezone, "tags": tags,
            "attributes": {"city": city, "orders": orders},
            "topics": if n.is_multiple_of(4) { json!(["restock"]) } else { json!(["news"]) },
        });
        Ok((Visitor { gateway, endpoint: minted.endpoint, user, id: None, reported: 0 }, known))
    }

    /// Makes the browsers of another system. Returns the lines of an import.
    pub(super) fn mint_all(&mut self, simulator: &Simulator, n: u32) -> anyhow::Result<Vec<Value>> {
        let mut lines = Vec::new();
        for _ in 0..n {
            let (browser, line) = self.mint(simulator)?;
            self.present.push(browser);
            lines.push(line);
        }
        Ok(lines)
    }

    /// Registers new browsers.
    pub(super) async fn arrive(
        &mut self, api: &Client, operator: &str, simulator: &Simulator, n: u32,
    ) -> anyhow::Result<()> {
        let minted = (0..n).map(|_| self.mint(simulator)).collect::<anyhow::Result<Vec<_>>>()?;
        let register = |(browser, known): (Visitor, Value)| async move {
            let made = api.post(Caller::Key(operator), &format!("/v1/apps/{SHOP}/subscriptions"), &known).await?;
            anyhow::Ok(Visitor { id: Some(text(&made, "id")?.to_owned()), ..browser })
        };
        let arrived: Vec<Visitor> = stream::iter(minted).map(register).buffered(AT_ONCE).try_collect().await?;
        self.present.extend(arrived);
        Ok(())
    }

    /// Unsubscribes some of those that registered themselves.
    pub(super) async fn leave(&mut self, api: &Client, operator: &str, n: usize) -> anyhow::Result<()> {
        for _ in 0..n {
            let at = self.random.random_range(0..self.present.len());
            let Some(id) = self.present[at].id.clone() else { continue };
            self.present.swap_remove(at);
            let path = format!("/v1/apps/{SHOP}/subscriptions/{id}");
            api.call(Caller::Key(operator), http::Method::DELETE, &path, bytes::Bytes::new()).await?;
        }
        Ok(())
    }

    /// Users drawn at random.
    pub(super) fn some_users(&mut self, n: usize) -> Vec<String> {
        let users: Vec<&String> = self.present.iter().filter_map(|browser| browser.user.as_ref()).collect();
        (0..n).map(|_| users[self.random.random_range(0..users.len())].clone()).collect()
    }

    /// Reports on everything that was accepted since the last call, while the clock moves on by an hour at a time.
    pub(super) async fn report(
        &mut self, api: &Client, simulator: &Simulator, clock: &Clock, hours: usize,
    ) -> anyhow::Result<()> {
        let mut by_hour: [Vec<Value>; HOURS] = Default::default();
        for browser in &mut self.present {
            let received = simulator.received(&browser.endpoint)?;
            for delivery in received.iter().skip(browser.reported).filter(|delivery| delivery.accepted > 0) {
                let hour = hour_of(self.random.random()).min(hours - 1);
                by_hour[hour].extend(reports(browser.gateway, delivery, &mut self.random));
            }
            browser.reported = received.len();
        }
        for reports in by_hour.into_iter().take(hours) {
            for part in reports.chunks(REPORTS_MAX) {
                api.post(Caller::Page(ORIGIN), &format!("/v1/apps/{SHOP}/receipts"), &json!(part)).await?;
            }
            clock.advance(HOUR.to_std().unwrap_or_default());
        }
        Ok(())
    }
}

fn hour_of(drawn: f64) -> usize {
    let mut sum = 0.0;
    BY_HOUR
        .iter()
        .position(|share| {
            sum += share;
            drawn < sum
        })
        .unwrap_or(HOURS - 1)
}

/// Reports of one browser on one delivery. Safari reports no displays.
fn reports(gateway: Gateway, delivery: &Delivery, random: &mut StdRng) -> Vec<Value> {
    let Some(push) = delivery.plaintext.as_deref().and_then(|text| serde_json::from_slice::<Value>(text).ok()) else {
        return Vec::new();
    };
    let notification = &push["notification"];
    let receipt = &notification["data"]["bellwire"]["receipt"];
    if random.random::<f64>() >= DISPLAYED || receipt.is_null() {
        return Vec::new();
    }
    let mut kinds = if gateway == Gateway::Apple { Vec::new() } else { vec!["displayed"] };
    let title = notification["title"].as_str().unwrap_or_default();
    if random.random::<f64>() < content::click_rate(title) {
        kinds.push("clicked");
    } else if gateway != Gateway::Apple && random.random::<f64>() < CLOSED {
        kinds.push("closed");
    }
    kinds.into_iter().map(|kind| json!({"receipt": receipt, "kind": kind})).collect()
}
