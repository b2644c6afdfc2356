//! Unit tests of `src/server/maintenance.rs`, which includes them.

use chrono::DateTime;

use super::*;

#[tokio::test]
async fn sweep_ends_although_chunks_repeat() {
    let (mut endless, mut brief) = (0, 0);
    let again = || {
        endless += 1;
        async { Ok(true) }
    };
    sweep_up("endless", again).await.unwrap();
    let until_third = || {
        brief += 1;
        let is_more = brief < 3;
        async move { Ok(is_more) }
    };
    sweep_up("brief", until_third).await.unwrap();
    assert_eq!((endless, brief), (CHUNKS_MAX, 3));
}

#[test]
fn failed_chore_is_not_due_at_once() {
    let now: Timestamp = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
    let mut chore = Chore::new(now, KEEP_EVERY, KEEP_AGAIN);
    assert!(chore.is_due(now));
    chore.tried("test", &sqlx::Result::<()>::Err(sqlx::Error::PoolTimedOut), now);
    assert!(!chore.is_due(now + Duration::from_secs(59)) && chore.is_due(now + Duration::from_secs(60)));
    chore.tried("test", &Ok(()), now);
    assert!(!chore.is_due(now + Duration::from_secs(3599)) && chore.is_due(now + KEEP_EVERY));
}
