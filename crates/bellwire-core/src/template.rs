//! Template: a notification whose texts [`bellwire_template`] renders for each recipient.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::message::{Content, Notification};

/// A notification in which every text may be a minijinja template, optionally in several languages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Template))]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// Default notification, for recipients whose language has no variant. Every text may be a template.
    pub content: Box<Notification>,
    /// Notification for push services that refuse `content` as too large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compact: Option<Box<Notification>>,
    /// Variants in other languages by BCP 47 tag, at most 50. A recipient gets the nearest one by CLDR: `de-AT` finds `de`,
    /// `zh-TW` finds `zh-Hant`, `es-MX` finds `es-419`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub locales: BTreeMap<String, LocaleVariant>,
    /// Rule for rendered texts that are too long: `dead`, or `{"cut": "body"}`.
    #[serde(default)]
    pub too_long: TooLong,
}

/// Variant of a template in another language. It is complete: nothing is taken from the default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = TemplateVariant))]
#[serde(deny_unknown_fields)]
pub struct LocaleVariant {
    /// Notification. Its `lang` defaults to its locale.
    pub content: Box<Notification>,
    /// Notification for push services that refuse `content` as too large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compact: Option<Box<Notification>>,
}

/// Rule for rendered texts that are too long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TooLong {
    /// The delivery ends as dead with the reason `too_long`.
    #[default]
    Dead,
    /// The text is truncated with an ellipsis. If that is not enough, the delivery ends as dead.
    Cut(ShortenedText),
}

/// Text that may be truncated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ShortenedText {
    /// The text below the title.
    Body,
}

/// A message's own copy of its template, with all data of the time of its acceptance.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Templated {
    /// Name of the stored template. `None`: an inline template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Template, stored or inline.
    pub template: Template,
    /// Variables of the template from the message.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub data: Map<String, Value>,
    /// Names of the app at that time.
    pub app: AppNames,
    /// Origin for relative URLs: the app's first origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
}

/// Names of an app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppNames {
    /// Slug of the app.
    pub slug: String,
    /// Display name of the app.
    pub name: String,
}

/// Content of a message, in the form that `messages.content` stores encrypted.
#[derive(Debug, Clone, PartialEq)]
pub enum MessageContent {
    /// Content without a template, the same for all recipients.
    Literal(Content),
    /// Content from a template.
    Template(Box<Templated>),
}

/// Start of a template's JSON, which no other content has.
const TAG: &[u8] = br#"{"template":"#;

#[derive(Serialize, Deserialize)]
struct Tagged<T> {
    template: T,
}

impl MessageContent {
    /// Parses output of [`to_json`](Self::to_json).
    pub fn from_json(octets: &[u8]) -> serde_json::Result<Self> {
        if octets.starts_with(TAG) {
            serde_json::from_slice::<Tagged<_>>(octets).map(|tagged| Self::Template(tagged.template))
        } else {
            serde_json::from_slice(octets).map(Self::Literal)
        }
    }

    /// Returns the JSON form.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        match self {
            Self::Literal(content) => serde_json::to_vec(content),
            Self::Template(template) => serde_json::to_vec(&Tagged { template }),
        }
    }

    /// Whether the push has Bellwire's envelope.
    pub fn is_enveloped(&self) -> bool {
        !matches!(self, Self::Literal(Content::Raw { envelope: false, .. }))
    }
}

impl fmt::Debug for Templated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Templated(…)")
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/core/unit/template.rs"]
mod tests;
