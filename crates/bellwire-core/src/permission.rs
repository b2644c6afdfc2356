//! Permissions to change a subscription. Servers, authenticated by a key, may change everything. Browsers cannot prove their
//! statements, so they only join and leave open topics, and need permissions of their app for anything else.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::named;

named! {
    /// Permission that an app can give to its browsers.
    pub enum BrowserRight {
        /// Create a topic by naming it.
        CreateTopics = "create_topics",
        /// Set and remove tags.
        SetTags = "set_tags",
        /// Set and remove attributes.
        SetAttributes = "set_attributes",
        /// Report events of their users, which may trigger campaigns.
        TrackEvents = "track_events",
        /// Report conversions of their users, with values that nothing proves. They are events, too, and may trigger campaigns.
        ReportConversions = "report_conversions",
    }
}

/// Permissions of an app's browsers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct BrowsersMay(BTreeSet<BrowserRight>);

impl BrowsersMay {
    /// Returns these permissions with another one.
    pub fn and(&self, right: BrowserRight) -> Self {
        Self(self.0.iter().copied().chain([right]).collect())
    }

    /// Whether browsers have this permission.
    pub fn has(&self, right: BrowserRight) -> bool {
        self.0.contains(&right)
    }

    /// Returns the names of the permissions.
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|right| right.name().to_owned()).collect()
    }
}

/// Reads the permissions from the database, which has no other names.
impl From<Vec<String>> for BrowsersMay {
    fn from(names: Vec<String>) -> Self {
        Self(BrowserRight::ALL.into_iter().filter(|right| names.iter().any(|name| name == right.name())).collect())
    }
}

/// The caller of a request about a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Speaker {
    /// A server, which has all permissions.
    Server,
    /// A browser, with the permissions of its app's browsers.
    Browser(BrowsersMay),
}

impl Speaker {
    /// Whether the caller has this permission.
    pub fn may(&self, right: BrowserRight) -> bool {
        match self {
            Self::Server => true,
            Self::Browser(BrowsersMay(rights)) => rights.contains(&right),
        }
    }

    /// Whether the caller may add subscriptions to such a topic, and remove them.
    pub fn may_join(&self, join: TopicJoin) -> bool {
        *self == Self::Server || join == TopicJoin::Anyone
    }

    /// Returns the kind of creator of a topic that this caller creates.
    pub fn maker(&self) -> Maker {
        match self {
            Self::Server => Maker::Server,
            Self::Browser(_) => Maker::Browser,
        }
    }
}

named! {
    /// Kind of creator of a topic.
    #[cfg_attr(feature = "openapi", schema(as = TopicMaker))]
    pub enum Maker {
        /// A browser, in an app that allows browsers to create topics. The number of such topics is limited, and maintenance
        /// deletes those unused for a week.
        Browser = "browser",
        /// A server, by creating it or naming it for a subscription. It stays until a server removes it.
        Server = "server",
    }
}

named! {
    /// Callers that may join and leave a topic.
    #[derive(Default)]
    pub enum TopicJoin {
        /// Browsers and servers. The default.
        #[default]
        Anyone = "anyone",
        /// Servers only. A browser cannot leave the topic.
        Server = "server",
    }
}

/// A value that a browser may not set. It is omitted, and the other values are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusedField {
    /// Tags of the subscription.
    Tags,
    /// Attributes of the subscription.
    Attributes,
    /// The topic does not exist, and browsers may not create topics.
    TopicUnknown(String),
    /// Only servers may join subscriptions to this topic.
    TopicClosed(String),
    /// The topic does not exist, and browsers have created the maximum number of topics.
    TopicLimit(String),
}

#[cfg(test)]
#[path = "../../../tests/crates/core/unit/permission.rs"]
mod tests;
