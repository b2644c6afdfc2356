//! Unit tests of `src/api/session/cookie.rs`, which includes them.

use chrono::{DateTime, TimeDelta};
use uuid::Uuid;

use super::*;

const AT: Timestamp = DateTime::UNIX_EPOCH;
const PLAIN: Cookies = Cookies { secure: false };

fn vault() -> Vault {
    Vault::new([(1, [1; 32])], &[9; 32])
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

#[test]
fn token_lasts_half_an_hour_within_its_session() {
    let (vault, session) = (vault(), SessionId(Uuid::from_u128(7)));
    let long = AT + TimeDelta::hours(12);
    let token = write(&vault, session, AT, long);
    let at = |minutes| read(&vault, &token, AT + TimeDelta::minutes(minutes));
    assert_eq!(at(0), Some(SessionToken { session, is_stale: false }));
    assert_eq!(at(1), Some(SessionToken { session, is_stale: true }));
    assert!(at(29).is_some() && at(30).is_none());
    let short = write(&vault, session, AT, AT + TimeDelta::minutes(5));
    assert_eq!(read(&vault, &short, AT + TimeDelta::minutes(5)), None);
}

#[test]
fn only_own_tokens_of_this_purpose_pass() {
    let (vault, session) = (vault(), SessionId(Uuid::from_u128(7)));
    let later = AT + TimeDelta::hours(1);
    let token = write(&vault, session, AT, later);
    let rotated = Vault::new([(1, [1; 32]), (2, [2; 32])], &[9; 32]);
    assert!(read(&rotated, &token, AT).is_some());
    assert_eq!(read(&vault, &write(&rotated, session, AT, later), AT), None, "a key that this server does not have");
    assert_eq!(read(&Vault::new([(1, [3; 32])], &[9; 32]), &token, AT), None, "another server's");
    let (head, signature) = token.rsplit_once('.').unwrap();
    let (header, claims) = head.split_once('.').unwrap();
    let others = write(&vault, SessionId(Uuid::from_u128(8)), AT, later);
    let others = others.split('.').nth(1).unwrap();
    for forged in [
        format!("{head}."),
        format!("{head}.{}", signature.to_uppercase()),
        format!("{header}.{others}.{signature}"),
        format!("eyJhbGciOiJub25lIn0.{claims}."),
        "x".repeat(TOKEN_MAX + 1),
        String::new(),
    ] {
        assert_eq!(read(&vault, &forged, AT), None, "{forged}");
    }
    let (_, key) = vault.session_key();
    let header = Header { kid: Some("1".to_owned()), ..Header::new(Algorithm::HS256) };
    for aud in ["bellwire", "app_1"] {
        let claims = CookieClaims { aud: aud.to_owned(), sid: session, iat: 0, exp: 3_600 };
        let token = jsonwebtoken::encode(&header, &claims, &EncodingKey::from_secret(&key)).unwrap();
        assert_eq!(read(&vault, &token, AT), None, "{aud}");
    }
}

#[test]
fn cookie_is_host_only_and_http_only() {
    let cookie = |cookies: Cookies| cookies.give(&vault(), SessionId(Uuid::nil()), AT, AT + TimeDelta::hours(1));
    let (secure, plain) = (cookie(Cookies { secure: true }), cookie(PLAIN));
    let (secure, plain) = (secure.to_str().unwrap(), plain.to_str().unwrap());
    assert!(secure.starts_with("__Host-bellwire=ey"), "{secure}");
    assert!(secure.ends_with("; Path=/; Max-Age=1800; HttpOnly; SameSite=Strict; Secure"), "{secure}");
    assert!(plain.starts_with("bellwire=ey") && plain.ends_with("; HttpOnly; SameSite=Strict"), "{plain}");
    let jar = headers(&[("cookie", "a=1; bellwire=plain; __Host-bellwire=tls; b")]);
    assert_eq!((PLAIN.shown(&jar), Cookies { secure: true }.shown(&jar)), (Some("plain"), Some("tls")));
    let both = headers(&[("cookie", "bellwire=x"), ("authorization", "Bearer bw_x")]);
    assert_eq!(PLAIN.shown(&both), None, "a key comes first");
}

#[test]
fn what_another_site_sends_is_refused() {
    let asks = |method: Method, pairs: &[(&'static str, &str)]| check_origin(&method, &headers(pairs)).is_ok();
    for (site, reads, changes) in
        [("same-origin", true, true), ("none", true, false), ("same-site", false, false), ("cross-site", false, false)]
    {
        let own = [("sec-fetch-site", site), ("origin", "https://push.example"), ("host", "push.example")];
        assert_eq!((asks(Method::GET, &own), asks(Method::POST, &own)), (reads, changes), "{site}");
    }
    let from = |origin| asks(Method::DELETE, &[("host", "push.example:8787"), ("origin", origin)]);
    assert!(from("http://push.example:8787") && from("https://PUSH.example:8787"));
    for other in ["http://push.example", "http://evil.example:8787", "null", "http://x.push.example:8787", ""] {
        assert!(!from(other), "{other}");
    }
    assert!(!asks(Method::POST, &[("host", "push.example")]), "nothing says where it comes from");
    assert!(asks(Method::GET, &[("host", "push.example")]), "an older browser reads");
}
