//! Metrics as `/metrics` returns them.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::Method;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, LaneId};
use bellwire_core::lane::Gateway;
use bellwire_rules::policy::reliability::{LaneSums, Sums};
use bellwire_telemetry::metrics::Metrics;
use uuid::Uuid;

/// Output of `/metrics` with every series present.
pub fn rendered_metrics() -> String {
    let metrics = Metrics::new();
    let mut sums = Sums::default();
    (0..i16::MAX).for_each(|code| sums.add(code, 1_000));
    let tiers = BTreeMap::from([(Some(Tier::Promotional), sums.clone()), (None, sums)]);
    metrics.show_slis(&[LaneSums { lane: LaneId(1), app: AppId(Uuid::nil()), gateway: Gateway::Fcm, tiers }]);
    metrics.request(&Method::GET, "/healthz".to_owned(), "http", 503, Duration::ZERO);
    metrics.show_pool("api", 1, 1);
    metrics.show_subscriptions(&[]);
    metrics.alerts_open("sli", 1);
    metrics.render()
}
