//! Unit tests of `src/api/http/outgoing.rs`, which includes them.

use futures_util::{FutureExt as _, StreamExt as _};

use super::*;

const PART: Bytes = Bytes::from_static(b"part");

#[tokio::test]
async fn parts_follow_each_other_until_a_clean_end() {
    let (outgoing, body) = Outgoing::new(Duration::from_secs(3_600), None);
    let mut parts = body.into_data_stream();
    outgoing.part(PART).await.unwrap();
    assert!(outgoing.part(PART).now_or_never().is_none(), "one waits to be taken");
    assert_eq!(parts.next().await.unwrap().unwrap(), PART);
    outgoing.part(PART).await.unwrap();
    assert_eq!(parts.next().await.unwrap().unwrap(), PART);
    outgoing.end().await.unwrap();
    assert!(parts.next().await.is_none());

    let (outgoing, body) = Outgoing::new(Duration::from_secs(3_600), None);
    outgoing.part(PART).await.unwrap();
    drop(outgoing);
    axum::body::to_bytes(body, usize::MAX).await.unwrap_err();
}

#[tokio::test]
async fn stalled_or_gone_client_gets_no_more() {
    let (outgoing, _body) = Outgoing::new(Duration::ZERO, None);
    outgoing.part(PART).await.unwrap();
    assert!(matches!(outgoing.part(PART).await, Err(BodyInterrupted::Client)));
    assert!(matches!(outgoing.end().await, Err(BodyInterrupted::Client)), "a place is not kept for the end either");
    let (outgoing, body) = Outgoing::new(Duration::from_secs(3_600), None);
    drop(body);
    assert!(matches!(outgoing.part(PART).await, Err(BodyInterrupted::Client)));
    let never = stream::pending::<Result<Bytes, String>>();
    outgoing.give_all(never).await.unwrap_err();
}
