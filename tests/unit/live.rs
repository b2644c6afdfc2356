//! Unit tests of `src/live.rs`, which includes them.

use sqlx::postgres::PgConnectOptions;

use super::*;
use bellwire_store as store;

#[tokio::test]
async fn nothing_is_read_once_nobody_listens_any_more() {
    let nowhere = store::connect_lazily(PgConnectOptions::new().socket("/nonexistent"), 1);
    let live =
        Live::new(nowhere, Clock::system(), LiveConfig { every: Duration::from_millis(1), ..LiveConfig::default() });
    assert!(live.join(None).is_none(), "nobody listened yet");
    let joined = live.join(Some(Position { xid: 1, seq: 0 })).expect("a reader");
    assert!(live.join(None).is_some());
    drop(joined);
    let stopped = async {
        while live.0.state.lock().reader.is_some() {
            tokio::task::yield_now().await
        }
    };
    tokio::time::timeout(Duration::from_secs(60), stopped).await.expect("the reader stops");
}
