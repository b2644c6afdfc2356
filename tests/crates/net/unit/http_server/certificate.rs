//! Unit tests of `crates/bellwire-net/src/http_server/certificate.rs`, which includes them.

use rcgen::{CertificateParams, KeyPair, date_time_ymd};

use super::*;

fn pair() -> (String, String) {
    let mut params = CertificateParams::new(["push.example.com".to_owned()]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2030, 1, 1), date_time_ymd(2030, 4, 1));
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

#[test]
fn pair_is_read_without_showing_its_key() {
    let (chain, key) = pair();
    let certificate = Certificate::parse(chain.as_bytes(), key.as_bytes()).unwrap();
    assert_eq!(certificate.not_before.to_rfc3339(), "2030-01-01T00:00:00+00:00");
    assert_eq!(validity(chain.as_bytes()).unwrap(), (certificate.not_before, certificate.not_after));
    let shown = format!("{certificate:?}");
    assert!(shown.contains("2030-04-01") && shown.len() < 80, "{shown}");
}

#[test]
fn wrong_pair_is_refused_with_a_reason() {
    let ((chain, key), (_, anothers)) = (pair(), pair());
    let refused = |chain: &str, key: &str| {
        Certificate::parse(chain.as_bytes(), key.as_bytes()).expect_err("it is no pair").to_string()
    };
    assert!(refused("", &key).contains("the certificate is not one in PEM"));
    assert!(refused(&key, &key).contains("the certificate is not one in PEM"));
    assert!(refused(&chain, &chain).contains("the private key is not one in PEM"));
    assert!(refused(&chain, &anothers).contains("do not match"));
    let cut = &chain[..chain.len() / 2];
    assert!(refused(cut, &key).contains("not one in PEM"));
    let junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(refused(junk, &key).contains("cannot be read"));
}
