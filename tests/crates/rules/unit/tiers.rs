//! Unit tests of `crates/bellwire-rules/src/policy/tiers.rs`, which includes them.

use super::*;

#[test]
fn the_admin_page_knows_the_defaults_of_tiers() {
    let page = include_str!("../../../../static/admin/src/lib/timing.ts");
    for tier in Tier::ALL {
        let TierDefaults { ttl_s, urgency, .. } = TierDefaults::of(tier);
        let (name, urgency) = (tier.name(), urgency.name());
        let line = format!(r#"{name}: {{ ttlS: {ttl_s}, urgency: "{urgency}" }}"#);
        assert!(page.replace('_', "").contains(&line.replace('_', "")), "{line}");
    }
}
