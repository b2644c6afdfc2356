//! Monitors the hosts, and points the pools to the primary.
//!
//! Without a primary, pools point to no host, so that connecting fails at once. Pointing to a host that refuses them, they
//! would wait up to two seconds between attempts, and find a new primary that much later.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sqlx::PgConnection;
use sqlx::postgres::{PgConnectOptions, PgPool};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{error, info, warn};

use super::ConnectionMetrics;
use super::for_pool;
use super::hosts::{DatabaseHosts, name};
use super::primary::{Primary, PrimaryObservation, PrimaryState, ask};

/// Interval of status queries to a host.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const SEARCH_EVERY: Duration = Duration::from_millis(100);
/// Timeout of a host's response. The state of a slower host is unknown.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Time after which a commit that waits for a standby counts as stuck.
const CONFIRM_WITHIN: Duration = Duration::from_secs(3);
const NOWHERE: &str = "/nonexistent/no-primary";

#[derive(Debug, Clone, PartialEq, Eq)]
enum Sight {
    Unasked,
    /// State unknown: the host was too slow, or has no free connection.
    Unknown,
    Down,
    Seen(PrimaryObservation),
}

pub async fn watch_on(hosts: DatabaseHosts, pools: Vec<PgPool>, primary: Primary, metrics: Arc<dyn ConnectionMetrics>) {
    let (sights, _) = watch::channel(vec![Sight::Unasked; hosts.all().len()]);
    let several = hosts.are_several();
    let looking = hosts.all().iter().enumerate().map(|(i, options)| look_on(i, options, several, &sights, &primary));
    let deciding = async {
        let mut changes = sights.subscribe();
        let mut decider = Decider::new(&hosts, &pools, &primary, &*metrics);
        loop {
            let _ = changes.changed().await; // the sender outlives this
            decider.decide(&changes.borrow_and_update().clone());
        }
    };
    tokio::join!(join_all(looking), deciding);
}

/// Queries the status of one host in an endless loop.
async fn look_on(
    i: usize, options: &PgConnectOptions, several: bool, sights: &watch::Sender<Vec<Sight>>, primary: &Primary,
) {
    let mut connection = None;
    loop {
        let sight = look(options, &mut connection, several).await;
        sights.send_modify(|sights| sights[i] = sight);
        let rest = if primary.is_gone() { SEARCH_EVERY } else { LOOK_EVERY };
        tokio::select! {
            () = sleep(rest) => {}
            () = primary.until_changed() => {}
        }
    }
}

/// Queries the status of a host. If the existing connection has ended, a new one is tried.
async fn look(options: &PgConnectOptions, connection: &mut Option<PgConnection>, several: bool) -> Sight {
    loop {
        let is_new = connection.is_none();
        let asked = timeout(ANSWER_WITHIN, ask(options, connection, several)).await;
        let failed = match asked {
            Ok(Ok(seen)) => return Sight::Seen(seen),
            Ok(Err(error)) => Some(error),
            Err(_) => None,
        };
        *connection = None;
        match failed {
            None => return Sight::Unknown,
            Some(error) if is_new => return sight_of(&error),
            Some(_) => {}
        }
    }
}

/// Derives the state of a host that refused a connection. A refusal with a reason may come from a host that still serves
/// existing connections.
fn sight_of(error: &sqlx::Error) -> Sight {
    let is_down = match error {
        sqlx::Error::Database(error) => error.code().is_some_and(|code| code.starts_with("08") || code == "57P03"),
        error => crate::is_transient(error),
    };
    if is_down { Sight::Down } else { Sight::Unknown }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Choice {
    host: usize,
    timeline: u32,
}

/// Observations of the cluster so far.
#[derive(Debug, Default)]
struct ClusterState {
    /// System identifier of the primary's cluster.
    system: Option<i64>,
    timeline: u32,
}

/// Chooses the primary: of the hosts that accept writes, the one with the highest timeline. `current` stays while there is no
/// better one, and while its state is unknown.
///
/// A former primary that returns after a promotion has a lower timeline. Two hosts promoted from the same primary have equal
/// timelines: then the first one seen stays.
fn choose(sights: &[Sight], current: Option<Choice>, known: &ClusterState) -> Option<Choice> {
    let writable = sights.iter().enumerate().filter_map(|(host, sight)| match sight {
        Sight::Seen(seen) if !seen.read_only && known.system.is_none_or(|system| seen.system == Some(system)) => {
            Some(Choice { host, timeline: seen.timeline.unwrap_or(0) })
        }
        _ => None,
    });
    let is_current = |choice: &Choice| current.is_some_and(|current| current.host == choice.host);
    // The last of equals is taken, and of those the current one comes last.
    let mut writable: Vec<_> = writable.filter(|choice| choice.timeline >= known.timeline).collect();
    writable.reverse();
    writable.sort_by_key(is_current);
    let best = writable.into_iter().max_by_key(|choice| choice.timeline);
    best.or_else(|| current.filter(|current| sights[current.host] == Sight::Unknown))
}

struct Decider<'a> {
    hosts: &'a DatabaseHosts,
    pools: &'a [PgPool],
    primary: &'a Primary,
    metrics: &'a dyn ConnectionMetrics,
    current: Option<Choice>,
    known: ClusterState,
    /// Commits that wait for a standby, with the start of the wait.
    waiting: HashMap<String, Instant>,
    /// Last warning about hosts that must not be written to, to log it once.
    said: Option<String>,
}

impl<'a> Decider<'a> {
    fn new(
        hosts: &'a DatabaseHosts, pools: &'a [PgPool], primary: &'a Primary, metrics: &'a dyn ConnectionMetrics,
    ) -> Self {
        let (known, waiting) = (ClusterState::default(), HashMap::new());
        Self { hosts, pools, primary, metrics, current: None, known, waiting, said: None }
    }

    fn decide(&mut self, sights: &[Sight]) {
        if sights.contains(&Sight::Unasked) {
            return; // all are asked before the first choice
        }
        let choice = choose(sights, self.current, &self.known);
        if choice != self.current || (choice.is_none() && !self.primary.is_gone()) {
            self.take(choice, sights);
        }
        self.current = choice;
        self.warn_of_others(sights);
        let Some(Choice { host, .. }) = choice else { return };
        if let Sight::Seen(seen) = &sights[host] {
            self.known.system = seen.system;
            self.look_at_commits(seen);
        }
    }

    /// Points the pools to the chosen host.
    fn take(&mut self, choice: Option<Choice>, sights: &[Sight]) {
        let Some(choice) = choice else {
            warn!(hosts = self.describe(sights), "no host of the database takes writes");
            self.lead(|options| options.socket(NOWHERE));
            self.metrics.writable(false);
            self.primary.stands(PrimaryState::Gone);
            return;
        };
        let host = &self.hosts.all()[choice.host];
        let is_other = choice.timeline > self.known.timeline && self.known.timeline > 0;
        if self.primary.is_gone() || is_other {
            info!(host = name(host), timeline = choice.timeline, "this host of the database takes writes");
        }
        if is_other {
            self.metrics.failover();
        }
        self.known.timeline = choice.timeline;
        let is_led = |pool: &PgPool| name(&pool.connect_options()) == name(host);
        match self.current.is_none() && self.pools.iter().all(is_led) {
            true => self.primary.found(choice.timeline), // by the start
            false => {
                self.lead(|_| host.clone());
                self.primary.chosen(choice.timeline);
            }
        }
        self.metrics.writable(true);
        self.primary.stands(PrimaryState::Up);
    }

    /// Points all pools to a host. Their sessions keep this process's application name, by which other processes identify and
    /// end stale sessions.
    fn lead(&self, to: impl Fn(PgConnectOptions) -> PgConnectOptions) {
        for pool in self.pools {
            let (options, before) = (to(self.hosts.all()[0].clone()), pool.connect_options());
            let options = match before.get_application_name() {
                Some(name) => options.application_name(name),
                None => options,
            };
            pool.set_connect_options(for_pool(options));
        }
    }

    /// Warns once about hosts that accept writes but are not the primary: writes to them are lost.
    fn warn_of_others(&mut self, sights: &[Sight]) {
        let chosen = self.current.map(|current| current.host);
        let takes_writes = |sight: &Sight| matches!(sight, Sight::Seen(seen) if !seen.read_only);
        let others = (0..sights.len()).any(|host| Some(host) != chosen && takes_writes(&sights[host]));
        let said = others.then(|| self.describe(sights));
        if let Some(hosts) = &said
            && self.said != said
        {
            let primary = chosen.map(|host| name(&self.hosts.all()[host]));
            error!(hosts, primary, "more than one host of the database takes writes; only the primary is used");
        }
        self.said = said;
    }

    fn describe(&self, sights: &[Sight]) -> String {
        let one = |(options, sight): (&PgConnectOptions, &Sight)| {
            let what = match sight {
                Sight::Unasked | Sight::Unknown => "is unknown".to_owned(),
                Sight::Down => "is down".to_owned(),
                Sight::Seen(PrimaryObservation { read_only: true, .. }) => "is a standby".to_owned(),
                Sight::Seen(PrimaryObservation { system, .. })
                    if self.known.system.is_some() && *system != self.known.system =>
                {
                    "is another cluster".to_owned()
                }
                Sight::Seen(seen) => format!("takes writes on timeline {}", seen.timeline.unwrap_or(0)),
            };
            format!("{} {what}", name(options))
        };
        self.hosts.all().iter().zip(sights).map(one).collect::<Vec<_>>().join(", ")
    }

    fn look_at_commits(&mut self, seen: &PrimaryObservation) {
        let now = Instant::now();
        self.waiting.retain(|commit, _| seen.waiting.contains(commit));
        for commit in &seen.waiting {
            self.waiting.entry(commit.clone()).or_insert(now);
        }
        let is_stuck = self.waiting.values().any(|since| now - *since >= CONFIRM_WITHIN);
        self.metrics.commits_unconfirmed(is_stuck);
        let names = &*seen.standbys;
        match is_stuck {
            true => {
                if self.primary.stands(PrimaryState::Unconfirmed(names.into())) {
                    error!(
                        synchronous_standby_names = names,
                        "Postgres does not confirm commits: it waits for standbys that are not there"
                    );
                }
            }
            false => {
                if self.primary.stands(PrimaryState::Up) {
                    info!("Postgres confirms commits again");
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "../../../../tests/crates/store/unit/connections/watch.rs"]
mod tests;
