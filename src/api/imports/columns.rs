//! Maps a file's columns to fields: by Bellwire's names, by names that other systems use, and by the request's mapping.

use std::collections::HashMap;

use serde_json::Value;

use super::super::http::problem::Problem;

/// Maximum columns in a mapping.
const MAPPED_MAX: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Field {
    Endpoint,
    P256dh,
    Auth,
    User,
    /// Type of the owner that the user id belongs to, such as Laravel's `subscribable_type`.
    OwnerType,
    Tags,
    Attributes,
    Attribute(String),
    Topics,
    Locale,
    Timezone,
    VapidKey,
    CreatedAt,
    ConsentAt,
    ConsentSource,
    Consent,
    ExpiresAt,
    MutedUntil,
    Policy,
    /// State column: true, or a word such as `subscribed`, marks an active subscription.
    Active,
    /// End column: true, or a time, marks an ended subscription.
    Ended,
    /// OneSignal's `notification_types`: above 0 means subscribed.
    NotificationTypes,
    /// OneSignal's `device_type`. Only some values are browsers.
    DeviceType,
    /// Mark of a developer's test device, by any value.
    TestDevice,
    /// Object with its own members: `subscription` or `keys`.
    Nested,
    Nothing,
}

/// Fields with their names in faults and mappings, and other known column names in lower case without punctuation.
static FIELDS: [(Field, &str, &str); 24] = [
    // OneSignal; django-push-notifications.
    (Field::Endpoint, "endpoint", "identifier registrationid subscriptionendpoint"),
    // OneSignal; Perfecty; Laravel and web-push-php.
    (Field::P256dh, "p256dh", "keysp256dh webp256 keyp256dh publickey subscriptionkeysp256dh"),
    (Field::Auth, "auth", "keysauth webauth keyauth authtoken subscriptionkeysauth"),
    // OneSignal; Pushpad; Laravel.
    (Field::User, "user_id", "externaluserid externalid uid subscribableid"),
    (Field::OwnerType, "owner_type", "subscribabletype notifiabletype"),
    (Field::Tags, "tags", ""),
    (Field::Attributes, "attributes", ""),
    (Field::Topics, "topics", ""),
    (Field::Locale, "locale", "language"),
    (Field::Timezone, "timezone", "timezoneid"),
    (Field::VapidKey, "vapid_key", "vapidkeyid vapidpublickey applicationserverkey"),
    (Field::CreatedAt, "created_at", "subscribedat datecreated creationtime"),
    (Field::ConsentAt, "consent_at", "consentedat"),
    (Field::ConsentSource, "consent_source", ""),
    (Field::Consent, "consent", "consented hasconsent hasconsented consentgiven"),
    (Field::ExpiresAt, "expires_at", "expirationtime"),
    (Field::MutedUntil, "muted_until", ""),
    (Field::Policy, "policy", ""),
    (
        Field::Active,
        "active",
        "isactive enabled isenabled subscribed issubscribed optedin isoptedin optin valid isvalid status state subscriptionstatus \
         subscriptionstate permission notificationpermission permissionstatus",
    ),
    (
        Field::Ended,
        "unsubscribed_at",
        "invalididentifier unsubscribed isunsubscribed endedat deletedat deleted isdeleted disabled isdisabled disabledat optedout \
         isoptedout optedoutat optout revoked revokedat isrevoked blocked isblocked blockedat banned isbanned inactive isinactive \
         expired isexpired invalid isinvalid invalidatedat deactivatedat deactivated removed removedat isremoved suspended suspendedat",
    ),
    (Field::NotificationTypes, "notification_types", ""),
    (Field::DeviceType, "device_type", ""),
    (Field::TestDevice, "test_device", "testtype istest istestdevice testuser istestuser"),
    (
        Field::Nested,
        "subscription",
        "keys pushsubscription subscriptioninfo subscriptionjson subscriptiondata webpushsubscription",
    ),
];

/// Word stems that mark an unknown column as a subscription state, which may exclude lines.
const STATE_STEMS: &str = "state status statut estado activ aktiv actif inactiv inaktiv deactiv enabl disabl subscribed unsub abgemeldet \
    abbestell désabonn optin optout opted permi grant denied deny allow delet gelösch remov block banned mute paus suspen revok \
    expired invalid valid bounc unreach uninstal gone dead archiv trash blackl suppress withdr consent erase forgotten cancel reject \
    declin silenc snooz quarant terminat lapsed churn dnd disturb accepts accepted sandbox stale obsolet failed";
/// Words that make such a column a time or a count instead, as in `status_updated_at`.
const NO_STATE_WORDS: [&str; 4] = ["updated", "changed", "count", "times"];

impl Field {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Attribute(name) => name,
            field => FIELDS.iter().find(|(of, ..)| of == field).map_or("", |(_, name, _)| *name),
        }
    }

    /// Whether a line is useless without a readable value of this field, or the value decides whether the line is a
    /// subscription.
    pub(super) fn is_vital(&self) -> bool {
        use Field::{Active, Auth, Consent, DeviceType, Ended, Endpoint, Nested};
        use Field::{NotificationTypes, OwnerType, P256dh, TestDevice, VapidKey};
        let is_key = matches!(self, Endpoint | P256dh | Auth | VapidKey | Nested);
        is_key || matches!(self, Active | Consent | DeviceType | Ended | NotificationTypes | OwnerType | TestDevice)
    }

    /// Whether values of this field must not be shown.
    pub(super) fn is_secret(&self) -> bool {
        matches!(self, Self::Endpoint | Self::P256dh | Self::Auth | Self::Nested)
    }

    /// Returns the field of a column name. Case, `_`, `-`, `.` and spaces are ignored.
    fn known(name: &str) -> Option<Self> {
        if let Some(attribute) = name.strip_prefix("attributes.").filter(|attribute| !attribute.is_empty()) {
            return Some(Self::Attribute(attribute.to_owned()));
        }
        let plain: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
        let is_it = |own: &str, others: &str| {
            own.bytes().filter(|octet| *octet != b'_').eq(plain.bytes())
                || others.split_whitespace().any(|other| other == plain)
        };
        FIELDS.iter().find(|(_, own, others)| is_it(own, others)).map(|(field, ..)| field.clone())
    }

    fn named(name: &str) -> Option<Self> {
        match name {
            "" => Some(Self::Nothing),
            name => Self::known(name).filter(|field| field.name() == name || matches!(field, Self::Attribute(_))),
        }
    }
}

/// Whether an unknown column may contain a subscription state, such as `mail_optout` or `isBanned`.
pub(super) fn looks_like_state(name: &str) -> bool {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || c.is_uppercase() && was_lower {
            words.push(String::new());
        }
        was_lower = c.is_lowercase();
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    let is = |word: &String, of: &[&str]| of.contains(&word.as_str());
    let has_time = words.iter().any(|word| is(word, &["last", "first"]));
    // `last_active` is a time; `last_unsubscribed` may be more.
    let begins =
        |word: &String, stem: &str| word.starts_with(stem) && !(has_time && ["activ", "subscribed"].contains(&stem));
    let has_stem = words.iter().any(|word| STATE_STEMS.split_whitespace().any(|stem| begins(word, stem)));
    let opts = words.windows(2).any(|pair| pair[0] == "opt" && is(&pair[1], &["in", "out"]));
    (has_stem || opts) && !words.iter().any(|word| is(word, &NO_STATE_WORDS))
}

/// Whether an unknown object contains a member that may be a subscription state.
pub(super) fn hides_state(value: &Value, depth: usize) -> bool {
    let within =
        |(name, value): (&String, &Value)| !value.is_null() && looks_like_state(name) || hides_state(value, depth - 1);
    depth > 0 && value.as_object().is_some_and(|members| members.iter().any(within))
}

/// Fields of the columns of one file.
#[derive(Debug, Default, Clone)]
pub(super) struct Columns(HashMap<String, Field>);

impl Columns {
    /// Parses `map`: pairs of column and field, such as `abo:endpoint,kunde:user_id`. An empty field ignores the column.
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
                let names: Vec<_> = FIELDS.iter().map(|(_, name, _)| *name).collect();
                let names = names.join(", ");
                refuse(format!("allows {names} and attributes.NAME; nothing after the colon ignores the column"))
            })?;
            columns.insert(theirs.trim().to_owned(), field);
        }
        Ok(Self(columns))
    }

    /// Returns the field of a column. `None`: unknown.
    pub(super) fn field(&self, name: &str) -> Option<Field> {
        self.0.get(name).cloned().or_else(|| Field::known(name))
    }
}
