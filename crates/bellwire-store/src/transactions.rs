//! Transactions that are safe to drop: no connection returns to the pool inside an open transaction.
//!
//! sqlx 0.9 counts a transaction when Postgres has answered `BEGIN`. Dropped before that, for example by a disconnecting
//! client, it would return the connection to the pool inside an open transaction (sqlx issue 4393). A later statement there
//! would never commit, or read an old snapshot. `clippy.toml` forbids sqlx's own functions.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use sqlx::pool::PoolConnection;
use sqlx::{PgPool, Postgres, SqlSafeStr as _, Transaction};
use tokio::runtime::Handle;

type Begun = sqlx::Result<Transaction<'static, Postgres>>;

/// Begins a transaction with Postgres's defaults.
pub async fn begin(pool: &PgPool) -> Begun {
    begin_with(pool, "BEGIN").await
}

/// Begins a transaction with index plans only, as [`by_index_only`](crate::by_index_only) does, in a pool without that setting:
/// for statements that probe dispatch's tables, or read an index up to a limit.
pub async fn begin_by_index(pool: &PgPool) -> Begun {
    let statement = "BEGIN; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
                     SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off";
    begin_with(pool, statement).await
}

/// Begins a transaction with the given statement. Dropping the future while it waits for a connection is safe; `BEGIN` is
/// always completed.
pub async fn begin_with(pool: &PgPool, statement: &'static str) -> Begun {
    begin_on(pool.acquire().await?, statement).await
}

/// Begins a transaction on a connection.
pub async fn begin_on(connection: PoolConnection<Postgres>, statement: &'static str) -> Begun {
    PendingBegin(Some(Transaction::begin(connection, Some(statement.into_sql_str())))).await
}

/// Running `BEGIN`. If dropped, it continues in a separate task, which rolls back.
struct PendingBegin(Option<BoxFuture<'static, Begun>>);

impl Future for PendingBegin {
    type Output = Begun;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Begun> {
        let beginning = self.0.as_mut().expect("not polled after it is ready");
        let begun = std::task::ready!(beginning.as_mut().poll(context));
        self.0 = None;
        Poll::Ready(begun)
    }
}

impl Drop for PendingBegin {
    fn drop(&mut self) {
        if let (Some(beginning), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move { drop(beginning.await) });
        }
    }
}
