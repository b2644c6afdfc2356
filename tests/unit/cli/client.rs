//! Unit tests of `src/cli/client.rs`, which includes them.

use super::*;

#[test]
fn nothing_typed_leaves_its_segment() {
    assert_eq!(path(["apps", "a/b?c", "..", "é"]), "/v1/apps/a%2Fb%3Fc/%2E%2E/%C3%A9");
}
