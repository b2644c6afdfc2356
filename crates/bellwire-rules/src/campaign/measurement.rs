//! Settings by which an app measures its campaigns.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};

use super::lift::{Effect, Lift};
use super::parts::{CampaignGroup, group_at, variant_at};
use super::plan::{Otherwise, Pace, Plan};
use super::schedule::When;
use bellwire_core::clock::Timestamp;
use bellwire_core::named;

named! {
    /// Receipt from which the window of a conversion counts.
    pub enum TouchKind {
        /// The notification was displayed.
        Displayed = "displayed",
        /// The notification was clicked.
        Clicked = "clicked",
    }
}

named! {
    /// Campaign that gets a conversion if the person was reached by several.
    pub enum Attribution {
        /// The last one before the conversion.
        Last = "last",
        /// The first one within the window.
        First = "first",
    }
}

/// Settings by which an app measures its campaigns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasurementRule {
    /// Seconds after a receipt, or after a campaign's last message, in which conversions count. `None`: none count.
    pub window_s: Option<i64>,
    pub after: TouchKind,
    pub attribution: Attribution,
    /// Parameters for links of notifications. `None`: links stay as they are.
    pub link_tags: Option<LinkTags>,
}

/// Parameters that service workers add to clicked links.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkTags {
    /// Hosts whose links get them: exact names, or `*.` and a domain for its subdomains.
    pub hosts: Vec<String>,
    /// Values by name. `{campaign}` is the campaign's slug, `{variant}` the name of the variant.
    pub parameters: BTreeMap<String, String>,
}

impl LinkTags {
    /// Returns the parameters for a message. Those of the campaign win. Those that name a campaign or variant which the message does not
    /// have are omitted.
    pub fn filled(
        &self, of_campaign: &BTreeMap<String, String>, campaign: Option<&str>, variant: Option<&str>,
    ) -> BTreeMap<String, String> {
        let all = self.parameters.iter().chain(of_campaign).collect::<BTreeMap<_, _>>();
        let fill = |value: &str, name: &str, filling: Option<&str>| match filling {
            Some(filling) => Some(value.replace(name, filling)),
            None => (!value.contains(name)).then(|| value.to_owned()),
        };
        let filled = all.into_iter().filter_map(|(name, value)| {
            let value = fill(value, "{campaign}", campaign)?;
            Some((name.clone(), fill(&value, "{variant}", variant)?))
        });
        filled.collect()
    }
}

/// Maximum time over which a recurring or triggered campaign is measured at once.
const PERIOD_MAX: TimeDelta = TimeDelta::days(30);

/// Returns the time at which the measurement of a campaign that begins now ends: the window after its last message. `last_at`: due time
/// of the last message of its run.
pub fn closes_at(plan: &Plan, window_s: i64, began_at: Timestamp, last_at: Timestamp) -> Timestamp {
    let window = TimeDelta::seconds(window_s);
    match plan.when {
        When::Cron(_) | When::Trigger(_) => {
            plan.expires_at.map_or(began_at + PERIOD_MAX, |end| (end + window).min(began_at + PERIOD_MAX))
        }
        _ => {
            let paced_s = if let Some(Pace::SpreadOver(seconds)) = plan.pace { i64::from(seconds) } else { 0 };
            let test_s = plan.test.map_or(0, |test| test.after_s);
            last_at + TimeDelta::seconds(paced_s + test_s) + window
        }
    }
}

/// Number of the control group among the groups of a measurement. Variants have their index.
pub const CONTROL: i16 = -1;
/// Number of the people who get the winner of an A/B test.
pub const AFTER_TEST: i16 = 100;

/// Whether people of a group are to get the campaign. After a test that ends without a winner, the rest may get nothing.
pub fn is_treated(plan: &Plan, part: i16) -> bool {
    let may_stop = plan.test.is_some_and(|test| test.otherwise == Otherwise::Stop);
    part != CONTROL && !(part == AFTER_TEST && may_stop)
}

/// Whether a campaign divides its audience into groups that can be compared.
pub fn has_groups(plan: &Plan) -> bool {
    plan.holdout > 0 || plan.variants.len() > 1
}

/// Returns the number of a person's group, by the position in ten-thousandths.
pub fn group_number(plan: &Plan, position: u16) -> i16 {
    match group_at(plan, position) {
        CampaignGroup::HeldOut => CONTROL,
        CampaignGroup::AfterTest => AFTER_TEST,
        CampaignGroup::Variant => {
            variant_at(plan, position).and_then(|index| i16::try_from(index).ok()).unwrap_or(AFTER_TEST)
        }
    }
}

/// Describes the effect of a campaign on one kind of conversion in a sentence, with the value in each currency. `is_final`: the
/// window has ended.
pub fn sentence(name: &str, lift: &Lift, values: &[(&str, Lift)], is_final: bool) -> String {
    let needed = lift.people_needed.map(|n| format!("; {} more recipients would be needed", grouped(n as f64)));
    let needed = needed.unwrap_or_default();
    let text = match (lift.effect, lift.relative, lift.additional) {
        (Effect::TooFew, ..) => format!("Too few conversions of `{name}` to compare{needed}"),
        (Effect::None, ..) => format!("No measurable effect on `{name}`{needed}"),
        (effect, Some(relative), _) => {
            let (low, high) = ordered(effect, relative.low * 100.0, relative.high * 100.0);
            format!("{low:.1} to {high:.1} % {} `{name}`", effect.name())
        }
        (effect, None, additional) => {
            let (low, high) = additional.map_or((0.0, 0.0), |total| ordered(effect, total.low, total.high));
            format!("{} to {} {} `{name}`", grouped(low), grouped(high), effect.name())
        }
    };
    let shown = values.iter().filter(|(_, value)| matches!(value.effect, Effect::More | Effect::Fewer));
    let money = shown.filter_map(|(currency, value)| {
        let total = value.additional?;
        let (low, high) = ordered(value.effect, total.low, total.high);
        let sign = if value.effect == Effect::Fewer { " less" } else { "" };
        Some(format!(", {} to {} {currency}{sign}", grouped(low), grouped(high)))
    });
    let so_far = if is_final { "." } else { ", so far." };
    format!("{text}{}{so_far}", money.collect::<String>())
}

/// Returns the bounds of an effect as positive numbers, the smaller one first.
fn ordered(effect: Effect, low: f64, high: f64) -> (f64, f64) {
    if effect == Effect::Fewer { (-high, -low) } else { (low, high) }
}

/// Writes a number without decimals, with commas between thousands. From 1,000 on it has two significant digits.
fn grouped(number: f64) -> String {
    let unit = if number >= 1_000.0 { 10_f64.powf(number.log10().floor() - 1.0) } else { 1.0 };
    let digits = format!("{:.0}", (number / unit).round() * unit);
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
#[path = "../../../../tests/crates/rules/unit/campaign/measurement.rs"]
mod tests;
