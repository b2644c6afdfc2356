//! Unit tests of `crates/bellwire-simulator/src/gateways/subscriptions.rs`, which includes them.

use super::*;

fn minter(gateway: Gateway) -> Minter {
    Minter::new(7, gateway, "push.test", "https://push.test".into())
}

#[test]
fn endpoint_encodes_index_and_key() {
    for gateway in Gateway::ALL {
        let minter = minter(gateway);
        for (index, key) in [(0, None), (1, Some(&[4u8; 65][..])), (u32::MAX, Some(&[5u8; 65][..]))] {
            let endpoint = minter.mint(index, key).endpoint;
            let path = endpoint.strip_prefix("https://push.test").unwrap();
            let target = MintTarget { index, bound: key.map(fingerprint) };
            assert_eq!(minter.resolve(path), MintResolution::Known(target), "{endpoint}");
            for at in 1..path.len() {
                let mut bent = path.as_bytes().to_vec();
                bent[at] = if bent[at] == b'A' { b'B' } else { b'A' };
                let bent = String::from_utf8(bent).unwrap();
                assert!(!matches!(minter.resolve(&bent), MintResolution::Known(_)), "{bent}");
            }
            let elsewhere = Minter::new(7, gateway, "other.test", "https://push.test".into());
            assert_eq!(elsewhere.resolve(path), MintResolution::Unknown);
        }
    }
}

#[test]
fn wns_token_keeps_its_escapes() {
    let minter = minter(Gateway::Wns);
    let endpoint = minter.mint(3, None).endpoint;
    let path = endpoint.strip_prefix("https://push.test").unwrap();
    assert!(path.contains("%2b") && path.ends_with("%3d%3d"), "{path}");
    for re_encoded in [path.replace("%2b", "+"), path.replace("%2b", "%2B"), path.replace("%3d", "=")] {
        assert_eq!(minter.resolve(&re_encoded), MintResolution::Escaped);
    }
    assert_eq!(minter.resolve(&path.replace("token=", "token=x")), MintResolution::Unknown);
}

#[test]
fn keys_are_deterministic_per_index() {
    let minter = minter(Gateway::Fcm);
    let (one, two) = (minter.mint(1, None), minter.mint(2, None));
    assert!(minter.mint(1, None) == one);
    assert!(one.p256dh != two.p256dh && one.auth != two.auth && one.endpoint != two.endpoint);
    assert!(bellwire_core::subscription::BrowserKeys::parse(&one.p256dh, &one.auth).is_ok());
    assert!(bellwire_core::subscription::Endpoint::parse(&one.endpoint).is_ok());
}

#[test]
fn shares_and_samples_are_exact_and_independent() {
    let minter = minter(Gateway::Apple);
    let share = (0..100_000).filter(|i| minter.fraction(*i) < 0.02).count();
    let sample = (0..100_000).filter(|i| minter.sampled(*i, 100)).count();
    let both = (0..100_000).filter(|i| minter.sampled(*i, 100) && minter.fraction(*i) < 0.02).count();
    assert!((1_800..2_200).contains(&share) && (850..1_150).contains(&sample) && both < 60, "{share} {sample} {both}");
}
