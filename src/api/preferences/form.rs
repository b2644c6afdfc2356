//! Choices of a user for all browsers.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use url::form_urlencoded;

use super::LinkContent;
use crate::api::http::problem::Problem;
use crate::api::opt_in::{self, OfferedTopic};
use crate::api::subscriptions::input::Muted;
use crate::api::{ApiState, Work};
use bellwire_core::permission::Speaker;
use bellwire_core::subscription::SubscriptionState;
use bellwire_store::audience::subscriptions::{self, Changed, Changes, Right, SubscriptionFilter, SubscriptionRow};
use bellwire_store::audience::topics;
use bellwire_store::keyset::Keyset;

/// Maximum browsers of a user that are read at once, and whose choices are changed.
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

/// Fields of a submitted form. Only differences to what the page showed are applied, so that a choice in one browser stays.
#[derive(Default)]
struct Submitted {
    topics: BTreeSet<String>,
    topics_before: BTreeSet<String>,
    frequency: (bool, bool),
    frequency_before: (bool, bool),
    unsubscribes: bool,
}

/// Result of a form.
pub(super) enum Saved {
    Choices,
    /// A mail program unsubscribed the user, and shows no page.
    OneClick,
}

/// Whether this is a request for one-click unsubscription of a mail program, as a form or in several parts (RFC 8058 section 3.2).
pub(super) fn is_one_click(body: &[u8]) -> bool {
    const NAME: &[u8] = b"List-Unsubscribe";
    let in_parts = || body.starts_with(b"--") && body.windows(NAME.len()).any(|part| part == NAME);
    body.starts_with(b"List-Unsubscribe=") || in_parts()
}

impl Submitted {
    /// `None`: this is another form.
    fn read(body: &[u8]) -> Option<Self> {
        let (mut read, mut is_form) = (Self::default(), false);
        for (name, value) in form_urlencoded::parse(body) {
            match &*name {
                "form" => is_form = true,
                "topic" => drop(read.topics.insert(value.into_owned())),
                "topic_before" => drop(read.topics_before.insert(value.into_owned())),
                "important" => read.frequency.0 = true,
                "important_before" => read.frequency_before.0 = true,
                "pause" => read.frequency.1 = true,
                "pause_before" => read.frequency_before.1 = true,
                "unsubscribe" => read.unsubscribes = true,
                _ => {}
            }
        }
        is_form.then_some(read)
    }

    /// Returns the topics of a browser after the change. Those that the page does not offer stay.
    fn topics_of(&self, topics: Vec<String>, offered: &BTreeSet<&str>) -> Vec<String> {
        let is_left = |topic: &String| self.topics_before.contains(topic) && !self.topics.contains(topic);
        let mut kept: BTreeSet<String> =
            topics.into_iter().filter(|topic| !offered.contains(topic.as_str()) || !is_left(topic)).collect();
        let joined = self.topics.difference(&self.topics_before).filter(|topic| offered.contains(topic.as_str()));
        kept.extend(joined.cloned());
        kept.into_iter().collect()
    }

    /// Returns the end of the mute. `None`: the frequency did not change.
    fn muted_until(&self, now: DateTime<Utc>) -> Option<Option<DateTime<Utc>>> {
        let (is_important, is_paused) = self.frequency;
        let until = match (is_important, is_paused) {
            (true, _) => Some(Muted::without_end()),
            (false, true) => Some(now + PAUSE),
            (false, false) => None,
        };
        (self.frequency != self.frequency_before).then_some(until)
    }
}

/// Returns the subscribed browsers of the user, with their topics. Suspended ones would get messages again after the next visit.
async fn browsers(state: &ApiState, of: &LinkContent) -> sqlx::Result<Vec<(SubscriptionRow, Vec<String>)>> {
    let mut found = Vec::new();
    for state_of in [SubscriptionState::Active, SubscriptionState::Suspended] {
        let (user_id, wanted) = (Some(of.user.clone()), Some(state_of));
        let filter = SubscriptionFilter { user_id, state: wanted, ..SubscriptionFilter::default() };
        found.extend(subscriptions::list(&state.pool, of.app, &filter, Keyset::newest(BROWSERS_MAX)).await?.rows);
    }
    Ok(found)
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

    /// Applies a form to all browsers of the user.
    pub(super) async fn change(state: &ApiState, of: &LinkContent, body: &[u8]) -> Result<Saved, Problem> {
        if is_one_click(body) {
            return unsubscribe(state, of).await.map(|()| Saved::OneClick);
        }
        let Some(submitted) = Submitted::read(body) else {
            return Err(Problem::invalid_member(
                "/form",
                "is missing: this is not the form of the page; nothing was changed",
            ));
        };
        if submitted.unsubscribes {
            return unsubscribe(state, of).await.map(|()| Saved::Choices);
        }
        let offered = opt_in::offered(topics::displayed(&state.pool, of.app).await?);
        let offered: BTreeSet<&str> = offered.iter().map(OfferedTopic::name).collect();
        for (row, topics) in browsers(state, of).await? {
            let now = state.clock.now();
            let wanted = Changes {
                by: Speaker::Server,
                user_id: None,
                tags: None,
                attributes: None,
                topics: Some(submitted.topics_of(topics, &offered)),
                locale: None,
                timezone: None,
                muted_until: submitted.muted_until(now),
            };
            let right = Right::User(&of.user);
            let changed = subscriptions::change(&state.pool, &state.vault, of.app, row.id, right, &wanted, now);
            if matches!(changed.await?, Changed::TooManyTopics) {
                return Err(Problem::too_many_topics());
            }
        }
        Ok(Saved::Choices)
    }

    /// Whether only transactional messages are sent without an end.
    pub(super) fn is_important(&self) -> bool {
        self.muted.is_some_and(|muted| muted.until.is_none())
    }

    /// Returns the end of a pause.
    pub(super) fn paused_until(&self) -> Option<DateTime<Utc>> {
        self.muted.and_then(|muted| muted.until)
    }
}

/// Unsubscribes all browsers of the user.
async fn unsubscribe(state: &ApiState, of: &LinkContent) -> Result<(), Problem> {
    loop {
        let all = browsers(state, of).await?;
        for (row, _) in &all {
            let (right, now) = (Right::User(&of.user), state.clock.now());
            let ended = subscriptions::unsubscribe(&state.pool, &state.vault, of.app, row.id, right, now).await?;
            if let Some(stop) = ended {
                (state.engine.tell)(Work::Stop(stop));
            }
        }
        if (all.len() as i64) < BROWSERS_MAX {
            return Ok(());
        }
    }
}
