//! What may be said about a subscription, and by whom. Servers, which show a key, may say everything; a browser speaks for
//! itself, so what it says of itself is no evidence: it joins and leaves topics that are open, and does more only where
//! its app lets it.

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

/// What an app lets its browsers do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct BrowsersMay(BTreeSet<BrowserRight>);

impl BrowsersMay {
    /// Adds a right.
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

/// Reads what the database has, which knows no other names.
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

    /// What it is the maker of a topic as.
    pub fn maker(&self) -> Maker {
        match self {
            Self::Server => Maker::Server,
            Self::Browser(_) => Maker::Browser,
        }
    }
}

named! {
    /// Who made a topic, as stored in `topics.made_by`.
    pub enum Maker {
        /// A browser, by naming it where its app lets browsers make topics. Such topics are limited in number, and
        /// maintenance removes those that nobody has used for a week.
        Browser = "browser",
        /// A server, by making it or naming it. It stays until a server removes it.
        Server = "server",
    }
}

named! {
    /// Who may join a topic, and leave it, as stored in `topics.join_by`.
    #[derive(Default)]
    pub enum Join {
        /// Browsers, of their own accord, and servers. Every topic begins so unless a server makes it otherwise.
        #[default]
        Anyone = "anyone",
        /// Servers only: one of them said so. A browser stays where a server put it.
        Server = "server",
    }
}

/// Something that a browser said and may not say: it was left out, and the rest holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The tags.
    Tags,
    /// The attributes.
    Attributes,
    /// There is no topic of that name, and browsers make none.
    TopicUnknown(String),
    /// Only servers put subscriptions into that topic, and none has.
    TopicClosed(String),
    /// There is no topic of that name, and browsers have made as many as they may.
    TopicLimit(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_need_rights_servers_do_not() {
        let tags_only = Speaker::Browser(BrowsersMay::default().and(BrowserRight::SetTags));
        let none = Speaker::Browser(BrowsersMay::default());
        for right in BrowserRight::ALL {
            assert!(Speaker::Server.may(right) && !none.may(right));
            assert_eq!(tags_only.may(right), right == BrowserRight::SetTags);
        }
        for (speaker, anyone, server) in [(Speaker::Server, true, true), (tags_only, true, false), (none, true, false)]
        {
            assert_eq!((speaker.may_join(Join::Anyone), speaker.may_join(Join::Server)), (anyone, server));
        }
    }

    #[test]
    fn database_names_equal_api_names() {
        for right in BrowserRight::ALL {
            let may = BrowsersMay::default().and(right);
            assert_eq!(serde_json::to_value(&may).unwrap(), serde_json::json!(may.names()));
            assert_eq!(BrowsersMay::from(may.names()), may);
        }
    }
}
