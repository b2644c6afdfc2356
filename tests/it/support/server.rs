//! The real program as a process of its own, on a test's database and simulator.

use std::net::SocketAddr;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use futures_util::future::select_all;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::timeout;

use super::app::{MASTER_KEY, PATIENCE};
use super::{TempDir, TestApp};

/// POSTs in flight per lane, so that a lane that is fast does not swallow the whole campaign.
const LANE_CONCURRENCY_MAX: &str = "64";

/// A worker process. Dropping it kills it.
pub struct Server {
    process: Child,
    said: Lines<BufReader<ChildStderr>>,
    /// Address of the listener.
    pub address: SocketAddr,
    _dir: TempDir,
}

impl Server {
    /// Starts `bellwire serve` and waits for its start-up log line. The API stays in the test's process.
    pub async fn start(app: &TestApp) -> Self {
        Self::with(app, &["--roles", "worker,maintenance"]).await
    }

    /// Starts `bellwire serve` with these arguments and waits for its start-up log line.
    pub async fn with(app: &TestApp, args: &[&str]) -> Self {
        Self::run(app, args, Command::new(env!("CARGO_BIN_EXE_bellwire"))).await
    }

    /// The same, of another program than this version's.
    pub async fn of(app: &TestApp, args: &[&str], program: &str) -> Self {
        Self::run(app, args, Command::new(program)).await
    }

    /// The same, with no more descriptors than that.
    pub async fn with_descriptors(app: &TestApp, args: &[&str], descriptors: u32) -> Self {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("ulimit -n {descriptors} && exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_bellwire")]);
        Self::run(app, args, command).await
    }

    /// Starts it as at a terminal, even if the tests run with SIGHUP ignored (`nohup`).
    pub async fn at_a_terminal(app: &TestApp) -> Self {
        let mut command = Command::new("/usr/bin/env");
        command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_bellwire")]);
        Self::run(app, &[], command).await
    }

    /// The same, as that command runs it.
    pub async fn by(app: &TestApp, args: &[&str], command: Command) -> Self {
        Self::run(app, args, command).await
    }

    /// The same, on the database behind that URL.
    pub async fn on(app: &TestApp, args: &[&str], database_url: &str) -> Self {
        let mut server = Self::spawn(app, args, Command::new(env!("CARGO_BIN_EXE_bellwire")), database_url);
        server.until_started().await;
        server
    }

    /// The same, without waiting for it.
    pub fn begin_on(app: &TestApp, args: &[&str], database_url: &str) -> Self {
        Self::spawn(app, args, Command::new(env!("CARGO_BIN_EXE_bellwire")), database_url)
    }

    async fn run(app: &TestApp, args: &[&str], command: Command) -> Self {
        let mut server = Self::spawn(app, args, command, &app.database.url());
        server.until_started().await;
        server
    }

    /// Starts `bellwire serve` with these arguments.
    pub fn launch(app: &TestApp, args: &[&str]) -> Self {
        Self::begin_on(app, args, &app.database.url())
    }

    /// Waits for the start-up log line.
    pub async fn until_started(&mut self) {
        let started = self.until_said("\"started\"").await;
        let started: Value = serde_json::from_str(&started).expect("a line of JSON");
        self.address = started["address"].as_str().expect("its address").parse().expect("an address");
    }

    fn spawn(app: &TestApp, args: &[&str], mut command: Command, database_url: &str) -> Self {
        let dir = TempDir::new();
        let ca = dir.path().join("ca.pem");
        std::fs::write(&ca, format!("{}{}", app.simulator.ca_pem(), app.others.1)).expect("a file");
        let gateways: Vec<String> = app
            .simulator
            .hosts()
            .iter()
            .map(|host| format!("{}={}@{}", host.host, host.gateway.name(), host.addr))
            .chain(app.others.0.iter().map(|other| {
                let address = other.address.expect("tests say where");
                format!("{}={}@{address}", other.host, other.gateway.name())
            }))
            .collect();
        let here: &[&str] = if args.contains(&"--listen") { &[] } else { &["--listen", "127.0.0.1:0"] };
        let mut process = command
            .args(["serve", "--log-format", "json"])
            .args(here)
            .args(args)
            .env_clear()
            .env("DATABASE_URL", database_url)
            .env("BELLWIRE_DATA_DIR", dir.path())
            .env("BELLWIRE_MASTER_KEY", MASTER_KEY)
            .env("BELLWIRE_GATEWAYS", gateways.join(","))
            .env("BELLWIRE_GATEWAY_CA_FILE", &ca)
            .env("BELLWIRE_ALLOW_LOOPBACK", "true")
            .env("BELLWIRE_LANE_CONCURRENCY_MAX", LANE_CONCURRENCY_MAX)
            .current_dir(dir.path())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("it runs");
        let said = BufReader::new(process.stderr.take().expect("piped")).lines();
        Self { process, said, address: ([0, 0, 0, 0], 0).into(), _dir: dir }
    }

    /// Reads its log up to a line that contains this, and returns that line.
    pub async fn until_said(&mut self, what: &str) -> String {
        let mut log = String::new();
        let found = timeout(PATIENCE, async {
            while let Ok(Some(line)) = self.said.next_line().await {
                if line.contains(what) {
                    return Some(line);
                }
                log += &line;
                log.push('\n');
            }
            None
        });
        found.await.ok().flatten().unwrap_or_else(|| panic!("it never said {what}, but\n{log}"))
    }

    /// Reads its log to its end, which comes with that of the process.
    pub async fn rest_of_log(&mut self) -> String {
        let mut log = String::new();
        let read = async {
            while let Ok(Some(line)) = self.said.next_line().await {
                log += &line;
                log.push('\n');
            }
        };
        timeout(PATIENCE, read).await.expect("it ends in time");
        log
    }

    /// Octets of its memory that are in RAM.
    pub fn memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says so");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1_024
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id().and_then(|id| i32::try_from(id).ok()).expect("it lives"))
    }

    /// Ends it as a power cut would.
    pub async fn kill(mut self) {
        self.process.kill().await.expect("it lived");
    }

    /// Asks it to stop.
    pub fn terminate(&self) {
        kill(self.pid(), Signal::SIGTERM).expect("it lives");
    }

    /// Freezes it, as a host does whose virtual machine is moved.
    pub fn freeze(&self) {
        kill(self.pid(), Signal::SIGSTOP).expect("it lives");
    }

    /// Resumes the stopped process.
    pub fn wake(&self) {
        kill(self.pid(), Signal::SIGCONT).expect("it lives");
    }

    /// Takes its terminal away.
    pub fn hang_up(&self) {
        kill(self.pid(), Signal::SIGHUP).expect("it lives");
    }

    /// Waits for its end, no longer than that.
    pub async fn end(mut self, within: Duration) -> ExitStatus {
        timeout(within, self.process.wait()).await.expect("it ends in time").expect("a process of ours")
    }
}

/// Reads the logs of several servers as they come, and returns the next line that contains this.
pub async fn any_says(servers: &mut [Server], what: &str) -> String {
    let said = async {
        loop {
            // Each line is read by one of these or stays for the next round: dropping the others loses nothing.
            let reads = servers.iter_mut().map(|server| Box::pin(server.said.next_line()));
            let line = select_all(reads).await.0.expect("UTF-8").expect("it lives");
            if line.contains(what) {
                return line;
            }
        }
    };
    timeout(PATIENCE, said).await.unwrap_or_else(|_| panic!("none of them said {what}"))
}
