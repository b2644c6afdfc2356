//! Unit tests of `src/hooks/signature.rs`, which includes them.

use super::*;

#[test]
fn signature_matches_the_reference_library() {
    for body in ["", "[]", r#"[{"type":"delivery.accepted","data":{"user_id":"ä"}}]"#] {
        let secret = generate();
        let theirs = standardwebhooks::Webhook::new(&secret.write()).unwrap();
        let theirs = theirs.sign("whd_1", 1_700_000_000, body.as_bytes()).unwrap();
        assert_eq!(secret.sign("whd_1", 1_700_000_000, body.as_bytes()), theirs);
        assert_ne!(secret.sign("whd_2", 1_700_000_000, body.as_bytes()), theirs);
        assert_ne!(generate().sign("whd_1", 1_700_000_000, body.as_bytes()), theirs);
    }
}

#[test]
fn secret_is_shown_only_on_request() {
    let secret = Secret::from_octets(vec![7; LEN]);
    assert_eq!(format!("{secret:?}"), "Secret(…)");
    assert_eq!(*secret.write(), "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=");
    assert_eq!(Secret::read(&secret.write()).unwrap().expose(), secret.expose());
    for bad in ["", "whsec_", "whsec_BwcH", "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=", "whsec_*"] {
        assert!(Secret::read(bad).is_none(), "{bad}");
    }
}
