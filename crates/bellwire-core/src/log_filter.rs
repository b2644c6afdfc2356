//! Filter of the temporary log level, in addition to the level of the start. No I/O.

use std::fmt;

/// Maximum bytes of a filter.
pub const LENGTH_MAX: usize = 200;
const DIRECTIVES_MAX: usize = 10;
const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];
/// Target of the server, and prefix of all crates' targets. A level without a target applies to all of them.
const OURS: &str = "bellwire";
/// Another allowed target: it logs statements without values.
const STATEMENTS: &str = "sqlx";

/// Error of a filter, for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WrongFilter {
    /// The filter is empty, too long, or has too many parts.
    #[error("must have 1 to {LENGTH_MAX} characters and {DIRECTIVES_MAX} parts at most")]
    Length,
    /// A part is neither a level nor `target=level`.
    #[error(
        "must be levels (error, warn, info, debug, trace), each for everything or for one part, as in info,bellwire_dispatch=debug"
    )]
    Directive,
    /// A part names another library, whose log lines may contain endpoints, keys and payloads.
    #[error("may name parts of Bellwire (bellwire::api, bellwire_dispatch, …) and sqlx, but no other library")]
    Target,
}

/// Log levels for Bellwire's modules and for SQL statements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFilter(String);

impl LogFilter {
    /// Parses levels and `target=level`, separated by commas.
    pub fn parse(text: &str) -> Result<Self, WrongFilter> {
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        if text.trim().is_empty() || text.len() > LENGTH_MAX || parts.len() > DIRECTIVES_MAX {
            return Err(WrongFilter::Length);
        }
        parts.iter().try_for_each(|part| check(part))?;
        Ok(Self(parts.join(",")))
    }

    /// Returns directives for a tracing subscriber, in which each level has its target.
    pub fn directives(&self) -> String {
        let part = |part: &str| if part.contains('=') { part.to_owned() } else { format!("{OURS}={part}") };
        self.0.split(',').map(part).collect::<Vec<_>>().join(",")
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_of_target(octet: u8) -> bool {
    octet.is_ascii_lowercase() || octet.is_ascii_digit() || b"_:".contains(&octet)
}

fn check(part: &str) -> Result<(), WrongFilter> {
    let (target, level) = part.split_once('=').unwrap_or((OURS, part));
    if !LEVELS.contains(&level) || !target.bytes().all(is_of_target) {
        return Err(WrongFilter::Directive);
    }
    let is_ours =
        target == OURS || target.strip_prefix(OURS).is_some_and(|rest| rest.starts_with("::") || rest.starts_with('_'));
    if is_ours || target == STATEMENTS || target.starts_with("sqlx::") { Ok(()) } else { Err(WrongFilter::Target) }
}

#[cfg(test)]
#[path = "../../../tests/crates/core/unit/log_filter.rs"]
mod tests;
