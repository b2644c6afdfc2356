//! Shares of scarce resources among tiers, retries, apps and lanes.

use std::sync::atomic::{AtomicU32, Ordering};

use chrono::TimeDelta;

use super::*;
use crate::fair::turn::Turn;

/// Returns a permit with a response: the push was accepted.
pub(super) fn accept(queue: &FairQueue, turn: &Turn) {
    let outcome =
        classify(Gateway::Fcm, &PostResult::Response { status: 201, headers: &Default::default(), body: b"" }, NOW);
    let answered = Answered {
        reached: true,
        outcome: &outcome,
        known_throttled: false,
        number: turn.job.number,
        posted_at: NOW,
        now: NOW,
        probe: turn.probe,
        transactional: turn.job.message.tier == Tier::Transactional,
        octets: 128,
        refused: None,
        settings: &TierSettings::DEFAULT,
    };
    queue.answered(turn.slot, &answered);
}

#[tokio::test]
async fn saturated_tiers_share_by_their_weights() {
    let queue = FairQueue::new(4, NOW, |_, _| {}, unbounded);
    let lane = lane(1, Gateway::Fcm);
    for tier in Tier::ALL {
        assert!(queue.push(jobs(1200, &message(tier), &lane), NOW).is_empty());
    }
    let mut taken = [0; 3];
    for _ in 0..1200 {
        let turn = turn(&queue).expect("there is work and a permit");
        taken[turn.job.message.tier as usize] += 1;
        accept(&queue, &turn);
    }
    assert_eq!(taken, [800, 300, 100]);
}

/// Keeps 60 deliveries of each tier waiting in a lane with `limit` permits, almost all in use. Only one in `one_of` engagement
/// deliveries leads to a POST: the others were claimed too long ago. Returns how many of each tier were sent, and the most that
/// were in flight without the transactional ones.
fn share_permits(limit: u32, given_back_at_once: usize, rounds: usize, one_of: usize) -> ([usize; 3], usize) {
    let queue = FairQueue::new(limit, NOW, |_, _| {}, unbounded);
    // A lane that has permits enough, and the tier in the middle only: its turns are not this lane's.
    let (scarce, ample) = (lane(1, Gateway::Fcm), lane(2, Gateway::Mozilla));
    let messages = Tier::ALL.map(message);
    for message in &messages {
        queue.push(jobs(60, message, &scarce), NOW);
    }
    let (mut out, mut sent, mut most) = (std::collections::VecDeque::new(), [0; 3], 0);
    let mut stale = (0..one_of).cycle();
    for _ in 0..rounds {
        queue.push(jobs(2, &messages[1], &ample), NOW);
        while let Some(turn) = turn(&queue) {
            if turn.job.lane.id == ample.id {
                accept(&queue, &turn);
                continue;
            }
            queue.push(jobs(1, &turn.job.message, &scarce), NOW);
            if turn.job.message.tier == Tier::Engagement && stale.next() != Some(0) {
                queue.release(turn.slot, &turn.job, turn.probe, NOW);
                continue;
            }
            sent[turn.job.message.tier as usize] += 1;
            out.push_back(turn);
            most = most.max(out.iter().filter(|turn| turn.job.message.tier != Tier::Transactional).count());
        }
        for turn in out.drain(..given_back_at_once.min(out.len())) {
            accept(&queue, &turn);
        }
    }
    (sent, most)
}

#[tokio::test]
async fn scarce_permits_are_shared_by_weight() {
    let cases = [(6, 1), (6, 3), (6, 6), (20, 1), (20, 7), (20, 20)];
    for ((limit, given_back_at_once), one_of) in cases.into_iter().flat_map(|case| [(case, 1), (case, 3)]) {
        let (sent, most) = share_permits(limit, given_back_at_once, 2_400 / given_back_at_once, one_of);
        let all: usize = sent.iter().sum();
        for (sent, weight) in sent.into_iter().zip([8.0, 3.0, 1.0]) {
            let off = sent as f64 / all as f64 / (weight / 12.0) - 1.0;
            assert!(
                off.abs() < 0.05,
                "{limit} permits, {given_back_at_once} at once, 1 of {one_of}: {sent} of {all}, off by {off}"
            );
        }
        assert!(most < limit as usize, "{limit} permits, of which one is kept for codes: {most}");
    }
}

#[tokio::test]
async fn idle_tier_is_not_compensated() {
    let queue = FairQueue::new(6, NOW, |_, _| {}, unbounded);
    let lane = lane(1, Gateway::Fcm);
    queue.push(jobs(300, &message(Tier::Promotional), &lane), NOW);
    let mut out: Vec<_> = std::iter::from_fn(|| turn(&queue)).collect();
    let mut step = |queue: &FairQueue| {
        let done = out.remove(0);
        accept(queue, &done);
        out.extend(turn(queue));
        out.last().unwrap().job.message.tier
    };
    for _ in 0..240 {
        step(&queue);
    }
    queue.push(jobs(60, &message(Tier::Transactional), &lane), NOW);
    let promotional = (0..24).filter(|_| step(&queue) == Tier::Promotional).count();
    assert!((5..=8).contains(&promotional), "3 of 11, however much it had before: {promotional} of 24");
}

#[tokio::test]
async fn briefly_empty_tier_keeps_its_share() {
    for (away_ms, owed) in [(900, true), (1_100, false)] {
        let queue = FairQueue::new(6, NOW, |_, _| {}, unbounded);
        let lane = lane(1, Gateway::Fcm);
        let [_, promotional, engagement] = Tier::ALL.map(message);
        queue.push(jobs(900, &promotional, &lane), NOW);
        queue.push(jobs(2, &engagement, &lane), NOW);
        let mut out: Vec<_> = std::iter::from_fn(|| turn(&queue)).collect();
        let mut step = || {
            let done = out.remove(0);
            accept(&queue, &done);
            out.extend(turn(&queue));
            out.last().unwrap().job.message.tier == Tier::Engagement
        };
        for _ in 0..20 {
            step(); // by then the two are gone
        }
        (0..300).for_each(|_| assert!(!step(), "there are none"));
        queue.push(jobs(300, &engagement, &lane), NOW + TimeDelta::milliseconds(away_ms));
        let taken = (0..100).filter(|_| step()).count();
        assert_eq!(taken > 90, owed, "{taken} of 100, after {away_ms} ms");
        let taken = (0..100).filter(|_| step()).count();
        assert!((20..=40).contains(&taken), "a quarter in the end: {taken}");
    }
}

#[tokio::test]
async fn fewer_retries_go_first_without_starvation() {
    let queue = FairQueue::new(64, NOW, |_, _| {}, unbounded);
    let (lane, message) = (lane(1, Gateway::Fcm), message(Tier::Promotional));
    let start = Instant::now();
    let tried = |retries, claimed_after_s| {
        let mut job = jobs(1, &message, &lane).remove(0);
        (job.retries, job.start_before) = (retries, start + Duration::from_secs(claimed_after_s));
        job
    };
    queue.push([tried(2, 0), tried(1, 0), tried(0, 0), tried(2, 0), tried(0, 0), tried(0, 1)], NOW);
    queue.push([tried(1, 0), tried(0, 9), tried(5, 0)], NOW);
    let order: Vec<_> = std::iter::from_fn(|| turn(&queue)).map(|turn| turn.job.retries).collect();
    assert_eq!(order, [0, 0, 0, 1, 1, 2, 2, 5, 0], "the last came much later");
}

#[tokio::test]
async fn transactional_taker_gets_its_share_only() {
    let queue = FairQueue::new(4, NOW, |_, _| {}, unbounded);
    let lane = lane(1, Gateway::Fcm);
    for tier in Tier::ALL {
        assert!(queue.push(jobs(1200, &message(tier), &lane), NOW).is_empty());
    }
    let mut taken = [0; 3];
    for _ in 0..1200 {
        let next = queue.try_next(Taker::Transactional, NOW).or_else(|| queue.try_next(Taker::Any, NOW));
        let Some(NextTurn::Turn(turn)) = next else { panic!("there is work and a permit") };
        taken[turn.job.message.tier as usize] += 1;
        accept(&queue, &turn);
    }
    assert_eq!(taken, [800, 300, 100]);
    // With nobody else at work, there is no share to keep to.
    let alone = FairQueue::new(4, NOW, |_, _| {}, unbounded);
    alone.push(jobs(100, &message(Tier::Transactional), &lane), NOW);
    for n in 0..100 {
        let Some(NextTurn::Turn(turn)) = alone.try_next(Taker::Transactional, NOW) else { panic!("none after {n}") };
        accept(&alone, &turn);
    }
}

#[tokio::test]
async fn reserved_thread_keeps_a_few_transactional_deliveries() {
    let queue = FairQueue::new(64, NOW, |_, _| {}, unbounded);
    let lane = lane(1, Gateway::Fcm);
    queue.push(jobs(18, &message(Tier::Transactional), &lane), NOW);
    queue.push(jobs(1, &message(Tier::Promotional), &lane), NOW);
    let taken_by = |taker| match queue.try_next(taker, NOW) {
        Some(NextTurn::Turn(turn)) => Some(turn.job.message.tier),
        _ => None,
    };
    assert_eq!(taken_by(Taker::Any), Some(Tier::Transactional), "more than a few are everybody's");
    assert_eq!(taken_by(Taker::Any), Some(Tier::Transactional));
    assert_eq!(taken_by(Taker::Any), Some(Tier::Promotional), "sixteen are few");
    assert_eq!(taken_by(Taker::Any), None);
    for n in 0..16 {
        assert_eq!(taken_by(Taker::Transactional), Some(Tier::Transactional), "{n}");
    }
}

#[tokio::test]
async fn last_permit_is_reserved_for_transactional_deliveries() {
    let queue = FairQueue::new(4, NOW, |_, _| {}, unbounded);
    let lane = lane(1, Gateway::Fcm);
    queue.push(jobs(10, &message(Tier::Promotional), &lane), NOW);
    let held: Vec<_> = std::iter::from_fn(|| turn(&queue)).collect();
    assert_eq!(held.len(), 3);
    queue.push(jobs(2, &message(Tier::Transactional), &lane), NOW);
    assert_eq!(turn(&queue).expect("the reserved permit").job.message.tier, Tier::Transactional);
    assert!(turn(&queue).is_none(), "the lane is full");
}

#[tokio::test]
async fn full_lane_blocks_no_other() {
    let queue = FairQueue::new(2, NOW, |_, _| {}, unbounded);
    let (one, other) = (lane(1, Gateway::Fcm), lane(2, Gateway::Mozilla));
    let message = message(Tier::Promotional);
    queue.push(jobs(100, &message, &one), NOW);
    queue.push(jobs(2, &message, &other), NOW);
    let first = turn(&queue).unwrap();
    let second = turn(&queue).unwrap();
    assert_ne!(first.job.lane.id, second.job.lane.id);
    accept(&queue, &second);
    assert_eq!(turn(&queue).unwrap().job.lane.id, LaneId(2), "lane 1 has its only permit in use");
}

/// Takes `n` deliveries, each of which ends at once, while every lane has deliveries waiting. Returns how many belong to the
/// first app.
fn turns_of_the_first(queue: &FairQueue, n: usize) -> usize {
    let mut first = 0;
    for _ in 0..n {
        let turn = turn(queue).expect("there is work and a permit");
        first += usize::from(turn.job.lane.app == APP);
        queue.push(jobs(1, &turn.job.message, &turn.job.lane), NOW);
        accept(queue, &turn);
    }
    first
}

#[tokio::test]
async fn apps_share_by_weight_regardless_of_keys() {
    const OTHER: AppId = AppId(Uuid::from_u128(2));
    for (weights, expected) in [([1, 1], 500), ([3, 1], 750), ([1, 9], 100)] {
        let queue = FairQueue::new(8, NOW, |_, _| {}, unbounded);
        let message = message(Tier::Promotional);
        let keys = (1..=10).map(|key| lane_of(APP, weights[0], key, Gateway::Fcm));
        for lane in keys.chain([lane_of(OTHER, weights[1], 11, Gateway::Fcm)]) {
            queue.push(jobs(20, &message, &lane), NOW);
        }
        assert_eq!(turns_of_the_first(&queue, 1_000), expected, "{weights:?}");
    }
}

#[tokio::test]
async fn changed_weight_applies_to_the_next_delivery() {
    let queue = FairQueue::new(8, NOW, |_, _| {}, unbounded);
    let message = message(Tier::Engagement);
    let other = lane_of(AppId(Uuid::from_u128(2)), 1, 2, Gateway::Fcm);
    queue.push(jobs(20, &message, &lane(1, Gateway::Fcm)), NOW);
    queue.push(jobs(20, &message, &other), NOW);
    assert_eq!(turns_of_the_first(&queue, 100), 50);
    queue.push(jobs(200, &message, &lane_of(APP, 4, 1, Gateway::Fcm)), NOW);
    while turn(&queue).map(|turn| accept(&queue, &turn)).is_some() {}
    queue.push(jobs(200, &message, &lane_of(APP, 4, 1, Gateway::Fcm)), NOW);
    queue.push(jobs(20, &message, &other), NOW);
    assert_eq!(turns_of_the_first(&queue, 100), 80);
}

#[tokio::test]
async fn a_thousand_strange_origins_leave_nothing_behind() {
    let queue = FairQueue::new(8, NOW, |_, _| {}, unbounded);
    let (lane, message) = (lane(1, Gateway::Other), message(Tier::Promotional));
    let minute = Duration::from_secs(60);
    let later = Instant::now() + minute * 2;
    for n in 0..1_000 {
        let origin = format!("https://push-{n}.example.com/x");
        assert!(queue.push(jobs_to(&origin, 1, &message, &lane), NOW).is_empty());
    }
    queue.forget_idle(NOW, later);
    assert_eq!(queue.load(NOW).known, 1_000, "their deliveries wait");
    let turns: Vec<_> = std::iter::from_fn(|| turn(&queue)).collect();
    queue.forget_idle(NOW, later);
    assert_eq!(queue.load(NOW).known, 1_000, "they are in flight");
    let slots: Vec<_> = turns.iter().map(|turn| turn.slot).collect();
    turns.into_iter().for_each(|turn| accept(&queue, &turn));
    queue.forget_idle(NOW, Instant::now());
    assert_eq!(queue.load(NOW).known, 1_000, "they may come back any moment");
    queue.forget_idle(NOW, later);
    assert_eq!(queue.load(NOW).known, 0);
    assert_eq!(queue.key_held_until(slots[0], NOW), None);
    assert!(queue.push(jobs(1, &message, &lane), NOW).is_empty(), "it is met anew");
    assert!(turn(&queue).is_some());
}

#[tokio::test]
async fn idle_origin_state_is_kept_while_relevant() {
    let queue = FairQueue::new(8, NOW, |_, _| {}, unbounded);
    let (lane, message, hour) = (lane(1, Gateway::Other), message(Tier::Promotional), Duration::from_secs(3_600));
    let (until, soon, late) = (NOW + hour, Instant::now() + hour / 2, Instant::now() + hour * 2);
    let origins = ["held", "broken", "fine"].map(|name| format!("https://{name}.example.com"));
    for origin in &origins {
        queue.push(jobs_to(&format!("{origin}/x"), 1, &message, &lane), NOW);
    }
    while turn(&queue).map(|turn| accept(&queue, &turn)).is_some() {}
    queue.adopt(LaneState { held: Some(HoldReason { at: NOW, until }), ..known(&origins[0]) });
    queue.adopt(LaneState { breaker: tripped(BreakerState::Open { until: NOW }), ..known(&origins[1]) });
    queue.forget_idle(NOW, soon);
    assert_eq!(queue.load(NOW).known, 2);
    assert_eq!(queue.push(jobs_to(&format!("{}/x", origins[0]), 1, &message, &lane), NOW).len(), 1, "held still");
    queue.forget_idle(NOW, late);
    assert_eq!(queue.load(NOW).known, 1, "nobody tried the broken one for an hour");
    queue.forget_idle(until, late);
    assert_eq!(queue.load(until).known, 0);
    // Whatever was said of all of them would be obeyed anew by one that is met again.
    queue.push(jobs(1, &message, &lane), until);
    while turn(&queue).map(|turn| queue.release(turn.slot, &turn.job, false, until)).is_some() {}
    queue.adopt(LaneState { held: Some(HoldReason { at: until, until: until + hour }), ..known(ALL_ORIGINS) });
    queue.adopt(LaneState { released_at: Some(until + hour / 2), ..known("https://push.example.com") });
    queue.forget_idle(until + hour / 2, late);
    assert!(queue.push(jobs(1, &message, &lane), until + hour / 2).is_empty(), "its own release counts");
}

#[tokio::test]
async fn each_freed_permit_wakes_one_lane() {
    let queue = FairQueue::new(8, NOW, |_, _| {}, unbounded);
    let message = message(Tier::Promotional);
    let lanes: Vec<_> = (1..=50).map(|id| lane(id, Gateway::Fcm)).collect();
    queue.push(jobs(1, &message, &lanes[0]), NOW);
    let before = turn(&queue).unwrap(); // it counts, though the flow comes later
    queue.adopt_flow(flow(None, Some(2), 0), NOW);
    for lane in &lanes {
        assert!(queue.push(jobs(2, &message, lane), NOW).is_empty());
    }
    let mut out = vec![before];
    let mut left = 100;
    while left > 0 || !out.is_empty() {
        while let Some(turn) = turn(&queue) {
            out.push(turn);
            left -= 1;
        }
        assert_eq!(out.len(), 2.min(left + out.len()), "{left} left");
        let done = out.remove(0);
        accept(&queue, &done);
    }
    // One that is shut when its turn comes leaves it to another.
    for lane in &lanes[..4] {
        queue.push(jobs(2, &message, lane), NOW);
    }
    let first = turn(&queue).unwrap();
    let second = turn(&queue).unwrap();
    let until = NOW + Duration::from_secs(60);
    for id in 2..=4 {
        let state = LaneState::of(LaneId(id), "https://push.example.com".into());
        queue.adopt(LaneState { held: Some(HoldReason { at: NOW, until }), ..state });
    }
    accept(&queue, &first);
    accept(&queue, &second);
    let (mut sent, mut deferred) = (0, 0);
    while let Some(next) = queue.try_next(Taker::Any, NOW) {
        match next {
            NextTurn::Turn(turn) => {
                sent += 1;
                accept(&queue, &turn);
            }
            NextTurn::Deferred(jobs, _) => deferred += jobs.len(),
        }
    }
    assert_eq!((sent, deferred), (1, 5), "of eight, two were sent before");
}

/// Returns a queue for an origin that allows this number of concurrent requests (the counter), without further connections.
fn behind(streams: &Arc<AtomicU32>) -> FairQueue {
    let streams = streams.clone();
    FairQueue::new(256, NOW, |_, _| {}, move |_| Streams { open: streams.load(Ordering::Relaxed), further: 0 })
}

const AUTHORITY: &str = "push.example.com";

#[tokio::test]
async fn streams_bound_all_lanes_of_an_origin_together() {
    let streams = Arc::new(AtomicU32::new(4));
    let queue = behind(&streams);
    let (one, other) = (lane(1, Gateway::Fcm), lane(2, Gateway::Fcm));
    let (news, code) = (message(Tier::Promotional), message(Tier::Transactional));
    for lane in [&one, &other] {
        assert!(queue.push(jobs(40, &news, lane), NOW).is_empty());
    }
    let mut out: Vec<_> = std::iter::from_fn(|| turn(&queue)).collect();
    assert_eq!(out.len(), 3, "one stream is kept for transactional deliveries");
    assert!(queue.push(jobs(2, &code, &one), NOW).is_empty());
    let urgent = turn(&queue).expect("the stream that is kept");
    assert!(urgent.job.message.tier == Tier::Transactional && turn(&queue).is_none());
    accept(&queue, &out.pop().unwrap());
    let next = turn(&queue).expect("a stream is free");
    assert_eq!(next.job.message.tier, Tier::Transactional, "a code is next");
    queue.release(urgent.slot, &urgent.job, false, NOW);
    queue.release(next.slot, &next.job, false, NOW);
    assert_eq!(std::iter::from_fn(|| turn(&queue)).count(), 1);

    streams.store(1, Ordering::Relaxed);
    queue.streams_changed(AUTHORITY);
    out.drain(..).for_each(|turn| accept(&queue, &turn));
    assert!(turn(&queue).is_none(), "one is under way still, and fits");
    streams.store(9, Ordering::Relaxed);
    queue.streams_changed(AUTHORITY);
    assert_eq!(std::iter::from_fn(|| turn(&queue)).count(), 7);
    assert_eq!(queue.room(&one, Tier::Engagement, NOW).n, 16, "few are claimed ahead");
}

/// Returns lane and tier of `n` deliveries with this number of streams, each answered before the next.
fn turns_behind(streams: u32, lanes: &[Arc<LaneInfo>], n: usize) -> Vec<(LaneId, Tier)> {
    let queue = behind(&Arc::new(AtomicU32::new(streams)));
    let messages = Tier::ALL.map(message);
    for (lane, message) in lanes.iter().flat_map(|lane| messages.iter().map(move |message| (lane, message))) {
        assert!(queue.push(jobs(n, message, lane), NOW).is_empty());
    }
    let mut out = std::collections::VecDeque::new();
    let mut taken = Vec::new();
    while taken.len() < n {
        while let Some(turn) = turn(&queue) {
            taken.push((turn.job.lane.id, turn.job.message.tier));
            out.push_back(turn);
        }
        accept(&queue, &out.pop_front().expect("some are under way"));
    }
    taken
}

#[tokio::test]
async fn tiers_and_apps_share_few_streams_by_weight() {
    let other = AppId(Uuid::from_u128(2));
    let lanes = [lane_of(APP, 3, 1, Gateway::Fcm), lane_of(other, 1, 2, Gateway::Fcm)];
    for streams in [1, 2, 4] {
        let taken = turns_behind(streams, &lanes, 1_200);
        let of_tier = |tier| taken.iter().filter(|(_, taken)| *taken == tier).count();
        let of_app = taken.iter().filter(|(lane, _)| *lane == LaneId(1)).count();
        let tiers = [Tier::Transactional, Tier::Promotional, Tier::Engagement].map(of_tier);
        let shares = [740..=860, 250..=350, 80..=120];
        // The stream that is kept is one of transactional deliveries alone, so these may have more.
        let is_fair = tiers.iter().zip(&shares).all(|(n, share)| share.contains(n)) || streams > 1;
        assert!(is_fair && tiers[0] >= 740, "{streams}: {tiers:?}");
        assert!((850..=950).contains(&of_app), "{streams}: {of_app} of 1200");
    }
}
