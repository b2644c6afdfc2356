//! Unit tests of `src/api/http/location.rs`, which includes them.

use serde_json::json;

use super::*;

#[test]
fn location_is_collection_and_id() {
    for (path, created, location) in [
        ("/v1/apps", json!({"id": "app_1"}), "/v1/apps/app_1"),
        ("/v1/team", json!({"teammate": {"id": "tm_1"}}), "/v1/team/tm_1"),
        ("/v1/apps/shop/campaigns/old/clone", json!({"id": "cmp_1"}), "/v1/apps/shop/campaigns/cmp_1"),
        ("/v1/session", json!({"id": "ses_1"}), "/v1/session"),
    ] {
        assert_eq!(of_created(path, &created), location);
    }
}
