//! Messages of one run of a campaign: one for each variant. A campaign by local time has one for each group of zones, and a
//! variant at own hours has one for each hour of the day.

use chrono::TimeDelta;
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::plan::{FollowCondition, Plan, PlannedMessage, Test, WHOLE};
use super::schedule::When;
use super::zones::{self, Zones};
use bellwire_core::clock::{Timestamp, derived_uuid_of, time_of};
use bellwire_core::id::CampaignId;
use bellwire_segment::{AudienceFilter, Expression, OwnHour, Portion, SLOTS};

/// Maximum time zones in one list of an expression, which cannot hold all zones.
const ZONES_OF_LIST: usize = 400;

/// A share of everybody, by a hash of each person: those whose number, of ten thousand, is in `from..to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    pub from: u16,
    pub to: u16,
}

impl Share {
    const ALL: Self = Self { from: 0, to: WHOLE };

    /// Nothing to narrow if it is everybody.
    fn narrowing(self) -> Option<Self> {
        (self != Self::ALL).then_some(self)
    }
}

/// Part of its campaign's audience that a message is for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Narrow {
    /// Of these zones; none: of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zones: Option<Zones>,
    /// Of this share; none: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// With their own hour then; none: whenever that is.
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

/// The root of a run's delivery ids. A run that is repeated since a restored backup or a failover forgot it has the same root. A
/// campaign that does not recur runs once, so that its root does not depend on when it is started.
pub fn root(plan: &Plan, campaign: CampaignId, at: Timestamp) -> Uuid {
    let at = if matches!(plan.when, When::Cron(_)) { at } else { time_of(campaign.0).unwrap_or_default() };
    derived_uuid_of(at, &[b"run of a campaign", campaign.0.as_bytes(), &at.timestamp_micros().to_be_bytes()])
}

/// The parts of a run that is for `at`; of a plan with a test, those of the test.
pub fn of_run(plan: &Plan, at: Timestamp, home: Tz) -> Vec<CampaignPart> {
    let shares = shares(plan);
    let groups = match &plan.when {
        When::Recipients { local, past } => {
            zones::groups(*local, *past, home, at).into_iter().map(|(at, zones)| (at, Some(zones))).collect()
        }
        When::Now | When::At(_) | When::Cron(_) | When::After(_) => vec![(at, None)],
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

/// A part in 24: one for each hour from when it is due.
fn by_own_hour(part: &CampaignPart, home: Tz) -> impl Iterator<Item = CampaignPart> {
    (0..SLOTS).map(move |slot| {
        let own_hour = Some(OwnHour { from: part.due_at, slot, home });
        let due_at = part.due_at + TimeDelta::hours(slot.into());
        CampaignPart { due_at, variant: part.variant, narrow: Narrow { own_hour, ..part.narrow.clone() } }
    })
}

/// The part that the rest of the audience gets after a test: that variant.
pub fn of_rest(plan: &Plan, test: Test, variant: usize, at: Timestamp) -> CampaignPart {
    let share = Share { from: tested(plan, test).to, to: WHOLE };
    CampaignPart { due_at: at, variant, narrow: Narrow { share: share.narrowing(), ..Narrow::default() } }
}

/// Returns the filter of a message: the campaign's own segment, the share, the zones, the own hour, and the condition of a
/// follow-up. `None`: the filter cannot be expressed.
pub fn filter(
    plan: &Plan,
    campaign: CampaignId,
    body: &PlannedMessage,
    narrow: &Narrow,
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

/// Returns the share of each variant. Shares are consecutive, so no person gets two variants. The holdout comes first, and the
/// rest after a test comes last.
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
mod tests {
    use serde_json::json;

    use super::super::plan::{CampaignAudience, CampaignVariant, Otherwise, PlannedMessage};
    use super::*;
    use bellwire_core::delivery::{Tier, Urgency};

    fn now() -> Timestamp {
        "2026-12-01T08:30:00Z".parse().unwrap()
    }

    fn plan(weights: &[u16], holdout: u16, test: Option<Test>) -> Plan {
        let body = PlannedMessage {
            tier: Tier::Promotional,
            to: json!({"all": true}),
            audience: CampaignAudience::All,
            filter: None,
            content: serde_json::from_value(json!({"raw": {"payload": "x", "envelope": true}})).unwrap(),
            ttl_s: 60,
            urgency: Urgency::Normal,
            topic_header: None,
            policy: None,
            enveloped: true,
        };
        let variants = weights.iter().map(|weight| CampaignVariant {
            name: String::new(),
            weight: *weight,
            at_own_hour: false,
            body: body.clone(),
        });
        let variants = variants.collect();
        Plan { variants, when: When::Now, pace: None, test, holdout, expires_at: None, follows: None }
    }

    fn shares_of(parts: &[CampaignPart]) -> Vec<(usize, u16, u16)> {
        let share = |part: &CampaignPart| part.narrow.share.unwrap_or(Share::ALL);
        parts.iter().map(|part| (part.variant, share(part).from, share(part).to)).collect()
    }

    #[test]
    fn plain_campaign_is_one_unfiltered_message() {
        let parts = of_run(&plan(&[1], 0, None), now(), Tz::UTC);
        assert_eq!(parts, [CampaignPart { due_at: now(), variant: 0, narrow: Narrow::default() }]);
    }

    #[test]
    fn variants_divide_the_audience_by_weight() {
        for (weights, holdout, expected) in [
            (&[1, 1][..], 0, vec![(0, 0, 5_000), (1, 5_000, 10_000)]),
            (&[1, 1, 1], 1_000, vec![(0, 1_000, 4_000), (1, 4_000, 7_000), (2, 7_000, 10_000)]),
            (&[1, 0, 2], 0, vec![(0, 0, 3_333), (2, 3_333, 10_000)]),
            (&[1], 500, vec![(0, 500, 10_000)]),
        ] {
            let parts = of_run(&plan(weights, holdout, None), now(), Tz::UTC);
            assert_eq!(shares_of(&parts), expected, "{weights:?} {holdout}");
        }
    }

    #[test]
    fn rest_gets_the_winner_of_the_test() {
        let test = Test { share: 2_000, after_s: 3_600, confidence: 0.95, otherwise: Otherwise::First };
        let plan = plan(&[1, 1], 1_000, Some(test));
        let parts = of_run(&plan, now(), Tz::UTC);
        assert_eq!(shares_of(&parts), [(0, 1_000, 2_000), (1, 2_000, 3_000)]);
        assert_eq!(shares_of(&[of_rest(&plan, test, 1, now())]), [(1, 3_000, 10_000)]);
    }

    #[test]
    fn own_hours_make_one_message_per_hour() {
        let mut plan = plan(&[1, 1], 0, None);
        plan.variants[1].at_own_hour = true;
        let parts = of_run(&plan, now(), Tz::UTC);
        assert_eq!(parts.iter().filter(|part| part.variant == 0).count(), 1);
        let own: Vec<&CampaignPart> = parts.iter().filter(|part| part.variant == 1).collect();
        let hours = (0..24).map(|slot| (now() + TimeDelta::hours(slot), slot));
        let told =
            own.iter().map(|part| (part.due_at, part.narrow.own_hour.as_ref().map_or(-1, |own| own.slot.into())));
        assert_eq!(told.collect::<Vec<_>>(), hours.collect::<Vec<_>>());
        assert!(own.iter().all(|part| part.narrow.share == Some(Share { from: 5_000, to: 10_000 })));
        plan.expires_at = Some(now() + TimeDelta::minutes(150));
        assert_eq!(of_run(&plan, now(), Tz::UTC).len(), 1 + 3);
    }

    #[test]
    fn local_time_makes_messages_per_zone_group() {
        let local = "2026-12-02T09:00:00".parse().unwrap();
        let mut plan = plan(&[1, 1], 0, None);
        plan.when = When::Recipients { local, past: zones::Past::Skip };
        let all = of_run(&plan, now(), Tz::UTC);
        assert!(all.len() > 60 && all.len().is_multiple_of(2), "{}", all.len());
        plan.expires_at = Some("2026-12-02T00:00:00Z".parse().unwrap());
        let some = of_run(&plan, now(), Tz::UTC);
        assert!(!some.is_empty() && some.len() < all.len());
        assert!(some.iter().all(|part| Some(part.due_at) < plan.expires_at));
    }
}
