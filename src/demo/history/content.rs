//! Content of the shop: what it stores and sends, and on which day.

use chrono::{Datelike as _, TimeDelta};
use serde_json::{Value, json};

use super::{AFTERNOON, DAYS, SHOP};
use crate::demo::site::ORIGIN;
use bellwire_core::clock::Timestamp;

/// Browsers that the shop brings along from its previous system.
pub(super) const IMPORTED: u32 = 320;
/// Messages to single people a day.
pub(super) const PARCELS: usize = 2;
/// Days before today on which something special happens.
const TEST: u64 = DAYS - 40;
const SALE: u64 = DAYS - 19;
const THANKS: u64 = DAYS - 9;
const LAST: u64 = DAYS - 1;

/// A day of the history, from 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct Day(pub u64);

impl Day {
    /// New subscribers: more from week to week, and most after the sale.
    pub(super) fn arrivals(self) -> u32 {
        let steady = 3 + self.0 / 20 + self.0 * 7 % 4;
        let campaign = if (SALE..SALE + 4).contains(&self.0) { 9 } else { 0 };
        u32::try_from(steady + campaign).unwrap_or(u32::MAX)
    }

    /// Subscribers who switch notifications off.
    pub(super) fn departures(self) -> usize {
        usize::from(self.0.is_multiple_of(2)) + if self.0 == SALE + 1 { 6 } else { 0 }
    }

    /// Share of the browsers that were removed by then, and whose endpoints are gone.
    pub(super) fn uninstalled(self) -> Option<[f64; 2]> {
        self.0.is_multiple_of(10).then(|| {
            let from = 0.02 * (self.0 / 10) as f64;
            [from, from + 0.008]
        })
    }

    /// Share of the browsers whose push service refuses messages without a good reason, in the last weeks.
    pub(super) fn refused(self) -> Option<[f64; 2]> {
        (self.0 == SALE).then_some([0.901, 0.912])
    }

    /// Plans of the campaigns that begin on this day.
    pub(super) fn campaigns(self, midnight: Timestamp) -> Vec<Value> {
        match self.0 {
            TEST => vec![preview(), reminder()],
            SALE => vec![sale()],
            THANKS => vec![thanks()],
            LAST => vec![advent(midnight)],
            _ => Vec::new(),
        }
    }
}

pub(super) fn app() -> Value {
    json!({"slug": SHOP, "name": "Alpine Outfitters", "origins": [ORIGIN], "subject": "mailto:push@example.com",
        "allow_other_gateways": true})
}

/// A receiver that does not exist: each request to it fails.
pub(super) fn webhook() -> Value {
    json!({"name": "Order system", "url": "https://hooks.shop.example/bellwire",
        "events": ["campaign.state", "dead_letter.created", "subscription.ended"]})
}

/// Paths within the app, and what is stored there.
pub(super) fn stored() -> Vec<(String, Value)> {
    let topic = |name: &str, title: &str, position: u32| {
        (format!("/topics/{name}"), json!({"join": "anyone", "display": {"title": title, "position": position}}))
    };
    let segment = |name: &str, expression: &str, description: &str| {
        (format!("/segments/{name}"), json!({"expression": expression, "description": description}))
    };
    let template = |name: &str, en: Value, de: Value| {
        (format!("/templates/{name}"), json!({"content": en, "locales": {"de": {"content": de}}}))
    };
    vec![
        topic("news", "Weekly picks", 1),
        topic("restock", "Back in stock", 2),
        segment("regulars", r#"tag("vip") or orders >= 5"#, "People who order often"),
        segment("newcomers", "age < 30d", "Subscribed in the last 30 days"),
        segment("asleep", "unclicked >= 5", "Five messages since the last click"),
        template(
            "parcel",
            json!({"title": "Your parcel is on its way", "body": "Order {{ data.order }} arrives {{ data.day }}.",
                "url": "https://shop.example/orders/{{ data.order }}"}),
            json!({"title": "Ihr Paket ist unterwegs", "body": "Bestellung {{ data.order }} kommt {{ data.day }} an.",
                "url": "https://shop.example/orders/{{ data.order }}"}),
        ),
        template(
            "back-in-stock",
            json!({"title": "{{ data.item }} is back", "body": "In your size, while stocks last."}),
            json!({"title": "{{ data.item }} ist wieder da", "body": "In Ihrer Größe, solange der Vorrat reicht."}),
        ),
    ]
}

pub(super) fn parcel(user: &str) -> Value {
    json!({"to": {"users": [user]}, "tier": "transactional", "template": "parcel",
        "data": {"order": format!("W-{}", user.len() * 1_009), "day": "on Friday"}})
}

fn notification(title: &str, body: &str, page: &str) -> Value {
    json!({"title": title, "body": body, "url": format!("https://shop.example/{page}")})
}

/// A campaign that repeats every week, first on the day after tomorrow.
pub(super) fn weekly(now: Timestamp) -> Value {
    let weekday = (now + TimeDelta::days(2)).weekday().num_days_from_sunday();
    json!({"slug": "weekly-picks", "name": "Weekly picks",
        "message": {"to": {"topic": "news"}, "tier": "engagement", "ttl": 86_400,
            "content": notification("This week's picks", "Five things our guides pack in November.", "picks")},
        "schedule": {"cron": format!("0 {} * * {weekday}", AFTERNOON.num_hours()), "timezone": "UTC"}})
}

/// An A/B test: the better title goes to the rest three hours after the start.
fn preview() -> Value {
    let variant = |name: &str, title: &str| json!({"name": name, "message": {"content": {"title": title}}});
    json!({"slug": "winter-preview", "name": "Winter preview", "holdout": 0.05,
        "message": {"to": {"all": true}, "tier": "promotional", "ttl": 86_400,
            "content": notification("The winter collection", "Warm, light, and made to be mended.", "winter")},
        "variants": [variant("plain", content_title::PLAIN), variant("early access", content_title::EARLY)],
        "test": {"share": 0.5, "after": 10_800}})
}

fn reminder() -> Value {
    json!({"slug": "winter-reminder", "name": "Winter preview, second call",
        "message": {"to": {"all": true}, "tier": "promotional", "ttl": 86_400,
            "content": notification("Have you seen the winter collection?", "Free shipping until Sunday.", "winter")},
        "follows": {"campaign": "winter-preview", "did_not": "click", "after": 259_200}})
}

fn sale() -> Value {
    json!({"slug": "mountain-days", "name": "Mountain days",
        "message": {"to": {"all": true}, "tier": "promotional", "ttl": 86_400,
            "content": notification(content_title::SALE, "Three days, tents and packs.", "sale")}})
}

fn thanks() -> Value {
    json!({"slug": "thank-you", "name": "Thank you, regulars",
        "message": {"to": {"segment": "regulars"}, "tier": "promotional", "ttl": 86_400,
            "content": notification("Thank you", "A small present for people who come often.", "thanks")}})
}

/// Planned for three days after today.
fn advent(midnight: Timestamp) -> Value {
    let at = midnight + TimeDelta::days(4) + TimeDelta::hours(9);
    json!({"slug": "advent", "name": "Advent calendar", "message": {"to": {"topic": "news"}, "tier": "promotional",
            "content": notification("Door 1 is open", "A new one every morning.", "advent")},
        "schedule": {"at": at}})
}

/// Titles that browsers click more or less often.
pub(super) mod content_title {
    pub(in crate::demo::history) const PLAIN: &str = "The winter collection";
    pub(in crate::demo::history) const EARLY: &str = "Winter: two days before everyone else";
    pub(in crate::demo::history) const SALE: &str = "20 % off for three days";
}

/// Probability that a notification with this title is clicked once it was displayed.
pub(super) fn click_rate(title: &str) -> f64 {
    match title {
        content_title::PLAIN => 0.05,
        content_title::EARLY => 0.22,
        content_title::SALE => 0.17,
        title if title.contains("parcel") || title.contains("Paket") => 0.55,
        _ => 0.09,
    }
}
