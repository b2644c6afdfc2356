//! Unit tests of `src/api/http/extract.rs`, which includes them.

use std::sync::Arc;

use futures_util::StreamExt as _;

use super::*;

#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only read by serde")]
struct Outer {
    inner: Vec<Inner>,
}

#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only read by serde")]
struct Inner {
    n: u8,
    urgency: Option<bellwire_core::delivery::Urgency>,
}

#[test]
fn what_is_wrong_is_pointed_to() {
    for (body, status, pointer) in [
        (r#"{"inner": [{"n": 1}, {"n": 256}]}"#, 422, Some("/inner/1/n")),
        (r#"{"inner": [{"n": "1"}]}"#, 422, Some("/inner/0/n")),
        (r#"{"inner": [{"n": 1, "a/b": 2}]}"#, 422, Some("/inner/0/a~1b")),
        (r#"{"inner": [{"n": 1, "urgency": 3}]}"#, 422, Some("/inner/0/urgency")),
        (r#"{"other": 1}"#, 422, Some("/inner")),
        (r#"{"inner": [{"n": 1, "urgency": "loud"}]}"#, 422, Some("/inner/0/urgency")),
        (r#"{"inner": [], "other": 1}"#, 422, Some("/other")),
        (r#"{"inner": [{}]}"#, 422, Some("/inner/0/n")),
        (r#"{"inner": 3}"#, 422, Some("/inner")),
        ("[]x", 422, Some("")),
        (r#"{"inner": []} x"#, 400, None),
        (r#"{"inner": ["#, 400, None),
        ("", 400, None),
    ] {
        let problem = parse::<Outer>(body.as_bytes()).unwrap_err();
        assert_eq!(problem.status.as_u16(), status, "{body}");
        assert_eq!(problem.errors.first().and_then(|e| e.pointer.as_deref()), pointer, "{body}");
    }
}

/// A piece of a body, which counts how many like it there are.
struct Piece {
    _alive: Arc<()>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        b"x"
    }
}

#[tokio::test]
async fn bytewise_body_keeps_no_chunks() {
    let alive = Arc::new(());
    let made = alive.clone();
    let pieces = futures_util::stream::iter(0..1_000).map(move |_| {
        assert!(Arc::strong_count(&made) <= 3, "what was read before is kept");
        Ok::<_, std::convert::Infallible>(Bytes::from_owner(Piece { _alive: made.clone() }))
    });
    let octets = gather(Body::from_stream(pieces), 1_000).await.unwrap();
    assert_eq!((octets.len(), Arc::strong_count(&alive)), (1_000, 1));
}

#[test]
fn only_json_is_json() {
    for good in ["application/json", "Application/JSON; charset=utf-8", "application/merge-patch+json"] {
        assert!(is_json(Some(good)), "{good}");
    }
    for bad in ["text/json", "text/plain", "application/jsonp", ""] {
        assert!(!is_json(Some(bad)), "{bad}");
    }
}
