//! Unit tests of `src/api/http/query_parameters.rs`, which includes them.

use super::*;

#[test]
fn unknown_parameters_are_refused_everywhere() {
    let description = crate::api::document();
    let known = KnownParameters::of(&description);
    assert!(known.0.len() > 150, "{}", known.0.len());
    for (operation, names) in &known.0 {
        let (method, path) = operation.split_once(' ').unwrap();
        let method = method.parse().unwrap();
        let refused = known.check(&method, path, "surely_unknown=1");
        assert!(refused.is_err(), "{operation}");
        for name in names {
            assert!(known.check(&method, path, &format!("{name}=1")).is_ok(), "{operation} {name}");
        }
    }
}
