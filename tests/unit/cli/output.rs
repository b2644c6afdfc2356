//! Unit tests of `src/cli/output.rs`, which includes them.

use serde_json::json;

use super::*;

#[test]
fn columns_are_as_wide_as_their_widest_cell() {
    let rows = [["a".to_owned(), "1".to_owned()], ["übung".to_owned(), String::new()]];
    assert_eq!(table(["NAME", "N"], rows), "NAME   N\na      1\nübung");
}

#[test]
fn values_are_written_as_people_do() {
    let value = json!({"list": ["a", "b"], "none": null, "flag": true, "at": "2027-01-15T08:00:00.123456Z"});
    assert_eq!(text(&value, "/list"), "a, b");
    assert_eq!(text(&value, "/none"), "-");
    assert_eq!(text(&value, "/flag"), "yes");
    assert_eq!(time(&value, "/at"), "2027-01-15 08:00:00Z");
    assert_eq!(time(&value, "/none"), "-");
}
