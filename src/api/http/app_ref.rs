//! Reference to an app in the path of a request.

use std::str::FromStr;

use bellwire_core::id::AppId;

/// Reference to an app: id or slug.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum AppRef {
    Id(AppId),
    /// Slug of the app. A slug has no underscore, so it cannot be taken for an id.
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
    /// Returns the reference as an id and a slug, one of which is `None`.
    pub(crate) fn parts(&self) -> (Option<AppId>, Option<&str>) {
        match self {
            Self::Id(id) => (Some(*id), None),
            Self::Slug(slug) => (None, Some(slug)),
        }
    }
}
