//! Unit tests of `src/cli/serve.rs`, which includes them.

use super::*;

#[test]
fn banner_shows_address_data_and_key() {
    let flags = [("data_dir", "/data".to_owned()), ("listen", "127.0.0.1:0".to_owned())];
    let mut config = Config::load(&crate::config::Flags::from_pairs(flags)).unwrap();
    (config.database_url, config.public_url) = (None, None); // independent of the test's environment
    let told = |config: &Config| welcome(config, ([127, 0, 0, 1], 4711).into());
    for part in [
        "http://127.0.0.1:4711/example/ (on this machine)\n",
        "http://127.0.0.1:4711/admin/ (a link to sign in: bellwire admin invite",
        "/data",
        "bellwire key create --operator --name me\n",
    ] {
        assert!(told(&config).contains(part), "{part} in {}", told(&config));
    }
    let everywhere = welcome(&config, ([0, 0, 0, 0], 4711).into());
    assert!(everywhere.contains("up at http://127.0.0.1:4711 "), "{everywhere}");
    config.public_url = Some("https://push.example.com".parse().unwrap());
    assert!(told(&config).contains("https://push.example.com/openapi.json"), "{}", told(&config));
}
