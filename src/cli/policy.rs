//! `bellwire policy`: delivery policies and their simulation. Needs no server and no database.

mod given;
mod simulate;

use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde_json::json;

use super::a_tier;
use super::output::Output;
use bellwire_core::delivery::Tier;
use bellwire_rules::policy::chart::{Curve, timetable_svg, timetable_text};
use bellwire_rules::policy::preview::preview;
use bellwire_rules::policy::{Guide, Preset, TierDefaults};
pub(crate) use given::WrongPolicy;

/// Width of charts, in characters.
const CHART_WIDTH: usize = 100;

/// Verbs about delivery policies.
#[derive(Debug, Subcommand)]
pub(super) enum Policy {
    /// Show a policy's timetable: each retry's phase and delay.
    #[command(after_help = "Examples:
  bellwire policy preview --tier transactional
  bellwire policy preview --policy '{\"baseDelayMs\": 1000, \"maxAttempts\": 8}'
  bellwire policy preview --policy old=@old.json --policy new=@new.json --svg delays.svg")]
    Preview(Preview),
    /// Try a policy out: a million deliveries against a described gateway, on a simulated clock.
    Simulate(simulate::Simulate),
}

impl Policy {
    pub(super) fn run(&self, out: Output) -> anyhow::Result<()> {
        match self {
            Policy::Preview(args) => args.run(out),
            Policy::Simulate(args) => args.run(out),
        }
    }
}

/// Policies given by arguments.
#[derive(Debug, Args)]
pub(super) struct PolicyArgs {
    /// A policy: JSON, @FILE, or - for standard input; NAME= before it names it. Can be given several times.
    #[arg(long, value_name = "[NAME=]POLICY")]
    policy: Vec<String>,
    /// A fixed policy of Amazon SNS, or all that the web-push retry guide publishes.
    #[arg(long, value_parser = PossibleValuesParser::new(Preset::ALL.map(Preset::name).into_iter().chain([Guide::PRESET])))]
    preset: Vec<String>,
    /// Use the default policy of this tier; also completes a partial policy [default: promotional].
    #[arg(long, value_parser = a_tier())]
    tier: Option<Tier>,
    /// The most that `retries` of QStash's form may ask for, and its default.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    max_retries: u32,
}

/// Arguments of `bellwire policy preview`.
#[derive(Debug, Args)]
pub(super) struct Preview {
    #[command(flatten)]
    given: PolicyArgs,
    /// Time to live of the message, at whose end retries end [default: that of the tier].
    #[arg(long, value_name = "SECONDS")]
    ttl: Option<u32>,
    /// Draw the delays over the number of the retry into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl Preview {
    fn run(&self, out: Output) -> anyhow::Result<()> {
        let policies = self.given.read(None)?;
        let tier = self.given.tier.unwrap_or(Tier::Promotional);
        let ttl_s = self.ttl.unwrap_or(TierDefaults::of(tier).ttl_s);
        let tables: Vec<_> = policies.iter().map(|named| preview(&named.policy, Some(ttl_s))).collect();
        if let Some(file) = &self.svg {
            let curves: Vec<_> =
                policies.iter().zip(&tables).map(|(named, table)| Curve { name: &named.name, table }).collect();
            write_svg(file, &timetable_svg("Delay before each retry", &curves), out)?;
        }
        let machine: Vec<_> = policies
            .iter()
            .zip(&tables)
            .map(|(named, table)| {
                json!({"name": named.name, "policy": named.policy.to_json(), "timetable": table, "warnings": named.warnings})
            })
            .collect();
        let people: Vec<_> = policies
            .iter()
            .zip(&tables)
            .map(|(named, table)| {
                let heading = if policies.len() > 1 { format!("{}\n", named.name) } else { String::new() };
                format!("{heading}{table}\n{}", timetable_text(table, CHART_WIDTH))
            })
            .collect();
        out.say(&json!({"policies": machine}), people.join("\n").trim_end())?;
        Ok(())
    }
}

/// Writes an SVG chart.
fn write_svg(file: &Path, svg: &str, out: Output) -> anyhow::Result<()> {
    use anyhow::Context as _;
    std::fs::write(file, svg).with_context(|| format!("cannot write {}", file.display()))?;
    out.note(&format!("drawn into {}", file.display()));
    Ok(())
}
