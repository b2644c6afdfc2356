//! Choices of a user for all browsers.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use url::form_urlencoded;

use super::LinkContent;
use crate::api::http::problem::Problem;
use crate::api::opt_in::{self, OfferedTopic};
use crate::api::subscriptions::input::Muted;
use crate::api::{ApiState, Work};
use bellwire_core::id::SubscriptionId;
use bellwire_core::permission::Speaker;
use bellwire_core::subscription::SubscriptionState;
use bellwire_store::audience::subscriptions::{self, Changed, Changes, Right, SubscriptionFilter, SubscriptionRow};
use bellwire_store::audience::topics;
use bellwire_store::keyset::Keyset;

/// Browsers of a user that are read and changed. More have no user, but a test of load.
const BROWSERS_MAX: i64 = 250;
const PAUSE: TimeDelta = TimeDelta::days(7);

/// Topics and frequency of a user's browsers.
pub(super) struct Choice {
    /// Number of subscribed browsers.
    pub browsers: usize,
    pub offered: Vec<OfferedTopic>,
    /// Topics of at least one browser.
    pub joined: BTreeSet<String>,
    /// Mute of the browsers, if all are muted.
    pub muted: Option<Muted>,
}

/// Fields of a submitted form.
#[derive(Default)]
struct Submitted {
    topics: BTreeSet<String>,
    is_important: bool,
    is_paused: bool,
    unsubscribes: bool,
}

impl Submitted {
    fn read(body: &[u8]) -> Self {
        let mut read = Self::default();
        for (name, value) in form_urlencoded::parse(body) {
            match &*name {
                "topic" => drop(read.topics.insert(value.into_owned())),
                "important" => read.is_important = true,
                "pause" => read.is_paused = true,
                "unsubscribe" => read.unsubscribes = true,
                _ => {}
            }
        }
        read
    }
}

/// Returns the subscribed browsers of the user, with their topics.
async fn browsers(state: &ApiState, of: &LinkContent) -> sqlx::Result<Vec<(SubscriptionRow, Vec<String>)>> {
    let active = Some(SubscriptionState::Active);
    let filter = SubscriptionFilter { user_id: Some(of.user.clone()), state: active, ..SubscriptionFilter::default() };
    Ok(subscriptions::list(&state.pool, of.app, &filter, Keyset::newest(BROWSERS_MAX)).await?.rows)
}

impl Choice {
    pub(super) async fn read(state: &ApiState, of: &LinkContent) -> Result<Self, Problem> {
        let rows = browsers(state, of).await?;
        let offered = opt_in::offered(topics::displayed(&state.pool, of.app).await?);
        let now = state.clock.now();
        let muted: Option<Vec<Muted>> = rows.iter().map(|(row, _)| Muted::stored(row.muted_until, now)).collect();
        let muted = muted.and_then(|all| all.into_iter().max_by_key(|it| it.until.unwrap_or(DateTime::<Utc>::MAX_UTC)));
        let joined = rows.iter().flat_map(|(_, topics)| topics.iter().cloned()).collect();
        Ok(Self { browsers: rows.len(), offered, joined, muted })
    }

    /// Applies a form to all browsers. Topics that the page does not offer stay.
    pub(super) async fn change(state: &ApiState, of: &LinkContent, body: &[u8]) -> Result<(), Problem> {
        let submitted = Submitted::read(body);
        let before = Self::read(state, of).await?;
        let muted_until = before.muted_until(&submitted, state.clock.now());
        let offered: BTreeSet<&str> = before.offered.iter().map(OfferedTopic::name).collect();
        for (row, topics) in browsers(state, of).await? {
            if submitted.unsubscribes {
                unsubscribe(state, of, row.id).await?;
                continue;
            }
            let others = topics.into_iter().filter(|topic| !offered.contains(topic.as_str()));
            let chosen = submitted.topics.iter().filter(|topic| offered.contains(topic.as_str())).cloned();
            let wanted = Changes {
                by: Speaker::Server,
                user_id: None,
                tags: None,
                attributes: None,
                topics: Some(others.chain(chosen).collect()),
                locale: None,
                timezone: None,
                muted_until: Some(muted_until),
            };
            let (app, now) = (of.app, state.clock.now());
            let changed = subscriptions::change(&state.pool, &state.vault, app, row.id, Right::Server, &wanted, now);
            if matches!(changed.await?, Changed::TooManyTopics) {
                return Err(Problem::too_many_topics());
            }
        }
        Ok(())
    }

    /// Returns the end of the mute. A pause that is under way keeps its end.
    fn muted_until(&self, submitted: &Submitted, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        if submitted.is_important {
            return Some(Muted::without_end());
        }
        let under_way = self.muted.and_then(|muted| muted.until);
        submitted.is_paused.then(|| under_way.unwrap_or(now + PAUSE))
    }
}

async fn unsubscribe(state: &ApiState, of: &LinkContent, id: SubscriptionId) -> Result<(), Problem> {
    let (app, now) = (of.app, state.clock.now());
    let ended = subscriptions::unsubscribe(&state.pool, &state.vault, app, id, Right::Server, now).await?;
    if let Some(stop) = ended {
        (state.engine.tell)(Work::Stop(stop));
    }
    Ok(())
}
