//! Promises of the fair queue and of pages, without a database or a gateway.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::fair::{FairQueue, Next, Taker};
use super::job::{Job, LaneInfo, Message, Ticket, settlement};
use super::lane::Answered;
use super::page::{OpenPage, Recorded};
use super::policies::Policies;
use crate::classify::{Answer, classify};
use crate::clock::Timestamp;
use crate::delivery::{Ending, Tier, Urgency};
use crate::id::{AppId, LaneId, MessageId, SubscriptionId, VapidKeyId};
use crate::lane::Gateway;
use crate::message::{Content, Payload};
use crate::policy::Settings;
use crate::policy::breaker::{Snapshot, State};
use crate::policy::flow::Rate;
use crate::policy::hold::Held;
use crate::store::claims::{Page, Recipient, Standing};
use crate::store::flows::Flow;
use crate::store::opening::StoredPolicies;
use crate::store::settle::{Due, Fate};
use crate::store::workers::{ALL_ORIGINS, Crew, LaneState};
use crate::subscription::{BrowserKeys, Endpoint};
use crate::webpush::keys::SigningKey;
use crate::webpush::payload::Template;

const APP: AppId = AppId(Uuid::from_u128(1));
const NOW: Timestamp = Timestamp::from_timestamp(1_800_000_000, 0).unwrap();

fn message(tier: Tier) -> Arc<Message> {
    let content = Content::Raw { payload: Payload::Text("hello".into()), envelope: true };
    let id = MessageId(Uuid::now_v7());
    let policies = Policies::new(id, tier, &StoredPolicies::default(), &Settings::DEFAULT);
    Arc::new(Message {
        id,
        root: id,
        app: APP,
        tier,
        template: Template::new(&content).unwrap(),
        content,
        ttl_s: 60,
        urgency: Urgency::Normal,
        topic: None,
        policy: policies.common().clone(),
        policies,
        personal: false,
        calendar: crate::policy::calendar::Calendar::restore("UTC", None, None),
        sla_s: None,
        accepted_at: NOW,
        expires_at: NOW,
        shrunk: Default::default(),
    })
}

fn lane(id: i32, gateway: Gateway) -> Arc<LaneInfo> {
    lane_of(APP, 1, id, gateway)
}

fn lane_of(app: AppId, weight: u32, id: i32, gateway: Gateway) -> Arc<LaneInfo> {
    let vapid_key = VapidKeyId(Uuid::now_v7());
    let key = SigningKey::generate();
    let subject = "mailto:ops@example.com".into();
    Arc::new(LaneInfo { id: LaneId(id), app, weight, gateway, vapid_key, key, subject })
}

fn jobs(n: usize, message: &Arc<Message>, lane: &Arc<LaneInfo>) -> Vec<Box<Job>> {
    jobs_to("https://push.example.com/x", n, message, lane)
}

fn jobs_to(endpoint: &str, n: usize, message: &Arc<Message>, lane: &Arc<LaneInfo>) -> Vec<Box<Job>> {
    let job = |_| {
        Box::new(Job {
            message: message.clone(),
            lane: lane.clone(),
            subscription: SubscriptionId(Uuid::now_v7()),
            life: 0,
            origin_id: Uuid::now_v7(),
            endpoint: Endpoint::parse(endpoint).unwrap(),
            keys: BrowserKeys { p256dh: [4; 65], auth: [0; 16] },
            policy: message.policy.clone(),
            retries: 0,
            planned: None,
            proven: true,
            start_before: Instant::now(),
            attempts: Vec::new(),
            shrunk: None,
            limit: None,
            refused: None,
            number: 0,
            ticket: Ticket::Row(Uuid::now_v7()),
        })
    };
    (0..n).map(job).collect()
}

/// Takes a turn at once, if there is one for anybody.
fn turn(queue: &FairQueue) -> Option<super::fair::Turn> {
    match queue.try_next(Taker::Any, NOW).or_else(|| queue.try_next(Taker::Transactional, NOW)) {
        Some(Next::Turn(turn)) => Some(turn),
        Some(Next::PutOff(..)) => panic!("nothing is shut"),
        None => None,
    }
}

#[tokio::test]
async fn saturated_tiers_share_by_their_weights() {
    let queue = FairQueue::new(4, NOW, |_, _| {});
    let lane = lane(1, Gateway::Fcm);
    for tier in Tier::ALL {
        assert!(queue.push(jobs(1200, &message(tier), &lane), NOW).is_empty());
    }
    let mut taken = [0; 3];
    for _ in 0..1200 {
        let turn = turn(&queue).expect("there is work and a permit");
        taken[turn.job.message.tier as usize] += 1;
        queue.release(turn.slot, &turn.job, turn.probe, NOW);
    }
    assert_eq!(taken, [800, 300, 100]);
}

/// Keeps 60 deliveries of each tier waiting in a lane with so few permits, all of them out but for a moment.
/// Returns how many of each tier were sent, and the most that were out and not transactional.
fn share_permits(limit: u32, given_back_at_once: usize, rounds: usize) -> ([usize; 3], usize) {
    let queue = FairQueue::new(limit, NOW, |_, _| {});
    // A lane that has permits enough, and the tier in the middle only: its turns are not this lane's.
    let (scarce, ample) = (lane(1, Gateway::Fcm), lane(2, Gateway::Mozilla));
    let messages = Tier::ALL.map(message);
    for message in &messages {
        queue.push(jobs(60, message, &scarce), NOW);
    }
    let (mut out, mut sent, mut most) = (std::collections::VecDeque::new(), [0; 3], 0);
    for _ in 0..rounds {
        queue.push(jobs(2, &messages[1], &ample), NOW);
        while let Some(turn) = turn(&queue) {
            if turn.job.lane.id == ample.id {
                queue.release(turn.slot, &turn.job, false, NOW);
                continue;
            }
            sent[turn.job.message.tier as usize] += 1;
            queue.push(jobs(1, &turn.job.message, &scarce), NOW);
            out.push_back(turn);
            most = most.max(out.iter().filter(|turn| turn.job.message.tier != Tier::Transactional).count());
        }
        for turn in out.drain(..given_back_at_once.min(out.len())) {
            queue.release(turn.slot, &turn.job, false, NOW);
        }
    }
    (sent, most)
}

#[tokio::test]
async fn where_permits_are_scarce_saturated_tiers_share_them_by_their_weights_and_one_is_kept() {
    for (limit, given_back_at_once) in [(6, 1), (6, 3), (6, 6), (20, 1), (20, 7), (20, 20)] {
        let (sent, most) = share_permits(limit, given_back_at_once, 2_400 / given_back_at_once);
        let all: usize = sent.iter().sum();
        for (sent, weight) in sent.into_iter().zip([8.0, 3.0, 1.0]) {
            let off = sent as f64 / all as f64 / (weight / 12.0) - 1.0;
            assert!(off.abs() < 0.05, "{limit} permits, {given_back_at_once} at once: {sent} of {all}, off by {off}");
        }
        assert!(most < limit as usize, "{limit} permits, of which one is kept for codes: {most}");
    }
}

#[tokio::test]
async fn a_tier_that_had_nothing_to_send_is_not_owed_for_it() {
    let queue = FairQueue::new(6, NOW, |_, _| {});
    let lane = lane(1, Gateway::Fcm);
    queue.push(jobs(300, &message(Tier::Promotional), &lane), NOW);
    let mut out: Vec<_> = std::iter::from_fn(|| turn(&queue)).collect();
    let mut step = |queue: &FairQueue| {
        let done = out.remove(0);
        queue.release(done.slot, &done.job, false, NOW);
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
async fn within_a_tier_fewer_retries_go_first_and_nothing_is_passed_for_ever() {
    let queue = FairQueue::new(64, NOW, |_, _| {});
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
async fn who_asks_for_transactional_deliveries_alone_gets_no_more_of_them_than_their_share() {
    let queue = FairQueue::new(4, NOW, |_, _| {});
    let lane = lane(1, Gateway::Fcm);
    for tier in Tier::ALL {
        assert!(queue.push(jobs(1200, &message(tier), &lane), NOW).is_empty());
    }
    let mut taken = [0; 3];
    for _ in 0..1200 {
        let next = queue.try_next(Taker::Transactional, NOW).or_else(|| queue.try_next(Taker::Any, NOW));
        let Some(Next::Turn(turn)) = next else { panic!("there is work and a permit") };
        taken[turn.job.message.tier as usize] += 1;
        queue.release(turn.slot, &turn.job, turn.probe, NOW);
    }
    assert_eq!(taken, [800, 300, 100]);
    // With nobody else at work, there is no share to keep to.
    let alone = FairQueue::new(4, NOW, |_, _| {});
    alone.push(jobs(100, &message(Tier::Transactional), &lane), NOW);
    for n in 0..100 {
        let Some(Next::Turn(turn)) = alone.try_next(Taker::Transactional, NOW) else { panic!("none after {n}") };
        alone.release(turn.slot, &turn.job, turn.probe, NOW);
    }
}

#[tokio::test]
async fn a_few_transactional_deliveries_are_left_to_the_thread_that_is_kept_for_them() {
    let queue = FairQueue::new(64, NOW, |_, _| {});
    let lane = lane(1, Gateway::Fcm);
    queue.push(jobs(18, &message(Tier::Transactional), &lane), NOW);
    queue.push(jobs(1, &message(Tier::Promotional), &lane), NOW);
    let taken_by = |taker| match queue.try_next(taker, NOW) {
        Some(Next::Turn(turn)) => Some(turn.job.message.tier),
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
async fn the_last_permit_of_a_lane_is_kept_for_transactional_deliveries() {
    let queue = FairQueue::new(4, NOW, |_, _| {});
    let lane = lane(1, Gateway::Fcm);
    queue.push(jobs(10, &message(Tier::Promotional), &lane), NOW);
    let held: Vec<_> = std::iter::from_fn(|| turn(&queue)).collect();
    assert_eq!(held.len(), 3);
    queue.push(jobs(2, &message(Tier::Transactional), &lane), NOW);
    assert_eq!(turn(&queue).expect("the reserved permit").job.message.tier, Tier::Transactional);
    assert!(turn(&queue).is_none(), "the lane is full");
}

#[tokio::test]
async fn lanes_take_turns_and_a_full_one_holds_up_nobody() {
    let queue = FairQueue::new(2, NOW, |_, _| {});
    let (one, other) = (lane(1, Gateway::Fcm), lane(2, Gateway::Mozilla));
    let message = message(Tier::Promotional);
    queue.push(jobs(100, &message, &one), NOW);
    queue.push(jobs(2, &message, &other), NOW);
    let first = turn(&queue).unwrap();
    let second = turn(&queue).unwrap();
    assert_ne!(first.job.lane.id, second.job.lane.id);
    queue.release(second.slot, &second.job, false, NOW);
    assert_eq!(turn(&queue).unwrap().job.lane.id, LaneId(2), "lane 1 has its only permit in use");
}

/// Takes so many turns, each of which ends at once, while every lane has deliveries waiting; how many fell to the first app.
fn turns_of_the_first(queue: &FairQueue, n: usize) -> usize {
    let mut first = 0;
    for _ in 0..n {
        let turn = turn(queue).expect("there is work and a permit");
        first += usize::from(turn.job.lane.app == APP);
        queue.push(jobs(1, &turn.job.message, &turn.job.lane), NOW);
        queue.release(turn.slot, &turn.job, false, NOW);
    }
    first
}

#[tokio::test]
async fn apps_take_turns_by_their_weights_however_many_keys_they_have() {
    const OTHER: AppId = AppId(Uuid::from_u128(2));
    for (weights, expected) in [([1, 1], 500), ([3, 1], 750), ([1, 9], 100)] {
        let queue = FairQueue::new(8, NOW, |_, _| {});
        let message = message(Tier::Promotional);
        let keys = (1..=10).map(|key| lane_of(APP, weights[0], key, Gateway::Fcm));
        for lane in keys.chain([lane_of(OTHER, weights[1], 11, Gateway::Fcm)]) {
            queue.push(jobs(20, &message, &lane), NOW);
        }
        assert_eq!(turns_of_the_first(&queue, 1_000), expected, "{weights:?}");
    }
}

#[tokio::test]
async fn a_weight_that_changed_counts_from_the_next_delivery_on() {
    let queue = FairQueue::new(8, NOW, |_, _| {});
    let message = message(Tier::Engagement);
    let other = lane_of(AppId(Uuid::from_u128(2)), 1, 2, Gateway::Fcm);
    queue.push(jobs(20, &message, &lane(1, Gateway::Fcm)), NOW);
    queue.push(jobs(20, &message, &other), NOW);
    assert_eq!(turns_of_the_first(&queue, 100), 50);
    queue.push(jobs(200, &message, &lane_of(APP, 4, 1, Gateway::Fcm)), NOW);
    while turn(&queue).map(|turn| queue.release(turn.slot, &turn.job, false, NOW)).is_some() {}
    queue.push(jobs(200, &message, &lane_of(APP, 4, 1, Gateway::Fcm)), NOW);
    queue.push(jobs(20, &message, &other), NOW);
    assert_eq!(turns_of_the_first(&queue, 100), 80);
}

#[tokio::test]
async fn a_thousand_strange_origins_leave_nothing_behind() {
    let queue = FairQueue::new(8, NOW, |_, _| {});
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
    turns.into_iter().for_each(|turn| queue.release(turn.slot, &turn.job, false, NOW));
    queue.forget_idle(NOW, Instant::now());
    assert_eq!(queue.load(NOW).known, 1_000, "they may come back any moment");
    queue.forget_idle(NOW, later);
    assert_eq!(queue.load(NOW).known, 0);
    assert_eq!(queue.key_held_until(slots[0], NOW), None);
    assert!(queue.push(jobs(1, &message, &lane), NOW).is_empty(), "it is met anew");
    assert!(turn(&queue).is_some());
}

#[tokio::test]
async fn what_is_known_of_an_idle_origin_is_kept_while_it_matters() {
    let queue = FairQueue::new(8, NOW, |_, _| {});
    let (lane, message, hour) = (lane(1, Gateway::Other), message(Tier::Promotional), Duration::from_secs(3_600));
    let (until, soon, late) = (NOW + hour, Instant::now() + hour / 2, Instant::now() + hour * 2);
    let origins = ["held", "broken", "fine"].map(|name| format!("https://{name}.example.com"));
    for origin in &origins {
        queue.push(jobs_to(&format!("{origin}/x"), 1, &message, &lane), NOW);
    }
    while turn(&queue).map(|turn| queue.release(turn.slot, &turn.job, false, NOW)).is_some() {}
    queue.adopt(LaneState { held: Some(Held { at: NOW, until }), ..known(&origins[0]) });
    queue.adopt(LaneState { breaker: tripped(State::Open { until: NOW }), ..known(&origins[1]) });
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
    queue.adopt(LaneState { held: Some(Held { at: until, until: until + hour }), ..known(ALL_ORIGINS) });
    queue.adopt(LaneState { released_at: Some(until + hour / 2), ..known("https://push.example.com") });
    queue.forget_idle(until + hour / 2, late);
    assert!(queue.push(jobs(1, &message, &lane), until + hour / 2).is_empty(), "its own release counts");
}

#[tokio::test]
async fn of_many_lanes_that_wait_for_a_parallelism_each_permit_wakes_one_and_none_is_lost() {
    let queue = FairQueue::new(8, NOW, |_, _| {});
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
        queue.release(done.slot, &done.job, false, NOW);
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
        queue.adopt(LaneState { held: Some(Held { at: NOW, until }), ..state });
    }
    queue.release(first.slot, &first.job, false, NOW);
    queue.release(second.slot, &second.job, false, NOW);
    let (mut sent, mut put_off) = (0, 0);
    while let Some(next) = queue.try_next(Taker::Any, NOW) {
        match next {
            Next::Turn(turn) => {
                sent += 1;
                queue.release(turn.slot, &turn.job, false, NOW);
            }
            Next::PutOff(jobs, _) => put_off += jobs.len(),
        }
    }
    assert_eq!((sent, put_off), (1, 5), "of eight, two were sent before");
}

#[tokio::test]
async fn a_held_lane_gives_back_what_waits_and_takes_nothing_in() {
    let queue = FairQueue::new(8, NOW, |_, _| {});
    let lane = lane(1, Gateway::Fcm);
    let message = message(Tier::Promotional);
    queue.push(jobs(5, &message, &lane), NOW);
    let first = turn(&queue).unwrap();
    let headers = [("retry-after".parse().unwrap(), "30".parse().unwrap())].into_iter().collect();
    let outcome = classify(Gateway::Fcm, &Answer::Response { status: 429, headers: &headers, body: b"" }, NOW);
    let answered = Answered {
        reached: true,
        outcome: &outcome,
        number: first.job.number,
        posted_at: NOW,
        now: NOW,
        probe: false,
        transactional: false,
        octets: 128,
        refused: None,
        settings: &Settings::DEFAULT,
    };
    let told = queue.answered(first.slot, &answered).0.expect("others have to know");
    let until = NOW + Duration::from_secs(30);
    assert_eq!((told.lane, told.held.map(|held| held.until)), (LaneId(1), Some(until)));
    match queue.try_next(Taker::Any, NOW) {
        Some(Next::PutOff(jobs, at)) => assert_eq!((jobs.len(), at), (4, until)),
        _ => panic!("the lane is held"),
    }
    assert_eq!(queue.push(jobs(3, &message, &lane), NOW).len(), 3);
    assert_eq!(queue.room(&lane, Tier::Promotional, NOW).n, 0);
    assert!(queue.push(jobs(3, &message, &lane), until).is_empty(), "the hold is over");
}

#[tokio::test]
async fn a_lane_whose_key_is_refused_lets_one_proven_delivery_through_now_and_then() {
    let queue = FairQueue::new(4, NOW, |_, _| {});
    let (message, lane) = (message(Tier::Promotional), lane(1, Gateway::Fcm));
    let (until, soon) = (NOW + Duration::from_secs(600), NOW + Duration::from_secs(15));
    queue.hold_key(lane.id, Held { at: NOW, until });
    let mut stranger = jobs(1, &message, &lane);
    stranger[0].proven = false;
    assert_eq!(queue.push(stranger, NOW).pop().map(|(_, until)| until), Some(until));
    assert!(queue.push(jobs(3, &message, &lane), NOW).is_empty());
    assert!(turn(&queue).is_some(), "the probe");
    let Some(Next::PutOff(others, until)) = queue.try_next(Taker::Any, NOW) else { panic!("one probe at a time") };
    assert_eq!((others.len(), until), (2, soon));
    let room = |now| queue.room(&lane, Tier::Promotional, now).n;
    assert_eq!([room(NOW), room(NOW), room(soon)], [16, 0, 16], "few are claimed to find one");
}

fn known(origin: &str) -> LaneState {
    LaneState::of(LaneId(1), origin.into())
}

fn tripped(state: State) -> Option<Snapshot> {
    Some(Snapshot { state, open_for: Duration::from_secs(30), changed_at: NOW })
}

#[tokio::test]
async fn what_is_said_of_all_origins_holds_for_those_met_later_until_their_own_release() {
    let queue = FairQueue::new(8, NOW, |_, _| {});
    let lane = lane(1, Gateway::Wns);
    let until = NOW + Duration::from_secs(60);
    queue.adopt(LaneState { held: Some(Held { at: NOW, until }), ..known(ALL_ORIGINS) });
    assert_eq!(queue.room(&lane, Tier::Promotional, NOW).n, 0, "even before an origin is met");
    let message = message(Tier::Promotional);
    assert_eq!(queue.push(jobs(1, &message, &lane), NOW).pop().map(|(_, at)| at), Some(until));
    let later = NOW + Duration::from_secs(1);
    queue.adopt(LaneState { released_at: Some(later), ..known("https://push.example.com") });
    queue.adopt(LaneState { held: Some(Held { at: NOW, until }), ..known(ALL_ORIGINS) }); // read once more
    assert!(queue.push(jobs(1, &message, &lane), later).is_empty());
}

#[tokio::test]
async fn a_broken_lane_has_room_for_the_probers_probes_alone() {
    let queue = FairQueue::new(8, NOW, |_, _| {});
    let lane = lane(1, Gateway::Fcm);
    let over = NOW + Duration::from_secs(30);
    // Heard of before it is met, as after a restart.
    queue.adopt(LaneState { breaker: tripped(State::Open { until: over }), ..known("https://push.example.com") });
    assert!(queue.wants_probe(&lane, NOW).is_empty());
    assert_eq!(queue.room(&lane, Tier::Promotional, NOW).n, 0);
    let [(slot, _, known_then)] = queue.wants_probe(&lane, over)[..] else { panic!("its time is over") };
    queue.asked_to_probe(slot, known_then, None, over);
    assert_eq!((queue.room(&lane, Tier::Promotional, over).n, queue.wants_probe(&lane, over).len()), (0, 0));
    let again = over + Duration::from_secs(1);
    assert_eq!(queue.wants_probe(&lane, again).len(), 1, "another second, another try");
    queue.asked_to_probe(slot, known_then, Some(again + Duration::from_secs(15)), again);
    let room = queue.room(&lane, Tier::Promotional, again);
    assert_eq!((room.n, room.exact), (3, true));
    assert!(queue.push(jobs(3, &message(Tier::Promotional), &lane), again).is_empty());
    assert_eq!(queue.room(&lane, Tier::Promotional, again).n, 0);
    let mut probes = 0;
    while let Some(Next::Turn(turn)) = queue.try_next(Taker::Any, again) {
        assert!(turn.probe);
        probes += 1;
    }
    assert_eq!(probes, 3);
    assert_eq!(queue.room(&lane, Tier::Promotional, again).n, 0, "until they are answered");
}

fn flow(rate: Option<u32>, parallelism: Option<u32>, changed_s: u64) -> Flow {
    let rate = rate.map(|n| Rate { n, period: Duration::from_secs(1) });
    let changed_at = NOW + Duration::from_secs(changed_s);
    Flow { app: APP, lane: None, rate, parallelism, paused: false, reset_at: NOW, changed_at }
}

#[tokio::test]
async fn a_rate_bounds_what_comes_in_and_gives_back_what_was_not_sent() {
    let queue = FairQueue::new(8, NOW, |_, _| {});
    let (one, other, message) = (lane(1, Gateway::Fcm), lane(2, Gateway::Apple), message(Tier::Promotional));
    queue.adopt_flow(flow(Some(2), None, 0), NOW);
    assert_eq!(queue.room(&one, Tier::Promotional, NOW).n, 3, "one, and a second's worth");
    assert_eq!(queue.push(jobs(5, &message, &one), NOW).len(), 2);
    let room = queue.room(&other, Tier::Promotional, NOW);
    assert_eq!((room.n, room.next_at), (0, Some(NOW + Duration::from_millis(500))), "the app's lanes share it");
    let turn = turn(&queue).unwrap();
    queue.release(turn.slot, &turn.job, turn.probe, NOW);
    assert_eq!(queue.room(&other, Tier::Promotional, NOW).n, 1);
    queue.adopt_flow(flow(None, None, 1), NOW);
    queue.adopt_flow(flow(Some(2), None, 0), NOW); // read before that change
    assert!(queue.room(&other, Tier::Promotional, NOW).n > 3, "the later word counts");
}

#[tokio::test]
async fn a_parallelism_is_shared_by_lanes_and_workers_and_a_part_of_none_keeps_nothing() {
    let queue = FairQueue::new(8, NOW, |_, _| {});
    let (one, other, message) = (lane(1, Gateway::Fcm), lane(2, Gateway::Apple), message(Tier::Promotional));
    queue.adopt_flow(flow(None, Some(3), 0), NOW);
    queue.share_among(Crew { workers: 2, rank: 0, newcomer: false }, NOW);
    for lane in [&one, &other] {
        assert!(queue.push(jobs(2, &message, lane), NOW).is_empty());
    }
    let [first, _second] = [turn(&queue).unwrap(), turn(&queue).unwrap()];
    assert!(turn(&queue).is_none(), "two of three are this worker's");
    assert_eq!(queue.room(&one, Tier::Promotional, NOW).n, 0);
    queue.release(first.slot, &first.job, false, NOW);
    assert!(turn(&queue).is_some(), "in whichever lane it waits");
    queue.share_among(Crew { workers: 4, rank: 3, newcomer: false }, NOW);
    assert!(matches!(queue.try_next(Taker::Any, NOW), Some(Next::PutOff(jobs, at)) if (jobs.len(), at) == (1, NOW)));
    assert_eq!(queue.push(jobs(1, &message, &one), NOW).len(), 1);
}

#[tokio::test]
async fn a_page_is_settled_once_and_late_answers_become_rows_under_its_lease() {
    let (message, lane) = (message(Tier::Promotional), lane(1, Gateway::Fcm));
    let recipients = (0..3).map(|_| Recipient {
        subscription: SubscriptionId(Uuid::now_v7()),
        origin_id: Uuid::now_v7(),
        address: Vec::new(),
        standing: Standing::Sendable,
        policy: None,
        timezone: None,
        proven: true,
        life: 0,
    });
    let (id, tier) = (Uuid::now_v7(), Tier::Promotional);
    let page =
        Page { id, lease: id, message: message.id, lane: lane.id, tier, leases: 1, recipients: recipients.collect() };
    let (cut_at, lease_until) = (Instant::now(), NOW + Duration::from_secs(30));
    let open = OpenPage::new(&page, message.clone(), lane.clone(), lease_until, cut_at);
    let accepted = |place: usize| {
        let to = page.recipients[place].subscription;
        settlement(&message, lane.id, (to, 0), Vec::new(), Fate::Ended(Ending::Accepted, None))
    };
    assert!(open.begin(0, 0, cut_at) && open.begin(1, 0, cut_at));
    assert!(matches!(open.record(0, accepted(0)), Recorded::Kept));
    assert!(!open.close_if_due(cut_at), "there is time");
    assert!(open.close_if_due(cut_at + Duration::from_secs(5)));
    assert!(!open.begin(2, 0, cut_at), "the third is a row now");
    let fates: Vec<_> = open.take_settlements(NOW).into_iter().map(|settled| settled.fate).collect();
    assert!(matches!(fates[0], Fate::Ended(Ending::Accepted, None)));
    assert!(matches!(fates[1], Fate::InFlight { retries: 0, .. }));
    assert!(matches!(fates[2], Fate::Deferred(Due::At(at)) if at == NOW));
    assert!(matches!(open.record(1, accepted(1)), Recorded::Kept), "its row does not exist before the commit");
    assert_eq!(open.settled().len(), 1);
    assert!(matches!(open.record(1, accepted(1)), Recorded::Row(_)));
}
