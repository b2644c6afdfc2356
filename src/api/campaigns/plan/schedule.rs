//! Schedule of a campaign as its author writes it, and its validation.

use chrono::TimeDelta;
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::AHEAD_MAX;
use crate::api::http::problem::Faults;
use crate::api::messages::send_at;
use bellwire_core::clock::Timestamp;
use bellwire_core::named;
use bellwire_rules::campaign::schedule::{Recurrence, When};
use bellwire_rules::campaign::zones::Past;
use bellwire_rules::policy::calendar;

const BY_RECIPIENT: &str = "recipient";
const TIME_RULE: &str = "must be in the future, at most one year ahead";

named! {
    /// Time of day at which each recipient gets a campaign.
    #[schema(as = CampaignHour)]
    pub(crate) enum Hour {
        Campaign = "campaign",
        /// Hour at which the recipient clicks most, within 24 hours from the due time. With too little data, the due time.
        Best = "best",
    }
}

/// Schedule of a campaign: once (`at`), recurring (`cron`), or for one person after the other (`on`).
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CampaignSchedule)]
pub(crate) struct ScheduleBody {
    /// RFC 3339 time with an offset, or a local time together with `timezone`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 40)]
    pub(super) at: Option<String>,
    /// Cron expression of five fields, in `timezone`, with at least five minutes between runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub(super) cron: Option<String>,
    /// IANA time zone. With `at`, also `recipient`: the time zone of each recipient.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 64)]
    pub(super) timezone: Option<String>,
    /// With `recipient`: when to send to recipients whose local time is already past at the start. By default `tomorrow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) past: Option<Past>,
    /// Time of day of each recipient. By default `campaign`: the scheduled time. `best` cannot be combined with `recipient`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hour: Option<Hour>,
    /// Cause that lets a person enter: `subscribed`, `joined:` and a topic, or `event:` and a name. The message goes to that person alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 140)]
    on: Option<String>,
    /// With `event:`, condition on the properties of the event in the segment language, such as `total >= 50`.
    #[serde(rename = "where", skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 4096)]
    pub(super) filter: Option<String>,
    /// With `on`, time from the event to the message, such as `30m`, up to `90d`. By default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 10)]
    pub(super) after: Option<String>,
    /// With `on`, events that end the wait: `event:` and a name, or up to five of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unless: Option<UnlessBody>,
    /// With `on`, limit of messages to one person: `once`, or `once per` and a span such as `7d`. By default no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 20)]
    pub(super) at_most: Option<String>,
}

/// Events that end a wait: one, or a list.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = CampaignUnless)]
pub(crate) enum UnlessBody {
    /// One event: `event:` and a name.
    One(String),
    /// At most 5 events.
    Several(Vec<String>),
}

/// Faults of a schedule: the wrong member, and the rule.
type ScheduleFaults = Vec<(&'static str, String)>;

impl ScheduleBody {
    pub(super) fn is_by_recipient(&self) -> bool {
        self.timezone.as_deref() == Some(BY_RECIPIENT)
    }

    /// Returns the checked schedule, or adds all its faults.
    pub(super) fn check(&self, now: Timestamp, faults: &mut Faults) -> Option<When> {
        if let Some(on) = &self.on {
            return self.trigger(on, faults).map(|trigger| When::Trigger(Box::new(trigger)));
        }
        self.refuse_trigger(faults);
        if self.past.is_some() && !self.is_by_recipient() {
            faults.refuse("/schedule/past", "is for the timezone `recipient` only");
        }
        let when = match (&self.at, &self.cron) {
            (Some(at), None) if self.is_by_recipient() => self.by_recipient(at, now),
            (Some(at), None) => self.once(at, now),
            (None, Some(cron)) => self.recurring(cron, now),
            (None, None) | (Some(_), Some(_)) => Err(vec![("", "must have exactly one of `at`, `cron`, `on`".into())]),
        };
        let mut refuse = |(member, detail): (&str, String)| faults.refuse(format!("/schedule{member}"), detail);
        when.map_err(|all| all.into_iter().for_each(&mut refuse)).ok()
    }

    fn by_recipient(&self, at: &str, now: Timestamp) -> Result<When, ScheduleFaults> {
        let refuse = |detail: &str| vec![("/at", detail.to_owned())];
        let local = send_at::local(at).ok_or_else(|| refuse("must be a local time such as 2026-12-01T09:00"))?;
        let utc = local.and_utc();
        if utc > now + AHEAD_MAX || utc < now - TimeDelta::days(2) {
            return Err(refuse(TIME_RULE));
        }
        Ok(When::Recipients { local, past: self.past.unwrap_or(Past::Tomorrow) })
    }

    fn once(&self, at: &str, now: Timestamp) -> Result<When, ScheduleFaults> {
        let at = send_at::instant(at, self.timezone.as_deref()).map_err(|faults| {
            let named = |(member, detail): (&str, &str)| {
                (if member == send_at::TIMEZONE { "/timezone" } else { "/at" }, detail.replace("send_at", "at"))
            };
            faults.into_iter().map(named).collect::<ScheduleFaults>()
        })?;
        if at > now + AHEAD_MAX || at < now - send_at::LATE_MAX {
            return Err(vec![("/at", TIME_RULE.into())]);
        }
        Ok(When::At(at))
    }

    fn recurring(&self, cron: &str, now: Timestamp) -> Result<When, ScheduleFaults> {
        let zone = self.timezone.as_deref().and_then(calendar::zone);
        let recurrence = Recurrence::parse(cron, zone.unwrap_or(Tz::UTC)).and_then(|recurrence| {
            recurrence.next(now).is_some().then_some(recurrence).ok_or_else(|| "never comes".to_owned())
        });
        match (zone, recurrence) {
            (Some(_), Ok(recurrence)) => Ok(When::Cron(recurrence)),
            (zone, recurrence) => {
                let zone = zone.is_none().then(|| ("/timezone", send_at::ZONE_RULE.to_owned()));
                Err(recurrence.err().map(|detail| ("/cron", detail)).into_iter().chain(zone).collect())
            }
        }
    }
}
