//! Delivery policies of an app's tiers, topics and subscriptions, stored as written.

use serde_json::Value;
use sqlx::{PgConnection, PgExecutor, PgPool};

use crate::keyset::{Keyset, paged};
use crate::results::WriteOutcome;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, SubscriptionId};

/// Reads an app's policy of each tier, in the order of [`Tier::ALL`].
pub async fn tiers(pool: &PgPool, app: AppId) -> Result<[Option<Value>; 3], sqlx::Error> {
    let mut rows = fetch_all!(pool, "SELECT tier, policy FROM tier_settings WHERE app = $1", (app.0))?;
    Ok(Tier::ALL.map(|tier| rows.iter_mut().find(|row| row.tier == tier.code()).and_then(|row| row.policy.take())))
}

pub async fn tier(pool: &PgPool, app: AppId, tier: Tier) -> Result<Option<Value>, sqlx::Error> {
    fetch_optional!(pool, scalar, "SELECT policy FROM tier_settings WHERE app = $1 AND tier = $2", (app.0, tier.code()))
        .map(Option::flatten)
}

/// Sets or removes an app's policy for a tier. Other settings of the tier stay.
pub async fn set_tier(
    executor: impl PgExecutor<'_>, app: AppId, tier: Tier, policy: Option<&Value>, now: Timestamp,
) -> Result<(), sqlx::Error> {
    execute!(
        executor,
        "INSERT INTO tier_settings (app, tier, policy, changed_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (app, tier) DO UPDATE SET policy = excluded.policy, changed_at = excluded.changed_at",
        (app.0, tier.code(), policy, now)
    )?;
    Ok(())
}

#[derive(Debug)]
pub struct RecipientPolicy {
    /// Policy. `None`: none is set, so the next level decides.
    pub policy: Option<Value>,
}

/// Reads the policy of a topic. `None`: the topic does not exist.
pub async fn topic(pool: &PgPool, app: AppId, name: &str) -> Result<Option<RecipientPolicy>, sqlx::Error> {
    fetch_optional!(pool, RecipientPolicy, "SELECT policy FROM topics WHERE app = $1 AND name = $2", (app.0, name))
}

#[derive(Debug)]
pub struct TopicPolicy {
    pub id: i32,
    pub name: String,
    pub policy: Value,
}

/// Returns an app's topics with a policy beyond the page's key, the nearest numbers first.
pub async fn topics(pool: &PgPool, app: AppId, page: Keyset) -> Result<Vec<TopicPolicy>, sqlx::Error> {
    paged!(pool, page, TopicPolicy,
        [r#"SELECT id, name, policy AS "policy!" FROM topics WHERE app = $1 AND policy IS NOT NULL AND id"# < "$2
         ORDER BY id" DESC "LIMIT $3"],
        (app.0, page.number(), page.limit)
    )
}

pub async fn set_topic(
    conn: &mut PgConnection, app: AppId, name: &str, policy: Option<&Value>,
) -> Result<WriteOutcome, sqlx::Error> {
    let done =
        rows_affected!(conn, "UPDATE topics SET policy = $3 WHERE app = $1 AND name = $2", (app.0, name, policy))?;
    Ok(WriteOutcome::by(done))
}

/// Reads the policy of a subscription. `None`: it does not exist in the app.
pub async fn subscription(
    pool: &PgPool, app: AppId, id: SubscriptionId,
) -> Result<Option<RecipientPolicy>, sqlx::Error> {
    fetch_optional!(
        pool,
        RecipientPolicy,
        "SELECT policy FROM subscriptions WHERE shard = $1 AND id = $2 AND app = $3",
        (id.shard(), id.0, app.0)
    )
}

pub async fn set_subscription(
    executor: impl PgExecutor<'_>, app: AppId, id: SubscriptionId, policy: Option<&Value>,
) -> Result<WriteOutcome, sqlx::Error> {
    let done = rows_affected!(
        executor,
        "UPDATE subscriptions SET policy = $4 WHERE shard = $1 AND id = $2 AND app = $3",
        (id.shard(), id.0, app.0, policy)
    )?;
    Ok(WriteOutcome::by(done))
}

/// Sets a subscription's policy if it differs. Returns whether it did.
pub async fn adopt_subscription(
    conn: &mut PgConnection, app: AppId, id: SubscriptionId, policy: &Value,
) -> Result<bool, sqlx::Error> {
    let done = rows_affected!(
        conn,
        "UPDATE subscriptions SET policy = $4 WHERE shard = $1 AND id = $2 AND app = $3 AND policy IS DISTINCT FROM $4",
        (id.shard(), id.0, app.0, policy)
    )?;
    Ok(done == 1)
}
