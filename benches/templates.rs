//! Cost of templates: rendering for one recipient on one core, and campaigns with literal content, with a template of equal text for all,
//! and with a personal greeting. `scripts/bench templates`
//!
//! `N` subscriptions (100,000), `ROUNDS` rounds (3) in which the three take turns; the median counts.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwire_core::template::Templated;
use bellwire_template::{Compiled, TemplatePerson};
use serde_json::{Value, json};

use crate::support::cpu::{self, per};
use crate::support::harness::{Campaign, Harness, notice};
use crate::support::table::{Bar, figure, heading, number};
use crate::support::{median, seed, setting};

/// Maximum cost of personal content per recipient.
const RECIPIENT_MAX_US: f64 = 10.0;
/// Duration of the rendering measurement.
const ALONE: Duration = Duration::from_secs(2);

pub async fn run() {
    alone();
    campaigns().await;
}

fn personal() -> Value {
    json!({"content": {
        "title": "{{ attributes.name | default('You') }}, fresh in the shop",
        "body": format!("Near {{{{ attributes.city | default('you') }}}}: {}", "x".repeat(160)),
        "url": "https://example.com/new?for={{ user_id | default('nobody') }}",
        "actions": [{"action": "open", "title": "Open"}]
    }})
}

/// The CPU time of filling in, in one thread that does nothing else.
fn alone() {
    let app = json!({"slug": "shop", "name": "Shop"});
    let templated: Templated =
        serde_json::from_value(json!({"template": personal(), "app": app, "site": "https://example.com"}))
            .expect("a template");
    let compiled = Compiled::new(&templated).expect("it is right");
    let attributes = json!({"name": "Ann", "city": "Linz", "plan": "pro", "points": 12, "since": "2024-05-01"});
    let person = |n: usize| {
        Arc::new(TemplatePerson {
            user_id: Some(format!("u{n}")),
            attributes: attributes.as_object().expect("an object").clone(),
            ..TemplatePerson::default()
        })
    };
    let people: Vec<_> = (0..1_000).map(person).collect();
    let thread = std::path::Path::new("/proc/thread-self");
    let (before, began, mut n) = (cpu::of_thread(thread), Instant::now(), 0_u32);
    while began.elapsed() < ALONE {
        for person in &people {
            black_box(compiled.fill(0, black_box(person)).expect("it fits"));
            n += 1;
        }
    }
    let took = cpu::of_thread(thread) - before;
    heading("Filling a template in for a recipient: title, body and link, alone on one core");
    figure("CPU per recipient", per(took, n), "µs", Bar::AtMost(RECIPIENT_MAX_US));
}

async fn campaigns() {
    let (n, rounds) = (setting("N", 100_000), setting("ROUNDS", 3).max(1));
    let harness = Harness::open().await;
    let app = harness.app("templates").await;
    seed::subscriptions(&harness.pool, &harness.vault, app, n).await;
    let attributes = r#"UPDATE subscriptions SET user_id = 'u' || id, attributes = '{"name": "Ann", "city": "Linz", "plan": "pro", "points": 12}'"#;
    sqlx::query(attributes).execute(&harness.pool).await.expect("the subscriptions are there");
    sqlx::query("VACUUM ANALYZE subscriptions").execute(&harness.pool).await.expect("a vacuum");
    let literal = notice();
    let template = |template: Value| {
        let mut body = literal.clone();
        let content = body.as_object_mut().and_then(|body| body.remove("content"));
        body["template"] = template;
        (body, content.expect("a content"))
    };
    let (mut same, content) = template(Value::Null);
    same["template"] = json!({"content": content});
    same["template"]["content"]["title"] = json!("{{ data.title }}");
    same["data"] = json!({"title": "Fresh in the shop"});
    let (personal, _) = template(personal());
    let bodies = [("literal", literal.clone()), ("the same to everybody", same), ("personal", personal)];
    let mut campaigns: [Vec<Campaign>; 3] = Default::default();
    for round in 0..=rounds {
        for ((_, body), campaigns) in bodies.iter().zip(&mut campaigns) {
            let campaign = harness.campaign(app, n, body).await;
            // The first one finds everything cold.
            if round > 0 {
                campaigns.push(campaign);
            }
        }
    }
    heading(&format!("Campaigns to {}; the median of {rounds} rounds", number(n.into())));
    let mut first = None;
    for ((name, _), campaigns) in bodies.iter().zip(&campaigns) {
        let median = |figure: fn(&Campaign) -> f64| median(campaigns, figure);
        let server = median(|c| per(c.usage.server, c.deliveries));
        let postgres = median(|c| per(c.usage.postgres, c.deliveries));
        figure(&format!("{name}: deliveries per second"), median(Campaign::rate), "/s", Bar::None);
        figure(&format!("{name}: server, CPU per delivery"), server, "µs", Bar::None);
        figure(&format!("{name}: Postgres, CPU per delivery"), postgres, "µs", Bar::None);
        let all = server + postgres;
        match first {
            None => first = Some(all),
            Some(first) => {
                let bar = if *name == "personal" { Bar::AtMost(RECIPIENT_MAX_US) } else { Bar::None };
                figure(&format!("{name}: more than literal"), all - first, "µs", bar);
            }
        }
    }
}
