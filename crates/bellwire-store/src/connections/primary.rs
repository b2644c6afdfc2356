//! Current primary, shared with the whole program, and the status query of a host.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::watch;
use tokio::time::Instant;

use super::hosts::DatabaseHosts;
use super::tls;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrimaryState {
    Up,
    Gone,
    /// It accepts writes but confirms no commits, because the standbys in this `synchronous_standby_names` are missing.
    Unconfirmed(Arc<str>),
}

/// The current primary among the hosts. Clones share it.
#[derive(Debug, Clone)]
pub struct Primary(Arc<PrimaryInner>);

#[derive(Debug)]
struct PrimaryInner {
    standing: watch::Sender<PrimaryState>,
    chosen: Mutex<ChosenPrimary>,
    /// Whether connections are compared by timeline, because there are several hosts.
    has_timelines: bool,
}

#[derive(Debug, Default)]
struct ChosenPrimary {
    /// Time at which this primary was chosen. `None`: it is the first one.
    at: Option<Instant>,
    /// Timeline of the primary. 0: unknown.
    timeline: u32,
}

impl Primary {
    /// Creates a primary that is not monitored: it counts as up.
    pub fn unwatched() -> Self {
        Self::new(false)
    }

    /// Creates a monitored primary. `has_timelines`: there are several hosts.
    pub fn new(has_timelines: bool) -> Self {
        let (standing, chosen) = (watch::Sender::new(PrimaryState::Up), Mutex::default());
        Self(Arc::new(PrimaryInner { standing, chosen, has_timelines }))
    }

    /// Stores the observed state. Returns whether it changed.
    pub(super) fn stands(&self, standing: PrimaryState) -> bool {
        self.0.standing.send_if_modified(|known| {
            let is_new = *known != standing;
            *known = standing;
            is_new
        })
    }

    /// Records that another primary was chosen, or the same one after an outage. Connections opened before are no longer used.
    pub(super) fn chosen(&self, timeline: u32) {
        *self.0.chosen.lock() = ChosenPrimary { at: Some(Instant::now()), timeline };
    }

    /// Records the timeline of the primary to which connections lead already.
    pub(super) fn found(&self, timeline: u32) {
        self.0.chosen.lock().timeline = timeline;
    }

    /// Whether no host accepts writes.
    pub fn is_gone(&self) -> bool {
        *self.0.standing.borrow() == PrimaryState::Gone
    }

    /// Waits until a host accepts writes, at most for `patience`.
    pub async fn until_there(&self, patience: Duration) {
        let mut standing = self.0.standing.subscribe();
        // Failed: the next connection reports the error.
        let _ = tokio::time::timeout(patience, standing.wait_for(|standing| *standing != PrimaryState::Gone)).await;
    }

    /// Waits until the primary confirms no commits. Returns its `synchronous_standby_names`.
    pub async fn until_unconfirmed(&self) -> Arc<str> {
        let mut standing = self.0.standing.subscribe();
        loop {
            if let PrimaryState::Unconfirmed(names) = &*standing.borrow_and_update() {
                return names.clone();
            }
            standing.changed().await.expect("the sender is ours");
        }
    }

    pub(super) async fn until_changed(&self) {
        let _ = self.0.standing.subscribe().changed().await; // the sender is ours
    }

    pub(super) fn has_timelines(&self) -> bool {
        self.0.has_timelines
    }

    /// Whether a primary with a later timeline was seen.
    pub(super) fn is_past(&self, timeline: u32) -> bool {
        timeline < self.0.chosen.lock().timeline
    }

    /// Whether a connection of this age was opened before the current primary was chosen.
    pub(super) fn is_stale(&self, age: Duration) -> bool {
        self.0.chosen.lock().at.is_some_and(|at| at.elapsed() <= age)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PrimaryObservation {
    pub read_only: bool,
    /// Timeline, which each promotion increases. `None`: it accepts no writes, or is the only host.
    pub timeline: Option<u32>,
    /// System identifier, which the cluster shares with its copies. `None`: it is the only host.
    pub system: Option<i64>,
    /// Value of `synchronous_standby_names`.
    pub standbys: String,
    /// Bellwire's sessions whose commits wait for a standby, each with the start of its statement.
    pub waiting: Vec<String>,
}

/// Returns the timeline in the name of a WAL file: its first 8 digits.
pub(super) fn timeline_of(wal_file: &str) -> Option<u32> {
    u32::from_str_radix(wal_file.get(..8)?, 16).ok()
}

/// Queries the status of a host. Opens `connection` if it is `None`.
///
/// Reads the timeline of the current WAL position. After a promotion, `pg_control_checkpoint()` has the previous one until the
/// first checkpoint, which may take minutes.
pub(super) async fn ask(
    options: &PgConnectOptions, connection: &mut Option<PgConnection>, several: bool,
) -> sqlx::Result<PrimaryObservation> {
    let connection = match connection {
        Some(connection) => connection,
        none => none.insert(tls::connect(options).await?),
    };
    let row = fetch_one!(
        connection,
        r#"SELECT pg_is_in_recovery() OR ($1 AND current_setting('transaction_read_only')::boolean) AS "read_only!",
                  CASE WHEN $1 AND NOT pg_is_in_recovery() THEN pg_walfile_name(pg_current_wal_lsn()) END AS wal_file,
                  CASE WHEN $1 THEN (SELECT system_identifier FROM pg_control_system()) END AS system,
                  current_setting('synchronous_standby_names') AS "standbys!",
                  CASE WHEN current_setting('synchronous_standby_names') <> ''
                       THEN ARRAY(SELECT pid || ' ' || query_start FROM pg_stat_activity
                                  WHERE usename = current_user AND wait_event = 'SyncRep')
                       ELSE '{}' END AS "waiting!: Vec<String>""#,
        (several)
    )?;
    let timeline = row.wal_file.as_deref().and_then(timeline_of);
    Ok(PrimaryObservation {
        read_only: row.read_only,
        timeline,
        system: row.system,
        standbys: row.standbys,
        waiting: row.waiting,
    })
}

/// Finds the primary: of the hosts that accept writes, the one with the highest timeline. If there is none, fails with the
/// error of one host.
pub async fn find(hosts: &DatabaseHosts) -> sqlx::Result<PgConnectOptions> {
    let several = hosts.are_several();
    let asked = join_all(hosts.all().iter().map(|options| async move { ask(options, &mut None, several).await })).await;
    let (mut found, mut failure) = (None::<(u32, &PgConnectOptions)>, None::<sqlx::Error>);
    for (options, seen) in hosts.all().iter().zip(asked) {
        match seen {
            Ok(seen) if seen.read_only => {}
            Ok(seen) => {
                let timeline = seen.timeline.unwrap_or(0);
                if found.is_none_or(|(best, _)| timeline > best) {
                    found = Some((timeline, options));
                }
            }
            // One that stays is told before one that passes.
            Err(error) if failure.as_ref().is_none_or(crate::is_transient) => failure = Some(error),
            Err(_) => {}
        }
    }
    let nobody = || sqlx::Error::Io(std::io::Error::other("no host takes writes: all that answer are standbys"));
    found.map(|(_, options)| options.clone()).ok_or_else(|| failure.unwrap_or_else(nobody))
}

#[cfg(test)]
#[path = "../../../../tests/crates/store/unit/connections/primary.rs"]
mod tests;
