//! Unit tests of `src/cli/invocation.rs`, which includes them.

use super::*;

#[test]
fn printed_commands_work_as_printed() {
    let flags = arguments(&Flags::from_pairs([("data_dir", "/my data".to_owned()), ("listen", "[::]:1".to_owned())]));
    assert_eq!(flags, " --data-dir '/my data'");
    for (text, expected) in [
        ("See `bellwire held list`.", "See `./b held --data-dir '/my data' list`."),
        ("bellwire serve\n  bellwire doctor", "./b serve --data-dir '/my data'\n  ./b doctor --data-dir '/my data'"),
        ("the user bellwire may not write", "the user bellwire may not write"),
        ("/usr/bin/bellwire serve", "/usr/bin/bellwire serve"),
        ("nothing", "nothing"),
    ] {
        assert_eq!(completed(text, "./b", &flags), expected);
    }
    let remote = " --server https://push.example.com";
    assert_eq!(completed("bellwire app list", "./b", remote), "./b app --server https://push.example.com list");
    assert_eq!(completed("bellwire admin list", "./b", remote), "bellwire admin list", "there, not here");
    assert_eq!(completed("`bellwire held list`", "bellwire", ""), "`bellwire held list`");
}
