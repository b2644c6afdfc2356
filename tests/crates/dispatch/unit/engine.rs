//! Tests of the fair queue and of batches, without a database or a push service.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::batch::{OpenBatch, Recorded};
use super::conclude::unsent_attempt;
use super::content::Says;
use super::fair::turn::NextTurn;
use super::fair::{FairQueue, Taker};
use super::job::{Job, Ticket};
use super::message::{LaneInfo, Message, delivery};
use super::policies::{Policies, StoredPolicies};
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::{Tier, Urgency};
use bellwire_core::id::{AppId, LaneId, MessageId, SubscriptionId, VapidKeyId};
use bellwire_core::lane::Gateway;
use bellwire_core::message::{Content, Payload};
use bellwire_core::subscription::{BrowserKeys, Endpoint};
use bellwire_core::template::MessageContent;
use bellwire_gateway::Streams;
use bellwire_rules::classify::{PostResult, classify};
use bellwire_rules::policy::TierSettings;
use bellwire_rules::policy::breaker::{BreakerState, Snapshot};
use bellwire_rules::policy::flow::Rate;
use bellwire_rules::policy::hold::HoldReason;
use bellwire_rules::policy::lane::Answered;
use bellwire_rules::policy::lane_state::{ALL_ORIGINS, LaneState};
use bellwire_store::operations::workers::Replicas;
use bellwire_store::outcomes::ledger::{ClaimableAt, End, Fate, Settlement};
use bellwire_store::queue::claims::{Batch, Recipient, Sendability};
use bellwire_store::queue::flows::Flow;
use bellwire_webpush::keys::SigningKey;

#[path = "engine/properties.rs"]
mod properties;
#[path = "engine/sharing.rs"]
mod sharing;

const APP: AppId = AppId(Uuid::from_u128(1));
const NOW: Timestamp = Timestamp::from_timestamp(1_800_000_000, 0).unwrap();

fn message(tier: Tier) -> Arc<Message> {
    let content = Content::Raw { payload: Payload::Text("hello".into()), envelope: true };
    let id = MessageId(Uuid::now_v7());
    let policies = Policies::new(id, tier, StoredPolicies::default(), &TierSettings::DEFAULT);
    Arc::new(Message {
        id,
        root: id,
        app: APP,
        tier,
        says: Says::new(MessageContent::Literal(content)).unwrap(),
        enveloped: true,
        ttl_s: 60,
        urgency: Urgency::Normal,
        topic: None,
        policy: policies.common().clone(),
        policies,
        personal: false,
        calendar: bellwire_rules::policy::calendar::Calendar::restore("UTC", None, None),
        caps: Vec::new(),
        sla_s: None,
        accepted_at: NOW,
        free_at: NOW,
        charted: false,
        heard: bellwire_core::hook::WebhookKinds::default(),
        expires_at: NOW,
        withdraws_root: None,
        is_update: false,
        traced: None,
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
            origin_id: SubscriptionId(Uuid::now_v7()),
            user_id: None,
            endpoint: Endpoint::parse(endpoint).unwrap(),
            keys: BrowserKeys { p256dh: [4; 65], auth: [0; 16] },
            policy: message.policy.clone(),
            retries: 0,
            planned: None,
            free_at: NOW,
            proven: true,
            start_before: Instant::now(),
            attempts: Vec::new(),
            own: None,
            shrunk: None,
            limit: None,
            refused: None,
            number: 0,
            hold: None,
            ticket: Ticket::Row(Uuid::now_v7()),
            span: None,
        })
    };
    (0..n).map(job).collect()
}

/// Returns the streams of an origin that allows any number of requests.
fn unbounded(_: &str) -> Streams {
    Streams { open: u32::MAX, further: 0 }
}

/// Takes the next delivery if one is ready.
fn turn(queue: &FairQueue) -> Option<super::fair::turn::Turn> {
    match queue.try_next(Taker::Any, NOW).or_else(|| queue.try_next(Taker::Transactional, NOW)) {
        Some(NextTurn::Turn(turn)) => Some(turn),
        Some(NextTurn::Deferred(..)) => panic!("nothing is shut"),
        None => None,
    }
}

#[tokio::test]
async fn held_lane_returns_waiting_and_accepts_nothing() {
    let queue = FairQueue::new(8, NOW, |_, _| {}, unbounded);
    let lane = lane(1, Gateway::Fcm);
    let message = message(Tier::Promotional);
    queue.push(jobs(5, &message, &lane), NOW);
    let first = turn(&queue).unwrap();
    let headers = [("retry-after".parse().unwrap(), "30".parse().unwrap())].into_iter().collect();
    let outcome = classify(Gateway::Wns, &PostResult::Response { status: 406, headers: &headers, body: b"" }, NOW);
    let answered = Answered {
        reached: true,
        outcome: &outcome,
        known_throttled: false,
        number: first.job.number,
        posted_at: NOW,
        now: NOW,
        probe: false,
        transactional: false,
        octets: 128,
        refused: None,
        settings: &TierSettings::DEFAULT,
    };
    let told = queue.answered(first.slot, &answered).0.expect("others have to know");
    let until = NOW + Duration::from_secs(30);
    assert_eq!((told.lane, told.held.map(|held| held.until)), (LaneId(1), Some(until)));
    match queue.try_next(Taker::Any, NOW) {
        Some(NextTurn::Deferred(jobs, at)) => assert_eq!((jobs.len(), at), (4, until)),
        _ => panic!("the lane is held"),
    }
    assert_eq!(queue.push(jobs(3, &message, &lane), NOW).len(), 3);
    assert_eq!(queue.room(&lane, Tier::Promotional, NOW).n, 0);
    assert!(queue.push(jobs(3, &message, &lane), until).is_empty(), "the hold is over");
}

#[tokio::test]
async fn refused_key_lane_probes_with_proven_deliveries() {
    let queue = FairQueue::new(4, NOW, |_, _| {}, unbounded);
    let (message, lane) = (message(Tier::Promotional), lane(1, Gateway::Fcm));
    let (until, soon) = (NOW + Duration::from_secs(600), NOW + Duration::from_secs(15));
    queue.hold_key(lane.id, HoldReason { at: NOW, until });
    let mut stranger = jobs(1, &message, &lane);
    stranger[0].proven = false;
    assert_eq!(queue.push(stranger, NOW).pop().map(|(_, until)| until), Some(until));
    assert!(queue.push(jobs(3, &message, &lane), NOW).is_empty());
    assert!(turn(&queue).is_some(), "the probe");
    let Some(NextTurn::Deferred(others, until)) = queue.try_next(Taker::Any, NOW) else {
        panic!("one probe at a time")
    };
    assert_eq!((others.len(), until), (2, soon));
    let room = |now| queue.room(&lane, Tier::Promotional, now).n;
    assert_eq!([room(NOW), room(NOW), room(soon)], [16, 0, 16], "few are claimed to find one");
}

fn known(origin: &str) -> LaneState {
    LaneState::of(LaneId(1), origin.into())
}

fn tripped(state: BreakerState) -> Option<Snapshot> {
    Some(Snapshot { state, open_for: Duration::from_secs(30), changed_at: NOW })
}

#[tokio::test]
async fn state_of_all_origins_applies_to_new_ones() {
    let queue = FairQueue::new(8, NOW, |_, _| {}, unbounded);
    let lane = lane(1, Gateway::Wns);
    let until = NOW + Duration::from_secs(60);
    queue.adopt(LaneState { held: Some(HoldReason { at: NOW, until }), ..known(ALL_ORIGINS) });
    assert_eq!(queue.room(&lane, Tier::Promotional, NOW).n, 0, "even before an origin is met");
    let message = message(Tier::Promotional);
    assert_eq!(queue.push(jobs(1, &message, &lane), NOW).pop().map(|(_, at)| at), Some(until));
    let later = NOW + Duration::from_secs(1);
    queue.adopt(LaneState { released_at: Some(later), ..known("https://push.example.com") });
    queue.adopt(LaneState { held: Some(HoldReason { at: NOW, until }), ..known(ALL_ORIGINS) }); // read once more
    assert!(queue.push(jobs(1, &message, &lane), later).is_empty());
}

#[tokio::test]
async fn broken_lane_has_room_for_probes_only() {
    let queue = FairQueue::new(8, NOW, |_, _| {}, unbounded);
    let lane = lane(1, Gateway::Fcm);
    let over = NOW + Duration::from_secs(30);
    // Heard of before it is met, as after a restart.
    queue
        .adopt(LaneState { breaker: tripped(BreakerState::Open { until: over }), ..known("https://push.example.com") });
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
    while let Some(NextTurn::Turn(turn)) = queue.try_next(Taker::Any, again) {
        assert!(turn.probe);
        probes += 1;
    }
    assert_eq!(probes, 3);
    assert_eq!(queue.room(&lane, Tier::Promotional, again).n, 0, "until they are answered");
}

fn flow(rate: Option<u32>, parallelism: Option<u32>, changed_s: u64) -> Flow {
    let rate = rate.map(|n| Rate { n, period: Duration::from_secs(1) });
    let changed_at = NOW + Duration::from_secs(changed_s);
    let (paused, held, held_at) = (false, Vec::new(), None);
    Flow { app: APP, lane: None, rate, parallelism, paused, held, held_at, reset_at: NOW, changed_at }
}

#[tokio::test]
async fn rate_bounds_intake_and_returns_the_unsent() {
    let queue = FairQueue::new(8, NOW, |_, _| {}, unbounded);
    let (one, other, message) = (lane(1, Gateway::Fcm), lane(2, Gateway::Apple), message(Tier::Promotional));
    queue.adopt_flow(flow(Some(2), None, 0), NOW);
    assert_eq!(queue.room(&one, Tier::Promotional, NOW).n, 0, "a rate begins without saved-up tokens");
    let rested = NOW + Duration::from_secs(10);
    assert_eq!(queue.room(&one, Tier::Promotional, rested).n, 3, "one, and a second's worth");
    assert_eq!(queue.push(jobs(5, &message, &one), rested).len(), 2);
    let room = queue.room(&other, Tier::Promotional, rested);
    assert_eq!((room.n, room.next_at), (0, Some(rested + Duration::from_millis(500))), "the app's lanes share it");
    let turn = turn(&queue).unwrap();
    queue.release(turn.slot, &turn.job, turn.probe, rested);
    assert_eq!(queue.room(&other, Tier::Promotional, rested).n, 1);
    queue.adopt_flow(flow(None, None, 1), rested);
    queue.adopt_flow(flow(Some(2), None, 0), rested); // read before that change
    assert!(queue.room(&other, Tier::Promotional, rested).n > 3, "the later word counts");
}

#[tokio::test]
async fn parallelism_is_shared_by_lanes_and_workers() {
    let queue = FairQueue::new(8, NOW, |_, _| {}, unbounded);
    let (one, other, message) = (lane(1, Gateway::Fcm), lane(2, Gateway::Apple), message(Tier::Promotional));
    queue.adopt_flow(flow(None, Some(3), 0), NOW);
    queue.share_among(Replicas { workers: 2, rank: 0, newcomer: false }, NOW);
    for lane in [&one, &other] {
        assert!(queue.push(jobs(2, &message, lane), NOW).is_empty());
    }
    let [first, _second] = [turn(&queue).unwrap(), turn(&queue).unwrap()];
    assert!(turn(&queue).is_none(), "two of three are this worker's");
    assert_eq!(queue.room(&one, Tier::Promotional, NOW).n, 0);
    queue.release(first.slot, &first.job, false, NOW);
    assert!(turn(&queue).is_some(), "in whichever lane it waits");
    queue.share_among(Replicas { workers: 4, rank: 3, newcomer: false }, NOW);
    assert!(
        matches!(queue.try_next(Taker::Any, NOW), Some(NextTurn::Deferred(jobs, at)) if (jobs.len(), at) == (1, NOW))
    );
    assert_eq!(queue.push(jobs(1, &message, &one), NOW).len(), 1);
}

#[tokio::test]
async fn held_tiers_wait_while_others_continue() {
    let queue = FairQueue::new(8, NOW, |_, _| {}, unbounded);
    let (lane, code, news) = (lane(1, Gateway::Fcm), message(Tier::Transactional), message(Tier::Promotional));
    assert!(queue.push(jobs(2, &news, &lane), NOW).is_empty());
    assert!(queue.push(jobs(1, &code, &lane), NOW).is_empty());
    let held = vec![Tier::Promotional, Tier::Engagement];
    queue.adopt_flow(Flow { held, held_at: Some(NOW), ..flow(None, None, 1) }, NOW);
    assert_eq!(queue.room(&lane, Tier::Promotional, NOW).n, 0);
    assert!(queue.room(&lane, Tier::Transactional, NOW).n > 0);
    assert_eq!(queue.push(jobs(1, &news, &lane), NOW).len(), 1);
    let (mut sent, mut deferred) = (0, 0);
    let next = || queue.try_next(Taker::Any, NOW).or_else(|| queue.try_next(Taker::Transactional, NOW));
    while let Some(next) = next() {
        match next {
            NextTurn::Turn(turn) => sent += usize::from(turn.job.message.tier == Tier::Transactional),
            NextTurn::Deferred(jobs, _) => deferred += jobs.len(),
        }
    }
    assert_eq!((sent, deferred), (1, 2), "what waited is put back, but for the code");
    queue.adopt_flow(flow(None, None, 2), NOW);
    assert!(queue.push(jobs(1, &news, &lane), NOW).is_empty());
    assert!(turn(&queue).is_some());
}

#[tokio::test]
async fn batch_settles_once_late_responses_become_rows() {
    let (message, lane) = (message(Tier::Promotional), lane(1, Gateway::Fcm));
    let recipients = (0..3).map(|_| Recipient {
        subscription: SubscriptionId(Uuid::now_v7()),
        origin_id: SubscriptionId(Uuid::now_v7()),
        address: Vec::new(),
        standing: Sendability::Sendable,
        policy: None,
        muted_until: None,
        timezone: None,
        user_id: None,
        proven: true,
        life: 0,
    });
    let (id, tier) = (Uuid::now_v7(), Tier::Promotional);
    let recipients = recipients.collect();
    let batch = Batch {
        id,
        lease: id,
        message: message.id,
        lane: lane.id,
        tier,
        leases: 1,
        recipients,
        passed: 0,
        paced_at: None,
    };
    let (taken_at, lease_until) = (Instant::now(), NOW + Duration::from_secs(30));
    let open = OpenBatch::new(&batch, message.clone(), lane.clone(), lease_until, taken_at);
    let accepted = |place: usize| {
        let to = batch.recipients[place].subscription;
        let accepted = Fate::Ended(unsent_attempt(0, "", NOW), End::Accepted);
        Settlement::new(delivery(&message, lane.id, (to, 0), true), accepted)
    };
    assert!(open.begin(0, 0, taken_at) && open.begin(1, 0, taken_at));
    assert!(matches!(open.record(0, accepted(0)), Recorded::Kept));
    assert!(!open.close_if_due(taken_at), "there is time");
    assert!(open.close_if_due(taken_at + Duration::from_secs(5)));
    assert!(!open.begin(2, 0, taken_at), "the third is a row now");
    let settled = open.take_settlements(NOW);
    let fates: Vec<_> = settled.iter().map(Settlement::fate).collect();
    assert!(matches!(fates[0], Fate::Ended(_, End::Accepted)));
    assert!(matches!(fates[1], Fate::InFlight { retries: 0, .. }));
    assert!(matches!(fates[2], Fate::Deferred(ClaimableAt::At(at)) if *at == NOW));
    assert!(matches!(open.record(1, accepted(1)), Recorded::Kept), "its row does not exist before the commit");
    assert_eq!(open.settled().len(), 1);
    assert!(matches!(open.record(1, accepted(1)), Recorded::Row(_)));
}
