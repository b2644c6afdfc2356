//! Entries that are due, for the scheduler. Their messages are created in the transaction that ends the wait.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::types::Json;
use sqlx::{PgConnection, PgPool};
use utoipa::ToSchema;
use uuid::Uuid;

use super::user_events::KnownPerson;
use super::waits::{end, lock_people};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, CampaignId, MessageId, SubscriptionId};
use bellwire_rules::campaign::trigger::Trigger;
use bellwire_vault::{PROPERTIES, Unopenable, Vault};

/// Campaign that may have due entries.
#[derive(Debug)]
pub struct RunningTrigger {
    pub campaign: CampaignId,
    /// Due time of its next entry. `None`: it has none.
    pub next_at: Option<Timestamp>,
}

/// Returns the triggers that may send, with the due time of the next entry.
pub async fn running(pool: &PgPool) -> sqlx::Result<Vec<RunningTrigger>> {
    fetch_all!(
        pool,
        RunningTrigger,
        r#"/* running_triggers */ SELECT t.campaign AS "campaign: CampaignId", CASE WHEN e.due_at IS NOT NULL THEN greatest(e.due_at, t.paced_at) END AS next_at
           FROM triggers t JOIN campaigns c ON c.id = t.campaign JOIN apps a ON a.id = c.app
             LEFT JOIN LATERAL (SELECT due_at FROM trigger_entries WHERE campaign = t.campaign AND due_at IS NOT NULL
                                ORDER BY due_at LIMIT 1) e ON true
           WHERE c.state IN ('scheduled', 'sending') AND NOT c.expired AND a.deleting_at IS NULL"#
    )
}

/// A trigger whose due entries the transaction may end.
#[derive(Debug)]
pub struct LockedTrigger {
    pub campaign: CampaignId,
    pub app: AppId,
    /// Encrypted plan of the campaign.
    pub plan: Vec<u8>,
    pub timezone: String,
    pub rule: Json<Trigger>,
    pub paced_at: Option<Timestamp>,
}

/// Locks a campaign against changes of its state, unless it does not run, or another replica sends its due entries.
pub async fn lock(conn: &mut PgConnection, id: CampaignId) -> sqlx::Result<Option<LockedTrigger>> {
    let is_alone = fetch_one!(
        &mut *conn,
        scalar,
        r#"SELECT pg_try_advisory_xact_lock(hashtextextended('bellwire.trigger:' || $1::uuid::text, 0)) AS "alone!""#,
        (id.0)
    )?;
    if !is_alone {
        return Ok(None);
    }
    fetch_optional!(
        conn,
        LockedTrigger,
        r#"SELECT t.campaign AS "campaign: CampaignId", t.app AS "app: AppId", c.plan, a.timezone, t.rule AS "rule: Json<Trigger>",
             t.paced_at
           FROM campaigns c JOIN triggers t ON t.campaign = c.id JOIN apps a ON a.id = c.app
           WHERE c.id = $1 AND c.state IN ('scheduled', 'sending') AND NOT c.expired AND a.deleting_at IS NULL FOR SHARE OF c"#,
        (id.0)
    )
}

/// A person whose message is due.
#[derive(Debug, Clone)]
pub struct DueEntry {
    pub person: Uuid,
    pub due_at: Timestamp,
    pub caused_at: Timestamp,
    pub user_id: Option<String>,
    pub subscription: Option<SubscriptionId>,
    /// Life of that subscription.
    pub life: Option<i32>,
    /// Message that it follows up.
    pub follows: Option<MessageId>,
    pub postponed: bool,
    /// Sender's id of the event, which a report after a restore repeats. `None`: not an event of the site.
    pub event_id: Option<String>,
    event: Option<Uuid>,
    properties: Option<Vec<u8>>,
}

impl DueEntry {
    /// Returns the row of the event. `None`: not an event of the site.
    pub fn event(&self) -> Option<Uuid> {
        self.event
    }

    /// Returns the properties of the event as JSON. `None`: it has none.
    pub fn properties(&self, vault: &Vault) -> Result<Option<Vec<u8>>, Unopenable> {
        let sealed = self.event.zip(self.properties.as_deref());
        sealed.map(|(id, sealed)| vault.open(PROPERTIES, id, sealed)).transpose()
    }
}

/// Returns the first due entries of a locked trigger, and locks their people.
pub async fn entries(
    conn: &mut PgConnection, of: &LockedTrigger, limit: i64, now: Timestamp,
) -> sqlx::Result<Vec<DueEntry>> {
    let people = fetch_all!(
        &mut *conn,
        scalar,
        "SELECT person FROM trigger_entries WHERE campaign = $1 AND due_at <= $2 ORDER BY due_at LIMIT $3",
        (of.campaign.0, now, limit)
    )?;
    if people.is_empty() {
        return Ok(Vec::new());
    }
    lock_people(conn, of.app, people.iter().copied()).await?;
    // Read again: an event may have ended a wait before the lock was granted.
    fetch_all!(
        conn,
        DueEntry,
        r#"SELECT e.person, e.due_at AS "due_at!", e.caused_at, e.user_id, e.subscription AS "subscription: SubscriptionId",
             e.life, e.follows AS "follows: MessageId", e.postponed, e.event, v.event AS "event_id?", v.properties AS "properties?"
           FROM trigger_entries e LEFT JOIN user_events v ON v.id = e.event
           WHERE e.campaign = $1 AND e.person = ANY ($2) AND e.due_at <= $3 ORDER BY e.due_at"#,
        (of.campaign.0, &people, now)
    )
}

/// Ends the wait of these locked people of a trigger. Those who got a message stay while it limits the next one.
pub async fn finish(
    conn: &mut PgConnection, of: &LockedTrigger, sent: &[Uuid], others: &[Uuid], now: Timestamp,
) -> sqlx::Result<()> {
    let (limited, ended): (&[Uuid], Vec<Uuid>) = match of.rule.at_most {
        Some(_) => (sent, others.to_vec()),
        None => (&[], [sent, others].concat()),
    };
    if !limited.is_empty() {
        execute!(
            &mut *conn,
            "UPDATE trigger_entries SET due_at = NULL, event = NULL, sent_at = $3 WHERE campaign = $1 AND person = ANY ($2)",
            (of.campaign.0, limited, now)
        )?;
    }
    if !ended.is_empty() {
        end(conn, &vec![of.campaign; ended.len()], &ended).await?;
    }
    Ok(())
}

/// Moves entries to the people's own hours.
pub async fn postpone(conn: &mut PgConnection, id: CampaignId, entries: &[(Uuid, Timestamp)]) -> sqlx::Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    execute!(
        conn,
        "UPDATE trigger_entries e SET due_at = t.due_at, postponed = true
         FROM unnest($2::uuid[], $3::timestamptz[]) AS t (person, due_at) WHERE e.campaign = $1 AND e.person = t.person",
        (id.0),
        entries,
        |(person, due_at)| (*person, *due_at)
    )
}

/// Stores the time from which the next message may be created.
pub async fn pace(conn: &mut PgConnection, id: CampaignId, paced_at: Timestamp) -> sqlx::Result<()> {
    execute!(conn, "UPDATE triggers SET paced_at = $2 WHERE campaign = $1", (id.0, paced_at))
}

/// Assigns new messages to their campaign.
pub async fn assign(conn: &mut PgConnection, id: CampaignId, messages: &[(MessageId, i16, Uuid)]) -> sqlx::Result<()> {
    execute!(
        conn,
        "UPDATE messages m SET campaign = $1, variant = t.variant, root = t.root
         FROM unnest($2::uuid[], $3::smallint[], $4::uuid[]) AS t (id, variant, root) WHERE m.id = t.id",
        (id.0),
        messages,
        |(id, variant, root)| (id.0, *variant, *root)
    )
}

/// A message that a person waits for.
#[derive(Debug, Serialize, ToSchema)]
pub struct TriggerEntry {
    /// Campaign of the message.
    pub campaign: CampaignId,
    /// Slug of the campaign.
    pub slug: String,
    /// Time at which the message is sent, unless an event ends the wait.
    pub due_at: DateTime<Utc>,
    /// Time of the event that let the person enter.
    pub caused_at: DateTime<Utc>,
    /// That event: `subscribed`, `joined:` and a topic, `event:` and a name, or `sent:` and a campaign's id.
    pub cause: String,
}

/// Returns the messages that people wait for, the next one first.
pub async fn of_people(
    pool: &PgPool, app: AppId, people: &[KnownPerson], limit: i64,
) -> sqlx::Result<Vec<TriggerEntry>> {
    fetch_all!(
        pool,
        TriggerEntry,
        r#"SELECT e.campaign AS "campaign: CampaignId", c.slug, e.due_at AS "due_at!", e.caused_at, t.cause
           FROM unnest($2::uuid[], $3::timestamptz[]) AS p (id, since)
             CROSS JOIN triggers t JOIN campaigns c ON c.id = t.campaign
             JOIN trigger_entries e ON e.campaign = t.campaign AND e.person = p.id AND e.caused_at >= p.since
           WHERE t.app = $1 AND e.due_at IS NOT NULL AND c.state IN ('scheduled', 'sending', 'paused')
           ORDER BY e.due_at LIMIT $4"#,
        (app.0),
        people,
        |person| (person.id, person.since),
        (limit)
    )
}
