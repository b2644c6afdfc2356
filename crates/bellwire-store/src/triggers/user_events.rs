//! Events that sites report about their users.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};
use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use super::observing::{Observed, observe};
use crate::audience::subscriptions::row::lock_in_order;
use crate::audience::{aliases, user_shards};
use crate::connections::engine::{self, shard_column, shards_of};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, CampaignId, SubscriptionId};
use bellwire_core::person::Person;
use bellwire_rules::campaign::trigger::Cause;
use bellwire_vault::{PROPERTIES, Unopenable, Vault};

/// An event as a site reports it.
#[derive(Debug, Clone)]
pub struct NewEvent {
    pub id: Uuid,
    /// Sender's id, by which repeats are dropped.
    pub event: String,
    pub name: String,
    pub at: Timestamp,
    pub subject: EventSubject,
    pub properties: Option<Map<String, Value>>,
}

/// User or browser that an event is about.
#[derive(Debug, Clone)]
pub enum EventSubject {
    User(String),
    Browser(SubscriptionId),
}

/// Browser of an event.
#[derive(Debug, Clone)]
pub struct EventBrowser {
    pub id: SubscriptionId,
    /// First id of the browser.
    pub origin: SubscriptionId,
    pub life: i32,
    pub user: Option<String>,
    /// Last time that a user left it: earlier events are another person's.
    pub left_at: Option<Timestamp>,
    pub is_replaced: bool,
}

/// An event with its person.
struct PersonalEvent<'a> {
    event: &'a NewEvent,
    user: Option<&'a str>,
    browser: Option<&'a EventBrowser>,
    person: Person,
}

impl<'a> PersonalEvent<'a> {
    /// `None`: the browser is unknown.
    fn new(app: AppId, event: &'a NewEvent, browsers: &'a HashMap<SubscriptionId, EventBrowser>) -> Option<Self> {
        let (user, browser) = match &event.subject {
            EventSubject::User(user) => (Some(user.as_str()), None),
            EventSubject::Browser(id) => {
                let browser = browsers.get(id)?;
                (browser.user.as_deref(), Some(browser))
            }
        };
        let person = match (user, browser) {
            (None, Some(browser)) => Person::of_browser(browser.origin),
            (user, _) => Person::of_user(app, user?),
        };
        Some(Self { event, user, browser, person })
    }
}

/// A batch of events that was stored.
#[derive(Debug, Default)]
pub struct Recorded {
    /// People of those events that are new.
    pub new: HashMap<Uuid, Person>,
    pub browsers: HashMap<SubscriptionId, EventBrowser>,
    /// Places of the events that name no subscription of the app. If there are any, nothing was stored.
    pub unknown: Vec<usize>,
}

/// Stores events that are not known yet, and applies them to triggers in the same transaction.
pub async fn record(
    conn: &mut PgConnection, vault: &Vault, app: AppId, events: &[NewEvent], now: Timestamp,
) -> sqlx::Result<Recorded> {
    let ids = events.iter().filter_map(|event| match event.subject {
        EventSubject::Browser(id) => Some(id),
        EventSubject::User(_) => None,
    });
    let ids: Vec<SubscriptionId> = ids.collect();
    let browsers = lock_browsers(&mut *conn, vault, app, &ids).await?;
    let of_people: Vec<Option<PersonalEvent<'_>>> =
        events.iter().map(|event| PersonalEvent::new(app, event, &browsers)).collect();
    let unknown: Vec<usize> = (0..events.len()).filter(|place| of_people[*place].is_none()).collect();
    if !unknown.is_empty() {
        return Ok(Recorded { unknown, ..Recorded::default() });
    }
    let events: Vec<PersonalEvent<'_>> = of_people.into_iter().flatten().collect();
    let plain = |event: &NewEvent| event.properties.as_ref().map(|it| serde_json::to_vec(it).expect("a map is JSON"));
    let plain: Vec<Option<Vec<u8>>> = events.iter().map(|it| plain(it.event)).collect();
    let seal = |id: Uuid, plain: &Option<Vec<u8>>| plain.as_ref().map(|plain| vault.seal(PROPERTIES, id, plain));
    let sealed: Vec<Option<Vec<u8>>> = events.iter().zip(&plain).map(|(it, plain)| seal(it.event.id, plain)).collect();
    let stored = fetch_all!(
        &mut *conn,
        scalar,
        "INSERT INTO user_events (id, app, event, person, name, at, properties)
         SELECT t.id, $1, t.event, t.person, t.name, t.at, t.properties
         FROM unnest($2::uuid[], $3::text[], $4::uuid[], $5::text[], $6::timestamptz[], $7::bytea[])
           AS t (id, event, person, name, at, properties)
         ORDER BY t.event ON CONFLICT (app, event) DO NOTHING RETURNING id",
        (app.0),
        events,
        |it| (it.event.id, it.event.event.as_str(), it.person.id(), it.event.name.as_str(), it.event.at),
        (&sealed as &[Option<Vec<u8>>])
    )?;
    let new: HashSet<Uuid> = stored.into_iter().collect();
    let observed: Vec<Observed<'_>> = events
        .iter()
        .zip(&plain)
        .filter(|(it, _)| new.contains(&it.event.id))
        .map(|(it, plain)| Observed {
            cause: Cause::Event(it.event.name.clone()),
            person: it.person,
            browser: it.browser.map(|browser| Person::of_browser(browser.origin)),
            at: it.event.at,
            since: it.event.at,
            user: it.user,
            subscription: it.browser.filter(|_| it.user.is_none()).map(|browser| (browser.id, browser.life)),
            event: Some(it.event.id),
            follows: None,
            properties: plain.as_deref(),
        })
        .collect();
    observe(conn, app, &observed, now).await?;
    let people = events.iter().filter(|it| new.contains(&it.event.id)).map(|it| (it.event.id, it.person));
    Ok(Recorded { new: people.collect(), unknown, browsers })
}

/// Locks the browsers of subscriptions, so that a logout or an erasure comes before or after all of the transaction, and returns them.
/// Replaced subscriptions have their successors.
async fn lock_browsers(
    conn: &mut PgConnection, vault: &Vault, app: AppId, ids: &[SubscriptionId],
) -> sqlx::Result<HashMap<SubscriptionId, EventBrowser>> {
    let mut browsers = lock_rows(&mut *conn, app, ids).await?;
    let replaced = browsers.values().filter(|browser| browser.is_replaced).map(|browser| browser.id);
    let replaced: Vec<SubscriptionId> = replaced.collect();
    if replaced.is_empty() {
        return Ok(browsers);
    }
    let successors = aliases::resolve(&mut *conn, vault, app, &replaced).await?;
    let ids: Vec<SubscriptionId> = successors.values().flatten().copied().collect();
    let rows = lock_rows(conn, app, &ids).await?;
    for browser in replaced.iter().filter_map(|id| browsers.remove(id)).collect::<Vec<_>>() {
        let next = successors.get(&browser.id).copied().flatten().and_then(|next| rows.get(&next));
        // Read again under the lock: the browser may be another person's by now.
        let is_same = |next: &&EventBrowser| !next.is_replaced && (browser.user.is_none() || browser.user == next.user);
        let id = browser.id;
        let current = match next.filter(is_same) {
            Some(next) => next.clone(),
            None => EventBrowser { user: None, ..browser },
        };
        browsers.insert(id, current);
    }
    Ok(browsers)
}

async fn lock_rows(
    conn: &mut PgConnection, app: AppId, ids: &[SubscriptionId],
) -> sqlx::Result<HashMap<SubscriptionId, EventBrowser>> {
    if engine::is_distributed() {
        lock_in_order(conn, ids.iter().copied()).await?;
        return browsers(conn, app, ids).await;
    }
    let rows = fetch_all!(
        conn,
        EventBrowser,
        r#"SELECT id AS "id: SubscriptionId", origin_id AS "origin: SubscriptionId", life, user_id AS user, user_left_at AS left_at,
             state = 'replaced' AS "is_replaced!"
           FROM subscriptions WHERE app = $1 AND (shard, id) IN (SELECT * FROM unnest($2::smallint[], $3::uuid[]))
           ORDER BY shard, id FOR NO KEY UPDATE"#,
        (app.0, &shard_column(ids), ids as &[SubscriptionId])
    )?;
    Ok(rows.into_iter().map(|row| (row.id, row)).collect())
}

/// Returns the browsers of subscriptions, also of ended ones. Unknown ids are omitted.
pub async fn browsers(
    executor: impl PgExecutor<'_>, app: AppId, ids: &[SubscriptionId],
) -> sqlx::Result<HashMap<SubscriptionId, EventBrowser>> {
    let rows = fetch_all!(
        executor,
        EventBrowser,
        r#"SELECT s.id AS "id: SubscriptionId", s.origin_id AS "origin: SubscriptionId", s.life, s.user_id AS user, s.user_left_at AS left_at,
             s.state = 'replaced' AS "is_replaced!"
           FROM unnest($2::smallint[], $3::uuid[]) AS t (shard, id) JOIN subscriptions s ON s.shard = t.shard AND s.id = t.id
           WHERE s.app = $1 AND s.shard = ANY ($4)"#,
        (app.0, &shard_column(ids), ids as &[SubscriptionId], &shards_of(ids))
    )?;
    Ok(rows.into_iter().map(|row| (row.id, row)).collect())
}

/// A person by id, with the time since which a browser's events are this person's.
#[derive(Debug, Clone, Copy)]
pub struct KnownPerson {
    pub id: Uuid,
    pub since: Timestamp,
}

impl KnownPerson {
    pub fn of_user(app: AppId, user: &str) -> Self {
        Self { id: Person::of_user(app, user).id(), since: Timestamp::UNIX_EPOCH }
    }
}

impl EventBrowser {
    /// Returns the browser's user, and the browser itself.
    pub fn people(&self, app: AppId) -> Vec<KnownPerson> {
        let browser = KnownPerson { id: self.origin.0, since: self.left_at.unwrap_or(Timestamp::UNIX_EPOCH) };
        let user = self.user.as_deref().map(|user| KnownPerson::of_user(app, user));
        user.into_iter().chain([browser]).collect()
    }
}

/// Returns a user and the user's browsers, whose events may precede the login. A replaced subscription keeps the user that its browser
/// may have lost since.
pub async fn people_of_user(pool: &PgPool, app: AppId, user: &str) -> sqlx::Result<Vec<KnownPerson>> {
    let shards = user_shards::of(pool, app, Some(&[user.to_owned()])).await?;
    let rows = fetch_all!(
        pool,
        r#"SELECT origin_id, max(user_left_at) AS left_at FROM subscriptions
           WHERE app = $1 AND user_id = $2 AND state <> 'replaced' AND ($3::smallint[] IS NULL OR shard = ANY ($3))
           GROUP BY origin_id"#,
        (app.0, user, shards.as_deref())
    )?;
    let browser = |id, left_at: Option<Timestamp>| KnownPerson { id, since: left_at.unwrap_or(Timestamp::UNIX_EPOCH) };
    let mut people: Vec<KnownPerson> = rows.into_iter().map(|row| browser(row.origin_id, row.left_at)).collect();
    people.push(KnownPerson::of_user(app, user));
    Ok(people)
}

/// An event of a person.
#[derive(Debug)]
pub struct StoredEvent {
    pub id: Uuid,
    pub name: String,
    pub at: Timestamp,
    properties: Option<Vec<u8>>,
    /// Value of a conversion, in ten-thousandths of the currency.
    pub value: Option<i64>,
    pub currency: Option<String>,
    /// Campaign to which the conversion is attributed.
    pub campaign: Option<CampaignId>,
}

impl StoredEvent {
    pub fn properties(&self, vault: &Vault) -> Result<Option<Map<String, Value>>, Unopenable> {
        let Some(sealed) = &self.properties else { return Ok(None) };
        Ok(serde_json::from_slice(&vault.open(PROPERTIES, self.id, sealed)?).ok())
    }
}

/// Returns a page of the events of people with ids above `after`.
pub async fn of_people(
    pool: &PgPool, app: AppId, people: &[KnownPerson], after: Uuid, limit: i64,
) -> sqlx::Result<Vec<StoredEvent>> {
    fetch_all!(
        pool,
        StoredEvent,
        r#"SELECT e.id, e.name, e.at, e.properties, c.value AS "value?", c.currency AS "currency?", c.campaign AS "campaign?: CampaignId"
           FROM unnest($2::uuid[], $3::timestamptz[]) AS p (id, since)
             JOIN user_events e ON e.app = $1 AND e.person = p.id AND e.at >= p.since
             LEFT JOIN conversions c ON c.event = e.id
           WHERE e.id > $4 ORDER BY e.id LIMIT $5"#,
        (app.0),
        people,
        |person| (person.id, person.since),
        (after, limit)
    )
}
