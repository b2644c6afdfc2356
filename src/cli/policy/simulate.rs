use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::given::{WrongPolicy, describe, read};
use super::{CHART_WIDTH, PolicyArgs, write_svg};
use crate::cli::output::Output;
use bellwire_rules::policy::Policy;
use bellwire_rules::policy::chart::{Panel, load_svg, load_text};
use bellwire_simulator::policies::{self, LoadSeries, STEPS_MAX, Scenario, SimulationReport};

/// Maximum simulations in one call.
const RUNS_MAX: usize = 12;

/// Arguments of `bellwire policy simulate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Built-in scenarios: calm, outage, part, herd, throttled, devices, flaky, slow. --show-scenario prints one, to start your own from.

Examples:
  bellwire policy simulate --scenario outage --compare
  bellwire policy simulate --scenario flaky --tier transactional --svg load.svg
  bellwire policy simulate --scenario @mine.json --policy old=@old.json --policy new=@new.json

The rules, the breaker and the adaptive limit are the server's own; one lane is simulated, and sealing, connections
and the database cost no time."
)]
pub(crate) struct Simulate {
    #[command(flatten)]
    given: PolicyArgs,
    /// Scenario to simulate: a built-in scenario's name, JSON, @FILE, or - for standard input.
    #[arg(long, default_value = "outage")]
    scenario: String,
    /// Print the scenario with everything filled in, and stop.
    #[arg(long)]
    show_scenario: bool,
    /// Simulate so many deliveries instead of the scenario's.
    #[arg(long, value_name = "N")]
    deliveries: Option<u32>,
    /// Live so many seconds instead of the scenario's time to live.
    #[arg(long, value_name = "SECONDS")]
    ttl: Option<u32>,
    /// Delays as they are before jitter, and nothing spread out.
    #[arg(long)]
    without_jitter: bool,
    /// Never stop asking a gateway that fails.
    #[arg(long)]
    without_breaker: bool,
    /// As many POSTs in flight as allowed, however the gateway answers.
    #[arg(long)]
    without_adapting: bool,
    /// Each policy with jitter, breaker and adaptive limit, without each of them, with jitter alone, and with none.
    #[arg(long, conflicts_with_all = ["without_jitter", "without_breaker", "without_adapting"])]
    compare: bool,
    /// Decides all that is random: the same seed gives the same figures.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draw the load on the gateway into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Draw only so many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    until: Option<u32>,
}

/// A scenario and policy to simulate, under a name.
struct SimulationVariant {
    name: String,
    scenario: Scenario,
    policy: Policy,
}

impl Simulate {
    pub(crate) fn run(&self, out: Output) -> anyhow::Result<()> {
        let scenario = self.read_scenario()?;
        if self.show_scenario {
            let value = serde_json::to_value(&scenario)?;
            out.say(&value, &serde_json::to_string_pretty(&scenario)?)?;
            return Ok(());
        }
        let variants = self.variants(&scenario)?;
        let mut reports: Vec<(String, SimulationReport)> = Vec::with_capacity(variants.len());
        for variant in variants {
            let report = policies::run(&variant.scenario, &variant.policy, self.seed, STEPS_MAX)?;
            reports.push((variant.name, report));
        }
        let shaded: Vec<_> = scenario.outages().map(|outage| (outage.from_s, outage.until_s())).collect();
        let panels: Vec<_> = reports
            .iter()
            .map(|(name, report)| Panel {
                name,
                posts_per_s: self.drawn(&report.load),
                bucket_s: report.load.bucket_s,
                shaded_s: &shaded,
            })
            .collect();
        if let Some(file) = &self.svg {
            write_svg(file, &load_svg(&scenario.about, &panels), out)?;
        }
        let results: Vec<_> = reports.iter().map(|(name, report)| json!({"name": name, "report": report})).collect();
        let machine = json!({"scenario": scenario, "seed": self.seed, "results": results});
        let chart = load_text(&panels, CHART_WIDTH);
        let people = format!("{}\n\n{}\nLoad on the gateway\n{chart}", scenario.about, policies::compare(&reports));
        out.say(&machine, people.trim())?;
        Ok(())
    }

    /// Returns the series of a load that the chart shows.
    fn drawn<'a>(&self, load: &'a LoadSeries) -> &'a [u32] {
        let buckets = self.until.map_or(usize::MAX, |until_s| until_s.div_ceil(load.bucket_s) as usize);
        &load.posts_per_s[..buckets.min(load.posts_per_s.len())]
    }

    fn read_scenario(&self) -> Result<Scenario, WrongPolicy> {
        let given = self.scenario.trim();
        let text = match Scenario::built_in(given) {
            Some(text) => text.to_owned(),
            None if given == "-" || given.starts_with(['{', '@']) => {
                read(given).map_err(|why| WrongPolicy(format!("--scenario {given}: {why}")))?
            }
            None => {
                let names: Vec<_> = Scenario::names().collect();
                let known = names.join(", ");
                return Err(WrongPolicy(format!("--scenario {given}: neither JSON, nor @FILE, nor one of {known}")));
            }
        };
        let wrong = |error: policies::ScenarioError| {
            WrongPolicy(format!("--scenario {}", describe(&error.pointer, &error.detail)))
        };
        let mut scenario = Scenario::parse(&text).map_err(wrong)?;
        if let Some(tier) = self.given.tier {
            scenario.tier = tier;
        }
        if let Some(deliveries) = self.deliveries {
            scenario.arrival.deliveries = deliveries;
        }
        scenario.ttl_s = self.ttl.or(scenario.ttl_s);
        scenario.breaker &= !self.without_breaker;
        scenario.jitter &= !self.without_jitter;
        scenario.workers.adaptive &= !self.without_adapting;
        scenario.check().map_err(wrong)?;
        Ok(scenario)
    }

    fn variants(&self, scenario: &Scenario) -> Result<Vec<SimulationVariant>, WrongPolicy> {
        const ALL: [(&str, [bool; 3]); 6] = [
            ("with all three", [true, true, true]),
            ("without jitter", [false, true, true]),
            ("without breaker", [true, false, true]),
            ("without adapting", [true, true, false]),
            ("jitter alone", [true, false, false]),
            ("none of them", [false, false, false]),
        ];
        let policies = self.given.read(Some(scenario.tier))?;
        let several = policies.len() > 1;
        let mut variants = Vec::new();
        for named in policies {
            if !self.compare {
                let scenario = scenario.clone();
                variants.push(SimulationVariant { name: named.name, scenario, policy: named.policy });
                continue;
            }
            for (what, [jitter, breaker, adaptive]) in ALL {
                let name = if several { format!("{}, {what}", named.name) } else { what.to_owned() };
                let mut scenario = Scenario { breaker, jitter, ..scenario.clone() };
                scenario.workers.adaptive = adaptive;
                variants.push(SimulationVariant { name, scenario, policy: named.policy.clone() });
            }
        }
        if variants.len() > RUNS_MAX {
            return Err(WrongPolicy(format!("{} simulations at a time; {RUNS_MAX} are the most", variants.len())));
        }
        Ok(variants)
    }
}
