//! Records of operations on dead letters, for reading.

use serde_json::Value;
use sqlx::PgPool;

use crate::keyset::{Keyset, paged};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{ActionId, AppId};

/// Recorded operation.
#[derive(Debug, Clone)]
pub struct ActionRow {
    pub operation: ActionId,
    /// Name from [`Action::name`](super::handling::Action::name).
    pub action: String,
    pub actor: String,
    pub filter: Value,
    pub n: i64,
    /// Time of its first part.
    pub at: Timestamp,
    /// Time of its last part.
    pub ended_at: Timestamp,
}

/// Returns an app's operations beyond the page's key, the nearest ids first.
pub async fn list(pool: &PgPool, app: AppId, page: Keyset) -> sqlx::Result<Vec<ActionRow>> {
    paged!(pool, page, ActionRow,
        [r#"SELECT operation, min(action) AS "action!", min(actor) AS "actor!", (array_agg(filter))[1] AS "filter!",
             sum(n)::bigint AS "n!", min(at) AS "at!", max(at) AS "ended_at!"
           FROM dead_letter_actions WHERE app = $1 AND operation"# < "$2 GROUP BY operation ORDER BY operation" DESC "LIMIT $3"],
        (app.0, page.beyond, page.limit)
    )
}
