//! Scheduled times of messages.

use chrono::{NaiveDateTime, TimeDelta};

use crate::api::http::problem::Faults;
use bellwire_core::clock::Timestamp;
use bellwire_core::request_time;
use bellwire_rules::policy::calendar;

const AHEAD_MAX: TimeDelta = TimeDelta::days(90);
/// Maximum time in the past that is accepted as now, because clocks differ and requests are retried. Earlier times are refused.
pub(in crate::api) const LATE_MAX: TimeDelta = TimeDelta::minutes(5);

pub(in crate::api) const ZONE_RULE: &str = "must be an IANA time zone such as Europe/Vienna";
const SEND_AT: &str = "/send_at";
pub(in crate::api) const TIMEZONE: &str = "/timezone";

/// Parses `send_at` and `timezone`. `None`: send at once, or a fault was added.
pub(in crate::api) fn read(
    send_at: Option<&str>, timezone: Option<&str>, now: Timestamp, faults: &mut Faults,
) -> Option<Timestamp> {
    let Some(text) = send_at else {
        faults.require(timezone.is_none(), TIMEZONE, "needs a `send_at` without an offset");
        return None;
    };
    match instant(text, timezone) {
        Ok(at) if at > now + AHEAD_MAX => faults.refuse(SEND_AT, "must be at most 90 days in the future"),
        Ok(at) if at < now - LATE_MAX => faults.refuse(SEND_AT, "must not be in the past"),
        Ok(at) => return (at > now).then_some(at),
        Err(all) => all.into_iter().for_each(|(pointer, detail)| faults.refuse(pointer, detail)),
    }
    None
}

/// Returns the instant of a time with an offset, or of a local time in a zone. A local time that occurs twice means the first
/// one. A skipped one means the end of the gap.
pub(in crate::api) fn instant(
    text: &str, timezone: Option<&str>,
) -> Result<Timestamp, Vec<(&'static str, &'static str)>> {
    match (request_time::parse(text), timezone) {
        (Some(at), None) => Ok(at),
        (Some(_), Some(_)) => Err(vec![(TIMEZONE, "must not be set if `send_at` has an offset")]),
        (None, zone) => {
            let local = local(text).ok_or((SEND_AT, "must be a time such as 2026-12-01T09:00:00Z"));
            let zone = match zone {
                None => Err((SEND_AT, "must have an offset, such as `Z`, or come with `timezone`")),
                Some(zone) => calendar::zone(zone).ok_or((TIMEZONE, ZONE_RULE)),
            };
            match (local, zone) {
                (Ok(local), Ok(zone)) => Ok(calendar::moment(zone, local)),
                (Err(time), Err(zone)) if zone.0 == TIMEZONE => Err(vec![time, zone]),
                (Err(fault), _) | (_, Err(fault)) => Err(vec![fault]),
            }
        }
    }
}

/// Parses a date and a time of day. Seconds are optional.
pub(in crate::api) fn local(text: &str) -> Option<NaiveDateTime> {
    ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M"].iter().find_map(|form| NaiveDateTime::parse_from_str(text, form).ok())
}

#[cfg(test)]
#[path = "../../../tests/unit/api/messages/send_at.rs"]
mod tests;
