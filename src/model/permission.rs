//! What may be said about a subscription, and by whom. Servers, which show a key, may say everything; a browser speaks for
//! itself, so what it says of itself is no evidence: it joins and leaves topics that are open, and does more only where
//! its app lets it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::named;

/// Something that an app may let its browsers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BrowserRight {
    /// Make a topic by naming it.
    CreateTopics,
    /// Set and remove tags.
    SetTags,
    /// Set and remove attributes.
    SetAttributes,
}

impl BrowserRight {
    const ALL: [Self; 3] = [Self::CreateTopics, Self::SetTags, Self::SetAttributes];

    /// As the API, the command line and the database name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::CreateTopics => "create_topics",
            Self::SetTags => "set_tags",
            Self::SetAttributes => "set_attributes",
        }
    }
}

/// What an app lets its browsers do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub(crate) struct BrowsersMay(BTreeSet<BrowserRight>);

impl BrowsersMay {
    /// The same and this right.
    pub(crate) fn and(&self, right: BrowserRight) -> Self {
        Self(self.0.iter().copied().chain([right]).collect())
    }

    /// Whether they have this right.
    pub(crate) fn has(&self, right: BrowserRight) -> bool {
        self.0.contains(&right)
    }

    /// The rights by name.
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.iter().map(|right| right.name().to_owned()).collect()
    }
}

/// Reads what the database has, which knows no other names.
impl From<Vec<String>> for BrowsersMay {
    fn from(names: Vec<String>) -> Self {
        Self(BrowserRight::ALL.into_iter().filter(|right| names.iter().any(|name| name == right.name())).collect())
    }
}

/// Who says something about a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Speaker {
    /// A server, with its key.
    Server,
    /// The browser itself, with or without its token.
    Browser(BrowsersMay),
}

impl Speaker {
    /// Whether it may do that.
    pub(crate) fn may(&self, right: BrowserRight) -> bool {
        match self {
            Self::Server => true,
            Self::Browser(BrowsersMay(rights)) => rights.contains(&right),
        }
    }

    /// Whether it may put a subscription into such a topic, or take it out.
    pub(crate) fn may_join(&self, join: Join) -> bool {
        *self == Self::Server || join == Join::Anyone
    }

    /// What it is the maker of a topic as.
    pub(crate) fn maker(&self) -> Maker {
        match self {
            Self::Server => Maker::Server,
            Self::Browser(_) => Maker::Browser,
        }
    }
}

named! {
    /// Who made a topic, as stored in `topics.made_by`.
    pub(crate) enum Maker {
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
    pub(crate) enum Join {
        /// Browsers, of their own accord, and servers. Every topic begins so unless a server makes it otherwise.
        #[default]
        Anyone = "anyone",
        /// Servers only: one of them said so. A browser stays where a server put it.
        Server = "server",
    }
}

/// Something that a browser said and may not say: it was left out, and the rest holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Its tags would have changed.
    Tags,
    /// Its attributes would have changed.
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
    fn browsers_do_what_their_app_lets_them_and_servers_everything() {
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
    fn names_in_the_database_are_those_of_the_api() {
        for right in BrowserRight::ALL {
            let may = BrowsersMay::default().and(right);
            assert_eq!(serde_json::to_value(&may).unwrap(), serde_json::json!(may.names()));
            assert_eq!(BrowsersMay::from(may.names()), may);
        }
    }
}
