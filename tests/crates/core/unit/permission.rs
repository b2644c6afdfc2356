//! Unit tests of `crates/bellwire-core/src/permission.rs`, which includes them.

use super::*;

#[test]
fn browsers_need_rights_servers_do_not() {
    let tags_only = Speaker::Browser(BrowsersMay::default().and(BrowserRight::SetTags));
    let none = Speaker::Browser(BrowsersMay::default());
    for right in BrowserRight::ALL {
        assert!(Speaker::Server.may(right) && !none.may(right));
        assert_eq!(tags_only.may(right), right == BrowserRight::SetTags);
    }
    for (speaker, anyone, server) in [(Speaker::Server, true, true), (tags_only, true, false), (none, true, false)] {
        assert_eq!((speaker.may_join(TopicJoin::Anyone), speaker.may_join(TopicJoin::Server)), (anyone, server));
    }
}

#[test]
fn database_names_equal_api_names() {
    for right in BrowserRight::ALL {
        let may = BrowsersMay::default().and(right);
        assert_eq!(serde_json::to_value(&may).unwrap(), serde_json::json!(may.names()));
        assert_eq!(BrowsersMay::from(may.names()), may);
    }
}
