//! Parameters that an app or a campaign adds to links.

use std::collections::BTreeMap;

use crate::api::http::extract::is_plain_text;
use crate::api::http::problem::{Faults, pointer_segment};

const PARAMETERS_MAX: usize = 20;
const PARAMETER_MAX: usize = 200;
const NAME_RULE: &str = "must have a name of 1 to 64 letters, digits, `_`, `-` or `.`";

/// Checks parameters of links. `pointer`: member of the body that holds them.
pub(in crate::api) fn check_parameters(pointer: &str, parameters: &BTreeMap<String, String>, faults: &mut Faults) {
    faults.require(parameters.len() <= PARAMETERS_MAX, pointer, "may have at most 20 members");
    for (name, value) in parameters.iter().take(PARAMETERS_MAX) {
        let at = format!("{pointer}/{}", pointer_segment(name));
        let is_name = (1..=64).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
        faults.require(is_name, &at, NAME_RULE);
        let fits = is_plain_text(value, PARAMETER_MAX);
        faults.require(fits, &at, "must be 1 to 200 characters without control characters");
    }
}
