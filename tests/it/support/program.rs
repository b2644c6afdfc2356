//! Programs that tests run to their end.

use std::process::{Command, Output};

use super::TempDir;

/// Runs `bellwire` without environment variables. It must succeed.
pub fn run_bellwire(args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_bellwire")).env_clear().args(args).output().expect("it runs");
    assert!(output.status.success(), "{args:?}: {output:?}");
    output
}

/// Standard output of a program.
pub fn stdout_of(output: Output) -> String {
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Runs a program in a directory. npm reaches no registry there.
pub async fn run_offline(program: &str, arguments: &[&str], at: &TempDir) -> String {
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).current_dir(at.path()).env("HOME", at.path());
    command.env("npm_config_cache", at.path().join("cache")).env("npm_config_registry", "http://127.0.0.1:9");
    command.env("npm_config_fetch_retries", "0").env("npm_config_audit", "false").env("npm_config_fund", "false");
    let output = command.output().await.unwrap_or_else(|error| panic!("{program}: {error}; `make deps` installs it"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}:\n{errors}");
    String::from_utf8(output.stdout).expect("UTF-8")
}
