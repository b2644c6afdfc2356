//! The embedded Postgres: start, stop, upgrade and failures.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bellwire_postgres::{DATABASE, Durability, Embedded, Error, Options};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use sqlx::{Connection, PgConnection};

use crate::support::TempDir;

/// Set for the helper process of `hold`.
const HOLD: &str = "BELLWIRE_TEST_HOLD";

/// A user of this machine who is neither us nor whom Postgres runs as.
const STRANGER: Uid = Uid::from_raw(4_711);

fn options(dir: &Path) -> Options {
    Options {
        data_dir: dir.to_owned(),
        search_path: std::env::var_os("PATH"),
        durability: Durability::Fast,
        ..Options::default()
    }
}

async fn run(postgres: &Embedded, sql: &'static str) -> i64 {
    let mut connection = PgConnection::connect_with(&postgres.connect_options(DATABASE)).await.expect("a connection");
    let value = sqlx::query_scalar(sql).fetch_one(&mut connection).await.expect("a value");
    connection.close().await.expect("closed");
    value
}

#[tokio::test(flavor = "multi_thread")]
async fn data_survives_restarts_and_crashes() {
    let dir = TempDir::new();
    let postgres = Embedded::start(&options(dir.path())).expect("it starts in an empty directory");
    assert!(postgres.is_ours());
    let mut connection = PgConnection::connect_with(&postgres.connect_options(DATABASE)).await.expect("a connection");
    sqlx::raw_sql("CREATE TABLE kept AS SELECT 42::bigint AS n").execute(&mut connection).await.expect("a table");

    postgres.restart().expect("it restarts");
    assert_eq!(run(&postgres, "SELECT n FROM kept").await, 42);

    assert!(!postgres.revive().expect("it runs"), "nothing to revive");
    postgres.kill();
    assert!(postgres.revive().expect("it comes back"), "it was dead");
    assert_eq!(run(&postgres, "SELECT n FROM kept").await, 42);

    let pid = postgres.postmaster().expect("it runs");
    postgres.stop();
    assert_eq!(kill(Pid::from_raw(pid), None), Err(Errno::ESRCH), "a stop waits for the end");
    assert!(!postgres.revive().expect("a stop is final"));
}

#[tokio::test(flavor = "multi_thread")]
async fn second_start_adopts_the_running_postgres() {
    let dir = TempDir::new();
    let first = Embedded::start(&options(dir.path())).expect("it starts");
    let second = Embedded::start(&options(dir.path())).expect("it adopts");
    assert!(!second.is_ours());
    assert_eq!(second.postmaster(), first.postmaster());
    second.stop();
    assert_eq!(run(&first, "SELECT 1::bigint").await, 1, "an adopted Postgres is not ours to stop");

    let second = Embedded::start(&options(dir.path())).expect("it adopts again");
    first.stop();
    assert!(second.revive().expect("it takes over"));
    assert!(second.is_ours());
    assert_eq!(run(&second, "SELECT 1::bigint").await, 1);
    second.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn starts_at_the_same_time_share_one_postgres() {
    let dir = TempDir::new();
    let starts: Vec<_> = (0..4)
        .map(|_| {
            let options = options(dir.path());
            tokio::task::spawn_blocking(move || Embedded::start(&options).expect("it starts or adopts"))
        })
        .collect();
    let all = futures_util::future::try_join_all(starts).await.expect("no panic");
    assert_eq!(all.iter().filter(|postgres| postgres.is_ours()).count(), 1);
    assert!(all.iter().all(|postgres| postgres.postmaster() == all[0].postmaster()));
    all.iter().for_each(Embedded::stop);
}

/// Not a promise by itself: the process that `a_killed_holder_leaves_no_orphan` kills. It starts a Postgres, prints its
/// process id, and lives until it is killed.
#[test]
fn hold() {
    let Some(dir) = std::env::var_os(HOLD) else { return };
    let postgres = Embedded::start(&options(Path::new(&dir))).expect("it starts");
    assert!(postgres.is_ours());
    eprintln!("holds {}", postgres.postmaster().expect("it runs"));
    loop {
        std::thread::park();
    }
}

fn spawn_holder(dir: &Path) -> (Child, Pid) {
    let mut holder = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "postgres::hold", "--nocapture"])
        .env(HOLD, dir)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a helper process");
    let lines = BufReader::new(holder.stderr.take().expect("piped")).lines();
    let pid = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("holds ")?.parse().ok());
    (holder, Pid::from_raw(pid.expect("the helper prints the process id")))
}

#[test]
fn a_killed_holder_leaves_no_orphan() {
    let dir = TempDir::new();
    let (mut holder, postmaster) = spawn_holder(dir.path());
    assert_eq!(kill(postmaster, None), Ok(()), "Postgres runs");
    holder.kill().expect("SIGKILL");
    holder.wait().expect("it is gone");
    let deadline = Instant::now() + Duration::from_secs(30);
    while kill(postmaster, None) != Err(Errno::ESRCH) {
        assert!(Instant::now() < deadline, "Postgres outlived its holder");
        std::thread::yield_now();
    }
    assert!(!dir.path().join("postgres/postmaster.pid").exists(), "it was an orderly end");
    Embedded::start(&options(dir.path())).expect("its directory is free").stop();
}

/// The processes that this one started.
fn children_of(parent: i32) -> Vec<Pid> {
    let parent_of = |pid: i32| -> Option<i32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let pids = std::fs::read_dir("/proc").expect("Linux").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent)).map(Pid::from_raw).collect()
}

#[test]
fn orphaned_postgres_is_not_adopted() {
    let dir = TempDir::new();
    let (mut holder, postmaster) = spawn_holder(dir.path());
    let guard = children_of(holder.id().cast_signed()).pop().expect("it runs under a guard");
    let watch = children_of(guard.as_raw()).into_iter().find(|pid| *pid != postmaster).expect("it is watched");
    kill(watch, Signal::SIGSTOP).expect("the watch is ours"); // so late is the guard
    holder.kill().expect("SIGKILL");
    holder.wait().expect("it is gone");
    assert_eq!(kill(postmaster, None), Ok(()), "it runs, as if it were there to stay");
    let postgres = Embedded::start(&options(dir.path())).expect("it starts");
    assert!(postgres.is_ours() && postgres.postmaster() != Some(postmaster.as_raw()));
    postgres.stop();
}

#[test]
fn unreadable_lock_file_does_not_block_postgres() {
    let dir = TempDir::new();
    let lock_file = dir.path().join("postgres/postmaster.pid");
    for broken in ["", "\0\0\0\0", "not a number\n"] {
        Embedded::start(&options(dir.path())).expect("it starts").stop();
        std::fs::write(&lock_file, broken).expect("written");
        let postgres = Embedded::start(&options(dir.path())).expect("the file is moved aside");
        assert!(postgres.is_ours());
        postgres.stop();
    }
    // While its Postgres runs, the file is let be, and what stands in the way is said.
    let (mut holder, postmaster) = spawn_holder(dir.path());
    std::fs::write(&lock_file, "not a number\n").expect("written");
    holder.kill().expect("SIGKILL");
    let postgres = Embedded::start(&options(dir.path()));
    holder.wait().expect("it is gone");
    match postgres {
        Ok(postgres) => assert_ne!(postgres.postmaster(), Some(postmaster.as_raw()), "after its end"),
        Err(error) => assert!(error.to_string().contains("bogus data in lock file"), "{error}"),
    }
}

#[test]
fn interrupt_ends_the_holder_before_postgres() {
    let dir = TempDir::new();
    let postgres = Embedded::start(&options(dir.path())).expect("it starts");
    let postmaster = Pid::from_raw(postgres.postmaster().expect("it runs"));
    let ours = nix::unistd::getpgrp();
    let theirs = nix::unistd::getpgid(Some(postmaster)).expect("its group");
    assert_ne!(ours, theirs, "Ctrl-C reaches a whole group");
    postgres.stop();
    assert_eq!(kill(postmaster, Some(Signal::SIGCONT)), Err(Errno::ESRCH));
}

#[test]
fn a_missing_postgres_is_named_with_its_package() {
    let dir = TempDir::new();
    let nowhere = Options { binaries: Some(dir.path().to_owned()), ..options(&dir.path().join("data")) };
    let error = Embedded::start(&nowhere).expect_err("there is none");
    assert!(matches!(error, Error::NotThere { .. }), "{error}");
    assert!(Error::NotInstalled.to_string().contains("apt-get install postgresql"), "{}", Error::NotInstalled);

    let old = TempDir::new();
    std::fs::create_dir(old.path().join("postgres")).expect("a directory");
    std::fs::write(old.path().join("postgres/PG_VERSION"), "9\n").expect("a file");
    let error = Embedded::start(&options(old.path())).expect_err("that version is not installed");
    assert!(matches!(error, Error::OtherVersion { major: 9 }), "{error}");
}

#[test]
fn open_socket_directory_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = TempDir::new();
    let postgres = Embedded::start(&options(dir.path())).expect("it starts");
    let sockets = postgres.socket().parent().expect("a directory").to_owned();
    postgres.stop();
    assert!(!sockets.exists(), "a stop leaves no socket behind");
    std::fs::create_dir(&sockets).expect("somebody else was here");
    std::fs::set_permissions(&sockets, std::fs::Permissions::from_mode(0o755)).expect("open to others");
    let error = Embedded::start(&options(dir.path())).expect_err("anybody could listen there");
    assert!(matches!(error, Error::SocketDir(_)), "{error}");
    if nix::unistd::geteuid().is_root() {
        std::fs::set_permissions(&sockets, std::fs::Permissions::from_mode(0o700)).expect("a mode");
        nix::unistd::chown(&sockets, Some(STRANGER), None).expect("theirs alone");
        let error = Embedded::start(&options(dir.path())).expect_err("a stranger could listen there");
        assert!(matches!(error, Error::SocketDir(_)), "{error}");
    }
    std::fs::remove_dir(&sockets).expect("empty");
}

#[test]
fn postgres_behind_open_socket_directory_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = TempDir::new();
    let postgres = Embedded::start(&options(dir.path())).expect("it starts");
    let sockets = postgres.socket().parent().expect("a directory").to_owned();
    let set_mode = |mode| std::fs::set_permissions(&sockets, std::fs::Permissions::from_mode(mode)).expect("a mode");
    set_mode(0o755);
    let error = Embedded::start(&options(dir.path())).expect_err("who answers there may be anybody");
    assert!(matches!(error, Error::SocketDir(_)), "{error}");
    set_mode(0o700);
    if nix::unistd::geteuid().is_root() {
        let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&sockets).expect("it is there"));
        let give_to = |uid| nix::unistd::chown(&sockets, Some(uid), None).expect("a new owner");
        give_to(STRANGER);
        let error = Embedded::start(&options(dir.path())).expect_err("who answers there is a stranger");
        assert!(matches!(error, Error::SocketDir(_)), "{error}");
        give_to(Uid::from_raw(owner));
    }
    postgres.stop();
}

#[test]
fn root_learns_the_owner_of_a_database() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let dir = TempDir::new();
    Embedded::start(&options(dir.path())).expect("it starts").stop();
    nix::unistd::chown(&dir.path().join("postgres"), Some(STRANGER), None).expect("theirs");
    let error = Embedded::start(&options(dir.path())).expect_err("it is theirs").to_string();
    assert!(error.contains(&format!("run this as that user, for example with `sudo -u {STRANGER}`")), "{error}");
}

#[test]
fn foreign_programs_are_not_run_as_root() {
    use std::os::unix::fs::PermissionsExt;
    let dir = TempDir::new();
    let (bin, ran) = (dir.path().join("bin"), dir.path().join("ran"));
    std::fs::create_dir(&bin).expect("a directory");
    for name in ["postgres", "initdb"] {
        std::fs::write(bin.join(name), format!("#!/bin/sh\ntouch {}\n", ran.display())).expect("a file");
        std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    std::fs::set_permissions(&bin, std::fs::Permissions::from_mode(0o777)).expect("open to others");
    let theirs = Options { binaries: Some(bin), ..options(&dir.path().join("data")) };
    let error = Embedded::start(&theirs).expect_err("that is no Postgres");
    match nix::unistd::geteuid().is_root() {
        true => assert!(matches!(error, Error::Untrusted { .. }) && !ran.exists(), "{error}"),
        false => assert!(matches!(error, Error::NotThere { .. }), "{error}"),
    }
}

#[test]
fn an_interrupted_initdb_is_made_again() {
    let dir = TempDir::new();
    std::fs::create_dir(dir.path().join("postgres.new")).expect("a directory");
    std::fs::write(dir.path().join("postgres.new/PG_VERSION"), "15\n").expect("a file");
    let postgres = Embedded::start(&options(dir.path())).expect("it starts");
    assert!(postgres.is_ours());
    postgres.stop();
}
