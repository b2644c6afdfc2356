//! Repeats a transaction that Postgres aborted because of a conflict with another one.

use crate::connections::engine;

/// Whether an error means that the transaction was rolled back and would likely succeed next time: a deadlock or a
/// serialization failure. On Citus also a duplicate key: a transaction releases its locks on the coordinator shortly before its
/// rows on other machines are visible. For a duplicate in COPY, Citus returns only the text without the code. The name of the
/// index, which ends in the shard's number, then identifies a registered endpoint.
pub fn is_collision(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else { return false };
    match error.code().as_deref() {
        Some("40P01" | "40001") => true,
        Some("23505") => engine::is_distributed(),
        Some("XX000") => engine::is_distributed() && error.message().contains("subscriptions_by_endpoint_"),
        _ => false,
    }
}

/// Runs a whole transaction, up to five times while it conflicts with others. The closure must not keep state between runs.
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
