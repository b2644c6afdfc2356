//! Unit tests of `src/cli/policy/given.rs`, which includes them.

use super::*;

#[test]
fn a_name_is_told_from_a_policy() {
    assert_eq!(named("a=@x.json"), (Some("a"), "@x.json"));
    assert_eq!(named("my policy={\"retries\": 1}"), (Some("my policy"), "{\"retries\": 1}"));
    for whole in ["{\"retryDelay\": \"1=1\"}", "@a=b.json", "-", "=x"] {
        assert_eq!(named(whole), (None, whole));
    }
    assert_eq!((short("@dir/slow.json", 0).as_str(), short("{}", 1).as_str()), ("slow", "policy 2"));
}
