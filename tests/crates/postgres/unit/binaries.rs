//! Unit tests of `crates/bellwire-postgres/src/binaries.rs`, which includes them.

use super::*;

#[test]
fn the_major_version_is_read_from_every_spelling() {
    assert_eq!(major_of("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
    assert_eq!(major_of("postgres (PostgreSQL) 17beta1"), Some(17));
    assert_eq!(major_of("postgres (PostgreSQL) 16"), Some(16));
    assert_eq!(major_of("postgres (EnterpriseDB) 15"), None);
}

#[test]
fn an_empty_directory_is_refused_by_name() {
    let error = Binaries::find(Some(Path::new("/nonexistent/bin")), None, None).unwrap_err();
    assert_eq!(error.to_string(), "/nonexistent/bin holds no Postgres 15 or newer (postgres and initdb)");
}
