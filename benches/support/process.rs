//! Child processes that end with this one, and a directory that vanishes with it.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use bellwire_simulator::gateways::HostMapping;
use serde::Deserialize;

/// The program that is measured.
pub const BELLWIRE: &str = env!("CARGO_BIN_EXE_bellwire");

/// Child process that is killed when this value is dropped, or when this process ends for any reason.
pub struct Process(Child);

impl Process {
    /// Starts a program. `setpriv`, of util-linux, asks the kernel to end the child with its parent.
    pub fn start(program: impl AsRef<std::ffi::OsStr>, prepare: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        prepare(&mut command);
        Self(command.spawn().expect("setpriv of util-linux, and the program, are there"))
    }

    /// Process id; `setpriv` executes the program in place.
    pub fn id(&self) -> i32 {
        self.0.id().try_into().expect("Linux counts processes in i32")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A new directory, erased when this is dropped.
pub struct TempDir(PathBuf);

impl TempDir {
    /// Makes it, as one of its own: a benchmark may have several.
    pub fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("bellwire-bench-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("the system's temporary directory can be written");
        Self(dir)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0); // what is left is in the system's temporary directory
    }
}

/// Start-up report of a simulator.
#[derive(Deserialize)]
struct Started {
    control: String,
    hosts: Vec<HostMapping>,
}

/// A simulator in a process of its own.
pub struct Simulator {
    process: Process,
    /// Address of its HTTP interface, as `http://address`.
    pub control: String,
    /// Hosts of its gateways.
    pub hosts: Vec<HostMapping>,
    /// Certificate authority to trust.
    pub ca: PathBuf,
}

impl Simulator {
    /// Starts one that looks closely at one endpoint in `sample`; `arguments` are those of the command line.
    pub fn start(dir: &TempDir, sample: u32, arguments: &[&str]) -> Self {
        let ca = dir.path().join("ca.pem");
        let mut process = Process::start(BELLWIRE, |command| {
            command.args(["simulate-gateway", "--sample", &sample.to_string(), "--ca-file"]).arg(&ca).args(arguments);
            command.stdout(Stdio::piped());
        });
        let mut line = String::new();
        let mut said = BufReader::new(process.0.stdout.take().expect("piped"));
        said.read_line(&mut line).expect("the simulator says where it is");
        let Started { control, hosts } = serde_json::from_str(&line).expect("the simulator started");
        Self { process, control: format!("http://{control}"), hosts, ca }
    }

    pub fn id(&self) -> i32 {
        self.process.id()
    }
}
