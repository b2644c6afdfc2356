//! Unit tests of `src/cli/client/remote.rs`, which includes them.

use super::*;

#[test]
fn key_goes_over_tls_or_stays_here() {
    let key = || Some("bw_secret".to_owned());
    for (server, refusal) in [
        ("push.example.com", "is not a URL"),
        ("127.0.0.1:80", "may have http://"),
        ("localhost:80", "may have http://"),
        ("http://push.example.com", "must begin with https://"),
        ("ftp://push.example.com", "must begin with https://"),
        ("https://me:secret@push.example.com", "must be an address such as"),
        ("https://push.example.com/?a=b", "must be an address such as"),
    ] {
        let error = Remote::new(server, key()).expect_err(server).to_string();
        assert!(error.contains(refusal), "{server}: {error}");
    }
    let remote = Remote::new("https://push.example.com/base/", key()).expect("a client");
    assert_eq!(remote.server, "https://push.example.com/base");
    assert!(!format!("{remote:?}").contains("bw_secret"), "{remote:?}");
    assert!(Remote::new("http://127.0.0.1:8787", key()).is_ok(), "this machine alone reads it");
}

#[test]
fn missing_key_names_its_variable() {
    for key in [None, Some(String::new()), Some("a\nb".to_owned())] {
        let error = Remote::new("https://push.example.com", key).expect_err("no key").to_string();
        assert!(error.contains("BELLWIRE_KEY"), "{error}");
    }
}
