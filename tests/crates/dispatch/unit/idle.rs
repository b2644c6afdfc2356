//! Unit tests of `crates/bellwire-dispatch/src/idle.rs`, which includes them.

use super::*;

/// One that is alone or not, and that nothing has happened to for so long.
fn rest(is_alone: bool, calm_for: Duration) -> Rest {
    let rest = Rest::default();
    *rest.state.lock() = IdleState { calm_since: Instant::now() - calm_for, is_alone };
    rest.lie_down();
    rest
}

#[tokio::test]
async fn only_a_lone_calm_worker_idles() {
    assert!(!rest(false, CALM_FOR).is_resting() && rest(false, CALM_FOR).is_calm());
    assert!(!rest(true, CALM_FOR / 10).is_resting());
    let alone = rest(true, CALM_FOR);
    assert!(alone.is_resting());
    alone.wake();
    assert!(!alone.is_resting() && !alone.is_calm());
    alone.lie_down();
    assert!(!alone.is_resting());
    let joined = rest(true, CALM_FOR);
    joined.alone(false);
    assert!(!joined.is_resting(), "another process came");
}

#[tokio::test]
async fn pause_is_short_unless_idle() {
    let for_ever = Duration::from_secs(86_400);
    rest(true, Duration::ZERO).pause(Duration::ZERO, for_ever).await;
    let resting = rest(true, CALM_FOR);
    let wake = async { resting.wake() };
    tokio::join!(resting.pause(Duration::ZERO, for_ever), wake);
}
