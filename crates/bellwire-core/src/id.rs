//! Typed ids: a UUIDv7 after a prefix that names the type (`sub_0192…`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// Reason for which a string is not an id of the expected type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected an id of the form {prefix}xxxxxxxx-xxxx-7xxx-xxxx-xxxxxxxxxxxx")]
pub struct ParseIdError {
    prefix: &'static str,
}

/// Regular expression of the UUID in the text form of an id.
pub const UUID_PATTERN: &str = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";

/// Returns the schema of ids with this prefix.
#[cfg(feature = "openapi")]
pub(crate) fn schema_of(prefix: &str) -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
    let pattern = format!("^{prefix}{UUID_PATTERN}$");
    let text = utoipa::openapi::ObjectBuilder::new().schema_type(utoipa::openapi::Type::String);
    text.pattern(Some(pattern)).into()
}

macro_rules! typed_ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal,)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "sqlx", derive(sqlx::Type), sqlx(transparent))]
        pub struct $name(pub Uuid);

        /// Reads a column of the database.
        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }

        impl From<$name> for Uuid {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl $name {
            /// Prefix of the text form.
            pub const PREFIX: &'static str = $prefix;
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", Self::PREFIX, self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(s: &str) -> Result<Self, ParseIdError> {
                s.strip_prefix(Self::PREFIX)
                    .and_then(|rest| Uuid::try_parse(rest).ok())
                    .map(Self)
                    .ok_or(ParseIdError { prefix: Self::PREFIX })
            }
        }

        #[cfg(feature = "openapi")]
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                $crate::id::schema_of(Self::PREFIX)
            }
        }

        #[cfg(feature = "openapi")]
        impl utoipa::ToSchema for $name {}

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}

typed_ids! {
    /// App (tenant): one site.
    AppId = "app_",
    /// One browser's push endpoint. Its last six bits are its [`shard`](SubscriptionId::shard).
    SubscriptionId = "sub_",
    /// Content, audience, tier and options of one send.
    MessageId = "msg_",
    /// Plan from which messages are created.
    CampaignId = "cmp_",
    /// A VAPID key pair of an app.
    VapidKeyId = "vk_",
    /// API key. The id is not its secret.
    ApiKeyId = "ak_",
    /// A person who signs in.
    TeammateId = "tm_",
    /// Session of a signed-in browser.
    SessionId = "ses_",
    /// Passkey of a teammate. It differs from the authenticator's credential id.
    PasskeyId = "pk_",
    /// Identity key, with which user tokens are signed. The id is not its secret.
    IdentityKeyId = "ik_",
    /// A delivery that ended in failure.
    DeadLetterId = "dl_",
    /// Operation on dead letters.
    ActionId = "act_",
    /// Erasure of a user.
    ErasureId = "ers_",
    /// Import of a file of subscriptions.
    ImportId = "imp_",
    /// Export of an app.
    ExportId = "exp_",
    /// Event for webhooks.
    EventId = "evt_",
    /// Entry of the audit log.
    EntryId = "aud_",
    /// Alert for operators.
    AlertId = "al_",
    /// Webhook of an app.
    WebhookId = "wh_",
    /// Request to a webhook's receiver: the `webhook-id` of each attempt.
    WebhookDeliveryId = "whd_",
}

/// Returns the next larger UUID, so that a descending list of everything below it begins with this id.
pub fn just_above(id: impl Into<Uuid>) -> Uuid {
    Uuid::from_u128(id.into().as_u128().saturating_add(1))
}

/// Number of shards of every large table.
pub const SHARDS: u8 = 64;

impl SubscriptionId {
    /// Builds an id from a new UUIDv7. The shard of (app, endpoint) replaces its last six bits.
    pub fn new(time_ordered: Uuid, shard: u8) -> Self {
        debug_assert!(shard < SHARDS);
        Self(Uuid::from_u128(time_ordered.as_u128() & !0x3f | u128::from(shard)))
    }

    /// Returns the shard (0 to 63) of this subscription and its deliveries.
    pub fn shard(self) -> i16 {
        i16::from(self.0.as_bytes()[15] & 0x3f)
    }
}

/// Number of a lane: one push service and VAPID key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "sqlx", derive(sqlx::Type), sqlx(transparent))]
#[serde(transparent)]
pub struct LaneId(pub i32);

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reads a column of the database.
impl From<i32> for LaneId {
    fn from(number: i32) -> Self {
        Self(number)
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/core/unit/id.rs"]
mod tests;
