//! Unit tests of `src/cli/export.rs`, which includes them.

use super::*;

#[test]
fn file_resumes_after_its_last_whole_line() {
    let at = std::env::temp_dir().join(format!("bellwire-export-{}", uuid::Uuid::now_v7()));
    let (a, b) = (r#"{"type":"app"}"#, r#"{"type":"subscription","id":"sub_1"}"#);
    for (there, kept, after) in [
        (format!("{a}\n{b}\n{b}"), format!("{a}\n{b}\n"), After::Subscription("sub_1".into())),
        (format!("{a}\n{b}\n"), format!("{a}\n{b}\n"), After::Subscription("sub_1".into())),
        (format!("{a}\n{{\"type\""), String::new(), After::Nothing),
        (String::new(), String::new(), After::Nothing),
        (format!("{b}\n{{\"type\":\"end\"}}\n"), format!("{b}\n{{\"type\":\"end\"}}\n"), After::All),
    ] {
        std::fs::write(&at, &there).unwrap();
        assert_eq!(go_on(&at).unwrap().1, after, "{there}");
        assert_eq!(std::fs::read_to_string(&at).unwrap(), kept, "{there}");
    }
    std::fs::remove_file(at).unwrap();
}
