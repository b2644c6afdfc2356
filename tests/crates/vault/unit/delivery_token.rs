//! Unit tests of `crates/bellwire-vault/src/delivery_token.rs`, which includes them.

use super::*;

fn vault(lookup: u8) -> Vault {
    Vault::new([(1, [1; 32])], &[lookup; 32])
}

#[test]
fn receipt_names_its_delivery_unless_forged() {
    let (message, subscription) = (MessageId(Uuid::now_v7()), SubscriptionId::new(Uuid::now_v7(), 9));
    let token = receipt_token(&vault(1), message, subscription);
    let token = std::str::from_utf8(&token).unwrap();
    assert_eq!(parse_receipt(&vault(1), token), Some((message, subscription)));
    assert_eq!(parse_receipt(&vault(2), token), None);
    for at in 0..64 {
        let mut forged = token.to_owned();
        let other = if &token[at..=at] == "A" { "B" } else { "A" };
        forged.replace_range(at..=at, other);
        assert_eq!(parse_receipt(&vault(1), &forged), None, "character {at}");
    }
    for odd in ["", &token[..63], &format!("{token}A"), &"*".repeat(64), &"é".repeat(32)] {
        assert_eq!(parse_receipt(&vault(1), odd), None, "{odd}");
    }
}

#[test]
fn delivery_id_is_stable_and_unique() {
    let [message, other] = [1, 2].map(|n| MessageId(Uuid::from_u128(n)));
    let origin = SubscriptionId(Uuid::from_u128(3));
    let id = delivery_id(&vault(1), message, origin);
    assert_eq!(id, delivery_id(&vault(1), message, origin));
    assert_ne!(id, delivery_id(&vault(1), other, origin));
    assert_ne!(id, delivery_id(&vault(1), message, SubscriptionId(Uuid::from_u128(4))));
    let receipt = receipt_token(&vault(1), message, origin);
    assert_ne!(URL_SAFE_NO_PAD.decode(receipt).unwrap()[32..], id);
}
