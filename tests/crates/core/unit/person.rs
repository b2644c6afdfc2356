//! Unit tests of `crates/bellwire-core/src/person.rs`, which includes them.

use super::*;

#[test]
fn a_user_is_one_person_of_one_app() {
    let (shop, forum) = (AppId(Uuid::from_u128(1)), AppId(Uuid::from_u128(2)));
    assert_eq!(Person::of_user(shop, "ann"), Person::of_user(shop, "ann"));
    assert_ne!(Person::of_user(shop, "ann"), Person::of_user(shop, "ben"));
    assert_ne!(Person::of_user(shop, "ann"), Person::of_user(forum, "ann"));
    let browser = SubscriptionId(Uuid::from_u128(0x1234_5678_0000_0000_0000_0000_0000_0fff));
    assert_eq!(Person::of_browser(browser).shard(), browser.shard());
    assert!((0..64).contains(&Person::of_user(shop, "ann").shard()));
}
