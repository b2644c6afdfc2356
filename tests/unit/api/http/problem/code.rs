//! Unit tests of `src/api/http/problem/code.rs`, which includes them.

use super::*;

#[test]
fn kinds_are_sorted_unique_and_in_sentences() {
    assert!(PROBLEM_KINDS.is_sorted_by(|a, b| a.code < b.code));
    for ProblemKind { code, status, means, remedy } in PROBLEM_KINDS {
        assert!(status.is_client_error() || status.is_server_error(), "{code}");
        assert!(means.ends_with('.') && remedy.ends_with('.'), "{code}");
    }
}
