//! The settings for HAProxy that the guide shows are ones that HAProxy takes.

use std::process::Command;

use crate::support::TempDir;

#[test]
fn haproxy_takes_the_settings_that_the_guide_shows() {
    let guide =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operate/replicas.md")).expect("the guide");
    let settings = guide.split("```haproxy\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the settings");
    let dir = TempDir::new();
    let file = dir.path().join("haproxy.cfg");
    // Names that resolve here.
    let settings = settings.replace("pg-a:", "127.0.0.1:").replace("pg-b:", "127.0.0.2:");
    std::fs::write(&file, settings).expect("a file");
    let checked = Command::new("haproxy").arg("-c").arg("-f").arg(&file).output();
    let checked = checked.expect("the package `haproxy` is installed (`make deps`)");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
