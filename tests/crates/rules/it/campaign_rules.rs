//! Pure rules of campaigns and of what people do with them: time zones, winners, portions, own hours, orders.

mod zones {
    use bellwire_core::clock::Timestamp;
    use bellwire_rules::campaign::zones::{Past, Zones, groups};
    use chrono::NaiveDateTime;
    use chrono_tz::Tz;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn local(text: &str) -> NaiveDateTime {
        text.parse().unwrap()
    }

    /// Send time for recipients in a zone.
    fn of(groups: &[(Timestamp, Zones)], zone: &str) -> Option<Timestamp> {
        let mut meant = groups.iter().filter(|(_, zones)| match zones {
            Zones::In(names) => names.iter().any(|name| name == zone),
            Zones::NotIn(names) => !names.iter().any(|name| name == zone),
        });
        let found = meant.next().map(|(instant, _)| *instant);
        assert_eq!(meant.next(), None, "{zone} gets it twice");
        found
    }

    #[test]
    fn local_time_reaches_everybody_once() {
        let groups = groups(local("2026-12-01T09:00:00"), Past::Skip, Tz::Europe__Vienna, at("2026-11-20T00:00:00Z"));
        assert!((30..=45).contains(&groups.len()), "{}", groups.len());
        assert!(groups.is_sorted_by_key(|(instant, _)| *instant));
        for (zone, instant) in [
            ("Pacific/Kiritimati", "2026-11-30T19:00:00Z"),
            ("Asia/Kolkata", "2026-12-01T03:30:00Z"),
            ("Asia/Calcutta", "2026-12-01T03:30:00Z"),
            ("Asia/Kathmandu", "2026-12-01T03:15:00Z"),
            ("Europe/Vienna", "2026-12-01T08:00:00Z"),
            ("Europe/Berlin", "2026-12-01T08:00:00Z"),
            ("Mars/Olympus", "2026-12-01T08:00:00Z"),
            ("America/St_Johns", "2026-12-01T12:30:00Z"),
            ("Pacific/Pago_Pago", "2026-12-01T20:00:00Z"),
        ] {
            assert_eq!(of(&groups, zone), Some(at(instant)), "{zone}");
        }
    }

    #[test]
    fn skipped_and_repeated_local_times_run_once() {
        let spring = groups(local("2027-03-28T02:30:00"), Past::Skip, Tz::UTC, at("2027-03-01T00:00:00Z"));
        assert_eq!(of(&spring, "Europe/Vienna"), Some(at("2027-03-28T01:00:00Z")));
        assert_eq!(of(&spring, "Africa/Lagos"), Some(at("2027-03-28T01:30:00Z")), "no summer time there");
        let autumn = groups(local("2026-10-25T02:30:00"), Past::Skip, Tz::UTC, at("2026-10-01T00:00:00Z"));
        assert_eq!(of(&autumn, "Europe/Vienna"), Some(at("2026-10-25T00:30:00Z")));
        let half = groups(local("2027-10-03T02:10:00"), Past::Skip, Tz::UTC, at("2027-09-01T00:00:00Z"));
        assert_eq!(of(&half, "Australia/Lord_Howe"), Some(at("2027-10-02T15:30:00Z")), "half an hour");
    }

    #[test]
    fn passed_local_time_is_tomorrow_or_never() {
        let now = at("2026-12-01T08:30:00Z");
        let when = local("2026-12-01T09:00:00");
        let skipped = groups(when, Past::Skip, Tz::Europe__Vienna, now);
        assert_eq!(of(&skipped, "Europe/Vienna"), None);
        assert_eq!(of(&skipped, "Asia/Tokyo"), None);
        assert_eq!(of(&skipped, "Europe/London"), Some(at("2026-12-01T09:00:00Z")));
        let moved = groups(when, Past::Tomorrow, Tz::Europe__Vienna, now);
        assert_eq!(of(&moved, "Europe/Vienna"), Some(at("2026-12-02T08:00:00Z")));
        assert_eq!(of(&moved, "Asia/Tokyo"), Some(at("2026-12-02T00:00:00Z")));
        assert_eq!(of(&moved, "Europe/London"), Some(at("2026-12-01T09:00:00Z")));
        let long_ago = groups(local("2026-11-01T09:00:00"), Past::Tomorrow, Tz::UTC, now);
        assert_eq!(of(&long_ago, "Asia/Tokyo"), Some(at("2026-12-02T00:00:00Z")), "the next nine o'clock");
        assert_eq!(of(&long_ago, "America/New_York"), Some(at("2026-12-01T14:00:00Z")));
    }
}

mod winner {
    use bellwire_rules::campaign::winner::{VariantCount, judge};

    fn count(accepted: i64, clicked: i64) -> VariantCount {
        VariantCount { accepted, clicked }
    }

    #[test]
    fn variant_wins_only_when_significant() {
        for (counts, best, certain) in [
            (vec![count(1_000, 50), count(1_000, 80)], 1, true),
            (vec![count(1_000, 50), count(1_000, 52)], 1, false),
            (vec![count(100, 5), count(100, 8)], 1, false),
            (vec![count(10_000, 900), count(10_000, 500), count(10_000, 880)], 0, false), // the third is close behind
            (vec![count(10_000, 900), count(10_000, 500), count(10_000, 700)], 0, true),
            (vec![count(0, 0), count(0, 0)], 1, false),
            (vec![count(5, 0), count(5, 2)], 1, false),
        ] {
            let verdict = judge(&counts).unwrap();
            assert_eq!((verdict.best, verdict.confidence >= 0.95), (best, certain), "{counts:?}: {verdict:?}");
        }
        assert_eq!(judge(&[count(10, 1)]), None);
    }

    #[test]
    fn confidence_interval_holds_and_narrows() {
        assert_eq!(count(0, 0).interval(), None);
        let (few, many) = (count(100, 10).interval().unwrap(), count(10_000, 1_000).interval().unwrap());
        assert!(few.0 < 0.1 && 0.1 < few.1 && few.0 < many.0 && many.1 < few.1, "{few:?} {many:?}");
        let none = count(50, 0).interval().unwrap();
        assert!(none.0 == 0.0 && none.1 > 0.05, "{none:?}");
    }
}

mod orders {
    use bellwire_rules::campaign::state::{CampaignOrder, CampaignState, OrderResult};

    #[test]
    fn each_order_reaches_its_state() {
        use CampaignOrder::{Cancel, Pause, Resume, Start};
        use CampaignState::{Cancelled, Done, Draft, Paused, Scheduled, Sending};
        use OrderResult::{Already, Never, To};
        for (state, start, pause, resume, cancel) in [
            (Draft, To(Scheduled), Never, Never, To(Cancelled)),
            (Scheduled, Already, To(Paused), Already, To(Cancelled)),
            (Sending, Already, To(Paused), Already, To(Cancelled)),
            (Paused, Never, Already, To(Scheduled), To(Cancelled)),
            (Cancelled, Never, Never, Never, Already),
            (Done, Never, Never, Never, Never),
        ] {
            let turns = [Start, Pause, Resume, Cancel].map(|order| state.after(order, false));
            assert_eq!(turns, [start, pause, resume, cancel], "{state:?}");
        }
        assert_eq!(Paused.after(Resume, true), To(Sending));
    }
}

mod habits {
    use bellwire_core::clock::Timestamp;
    use bellwire_core::engagement_stats::{FormerHour, Habits, Hours, Reaction};
    use bellwire_core::id::MessageId;
    use chrono::TimeDelta;
    use uuid::Uuid;

    fn at(day: i64) -> Timestamp {
        "2027-01-15T08:00:00Z".parse::<Timestamp>().unwrap() + TimeDelta::days(day)
    }

    fn displayed(message: u128, day: i64) -> Reaction {
        Reaction { message: MessageId(Uuid::from_u128(message)), is_click: false, at: at(day), hour: 8 }
    }

    fn clicked(message: u128, day: i64) -> Reaction {
        Reaction { is_click: true, ..displayed(message, day) }
    }

    fn after(reactions: &[Reaction]) -> Habits {
        let mut habits = Habits::default();
        reactions.iter().for_each(|reaction| habits.add(reaction));
        habits
    }

    #[test]
    fn displays_since_last_click_count_messages_once() {
        for (reactions, unclicked, days) in [
            (&[][..], 0, 0),
            (&[displayed(1, 0), displayed(2, 1), displayed(3, 5)], 3, 5),
            (&[displayed(1, 0), displayed(1, 2), displayed(2, 3), displayed(1, 4)], 2, 3),
            (&[displayed(1, 0), displayed(2, 1), clicked(2, 1)], 0, 0),
            (&[displayed(1, 0), clicked(1, 1), displayed(2, 2)], 1, 0),
            (&[clicked(1, 1), displayed(1, 3)], 0, 0),
            (&[clicked(1, 5), displayed(2, 5), displayed(3, 4)], 0, 0),
            (&[displayed(2, 4), displayed(1, 2)], 2, 2),
            (&[displayed(1, 4), clicked(2, 3)], 0, 0),
        ] {
            let habits = after(reactions);
            assert_eq!((habits.unclicked, habits.unclicked_for().num_days()), (unclicked, days), "{reactions:?}");
            assert_eq!(habits.unclicked == 0, habits.unclicked_between.is_none());
        }
        assert_eq!(after(&[clicked(1, 5), clicked(2, 3)]).clicked_at, Some(at(5)));
    }

    #[test]
    fn whatever_comes_what_is_known_stays_small() {
        let many: Vec<Reaction> =
            (0..3_000).map(|n| displayed(n, 0)).chain((0..3_000).map(|n| clicked(n, 1))).collect();
        let displayed = after(&many[..3_000]);
        assert_eq!((displayed.unclicked, displayed.recent.len()), (1_000, 8));
        let clicked = after(&many);
        assert_eq!(clicked.recent.len(), 8);
        assert!(clicked.hours.0.iter().all(|n| *n <= 100), "{:?}", clicked.hours);
    }

    #[test]
    fn assigned_hour_ignores_later_clicks() {
        let click = |hour, day| Reaction { hour, ..clicked(1, day) };
        let mut habits = Habits::default();
        assert_eq!(habits.own_hour_at(at(0)), None);
        habits.add_all(&[click(9, 0); 5], at(1));
        habits.add_all(&[click(9, 1)], at(2));
        assert_eq!(habits.former_hours.len(), 1, "what changes nothing is not remembered");
        habits.add_all(&[click(20, 1); 9], at(3));
        let known = |habits: &Habits| [0, 1, 2, 3, 9].map(|day| habits.own_hour_at(at(day)));
        assert_eq!(known(&habits), [None, Some(9), Some(9), Some(20), Some(20)]);
        habits.add_all(&[click(9, 5); 30], at(5));
        assert_eq!(known(&habits), [None, Some(9), Some(9), Some(20), Some(9)]);
        habits.add_all(&[], at(11));
        assert_eq!(habits.former_hours, [FormerHour { until: at(5), hour: Some(20) }], "of a week");
        let (mut from, mut to) = (9, 20);
        for _ in 0..40 {
            habits.add_all(&[click(to, 11); 100], at(11));
            std::mem::swap(&mut from, &mut to);
        }
        assert_eq!(habits.former_hours.len(), 16);
    }

    #[test]
    fn best_hour_has_the_most_clicks_nearby() {
        for (clicks, best) in [
            (&[][..], None),
            (&[(9, 4)], None),
            (&[(9, 5)], Some(9)),
            (&[(9, 3), (17, 2), (18, 2), (19, 2)], Some(18)),
            (&[(23, 3), (0, 4), (12, 4)], Some(0)),
            (&[(7, 3), (20, 3)], Some(7)),
        ] {
            let mut hours = Hours::default();
            clicks.iter().for_each(|(hour, n)| (0..*n).for_each(|_| hours.add(*hour)));
            assert_eq!(hours.best(), best, "{clicks:?}");
        }
        let mut hours = Hours::default();
        (0..200).for_each(|_| hours.add(9));
        (0..100).for_each(|_| hours.add(20));
        assert_eq!(hours.best(), Some(20), "old habits fade");
    }
}

mod own_hour {
    use bellwire_segment::{OwnHour, SLOTS};
    use chrono_tz::Tz;

    fn slots(from: &str, best: Option<u8>, timezone: Option<&str>) -> Vec<u8> {
        let from = from.parse().unwrap();
        let of = |slot| OwnHour { from, slot, home: Tz::Europe__Vienna };
        (0..SLOTS).filter(|slot| of(*slot).holds(best, timezone)).collect()
    }

    #[test]
    fn each_person_belongs_to_one_local_hour() {
        for (best, timezone, slot) in [
            (Some(9), Some("Europe/Vienna"), 0),
            (Some(8), Some("Europe/Vienna"), 23),
            (Some(20), Some("Asia/Tokyo"), 3),
            (Some(14), Some("Asia/Kolkata"), 1), // 14:30 there
            (Some(20), None, 11),
            (Some(20), Some("Mars/Olympus"), 11),
            (None, Some("Asia/Tokyo"), 0),
        ] {
            assert_eq!(slots("2027-03-01T08:00:00Z", best, timezone), [slot], "{best:?} {timezone:?}");
        }
    }

    #[test]
    fn clock_changes_assign_each_person_one_hour() {
        for day in ["2027-03-27T12:00:00Z", "2027-10-30T12:00:00Z"] {
            for hour in 0..SLOTS {
                assert_eq!(slots(day, Some(hour), Some("Europe/Vienna")).len(), 1, "{day} {hour}");
            }
        }
    }
}

mod portions {
    use bellwire_segment::{PARTS, Portion, part_of};

    fn portion(from: u16, to: u16) -> Portion {
        Portion { salt: "spring".into(), from, to }
    }

    #[test]
    fn adjoining_portions_divide_people_by_share() {
        let (test, rest) = (portion(0, 2_000), portion(2_000, PARTS));
        let people: Vec<String> = (0..20_000).map(|n| format!("user {n}")).collect();
        let parts: Vec<u16> = people.iter().map(|person| part_of("spring", person.as_bytes())).collect();
        assert!(parts.iter().all(|part| test.holds(*part) != rest.holds(*part)));
        let taken = parts.iter().filter(|part| test.holds(**part)).count();
        assert!((3_800..4_200).contains(&taken), "a fifth of 20,000, give or take what chance does: {taken}");
    }

    #[test]
    fn salted_hash_determines_the_part() {
        let first = u64::from_be_bytes(sha256(b"spring42")[..8].try_into().unwrap());
        assert_eq!(u64::from(part_of("spring", b"42")), first % 10_000);
        let both = (0..10_000).map(|n| n.to_string());
        let both = both.filter(|who| part_of("a", who.as_bytes()) < 5_000 && part_of("b", who.as_bytes()) < 5_000);
        let both = both.count();
        assert!((2_300..2_700).contains(&both), "a quarter: {both}");
    }

    #[test]
    fn empty_portion_holds_no_person() {
        assert!(portion(5, 5).is_empty() && portion(PARTS, PARTS).is_empty() && portion(7, 3).is_empty());
        assert!(!portion(0, 1).is_empty());
    }

    fn sha256(octets: &[u8]) -> Vec<u8> {
        use sha2::Digest as _;
        sha2::Sha256::digest(octets).to_vec()
    }
}

mod assignment {
    use bellwire_core::assignment::{Assigned, Former, FormerValue};

    #[test]
    fn first_change_after_a_time_counts() {
        let zone = |until, zone: &str| Former { until, was: FormerValue::Timezone(Some(zone.to_owned())) };
        let nobody = Former { until: 20, was: FormerValue::User(None) };
        let former = [zone(10, "Asia/Tokyo"), nobody, zone(30, "Asia/Kolkata")];
        for (at, timezone, user) in [
            (5, Some(Some("Asia/Tokyo")), Some(None)),
            (10, Some(Some("Asia/Kolkata")), Some(None)),
            (20, Some(Some("Asia/Kolkata")), None),
            (30, None, None),
        ] {
            let at_time = chrono::DateTime::from_timestamp_micros(at).unwrap();
            assert_eq!(Assigned::at(&former, at_time), Assigned { timezone, user }, "{at}");
        }
    }
}

mod pace {
    use bellwire_rules::campaign::plan::{share_of, spread_over};

    #[test]
    fn shares_of_a_pace_add_up_to_it() {
        for weights in [&[600][..], &[300, 300], &[1, 599], &[0, 0, 7], &[5_000_000_000_000, 1, 40]] {
            let shares = share_of(600, weights);
            let per_minute: f64 = shares.iter().map(|share| 60e6 / share.us as f64).sum();
            assert!(per_minute <= 600.0 && per_minute > 597.0, "{weights:?}: {per_minute}");
        }
        let begin =
            |weights: &[i64]| share_of(60, weights).iter().map(|share| share.begins_after_us).collect::<Vec<_>>();
        assert_eq!(begin(&[5, 5, 5]), [0, 1_000_000, 2_000_000], "each takes one in three seconds");
        assert_eq!(share_of(60, &[]), []);
        assert_eq!([spread_over(3_600, 1_000) * 1_000, spread_over(1, i64::MAX)], [3_600_000_000, 1]);
    }
}
