//! Unit tests of `crates/bellwire-rules/src/policy/engagement.rs`, which includes them.

use super::*;

fn engagement(displayed: u64, clicked: u64, closed: u64) -> Engagement {
    Engagement { accepted: 3_000, asked: 2_000, displayed, clicked, closed }
}

#[test]
fn shares_are_unknown_where_browsers_do_not_tell() {
    let told = engagement(1_000, 50, 400);
    assert_eq!((told.closed(), told.ignored()), (Some(400), Some(550)));
    assert_eq!((told.display_share(), told.of_displayed(50)), (Some(0.5), Some(0.05)));
    let silent = engagement(0, 0, 0);
    assert_eq!((silent.closed(), silent.ignored()), (None, None));
    assert_eq!((silent.display_share(), silent.of_displayed(0)), (None, None));
    let without_closes = engagement(1_000, 50, 0);
    assert_eq!((without_closes.closed(), without_closes.ignored()), (None, None));
    assert_eq!(engagement(3_000, 0, 0).display_share(), None, "more than were asked for: of pushes before");
}

#[test]
fn judgement_needs_notifications_and_uses_worse_sign() {
    let well = engagement(1_000, 100, 100);
    for (now, before, level) in [
        (engagement(499, 0, 499), well, Level::Unknown),
        (engagement(500, 10, 0), engagement(0, 0, 0), Level::Fine),
        (engagement(1_000, 19, 100), well, Level::Watch),
        (engagement(1_000, 4, 100), well, Level::Warning),
        (engagement(1_000, 100, 501), well, Level::Watch),
        (engagement(1_000, 100, 701), well, Level::Warning),
        (engagement(1_000, 49, 100), well, Level::Watch), // half of what it was
        (engagement(1_000, 50, 100), well, Level::Fine),
        (engagement(1_000, 49, 100), engagement(100, 50, 0), Level::Fine), // too few to compare with
    ] {
        assert_eq!(now.level(&before), level, "{now:?} after {before:?}");
    }
}
