//! The embedded Postgres: found among the installed ones, initialised, started, upgraded and stopped as a child process. The main types are
//! `Embedded`, `Options` and `Binaries`; `trust` decides which files may be run or read. This crate runs no SQL of the server and is
//! independent of its schema.
//!
//! ```text
//! bellwire ══pipe══▶ sh (guard.sh) ──▶ postgres          <data dir>/postgres      the cluster
//!     └──────────── unix socket ──────────┘               <data dir>/postgres.log  what it says
//!                                                         <data dir>/postgres.socket/   its socket, mode 0700
//! ```
//!
//! Postgres ends when the process that started it does, even by SIGKILL, because the guard then reads the end of the
//! pipe. A second process on the same data directory adopts the running one, if the process that keeps it lives: it holds a
//! lock on `postgres.keeper`. Otherwise it ends that Postgres and starts one of its own. Postgres refuses to run as root, so a
//! Bellwire started by root runs it as user `postgres`.
//!
//! All functions block; asynchronous callers use `spawn_blocking`.

mod binaries;
mod cluster;
mod memory;
mod settings;
pub mod trust;
mod upgrade;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

pub use binaries::{Binaries, OLDEST_MAJOR};
pub use cluster::DATABASE;
use cluster::{Cluster, Status};
pub use settings::Durability;
pub use upgrade::{Upgraded, upgrade};

/// Superuser created by `initdb`. Only users who can open the socket's directory can log in as it.
const SUPERUSER: &str = "postgres";
/// Interval of checks of a starting or stopping Postgres.
const POLL: Duration = Duration::from_millis(20);
/// Timeout of a start, including recovery after a crash.
const START_DEADLINE: Duration = Duration::from_secs(120);
/// Timeout of a stop. Then the guard script ends Postgres.
const STOP_DEADLINE: Duration = Duration::from_secs(90);

/// Messages of Postgres about an unreadable lock file, in the C locale: `bogus data in lock file "postmaster.pid"`, or `lock file
/// "postmaster.pid" is empty`.
const BROKEN_LOCK_FILE: [&str; 2] = ["bogus data in lock file", "\" is empty"];

/// Shell script that ends a program when its starter ends. The file explains its arguments.
pub const GUARD: &str = include_str!("guard.sh");

/// Reason for which no embedded Postgres can run. The texts are for the operator who started Bellwire.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No Postgres is installed, or only old versions.
    #[error(
        "Postgres {OLDEST_MAJOR} or newer is not installed. On Debian or Ubuntu run `make deps`, or `apt-get install \
         postgresql`; elsewhere install your system's package `postgresql-server`; or set BELLWIRE_DATABASE_URL to a Postgres \
         that you run"
    )]
    NotInstalled,
    /// The cluster has a major version that is no longer installed.
    #[error(
        "the data directory was created by Postgres {major}, which is not installed: on Debian or Ubuntu, `apt-get \
         install postgresql-{major}`; to move to a newer version, install both and run `bellwire postgres upgrade`"
    )]
    OtherVersion {
        /// Version that created the cluster.
        major: u32,
    },
    /// The configured directory contains no Postgres binaries.
    #[error("{} holds no Postgres {wanted} (postgres and initdb)", dir.display())]
    NotThere {
        /// Directory of the configuration.
        dir: PathBuf,
        /// Versions that can be used.
        wanted: String,
    },
    /// No `pg_dump` and `pg_restore` for a server of that version.
    #[error(
        "pg_dump and pg_restore {major} or newer are not installed: on Debian or Ubuntu, `apt-get install \
         postgresql-client-{major}`; or name their directory by BELLWIRE_POSTGRES_BIN"
    )]
    NoTools {
        /// The server's major version.
        major: u32,
    },
    /// Root refuses programs that another user can write.
    #[error("the programs of Postgres in {} are not run as root: {why}", dir.display())]
    Untrusted {
        /// Directory of the configuration.
        dir: PathBuf,
        /// User who can write them.
        why: trust::Untrusted,
    },
    /// Root cannot run Postgres, and the system lacks the user for it.
    #[error(
        "Postgres does not run as root, and there is no user `{0}` to run it as; create it, or start as another user"
    )]
    NoUser(&'static str),
    /// Root found a cluster that belongs neither to root nor to that user.
    #[error("the database in {} belongs to user `{owner}`: run this as that user, for example with `sudo -u {owner}`", dir.display())]
    Anothers {
        /// Directory of the cluster.
        dir: PathBuf,
        /// Owner: a name, or a number.
        owner: String,
    },
    /// User `postgres` cannot enter a directory above the data.
    #[error("user `{user}` may not enter {}, where the data would be: choose another data directory", dir.display())]
    Unreachable {
        /// First directory that it cannot enter.
        dir: PathBuf,
        /// User that runs Postgres.
        user: &'static str,
    },
    /// Another user created the socket's directory, or it is open to others.
    #[error(
        "{} has another owner or is open to other users, who could answer there in place of Postgres: remove it",
        .0.display()
    )]
    SocketDir(PathBuf),
    /// A file operation failed.
    #[error("{what}: {source}")]
    Io {
        /// Attempted action, with its path.
        what: String,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The cluster to upgrade is running.
    #[error("a Postgres runs on the data directory: stop all that use it, and try again")]
    Running,
    /// No newer version is installed.
    #[error(
        "no Postgres newer than {major}, which made the data directory, is installed: install one beside it, or name its directory \
         by BELLWIRE_POSTGRES_BIN"
    )]
    NothingNewer {
        /// Version that created the cluster.
        major: u32,
    },
    /// `pg_upgrade` failed, with the end of its output.
    #[error("pg_upgrade failed, and nothing has changed: {0}")]
    Upgrade(String),
    /// `initdb` failed, with its output.
    #[error("initdb failed: {0}")]
    InitDb(String),
    /// Postgres ended during its start, with the end of its log.
    #[error("Postgres did not start: {0}")]
    Start(String),
    /// Postgres neither started nor ended in time.
    #[error("Postgres was not ready after {} s; its log is {}", START_DEADLINE.as_secs(), .0.display())]
    Slow(PathBuf),
}

impl Error {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// Options of an embedded Postgres.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Data directory. The cluster is in `postgres` below it.
    pub data_dir: PathBuf,
    /// Directory of `postgres` and `initdb`. `None`: search for it.
    pub binaries: Option<PathBuf>,
    /// `PATH`, searched after the usual directories.
    pub search_path: Option<std::ffi::OsString>,
    /// Durability in a crash of the machine.
    pub durability: Durability,
    /// Whether another component sets the interval of autovacuum. Otherwise the interval is short.
    pub is_paced: bool,
    /// Memory in MiB that Postgres is configured for. `None`: that of the machine or container.
    pub memory_mib: Option<u32>,
    /// Whether the data directory is deleted when Postgres ends for any reason, for tests without restarts.
    pub ephemeral: bool,
}

impl Options {
    /// Returns the memory in MiB that Postgres is configured for.
    pub fn memory_mib(&self) -> u32 {
        self.memory_mib.unwrap_or_else(memory::available_mib)
    }
}

#[derive(Debug)]
enum PostgresProcess {
    Ours { guard: Child, postmaster: Pid, keeping: File },
    Adopted(Pid),
    Stopped,
}

/// A running embedded Postgres. Dropping it, like any end of this process, stops a Postgres that it started.
#[derive(Debug)]
pub struct Embedded {
    place: Cluster,
    holder: Mutex<PostgresProcess>,
}

impl Embedded {
    /// Creates the cluster if it is missing, and starts Postgres, or adopts one that is running on it. Blocks until it accepts
    /// connections.
    pub fn start(options: &Options) -> Result<Self, Error> {
        let place = Cluster::prepare(options)?;
        let holder = Mutex::new(bring_up(&place)?);
        Ok(Self { place, holder })
    }

    /// Whether the cluster exists.
    pub fn exists(options: &Options) -> bool {
        cluster::cluster_exists(&options.data_dir)
    }

    /// Returns options to connect to one of its databases.
    pub fn connect_options(&self, database: &str) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .host("localhost")
            .socket(&self.place.socket_dir)
            .port(5432)
            .username(SUPERUSER)
            .database(database)
            .ssl_mode(PgSslMode::Disable)
    }

    /// Returns the connection URL, for `psql` and other programs.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{SUPERUSER}@localhost/{database}?host={}", self.place.socket_dir.display())
    }

    /// Returns the path of the socket, for a proxy in between.
    pub fn socket(&self) -> PathBuf {
        self.place.socket()
    }

    /// Returns the path of its log.
    pub fn log(&self) -> PathBuf {
        self.place.log()
    }

    /// Whether this process started it.
    pub fn is_ours(&self) -> bool {
        matches!(*self.holder.lock(), PostgresProcess::Ours { .. })
    }

    /// Returns the process id of the postmaster, if one is running.
    pub fn postmaster(&self) -> Option<i32> {
        match &*self.holder.lock() {
            PostgresProcess::Ours { postmaster, .. } | PostgresProcess::Adopted(postmaster) => {
                Some(postmaster.as_raw())
            }
            PostgresProcess::Stopped => None,
        }
    }

    /// Stops Postgres if this process started it (sessions end, a checkpoint is written), and waits for that. An adopted one
    /// keeps running.
    pub fn stop(&self) {
        let holder = std::mem::replace(&mut *self.holder.lock(), PostgresProcess::Stopped);
        if let PostgresProcess::Ours { mut guard, keeping, .. } = holder {
            drop(keeping); // no process adopts it from here on
            drop(guard.stdin.take());
            wait_for(&mut guard, Instant::now() + STOP_DEADLINE);
            if let Ok(_lock) = self.place.lock() {
                self.place.remove_socket_dir();
            }
        }
    }

    /// Stops Postgres as [`stop`](Self::stop) does and starts it again.
    pub fn restart(&self) -> Result<(), Error> {
        self.stop();
        *self.holder.lock() = bring_up(&self.place)?;
        Ok(())
    }

    /// Whether it certainly runs, determined without blocking. If not, [`revive`](Self::revive) must check.
    pub fn certainly_runs(&self) -> bool {
        match self.holder.try_lock().as_deref_mut() {
            Some(PostgresProcess::Ours { guard, .. }) => matches!(guard.try_wait(), Ok(None)),
            _ => false,
        }
    }

    /// Starts it again if it ended unexpectedly, by a crash or with the process that held an adopted one. Returns whether it did.
    /// Does nothing after [`stop`](Self::stop).
    pub fn revive(&self) -> Result<bool, Error> {
        let mut holder = self.holder.lock();
        let runs = match &mut *holder {
            PostgresProcess::Ours { guard, .. } => matches!(guard.try_wait(), Ok(None)),
            PostgresProcess::Adopted(pid) => self.place.status()?.is_some_and(|(now, _)| now == *pid),
            PostgresProcess::Stopped => true,
        };
        if !runs {
            *holder = PostgresProcess::Stopped; // this process's own is gone, even if another process starts the next one
            *holder = bring_up(&self.place)?;
        }
        Ok(!runs)
    }

    /// Ends Postgres at once, as a crash would, and waits until its guard noticed: for tests.
    pub fn kill(&self) {
        if let PostgresProcess::Ours { guard, postmaster, .. } = &mut *self.holder.lock() {
            // It may have ended by itself; then there is nothing to do.
            let _ = kill(*postmaster, Signal::SIGKILL);
            wait_for(guard, Instant::now() + STOP_DEADLINE);
        }
    }
}

/// Adopts the Postgres that runs on this cluster, or starts one.
fn bring_up(place: &Cluster) -> Result<PostgresProcess, Error> {
    let deadline = Instant::now() + START_DEADLINE;
    let _lock = place.lock()?;
    let mut refused = None;
    while Instant::now() < deadline {
        match (place.status()?, place.keep()?) {
            (Some((pid, Status::Ready)), None) => return Ok(PostgresProcess::Adopted(pid)),
            // It starts or stops; or it has died, and its keeper has not noticed yet.
            (Some((_, Status::Changing)), _) | (None, None) => sleep(POLL),
            // Its keeper has died, and the guard is about to do the same, unless it has died, too.
            (Some((pid, Status::Ready)), Some(_)) => {
                let _ = kill(pid, Signal::SIGINT); // it may be gone by now
                sleep(POLL);
            }
            (None, Some(keeping)) => match launch(place, keeping, deadline) {
                // Another process was faster.
                Err(Error::Start(_)) if place.status()?.is_some() => {}
                Err(Error::Start(said))
                    if BROKEN_LOCK_FILE.iter().any(|words| said.contains(words)) && place.discard_lock_file()? => {}
                // One that died moments ago: its sessions let go of the shared memory. Or one that is about to be gone: it
                // takes no connections any more, but its lock file is there.
                Err(Error::Start(said)) if said.contains("still in use") || said.contains("already exists") => {
                    refused = Some(Error::Start(said));
                    sleep(POLL);
                }
                launched => return launched,
            },
        }
    }
    Err(refused.unwrap_or_else(|| Error::Slow(place.log())))
}

/// Starts Postgres under its guard script and waits until it accepts connections.
fn launch(place: &Cluster, keeping: File, deadline: Instant) -> Result<PostgresProcess, Error> {
    place.make_socket_dir()?;
    let (log, log_start) = place.open_log()?;
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(GUARD).arg("bellwire-postgres").arg(place.erase_at_end());
    command.arg(place.binaries.program("postgres")).arg("-D").arg(place.cluster());
    command.arg("-c").arg(format!("unix_socket_directories={}", place.socket_dir.display()));
    for setting in settings::settings(place.durability, place.is_paced, place.memory_mib) {
        command.arg("-c").arg(setting);
    }
    let mut guard = place
        .run_as(&mut command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(Error::io("cannot start /bin/sh"))?;
    let postmaster = read_pid(&mut guard).ok_or_else(|| Error::Start(place.said_since(log_start)))?;
    while Instant::now() < deadline {
        if place.status()? == Some((postmaster, Status::Ready)) {
            return Ok(PostgresProcess::Ours { guard, postmaster, keeping });
        }
        if !matches!(guard.try_wait(), Ok(None)) {
            return Err(Error::Start(place.said_since(log_start)));
        }
        sleep(POLL);
    }
    Err(Error::Slow(place.log()))
}

fn read_pid(guard: &mut Child) -> Option<Pid> {
    let mut line = String::new();
    BufReader::new(guard.stdout.take()?).read_line(&mut line).ok()?;
    line.trim().parse().ok().map(Pid::from_raw)
}

fn wait_for(guard: &mut Child, deadline: Instant) {
    while matches!(guard.try_wait(), Ok(None)) && Instant::now() < deadline {
        sleep(POLL);
    }
}
