//! Records of operations on dead letters, for reading.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use sqlx::PgPool;
use utoipa::ToSchema;

use crate::keyset::{Keyset, paged};
use bellwire_core::id::{ActionId, AppId};

/// Operation on dead letters.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = DeadLetterActionResponse)]
pub struct ActionRow {
    /// Id of the operation.
    pub id: ActionId,
    /// `replay`, `discard` or `export`.
    pub action: String,
    /// Caller: the id of an API key, or `local` for the command line.
    pub actor: String,
    /// Filter that selected the dead letters.
    #[schema(value_type = Object)]
    pub filter: Value,
    /// Number of dead letters handled.
    pub count: i64,
    /// Time of its start.
    pub at: DateTime<Utc>,
    /// Time of its last part.
    pub ended_at: DateTime<Utc>,
}

/// Returns an app's operations beyond the page's key, the nearest ids first.
pub async fn list(pool: &PgPool, app: AppId, page: Keyset) -> sqlx::Result<Vec<ActionRow>> {
    paged!(pool, page, ActionRow,
        [r#"SELECT operation AS id, min(action) AS "action!", min(actor) AS "actor!", (array_agg(filter))[1] AS "filter!",
             sum(n)::bigint AS "count!", min(at) AS "at!", max(at) AS "ended_at!"
           FROM dead_letter_actions WHERE app = $1 AND operation"# < "$2 GROUP BY operation ORDER BY operation" DESC "LIMIT $3"],
        (app.0, page.beyond, page.limit)
    )
}
