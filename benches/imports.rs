//! Imports: what a row costs, alone and beside a campaign, and whether memory grows with a file. `scripts/bench imports`
//!
//! `N` rows (200,000): those of an export of another app. Ends with an error if one is missing.

use std::time::{Duration, Instant};

use bellwire_core::id::AppId;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::support::cpu::{self, Usage, per};
use crate::support::harness::{Harness, notice};
use crate::support::seed;
use crate::support::setting;
use crate::support::table::{Bar, figure, heading, number};

/// Rows that are at least taken in within a second.
const RATE: f64 = 20_000.0;
/// Maximum additional memory of an import.
const MEMORY_MIB: f64 = 64.0;

pub async fn run() {
    let n = setting("N", 200_000);
    let harness = Harness::open().await;
    let app = harness.app("shop").await;
    seed::subscriptions(&harness.pool, &harness.vault, app, n).await;
    let file = export(&harness, app).await;

    let alone = twin(&harness, app, "alone").await;
    cpu::forget_peak(harness.server());
    let resident = cpu::peak_mib(harness.server());
    let import = import(&harness, alone, &file, n).await;
    heading(&format!("{} rows of an export", number(n.into())));
    import.show(n);
    let grew = cpu::peak_mib(harness.server()) - resident;
    figure("Most memory beside what was resident before", grew, "MiB", Bar::AtMost(MEMORY_MIB));

    let again = self::again(&harness, alone, &file, n).await;
    heading("The same once more: nothing is new");
    again.show(n);

    let beside = twin(&harness, app, "beside").await;
    let campaign = harness.send(app, &notice()).await;
    let import = self::import(&harness, beside, &file, n).await;
    let was_beside = harness.is_under_way(campaign).await;
    harness.wait_for(campaign).await;
    heading(&format!("Beside a campaign to {}", number(n.into())));
    import.show(n);
    println!("The campaign was {} when the last row was in", if was_beside { "under way" } else { "over" });
}

/// Result of an import.
struct Import {
    took: Duration,
    usage: Usage,
}

impl Import {
    fn show(&self, n: u32) {
        figure("Rows per second", f64::from(n) / self.took.as_secs_f64(), "/s", Bar::AtLeast(RATE));
        figure("Server, CPU per row", per(self.usage.server, n), "µs", Bar::None);
        figure("Postgres, CPU per row", per(self.usage.postgres, n), "µs", Bar::None);
    }
}

async fn export(harness: &Harness, app: AppId) -> Bytes {
    let body = harness.api.open(&format!("/v1/apps/{app}/export?only=subscriptions")).await;
    body.collect().await.expect("the export does not break off").to_bytes()
}

/// An app that has the VAPID pair of another one.
async fn twin(harness: &Harness, app: AppId, slug: &str) -> AppId {
    let keys = harness.api.get(&format!("/v1/apps/{app}/vapid-keys")).await;
    let id = keys["data"][0]["id"].as_str().expect("every app has a key");
    let pair = harness.api.post(&format!("/v1/apps/{app}/vapid-keys/{id}/export"), &json!({})).await;
    let new =
        json!({"slug": slug, "name": slug, "subject": "mailto:push@example.com", "private_key": pair["private_key"]});
    let made = harness.api.post("/v1/apps", &new).await;
    made["id"].as_str().and_then(|id| id.parse().ok()).expect("an app's id")
}

async fn import(harness: &Harness, app: AppId, file: &Bytes, n: u32) -> Import {
    let (import, done) = upload(harness, app, file).await;
    assert_eq!((&done["added"], &done["refused"]), (&json!(n), &json!(0)), "all rows are new");
    import
}

async fn again(harness: &Harness, app: AppId, file: &Bytes, n: u32) -> Import {
    let (import, done) = upload(harness, app, file).await;
    assert_eq!((&done["known"], &done["refused"]), (&json!(n), &json!(0)), "no row is new");
    import
}

async fn upload(harness: &Harness, app: AppId, file: &Bytes) -> (Import, Value) {
    sqlx::query("CHECKPOINT").execute(&harness.pool).await.expect("a checkpoint");
    let (before, began) = (harness.usage(), Instant::now());
    let done = harness.api.upload(&format!("/v1/apps/{app}/imports?format=ndjson"), file.clone()).await;
    (Import { took: began.elapsed(), usage: harness.usage() - before }, done)
}
