//! Messages of one run of a campaign: one for each variant. A campaign by local time has one for each group of time zones, and
//! a variant at own hours has one for each hour of the day.

use chrono::TimeDelta;
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::follow::FollowCondition;
use super::plan::{Plan, PlannedMessage, Test, WHOLE};
use super::schedule::When;
use super::zones::{self, Zones};
use bellwire_core::clock::{Timestamp, derived_uuid_of, time_of};
use bellwire_core::id::CampaignId;
use bellwire_segment::{AudienceFilter, Expression, OwnHour, Portion, SLOTS};

/// Maximum time zones in one list of an expression, which has a limited size.
const ZONES_OF_LIST: usize = 400;

/// Share of an audience, by a hash of each person: those with a number (of ten thousand) in `from..to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    pub from: u16,
    pub to: u16,
}

impl Share {
    const ALL: Self = Self { from: 0, to: WHOLE };

    /// Returns `None` for the whole audience.
    fn narrowing(self) -> Option<Self> {
        (self != Self::ALL).then_some(self)
    }
}

/// Part of its campaign's audience that a message is for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Narrow {
    /// Time zones. `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zones: Option<Zones>,
    /// Share of the audience. `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// Recipients with this own hour. `None`: any hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_hour: Option<OwnHour>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CampaignPart {
    pub due_at: Timestamp,
    /// Index of the variant.
    pub variant: usize,
    pub narrow: Narrow,
}

/// Returns the id from which a run's delivery ids are derived. A run that is repeated, because a restore or failover lost it,
/// has the same id. A campaign without recurrence runs once, so its id does not depend on the start time.
pub fn root(plan: &Plan, campaign: CampaignId, at: Timestamp) -> Uuid {
    let at = if matches!(plan.when, When::Cron(_)) { at } else { time_of(campaign.0).unwrap_or_default() };
    derived_uuid_of(at, &[b"run of a campaign", campaign.0.as_bytes(), &at.timestamp_micros().to_be_bytes()])
}

/// Returns the messages of a run scheduled for `at`. For a plan with a test, only those of the test.
pub fn of_run(plan: &Plan, at: Timestamp, home: Tz) -> Vec<CampaignPart> {
    let shares = shares(plan);
    let groups = match &plan.when {
        When::Recipients { local, past } => {
            zones::groups(*local, *past, home, at).into_iter().map(|(at, zones)| (at, Some(zones))).collect()
        }
        When::Now | When::At(_) | When::Cron(_) | When::After(_) | When::Trigger(_) => vec![(at, None)],
    };
    let is_in_time = |part: &CampaignPart| plan.expires_at.is_none_or(|end| part.due_at < end);
    let mut parts = Vec::new();
    for (due_at, zones) in groups {
        for (variant, share) in shares.iter().enumerate().filter(|(_, share)| share.from < share.to) {
            let narrow = Narrow { zones: zones.clone(), share: share.narrowing(), own_hour: None };
            let part = CampaignPart { due_at, variant, narrow };
            match plan.variants[variant].at_own_hour {
                true => parts.extend(by_own_hour(&part, home)),
                false => parts.push(part),
            }
        }
    }
    parts.retain(is_in_time);
    parts
}

/// Divides a message into 24: one for each hour from its due time.
fn by_own_hour(part: &CampaignPart, home: Tz) -> impl Iterator<Item = CampaignPart> {
    (0..SLOTS).map(move |slot| {
        let own_hour = Some(OwnHour { from: part.due_at, slot, home });
        let due_at = part.due_at + TimeDelta::hours(slot.into());
        CampaignPart { due_at, variant: part.variant, narrow: Narrow { own_hour, ..part.narrow.clone() } }
    })
}

/// Returns the message of a variant for the rest of the audience after a test.
pub fn of_rest(plan: &Plan, test: Test, variant: usize, at: Timestamp) -> CampaignPart {
    let share = Share { from: tested(plan, test).to, to: WHOLE };
    CampaignPart { due_at: at, variant, narrow: Narrow { share: share.narrowing(), ..Narrow::default() } }
}

/// Returns the filter of a message: the campaign's segment, the share, the time zones, the own hour, and the follow-up
/// condition. `None`: the filter is too large to express.
pub fn filter(
    plan: &Plan, campaign: CampaignId, body: &PlannedMessage, narrow: &Narrow,
) -> Option<Option<AudienceFilter>> {
    let mut filter = body.filter.clone().unwrap_or_default();
    let zones = narrow.zones.as_ref().map(in_zones);
    let followed = plan.follows.as_ref().map(|follow| {
        let act = match follow.did_not {
            FollowCondition::Click => "clicked",
            FollowCondition::Display => "displayed",
        };
        format!("received(\"{of}\") and not {act}(\"{of}\")", of = follow.campaign)
    });
    let more: Vec<String> = zones.into_iter().chain(followed).collect();
    if !more.is_empty() {
        let own = filter.segment.iter().map(|segment| format!("({segment})"));
        let text = own.chain(more).collect::<Vec<_>>().join(" and ");
        filter.segment = Some(serde_json::from_value::<Expression>(text.into()).ok()?);
    }
    if let Some(share) = narrow.share {
        filter.portions.push(Portion { salt: campaign.to_string(), from: share.from, to: share.to });
    }
    filter.own_hour = narrow.own_hour.clone();
    Some((filter != AudienceFilter::default()).then_some(filter))
}

fn in_zones(zones: &Zones) -> String {
    let (not, joint, names) = match zones {
        Zones::In(names) => ("", " or ", names),
        Zones::NotIn(names) => ("not ", " and ", names),
    };
    let of_list = |names: &[String]| {
        let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
        format!("{not}timezone in ({})", quoted.join(", "))
    };
    let lists: Vec<String> = names.chunks(ZONES_OF_LIST).map(of_list).collect();
    format!("({})", lists.join(joint))
}

fn tested(plan: &Plan, test: Test) -> Share {
    Share { from: plan.holdout, to: plan.holdout.saturating_add(test.share).min(WHOLE) }
}

/// Group of a person within a campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CampaignGroup {
    /// The control group, which gets nothing.
    HeldOut,
    /// The share of a variant.
    Variant,
    /// People who get the winner after the A/B test.
    AfterTest,
}

/// Returns the group of a person at this position in ten-thousandths.
pub fn group_at(plan: &Plan, position: u16) -> CampaignGroup {
    match plan.test.map(|test| tested(plan, test).to) {
        _ if position < plan.holdout => CampaignGroup::HeldOut,
        Some(end) if position >= end => CampaignGroup::AfterTest,
        _ => CampaignGroup::Variant,
    }
}

/// Returns the index of the variant for a person at this position in ten-thousandths. `None`: the control group, or the rest
/// after a test.
pub fn variant_at(plan: &Plan, position: u16) -> Option<usize> {
    shares(plan).iter().position(|share| (share.from..share.to).contains(&position))
}

/// Returns the share of each variant. Shares are consecutive, so no person gets two variants. The holdout comes first, and the
/// rest after a test last.
fn shares(plan: &Plan) -> Vec<Share> {
    let all = plan.test.map_or(Share { from: plan.holdout, to: WHOLE }, |test| tested(plan, test));
    let total: u32 = plan.variants.iter().map(|variant| u32::from(variant.weight)).sum();
    let width = u32::from(all.to.saturating_sub(all.from));
    let mut before = 0;
    let bound = |weight: u32| {
        let offset = (width * weight).checked_div(total).unwrap_or(0);
        all.from + u16::try_from(offset).unwrap_or(0)
    };
    let share = |weight: u16| {
        let from = bound(before);
        before += u32::from(weight);
        Share { from, to: bound(before) }
    };
    plan.variants.iter().map(|variant| variant.weight).map(share).collect()
}

#[cfg(test)]
#[path = "../../../../tests/crates/rules/unit/campaign/parts.rs"]
mod tests;
