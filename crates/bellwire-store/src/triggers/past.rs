//! Stored events, for dry runs of triggers.

use sqlx::PgConnection;
use uuid::Uuid;

use bellwire_core::clock::{Timestamp, first_uuid_of};
use bellwire_core::id::{AppId, SubscriptionId};
use bellwire_core::person::Person;
use bellwire_vault::{PROPERTIES, Vault};

/// Event of a person in the past.
#[derive(Debug)]
pub struct PastRow {
    pub id: Uuid,
    pub person: Uuid,
    /// Name of the event. `None`: a browser subscribed or joined the topic.
    pub name: Option<String>,
    pub at: Timestamp,
    sealed: Option<Vec<u8>>,
}

impl PastRow {
    /// Returns the properties as JSON.
    pub fn properties(&self, vault: &Vault) -> Option<Vec<u8>> {
        vault.open(PROPERTIES, self.id, self.sealed.as_deref()?).ok()
    }
}

/// Returns the first events with these names that were reported since a time.
pub async fn events(
    conn: &mut PgConnection, app: AppId, names: &[String], since: Timestamp, limit: i64,
) -> sqlx::Result<Vec<PastRow>> {
    fetch_all!(
        conn,
        PastRow,
        r#"SELECT id, person, name AS "name?", at, properties AS sealed FROM user_events
           WHERE app = $1 AND name = ANY ($2) AND id >= $3 AND at >= $4 ORDER BY id LIMIT $5"#,
        (app.0, names, first_uuid_of(since), since, limit)
    )
}

/// A browser that subscribed or joined a topic.
struct NewBrowser {
    id: Uuid,
    user_id: Option<String>,
    origin: SubscriptionId,
    at: Timestamp,
}

impl NewBrowser {
    fn past(self, app: AppId) -> PastRow {
        let person = Person::of(app, self.user_id.as_deref(), self.origin).id();
        PastRow { id: self.id, person, name: None, at: self.at, sealed: None }
    }
}

/// Returns the first browsers that subscribed since a time.
pub async fn subscribed(
    conn: &mut PgConnection, app: AppId, since: Timestamp, limit: i64,
) -> sqlx::Result<Vec<PastRow>> {
    let rows = fetch_all!(
        conn,
        NewBrowser,
        r#"SELECT id, user_id, origin_id AS "origin: SubscriptionId", created_at AS at FROM subscriptions
           WHERE app = $1 AND id >= $2 AND created_at >= $3 AND origin_id = id ORDER BY id LIMIT $4"#,
        (app.0, first_uuid_of(since), since, limit)
    )?;
    Ok(rows.into_iter().map(|row| row.past(app)).collect())
}

/// Returns the browsers that joined a topic since a time.
pub async fn joined(
    conn: &mut PgConnection, app: AppId, topic: &str, since: Timestamp, limit: i64,
) -> sqlx::Result<Vec<PastRow>> {
    let rows = fetch_all!(
        conn,
        NewBrowser,
        r#"SELECT s.id, s.user_id, s.origin_id AS "origin: SubscriptionId", m.joined_at AS at
           FROM topics t JOIN topic_members m ON m.topic = t.id
             JOIN subscriptions s ON s.shard = m.shard AND s.id = m.subscription
           WHERE t.app = $1 AND t.name = $2 AND m.joined_at >= $3 ORDER BY m.joined_at LIMIT $4"#,
        (app.0, topic, since, limit)
    )?;
    Ok(rows.into_iter().map(|row| row.past(app)).collect())
}
