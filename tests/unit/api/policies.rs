//! Unit tests of `src/api/policies.rs`, which includes them.

use super::*;

#[test]
fn what_says_nothing_is_not_stored() {
    let written = serde_json::json!({"healthyRetryPolicy": {}, "sicklyRetryPolicy": null, "guaranteed": false});
    assert_eq!(kept(written), serde_json::json!({"healthyRetryPolicy": {}}));
}
