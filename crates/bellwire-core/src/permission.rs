//! Permissions to change a subscription. Servers, which authenticate by a key, may change everything. A browser cannot prove its
//! statements about itself: it joins and leaves open topics, and may do more only with rights of its app.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::named;

named! {
    /// Something that an app may let its browsers do.
    pub enum BrowserRight {
        /// Make a topic by naming it.
        CreateTopics = "create_topics",
        /// Set and remove tags.
        SetTags = "set_tags",
        /// Set and remove attributes.
        SetAttributes = "set_attributes",
    }
}

/// Rights of an app's browsers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct BrowsersMay(BTreeSet<BrowserRight>);

impl BrowsersMay {
    /// Returns the rights with another one added.
    pub fn and(&self, right: BrowserRight) -> Self {
        Self(self.0.iter().copied().chain([right]).collect())
    }

    /// Whether browsers have this right.
    pub fn has(&self, right: BrowserRight) -> bool {
        self.0.contains(&right)
    }

    /// The rights by name.
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|right| right.name().to_owned()).collect()
    }
}

/// Reads the rights of the database, which has no other names.
impl From<Vec<String>> for BrowsersMay {
    fn from(names: Vec<String>) -> Self {
        Self(BrowserRight::ALL.into_iter().filter(|right| names.iter().any(|name| name == right.name())).collect())
    }
}

/// The caller of a request about a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Speaker {
    /// A server, which has all rights.
    Server,
    /// A browser, with the rights that its app gives to browsers.
    Browser(BrowsersMay),
}

impl Speaker {
    /// Whether the caller has this right.
    pub fn may(&self, right: BrowserRight) -> bool {
        match self {
            Self::Server => true,
            Self::Browser(BrowsersMay(rights)) => rights.contains(&right),
        }
    }

    /// Whether it may put a subscription into such a topic, or take it out.
    pub fn may_join(&self, join: Join) -> bool {
        *self == Self::Server || join == Join::Anyone
    }

    /// Returns the maker of a topic that the caller creates.
    pub fn maker(&self) -> Maker {
        match self {
            Self::Server => Maker::Server,
            Self::Browser(_) => Maker::Browser,
        }
    }
}

named! {
    /// Maker of a topic, as stored in `topics.made_by`.
    #[cfg_attr(feature = "openapi", schema(as = TopicMaker))]
    pub enum Maker {
        /// A browser, in an app that allows browsers to create topics. The number of such topics is limited, and maintenance
        /// deletes those unused for a week.
        Browser = "browser",
        /// A server, by making it or naming it. It stays until a server removes it.
        Server = "server",
    }
}

named! {
    /// Callers that may join and leave a topic, as stored in `topics.join_by`.
    #[derive(Default)]
    pub enum Join {
        /// Browsers, of their own accord, and servers. Every topic begins so unless a server makes it otherwise.
        #[default]
        Anyone = "anyone",
        /// Servers only, by order of a server. A browser stays where a server put it.
        Server = "server",
    }
}

/// Value that a browser may not set: it was left out, and the others are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusedField {
    /// Tags of the subscription.
    Tags,
    /// Attributes of the subscription.
    Attributes,
    /// There is no topic of that name, and browsers make none.
    TopicUnknown(String),
    /// Only servers put subscriptions into that topic, and none has.
    TopicClosed(String),
    /// There is no topic of that name, and browsers have made as many as they may.
    TopicLimit(String),
}

#[cfg(test)]
#[path = "../../../tests/crates/core/unit/permission.rs"]
mod tests;
