//! Unit tests of `crates/bellwire-vault/src/master_key.rs`, which includes them.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

use super::*;

#[test]
fn wrapped_key_needs_its_name_and_master() {
    let (master, other) = (MasterKey([7; 32]), MasterKey([8; 32]));
    let wrapped = master.wrap(1, "seal", &[3; 32]);
    assert_eq!(master.unwrap(1, "seal", &wrapped).map(|key| *key), Some([3; 32]));
    assert!(other.unwrap(1, "seal", &wrapped).is_none());
    assert!(master.unwrap(2, "seal", &wrapped).is_none());
    assert!(master.unwrap(1, "lookup", &wrapped).is_none());
    assert!(master.unwrap(1, "seal", &wrapped[..40]).is_none());
    assert!(master.unwrap(1, "seal", &[]).is_none());
}

#[test]
fn master_key_reads_any_base64_and_stays_hidden() {
    let key = MasterKey([0xfb; 32]);
    for engine in [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD] {
        assert_eq!(MasterKey::parse(&(engine.encode(key.0) + "\n")).unwrap().0, key.0);
    }
    assert!(matches!(MasterKey::parse("c2hvcnQ"), Err(Error::Malformed)));
    assert_eq!(format!("{key:?}"), "MasterKey(…)");
}

#[tokio::test]
async fn command_prints_the_key_or_an_error() {
    let source = |command: &str| MasterKeySource::Command(Zeroizing::new(command.to_owned()));
    let key = MasterKey([7; 32]);
    let printed = source(&format!("echo {}", base64url::encode(key.0))).read().await.unwrap().unwrap();
    assert_eq!(printed.0, key.0);
    assert!(matches!(source("echo short").read().await, Err(Error::Malformed)));
    let failed = source("exit 3").read().await.unwrap_err();
    assert_eq!(failed.to_string(), "the command of the master key failed: exit status: 3");
    assert_eq!(format!("{:?}", source("curl -H token")), "Command(…)");
}
