//! Files of the repository, and the tools that check them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Root directory of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Text of a file of the repository.
pub fn read_file(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The files of `migrations/` in their order.
pub fn migration_files() -> Vec<PathBuf> {
    let files =
        fs::read_dir(root().join("migrations")).expect("the migrations").map(|file| file.expect("a file").path());
    files.collect::<BTreeSet<_>>().into_iter().collect()
}

/// A Python program that `make deps NEEDS=--test` installs.
pub fn container_tool(program: &str) -> Command {
    let tools = root().join(".deps/containers");
    let mut command = Command::new(tools.join("bin").join(program));
    command.env("PYTHONPATH", tools).current_dir(root());
    command
}

#[track_caller]
pub fn assert_no_findings(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; run `make deps NEEDS=--test`"));
    let (told, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}:\n{told}\n{said}");
}
