//! What the columns of a file mean: their own names, those that other senders give them in their exports, and those that the
//! request maps.

use std::collections::HashMap;

use super::super::problem::Problem;

/// Names that a request may map.
const MAPPED_MAX: usize = 100;

/// What a column says of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Field {
    Endpoint,
    P256dh,
    Auth,
    User,
    Tags,
    Attributes,
    /// One attribute, of that name.
    Attribute(String),
    Topics,
    Locale,
    Timezone,
    VapidKey,
    CreatedAt,
    ConsentAt,
    ConsentSource,
    /// An object with both.
    Consent,
    ExpiresAt,
    Policy,
    /// Whether it is still subscribed.
    Active,
    /// Whether, or since when, it is not.
    Ended,
    /// An object with members of its own: `subscription` or `keys`.
    Nested,
    /// Nothing that matters here.
    Nothing,
}

impl Field {
    /// As faults name it.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Endpoint => "endpoint",
            Self::P256dh => "p256dh",
            Self::Auth => "auth",
            Self::User => "user_id",
            Self::Tags => "tags",
            Self::Attributes => "attributes",
            Self::Attribute(name) => name,
            Self::Topics => "topics",
            Self::Locale => "locale",
            Self::Timezone => "timezone",
            Self::VapidKey => "vapid_key",
            Self::CreatedAt => "created_at",
            Self::ConsentAt => "consent_at",
            Self::ConsentSource => "consent_source",
            Self::Consent => "consent",
            Self::ExpiresAt => "expires_at",
            Self::Policy => "policy",
            Self::Active => "active",
            Self::Ended => "unsubscribed_at",
            Self::Nested => "subscription",
            Self::Nothing => "",
        }
    }

    /// The field that a column of that name is known as; capitals and `_`, `-`, `.`, spaces do not matter.
    fn known(name: &str) -> Option<Self> {
        if let Some(attribute) = name.strip_prefix("attributes.").filter(|attribute| !attribute.is_empty()) {
            return Some(Self::Attribute(attribute.to_owned()));
        }
        let plain: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
        Some(match plain.as_str() {
            // OneSignal; django-push-notifications.
            "endpoint" | "identifier" | "registrationid" => Self::Endpoint,
            // OneSignal; Perfecty; Laravel and web-push-php.
            "p256dh" | "keysp256dh" | "webp256" | "keyp256dh" | "publickey" => Self::P256dh,
            "auth" | "keysauth" | "webauth" | "keyauth" | "authtoken" => Self::Auth,
            // OneSignal; Pushpad; Laravel.
            "userid" | "externaluserid" | "externalid" | "uid" | "subscribableid" => Self::User,
            "tags" => Self::Tags,
            "attributes" => Self::Attributes,
            "topics" => Self::Topics,
            "locale" | "language" => Self::Locale,
            "timezone" | "timezoneid" => Self::Timezone,
            "vapidkey" | "vapidkeyid" | "vapidpublickey" | "applicationserverkey" => Self::VapidKey,
            "createdat" | "subscribedat" | "datecreated" | "creationtime" => Self::CreatedAt,
            "consentat" | "consentedat" => Self::ConsentAt,
            "consentsource" => Self::ConsentSource,
            "consent" => Self::Consent,
            "expiresat" | "expirationtime" => Self::ExpiresAt,
            "policy" => Self::Policy,
            "active" | "isactive" => Self::Active,
            "invalididentifier" | "unsubscribedat" | "endedat" => Self::Ended,
            "subscription" | "keys" | "pushsubscription" => Self::Nested,
            _ => return None,
        })
    }

    /// The field that a mapping names by our name for it.
    fn named(name: &str) -> Option<Self> {
        match name {
            "" => Some(Self::Nothing),
            "unsubscribed_at" => Some(Self::Ended),
            name => Self::known(name).filter(|field| field.name() == name || matches!(field, Self::Attribute(_))),
        }
    }
}

/// What columns mean in one file.
#[derive(Debug, Default, Clone)]
pub(super) struct Columns(HashMap<String, Field>);

impl Columns {
    /// Reads `map`: pairs of a column's name and ours, such as `abo:endpoint,kunde:user_id`; nothing after the colon: the column
    /// is passed over.
    pub(super) fn read(map: Option<&str>) -> Result<Self, Problem> {
        let refuse = |what: String| Problem::invalid_parameter("map", what);
        let pairs: Vec<&str> = map.unwrap_or_default().split(',').filter(|pair| !pair.is_empty()).collect();
        if pairs.len() > MAPPED_MAX {
            return Err(refuse(format!("may name at most {MAPPED_MAX} columns")));
        }
        let mut columns = HashMap::new();
        for pair in pairs {
            let rule = "must be pairs such as `their_name:user_id`, separated by commas";
            let (theirs, ours) = pair.rsplit_once(':').ok_or_else(|| refuse(rule.to_owned()))?;
            let field = Field::named(ours.trim()).ok_or_else(|| {
                refuse("knows endpoint, p256dh, auth, user_id, tags, topics, attributes, attributes.NAME, locale, timezone, \
                        vapid_key, created_at, consent_at, consent_source, expires_at, active and unsubscribed_at".to_owned())
            })?;
            columns.insert(theirs.trim().to_owned(), field);
        }
        Ok(Self(columns))
    }

    /// What a column of that name says. None: nothing that we know.
    pub(super) fn field(&self, name: &str) -> Option<Field> {
        self.0.get(name).cloned().or_else(|| Field::known(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_known_by_the_names_that_other_senders_give_them() {
        let columns = Columns::default();
        for (name, field) in [
            ("endpoint", Field::Endpoint),
            ("web_auth", Field::Auth),
            ("web_p256", Field::P256dh),
            ("expirationTime", Field::ExpiresAt),
            ("External User ID", Field::User),
            ("attributes.plan", Field::Attribute("plan".to_owned())),
        ] {
            assert_eq!(columns.field(name), Some(field), "{name}");
        }
        assert_eq!(columns.field("session_count"), None);
    }

    #[test]
    fn a_mapping_goes_before_what_is_known() {
        let columns = Columns::read(Some("abo:endpoint,uid:attributes.number,tags:")).unwrap();
        assert_eq!(columns.field("abo"), Some(Field::Endpoint));
        assert_eq!(columns.field("uid"), Some(Field::Attribute("number".to_owned())));
        assert_eq!(columns.field("tags"), Some(Field::Nothing));
        for bad in ["abo", "abo:nonsense", "abo:identifier", "abo:keys"] {
            assert!(Columns::read(Some(bad)).is_err(), "{bad}");
        }
    }
}
