//! A shell in which verbs are typed.

use std::cell::Cell;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::process::{Process, start};
use super::{bellwire, error_text, json, line, run};
use crate::support::{TempDir, TestDatabase};

const MASTER_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

thread_local! {
    /// Whether the verbs of this thread's shells go to a server over HTTP instead of to the database.
    pub static IS_REMOTE: Cell<bool> = const { Cell::new(false) };
}

/// A database that only the program works on, or a server on it.
pub struct Shell {
    pub database: TestDatabase,
    pub dir: TempDir,
    pub remote: Option<Remote>,
}

/// A server, and a key of an operator for it.
pub struct Remote {
    pub url: String,
    pub key: String,
    _server: Process,
}

impl Shell {
    pub async fn new() -> Self {
        let mut shell = Self { database: TestDatabase::create().await, dir: TempDir::new(), remote: None };
        if IS_REMOTE.get() {
            shell.remote = Some(shell.serve(&[]).await);
        }
        shell
    }

    /// One that has the app `shop`.
    pub async fn with_app() -> Self {
        let shell = Self::new().await;
        shell.ok(&["app", "create", "shop", "--subject", "mailto:push@example.com"]).await;
        shell
    }

    /// Starts a server with these arguments on the database.
    pub async fn serve(&self, args: &[&str]) -> Remote {
        let key = run(&mut self.local(&["key", "create", "--operator", "--name", "shell"])).await;
        let mut server = self.local(&["serve", "--listen", "127.0.0.1:0", "--roles", "api", "--log-format", "json"]);
        let (server, address) = start(server.args(args), true, |line| Some(line["address"].as_str()?.to_owned()));
        Remote { url: format!("http://{address}"), key: line(&key), _server: server }
    }

    /// A command on the database, wherever the verbs of this shell go.
    pub fn local(&self, args: &[&str]) -> Command {
        let mut command = bellwire(self.dir.path());
        command.args(args).env("DATABASE_URL", self.database.url()).env("BELLWIRE_MASTER_KEY", MASTER_KEY);
        command
    }

    pub fn command(&self, args: &[&str]) -> Command {
        match &self.remote {
            None => self.local(args),
            Some(remote) => remote.command(self.dir.path(), args),
        }
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

impl Remote {
    /// A command for this server, by a program that has no data of its own.
    pub fn command(&self, dir: &Path, args: &[&str]) -> Command {
        let mut command = bellwire(dir);
        command.env_remove("BELLWIRE_DATA_DIR").env("HOME", dir).args(args);
        command.env("BELLWIRE_SERVER", &self.url).env("BELLWIRE_KEY", &self.key);
        command
    }
}
