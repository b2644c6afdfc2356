//! Unit tests of `crates/bellwire-vault/src/lib.rs`, which includes them.

use super::*;

fn vault() -> Vault {
    Vault::new([(1, [1; 32])], &[9; 32])
}

#[test]
fn value_opens_only_in_its_place() {
    let (vault, row) = (vault(), Uuid::now_v7());
    let sealed = vault.seal(CONTENT, row, b"secret");
    assert_eq!(sealed.len(), 6 + OVERHEAD);
    assert_eq!(vault.open(CONTENT, row, &sealed).as_deref(), Ok(b"secret".as_slice()));
    assert!(vault.open(ADDRESS, row, &sealed).is_err());
    assert!(vault.open(CONTENT, Uuid::now_v7(), &sealed).is_err());
    for at in 0..sealed.len() {
        let mut changed = sealed.clone();
        changed[at] ^= 1;
        assert!(vault.open(CONTENT, row, &changed).is_err(), "octet {at}");
        assert!(vault.open(CONTENT, row, &sealed[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn old_key_opens_after_a_new_one() {
    let row = Uuid::now_v7();
    let sealed = vault().seal(CONTENT, row, b"secret");
    let rotated = Vault::new([(1, [1; 32]), (2, [2; 32])], &[9; 32]);
    assert_eq!(rotated.open(CONTENT, row, &sealed).as_deref(), Ok(b"secret".as_slice()));
    assert!(vault().open(CONTENT, row, &rotated.seal(CONTENT, row, b"secret")).is_err());
}

#[test]
fn existing_key_opens_before_it_takes_over() {
    let (row, keys) = (Uuid::now_v7(), [(1, [1; 32]), (2, [2; 32])]);
    let (before, shared) = (vault(), vault().clone());
    let heard = Vault::sealing_by(keys, 1, &[9; 32]);
    assert_eq!(heard.seal_keys(), (2, 1));
    assert_eq!(heard.seal(CONTENT, row, b"secret")[..NUMBER_LEN], [0, 1]);
    shared.adopt(keys, 2);
    let sealed = shared.clone().seal(CONTENT, row, b"secret");
    assert_eq!(sealed[..NUMBER_LEN], [0, 2]);
    assert_eq!(heard.open(CONTENT, row, &sealed).as_deref(), Ok(b"secret".as_slice()));
    assert!(before.open(CONTENT, row, &sealed).is_err());
    assert_eq!(shared.session_key().0, 2);
}

#[test]
fn signature_is_bound_to_state_across_rotation() {
    let signature = vault().sign(b"state");
    let rotated = Vault::new([(1, [1; 32]), (2, [2; 32])], &[9; 32]);
    assert!(vault().has_signed(b"state", &signature) && rotated.has_signed(b"state", &signature));
    assert!(!vault().has_signed(b"stats", &signature) && !vault().has_signed(b"state", &[]));
    assert!(!vault().has_signed(b"state", &rotated.sign(b"state")), "a key that this server does not have");
    for at in 0..SIGNATURE_LEN {
        let mut changed = signature;
        changed[at] ^= 1;
        assert!(!rotated.has_signed(b"state", &changed), "octet {at}");
        assert!(!rotated.has_signed(b"state", &signature[..at]), "cut at {at}");
    }
}

#[test]
fn macs_differ_by_purpose_and_parts() {
    let vault = vault();
    let one = vault.mac(Purpose::Endpoint, &[b"ab", b"c"]);
    assert_ne!(one, vault.mac(Purpose::Endpoint, &[b"a", b"bc"]));
    assert_ne!(one, vault.mac(Purpose::Receipt, &[b"ab", b"c"]));
}
