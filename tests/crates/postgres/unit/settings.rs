//! Unit tests of `crates/bellwire-postgres/src/settings.rs`, which includes them.

use super::*;

#[test]
fn postgres_memory_is_an_eighth_within_bounds() {
    let buffers = |memory_mib| by_memory(memory_mib)[0].clone();
    assert_eq!(
        [128, 256, 1_024, 2_048, 65_536].map(buffers),
        ["24MB", "32MB", "128MB", "256MB", "256MB"].map(|size| format!("shared_buffers={size}"))
    );
    let of = |durability| settings(durability, false, 256);
    let times = |all: &[String], name: &str| all.iter().filter(|setting| setting.starts_with(name)).count();
    for durability in [Durability::Full, Durability::Fast] {
        for name in ["shared_buffers=", "max_connections=", "autovacuum_naptime="] {
            assert_eq!(times(&of(durability), name), 1, "{name} {durability:?}");
        }
    }
    assert_eq!(times(&settings(Durability::Full, true, 256), "autovacuum_naptime="), 0, "the command line would win");
}
