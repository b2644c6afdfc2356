//! Snapshots of campaigns and outcomes, and the JSON of events.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use chrono::{DurationRound as _, TimeDelta};
use serde_json::{Map, Value, json};
use sqlx::PgPool;
use tokio::time::Instant;

use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Ending;
use bellwire_core::event_type::EventType;
use bellwire_core::id::{AppId, MessageId};
use bellwire_store::outcomes::stream::{self, Position, Rollup, StreamProgress, StreamRow};

/// Event as listeners receive it.
#[derive(Debug)]
pub(crate) struct LiveEvent {
    /// Place among the stored events. `None`: the event is a snapshot.
    pub position: Option<Position>,
    /// App that the event concerns. `None`: it concerns the server as a whole.
    pub app: Option<AppId>,
    pub kind: EventType,
    pub json: Box<str>,
}

/// Returns the start of the minute of `now`.
fn minute(now: Timestamp) -> Timestamp {
    now.duration_trunc(TimeDelta::minutes(1)).unwrap_or(now)
}

/// Snapshots to send after one poll.
pub(super) struct Snapshots {
    pub progress: Vec<(MessageId, Arc<LiveEvent>)>,
    pub in_motion: HashSet<MessageId>,
    /// Counts of attempts since the previous poll, one event for each app.
    pub outcomes: Vec<Arc<LiveEvent>>,
}

/// Counts of attempts by minute, app and [ending](Ending::code).
type Sums = HashMap<(Timestamp, AppId, i16), i64>;

/// Results of the previous poll.
#[derive(Default)]
pub(super) struct Memory {
    progress: HashMap<MessageId, StreamProgress>,
    outcomes: Option<(Instant, Sums)>,
}

impl Memory {
    /// Reads the current progress and outcomes, and compares them with those of the previous poll.
    pub(super) async fn read(&mut self, pool: &PgPool, now: Timestamp) -> sqlx::Result<Snapshots> {
        let campaigns = stream::progress(pool, now).await?;
        let this = minute(now);
        // A settling may count into the previous minute, or into the next one by the clock of another replica.
        let minutes = [this - TimeDelta::minutes(1), this, this + TimeDelta::minutes(1)];
        let rollups = stream::outcomes(pool, &minutes).await?;
        let in_motion = campaigns.iter().map(|campaign| campaign.message).collect();
        let outcomes = self.outcomes(rollups, now).into_iter().map(Arc::new).collect();
        Ok(Snapshots { progress: self.moved(campaigns, now), in_motion, outcomes })
    }

    /// Returns the campaigns whose progress differs from that of the previous poll.
    fn moved(&mut self, campaigns: Vec<StreamProgress>, now: Timestamp) -> Vec<(MessageId, Arc<LiveEvent>)> {
        let before = std::mem::take(&mut self.progress);
        self.progress = campaigns.into_iter().map(|campaign| (campaign.message, campaign)).collect();
        let has_moved = |campaign: &&StreamProgress| before.get(&campaign.message) != Some(*campaign);
        let moved = self.progress.values().filter(has_moved);
        moved.map(|campaign| (campaign.message, Arc::new(LiveEvent::progress(campaign, now)))).collect()
    }

    /// Returns the attempts since the previous poll by app. The first poll returns none, because it has nothing to
    /// compare with.
    fn outcomes(&mut self, rollups: Vec<Rollup>, now: Timestamp) -> Vec<LiveEvent> {
        let sums: Sums = rollups.into_iter().map(|it| ((it.minute, it.app, it.ending), it.n)).collect();
        let read_at = Instant::now();
        let mut grown = BTreeMap::<AppId, BTreeMap<i16, i64>>::new();
        let mut seconds = 0.0;
        if let Some((before_at, before)) = &self.outcomes {
            seconds = (read_at - *before_at).as_secs_f64();
            for ((minute, app, ending), n) in &sums {
                let more = n - before.get(&(*minute, *app, *ending)).copied().unwrap_or(0);
                if more > 0 {
                    *grown.entry(*app).or_default().entry(*ending).or_default() += more;
                }
            }
        }
        self.outcomes = Some((read_at, sums));
        grown.into_iter().map(|(app, endings)| LiveEvent::outcomes(app, &endings, seconds, now)).collect()
    }
}

impl LiveEvent {
    fn new(position: Option<Position>, app: Option<AppId>, kind: EventType, at: Timestamp, data: &Value) -> Self {
        let json = json!({"kind": kind, "app": app, "at": at, "data": data}).to_string().into();
        Self { position, app, kind, json }
    }

    /// Converts a stored row. Returns `None` for a kind that only a newer version of the program defines.
    pub(super) fn stored(row: StreamRow) -> Option<Self> {
        let kind = EventType::from_name(&row.kind).filter(|kind| kind.is_durable())?;
        Some(Self::new(Some(row.position()), row.app, kind, row.at, &row.data))
    }

    fn progress(it: &StreamProgress, now: Timestamp) -> Self {
        let ended = it.accepted + it.gone + it.expired + it.dead + it.cancelled + it.capped;
        let waiting = it.targeted - ended;
        let data = json!({
            "message": it.message, "campaign": it.campaign, "state": it.state, "expanded": it.expanded, "audience_estimate": it.audience_estimate,
            "targeted": it.targeted, "waiting": waiting, "accepted": it.accepted, "gone": it.gone, "expired": it.expired,
            "dead": it.dead, "cancelled": it.cancelled, "capped": it.capped,
        });
        Self::new(None, Some(it.app), EventType::MessageProgress, now, &data)
    }

    fn outcomes(app: AppId, endings: &BTreeMap<i16, i64>, seconds: f64, now: Timestamp) -> Self {
        let counts = Ending::ALL.map(|ending| {
            let n = endings.get(&ending.code()).copied().unwrap_or(0);
            (ending.name().to_owned(), json!(n))
        });
        let mut data: Map<String, Value> = counts.into_iter().collect();
        data.insert("seconds".into(), json!((seconds * 1e3).round() / 1e3));
        Self::new(None, Some(app), EventType::Outcomes, now, &data.into())
    }
}

#[cfg(test)]
#[path = "../../tests/unit/live/reading.rs"]
mod tests;
