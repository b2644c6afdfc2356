//! Unit tests of `crates/bellwire-rules/src/campaign/parts.rs`, which includes them.

use serde_json::json;

use super::super::plan::{CampaignAudience, CampaignVariant, Otherwise, PlannedMessage};
use super::*;
use bellwire_core::delivery::{Tier, Urgency};

fn now() -> Timestamp {
    "2026-12-01T08:30:00Z".parse().unwrap()
}

fn plan(weights: &[u16], holdout: u16, test: Option<Test>) -> Plan {
    let body = PlannedMessage {
        tier: Tier::Promotional,
        to: json!({"all": true}),
        audience: CampaignAudience::All,
        filter: None,
        content: serde_json::from_value(json!({"raw": {"payload": "x", "envelope": true}})).unwrap(),
        ttl_s: 60,
        urgency: Urgency::Normal,
        topic_header: None,
        policy: None,
        enveloped: true,
        clear_on_click: false,
    };
    let variants = weights.iter().map(|weight| CampaignVariant {
        name: String::new(),
        weight: *weight,
        at_own_hour: false,
        body: body.clone(),
    });
    let variants = variants.collect();
    Plan {
        variants,
        when: When::Now,
        pace: None,
        test,
        holdout,
        expires_at: None,
        follows: None,
        decided_by: None,
        link_parameters: std::collections::BTreeMap::new(),
    }
}

fn shares_of(parts: &[CampaignPart]) -> Vec<(usize, u16, u16)> {
    let share = |part: &CampaignPart| part.narrow.share.unwrap_or(Share::ALL);
    parts.iter().map(|part| (part.variant, share(part).from, share(part).to)).collect()
}

#[test]
fn plain_campaign_is_one_unfiltered_message() {
    let parts = of_run(&plan(&[1], 0, None), now(), Tz::UTC);
    assert_eq!(parts, [CampaignPart { due_at: now(), variant: 0, narrow: Narrow::default() }]);
}

#[test]
fn variants_divide_the_audience_by_weight() {
    for (weights, holdout, expected) in [
        (&[1, 1][..], 0, vec![(0, 0, 5_000), (1, 5_000, 10_000)]),
        (&[1, 1, 1], 1_000, vec![(0, 1_000, 4_000), (1, 4_000, 7_000), (2, 7_000, 10_000)]),
        (&[1, 0, 2], 0, vec![(0, 0, 3_333), (2, 3_333, 10_000)]),
        (&[1], 500, vec![(0, 500, 10_000)]),
    ] {
        let parts = of_run(&plan(weights, holdout, None), now(), Tz::UTC);
        assert_eq!(shares_of(&parts), expected, "{weights:?} {holdout}");
    }
}

#[test]
fn rest_gets_the_winner_of_the_test() {
    let test = Test { share: 2_000, after_s: 3_600, confidence: 0.95, otherwise: Otherwise::First };
    let plan = plan(&[1, 1], 1_000, Some(test));
    let parts = of_run(&plan, now(), Tz::UTC);
    assert_eq!(shares_of(&parts), [(0, 1_000, 2_000), (1, 2_000, 3_000)]);
    assert_eq!(shares_of(&[of_rest(&plan, test, 1, now())]), [(1, 3_000, 10_000)]);
}

#[test]
fn own_hours_make_one_message_per_hour() {
    let mut plan = plan(&[1, 1], 0, None);
    plan.variants[1].at_own_hour = true;
    let parts = of_run(&plan, now(), Tz::UTC);
    assert_eq!(parts.iter().filter(|part| part.variant == 0).count(), 1);
    let own: Vec<&CampaignPart> = parts.iter().filter(|part| part.variant == 1).collect();
    let hours = (0..24).map(|slot| (now() + TimeDelta::hours(slot), slot));
    let told = own.iter().map(|part| (part.due_at, part.narrow.own_hour.as_ref().map_or(-1, |own| own.slot.into())));
    assert_eq!(told.collect::<Vec<_>>(), hours.collect::<Vec<_>>());
    assert!(own.iter().all(|part| part.narrow.share == Some(Share { from: 5_000, to: 10_000 })));
    plan.expires_at = Some(now() + TimeDelta::minutes(150));
    assert_eq!(of_run(&plan, now(), Tz::UTC).len(), 1 + 3);
}

#[test]
fn local_time_makes_messages_per_zone_group() {
    let local = "2026-12-02T09:00:00".parse().unwrap();
    let mut plan = plan(&[1, 1], 0, None);
    plan.when = When::Recipients { local, past: zones::Past::Skip };
    let all = of_run(&plan, now(), Tz::UTC);
    assert!(all.len() > 60 && all.len().is_multiple_of(2), "{}", all.len());
    plan.expires_at = Some("2026-12-02T00:00:00Z".parse().unwrap());
    let some = of_run(&plan, now(), Tz::UTC);
    assert!(!some.is_empty() && some.len() < all.len());
    assert!(some.iter().all(|part| Some(part.due_at) < plan.expires_at));
}
