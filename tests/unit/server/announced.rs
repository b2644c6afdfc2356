//! Promises of the announced address.

use super::*;

#[test]
fn address_counts_only_while_its_server_runs() {
    let dir = tempfile();
    assert_eq!(running(&dir), None);
    let announced = announce(&dir, "http://127.0.0.1:4711\n127.0.0.1:4711").expect("an empty directory");
    assert_eq!(running(&dir).as_deref(), Some("http://127.0.0.1:4711"));
    assert_eq!(address(&dir), Some(SocketAddr::from(([127, 0, 0, 1], 4_711))));
    let second = announce(&dir, "http://127.0.0.1:4712").expect_err("the first server keeps its place");
    assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
    assert_eq!(running(&dir).as_deref(), Some("http://127.0.0.1:4711"));
    drop(announced);
    assert_eq!(running(&dir), None);
    let shorter = announce(&dir, "http://h:1").expect("the first server ended");
    assert_eq!(running(&dir).as_deref(), Some("http://h:1"));
    drop(shorter);
    std::fs::remove_dir_all(dir).expect("a directory");
}

fn tempfile() -> PathBuf {
    let dir = std::env::temp_dir().join(format!("bellwire-announced-{}", std::process::id()));
    std::fs::create_dir(&dir).expect("a new directory");
    dir
}

#[test]
fn directory_that_is_missing_announces_nothing() {
    let dir = Path::new("/nonexistent/bellwire");
    assert!(announce(dir, "http://127.0.0.1:1").is_err());
    assert_eq!(running(dir), None);
}
