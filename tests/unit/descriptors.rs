//! Unit tests of `src/config/descriptors.rs`, which includes them.

use super::*;
use crate::config::Flags;

#[test]
fn what_the_settings_want_follows_from_them() {
    let of = |pairs: &[(&'static str, &str)]| {
        let flags = Flags::from_pairs(pairs.iter().map(|(key, value)| (*key, (*value).to_owned())));
        Config::load(&flags).unwrap().descriptors()
    };
    let (all, few) = (of(&[]), of(&[("connections_max", "1000")]));
    assert_eq!(all - few, 9_000);
    assert!((10_000..11_000).contains(&all), "{all}");
    assert!(of(&[("roles", "api")]) < all && of(&[("connections_per_gateway", "64")]) > all);
}
