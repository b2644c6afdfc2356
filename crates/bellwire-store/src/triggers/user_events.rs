//! Events that sites report about their users.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::observing::{Observed, observe};
use crate::audience::user_shards;
use crate::connections::engine::{shard_column, shards_of};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, SubscriptionId};
use bellwire_core::person::Person;
use bellwire_rules::campaign::trigger::Cause;
use bellwire_vault::{PROPERTIES, Unopenable, Vault};

/// An event as a site reports it.
#[derive(Debug, Clone)]
pub struct NewEvent {
    /// Sender's id, by which repeats are dropped.
    pub event: String,
    pub name: String,
    pub at: Timestamp,
    pub user: Option<String>,
    /// Browser of the event. `None`: reported for the user.
    pub browser: Option<EventBrowser>,
    pub properties: Option<Map<String, Value>>,
}

/// Browser of an event.
#[derive(Debug, Clone)]
pub struct EventBrowser {
    pub id: SubscriptionId,
    /// First id of the browser.
    pub origin: SubscriptionId,
    pub life: i32,
    pub user: Option<String>,
}

impl NewEvent {
    fn person(&self, app: AppId) -> Person {
        match (&self.user, &self.browser) {
            (Some(user), _) => Person::of_user(app, user),
            (None, browser) => Person::of_browser(browser.as_ref().map_or(SubscriptionId(Uuid::nil()), |it| it.origin)),
        }
    }
}

/// Stores events that are not known yet, and applies them to triggers in the same transaction. Returns the number of new ones.
pub async fn record(
    conn: &mut PgConnection,
    vault: &Vault,
    app: AppId,
    events: &[(Uuid, NewEvent)],
    now: Timestamp,
) -> sqlx::Result<usize> {
    let plain: Vec<Option<Vec<u8>>> = events
        .iter()
        .map(|(_, event)| event.properties.as_ref().map(|it| serde_json::to_vec(it).expect("a map is JSON")))
        .collect();
    let sealed: Vec<Option<Vec<u8>>> = events
        .iter()
        .zip(&plain)
        .map(|((id, _), plain)| plain.as_ref().map(|plain| vault.seal(PROPERTIES, *id, plain)))
        .collect();
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
        |(id, event)| (*id, event.event.as_str(), event.person(app).id(), event.name.as_str(), event.at),
        (&sealed as &[Option<Vec<u8>>])
    )?;
    let new: HashSet<Uuid> = stored.into_iter().collect();
    let observed: Vec<Observed<'_>> = events
        .iter()
        .zip(&plain)
        .filter(|((id, _), _)| new.contains(id))
        .map(|((id, event), plain)| Observed {
            cause: Cause::Event(event.name.clone()),
            person: event.person(app),
            browser: event.browser.as_ref().map(|it| Person::of_browser(it.origin)),
            at: event.at,
            user: event.user.as_deref(),
            subscription: event.browser.as_ref().filter(|_| event.user.is_none()).map(|it| (it.id, it.life)),
            event: Some(*id),
            follows: None,
            properties: plain.as_deref(),
        })
        .collect();
    observe(conn, app, &observed, now).await?;
    Ok(new.len())
}

/// Returns the browsers of subscriptions, also of ended ones. Unknown ids are omitted.
pub async fn browsers(
    pool: &PgPool,
    app: AppId,
    ids: &[SubscriptionId],
) -> sqlx::Result<HashMap<SubscriptionId, EventBrowser>> {
    let rows = fetch_all!(
        pool,
        EventBrowser,
        r#"SELECT s.id AS "id: SubscriptionId", s.origin_id AS "origin: SubscriptionId", s.life, s.user_id AS user
           FROM unnest($2::smallint[], $3::uuid[]) AS t (shard, id) JOIN subscriptions s ON s.shard = t.shard AND s.id = t.id
           WHERE s.app = $1 AND s.shard = ANY ($4)"#,
        (app.0, &shard_column(ids), ids as &[SubscriptionId], &shards_of(ids))
    )?;
    Ok(rows.into_iter().map(|row| (row.id, row)).collect())
}

/// Returns the ids of a user's person and of the user's browsers, whose events may precede the login.
pub async fn people_of_user(pool: &PgPool, app: AppId, user: &str) -> sqlx::Result<Vec<Uuid>> {
    let shards = user_shards::of(pool, app, Some(&[user.to_owned()])).await?;
    let mut people = fetch_all!(
        pool,
        scalar,
        "SELECT DISTINCT origin_id FROM subscriptions
         WHERE app = $1 AND user_id = $2 AND ($3::smallint[] IS NULL OR shard = ANY ($3))",
        (app.0, user, shards.as_deref())
    )?;
    people.push(Person::of_user(app, user).id());
    Ok(people)
}

/// An event of a person.
#[derive(Debug)]
pub struct StoredEvent {
    pub id: Uuid,
    pub name: String,
    pub at: Timestamp,
    properties: Option<Vec<u8>>,
}

impl StoredEvent {
    pub fn properties(&self, vault: &Vault) -> Result<Option<Map<String, Value>>, Unopenable> {
        let Some(sealed) = &self.properties else { return Ok(None) };
        Ok(serde_json::from_slice(&vault.open(PROPERTIES, self.id, sealed)?).ok())
    }
}

/// Returns a page of the events of people with ids above `after`.
pub async fn of_people(
    pool: &PgPool,
    app: AppId,
    people: &[Uuid],
    after: Uuid,
    limit: i64,
) -> sqlx::Result<Vec<StoredEvent>> {
    fetch_all!(
        pool,
        StoredEvent,
        "SELECT id, name, at, properties FROM user_events WHERE app = $1 AND person = ANY ($2) AND id > $3 ORDER BY id LIMIT $4",
        (app.0, people, after, limit)
    )
}
