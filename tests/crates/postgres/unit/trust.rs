//! Unit tests of `crates/bellwire-postgres/src/trust.rs`, which includes them.

use super::*;

#[test]
fn only_root_and_owner_may_change_paths() {
    let (file, dir) = (false, true);
    for (owner, mode, is_dir, fault) in [
        (1000, 0o600, file, None),
        (1000, 0o644, file, None),
        (0, 0o644, file, None),
        (1001, 0o644, file, Some(FileFault::Owner)),
        (1000, 0o664, file, Some(FileFault::Writable)),
        (0, 0o646, file, Some(FileFault::Writable)),
        (1000, 0o1666, file, Some(FileFault::Writable)),
        (1000, 0o755, dir, None),
        (0, 0o1777, dir, None),
        (1001, 0o1777, dir, Some(FileFault::Owner)),
        (0, 0o777, dir, Some(FileFault::Writable)),
        (1000, 0o775, dir, Some(FileFault::Writable)),
    ] {
        assert_eq!(judge(owner, mode, is_dir, 1000), fault, "{owner} {mode:o} {is_dir}");
    }
    assert_eq!(judge(1000, 0o644, file, 0), Some(FileFault::Owner), "root believes root alone");
}

#[test]
fn trusted_paths_pass_missing_ones_are_named() {
    check(Path::new("/etc/passwd")).unwrap();
    let error = check(Path::new("/etc/no-such-file")).unwrap_err();
    assert!(error.to_string().starts_with("/etc/no-such-file: No such file"), "{error}");
}
