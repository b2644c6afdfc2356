//! Unit tests of `crates/bellwire-dispatch/src/stops.rs`, which includes them.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn stop(seq: i64, kind: StopKind, target: Uuid, life: i32) -> Stop {
    Stop { seq, kind, target, life }
}

fn target() -> StopTarget {
    let (message, subscription) = (MessageId(Uuid::now_v7()), SubscriptionId(Uuid::now_v7()));
    StopTarget { message, subscription, life: 1, personal: false }
}

#[tokio::test]
async fn later_stop_of_a_message_wins() {
    let (set, now, target) = (StopSet::default(), Instant::now(), target());
    let of = |seq, kind| stop(seq, kind, target.message.0, 0);
    assert_eq!(set.check(&target), None);
    set.obey(of(1, StopKind::Pause), now);
    assert_eq!(set.check(&target), Some(Stopped::Paused));
    // This process was asked to resume; that another one had paused before comes with the next reading.
    set.obey(of(4, StopKind::Resume), now);
    set.refresh(vec![of(1, StopKind::Pause), of(3, StopKind::Pause), of(4, StopKind::Resume)], now);
    assert_eq!(set.check(&target), None);
    set.obey(of(5, StopKind::Cancel), now);
    assert_eq!(set.check(&target), Some(Stopped::Cancelled));
}

#[tokio::test]
async fn stop_applies_up_to_its_life() {
    for (kind, stopped) in [
        (StopKind::Unsubscribe, Stopped::Cancelled),
        (StopKind::Gone, Stopped::Gone),
        (StopKind::Replace, Stopped::Replaced),
    ] {
        let (set, now, target) = (StopSet::default(), Instant::now(), target());
        set.obey(stop(1, kind, target.subscription.0, 1), now);
        let of = |life| set.check(&StopTarget { life, ..target });
        assert_eq!((of(0), of(1), of(2)), (Some(stopped), Some(stopped), None), "{kind:?}");
    }
}

#[tokio::test]
async fn other_user_stops_the_former_users_messages() {
    let (set, now, target) = (StopSet::default(), Instant::now(), target());
    set.obey(stop(1, StopKind::User, target.subscription.0, 1), now);
    let of = |life, personal| set.check(&StopTarget { life, personal, ..target });
    assert_eq!((of(1, true), of(1, false), of(2, true)), (Some(Stopped::Cancelled), None, None));
    set.obey(stop(2, StopKind::Unsubscribe, target.subscription.0, 2), now);
    set.obey(stop(3, StopKind::User, target.subscription.0, 3), now);
    assert_eq!((of(2, false), of(3, false), of(3, true)), (Some(Stopped::Cancelled), None, Some(Stopped::Cancelled)));
}

#[tokio::test]
async fn stops_expire_after_a_minute() {
    let (set, now, target) = (StopSet::default(), Instant::now(), target());
    assert!(!set.is_fresh(now));
    set.refresh(vec![stop(1, StopKind::Unsubscribe, target.subscription.0, 1)], now);
    assert!(set.is_fresh(now + Duration::from_millis(999)) && !set.is_fresh(now + SECOND));
    assert_eq!(set.check(&target), Some(Stopped::Cancelled));
    set.refresh(Vec::new(), now + KEPT_FOR);
    assert_eq!(set.check(&target), None);
}

#[tokio::test]
async fn worker_frozen_before_post_sends_nothing() {
    let (set, began, target) = (StopSet::default(), Instant::now(), target());
    set.refresh(Vec::new(), began);
    assert!(set.permit(&target, || began + SECOND / 2));
    let frozen = || {
        // Frozen here, once nothing was found. Meanwhile it was stopped, and another thread was first to hear of it.
        let now = began + SECOND * 7;
        set.refresh(vec![stop(1, StopKind::Unsubscribe, target.subscription.0, 1)], now);
        now
    };
    assert!(!set.permit(&target, frozen));
}
