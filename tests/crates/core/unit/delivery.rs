//! Unit tests of `crates/bellwire-core/src/delivery.rs`, which includes them.

use super::*;

#[test]
fn tier_is_read_by_name_or_number() {
    for (tier, name, number) in [
        (Tier::Transactional, "transactional", 1),
        (Tier::Promotional, "promotional", 2),
        (Tier::Engagement, "engagement", 3),
    ] {
        for written in [serde_json::json!(name), serde_json::json!(number), serde_json::json!(number.to_string())] {
            assert_eq!(serde_json::from_value::<Tier>(written.clone()).unwrap(), tier, "{written}");
        }
        assert_eq!((name.parse(), number.to_string().parse()), (Ok(tier), Ok(tier)));
        assert_eq!(serde_json::to_value(tier).unwrap(), name);
    }
    for wrong in
        ["\"promo\"", "\"Promotional\"", "\"\"", "\"01\"", "0", "4", "-1", "65537", "1.5", "true", "null", "[1]"]
    {
        let error = serde_json::from_str::<Tier>(wrong).unwrap_err().to_string();
        assert!(error.contains("transactional (1), promotional (2) or engagement (3)"), "{wrong}: {error}");
    }
}

#[test]
fn stored_numbers_round_trip() {
    assert!(Tier::ALL.into_iter().all(|t| Tier::from_code(t.code()) == Some(t)));
    assert!(Urgency::ALL.into_iter().all(|u| Urgency::from_code(u.code()) == Some(u)));
    assert!(Ending::ALL.into_iter().all(|e| Ending::from_code(e.code()) == Some(e)));
    assert!(ReceiptKind::ALL.into_iter().all(|k| ReceiptKind::from_code(k.code()) == Some(k)));
    assert_eq!((Tier::from_code(0), Urgency::from_code(-1), Ending::from_code(8)), (None, None, None));
}
