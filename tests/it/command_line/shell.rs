//! A shell in which verbs are typed.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use super::{bellwire, error_text, json, run};
use crate::support::{TempDir, TestDatabase};

const MASTER_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

/// A database that only the program works on.
pub struct Shell {
    pub database: TestDatabase,
    pub dir: TempDir,
}

impl Shell {
    pub async fn new() -> Self {
        Self { database: TestDatabase::create().await, dir: TempDir::new() }
    }

    /// One that has the app `shop`.
    pub async fn with_app() -> Self {
        let shell = Self::new().await;
        shell.ok(&["app", "create", "shop", "--subject", "mailto:push@example.com"]).await;
        shell
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = bellwire(self.dir.path());
        command.args(args).env("DATABASE_URL", self.database.url()).env("BELLWIRE_MASTER_KEY", MASTER_KEY);
        command
    }

    pub async fn run(&self, args: &[&str]) -> Output {
        run(&mut self.command(args)).await
    }

    pub async fn ok(&self, args: &[&str]) -> Output {
        let output = self.run(args).await;
        assert!(output.status.success(), "{args:?}: {output:?}");
        output
    }

    /// The JSON that it answers.
    pub async fn json(&self, args: &[&str]) -> serde_json::Value {
        json(&self.ok(&[args, &["--json"]].concat()).await)
    }

    /// Runs a command that fails with exit code 1 and prints nothing else. Returns its error.
    pub async fn refused(&self, args: &[&str]) -> String {
        let output = self.run(args).await;
        assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{args:?}: {output:?}");
        error_text(&output)
    }

    pub async fn fed(&self, args: &[&str], input: &str) -> Output {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads");
        tokio::task::spawn_blocking(move || child.wait_with_output()).await.expect("no panic").expect("it ends")
    }
}
