//! Applies events to triggers: people enter, or their wait ends, in the transaction of the event.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::counts::{self, EntryCounts};
use super::waits::{self, lock_people};
use crate::audience::subscriptions::row::SubscriptionRow;
use crate::audience::user_shards;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, CampaignId, MessageId, SubscriptionId};
use bellwire_core::person::Person;
use bellwire_rules::campaign::trigger::{Cause, Entering, EntryState, Trigger};

/// Event of a person, reported or caused by the server.
#[derive(Debug, Clone)]
pub struct Observed<'a> {
    pub cause: Cause,
    pub person: Person,
    /// Browser in which it happened: its own entries end, too. `None`: those of all the user's browsers.
    pub browser: Option<Person>,
    pub at: Timestamp,
    /// Time from which events end the wait: that of the event, or for a follow-up that of the first campaign's event.
    pub since: Timestamp,
    pub user: Option<&'a str>,
    /// Recipient of the message, with its life. `None`: all browsers of the user.
    pub subscription: Option<(SubscriptionId, i32)>,
    /// Row of the event, if the site reported one.
    pub event: Option<Uuid>,
    /// Message that was sent, for a follow-up.
    pub follows: Option<MessageId>,
    /// Properties of the event as JSON.
    pub properties: Option<&'a [u8]>,
}

/// A trigger in force.
#[derive(Debug)]
struct ActiveTrigger {
    campaign: CampaignId,
    rule: Json<Trigger>,
}

/// Applies events, in order, to the triggers of an app.
pub async fn observe(
    conn: &mut PgConnection, app: AppId, observed: &[Observed<'_>], now: Timestamp,
) -> sqlx::Result<()> {
    let counts = apply(conn, app, observed, now).await?;
    counts::add(conn, &counts, now).await
}

/// Applies events, in order, to the triggers of an app. Returns the numbers for [`counts::add`].
pub async fn apply(
    conn: &mut PgConnection, app: AppId, observed: &[Observed<'_>], now: Timestamp,
) -> sqlx::Result<BTreeMap<CampaignId, EntryCounts>> {
    let causes: BTreeSet<String> = observed.iter().map(|it| it.cause.to_string()).collect();
    let names: BTreeSet<&str> = observed.iter().filter_map(|it| it.cause.event()).collect();
    let triggers = in_force(conn, app, &Vec::from_iter(causes), &Vec::from_iter(names)).await?;
    if triggers.is_empty() {
        return Ok(BTreeMap::new());
    }
    let browsers = browsers_of(conn, app, observed, &triggers).await?;
    let ended: Vec<Vec<Uuid>> = observed.iter().map(|it| whose_wait_ends(it, &browsers)).collect();
    let people: BTreeSet<Uuid> = ended.iter().flatten().copied().collect();
    lock_people(conn, app, people.iter().copied()).await?;
    let mut entries = Entries::read(conn, &triggers, &people).await?;
    let ended_at = last_ends(conn, app, observed, &triggers).await?;
    for (index, (it, ended)) in observed.iter().zip(&ended).enumerate() {
        for trigger in &triggers {
            entries.end(trigger, it, ended);
            let ended_at = ended_at.get(&(trigger.campaign, it.person.id()));
            entries.enter(trigger, (index, it), ended_at.is_some_and(|at| *at > it.since), now);
        }
    }
    entries.write(conn, observed).await?;
    Ok(entries.counts)
}

/// Applies the events of a locked browser: it subscribed, or joined topics.
pub(crate) async fn observe_browser(
    conn: &mut PgConnection, app: AppId, row: &SubscriptionRow, causes: Vec<Cause>, now: Timestamp,
) -> sqlx::Result<()> {
    let texts: Vec<String> = causes.iter().map(Cause::to_string).collect();
    if texts.is_empty() || in_force(conn, app, &texts, &[]).await?.is_empty() {
        return Ok(());
    }
    let stored = fetch_one!(
        &mut *conn,
        r#"SELECT origin_id AS "origin: SubscriptionId", life FROM subscriptions WHERE shard = $1 AND id = $2"#,
        (row.id.shard(), row.id.0)
    )?;
    let user = row.user_id.as_deref();
    let observed = causes.into_iter().map(|cause| Observed {
        cause,
        person: Person::of(app, user, stored.origin),
        browser: None,
        at: now,
        since: now,
        user,
        subscription: Some((row.id, stored.life)),
        event: None,
        follows: None,
        properties: None,
    });
    observe(conn, app, &observed.collect::<Vec<_>>(), now).await
}

/// Returns the triggers that one of these causes lets people enter, or one of these events ends.
async fn in_force(
    conn: &mut PgConnection, app: AppId, causes: &[String], names: &[&str],
) -> sqlx::Result<Vec<ActiveTrigger>> {
    fetch_all!(
        conn,
        ActiveTrigger,
        r#"/* triggers_in_force */ SELECT t.campaign AS "campaign: CampaignId", t.rule AS "rule: Json<Trigger>"
           FROM triggers t JOIN campaigns c ON c.id = t.campaign
           WHERE t.app = $1 AND (t.cause = ANY ($2) OR t.unless && $3) AND c.state IN ('scheduled', 'sending', 'paused')
             AND NOT c.expired
           ORDER BY t.campaign"#,
        (app.0, causes, names as &[&str])
    )
}

/// Returns the first ids of the browsers of users whose events may end a wait.
async fn browsers_of(
    conn: &mut PgConnection, app: AppId, observed: &[Observed<'_>], triggers: &[ActiveTrigger],
) -> sqlx::Result<HashMap<String, Vec<Uuid>>> {
    let ends = |name: &str| triggers.iter().any(|trigger| trigger.rule.unless.iter().any(|unless| unless == name));
    let users: BTreeSet<&str> = observed
        .iter()
        .filter(|it| it.browser.is_none() && it.cause.event().is_some_and(ends))
        .filter_map(|it| it.user)
        .collect();
    let users: Vec<String> = users.into_iter().map(str::to_owned).collect();
    if users.is_empty() {
        return Ok(HashMap::new());
    }
    let shards = user_shards::of(&mut *conn, app, Some(&users)).await?;
    let rows = fetch_all!(
        conn,
        r#"SELECT user_id AS "user!", origin_id FROM subscriptions
           WHERE app = $1 AND user_id = ANY ($2) AND state <> 'replaced' AND ($3::smallint[] IS NULL OR shard = ANY ($3))"#,
        (app.0, &users, shards.as_deref())
    )?;
    let mut browsers = HashMap::<String, Vec<Uuid>>::new();
    for row in rows {
        browsers.entry(row.user).or_default().push(row.origin_id);
    }
    Ok(browsers)
}

fn whose_wait_ends(it: &Observed<'_>, browsers: &HashMap<String, Vec<Uuid>>) -> Vec<Uuid> {
    let of_user = it.user.and_then(|user| browsers.get(user)).into_iter().flatten().copied();
    let mut people: Vec<Uuid> = of_user.chain(it.browser.map(Person::id)).chain([it.person.id()]).collect();
    people.sort_unstable();
    people.dedup();
    people
}

/// Returns the time of each person's last stored event that ends the wait in a trigger, if it is later than one of the events
/// that let the person enter.
async fn last_ends(
    conn: &mut PgConnection, app: AppId, observed: &[Observed<'_>], triggers: &[ActiveTrigger],
) -> sqlx::Result<HashMap<(CampaignId, Uuid), Timestamp>> {
    let enters = |it: &&Observed<'_>| triggers.iter().any(|trigger| trigger.rule.on == it.cause);
    let entering: Vec<&Observed<'_>> = observed.iter().filter(enters).collect();
    let names: BTreeSet<&String> = triggers.iter().flat_map(|trigger| &trigger.rule.unless).collect();
    let Some(since) = entering.iter().map(|it| it.since).min().filter(|_| !names.is_empty()) else {
        return Ok(HashMap::new());
    };
    let people: Vec<Uuid> = entering.iter().map(|it| it.person.id()).collect();
    let rows = fetch_all!(
        conn,
        r#"SELECT person, name, max(at) AS "at!" FROM user_events
           WHERE app = $1 AND person = ANY ($2) AND name = ANY ($3) AND at > $4 GROUP BY person, name"#,
        (app.0, &people, &names.into_iter().cloned().collect::<Vec<_>>(), since)
    )?;
    let mut last = HashMap::new();
    for row in rows {
        for trigger in triggers.iter().filter(|trigger| trigger.rule.unless.contains(&row.name)) {
            let at = last.entry((trigger.campaign, row.person)).or_insert(row.at);
            *at = row.at.max(*at);
        }
    }
    Ok(last)
}

/// Change of a person's entry.
#[derive(Debug, Clone, Copy)]
enum EntryChange {
    None,
    /// The wait has ended.
    Ends,
    /// The person waits until this time, because of the observation with this index.
    Waits {
        until: Timestamp,
        observed: usize,
    },
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    state: EntryState,
    /// Life of the browser to send to.
    life: Option<i32>,
    change: EntryChange,
}

/// Entries of people in triggers, with their changes.
struct Entries {
    entries: BTreeMap<(CampaignId, Uuid), Entry>,
    counts: BTreeMap<CampaignId, EntryCounts>,
}

impl Entries {
    async fn read(conn: &mut PgConnection, triggers: &[ActiveTrigger], people: &BTreeSet<Uuid>) -> sqlx::Result<Self> {
        let campaigns: Vec<CampaignId> = triggers.iter().map(|trigger| trigger.campaign).collect();
        let rows = fetch_all!(
            conn,
            r#"SELECT campaign AS "campaign: CampaignId", person, CASE WHEN due_at IS NOT NULL THEN caused_at END AS waits_since, sent_at, life
               FROM trigger_entries WHERE campaign = ANY ($1) AND person = ANY ($2)"#,
            (&campaigns as &[CampaignId], &Vec::from_iter(people.iter().copied()))
        )?;
        let entries = rows.into_iter().map(|row| {
            let state = EntryState { waits_since: row.waits_since, sent_at: row.sent_at };
            ((row.campaign, row.person), Entry { state, life: row.life, change: EntryChange::None })
        });
        Ok(Self { entries: entries.collect(), counts: BTreeMap::new() })
    }

    /// Ends the wait of people in a trigger, if the event is of that kind.
    fn end(&mut self, trigger: &ActiveTrigger, it: &Observed<'_>, people: &[Uuid]) {
        let Some(name) = it.cause.event() else { return };
        for person in people {
            let Some(entry) = self.entries.get_mut(&(trigger.campaign, *person)) else { continue };
            if entry.state.waits_since.is_some_and(|since| trigger.rule.ends(name, it.at, since)) {
                (entry.state.waits_since, entry.change) = (None, EntryChange::Ends);
                self.counts.entry(trigger.campaign).or_default().cancelled += 1;
            }
        }
    }

    /// Ends the wait of a browser's former person.
    fn end_former_life(&mut self, key: (CampaignId, Uuid), it: &Observed<'_>) {
        let (Some(entry), Some((_, life))) = (self.entries.get_mut(&key), it.subscription) else { return };
        if entry.life.is_some_and(|former| former != life) {
            let waits = entry.state.waits_since.is_some();
            *entry = Entry { state: EntryState::default(), life: None, change: EntryChange::Ends };
            self.counts.entry(key.0).or_default().cancelled += i64::from(waits);
        }
    }

    /// Lets a person enter a trigger, if the event is of that kind.
    fn enter(&mut self, trigger: &ActiveTrigger, (index, it): (usize, &Observed<'_>), is_ended: bool, now: Timestamp) {
        let meets =
            |filter: &bellwire_segment::Expression| filter.takes_properties(it.properties.unwrap_or(b"{}"), now);
        if trigger.rule.on != it.cause || !trigger.rule.filter.as_ref().is_none_or(meets) {
            return;
        }
        let key = (trigger.campaign, it.person.id());
        self.end_former_life(key, it);
        let state = self.entries.get(&key).map(|entry| entry.state).unwrap_or_default();
        let counts = self.counts.entry(trigger.campaign).or_default();
        match trigger.rule.enter(state, it.at, is_ended, now) {
            Entering::Until(until) => {
                counts.entered += 1;
                let state = EntryState { waits_since: Some(it.since), ..state };
                let life = it.subscription.map(|(_, life)| life);
                let change = EntryChange::Waits { until, observed: index };
                self.entries.insert(key, Entry { state, life, change });
            }
            Entering::Cancelled => {
                counts.entered += 1;
                counts.cancelled += 1;
            }
            Entering::Limited => counts.limited += 1,
            Entering::Waits | Entering::Old => {}
        }
    }

    async fn write(&self, conn: &mut PgConnection, observed: &[Observed<'_>]) -> sqlx::Result<()> {
        let mut waiting = Vec::new();
        let (mut campaigns, mut people) = (Vec::new(), Vec::new());
        for ((campaign, person), entry) in &self.entries {
            match entry.change {
                EntryChange::None => {}
                EntryChange::Ends => {
                    campaigns.push(*campaign);
                    people.push(*person);
                }
                EntryChange::Waits { until, observed: index } => {
                    waiting.push((*campaign, *person, until, &observed[index]))
                }
            }
        }
        if !people.is_empty() {
            waits::end(conn, &campaigns, &people).await?;
        }
        if !waiting.is_empty() {
            execute!(
                &mut *conn,
                "INSERT INTO trigger_entries (campaign, person, due_at, caused_at, user_id, subscription, life, event, follows)
                 SELECT t.campaign, t.person, t.due_at, t.caused_at, t.user_id, t.subscription, t.life, t.event, t.follows
                 FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[], $4::timestamptz[], $5::text[], $6::uuid[], $7::integer[], $8::uuid[], $9::uuid[])
                   AS t (campaign, person, due_at, caused_at, user_id, subscription, life, event, follows)
                 ON CONFLICT (campaign, person) DO UPDATE SET due_at = excluded.due_at, caused_at = excluded.caused_at,
                   user_id = excluded.user_id, subscription = excluded.subscription, life = excluded.life, event = excluded.event,
                   follows = excluded.follows, postponed = false",
                waiting,
                |(campaign, person, until, it)| (campaign.0, *person, *until, it.since, it.user, it.subscription.map(|(id, _)| id.0), it.subscription.map(|(_, life)| life), it.event, it.follows.map(|id| id.0))
            )?;
        }
        Ok(())
    }
}
