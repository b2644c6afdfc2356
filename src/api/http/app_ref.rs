//! Name of an app in the path of a request.

use std::str::FromStr;

use bellwire_core::id::AppId;

/// An app as requests name it: by id or slug.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum AppRef {
    Id(AppId),
    /// Slug of the app. It never looks like an id, because it has no underscore.
    Slug(String),
}

impl From<&str> for AppRef {
    fn from(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Slug(text.to_owned()), Self::Id)
    }
}

impl FromStr for AppRef {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.into())
    }
}

impl AppRef {
    /// As an id and as a slug, one of which it is.
    pub(crate) fn parts(&self) -> (Option<AppId>, Option<&str>) {
        match self {
            Self::Id(id) => (Some(*id), None),
            Self::Slug(slug) => (None, Some(slug)),
        }
    }
}
