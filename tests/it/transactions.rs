//! Transactions whose callers are dropped while they begin.

use std::future::poll_fn;
use std::task::Poll;

use bellwire_store::connect;
use bellwire_store::transactions::begin;

use crate::support::TestDatabase;

#[tokio::test]
async fn dropped_begin_leaves_no_open_transaction() {
    let database = TestDatabase::create().await;
    let [pool, other] = [connect(database.options(), 1).await.unwrap(), connect(database.options(), 1).await.unwrap()];
    sqlx::query("CREATE TABLE written (n bigint)").execute(&pool).await.unwrap();
    for polls in 1..=10 {
        let mut beginning = Box::pin(begin(&pool));
        for _ in 0..polls {
            // Dropped in every state: before the connection, before Postgres's answer, or behind it.
            let is_ready = poll_fn(|context| Poll::Ready(beginning.as_mut().poll(context).is_ready())).await;
            if is_ready {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(beginning);
        sqlx::query("INSERT INTO written VALUES ($1)").bind(polls).execute(&pool).await.unwrap();
        let seen: i64 = sqlx::query_scalar("SELECT max(n) FROM written").fetch_one(&other).await.unwrap();
        assert_eq!(seen, polls, "the statement behind a dropped BEGIN is committed");
    }
}
