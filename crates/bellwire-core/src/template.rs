//! Template: a notification whose texts are rendered for each recipient by [`bellwire_template`].

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::message::{Content, Notification};

/// A notification in which every text may be a template of minijinja's, in several languages if wanted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Template))]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// For everybody in whose language there is none. Every text may be a template.
    pub content: Box<Notification>,
    /// Notification for push services that refuse `content` as too large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compact: Option<Box<Notification>>,
    /// The same in other languages, by BCP 47 tag, at most 50. A recipient gets the nearest by CLDR: `de-AT` finds `de`, `zh-TW` finds
    /// `zh-Hant`, `es-MX` finds `es-419`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub locales: BTreeMap<String, LocaleVariant>,
    /// Rule for recipients whose text is too long: `dead`, or `{"cut": "body"}`.
    #[serde(default)]
    pub too_long: TooLong,
}

/// A template in another language. It stands for itself: nothing is taken from the other ones.
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

/// Rule for recipients whose rendered text is too long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TooLong {
    /// The delivery ends as dead with the reason `too_long`.
    #[default]
    Dead,
    /// This is cut, and ends in an ellipsis; dead, if that is not enough.
    Cut(ShortenedText),
}

/// Text that may be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ShortenedText {
    /// The text below the title.
    Body,
}

/// A template with everything that was known when its message was accepted: the message's own copy.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Templated {
    /// Name of the stored template. `None`: the template came with the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The template, whether it was stored or came with the message.
    pub template: Template,
    /// Data of the message for the template.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub data: Map<String, Value>,
    /// The app as it was called then.
    pub app: AppNames,
    /// Origin for paths: the app's first origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
}

/// Names of an app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppNames {
    /// Name for programs.
    pub slug: String,
    /// Name for people.
    pub name: String,
}

/// Content of a message, in the form that is sealed into `messages.content`.
#[derive(Debug, Clone, PartialEq)]
pub enum MessageContent {
    /// The same to everybody, to the letter.
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
    /// Reads what [`to_json`](Self::to_json) wrote.
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

    /// Whether the push carries the envelope.
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
