//! Unit tests of `src/api/session/relying_party.rs`, which includes them.

use super::*;

#[test]
fn passkeys_need_a_tls_or_local_name() {
    let of = |url: &str| RelyingParty::of(&url.parse().unwrap()).map(|party| (party.id, party.origin));
    let party = |id: &str, origin: &str| Some((id.to_owned(), origin.to_owned()));
    for (url, expected) in [
        ("https://push.example.com", party("push.example.com", "https://push.example.com")),
        ("https://Push.Example.com:8443/bell/", party("push.example.com", "https://push.example.com:8443")),
        ("https://push.example.com:443", party("push.example.com", "https://push.example.com")),
        ("http://localhost:8787", party("localhost", "http://localhost:8787")),
        ("http://push.example.com", None),
        ("http://localhost.example.com", None),
        ("https://192.0.2.1", None),
        ("https://[2001:db8::1]:8787", None),
        ("http://127.0.0.1:8787", None),
        ("ftp://push.example.com", None),
    ] {
        assert_eq!(of(url), expected, "{url}");
    }
}

#[test]
fn request_names_server_teammate_and_passkeys() {
    let party = RelyingParty::of(&"https://push.example.com".parse().unwrap()).unwrap();
    let known = Passkey {
        id: Uuid::nil().into(),
        name: "key".into(),
        credential_id: vec![1; 16],
        public_key: vec![2; 77],
        algorithm: -7,
        counter: 0,
        transports: vec!["usb".into(), "carrier pigeon".into()],
        created_at: chrono::DateTime::UNIX_EPOCH,
        last_used_at: None,
    };
    let descriptor = serde_json::json!([{"id": "AQEBAQEBAQEBAQEBAQEBAQ", "type": "public-key", "transports": ["usb"]}]);
    let PasskeyChallenge { options, challenge } =
        party.ask_to_make(TeammateId(Uuid::max()), "ann@example.com", std::slice::from_ref(&known));
    assert_eq!(options["rp"]["id"], "push.example.com");
    assert_eq!(
        (&options["user"]["name"], &options["user"]["id"]),
        (&"ann@example.com".into(), &"_____________________w".into())
    );
    assert_eq!((&options["attestation"], &options["excludeCredentials"]), (&"none".into(), &descriptor));
    let asked_for: Vec<_> =
        options["pubKeyCredParams"].as_array().unwrap().iter().map(|kind| kind["alg"].clone()).collect();
    assert_eq!(asked_for, ALGORITHMS, "what is asked for is taken");
    assert_eq!(options["challenge"], Passki::base64_encode(&challenge));
    let again = party.ask_to_sign(std::slice::from_ref(&known));
    assert_eq!((&again.options["rpId"], &again.options["allowCredentials"]), (&"push.example.com".into(), &descriptor));
    assert_eq!((&again.options["userVerification"], &again.options["timeout"]), (&"preferred".into(), &300_000.into()));
    assert!(challenge.len() == 32 && again.challenge.len() == 32 && challenge != again.challenge);
    let mut once_more = party.ask_to_sign_that(&again.challenge, std::slice::from_ref(&known));
    assert_eq!(once_more["challenge"], Passki::base64_encode(&again.challenge));
    once_more["challenge"] = again.options["challenge"].clone();
    assert_eq!(once_more, again.options);
}
