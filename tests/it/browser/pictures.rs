//! Pictures of the guides: `make pictures` takes them from a demo that stays up.

use std::path::Path;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::support::TempDir;

/// Maximum time for the demo's history and all pages.
const PATIENCE: Duration = Duration::from_secs(400);

/// File names in a directory, in order.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn pictures_of_the_guides_can_be_taken() {
    let (root, out) = (Path::new(env!("CARGO_MANIFEST_DIR")), TempDir::new());
    let mut command = Command::new("node");
    command.arg(root.join("scripts/pictures")).env("BELLWIRE", env!("CARGO_BIN_EXE_bellwire")).env("OUT", out.path());
    let taken = timeout(PATIENCE, command.kill_on_drop(true).output()).await.expect("in time").expect("node");
    assert!(taken.status.success(), "{}", String::from_utf8_lossy(&taken.stderr));
    assert_eq!(names(out.path()), names(&root.join("docs/pictures")), "the guides' pictures, by name");
}
