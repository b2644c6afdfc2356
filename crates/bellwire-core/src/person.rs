//! Person who gets messages: a user in all their browsers, or the anonymous user of one browser.

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::assignment::FormerUser;
use super::id::{AppId, SubscriptionId};

/// Person of an app, by an id that does not reveal the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Person {
    id: Uuid,
    is_user: bool,
}

impl Person {
    /// Returns the person with a user id.
    pub fn of_user(app: AppId, user_id: &str) -> Self {
        let mut context = Sha256::new();
        context.update(app.0.as_bytes());
        context.update(user_id.as_bytes());
        let hash = context.finalize();
        let half = hash.first_chunk().expect("SHA-256 has 32 octets");
        Self { id: Uuid::from_bytes(*half), is_user: true }
    }

    /// Returns the person for a former user.
    pub fn of_former_user(user: &FormerUser) -> Self {
        Self { id: user.person, is_user: true }
    }

    /// Returns the person of an anonymous browser, by the id of its first subscription.
    pub fn of_browser(origin: SubscriptionId) -> Self {
        Self { id: origin.0, is_user: false }
    }

    /// Returns the person of a browser: its user, or else the browser itself.
    pub fn of(app: AppId, user_id: Option<&str>, origin: SubscriptionId) -> Self {
        user_id.map_or_else(|| Self::of_browser(origin), |user_id| Self::of_user(app, user_id))
    }

    /// Returns the id, derived from the user id or the browser.
    pub fn id(self) -> Uuid {
        self.id
    }

    /// Whether it is a user, who may have several browsers.
    pub fn is_user(self) -> bool {
        self.is_user
    }

    /// Returns the shard: for an anonymous browser, that of its first subscription.
    pub fn shard(self) -> i16 {
        SubscriptionId(self.id).shard()
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/core/unit/person.rs"]
mod tests;
