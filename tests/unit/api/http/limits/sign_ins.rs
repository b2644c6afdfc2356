//! Unit tests of `src/api/http/limits/sign_ins.rs`, which includes them.

use chrono::{DateTime, TimeDelta};

use super::*;

const AT: Timestamp = DateTime::UNIX_EPOCH;
const ANN: HashedName = [1; 32];

fn client(n: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, n])
}

fn fail(sign_ins: &SignIns, name: HashedName, client: IpAddr, now: Timestamp) -> bool {
    sign_ins.attempt(name, client, false, now).map(drop).is_ok()
}

#[test]
fn wait_doubles_after_each_failure_per_client() {
    let sign_ins = SignIns::default();
    assert!((0..5).all(|_| fail(&sign_ins, ANN, client(1), AT)), "five are free");
    let mut now = AT;
    for wait_s in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900] {
        let early = now + TimeDelta::seconds(wait_s) - TimeDelta::milliseconds(1);
        assert!(matches!(sign_ins.attempt(ANN, client(1), true, early), Err(Wait::Anybody(_))), "{wait_s}");
        now += TimeDelta::seconds(wait_s);
        assert!(fail(&sign_ins, ANN, client(1), now), "{wait_s}");
    }
    assert!(fail(&sign_ins, ANN, client(2), now), "another client");
    assert!(fail(&sign_ins, [2; 32], client(1), now), "another name");
    now += FORGOTTEN_AFTER;
    assert!((0..5).all(|_| fail(&sign_ins, ANN, client(1), now)), "after an hour it begins anew");
}

#[test]
fn wait_applies_to_a_client_for_all_names() {
    let sign_ins = SignIns::default();
    let tried = (0..100).filter(|n| fail(&sign_ins, [*n; 32], client(1), AT)).count();
    assert_eq!(tried, 20);
    let office = |n: u16| IpAddr::from([0x2001, 0xdb8, 1, n, 0, 0, 0, 1]);
    let tried = (0..1_000).filter(|n| fail(&sign_ins, [7; 32].map(|b: u8| b ^ *n as u8), office(*n), AT)).count();
    assert_eq!(tried, 320, "a network of many households");
}

#[test]
fn mistyped_colleague_name_delays_nobody_else() {
    let sign_ins = SignIns::default();
    let office = client(1);
    let mut now = AT;
    for n in 0..30 {
        while !fail(&sign_ins, [n; 32], office, now) {
            now += TimeDelta::seconds(1);
        }
    }
    let until = now + TimeDelta::seconds(900);
    assert!(matches!(sign_ins.attempt(ANN, office, false, now), Err(Wait::Strangers(_))), "a stranger there");
    for _ in 0..10 {
        sign_ins.attempt(ANN, office, true, now).unwrap().succeeded();
    }
    sign_ins.attempt(ANN, office, false, until).unwrap().succeeded();
    assert!(sign_ins.attempt(ANN, office, false, until).is_ok(), "it was no failure");
}

#[test]
fn strangers_cannot_lock_out_known_clients() {
    let sign_ins = SignIns::default();
    assert_eq!((0..100).filter(|n| fail(&sign_ins, ANN, client(*n), AT)).count(), 50);
    let home = client(200);
    assert!(matches!(sign_ins.attempt(ANN, home, false, AT), Err(Wait::Strangers(_))));
    sign_ins.attempt(ANN, home, true, AT).unwrap().succeeded();
    let mut now = AT;
    for n in 100..130 {
        now += TimeDelta::seconds(30);
        assert!(fail(&sign_ins, ANN, client(n), now), "half a minute is the longest");
    }
}

#[test]
fn success_forgives_its_client_and_name_only() {
    let sign_ins = SignIns::default();
    for _ in 0..1_000 {
        let attempts: Vec<_> = (0..4).map(|_| sign_ins.attempt(ANN, client(1), false, AT).unwrap()).collect();
        attempts.into_iter().for_each(SignInAttempt::succeeded);
    }
    assert!((0..4).all(|_| fail(&sign_ins, ANN, client(1), AT)));
    sign_ins.attempt(ANN, client(1), false, AT).unwrap().succeeded();
    assert!((0..5).all(|_| fail(&sign_ins, ANN, client(1), AT)));
    assert!(!fail(&sign_ins, ANN, client(1), AT));
    sign_ins.attempt([2; 32], client(2), false, AT).unwrap().undone();
    let more = (0..100).filter(|n| fail(&sign_ins, [10 + n; 32], client(2), AT)).count();
    assert_eq!(more, 20);
}

#[test]
fn memory_is_bounded() {
    let sign_ins = SignIns::default();
    for n in 0..COUNTS_MAX as u32 {
        let client = IpAddr::from((0x0a00_0000 + n).to_be_bytes());
        fail(&sign_ins, [(n % 251) as u8; 32], client, AT);
    }
    let counts = sign_ins.0.lock().len();
    assert!(counts <= COUNTS_MAX + 3, "{counts}");
}
