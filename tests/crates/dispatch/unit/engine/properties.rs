//! Property tests of the fair queue's shares, with generated apps, weights and orders of arrival.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::fair::shares::WEIGHTS;
use crate::fair::weighted_queue::Turns;

fn app(n: usize) -> AppId {
    AppId(Uuid::from_u128(n as u128))
}

/// Accepts the next delivery, and returns its tier.
fn accepted_tier(queue: &FairQueue) -> Option<usize> {
    let turn = turn(queue)?;
    sharing::accept(queue, &turn);
    Some(turn.job.message.tier as usize)
}

proptest! {
    #[test]
    fn busy_apps_share_exactly_by_weight(weights in prop::collection::vec(1..=20u32, 1..12), rounds in 1..6u32) {
        let mut turns = Turns::default();
        weights.iter().enumerate().for_each(|(n, weight)| turns.push(app(n), *weight, n));
        let mut taken = vec![0; weights.len()];
        for _ in 0..rounds * weights.iter().sum::<u32>() {
            let n = turns.pop().expect("every app has work");
            taken[n] += 1;
            turns.push(app(n), weights[n], n);
        }
        let shares: Vec<u32> = weights.iter().map(|weight| weight * rounds).collect();
        prop_assert_eq!(taken, shares);
    }

    #[test]
    fn idle_apps_lose_nothing_and_keep_order(
        steps in prop::collection::vec(prop_oneof![(0..4usize, 1..5u32).prop_map(Some), Just(None)], 0..200),
    ) {
        let (mut turns, mut waiting) = (Turns::default(), BTreeMap::<usize, VecDeque<usize>>::new());
        let pop = |turns: &mut Turns<(usize, usize)>, waiting: &mut BTreeMap<usize, VecDeque<usize>>| {
            let is_empty = waiting.values().all(VecDeque::is_empty);
            let popped = turns.pop();
            prop_assert_eq!(popped.is_none(), is_empty, "work waits and none is given");
            if let Some((n, at)) = popped {
                prop_assert_eq!(waiting.get_mut(&n).and_then(VecDeque::pop_front), Some(at), "order within an app");
            }
            Ok(())
        };
        for (at, step) in steps.into_iter().enumerate() {
            match step {
                Some((n, weight)) => {
                    turns.push(app(n), weight, (n, at));
                    waiting.entry(n).or_default().push_back(at);
                }
                None => pop(&mut turns, &mut waiting)?,
            }
            prop_assert_eq!(turns.is_empty(), waiting.values().all(VecDeque::is_empty));
        }
        while !turns.is_empty() {
            pop(&mut turns, &mut waiting)?;
        }
        prop_assert!(waiting.values().all(VecDeque::is_empty));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn busy_tiers_share_by_weight(
        busy in prop::sample::subsequence(vec![0, 1, 2], 1..=3),
        limit in 4..40u32,
        rounds in 10..30usize,
    ) {
        let queue = FairQueue::new(limit, NOW, |_, _| {}, unbounded);
        let lane = lane(1, Gateway::Fcm);
        let weight: usize = busy.iter().map(|tier| WEIGHTS[*tier] as usize).sum();
        for tier in &busy {
            prop_assert!(queue.push(jobs(rounds * weight, &message(Tier::ALL[*tier]), &lane), NOW).is_empty());
        }
        let mut taken = [0; 3];
        for _ in 0..rounds * weight {
            taken[accepted_tier(&queue).expect("there is work and a permit")] += 1;
        }
        for tier in 0..3 {
            let share = if busy.contains(&tier) { rounds * WEIGHTS[tier] as usize } else { 0 };
            prop_assert!(usize::abs_diff(taken[tier], share) <= WEIGHTS[tier] as usize, "{:?} of {:?}", taken, busy);
        }
    }
}
