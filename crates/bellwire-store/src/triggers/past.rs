//! Stored events, for dry runs of triggers.

use sqlx::PgConnection;
use uuid::Uuid;

use bellwire_core::clock::{Timestamp, first_uuid_of};
use bellwire_core::id::AppId;
use bellwire_vault::{PROPERTIES, Vault};

/// Something that happened to a person.
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
    conn: &mut PgConnection,
    app: AppId,
    names: &[String],
    since: Timestamp,
    limit: i64,
) -> sqlx::Result<Vec<PastRow>> {
    fetch_all!(
        conn,
        PastRow,
        r#"SELECT id, person, name AS "name?", at, properties AS sealed FROM user_events
           WHERE id >= $3 AND app = $1 AND name = ANY ($2) AND at >= $4 ORDER BY id LIMIT $5"#,
        (app.0, names, first_uuid_of(since), since, limit)
    )
}

/// Returns the first browsers that subscribed since a time.
pub async fn subscribed(
    conn: &mut PgConnection,
    app: AppId,
    since: Timestamp,
    limit: i64,
) -> sqlx::Result<Vec<PastRow>> {
    fetch_all!(
        conn,
        PastRow,
        r#"SELECT id, origin_id AS person, NULL::text AS name, created_at AS at, NULL::bytea AS sealed FROM subscriptions
           WHERE app = $1 AND id >= $2 AND created_at >= $3 AND origin_id = id ORDER BY id LIMIT $4"#,
        (app.0, first_uuid_of(since), since, limit)
    )
}

/// Returns the browsers that joined a topic since a time.
pub async fn joined(
    conn: &mut PgConnection,
    app: AppId,
    topic: &str,
    since: Timestamp,
    limit: i64,
) -> sqlx::Result<Vec<PastRow>> {
    fetch_all!(
        conn,
        PastRow,
        r#"SELECT m.subscription AS id, m.subscription AS person, NULL::text AS name, m.joined_at AS at, NULL::bytea AS sealed
           FROM topics t JOIN topic_members m ON m.topic = t.id
           WHERE t.app = $1 AND t.name = $2 AND m.joined_at >= $3 ORDER BY m.joined_at LIMIT $4"#,
        (app.0, topic, since, limit)
    )
}
