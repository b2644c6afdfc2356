//! Maintenance: entries of ended campaigns, expired events, and erasures.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use sqlx::types::Json;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::counts::{self, EntryCounts};
use super::waits::lock_people;
use crate::measurement::enrolment;
use crate::transactions::{begin, begin_by_index};
use bellwire_core::clock::{Timestamp, first_uuid_of};
use bellwire_core::id::{AppId, CampaignId};
use bellwire_core::person::Person;
use bellwire_rules::campaign::trigger::{AtMost, ENTERS_FOR, Trigger};

/// Rows deleted in one transaction.
const CHUNK: i64 = 5_000;

/// Deletes a chunk of the entries of campaigns that were cancelled or have ended. Returns the number.
pub async fn clear_ended(pool: &PgPool, now: Timestamp) -> sqlx::Result<u64> {
    let mut tx = begin(pool).await?;
    let ended = fetch_optional!(
        &mut *tx,
        r#"SELECT t.campaign AS "campaign: CampaignId", t.app AS "app: AppId" FROM triggers t JOIN campaigns c ON c.id = t.campaign
           WHERE (c.state IN ('cancelled', 'done') OR c.expired)
             AND EXISTS (SELECT FROM trigger_entries WHERE campaign = t.campaign)
           ORDER BY t.campaign LIMIT 1"#
    )?;
    let Some(ended) = ended else { return Ok(0) };
    let people = fetch_all!(
        &mut *tx,
        scalar,
        "SELECT person FROM trigger_entries WHERE campaign = $1 LIMIT $2",
        (ended.campaign.0, CHUNK)
    )?;
    lock_people(&mut tx, ended.app, people.iter().copied()).await?;
    let waited = fetch_all!(
        &mut *tx,
        scalar,
        r#"DELETE FROM trigger_entries WHERE campaign = $1 AND person = ANY ($2) RETURNING due_at IS NOT NULL AS "waits!""#,
        (ended.campaign.0, &people)
    )?;
    let cancelled = waited.iter().filter(|waits| **waits).count() as i64;
    let counts = BTreeMap::from([(ended.campaign, EntryCounts { cancelled, ..EntryCounts::default() })]);
    counts::add(&mut tx, &counts, now).await?;
    tx.commit().await?;
    Ok(people.len() as u64)
}

/// Deletes the counts of a deleted campaign, and entries that began meanwhile. Earlier ones keep it from being deleted.
pub(crate) async fn forget_campaign(conn: &mut PgConnection, id: CampaignId) -> sqlx::Result<()> {
    execute!(&mut *conn, "DELETE FROM trigger_entries WHERE campaign = $1", (id.0))?;
    execute!(conn, "DELETE FROM trigger_counts WHERE campaign = $1", (id.0))
}

/// Deletes entries and counts that an event wrote while its campaign was deleted. Returns the number of counts.
pub async fn clear_orphans(pool: &PgPool) -> sqlx::Result<u64> {
    rows_affected!(
        pool,
        "WITH orphans AS (SELECT DISTINCT campaign FROM trigger_counts k
                          WHERE NOT EXISTS (SELECT FROM triggers WHERE campaign = k.campaign)),
         entries AS (DELETE FROM trigger_entries e USING orphans o WHERE e.campaign = o.campaign)
         DELETE FROM trigger_counts k USING orphans o WHERE k.campaign = o.campaign"
    )
}

/// Deletes a chunk of rows whose last message no longer limits the next one, also not for an event reported late. Returns the
/// number.
pub async fn clear_unlimited(pool: &PgPool, now: Timestamp) -> sqlx::Result<u64> {
    let triggers =
        fetch_all!(pool, r#"SELECT campaign AS "campaign: CampaignId", rule AS "rule: Json<Trigger>" FROM triggers"#)?;
    let mut deleted = 0;
    for row in triggers {
        let Some(AtMost::OncePer(seconds)) = row.rule.at_most else { continue };
        let mut tx = begin_by_index(pool).await?;
        deleted += rows_affected!(
            &mut *tx,
            "DELETE FROM trigger_entries WHERE ctid = ANY (ARRAY(
               SELECT ctid FROM trigger_entries WHERE campaign = $1 AND due_at IS NULL AND sent_at < $2
               ORDER BY sent_at LIMIT $3 FOR UPDATE SKIP LOCKED))",
            (row.campaign.0, now - TimeDelta::seconds(seconds) - ENTERS_FOR, CHUNK)
        )?;
        tx.commit().await?;
    }
    Ok(deleted)
}

/// Deletes a chunk of events that were reported before `cutoff`, and that no person's message waits for. Returns the number.
pub async fn clear_events(pool: &PgPool, cutoff: Timestamp) -> sqlx::Result<u64> {
    rows_affected!(
        pool,
        "WITH cleared AS (
           DELETE FROM user_events WHERE id = ANY (ARRAY(
             SELECT id FROM user_events v WHERE id < $1
               AND NOT EXISTS (SELECT FROM triggers t JOIN trigger_entries e ON e.campaign = t.campaign
                               WHERE t.app = v.app AND e.person = v.person AND e.event = v.id)
             ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING id),
         conversions AS (DELETE FROM conversions c USING cleared WHERE c.event = cleared.id)
         SELECT FROM cleared",
        (first_uuid_of(cutoff), CHUNK)
    )
}

/// Deletes the events, conversions and entries of a person, and the person from groups that are compared.
pub(crate) async fn forget(conn: &mut PgConnection, app: AppId, of: Person, now: Timestamp) -> sqlx::Result<()> {
    let person: Uuid = of.id();
    lock_people(&mut *conn, app, std::iter::once(person)).await?;
    let rows = fetch_all!(
        &mut *conn,
        r#"WITH events AS (DELETE FROM user_events WHERE app = $1 AND person = $2 RETURNING id),
           conversions AS (DELETE FROM conversions c USING events WHERE c.event = events.id)
           DELETE FROM trigger_entries e USING triggers t WHERE t.app = $1 AND e.campaign = t.campaign AND e.person = $2
           RETURNING e.campaign AS "campaign: CampaignId", e.due_at IS NOT NULL AS "waits!""#,
        (app.0, person)
    )?;
    let mut cancelled = BTreeMap::<CampaignId, EntryCounts>::new();
    for row in rows.iter().filter(|row| row.waits) {
        cancelled.entry(row.campaign).or_default().cancelled += 1;
    }
    counts::add(&mut *conn, &cancelled, now).await?;
    enrolment::forget(conn, app, of).await
}
