//! Unit tests of `src/api/http/limits/keys.rs`, which includes them.

use super::*;
use crate::api::state::config::RequestRate;

#[test]
fn guesses_are_limited_known_keys_not_delayed() {
    let guesses_per_client = RequestRate { burst: 3, per_minute: 1 };
    let per_key = RequestRate { burst: 2, per_minute: 1 };
    let limits = KeyLimits::new(&ApiConfig { guesses_per_client, per_key, ..ApiConfig::default() });
    let (here, there) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
    let key = Uuid::from_u128(1);
    limits.attempt("valid", here).unwrap().succeeded(key).unwrap();
    for guess in ["a", "b"] {
        limits.attempt(guess, here).unwrap().failed();
    }
    assert!(limits.attempt("c", here).is_err() && limits.attempt("b", here).is_err());
    assert!(limits.attempt("c", there).is_ok(), "another client");
    assert_eq!(limits.attempt("valid", here).unwrap().succeeded(key).unwrap().remaining, 0);
    assert!(limits.attempt("valid", here).unwrap().succeeded(key).is_err(), "its own limit holds everywhere");
    limits.attempt("valid", here).unwrap().failed();
    assert!(limits.attempt("valid", here).is_err(), "once revoked it is a guess like any other");
}

#[test]
fn batch_counts_all_its_requests_or_none() {
    let limits =
        KeyLimits::new(&ApiConfig { per_key: RequestRate { burst: 4, per_minute: 1 }, ..ApiConfig::default() });
    let (here, key) = (IpAddr::from([192, 0, 2, 1]), Uuid::from_u128(1));
    let ask = |n| {
        let budget = limits.attempt("valid", here).unwrap().succeeded(key)?;
        limits.count_as(key, n).map(|()| budget.remaining)
    };
    assert_eq!(ask(5).unwrap_err().status.as_u16(), 422, "never");
    assert_eq!(ask(4).unwrap_err().status.as_u16(), 429, "not now: one is used up");
    assert_eq!(ask(2).unwrap(), 1);
    assert_eq!(ask(1).unwrap_err().status.as_u16(), 429);
}
