//! Unit tests of `crates/bellwire-store/src/connections/hosts.rs`, which includes them.

use super::*;

#[track_caller]
fn names(url: &str) -> Vec<String> {
    DatabaseHosts::parse(url, For::Writing).unwrap().all().iter().map(name).collect()
}

#[test]
fn every_host_of_a_url_is_found() {
    assert_eq!(names("postgres://u:p@a/db"), ["a:5432"]);
    assert_eq!(names("postgres://u:p,w@a:5433,b,[::1]:5434/db"), ["a:5433", "b:5432", "[::1]:5434"]);
    assert_eq!(names("postgresql://a,b?target_session_attrs=read-write"), ["a:5432", "b:5432"]);
    assert_eq!(names("postgres://u@%2Frun%2Fa,%2Frun%2Fb/db?sslmode=disable"), ["/run/a", "/run/b"]);
    let hosts =
        DatabaseHosts::parse("postgres://u:secret@a,b/db?target_session_attrs=primary&sslmode=require", For::Writing);
    let hosts = hosts.unwrap();
    for host in hosts.all() {
        assert_eq!((host.get_username(), host.get_database()), ("u", Some("db")));
        assert!(matches!(host.get_ssl_mode(), sqlx::postgres::PgSslMode::Require));
    }
    assert_eq!(format!("{hosts:?}"), r#"["a:5432", "b:5432"]"#, "without the password");
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let refused = |url, wanted| DatabaseHosts::parse(url, wanted).unwrap_err();
    assert_eq!(refused("postgres://a,,b/db", For::Writing), WrongUrl::Invalid);
    assert_eq!(refused("postgres", For::Writing), WrongUrl::Invalid);
    assert_eq!(refused("postgres://u@/db?host=/run/a,/run/b", For::Writing), WrongUrl::InQuery);
    assert_eq!(refused("postgres://a,b,c,d,e,f,g,h,i/db", For::Writing), WrongUrl::TooMany);
    let standby = "postgres://a,b/db?target_session_attrs=standby";
    assert!(refused(standby, For::Writing).to_string().ends_with("it takes read-write, primary, any"));
    assert!(DatabaseHosts::parse("postgres://a/db?target_session_attrs=prefer-standby", For::Reading).is_ok());
}
