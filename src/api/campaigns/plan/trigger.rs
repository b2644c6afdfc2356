//! Schedule of a campaign that events trigger, as its author writes it, and its validation.

use chrono::TimeDelta;

use super::schedule::{ScheduleBody, UnlessBody};
use crate::api::http::problem::Faults;
use bellwire_core::duration;
use bellwire_core::user_event::{EVENT_NAME_RULE, is_event_name};
use bellwire_rules::campaign::trigger::{AtMost, Cause, Trigger};
use bellwire_segment::Expression;

/// Maximum time from an event to its message.
const AFTER_MAX: TimeDelta = TimeDelta::days(90);
const UNLESS_MAX: usize = 5;
const ON_RULE: &str = "must be `subscribed`, `joined:` and a topic, or `event:` and a name, such as `event:cart_added`";
const AFTER_RULE: &str = "must be a span up to 90d, such as 30m";
const AT_MOST_RULE: &str = "must be `once`, or `once per` and a span from 1m to 365d, such as `once per 7d`";

impl ScheduleBody {
    /// Returns the checked trigger, or adds all its faults.
    pub(super) fn trigger(&self, on: &str, faults: &mut Faults) -> Option<Trigger> {
        let scheduled = self.at.is_some() || self.cron.is_some() || self.timezone.is_some() || self.past.is_some();
        faults.require(!scheduled, "/schedule/on", "cannot be combined with `at`, `cron`, `timezone` and `past`");
        let on: Option<Cause> = on.parse().ok().filter(|cause| !matches!(cause, Cause::Sent(_)));
        faults.require(on.is_some(), "/schedule/on", ON_RULE);
        let filter = self.filter.as_deref().and_then(|text| condition(text, on.as_ref(), faults));
        let after_s = self.after.as_deref().map_or(Some(0), |text| span_s(text, 0, AFTER_MAX));
        faults.require(after_s.is_some(), "/schedule/after", AFTER_RULE);
        let unless = self.unless.as_ref().map(|unless| events(unless, on.as_ref(), faults)).unwrap_or_default();
        let at_most = self.at_most.as_deref().map(at_most);
        faults.require(at_most != Some(None), "/schedule/at_most", AT_MOST_RULE);
        Some(Trigger { on: on?, filter, after_s: after_s?, unless, at_most: at_most.flatten(), did_not: None })
    }

    /// Refuses members that belong to a trigger.
    pub(super) fn refuse_trigger(&self, faults: &mut Faults) {
        let given = [
            ("where", self.filter.is_some()),
            ("after", self.after.is_some()),
            ("unless", self.unless.is_some()),
            ("at_most", self.at_most.is_some()),
        ];
        for (member, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
            faults.refuse(format!("/schedule/{member}"), "is for campaigns with `on`");
        }
    }
}

/// Returns the condition on the properties of an event.
fn condition(text: &str, on: Option<&Cause>, faults: &mut Faults) -> Option<Expression> {
    let has_properties = on.is_none_or(|on| matches!(on, Cause::Event(_)));
    faults.require(has_properties, "/schedule/where", "is for `event:`: other causes have no properties");
    let parsed = Expression::parse(text).map_err(|error| error.to_string()).and_then(|expression| {
        let fits = expression.is_of_properties();
        fits.then_some(expression)
            .ok_or_else(|| "must compare properties of the event only, such as `total >= 50`".into())
    });
    parsed.map_err(|detail| faults.refuse("/schedule/where", detail)).ok()
}

fn events(unless: &UnlessBody, on: Option<&Cause>, faults: &mut Faults) -> Vec<String> {
    let texts = match unless {
        UnlessBody::One(text) => std::slice::from_ref(text),
        UnlessBody::Several(texts) => texts,
    };
    faults.require((1..=UNLESS_MAX).contains(&texts.len()), "/schedule/unless", "must be 1 to 5 events");
    let mut names = Vec::new();
    for text in texts.iter().take(UNLESS_MAX) {
        match text.strip_prefix("event:").filter(|name| is_event_name(name)) {
            Some(name) if on.and_then(Cause::event) == Some(name) => {
                faults.refuse("/schedule/unless", "must not name the event that lets people enter");
            }
            Some(name) => names.push(name.to_owned()),
            None => faults.refuse("/schedule/unless", format!("must be `event:` and a name, which {EVENT_NAME_RULE}")),
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

fn at_most(text: &str) -> Option<AtMost> {
    if text == "once" {
        return Some(AtMost::Once);
    }
    span_s(text.strip_prefix("once per ")?, 60, TimeDelta::days(365)).map(AtMost::OncePer)
}

fn span_s(text: &str, from_s: i64, to: TimeDelta) -> Option<i64> {
    let seconds = i64::try_from(duration::parse(text)?.as_secs()).ok()?;
    (from_s..=to.num_seconds()).contains(&seconds).then_some(seconds)
}
