//! Unit tests of `crates/bellwire-postgres/src/cluster.rs`, which includes them.

use super::*;

#[test]
fn lock_file_distinguishes_ready_from_starting() {
    let text = "4711\n/data\n1800000000\n5432\n/tmp/x\n\n  123 456\nready   \n";
    assert_eq!(parse_lock_file(text), Some((Pid::from_raw(4711), Status::Ready)));
    assert_eq!(parse_lock_file("4711\n/data\n18\n5432\n"), Some((Pid::from_raw(4711), Status::Changing)));
    assert_eq!(parse_lock_file("-4711\n"), None);
    assert_eq!(parse_lock_file(""), None);
}

#[test]
fn shared_directory_is_not_private() {
    let (us, them) = (Uid::from_raw(1_000), Uid::from_raw(1_001));
    for (owner, mode, alone) in [
        (us, 0o040_700, true),
        (us, 0o040_500, true),
        (them, 0o040_700, false),
        (Uid::from_raw(0), 0o040_700, false),
        (us, 0o040_710, false),
        (us, 0o040_720, false),
        (us, 0o040_701, false),
        (us, 0o041_777, false),
    ] {
        assert_eq!(is_open_to_alone(us, owner, mode), alone, "{owner} {mode:o}");
    }
}

#[test]
fn socket_path_is_short_and_deterministic() {
    for awkward in ["/very-long".repeat(30), "/with, a comma".to_owned()] {
        let awkward = PathBuf::from(awkward);
        let path = socket_dir(&awkward).join(SOCKET);
        assert!(path.starts_with("/tmp") && path.as_os_str().len() <= SOCKET_PATH_MAX_OCTETS, "{path:?}");
        assert_eq!(socket_dir(&awkward), socket_dir(&awkward));
    }
    assert_ne!(socket_dir(Path::new(&"/long".repeat(30))), socket_dir(Path::new(&"/other".repeat(30))));
    assert_eq!(socket_dir(Path::new("/var/lib/bellwire")), Path::new("/var/lib/bellwire/postgres.socket"));
}
