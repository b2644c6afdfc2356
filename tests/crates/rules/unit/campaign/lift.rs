use super::*;

/// SplitMix64, so that every run draws the same.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn happens(&mut self, probability: f64) -> bool {
        self.next() < probability
    }
}

/// Sites of the simulations.
#[derive(Clone, Copy)]
enum Orders {
    /// At most one order, of one price.
    Single,
    /// Values between 10 and 1,000, many small ones and few large ones.
    Skewed,
    /// A tenth of the people order often, before and after the campaign.
    Habitual,
}

fn add(sums: &mut GroupSums, y: f64, x: f64) {
    sums.people += 1;
    sums.converted += i64::from(y > 0.0);
    sums.y += y;
    sums.yy += y * y;
    sums.x += x;
    sums.xx += x * x;
    sums.xy += x * y;
}

/// Draws what a person orders before and after a campaign with this relative effect.
fn person(draws: &mut Draws, orders: Orders, effect: f64) -> (f64, f64) {
    match orders {
        Orders::Single => (f64::from(u8::from(draws.happens(0.05 * (1.0 + effect)))), 0.0),
        Orders::Skewed => {
            let has = draws.happens(0.05 * (1.0 + effect));
            (if has { 10.0 * 100_f64.powf(draws.next().powi(2)) } else { 0.0 }, 0.0)
        }
        Orders::Habitual => {
            let rate = if draws.happens(0.1) { 0.5 } else { 0.01 };
            let before = f64::from(u8::from(draws.happens(rate)));
            (f64::from(u8::from(draws.happens(rate * (1.0 + effect)))), before)
        }
    }
}

/// Mean of a person's orders without a campaign.
fn mean(orders: Orders) -> f64 {
    match orders {
        Orders::Single => 0.05,
        // The mean of 10 * 100^(u²) for u from 0 to 1.
        Orders::Skewed => {
            let steps = 100_000;
            let value = |i: i32| 10.0 * 100_f64.powf(((f64::from(i) + 0.5) / f64::from(steps)).powi(2));
            0.05 * (0..steps).map(value).sum::<f64>() / f64::from(steps)
        }
        Orders::Habitual => 0.1 * 0.5 + 0.9 * 0.01,
    }
}

fn groups(draws: &mut Draws, orders: Orders, effect: f64, people: (u32, u32)) -> (GroupSums, GroupSums) {
    let mut treated = GroupSums::default();
    let mut control = GroupSums::default();
    for _ in 0..people.0 {
        let (y, x) = person(draws, orders, effect);
        add(&mut treated, y, x);
    }
    for _ in 0..people.1 {
        let (y, x) = person(draws, orders, 0.0);
        add(&mut control, y, x);
    }
    (treated, control)
}

#[test]
fn final_intervals_cover_the_truth() {
    const RUNS: u32 = 1_500;
    for (orders, effect) in [
        (Orders::Single, 0.0),
        (Orders::Single, 0.3),
        (Orders::Skewed, 0.0),
        (Orders::Skewed, 0.3),
        (Orders::Habitual, 0.2),
    ] {
        let mut draws = Draws(1);
        let truth = effect * mean(orders) * 4_000.0;
        let (mut total, mut relative) = (0, 0);
        for _ in 0..RUNS {
            let (treated, control) = groups(&mut draws, orders, effect, (4_000, 2_000));
            let lift = compare(&treated, &control, 1.0);
            let additional = lift.additional.expect("enough conversions");
            total += u32::from(additional.low <= truth && truth <= additional.high);
            let of_control = lift.relative.expect("enough conversions");
            relative += u32::from(of_control.low <= effect && effect <= of_control.high);
        }
        for covered in [total, relative] {
            let share = f64::from(covered) / f64::from(RUNS);
            assert!((0.93..=0.97).contains(&share), "{share} of the intervals hold an effect of {effect}");
        }
    }
}

#[test]
fn absent_effect_is_seldom_claimed() {
    const RUNS: u32 = 1_500;
    const LOOKS: u32 = 20;
    let (mut draws, mut claimed, mut claimed_late) = (Draws(2), 0, 0);
    for _ in 0..RUNS {
        let (mut treated, mut control, mut is_claimed) = (GroupSums::default(), GroupSums::default(), false);
        for look in 1..=LOOKS {
            let (more_treated, more_control) = groups(&mut draws, Orders::Single, 0.0, (400, 200));
            (treated, control) = (treated.and(more_treated), control.and(more_control));
            let lift = compare(&treated, &control, f64::from(look) / f64::from(LOOKS));
            is_claimed |= matches!(lift.effect, Effect::More | Effect::Fewer);
            claimed_late += u32::from(look == LOOKS && matches!(lift.effect, Effect::More | Effect::Fewer));
        }
        claimed += u32::from(is_claimed);
    }
    let [any, last] = [claimed, claimed_late].map(|n| f64::from(n) / f64::from(RUNS));
    assert!((0.03..=0.07).contains(&last), "{last} at the end");
    assert!((0.03..=0.07).contains(&any), "{any} at one of {LOOKS} looks");
}

#[test]
fn earlier_orders_make_intervals_narrower() {
    let (treated, control) = groups(&mut Draws(3), Orders::Habitual, 0.2, (40_000, 20_000));
    let blind = |sums: GroupSums| GroupSums { x: 0.0, xx: 0.0, xy: 0.0, ..sums };
    let with = compare(&treated, &control, 1.0).standard_error;
    let without = compare(&blind(treated), &blind(control), 1.0).standard_error;
    assert!(with < 0.92 * without, "{with} of {without}");
}

#[test]
fn a_large_effect_is_found_with_its_sign() {
    let (treated, control) = groups(&mut Draws(4), Orders::Single, 0.5, (20_000, 20_000));
    let lift = compare(&treated, &control, 1.0);
    assert_eq!(lift.effect, Effect::More);
    assert_eq!(lift.people_needed, None);
    let swapped = compare(&control, &treated, 1.0);
    assert_eq!(swapped.effect, Effect::Fewer);
    let early = compare(&treated, &control, 0.01);
    assert_eq!(early.effect, Effect::None, "after a hundredth of the time, chance explains it");
}

#[test]
fn without_conversions_nothing_is_claimed() {
    let empty = GroupSums { people: 1_000, ..GroupSums::default() };
    let lift = compare(&empty, &empty, 1.0);
    assert_eq!((lift.effect, lift.relative, lift.additional.map(|it| it.value)), (Effect::TooFew, None, Some(0.0)));
    assert_eq!(lift.people_needed, None, "a rate of 0 tells nothing");
    let nothing = compare(&GroupSums::default(), &GroupSums::default(), 1.0);
    assert_eq!(nothing.effect, Effect::TooFew);
}

#[test]
fn missing_people_would_suffice() {
    let (treated, control) = groups(&mut Draws(5), Orders::Single, 0.0, (4_000, 2_000));
    let lift = compare(&treated, &control, 1.0);
    assert_eq!(lift.effect, Effect::None);
    let needed = lift.people_needed.expect("6,000 people are too few for 10 % of 5 %");
    let (mut draws, mut found) = (Draws(6), 0);
    let all = u32::try_from(needed).expect("fits") + 6_000;
    for _ in 0..50 {
        let (treated, control) = groups(&mut draws, Orders::Single, 0.1, (all * 2 / 3, all / 3));
        found += u32::from(compare(&treated, &control, 1.0).effect == Effect::More);
    }
    assert!((33..=47).contains(&found), "an effect of 10 % is found in {found} of 50 campaigns");
}

#[test]
fn sums_add_squares_of_errors() {
    let sum = sum([(10.0, 3.0), (20.0, 4.0)].into_iter(), 1.0).expect("two");
    assert_eq!((sum.low, sum.value, sum.high), (20.0, 30.0, 40.0));
    assert_eq!(super::sum(std::iter::empty(), 1.0), None);
}
