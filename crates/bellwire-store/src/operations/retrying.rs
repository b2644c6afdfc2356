//! Runs a transaction again when Postgres gave it up for the sake of another one.

use crate::connections::engine;

/// Whether an error means that the transaction was rolled back and would likely succeed next time: a deadlock or a serialization
/// failure. On Citus also a duplicate: a transaction releases its locks on the coordinator a moment before its rows on other
/// machines are visible to all. Of a duplicate in COPY, Citus passes on the text alone, without the code: an endpoint that was
/// registered meanwhile shows by the name of its index, which ends in the shard's number.
pub fn is_collision(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else { return false };
    match error.code().as_deref() {
        Some("40P01" | "40001") => true,
        Some("23505") => engine::is_distributed(),
        Some("XX000") => engine::is_distributed() && error.message().contains("subscriptions_by_endpoint_"),
        _ => false,
    }
}

/// Runs a whole transaction, up to five times while it collides with others. It must hold nothing back between runs.
pub async fn retrying<T, F>(mut transaction: impl FnMut() -> F) -> Result<T, sqlx::Error>
where
    F: Future<Output = Result<T, sqlx::Error>>,
{
    for _ in 0..4 {
        match transaction().await {
            Err(error) if is_collision(&error) => tracing::debug!(error = %error, "a transaction runs again"),
            settled => return settled,
        }
    }
    transaction().await
}
