//! Measures what docs/scale.md quotes: `cargo bench --bench bellwire -- campaign codes`, or `scripts/bench`. One program, so
//! that the crate is linked once. Settings come from the environment; each module names its own.
#![allow(clippy::print_stdout, reason = "a benchmark's table is its result")]
#![allow(unreachable_pub, reason = "nobody is outside")]
#![allow(clippy::disallowed_methods, reason = "no test drops what begins a transaction")]

mod backups;
mod campaign;
mod capacity;
mod caps;
mod codes;
mod events;
mod exports;
mod failures;
mod footprint;
mod imports;
mod lanes;
mod latency;
mod listeners;
mod metrics;
mod pages;
mod peers;
mod post;
mod receipts;
mod replicas;
mod results;
mod scale;
mod scheduled;
mod sealing;
mod segments;
mod simulator;
mod statements;
mod streams;
mod support;
mod templates;
mod tiers;
mod webhooks;
mod withdrawals;

use bellwire::testkit::cli::admin::raise_open_files;
use clap::{Parser, ValueEnum};
use tokio::runtime::Runtime;

/// Measures what docs/scale.md quotes, on an otherwise idle machine.
#[derive(Parser)]
#[command(bin_name = "scripts/bench")]
struct Arguments {
    /// Benchmarks to run, one after the other [default: all]
    #[arg(value_enum, value_name = "BENCHMARK")]
    benchmarks: Vec<Benchmark>,
    /// List the benchmarks instead
    #[arg(long)]
    list: bool,
    /// Flag that cargo adds to distinguish benchmarks from tests
    #[arg(long, hide = true)]
    bench: bool,
}

/// In the order in which all of them run.
#[derive(Clone, Copy, ValueEnum)]
enum Benchmark {
    /// Cost of preparing one push message, beside other libraries
    Sealing,
    /// Cost of one POST on the client's side
    Post,
    /// Cost of the simulator, as a check of the other figures
    Simulator,
    /// A campaign through the real server
    Campaign,
    /// The same with and without listeners to the event stream
    Listeners,
    /// Messages to segments, common and rare
    Segments,
    /// The same with and without frequency caps
    Caps,
    /// Receipts, stored before they are answered
    Receipts,
    /// The same with and without webhooks, one of which hangs
    Webhooks,
    /// Events of users, people who wait because of them, and their messages
    Events,
    /// Conversions, and the result of a campaign to a million
    Results,
    /// Cost of a withdrawal, beside its campaign
    Withdrawals,
    /// One-time codes when nothing else is sent
    Codes,
    /// One-time codes beside campaigns
    Latency,
    /// One-time codes beside a campaign, behind 4 and 24 streams
    Streams,
    /// Cost of templates per recipient
    Templates,
    /// Shares of the tiers under scarcity
    Tiers,
    /// Cost of random failures in a campaign
    Failures,
    /// Thousands of lanes with a little work each
    Lanes,
    /// Figures over time, with a hundred million deliveries behind them
    Metrics,
    /// Every page of the admin page, with ten million deliveries in the database
    Pages,
    /// An idle server without and with a million messages for later
    Scheduled,
    /// Whether cost and memory grow with the audience
    Scale,
    /// Memory and idle CPU of a small installation, Postgres included; fails above 256 MiB and 0.3 % of a core
    Footprint,
    /// Cost of a delivery with one, two, four and eight servers
    Replicas,
    /// Campaigns beside backups
    Backups,
    /// Postgres cost of each statement of a campaign
    Statements,
    /// Machines, disks and money for up to a billion subscribers, reckoned
    Capacity,
    /// Import of subscriptions from a file
    Imports,
    /// Subscriptions taken out
    Exports,
    /// Cost of other senders with the same payload
    Peers,
}

fn main() {
    let Arguments { benchmarks, list, .. } = Arguments::parse();
    let everything = Benchmark::value_variants();
    if list {
        return everything.iter().filter_map(ValueEnum::to_possible_value).for_each(|benchmark| {
            println!("{:<10} {}", benchmark.get_name(), benchmark.get_help().cloned().unwrap_or_default());
        });
    }
    raise_open_files();
    for benchmark in if benchmarks.is_empty() { everything } else { &benchmarks } {
        println!("\n== {}", benchmark.to_possible_value().expect("none is hidden").get_name());
        benchmark.run();
    }
}

impl Benchmark {
    /// Panics where what is measured does not do its work in full; a bar that is missed is only shown, but for the footprint's.
    fn run(self) {
        match self {
            Self::Sealing => sealing::run(),
            Self::Post => post::run(),
            Self::Simulator => simulator::run(),
            Self::Campaign => block_on(campaign::run()),
            Self::Listeners => block_on(listeners::run()),
            Self::Segments => block_on(segments::run()),
            Self::Caps => block_on(caps::run()),
            Self::Receipts => block_on(receipts::run()),
            Self::Webhooks => block_on(webhooks::run()),
            Self::Events => block_on(events::run()),
            Self::Results => block_on(results::run()),
            Self::Withdrawals => block_on(withdrawals::run()),
            Self::Codes => block_on(codes::run()),
            Self::Latency => block_on(latency::run()),
            Self::Streams => block_on(streams::run()),
            Self::Templates => block_on(templates::run()),
            Self::Tiers => block_on(tiers::run()),
            Self::Failures => block_on(failures::run()),
            Self::Lanes => block_on(lanes::run()),
            Self::Metrics => block_on(metrics::run()),
            Self::Pages => block_on(pages::run()),
            Self::Scheduled => block_on(scheduled::run()),
            Self::Scale => block_on(scale::run()),
            Self::Footprint => block_on(footprint::run()),
            Self::Replicas => block_on(replicas::run()),
            Self::Backups => block_on(backups::run()),
            Self::Statements => block_on(statements::run()),
            Self::Capacity => capacity::run(),
            Self::Imports => block_on(imports::run()),
            Self::Exports => block_on(exports::run()),
            Self::Peers => block_on(peers::run()),
        }
    }
}

/// Each has threads of its own, so that it leaves nothing to the next.
fn block_on(benchmark: impl Future<Output = ()>) {
    Runtime::new().expect("threads start").block_on(benchmark);
}
