//! Unit tests of `crates/bellwire-dispatch/src/agenda.rs`, which includes them.

use uuid::Uuid;

use super::*;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::LaneId;
use bellwire_store::queue::claims::due::Sources;

const SINCE: Timestamp = Timestamp::UNIX_EPOCH;
const QUEUE: Sources = Sources { queue: Some(SINCE), batches: None, cursors: None };
const CURSORS: Sources = Sources { queue: None, cursors: Some(SINCE), ..QUEUE };

fn due(app: u128, lane: i32, tier: Tier) -> DueLane {
    DueLane { app: AppId(Uuid::from_u128(app)), lane: LaneId(lane), tier, sources: QUEUE }
}

fn begun(agenda: &mut Agenda, is_limited: impl Fn(AppId) -> bool) -> Vec<DueLane> {
    std::iter::from_fn(|| agenda.next(&is_limited)).collect()
}

fn lanes(draws: &[DueLane]) -> Vec<i32> {
    draws.iter().map(|due| due.lane.0).collect()
}

#[tokio::test]
async fn code_waits_for_no_campaign_lane() {
    let (mut agenda, now) = (Agenda::new(12), Instant::now());
    let many = (1..=300).map(|lane| due(1, lane, Tier::Promotional));
    let others = [due(2, 301, Tier::Promotional), due(1, 302, Tier::Transactional)];
    agenda.found(many.chain(others).collect(), now);
    let first = begun(&mut agenda, |_| false);
    assert_eq!(lanes(&first)[0], 302);
    assert_eq!(first.len(), 3, "two of twelve connections for a tier");
    assert!(lanes(&first).contains(&301), "{first:?}");
    let mut left: Vec<_> = first;
    let mut n = 0;
    while let Some(draw) = left.pop() {
        n += 1;
        agenda.drawn(draw, Drawn::Done, now);
        left.extend(begun(&mut agenda, |_| false));
    }
    assert_eq!(n, 302, "each once");
}

#[tokio::test]
async fn lane_with_news_is_drawn_again() {
    let (mut agenda, now) = (Agenda::new(12), Instant::now());
    let lane = due(1, 1, Tier::Promotional);
    agenda.found(vec![lane], now);
    agenda.refill((lane.lane, lane.tier));
    assert_eq!(begun(&mut agenda, |_| false), [lane], "once is enough while it waits");
    agenda.refill((LaneId(7), lane.tier));
    agenda.found(vec![DueLane { sources: CURSORS, ..lane }], now);
    assert_eq!(begun(&mut agenda, |_| false), [], "one draw of a lane and tier at a time");
    agenda.drawn(lane, Drawn::Done, now);
    let [again] = begun(&mut agenda, |_| false)[..] else { panic!("it was found while it was drawn") };
    assert_eq!(again.sources, QUEUE.or(CURSORS));
    agenda.drawn(again, Drawn::Done, now);
    assert_eq!(begun(&mut agenda, |_| false), []);
}

#[tokio::test]
async fn failed_lane_pauses_alone() {
    let (mut agenda, now) = (Agenda::new(12), Instant::now());
    let [bad, good] = [1, 2].map(|lane| due(1, lane, Tier::Promotional));
    let look = |agenda: &mut Agenda, now| {
        agenda.found(vec![bad, good], now);
        let mut draws = begun(agenda, |_| false);
        draws.sort_unstable_by_key(|due| due.lane);
        for draw in &draws {
            agenda.drawn(*draw, if *draw == bad { Drawn::Failed } else { Drawn::Done }, now);
        }
        lanes(&draws)
    };
    assert_eq!(look(&mut agenda, now), [1, 2]);
    assert_eq!(look(&mut agenda, now + REST_FAILED / 2), [2]);
    assert_eq!(look(&mut agenda, now + REST_FAILED), [1, 2]);
}

#[tokio::test]
async fn lanes_under_one_flow_are_drawn_in_turn() {
    let (mut agenda, now) = (Agenda::new(24), Instant::now());
    let limited = AppId(Uuid::from_u128(1));
    let mut firsts = HashSet::new();
    for _ in 0..3 {
        let mut found: Vec<_> = (1..=3).map(|lane| due(1, lane, Tier::Promotional)).collect();
        found.extend([due(1, 2, Tier::Transactional), due(2, 9, Tier::Promotional)]);
        agenda.found(found, now);
        let mut draws = begun(&mut agenda, |app| app == limited);
        assert_eq!(draws.len(), 2, "one of each app: {draws:?}");
        draws.sort_unstable_by_key(|due| due.lane);
        assert_eq!((lanes(&draws), draws[0].tier), (vec![2, 9], Tier::Transactional));
        let mut order = Vec::new();
        while let Some(draw) = draws.pop() {
            assert!(draws.iter().filter(|due| due.app == limited).count() <= 1);
            if draw.app == limited {
                order.push(draw.lane.0);
            }
            agenda.drawn(draw, Drawn::Done, now);
            draws.extend(begun(&mut agenda, |app| app == limited));
        }
        firsts.insert(order[1]);
        order.sort_unstable();
        assert_eq!(order, [1, 2, 2, 3]);
    }
    assert!(firsts.len() > 1, "{firsts:?}");
}
