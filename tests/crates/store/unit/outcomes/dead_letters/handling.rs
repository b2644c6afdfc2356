//! Unit tests of `crates/bellwire-store/src/outcomes/dead_letters/handling.rs`, which includes them.

use super::*;

fn letters(of: &[(u128, usize)]) -> Vec<Letter> {
    let one = |message| Letter {
        id: DeadLetterId(Uuid::now_v7()),
        message: MessageId(Uuid::from_u128(message)),
        subscription: SubscriptionId(Uuid::nil()),
    };
    of.iter().flat_map(|(message, n)| (0..*n).map(move |_| one(*message))).collect()
}

#[test]
fn unfinished_message_is_left_to_next_chunk() {
    for (given, kept) in [
        (letters(&[(1, 600), (2, 400)]), 600),
        (letters(&[(1, 1000)]), 1000),
        (letters(&[(1, 600), (2, 399)]), 999),
        (letters(&[]), 0),
    ] {
        let mut letters = given;
        keep_messages_whole(&mut letters);
        assert_eq!(letters.len(), kept);
    }
}
