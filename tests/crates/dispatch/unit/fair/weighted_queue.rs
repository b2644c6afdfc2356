//! Unit tests of `crates/bellwire-dispatch/src/fair/weighted_queue.rs`, which includes them.

use uuid::Uuid;

use super::*;

const ONE: AppId = AppId(Uuid::from_u128(1));
const OTHER: AppId = AppId(Uuid::from_u128(2));

/// The turns of one app and another, each of which has something waiting all the time.
fn turns_of(weights: [u32; 2], n: usize) -> String {
    let mut turns = Turns::default();
    let line_up = |turns: &mut Turns<_>, app| turns.push(app, weights[usize::from(app == OTHER)], app);
    line_up(&mut turns, ONE);
    line_up(&mut turns, OTHER);
    let next = |_| {
        let app = turns.pop().unwrap();
        line_up(&mut turns, app);
        if app == ONE { 'a' } else { 'b' }
    };
    (0..n).map(next).collect()
}

#[test]
fn apps_have_turns_by_their_weights() {
    assert_eq!(turns_of([1, 1], 6), "ababab");
    assert_eq!(turns_of([3, 1], 8), "aaabaaab");
    assert_eq!(turns_of([2, 3], 10), "aabbbaabbb");
}

#[test]
fn things_of_one_app_keep_their_order() {
    let mut turns = Turns::default();
    assert_eq!((turns.is_empty(), turns.pop()), (true, None));
    (0..3).for_each(|n| turns.push(ONE, 9, n));
    assert_eq!(std::iter::from_fn(|| turns.pop()).collect::<Vec<_>>(), [0, 1, 2]);
    turns.push(OTHER, 1, 10);
    (3..6).for_each(|n| turns.push(ONE, 1, n));
    turns.push(OTHER, 1, 11);
    assert_eq!(std::iter::from_fn(|| turns.pop()).collect::<Vec<_>>(), [3, 10, 4, 11, 5], "the weight of now");
    turns.forget_idle();
    assert!(turns.is_empty() && turns.apps.is_empty() && turns.line.is_empty());
    turns.push(ONE, 1, 6);
    assert_eq!(turns.pop(), Some(6));
}
