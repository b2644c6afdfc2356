//! Unit tests of `src/api/http/keyed_lock.rs`, which includes them.

use super::*;

const NOW: Duration = Duration::ZERO;
const LATE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn key_has_one_holder_and_leaves_nothing() {
    let (turns, id) = (Turns::default(), Uuid::from_u128(1));
    let first = turns.take(id, NOW).await.expect("the key is free");
    assert!(turns.take(id, NOW).await.is_none());
    let _other = turns.take(Uuid::nil(), NOW).await.expect("the key is free");
    let ((), second) = tokio::join!(async { drop(first) }, turns.take(id, LATE));
    assert_eq!(turns.0.lock().len(), 2);
    drop(second.expect("its turn has come"));
    assert_eq!(turns.0.lock().len(), 1);
}
