//! Unit tests of `src/api/http/problem.rs`, which includes them.

use super::*;

#[test]
fn refusals_without_a_route_have_problem_bodies() {
    for (status, code) in [
        (StatusCode::BAD_REQUEST, "malformed_head"),
        (StatusCode::URI_TOO_LONG, "uri_too_long"),
        (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large"),
        (StatusCode::SERVICE_UNAVAILABLE, "too_many_connections"),
    ] {
        let problem: serde_json::Value = serde_json::from_str(&(REFUSAL.write)(status, "The reason.")).unwrap();
        assert_eq!(problem["code"], code);
        assert_eq!(problem["status"], status.as_u16());
        assert_eq!(problem["detail"], "The reason.");
    }
}
