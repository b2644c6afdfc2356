//! Promises of the fair queue and of pages, without a database or a gateway.

use std::sync::Arc;

use tokio::time::Instant;
use uuid::Uuid;

use super::fair::{FairQueue, Next};
use super::job::{Job, LaneInfo, Message, Ticket, settlement};
use super::lane::Answered;
use super::page::{OpenPage, Recorded};
use crate::classify::{Answer, classify};
use crate::clock::Timestamp;
use crate::delivery::{Ending, Tier, Urgency};
use crate::id::{AppId, LaneId, MessageId, SubscriptionId, VapidKeyId};
use crate::lane::Gateway;
use crate::message::{Content, Payload};
use crate::policy::{Policy, Settings};
use crate::store::claims::{Page, Recipient, Standing};
use crate::store::settle::{Due, Fate};
use crate::subscription::{BrowserKeys, Endpoint};
use crate::webpush::keys::SigningKey;
use crate::webpush::payload::Template;

const APP: AppId = AppId(Uuid::from_u128(1));
const NOW: Timestamp = Timestamp::from_timestamp(1_800_000_000, 0).unwrap();

fn message(tier: Tier) -> Arc<Message> {
    let content = Content::Raw { payload: Payload::Text("hello".into()), envelope: true };
    Arc::new(Message {
        id: MessageId(Uuid::now_v7()),
        app: APP,
        tier,
        template: Template::new(&content).unwrap(),
        content,
        ttl_s: 60,
        urgency: Urgency::Normal,
        topic: None,
        policy: Policy::tier_default(tier),
        accepted_at: NOW,
        expires_at: NOW,
        shrunk: Default::default(),
    })
}

fn lane(id: i32, gateway: Gateway) -> Arc<LaneInfo> {
    let vapid_key = VapidKeyId(Uuid::now_v7());
    let key = SigningKey::generate();
    Arc::new(LaneInfo { id: LaneId(id), app: APP, gateway, vapid_key, key, subject: "mailto:ops@example.com".into() })
}

fn jobs(n: usize, message: &Arc<Message>, lane: &Arc<LaneInfo>) -> Vec<Box<Job>> {
    let job = |_| {
        Box::new(Job {
            message: message.clone(),
            lane: lane.clone(),
            subscription: SubscriptionId(Uuid::now_v7()),
            origin_id: Uuid::now_v7(),
            endpoint: Endpoint::parse("https://push.example.com/x").unwrap(),
            keys: BrowserKeys { p256dh: [4; 65], auth: [0; 16] },
            retries: 0,
            start_before: Instant::now(),
            attempts: Vec::new(),
            shrunk: None,
            limit: None,
            refused: None,
            ticket: Ticket::Row(Uuid::now_v7()),
        })
    };
    (0..n).map(job).collect()
}

/// Takes a turn at once, if there is one.
fn turn(queue: &FairQueue) -> Option<super::fair::Turn> {
    match queue.try_next(0..3, NOW) {
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
        outcome: &outcome,
        posted_at: NOW,
        now: NOW,
        probe: false,
        transactional: false,
        octets: 128,
        refused: None,
        settings: &Settings::DEFAULT,
    };
    let told = queue.answered(first.slot, &answered).expect("others have to know");
    let until = NOW + std::time::Duration::from_secs(30);
    assert_eq!((told.lane, told.held.map(|held| held.until)), (LaneId(1), Some(until)));
    match queue.try_next(0..3, NOW) {
        Some(Next::PutOff(jobs, at)) => assert_eq!((jobs.len(), at), (4, until)),
        _ => panic!("the lane is held"),
    }
    assert_eq!(queue.push(jobs(3, &message, &lane), NOW).len(), 3);
    assert_eq!(queue.room(&lane, Tier::Promotional, NOW).n, 0);
    assert!(queue.push(jobs(3, &message, &lane), until).is_empty(), "the hold is over");
}

#[tokio::test]
async fn a_page_is_settled_once_and_late_answers_become_rows_under_its_lease() {
    let (message, lane) = (message(Tier::Promotional), lane(1, Gateway::Fcm));
    let recipients = (0..3).map(|_| Recipient {
        subscription: SubscriptionId(Uuid::now_v7()),
        origin_id: Uuid::now_v7(),
        address: Vec::new(),
        standing: Standing::Sendable,
    });
    let (id, tier) = (Uuid::now_v7(), Tier::Promotional);
    let page =
        Page { id, lease: id, message: message.id, lane: lane.id, tier, leases: 1, recipients: recipients.collect() };
    let (cut_at, lease_until) = (Instant::now(), NOW + std::time::Duration::from_secs(30));
    let open = OpenPage::new(&page, message.clone(), lane.clone(), lease_until, cut_at);
    let accepted = |place: usize| {
        let to = page.recipients[place].subscription;
        settlement(&message, lane.id, to, Vec::new(), Fate::Ended(Ending::Accepted, None))
    };
    assert!(open.begin(0, 0, cut_at) && open.begin(1, 0, cut_at));
    assert!(matches!(open.record(0, accepted(0)), Recorded::Kept));
    assert!(!open.close_if_due(cut_at), "there is time");
    assert!(open.close_if_due(cut_at + std::time::Duration::from_secs(5)));
    assert!(!open.begin(2, 0, cut_at), "the third is a row now");
    let fates: Vec<_> = open.take_settlements(NOW).into_iter().map(|settled| settled.fate).collect();
    assert!(matches!(fates[0], Fate::Ended(Ending::Accepted, None)));
    assert!(matches!(fates[1], Fate::InFlight { retries: 0, .. }));
    assert!(matches!(fates[2], Fate::Deferred(Due::At(at)) if at == NOW));
    assert!(matches!(open.record(1, accepted(1)), Recorded::Kept), "its row does not exist before the commit");
    assert_eq!(open.settled().len(), 1);
    assert!(matches!(open.record(1, accepted(1)), Recorded::Row(_)));
}
