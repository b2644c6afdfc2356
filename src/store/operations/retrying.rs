//! Runs a transaction again when Postgres gave it up for the sake of another one.

use crate::store::connections::engine;

/// Whether an error says that the transaction was undone and would likely succeed the next time: a deadlock or a
/// serialization failure. On Citus a duplicate, too: a transaction lets go of its locks on the coordinator a moment before all see what it
/// wrote on other machines.
pub(crate) fn is_collision(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .and_then(|e| e.code())
        .is_some_and(|code| code == "40P01" || code == "40001" || code == "23505" && engine::is_distributed())
}

/// Runs a whole transaction, up to five times while it collides with others. It must hold nothing back between runs.
pub(crate) async fn retrying<T, F>(mut transaction: impl FnMut() -> F) -> Result<T, sqlx::Error>
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
