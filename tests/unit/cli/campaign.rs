//! Unit tests of `src/cli/campaign.rs`, which includes them.

use serde_json::json;

use super::*;

#[test]
fn line_shows_progress_and_confidence() {
    let campaign = json!({"state": "sending", "progress": {"eta": "2026-12-01T09:00:00Z", "rate_per_second": 12.5,
        "total": {"targeted": 100, "waiting": 60, "accepted": 38, "gone": 2, "expired": 0, "dead": 0, "cancelled": 0, "capped": 0}}});
    let said = "sending: 40 of 100 ended, 38 accepted, 2 not, 12.5/s, until 2026-12-01 09:00:00Z";
    assert_eq!(line(&campaign), said);
    let mut held = campaign;
    held["progress"]["eta"] = Value::Null;
    held["progress"]["held"] = json!([{"gateway": "apple", "until": "2026-12-01T05:51:00Z"}]);
    let said = "sending: 40 of 100 ended, 38 accepted, 2 not, 12.5/s, not before 2026-12-01 05:51:00Z: apple is held";
    assert_eq!(line(&held), said);
    let known = json!({"reports": {"click_rate": 0.1, "click_rate_from": 0.05, "click_rate_to": 0.2}});
    assert_eq!(
        (rate(&known, "").as_str(), rate(&json!({"reports": null}), "").as_str()),
        ("10.0 % (5.0 to 20.0)", "-")
    );
}

#[test]
fn runs_are_compared_with_uncertainty() {
    let since =
        |change: f64, higher: f64| super::since(&json!({"before": {"click_rate": change, "higher": higher}}), "");
    assert_eq!(since(0.012, 0.97), "+1.2 points (higher with 97 %)");
    assert_eq!(since(-0.012, 0.001), "-1.2 points (lower with 99 %)");
    assert_eq!(super::since(&json!({"before": null}), ""), "-");
}
