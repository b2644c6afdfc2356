//! Unit tests of `src/api/http/limits/refusals.rs`, which includes them.

use super::*;

fn client(n: u16) -> IpAddr {
    let [a, b] = n.to_be_bytes();
    IpAddr::from([198, 51, a, b])
}

#[test]
fn guess_at_a_teammate_is_always_logged() {
    let refusals = Refusals::new();
    let told = (0..1_000).filter(|_| refusals.refused(client(1), RefusalScope::UnknownName).is_some()).count();
    assert_eq!(told, 20, "of one client");
    assert_eq!(refusals.refused(client(1), RefusalScope::Teammate), Some(1), "the same one guesses at a password");
    assert_eq!(refusals.refused(client(2), RefusalScope::UnknownName), Some(1), "another one");
    let told = (3..1_000).filter(|n| refusals.refused(client(*n), RefusalScope::UnknownName).is_some()).count();
    assert_eq!(told, 60 - 21, "of all");
    assert_eq!(refusals.refused(client(1), RefusalScope::Teammate), Some(1));
}

#[test]
fn unlogged_refusals_count_in_the_next_entry() {
    let mut refusals = Refusals::new();
    for _ in 0..25 {
        refusals.refused(client(1), RefusalScope::UnknownName);
    }
    let mine = (RefusalScope::UnknownName, client(1));
    assert_eq!(refusals.waiting.lock().get(&mine), Some(&5));
    refusals.unknown_names = Entries::new(); // as after an hour
    assert_eq!(refusals.refused(client(2), RefusalScope::UnknownName), Some(1), "not in somebody else's");
    assert_eq!(refusals.refused(client(1), RefusalScope::UnknownName), Some(6));
    assert!(refusals.waiting.lock().is_empty());
}

#[test]
fn memory_is_bounded() {
    let refusals = Refusals::new();
    for n in 0..=u16::MAX {
        refusals.refused(client(n), RefusalScope::Teammate);
    }
    assert!(refusals.waiting.lock().len() <= WAITING_MAX);
}
