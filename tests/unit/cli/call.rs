//! Unit tests of `src/cli/verb/call.rs`, which includes them.

use super::*;

#[test]
fn sections_without_their_part_are_left_out() {
    assert_eq!(complete("[/apps/{app}]/api-keys"), "/api-keys");
    assert_eq!(complete("[/apps/shop]/api-keys"), "/apps/shop/api-keys");
    assert_eq!(complete("/messages[/by-key/{key}][/msg_1]/cancel"), "/messages/msg_1/cancel");
}

#[test]
fn members_are_set_with_their_parents() {
    let mut body = json!({});
    put(&mut body, "/to/topic", "news".into());
    put(&mut body, "/to/segment", "paying".into());
    put(&mut body, "/tier", "transactional".into());
    assert_eq!(body, json!({"to": {"topic": "news", "segment": "paying"}, "tier": "transactional"}));
}
