//! The rule by which many prunes at once are confirmed.

use std::time::Duration;

use bellwire_core::clock::Timestamp;
use bellwire_rules::policy::hold::HoldReason;
use bellwire_rules::policy::mass_gone::{AnswerSum, GoneWatch, PruneAlarm};

fn at(s: u64) -> Timestamp {
    Timestamp::from_timestamp(1_800_000_000, 0).unwrap() + Duration::from_secs(s)
}

/// Answers in which `gone` of every hundred call a subscription gone, spread evenly.
fn share(n: usize, gone: usize) -> AnswerSum {
    let mut answers = AnswerSum::default();
    for i in 0..n {
        if (i + 1) * gone / 100 > i * gone / 100 { answers.gone() } else { answers.accepted() }
    }
    answers
}

#[test]
fn score_alarms_above_a_fifth() {
    for (n, gone, size, begins) in [
        (10, 100, 1_000_000, true),
        (9, 100, 1_000_000, false),
        (300, 100, 300, true),
        (100_000, 5, 1_000_000, false),
        (1_000, 10, 1_000_000, false),
        (1_000, 40, 1_000_000, true),
        (3, 100, 6, true),
        (3, 100, 20, false),
        (2, 100, 4, false),
        (1, 100, 1, false),
    ] {
        let alarm = GoneWatch::new(at(0)).add(&share(n, gone), size, at(0));
        assert_eq!((alarm.begins, alarm.hold.is_some()), (begins, begins), "{gone} % of {n} in {size}");
    }
}

#[test]
fn many_acceptances_before_delay_no_alarm() {
    let mut answers = share(1_000_000, 1);
    (0..10).for_each(|_| answers.gone());
    assert!(GoneWatch::new(at(0)).add(&answers, 1_000_000, at(0)).begins);
}

#[test]
fn replicas_add_up_within_ten_minutes() {
    for (every_s, begins) in [(60, true), (599, true), (600, false)] {
        let mut watch = GoneWatch::new(at(0));
        let alarms = (0..10).map(|i| watch.add(&share(1, 100), 1_000, at(i * every_s)).begins);
        assert_eq!(alarms.filter(|begins| *begins).count(), usize::from(begins), "every {every_s} s");
    }
}

#[test]
fn lane_is_held_until_an_acceptance() {
    let mut watch = GoneWatch::new(at(0));
    let held = |from, until| Some(HoldReason { at: at(from), until: at(until) });
    assert_eq!(watch.add(&share(10, 100), 1_000, at(0)), PruneAlarm { begins: true, hold: held(0, 15) });
    assert_eq!(watch.add(&share(5, 100), 1_000, at(1)), PruneAlarm::default(), "it is held");
    assert_eq!(watch.add(&share(1, 100), 1_000, at(15)), PruneAlarm { begins: false, hold: held(15, 30) });
    watch.reopened = true;
    assert_eq!(watch.add(&share(1, 100), 1_000, at(31)), PruneAlarm::default(), "it accepted a push");
    assert_eq!(watch.add(&share(20, 100), 1_000, at(32)), PruneAlarm { begins: false, hold: held(32, 47) });
    assert_eq!(watch.add(&share(20, 100), 1_000, at(900)), PruneAlarm::default(), "holds end after 15 minutes");
    assert!(watch.suspects(at(4_499)) && !watch.suspects(at(4_500)));
    assert!(watch.add(&share(20, 100), 1_000, at(4_500)).begins);
}

#[test]
fn recovered_suspect_restarts_the_confirmation() {
    let mut watch = GoneWatch::new(at(0));
    assert_eq!(watch.confirms_at(at(10)), at(910));
    watch.recovered_at = Some(at(600));
    assert_eq!((watch.confirms_at(at(10)), watch.confirms_at(at(700))), (at(1_500), at(1_600)));
}

#[test]
fn clock_set_back_ends_a_suspicion() {
    let mut watch = GoneWatch::new(at(3_600));
    watch.add(&share(10, 100), 1_000, at(3_600));
    watch.follow_clock(at(3_596));
    assert!(watch.suspects(at(3_600)));
    watch.follow_clock(at(0));
    assert_eq!(watch, GoneWatch::new(at(0)));
}
