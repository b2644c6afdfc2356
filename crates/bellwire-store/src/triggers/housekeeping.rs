//! Maintenance: entries of ended campaigns, expired events, and erasures.

use std::collections::BTreeMap;

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::counts::{self, EntryCounts};
use super::due;
use super::observing::lock_people;
use crate::transactions::begin;
use bellwire_core::clock::{Timestamp, first_uuid_of};
use bellwire_core::id::{AppId, CampaignId};
use bellwire_core::person::Person;
use bellwire_rules::campaign::trigger::Trigger;

/// Rows deleted in one transaction.
const CHUNK: i64 = 5_000;

/// Deletes a chunk of the entries of campaigns that were cancelled, have ended or were deleted. Returns the number.
pub async fn clear_ended(pool: &PgPool, now: Timestamp) -> sqlx::Result<u64> {
    let mut tx = begin(pool).await?;
    let rows = fetch_all!(
        &mut *tx,
        r#"DELETE FROM trigger_entries WHERE ctid = ANY (ARRAY(
             SELECT e.ctid FROM (
               SELECT t.campaign FROM triggers t JOIN campaigns c ON c.id = t.campaign
               WHERE c.state IN ('cancelled', 'done') OR c.expired) c
             CROSS JOIN LATERAL (SELECT ctid FROM trigger_entries WHERE campaign = c.campaign LIMIT $1 FOR UPDATE SKIP LOCKED) e
             LIMIT $1))
           RETURNING campaign AS "campaign: CampaignId", due_at IS NOT NULL AS "waits!""#,
        (CHUNK)
    )?;
    let mut cancelled = BTreeMap::<CampaignId, EntryCounts>::new();
    for row in rows.iter().filter(|row| row.waits) {
        cancelled.entry(row.campaign).or_default().cancelled += 1;
    }
    counts::add(&mut tx, &cancelled, now).await?;
    tx.commit().await?;
    Ok(rows.len() as u64)
}

/// Deletes the entries and counts of a campaign that is deleted.
pub async fn forget_campaign(conn: &mut PgConnection, id: CampaignId) -> sqlx::Result<()> {
    execute!(&mut *conn, "DELETE FROM trigger_counts WHERE campaign = $1", (id.0))?;
    execute!(conn, "DELETE FROM trigger_entries WHERE campaign = $1", (id.0))
}

/// Deletes a chunk of rows whose last message no longer limits the next one. Returns the number.
pub async fn clear_unlimited(pool: &PgPool, now: Timestamp) -> sqlx::Result<u64> {
    let triggers = fetch_all!(
        pool,
        r#"SELECT campaign AS "campaign: CampaignId", rule AS "rule: sqlx::types::Json<Trigger>" FROM triggers"#
    )?;
    let mut deleted = 0;
    for row in triggers {
        let Some(since) = due::limits_since(row.rule.at_most, now) else { continue };
        deleted += rows_affected!(
            pool,
            "DELETE FROM trigger_entries WHERE ctid = ANY (ARRAY(
               SELECT ctid FROM trigger_entries WHERE campaign = $1 AND due_at IS NULL AND sent_at < $2
               LIMIT $3 FOR UPDATE SKIP LOCKED))",
            (row.campaign.0, since, CHUNK)
        )?;
    }
    Ok(deleted)
}

/// Deletes a chunk of events that were reported before `cutoff`. Returns the number.
pub async fn clear_events(pool: &PgPool, cutoff: Timestamp) -> sqlx::Result<u64> {
    rows_affected!(
        pool,
        "DELETE FROM user_events WHERE id = ANY (ARRAY(
           SELECT id FROM user_events WHERE id < $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED))",
        (first_uuid_of(cutoff), CHUNK)
    )
}

/// Deletes the events and entries of a person.
pub(crate) async fn forget(conn: &mut PgConnection, app: AppId, person: Person, now: Timestamp) -> sqlx::Result<()> {
    let person: Uuid = person.id();
    lock_people(&mut *conn, app, std::iter::once(person)).await?;
    let rows = fetch_all!(
        &mut *conn,
        r#"WITH events AS (DELETE FROM user_events WHERE app = $1 AND person = $2)
           DELETE FROM trigger_entries WHERE app = $1 AND person = $2
           RETURNING campaign AS "campaign: CampaignId", due_at IS NOT NULL AS "waits!""#,
        (app.0, person)
    )?;
    let mut cancelled = BTreeMap::<CampaignId, EntryCounts>::new();
    for row in rows.iter().filter(|row| row.waits) {
        cancelled.entry(row.campaign).or_default().cancelled += 1;
    }
    counts::add(conn, &cancelled, now).await
}
