//! Unit tests of `crates/bellwire-rules/src/policy/caps.rs`, which includes them.

use chrono::{DateTime, TimeDelta};
use serde_json::json;

use super::*;

fn caps(written: Value) -> Caps {
    let caps = Caps::restore(Some(written));
    assert_ne!(caps, Caps::default(), "they do not parse");
    caps
}

fn now() -> Timestamp {
    DateTime::from_timestamp(1_800_000_000, 0).unwrap()
}

#[test]
fn caps_read_back_as_they_were_written() {
    let written = json!([
        {"tiers": ["promotional", "engagement"], "max": 2, "window": "1d"},
        {"tiers": ["promotional"], "max": 5, "window": "7d"},
        {"tiers": ["engagement"], "max": 1, "window": "90m"},
    ]);
    assert_eq!(json!(caps(written.clone()).written()), written);
    assert_eq!(caps(json!([{"max": 2, "window": "24h"}])), caps(json!([{"tiers": [3, 2], "max": 2, "window": "1d"}])));
}

#[test]
fn every_mistake_is_named() {
    let cap = |more: Value| {
        let mut cap = json!({"max": 1, "window": "1d"});
        cap.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        cap
    };
    let many = |n: i64| (1..=n).map(|n| cap(json!({"window": format!("{n}h")}))).collect::<Vec<_>>();
    for (written, pointers) in [
        (vec![cap(json!({"max": 0}))], vec!["/0/max"]),
        (vec![cap(json!({})), cap(json!({"max": 51, "tiers": [3], "window": "59s"}))], vec!["/1/max", "/1/window"]),
        (vec![cap(json!({"tiers": []}))], vec!["/0/tiers"]),
        (vec![cap(json!({"tiers": ["promotional", "transactional"]}))], vec!["/0/tiers"]),
        (vec![cap(json!({"window": "31d"}))], vec!["/0/window"]),
        (vec![cap(json!({"window": "a while"}))], vec!["/0/window"]),
        (vec![cap(json!({})), cap(json!({"window": "24h"}))], vec!["/1/window"]),
        (many(4), vec![]),
        (many(5), vec!["/4"]),
        (many(13), vec![""]),
    ] {
        let written: Vec<WrittenCap> = serde_json::from_value(json!(written)).unwrap();
        let errors = Caps::parse(&written).err().unwrap_or_default();
        assert_eq!(errors.iter().map(|error| &*error.pointer).collect::<Vec<_>>(), pointers, "{written:?}");
    }
}

#[test]
fn caps_apply_to_their_tiers_never_transactional() {
    let caps = caps(json!([
        {"max": 3, "window": "1d"}, {"tiers": ["promotional"], "max": 1, "window": "1h"}, {"max": 9, "window": "7d"},
    ]));
    let of = |tier| caps.of(tier).iter().map(|counted| (counted.group, counted.kept())).collect::<Vec<_>>();
    assert_eq!(of(Tier::Transactional), []);
    assert_eq!(of(Tier::Promotional), [(TierGroup::Promotional, 1), (TierGroup::Both, 9)]);
    assert_eq!(of(Tier::Engagement), [(TierGroup::Both, 9)]);
}

#[test]
fn rolling_window_names_the_longest_cap() {
    let caps = caps(json!([{"max": 2, "window": "1d"}, {"max": 3, "window": "7d"}])).of(Tier::Promotional);
    let (day, week) = (TimeDelta::days(1), TimeDelta::days(7));
    let moment = TimeDelta::microseconds(1);
    for (ago, free_in) in [
        (vec![], None),
        (vec![moment], None),
        (vec![moment, day], None), // to the microsecond: what was a window ago counts no longer
        (vec![moment, day - moment], Some(moment)),
        (vec![moment, moment * 2], Some(day - moment * 2)),
        (vec![day, day * 2, day * 3], Some(day * 4)),
        (vec![moment, moment, day * 3], Some(day * 4)),
        (vec![day, day * 2, week], None),
        (vec![moment, moment, week - day / 2], Some(day - moment)),
    ] {
        let at: Vec<_> = ago.iter().map(|ago| now() - *ago).collect();
        let refusal = caps[0].refusal(&at, now());
        let free_at = refusal.map(|refusal| match refusal {
            CapRefusal::Full { free_at, .. } => free_at - now(),
            CapRefusal::AsElsewhere => panic!("{refusal}"),
        });
        assert_eq!(free_at, free_in, "{ago:?}");
        // What the database goes by says the same.
        let is_past = |(place, since): (i32, Timestamp)| at.get(place as usize - 1).is_some_and(|at| *at > since);
        assert_eq!(caps[0].limits(now()).into_iter().any(is_past), free_in.is_some(), "{ago:?}");
    }
}

#[test]
fn refusal_round_trips() {
    let cap = |written| caps(json!([written])).0[0];
    let free_at = now() + TimeDelta::milliseconds(1);
    for (refusal, text) in [
        (
            CapRefusal::Full { cap: cap(json!({"max": 2, "window": "24h"})), free_at },
            "2 promotional+engagement in 1d until 2027-01-15T08:00:00.001Z",
        ),
        (
            CapRefusal::Full { cap: cap(json!({"tiers": [3], "max": 1, "window": "90s"})), free_at },
            "1 engagement in 90s until 2027-01-15T08:00:00.001Z",
        ),
        (CapRefusal::AsElsewhere, "as in another browser"),
    ] {
        assert_eq!(refusal.to_string(), text);
        assert_eq!(text.parse(), Ok(refusal));
    }
    for wrong in ["", "2 promotional in 1d", "x promotional in 1d until 2027-01-15T08:00:00Z", "2 all in 1d until now"]
    {
        assert_eq!(wrong.parse::<CapRefusal>(), Err(()), "{wrong}");
    }
}
