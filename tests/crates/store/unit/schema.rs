//! Unit tests of `crates/bellwire-store/src/operations/schema.rs`, which includes them.

use sqlx::SqlSafeStr as _;
use sqlx::migrate::MigrationType;

use super::*;

#[test]
fn a_line_lets_older_servers_run_beside() {
    let of = |sql: &'static str| Migration::new(8, "x".into(), MigrationType::Simple, sql.into_sql_str(), false);
    assert!(runs_beside(&of("-- Reason.\n-- beside: yes\nSELECT 1")));
    assert!(!runs_beside(&of("-- Not beside: yes\nSELECT 1")));
}
