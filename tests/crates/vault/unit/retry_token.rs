//! Unit tests of `crates/bellwire-vault/src/retry_token.rs`, which includes them.

use chrono::{DateTime, TimeDelta};
use uuid::Uuid;

use super::*;

fn queued() -> Queued {
    Queued {
        message: MessageId(Uuid::from_u128(1)),
        subscription: SubscriptionId(Uuid::from_u128(2)),
        retries: 3,
        scheduled_at: DateTime::from_timestamp_micros(1_800_000_000_000_001).unwrap(),
    }
}

#[test]
fn a_token_fits_nothing_but_its_own_state() {
    let vault = Vault::new([(1, [1; 32])], &[9; 32]);
    let token = queued().sign(&vault);
    assert!(queued().fits(&token, &vault));
    for other in [
        Queued { message: MessageId(Uuid::from_u128(2)), ..queued() },
        Queued { subscription: SubscriptionId(Uuid::from_u128(1)), ..queued() },
        Queued { retries: 2, ..queued() },
        Queued { scheduled_at: queued().scheduled_at + TimeDelta::microseconds(1), ..queued() },
    ] {
        assert!(!other.fits(&token, &vault), "{other:?}");
    }
    assert!(!queued().fits(&[], &vault));
}

#[test]
fn what_postgres_does_not_store_does_not_count() {
    let vault = Vault::new([(1, [1; 32])], &[9; 32]);
    let finer = Queued { scheduled_at: queued().scheduled_at + TimeDelta::nanoseconds(999), ..queued() };
    assert!(queued().fits(&finer.sign(&vault), &vault));
}

#[test]
fn a_token_is_late_only_after_its_time() {
    let (queued, ttl) = (queued(), Duration::from_secs(300));
    assert!(!queued.is_late(queued.scheduled_at + ttl, ttl));
    assert!(queued.is_late(queued.scheduled_at + ttl + Duration::from_micros(1), ttl));
}
