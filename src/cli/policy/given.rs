//! Reads the policies that are named on the command line.

use std::io::Read as _;

use serde_json::{Value, json};

use super::PolicyArgs;
use bellwire_core::delivery::Tier;
use bellwire_rules::policy::{Layer, Places, Policy, PolicyError, PolicyLevel, Terms};

/// Maximum bytes of a policy or scenario.
const TEXT_MAX: u64 = 65_536;

/// An argument is not a valid policy: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct WrongPolicy(pub String);

/// A policy with its name in legends and columns.
pub(crate) struct NamedPolicy {
    pub name: String,
    pub policy: Policy,
    pub warnings: Vec<PolicyError>,
}

impl PolicyArgs {
    /// Returns all policies in the order given, presets last. Without any, the default of the tier: `--tier`, or else `tier`,
    /// or else promotional.
    pub(crate) fn read(&self, tier: Option<Tier>) -> Result<Vec<NamedPolicy>, WrongPolicy> {
        let tier = self.tier.or(tier).unwrap_or(Tier::Promotional);
        let mut policies = Vec::new();
        for (n, argument) in self.policy.iter().enumerate() {
            let (name, source) = named(argument);
            let label = name.map_or_else(|| short(source, n), str::to_owned);
            let text = read(source).map_err(|why| WrongPolicy(format!("--policy {source}: {why}")))?;
            let value = serde_json::from_str(&text).map_err(|why| WrongPolicy(format!("--policy {label}: {why}")))?;
            policies.push(self.parsed(label, &value, tier)?);
        }
        for preset in &self.preset {
            policies.push(self.parsed(preset.clone(), &json!({ "preset": preset }), tier)?);
        }
        if policies.is_empty() {
            let name = format!("default of {}", tier.name());
            policies.push(NamedPolicy { name, policy: Policy::tier_default(tier), warnings: Vec::new() });
        }
        Ok(policies)
    }

    fn parsed(&self, name: String, value: &Value, tier: Tier) -> Result<NamedPolicy, WrongPolicy> {
        // At a tier everything may be given, the breaker's figures included.
        let terms = Terms { place: PolicyLevel::Tier, max_retries: self.max_retries };
        let parsed = Layer::parse(value, &terms).map_err(|errors| {
            let lines: Vec<_> = errors.iter().map(|error| describe(&error.pointer, &error.detail)).collect();
            WrongPolicy(format!("--policy {name}: {}", lines.join("\n  ")))
        })?;
        for PolicyError { pointer, detail } in &parsed.warnings {
            eprintln!("bellwire: {name}: {}", describe(pointer, detail));
        }
        let places = Places { tier: Some(&parsed.layer), ..Places::default() };
        Ok(NamedPolicy { name, policy: Policy::in_force(tier, &places), warnings: parsed.warnings })
    }
}

/// Describes a fault with its pointer. An empty pointer means the whole policy.
pub(super) fn describe(pointer: &str, detail: &str) -> String {
    if pointer.is_empty() { detail.to_owned() } else { format!("{pointer}: {detail}") }
}

/// Splits `NAME=` off an argument. A name has no quotes or braces, so that JSON is never taken for one.
fn named(argument: &str) -> (Option<&str>, &str) {
    match argument.split_once('=') {
        Some((name, source)) if !name.is_empty() && !name.contains(['{', '"', '@']) => (Some(name.trim()), source),
        _ => (None, argument),
    }
}

/// Returns a name for a policy without one.
fn short(source: &str, n: usize) -> String {
    match source.strip_prefix('@') {
        Some(file) => file.rsplit('/').next().unwrap_or(file).trim_end_matches(".json").to_owned(),
        None => format!("policy {}", n + 1),
    }
}

/// Reads the text of an argument: itself, @FILE, or - for standard input.
pub(super) fn read(source: &str) -> Result<String, String> {
    let mut text = String::new();
    let read = match (source, source.strip_prefix('@')) {
        ("-", _) => std::io::stdin().take(TEXT_MAX + 1).read_to_string(&mut text),
        (_, Some(file)) => std::fs::File::open(file).and_then(|file| file.take(TEXT_MAX + 1).read_to_string(&mut text)),
        _ => return Ok(source.to_owned()),
    };
    match read {
        Ok(n) if n as u64 <= TEXT_MAX => Ok(text),
        Ok(_) => Err(format!("longer than {TEXT_MAX} octets")),
        Err(why) => Err(why.to_string()),
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/cli/policy/given.rs"]
mod tests;
