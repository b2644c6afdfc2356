//! Locks of people, and the end of their waits.

use std::collections::BTreeSet;

use sqlx::PgConnection;
use uuid::Uuid;

use bellwire_core::id::{AppId, CampaignId};

/// Waits until no other transaction changes entries of these people. Held to the end of the transaction.
pub async fn lock_people(conn: &mut PgConnection, app: AppId, people: impl Iterator<Item = Uuid>) -> sqlx::Result<()> {
    lock_parts(conn, app, people.map(|id| i32::from(id.as_bytes()[15] & 0x3f)).collect()).await
}

/// Does so for all people of an app.
pub(crate) async fn lock_everyone(conn: &mut PgConnection, app: AppId) -> sqlx::Result<()> {
    lock_parts(conn, app, (0..64).collect()).await
}

async fn lock_parts(conn: &mut PgConnection, app: AppId, parts: BTreeSet<i32>) -> sqlx::Result<()> {
    fetch_all!(
        conn,
        "SELECT FROM unnest($2::integer[]) AS part,
           LATERAL pg_advisory_xact_lock(hashtextextended('bellwire.people:' || $1::uuid::text || part::text, 0))",
        (app.0, &Vec::from_iter(parts))
    )
    .map(drop)
}

/// Ends the wait of locked people without a message.
pub(crate) async fn end(conn: &mut PgConnection, campaigns: &[CampaignId], people: &[Uuid]) -> sqlx::Result<()> {
    execute!(
        &mut *conn,
        "DELETE FROM trigger_entries e USING unnest($1::uuid[], $2::uuid[]) AS t (campaign, person)
         WHERE e.campaign = t.campaign AND e.person = t.person AND e.sent_at IS NULL",
        (campaigns as &[CampaignId], people)
    )?;
    execute!(
        conn,
        "UPDATE trigger_entries e SET due_at = NULL, event = NULL FROM unnest($1::uuid[], $2::uuid[]) AS t (campaign, person)
         WHERE e.campaign = t.campaign AND e.person = t.person",
        (campaigns as &[CampaignId], people)
    )
}
