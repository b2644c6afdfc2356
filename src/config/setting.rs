//! Description of one setting.

use super::{COMMON_DATABASE_VARIABLE, PREFIX};

/// Properties of a setting, independent of its value.
#[derive(Debug)]
pub(super) struct Setting {
    /// Key in the file, from which flag and variable are derived.
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

    /// Returns a variable that is read if the setting's own one is not set: the usual name on platforms.
    pub(super) fn common_variable(&self) -> Option<&'static str> {
        (self.key == "database_url").then_some(COMMON_DATABASE_VARIABLE)
    }

    /// Returns the variable that names a file with the secret, because container platforms mount secrets as files.
    pub(super) fn file_variable(&self, variable: &str) -> Option<String> {
        // The master key has a setting of that name, and a command must not come from a file that others may write.
        (self.secret && !self.key.starts_with("master_key")).then(|| format!("{variable}_FILE"))
    }

    pub(super) fn flag(&self) -> String {
        self.key.replace('_', "-")
    }
}
