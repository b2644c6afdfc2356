//! Trial of a trigger with the stored events of the last days.

use std::collections::BTreeMap;

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use serde::Serialize;
use sqlx::PgConnection;
use utoipa::ToSchema;

use bellwire_core::clock::Timestamp;
use bellwire_core::id::AppId;
use bellwire_rules::campaign::trigger::{Cause, PastEvent, TrialEntry, TrialResult, Trigger};
use bellwire_store::triggers::past::{self, PastRow};
use bellwire_vault::Vault;

/// Time that a trial looks back.
const PERIOD: TimeDelta = TimeDelta::days(7);
/// Maximum number of events that a trial reads of each kind.
const EVENTS_MAX: i64 = 100_000;
const EXAMPLES_MAX: usize = 10;
/// Maximum number of examples with the same result.
const EXAMPLES_OF_KIND_MAX: usize = 4;

/// Effect that a trigger would have had on the stored events of the last seven days. The audience, the control group and frequency caps
/// are not applied.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CampaignTriggerTrial)]
pub(crate) struct TriggerTrial {
    /// Start of the period.
    since: DateTime<Utc>,
    /// End of the period.
    until: DateTime<Utc>,
    /// Whether the period has more events than a trial reads, so that only the first ones were applied.
    has_more: bool,
    /// People who would have begun to wait.
    entered: usize,
    /// Waits that an event of `unless` would have ended.
    cancelled: usize,
    /// Events that `at_most` would have refused.
    limited: usize,
    /// Numbers by hour, without empty hours.
    hours: Vec<TriggerTrialHour>,
    /// Up to ten entries in words.
    #[schema(max_items = 10)]
    examples: Vec<String>,
}

/// Trial of a trigger in one hour.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = CampaignTriggerTrialHour)]
pub(crate) struct TriggerTrialHour {
    /// Start of the hour.
    start: DateTime<Utc>,
    /// People who would have begun to wait.
    entered: usize,
    /// Waits among them that would have been ended.
    cancelled: usize,
    /// Events that `at_most` would have refused.
    limited: usize,
}

/// Applies a trigger to stored events. `None`: it follows up a campaign, so that no event lets people enter.
pub(super) async fn try_out(
    conn: &mut PgConnection, vault: &Vault, app: AppId, trigger: &Trigger, now: Timestamp,
) -> sqlx::Result<Option<TriggerTrial>> {
    let since = now - PERIOD;
    let entering = match &trigger.on {
        Cause::Sent(_) => return Ok(None),
        Cause::Subscribed => past::subscribed(conn, app, since, EVENTS_MAX + 1).await?,
        Cause::Joined(topic) => past::joined(conn, app, topic, since, EVENTS_MAX + 1).await?,
        Cause::Event(name) => past::events(conn, app, std::slice::from_ref(name), since, EVENTS_MAX + 1).await?,
    };
    let ending = match trigger.unless.is_empty() {
        true => Vec::new(),
        false => past::events(conn, app, &trigger.unless, since, EVENTS_MAX + 1).await?,
    };
    let has_more = [&entering, &ending].iter().any(|rows| rows.len() as i64 > EVENTS_MAX);
    let meets = |row: &PastRow| {
        let filter = trigger.filter.as_ref();
        filter.is_none_or(|filter| filter.takes_properties(&row.properties(vault).unwrap_or_default(), row.at))
    };
    let event = |row: &PastRow, ends| PastEvent { person: row.person.as_u128(), at: row.at, ends };
    let entering = entering.iter().filter(|row| meets(row)).map(|row| event(row, None));
    let events = entering.chain(ending.iter().map(|row| event(row, row.name.clone()))).collect();
    let entries = trigger.try_out(events);
    Ok(Some(TriggerTrial { since, until: now, has_more, examples: examples(&entries), ..counted(&entries) }))
}

fn counted(entries: &[TrialEntry]) -> TriggerTrial {
    let mut hours = BTreeMap::<Timestamp, TriggerTrialHour>::new();
    for entry in entries {
        let start = entry.at.duration_trunc(TimeDelta::hours(1)).unwrap_or(entry.at);
        let hour = hours.entry(start).or_insert_with(|| TriggerTrialHour { start, ..TriggerTrialHour::default() });
        match entry.result {
            TrialResult::Message(_) => hour.entered += 1,
            TrialResult::Cancelled(..) => {
                hour.entered += 1;
                hour.cancelled += 1;
            }
            TrialResult::Limited => hour.limited += 1,
        }
    }
    let hours: Vec<TriggerTrialHour> = hours.into_values().collect();
    let sum = |of: fn(&TriggerTrialHour) -> usize| hours.iter().map(of).sum();
    TriggerTrial {
        since: Timestamp::UNIX_EPOCH,
        until: Timestamp::UNIX_EPOCH,
        has_more: false,
        entered: sum(|hour| hour.entered),
        cancelled: sum(|hour| hour.cancelled),
        limited: sum(|hour| hour.limited),
        examples: Vec::new(),
        hours,
    }
}

/// Describes the latest entries, a few of each result.
fn examples(entries: &[TrialEntry]) -> Vec<String> {
    let mut of_kind = [0; 3];
    let mut chosen: Vec<String> = entries
        .iter()
        .rev()
        .filter(|entry| {
            let n = &mut of_kind[match entry.result {
                TrialResult::Message(_) => 0,
                TrialResult::Cancelled(..) => 1,
                TrialResult::Limited => 2,
            }];
            *n += 1;
            *n <= EXAMPLES_OF_KIND_MAX
        })
        .take(EXAMPLES_MAX)
        .map(in_words)
        .collect();
    chosen.reverse();
    chosen
}

fn in_words(entry: &TrialEntry) -> String {
    let shown = |at: &Timestamp| at.format("%Y-%m-%d %H:%M UTC").to_string();
    let at = shown(&entry.at);
    match &entry.result {
        TrialResult::Message(due_at) => format!("Entered on {at}, message on {}", shown(due_at)),
        TrialResult::Cancelled(name, ended_at) => {
            format!("Entered on {at}, no message: \"{name}\" on {}", shown(ended_at))
        }
        TrialResult::Limited => format!("Did not enter on {at}: the person had a message too recently"),
    }
}
