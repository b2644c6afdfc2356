//! Unit tests of `src/api/session/passwords.rs`, which includes them.

use super::*;

fn password(text: &str) -> Password {
    text.to_owned().into()
}

#[tokio::test]
async fn password_is_stored_as_argon2id() {
    let passwords = Passwords::new();
    let hash = passwords.hash(password("correct horse")).await.unwrap();
    assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
    assert_ne!(hash, passwords.hash(password("correct horse")).await.unwrap(), "the salt differs");
    let verify = async |text: &str, hash: Option<&str>| {
        let place = passwords.place(Requester::ByAnybody).unwrap();
        passwords.verify(place, password(text), hash.map(str::to_owned)).await.unwrap()
    };
    assert!(verify("correct horse", Some(&hash)).await);
    assert!(!verify("correct house", Some(&hash)).await);
    assert!(!verify("correct horse", None).await && !verify("correct horse", Some("damaged")).await);
    assert!(!verify(&"x".repeat(OCTETS_MAX + 1), Some(&hash)).await);
    assert_eq!(format!("{:?}", password("correct horse")), "Password(…)");
}

#[tokio::test]
async fn excess_sign_ins_are_refused_with_a_time() {
    let passwords = Passwords::new();
    let all = u32::try_from(AT_ONCE + WAITING_MAX).unwrap();
    let taken = passwords.places.clone().try_acquire_many_owned(all).unwrap();
    let refused = passwords.hash(password("correct horse")).await.unwrap_err();
    assert_eq!(refused.code, ProblemCode::SignInBusy);
    drop(taken);
    let strangers: Vec<_> = std::iter::from_fn(|| passwords.place(Requester::ByAnybody).ok()).collect();
    assert_eq!(strangers.len(), AT_ONCE + WAITING_MAX - KEPT_FREE);
    assert!(passwords.place(Requester::ByKnown).is_ok(), "strangers leave room for whoever is known");
    drop(strangers);
    assert!(passwords.hash(password("correct horse")).await.is_ok());
    assert_eq!((passwords.places.available_permits(), passwords.turns.available_permits()), (34, AT_ONCE));
}

#[test]
fn new_password_is_long_and_not_the_address() {
    let fault = |text: &str| password(text).fault("ann@example.com");
    for good in ["correct horse", "ann likes horses", "ünlängliches!"] {
        assert_eq!(fault(good), None, "{good}");
    }
    for bad in ["short", "elevenchars", "ann@example.com", "Ann@Example.com1", &"x".repeat(513)] {
        assert!(fault(bad).is_some(), "{bad}");
    }
}
