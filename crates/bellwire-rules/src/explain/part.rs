//! Reasons why a message of a campaign was not for a member of its audience: it was for other time zones, or it follows up a
//! message that the member did not get, or reacted to.

use serde_json::{Value, json};

use super::Story;
use super::phrases::rfc3339;
use crate::campaign::parts::CampaignGroup;
use bellwire_core::clock::Timestamp;

/// Position of a message in its campaign, as far as it determines the recipients.
#[derive(Debug, Clone)]
pub struct ExplainedPart {
    /// Relation of the subscription's time zone to the message. `None`: the campaign does not use recipients' time zones.
    pub zone: Option<ByZone>,
    /// Relation of the subscription to the followed campaign. `None`: not a follow-up.
    pub follows: Option<FollowedCampaign>,
    /// Group of the person, if the message is for another group. `None`: not evaluated.
    pub group: Option<CampaignGroup>,
}

/// Relation of a subscription's time zone to a message by local time.
#[derive(Debug, Clone)]
pub struct ByZone {
    pub is_its: bool,
    /// Time of the message of the same run for that zone. `None`: there is none.
    pub due_at: Option<Timestamp>,
}

/// Relation of a subscription to the campaign that another one follows up.
#[derive(Debug, Clone)]
pub struct FollowedCampaign {
    /// Id or slug of the followed campaign, as in the plan.
    pub campaign: String,
    /// Reaction that recipients of the follow-up lack: `click` or `display`.
    pub did_not: &'static str,
    pub received: bool,
    pub did: bool,
}

/// Returns why the message omitted a subscription in this zone, if it would omit it now, too.
pub(super) fn passed_over(part: &ExplainedPart, timezone: Option<&str>, story: &Story) -> Option<(String, Value)> {
    let by_zone = part.zone.as_ref().filter(|zone| !zone.is_its).map(|zone| elsewhere(zone, timezone, story));
    by_zone.or_else(|| part.follows.as_ref().and_then(not_followed))
}

/// Returns why a message for one group of a campaign omitted a member of another group.
pub(super) fn in_group(group: Option<CampaignGroup>) -> (String, Value) {
    let (text, share) = match group {
        Some(CampaignGroup::HeldOut) => {
            ("its person is held out: the control group of the campaign gets nothing", "held out")
        }
        Some(CampaignGroup::AfterTest) => (
            "its person is not in the test group of the campaign, and gets the variant that wins, if one does",
            "not in the test group",
        ),
        Some(CampaignGroup::Variant) => ("its person gets another variant of the campaign", "another"),
        None => ("its person is in another share of the audience: another variant, or the control group", "another"),
    };
    (text.to_owned(), json!({"share": share}))
}

fn elsewhere(zone: &ByZone, timezone: Option<&str>, story: &Story) -> (String, Value) {
    let its = timezone.map_or_else(|| "its zone (not known: it counts as the app's)".to_owned(), str::to_owned);
    let there = match zone.due_at {
        Some(due_at) => format!("that for {its} is another one, due at {}", story.time(due_at)),
        None => format!(
            "there is none for {its}: its time had passed when the campaign was started, or comes after it expires"
        ),
    };
    let text =
        format!("its campaign goes by the recipients' clock, and this message of it is for other time zones; {there}");
    (text, json!({"timezone": timezone, "due_at": zone.due_at.map(rfc3339)}))
}

fn not_followed(followed: &FollowedCampaign) -> Option<(String, Value)> {
    let FollowedCampaign { campaign, did_not, received, did } = followed;
    let done = if *did_not == "display" { "displayed" } else { "clicked" };
    let why = match (received, did) {
        (false, _) => format!("which it did not get within what is remembered of {campaign}"),
        (true, true) => format!("and it was {done} there"),
        (true, false) => return None,
    };
    let text = format!("it follows up campaign {campaign} for recipients whose message was not {done}, {why}");
    Some((text, json!({"follows": campaign, "did_not": did_not, "received": received, "did": did})))
}
