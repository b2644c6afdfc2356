//! Many servers on one Postgres, simulated event by event: what they get out of each other's way for, and what they wait for.
//!
//! Simulates one campaign at a time. A server keeps some batches ready. It takes a batch by locking the cursor of a lane, and retries after
//! a pause if another server holds the lock (`SKIP LOCKED`). It seals and posts a batch with all its cores. It writes up to three batches
//! at once; each transaction holds the row of counts of its message and lane until its commit. Beyond the number of its cores, Postgres
//! slows down; idle servers take a part of it too. Not simulated: push services (assumed to be fast enough), the network, retries.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Batches that a server has ahead of itself.
const AHEAD: usize = 4;
/// Batches that a server writes down at once (`dispatch::settler`).
const SETTLED_AT_ONCE: usize = 3;
/// Pause before a server retries a lane that another server had locked, in µs (`dispatch::claim`).
const LOOK_AGAIN_US: u64 = 100_000;
/// For so long the fleet is looked at, after as long a time to come into step.
const WINDOW_US: u64 = 120_000_000;

/// Parameters of a fleet and the cost of its work.
#[derive(Clone, Copy)]
pub struct Fleet<'a> {
    pub servers: usize,
    /// Cores of each server.
    pub cores: f64,
    pub postgres_cores: f64,
    /// Share of the audience in each lane.
    pub lanes: &'a [f64],
    pub batch: f64,
    /// CPU of a delivery at a server, in µs.
    pub server_us: f64,
    /// Time that taking a batch locks a cursor, and that writing one locks a row of counts, in µs.
    pub take_us: f64,
    pub settle_us: f64,
    /// CPU of Postgres that a server takes by being there, in cores.
    pub rest_cores: f64,
}

/// Result of a simulation.
#[derive(Debug)]
pub struct Outcome {
    /// Deliveries a second.
    pub rate: f64,
    /// Share of the time that the busiest cursor and the busiest row of counts were locked.
    pub cursor: f64,
    pub counts: f64,
    /// Share of the time that servers had nothing to seal.
    pub idle: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A server looks for work.
    Look(usize),
    /// It has taken a batch of a lane.
    Taken(usize, usize),
    /// It has posted one.
    Posted(usize, usize),
    /// It has written one down.
    Settled(usize, usize),
}

#[derive(Default)]
struct Server {
    /// Lanes of the batches that are ahead.
    ahead: VecDeque<usize>,
    is_taking: bool,
    /// It found all cursors locked, and looks again soon.
    is_resting: bool,
    is_posting: bool,
    settling: usize,
    /// Lanes of what waits to be written down.
    posted: VecDeque<usize>,
    idle_since: Option<u64>,
    idle_us: u64,
}

/// Lock with one holder at a time.
#[derive(Default)]
struct Lock {
    is_held: bool,
    held_us: u64,
    /// Servers that wait, those of counts only: a cursor that is locked is passed over.
    waiting: VecDeque<usize>,
}

struct Run<'a> {
    fleet: Fleet<'a>,
    now: u64,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    servers: Vec<Server>,
    cursors: Vec<Lock>,
    counts: Vec<Lock>,
    /// Transactions in Postgres.
    active: f64,
    /// Of each lane, what has been taken, by which the next is chosen.
    taken: Vec<f64>,
    done: f64,
}

/// Lets a fleet work on a campaign without end.
pub fn run(fleet: Fleet) -> Outcome {
    let lanes = fleet.lanes.len();
    let locks = || (0..lanes).map(|_| Lock::default()).collect();
    let mut run = Run {
        fleet,
        now: 0,
        events: BinaryHeap::new(),
        servers: (0..fleet.servers).map(|_| Server { idle_since: Some(0), ..Server::default() }).collect(),
        cursors: locks(),
        counts: locks(),
        active: 0.0,
        taken: vec![0.0; lanes],
        done: 0.0,
    };
    for server in 0..fleet.servers {
        // They do not all begin in the same microsecond.
        run.at(server as u64 * LOOK_AGAIN_US / fleet.servers as u64, Event::Look(server));
    }
    run.until(WINDOW_US);
    run.forget();
    run.until(2 * WINDOW_US);
    let share = |us: u64| us as f64 / WINDOW_US as f64;
    let busiest = |locks: &[Lock]| share(locks.iter().map(|lock| lock.held_us).max().unwrap_or_default());
    let until_now = |server: &Server| server.idle_us + server.idle_since.map_or(0, |since| run.now - since);
    let idle: u64 = run.servers.iter().map(until_now).sum();
    let outcome = Outcome {
        rate: run.done * 1e6 / WINDOW_US as f64,
        cursor: busiest(&run.cursors),
        counts: busiest(&run.counts),
        idle: share(idle) / fleet.servers as f64,
    };
    let most = fleet.servers as f64 * fleet.cores / fleet.server_us * 1e6;
    assert!(outcome.rate <= 1.01 * most, "{outcome:?} is more than servers can seal");
    outcome
}

impl Run<'_> {
    fn at(&mut self, after_us: u64, event: Event) {
        self.events.push(Reverse((self.now + after_us, event)));
    }

    fn until(&mut self, end: u64) {
        while let Some(&Reverse((at, event))) = self.events.peek() {
            if at > end {
                break;
            }
            self.events.pop();
            self.now = at;
            match event {
                Event::Look(server) => {
                    self.servers[server].is_resting = false;
                    self.look(server);
                }
                Event::Taken(server, lane) => self.has_taken(server, lane),
                Event::Posted(server, lane) => self.has_posted(server, lane),
                Event::Settled(server, lane) => self.has_settled(server, lane),
            }
        }
        self.now = end;
    }

    /// Begins to count.
    fn forget(&mut self) {
        self.done = 0.0;
        self.cursors.iter_mut().chain(&mut self.counts).for_each(|lock| lock.held_us = 0);
        for server in &mut self.servers {
            server.idle_us = 0;
            server.idle_since = server.idle_since.map(|_| self.now);
        }
    }

    /// Duration of a transaction: longer if more transactions than cores are active.
    fn takes(&self, us: f64) -> u64 {
        let cores = (self.fleet.postgres_cores - self.fleet.servers as f64 * self.fleet.rest_cores).max(0.1);
        (us * (self.active / cores).max(1.0)) as u64
    }

    fn look(&mut self, server: usize) {
        let Server { ahead, is_taking, is_resting, .. } = &self.servers[server];
        if *is_taking || *is_resting || ahead.len() >= AHEAD {
            return;
        }
        // The lane that is furthest behind its share, of the unlocked ones.
        let free = (0..self.fleet.lanes.len()).filter(|lane| !self.cursors[*lane].is_held);
        let behind = |lane: &usize| self.taken[*lane] / self.fleet.lanes[*lane];
        match free.min_by(|a, b| behind(a).total_cmp(&behind(b))) {
            None => {
                self.servers[server].is_resting = true;
                self.at(LOOK_AGAIN_US, Event::Look(server));
            }
            Some(lane) => {
                self.active += 1.0;
                let us = self.takes(self.fleet.take_us);
                self.cursors[lane].is_held = true;
                self.cursors[lane].held_us += us;
                self.taken[lane] += self.fleet.batch;
                self.servers[server].is_taking = true;
                self.at(us, Event::Taken(server, lane));
            }
        }
    }

    fn has_taken(&mut self, server: usize, lane: usize) {
        self.active -= 1.0;
        self.cursors[lane].is_held = false;
        self.servers[server].is_taking = false;
        self.servers[server].ahead.push_back(lane);
        self.post(server);
        self.look(server);
    }

    fn post(&mut self, server: usize) {
        let state = &mut self.servers[server];
        if state.is_posting {
            return;
        }
        // What has to be written down does not pile up without end.
        let next = if state.posted.len() > AHEAD { None } else { state.ahead.pop_front() };
        let Some(lane) = next else {
            state.idle_since = state.idle_since.or(Some(self.now));
            return;
        };
        state.idle_us += state.idle_since.take().map_or(0, |since| self.now - since);
        state.is_posting = true;
        let us = self.fleet.batch * self.fleet.server_us / self.fleet.cores;
        self.at(us as u64, Event::Posted(server, lane));
    }

    fn has_posted(&mut self, server: usize, lane: usize) {
        self.servers[server].is_posting = false;
        self.servers[server].posted.push_back(lane);
        self.settle(server);
        self.post(server);
        self.look(server);
    }

    fn settle(&mut self, server: usize) {
        while self.servers[server].settling < SETTLED_AT_ONCE {
            let Some(lane) = self.servers[server].posted.pop_front() else { return };
            self.servers[server].settling += 1;
            if self.counts[lane].is_held {
                self.counts[lane].waiting.push_back(server); // which uses nothing of Postgres
            } else {
                self.active += 1.0;
                self.hold_counts(server, lane);
            }
        }
    }

    fn hold_counts(&mut self, server: usize, lane: usize) {
        let us = self.takes(self.fleet.settle_us);
        self.counts[lane].is_held = true;
        self.counts[lane].held_us += us;
        self.at(us, Event::Settled(server, lane));
    }

    fn has_settled(&mut self, server: usize, lane: usize) {
        self.done += self.fleet.batch;
        self.servers[server].settling -= 1;
        match self.counts[lane].waiting.pop_front() {
            Some(next) => self.hold_counts(next, lane),
            None => {
                self.counts[lane].is_held = false;
                self.active -= 1.0;
            }
        }
        self.settle(server);
        self.post(server);
    }
}
