//! Unit tests of `src/cli.rs`, which includes them.

use super::*;
use crate::config::Flags;

#[test]
fn every_argument_is_sound() {
    Cli::command().debug_assert();
    generate::visible(&Cli::command()).debug_assert();
}

#[test]
fn expected_arguments_get_a_hint() {
    for (arguments, hinted) in [
        (&["bellwire", "app", "list", "--database-url", "postgres://x"][..], "BELLWIRE_DATABASE_URL"),
        (&["bellwire", "key", "create", "--app", "shop", "--name", "x"], "send"),
    ] {
        let error = Cli::try_parse_from(arguments).unwrap_err();
        assert!(hint(&error).is_some_and(|hint| hint.contains(hinted)), "{arguments:?}: {:?}", hint(&error));
    }
}

#[test]
fn settings_are_taken_behind_every_verb() {
    let cli = Cli::try_parse_from(["bellwire", "app", "list", "--data-dir", "/x", "--json"]).unwrap();
    let Verb::Declared(chosen) = cli.verb else { panic!("{cli:?}") };
    assert!(cli.json);
    assert_eq!(chosen.settings.0, Flags::from_pairs([("data_dir", "/x".to_owned())]));
}
