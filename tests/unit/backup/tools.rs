//! Unit tests of `src/backup/tools.rs`, which includes them.

use super::*;

#[test]
fn tools_get_no_password_on_command_line() {
    let url = "postgres://us%40er:p%2Fw:x@[::1]:5433/push?sslmode=verify-full&sslrootcert=%2Fca.pem";
    let place = LibpqEnvironment::new(&url.parse().unwrap(), Some(url));
    let value = |name| place.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
    for (name, expected) in [
        ("PGHOST", "::1"),
        ("PGPORT", "5433"),
        ("PGUSER", "us@er"),
        ("PGPASSWORD", "p/w:x"),
        ("PGDATABASE", "push"),
        ("PGSSLMODE", "verify-full"),
        ("PGSSLROOTCERT", "/ca.pem"),
    ] {
        assert_eq!(value(name), Some(expected), "{name}");
    }
    let local = LibpqEnvironment::new(&"postgres://postgres@localhost/bellwire?host=/tmp/x".parse().unwrap(), None);
    assert_eq!(local.0[0], ("PGHOST", "/tmp/x".to_owned()));
}
