//! Unit tests of `crates/bellwire-template/src/language.rs`, which includes them.

use super::*;

#[test]
fn the_engine_has_every_listed_filter() {
    let engine = engine();
    for filter in FILTERS {
        let source = format!("{{{{ 1 | {filter} }}}}");
        let error = engine.render_str(&source, ()).err().map(|error| error.kind());
        assert_ne!(error, Some(minijinja::ErrorKind::UnknownFilter), "{filter}");
    }
}
