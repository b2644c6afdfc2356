//! Arguments that many verbs share.

use std::ops::Deref;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

/// The app that a verb acts on.
#[derive(Debug, Args)]
pub(super) struct AppFlag {
    /// The app's short name or id.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    app: String,
}

impl Deref for AppFlag {
    type Target = str;

    fn deref(&self) -> &str {
        &self.app
    }
}
