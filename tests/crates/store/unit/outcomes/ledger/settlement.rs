//! Unit tests of `crates/bellwire-store/src/outcomes/ledger/settlement.rs`, which includes them.

use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn attempt(number: u32, after_s: i64) -> Attempt {
    Attempt { number, at: NOW + TimeDelta::seconds(after_s), status: None, took_ms: None, reason: None }
}

fn delivery(seconds: Option<u32>) -> Delivery {
    Delivery {
        subscription: SubscriptionId(Uuid::nil()),
        message: MessageId(Uuid::nil()),
        app: AppId(Uuid::nil()),
        lane: LaneId(1),
        tier: Tier::Promotional,
        life: 0,
        proven: true,
        origin: MessageOrigin { free_at: NOW, enveloped: true, charted: false, heard: WebhookKinds::default() },
        sla: seconds.map(|seconds| Sla { seconds, since: NOW }),
    }
}

#[test]
fn attempted_delivery_is_not_merely_deferred() {
    let soon = NOW + TimeDelta::seconds(9);
    for (due, expected) in [
        (ClaimableAt::At(soon), soon),
        (ClaimableAt::Turn(soon), soon),
        (ClaimableAt::Reopening(soon), NOW),
        (ClaimableAt::Parked, NOW),
    ] {
        let earlier = vec![attempt(3, 0), attempt(4, 0)];
        let settled = Settlement::after(earlier, delivery(None), Fate::Deferred(due), NOW);
        assert!(matches!(settled.fate(), Fate::Retry { retries: 5, due, .. } if *due == expected), "{settled:?}");
        let numbers: Vec<_> = settled.attempts().map(|(attempt, ending)| (attempt.number, ending)).collect();
        assert_eq!(numbers, [(3, Ending::Retry), (4, Ending::Retry)]);
        let untried = Settlement::after(Vec::new(), delivery(None), Fate::Deferred(due), NOW);
        assert!(matches!(untried.fate(), Fate::Deferred(kept) if *kept == due));
    }
}

#[test]
fn late_expired_and_dead_miss_the_sla() {
    let death = Death { id: DeadLetterId(Uuid::nil()), reason: DeadReason::Http4xx, detail: None, policy: None };
    let missed =
        |sla, after_s, end| Settlement::new(delivery(sla), Fate::Ended(attempt(0, after_s), end)).sla_missed_s();
    assert_eq!(missed(Some(5), 5, End::Accepted), None);
    assert_eq!(missed(Some(5), 6, End::Accepted), Some(5));
    assert_eq!(missed(None, 6, End::Accepted), None);
    assert_eq!(missed(Some(5), 1, End::Expired), Some(5));
    assert_eq!(missed(Some(5), 1, End::Dead(Box::new(death))), Some(5));
    assert_eq!(missed(Some(5), 6, End::Gone), None);
    assert_eq!(missed(Some(5), 6, End::Cancelled), None);
    let waits = Settlement::new(delivery(Some(5)), Fate::Retry { failed: attempt(0, 6), retries: 1, due: NOW });
    assert_eq!(waits.sla_missed_s(), None);
}
