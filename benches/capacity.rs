//! Ten million, a hundred million, a billion subscribers, on paper: machines, connections, write-ahead log, disks and money, and what
//! becomes scarce first. Nothing is measured here: what it reckons with was, by `scripts/bench statements campaign receipts`, and is
//! printed first. docs/scale.md quotes the tables. `scripts/bench capacity`
//!
//! `WITHIN_MIN` minutes that a campaign may take (60), `RETENTION_DAYS` that attempts and receipts are kept (35), `MULTI_BUFFER=1`
//! for servers that seal eight at a time.

mod fleet;

use self::fleet::Fleet;
use crate::support::setting;
use crate::support::table::number;

/// Measurements on two cores of an AMD EPYC under other load: half as fast as the best figures in docs/scale.md.
mod measured {
    /// CPU of a delivery in µs, sealed one at a time and eight at a time, and in Postgres.
    pub const SERVER_US: f64 = 120.0;
    pub const SERVER_EIGHT_US: f64 = 61.0;
    pub const POSTGRES_US: f64 = 13.0;
    /// A receipt, in lists of a hundred.
    pub const RECEIPT_SERVER_US: f64 = 2.6;
    pub const RECEIPT_POSTGRES_US: f64 = 12.2;
    /// Recipients of a batch. Time that taking one locks the cursor of a lane, and writing one locks the row of counts, in µs: the
    /// remaining statements plus half a millisecond for the commit.
    pub const BATCH: f64 = 500.0;
    pub const TAKE_US: f64 = 2_300.0;
    pub const SETTLE_US: f64 = 3_400.0;
    /// Octets: of write-ahead log for each delivery, of its attempt with its index, of a subscription with its indexes.
    pub const WAL: f64 = 259.0;
    pub const ATTEMPT: f64 = 184.0;
    pub const SUBSCRIPTION: f64 = 829.0;
    /// Cores of Postgres and of itself that a server takes by being there.
    pub const REST_POSTGRES: f64 = 0.014;
}

/// Assumptions: change them here.
mod assumed {
    /// Share of the audience in each lane: one VAPID key, four push services.
    pub const LANES: [f64; 4] = [0.68, 0.18, 0.09, 0.05];
    /// Of all deliveries, so many are reported as displayed, clicked or closed.
    pub const RECEIPTS: f64 = 0.6;
    /// Bytes of a receipt with its index, the same as for an attempt; bytes of a request to a push service on the network.
    pub const RECEIPT: f64 = 180.0;
    pub const REQUEST: f64 = 800.0;
    /// Cores of a server, and of the machines that Postgres may have.
    pub const SERVER_CORES: f64 = 8.0;
    pub const POSTGRES_CORES: [f64; 6] = [2.0, 8.0, 16.0, 32.0, 64.0, 128.0];
    /// Share of the cores that may be in use at the peak of a campaign.
    pub const LOAD: f64 = 0.7;
    /// Limits of one Postgres: bytes per second of its log disk and its line to standbys; bytes of its disk.
    pub const WAL_MAX: f64 = 500e6;
    pub const DISK_MAX: f64 = 64e12;
    /// Connections of a server (`BELLWIRE_DATABASE_CONNECTIONS`), and how many one Postgres should have.
    pub const CONNECTIONS: f64 = 8.0;
    pub const CONNECTIONS_MAX: f64 = 2_000.0;
    /// Dollars a month for a core with its memory, and for a gigabyte of fast disk: what large clouds ask without commitment.
    pub const CORE: f64 = 30.0;
    pub const GIGABYTE: f64 = 0.10;
}

/// One size, and what it takes.
struct Size {
    subscribers: f64,
    campaigns_a_day: f64,
    /// Deliveries a second, while a campaign goes out.
    rate: f64,
    servers: f64,
    postgres_cores: f64,
    wal_per_s: f64,
    disk: f64,
}

pub fn run() {
    let within_s = f64::from(setting("WITHIN_MIN", 60)) * 60.0;
    let days = f64::from(setting("RETENTION_DAYS", 35));
    let server_us = if setting("MULTI_BUFFER", 0) > 0 { measured::SERVER_EIGHT_US } else { measured::SERVER_US };
    println!(
        "\nReckoned with {server_us} µs of server and {} µs of Postgres a delivery, {} octets of log, {} of attempt, {} of a \
         subscription;\ncampaigns to everybody within {} minutes, history for {days} days\n",
        measured::POSTGRES_US,
        measured::WAL,
        measured::ATTEMPT,
        measured::SUBSCRIPTION,
        within_s / 60.0
    );
    println!(
        "{:>13} {:>8} {:>12} {:>8} {:>9} {:>8} {:>8} {:>8} {:>9} {:>10}  scarce first",
        "subscribers",
        "per day",
        "deliveries/s",
        "servers",
        "Postgres",
        "conn.",
        "WAL",
        "disk",
        "Gbit/s out",
        "$ a month"
    );
    for subscribers in [10e6, 100e6, 1e9] {
        for campaigns_a_day in [1.0, 10.0] {
            show(&Size::of(subscribers, campaigns_a_day, within_s, days, server_us));
        }
    }
    fleets(server_us);
}

impl Size {
    fn of(subscribers: f64, campaigns_a_day: f64, within_s: f64, days: f64, server_us: f64) -> Self {
        let rate = subscribers / within_s;
        let receipts = rate * assumed::RECEIPTS;
        let server_cores = (rate * server_us + receipts * measured::RECEIPT_SERVER_US) / 1e6 / assumed::LOAD;
        // One more than it takes, so that one may die.
        let servers = (server_cores / assumed::SERVER_CORES).ceil() + 1.0;
        let working = (rate * measured::POSTGRES_US + receipts * measured::RECEIPT_POSTGRES_US) / 1e6;
        let kept = subscribers * campaigns_a_day * days;
        Self {
            subscribers,
            campaigns_a_day,
            rate,
            servers,
            postgres_cores: (working + servers * measured::REST_POSTGRES) / assumed::LOAD,
            wal_per_s: rate * measured::WAL + receipts * 2.0 * assumed::RECEIPT,
            disk: subscribers * measured::SUBSCRIPTION
                + kept * (measured::ATTEMPT + assumed::RECEIPTS * assumed::RECEIPT),
        }
    }

    /// Resource closest to its limit, and its use.
    fn scarce(&self) -> (&'static str, f64) {
        let lane = assumed::LANES.into_iter().fold(0.0, f64::max) * self.rate;
        let [.., largest] = assumed::POSTGRES_CORES;
        [
            ("a lane's row of counts", lane / measured::BATCH * measured::SETTLE_US / 1e6),
            ("cores of Postgres", self.postgres_cores / largest),
            ("write-ahead log", self.wal_per_s / assumed::WAL_MAX),
            ("disk of Postgres", self.disk / assumed::DISK_MAX),
            ("connections", self.servers * assumed::CONNECTIONS / assumed::CONNECTIONS_MAX),
        ]
        .into_iter()
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .expect("there are some")
    }

    /// A month of servers, of one Postgres and a standby, and of their disks.
    fn dollars(&self) -> f64 {
        let [.., largest] = assumed::POSTGRES_CORES;
        let machine = assumed::POSTGRES_CORES.into_iter().find(|cores| *cores >= self.postgres_cores);
        let postgres = machine.unwrap_or((self.postgres_cores / largest).ceil() * largest);
        let cores = self.servers * assumed::SERVER_CORES + 2.0 * postgres;
        cores * assumed::CORE + 2.0 * self.disk / 1e9 * assumed::GIGABYTE
    }
}

fn show(size: &Size) {
    let (what, share) = size.scarce();
    let gbit = size.rate * assumed::REQUEST * 8.0 / 1e9;
    println!(
        "{:>13} {:>8} {:>12} {:>8} {:>9} {:>8} {:>8} {:>8} {gbit:>10.2} {:>10}  {what}, {:.0} % of the limit",
        number(size.subscribers),
        size.campaigns_a_day,
        number(size.rate),
        size.servers,
        format!("{:.1}", size.postgres_cores),
        size.servers * assumed::CONNECTIONS,
        format!("{:.0} MB/s", size.wal_per_s / 1e6),
        format!("{:.1} TB", size.disk / 1e12),
        number(1e2 * (size.dollars() / 1e2).round()),
        100.0 * share
    );
}

/// Simulates fleets on one Postgres, with the measured lanes and with two keys instead of one.
fn fleets(server_us: f64) {
    let [.., postgres_cores] = assumed::POSTGRES_CORES;
    let doubled: Vec<f64> = assumed::LANES.iter().flat_map(|share| [share / 2.0; 2]).collect();
    println!(
        "\nServers of {} cores on one Postgres of {postgres_cores}, a campaign without end, simulated\n",
        assumed::SERVER_CORES
    );
    println!(
        "{:>8} {:>8} {:>14} {:>10} {:>16} {:>16} {:>12}",
        "servers", "lanes", "deliveries/s", "of alone", "cursor locked", "counts locked", "servers idle"
    );
    for lanes in [&assumed::LANES[..], &doubled] {
        let mut alone = None;
        for servers in [1, 8, 25, 50, 100, 200] {
            let outcome = fleet::run(Fleet {
                servers,
                cores: assumed::SERVER_CORES,
                postgres_cores,
                lanes,
                batch: measured::BATCH,
                server_us,
                take_us: measured::TAKE_US,
                settle_us: measured::SETTLE_US,
                rest_cores: measured::REST_POSTGRES,
            });
            let each = outcome.rate / servers as f64;
            println!(
                "{servers:>8} {:>8} {:>14} {:>10.2} {:>14.0} % {:>14.0} % {:>10.0} %",
                lanes.len(),
                number(outcome.rate),
                each / *alone.get_or_insert(each),
                100.0 * outcome.cursor,
                100.0 * outcome.counts,
                100.0 * outcome.idle
            );
        }
    }
}
