//! The real program as a process of its own, on a test's database and simulator.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
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
    _dir: TempDir,
}

impl Server {
    /// Starts `bellwire serve` and waits until it says that it runs. The API stays with the test.
    pub async fn start(app: &TestApp) -> Self {
        let dir = TempDir::new();
        let ca = dir.path().join("ca.pem");
        std::fs::write(&ca, app.simulator.ca_pem()).expect("a file");
        let gateways: Vec<String> = app
            .simulator
            .hosts()
            .iter()
            .map(|host| format!("{}={}@{}", host.host, host.gateway.name(), host.addr))
            .collect();
        let mut process = Command::new(env!("CARGO_BIN_EXE_bellwire"))
            .args(["serve", "--listen", "127.0.0.1:0", "--roles", "worker,maintenance", "--log-format", "json"])
            .env_clear()
            .env("DATABASE_URL", app.database.url())
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
        let mut server = Self { process, said, _dir: dir };
        server.until_said("\"started\"").await;
        server
    }

    /// Reads its log up to a line that contains this.
    pub async fn until_said(&mut self, what: &str) {
        let mut log = String::new();
        let found = timeout(PATIENCE, async {
            while let Ok(Some(line)) = self.said.next_line().await {
                if line.contains(what) {
                    return true;
                }
                log += &line;
                log.push('\n');
            }
            false
        });
        assert_eq!(found.await, Ok(true), "it never said {what}, but\n{log}");
    }

    /// Ends it as a power cut would.
    pub async fn kill(mut self) {
        self.process.kill().await.expect("it lived");
    }

    /// Asks it to stop.
    pub fn terminate(&self) {
        let pid = self.process.id().and_then(|id| i32::try_from(id).ok()).expect("it lives");
        kill(Pid::from_raw(pid), Signal::SIGTERM).expect("it lives");
    }

    /// Waits for its end, no longer than that.
    pub async fn end(mut self, within: Duration) -> ExitStatus {
        timeout(within, self.process.wait()).await.expect("it ends in time").expect("a process of ours")
    }
}
