//! Text fields of a notification, with their rules.

use serde_json::Value;

use super::{ACTION_TEXT_MAX, BODY_MAX, Notification, TAG_MAX, TITLE_MAX, URL_MAX, is_language_tag, longer, unfit_url};

/// Text field of a notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextField {
    /// Title of the notification.
    Title,
    /// Body of the notification.
    Body,
    /// URL opened by a click.
    Url,
    /// URL of the icon.
    Icon,
    /// URL of the image.
    Image,
    /// URL of the badge.
    Badge,
    /// Tag of the notification.
    Tag,
    /// Language tag of the notification.
    Lang,
    /// Name of a button, by its index.
    ActionName(usize),
    /// Title of a button.
    ActionTitle(usize),
    /// Link of a button.
    ActionUrl(usize),
    /// Icon of a button.
    ActionIcon(usize),
    /// A string within `data`: the first part is the member, the second the RFC 6901 pointer within it.
    Data(String, String),
}

impl TextField {
    /// Returns the RFC 6901 pointer within the notification, without the first slash.
    pub fn name(&self) -> String {
        match self {
            Self::Title => "title".into(),
            Self::Body => "body".into(),
            Self::Url => "url".into(),
            Self::Icon => "icon".into(),
            Self::Image => "image".into(),
            Self::Badge => "badge".into(),
            Self::Tag => "tag".into(),
            Self::Lang => "lang".into(),
            Self::ActionName(i) => format!("actions/{i}/action"),
            Self::ActionTitle(i) => format!("actions/{i}/title"),
            Self::ActionUrl(i) => format!("actions/{i}/url"),
            Self::ActionIcon(i) => format!("actions/{i}/icon"),
            Self::Data(member, rest) => format!("data/{}{rest}", segment(member)),
        }
    }

    /// Whether the field is a URL.
    pub fn is_link(&self) -> bool {
        matches!(self, Self::Url | Self::Icon | Self::Image | Self::Badge | Self::ActionUrl(_) | Self::ActionIcon(_))
    }

    /// Whether the field is optional.
    pub fn is_optional(&self) -> bool {
        !matches!(self, Self::Title | Self::ActionName(_) | Self::ActionTitle(_) | Self::Data(..))
    }

    /// Whether a text exceeds the maximum length of this field.
    pub fn is_too_long(&self, text: &str) -> bool {
        match self {
            Self::Title => longer(text, TITLE_MAX),
            Self::Body => longer(text, BODY_MAX),
            Self::Tag => longer(text, TAG_MAX),
            Self::ActionName(_) | Self::ActionTitle(_) => longer(text, ACTION_TEXT_MAX),
            link if link.is_link() => text.len() > URL_MAX,
            _ => false,
        }
    }

    /// Returns the fault of a text in this field, without the text. `None`: valid.
    pub fn fault(&self, text: &str) -> Option<String> {
        let is_blank = || text.trim().is_empty();
        let rule = |fits: bool, rule: String| (!fits).then_some(rule);
        match self {
            Self::Title => rule(
                !is_blank() && !self.is_too_long(text),
                format!("must have 1 to {TITLE_MAX} characters, not all blank"),
            ),
            Self::ActionName(_) | Self::ActionTitle(_) => rule(
                !is_blank() && !self.is_too_long(text),
                format!("must have 1 to {ACTION_TEXT_MAX} characters, not all blank"),
            ),
            Self::Body => rule(!self.is_too_long(text), format!("may have at most {BODY_MAX} characters")),
            Self::Tag => rule(!self.is_too_long(text), format!("may have at most {TAG_MAX} characters")),
            Self::Lang => rule(is_language_tag(text), "must be a BCP 47 language tag such as `en` or `pt-BR`".into()),
            link if link.is_link() => unfit_url(text),
            _ => None,
        }
    }

    /// Returns the text of this field, if present.
    pub fn get<'a>(&self, of: &'a Notification) -> Option<&'a str> {
        match self {
            Self::Title => Some(&of.title),
            Self::Body => of.body.as_deref(),
            Self::Url => of.url.as_deref(),
            Self::Icon => of.icon.as_deref(),
            Self::Image => of.image.as_deref(),
            Self::Badge => of.badge.as_deref(),
            Self::Tag => of.tag.as_deref(),
            Self::Lang => of.lang.as_deref(),
            Self::ActionName(i) => of.actions.get(*i).map(|action| &*action.action),
            Self::ActionTitle(i) => of.actions.get(*i).map(|action| &*action.title),
            Self::ActionUrl(i) => of.actions.get(*i)?.url.as_deref(),
            Self::ActionIcon(i) => of.actions.get(*i)?.icon.as_deref(),
            Self::Data(member, rest) => of.data.as_ref()?.get(member)?.pointer(rest)?.as_str(),
        }
    }

    /// Replaces the text of this field. An empty text removes an optional field.
    pub fn set(&self, of: &mut Notification, text: String) {
        let optional = |text: String| (!text.trim().is_empty()).then_some(text);
        match self {
            Self::Title => of.title = text,
            Self::Body => of.body = optional(text),
            Self::Url => of.url = optional(text),
            Self::Icon => of.icon = optional(text),
            Self::Image => of.image = optional(text),
            Self::Badge => of.badge = optional(text),
            Self::Tag => of.tag = optional(text),
            Self::Lang => of.lang = optional(text),
            Self::ActionName(i) => of.actions[*i].action = text,
            Self::ActionTitle(i) => of.actions[*i].title = text,
            Self::ActionUrl(i) => of.actions[*i].url = optional(text),
            Self::ActionIcon(i) => of.actions[*i].icon = optional(text),
            Self::Data(member, rest) => {
                if let Some(value) = of.data.as_mut().and_then(|data| data.get_mut(member)?.pointer_mut(rest)) {
                    *value = Value::String(text);
                }
            }
        }
    }
}

impl Notification {
    /// Returns all text fields of this notification.
    pub fn places(&self) -> Vec<TextField> {
        use TextField::{
            ActionIcon, ActionName, ActionTitle, ActionUrl, Badge, Body, Icon, Image, Lang, Tag, Title, Url,
        };
        let mut places = vec![Title, Body, Url, Icon, Image, Badge, Tag, Lang];
        places
            .extend((0..self.actions.len()).flat_map(|i| [ActionName(i), ActionTitle(i), ActionIcon(i), ActionUrl(i)]));
        places.retain(|place| place.get(self).is_some());
        for (member, value) in self.data.iter().flatten() {
            texts_within(value, &mut String::new(), &mut |at| {
                places.push(TextField::Data(member.clone(), at.to_owned()))
            });
        }
        places
    }
}

/// Calls `tell` with the pointer of each string within a value. `at` is the pointer of the value, and is restored.
fn texts_within(value: &Value, at: &mut String, tell: &mut impl FnMut(&str)) {
    let len = at.len();
    match value {
        Value::String(_) => tell(at),
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                at.push_str(&format!("/{i}"));
                texts_within(item, at, tell);
                at.truncate(len);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                at.extend(["/", &segment(name)]);
                texts_within(member, at, tell);
                at.truncate(len);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Escapes a member name for an RFC 6901 pointer.
fn segment(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
#[path = "../../../../tests/crates/core/unit/message/texts.rs"]
mod tests;
