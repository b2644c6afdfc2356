//! Description of one setting.

use super::{COMMON_DATABASE_VARIABLE, PREFIX};

/// Metadata of a setting, independent of its value.
#[derive(Debug)]
pub(super) struct Setting {
    /// Key in the file; the flag and the variable derive from it.
    pub(super) key: &'static str,
    pub(super) help: &'static [&'static str],
    pub(super) default: &'static str,
    pub(super) secret: bool,
}

impl Setting {
    pub(super) fn variable(&self) -> String {
        let name = self.key.to_ascii_uppercase();
        if self.key.starts_with("otel_") { name } else { format!("{PREFIX}{name}") }
    }

    /// A variable that is looked at when its own is not set: the name that every platform gives it.
    pub(super) fn common_variable(&self) -> Option<&'static str> {
        (self.key == "database_url").then_some(COMMON_DATABASE_VARIABLE)
    }

    /// Variable that names a file with the value of a secret, as container platforms mount secrets.
    pub(super) fn file_variable(&self, variable: &str) -> Option<String> {
        // The master key has a setting of that name, and a command must not come from a file that others may write.
        (self.secret && !self.key.starts_with("master_key")).then(|| format!("{variable}_FILE"))
    }

    pub(super) fn flag(&self) -> String {
        self.key.replace('_', "-")
    }
}
