//! Values for templates: of the recipient and of the message.

use std::fmt;
use std::sync::Arc;

use minijinja::value::{Enumerator, Object, Serde, Value};
use serde_json::Map;

use bellwire_core::template::Templated;

pub(super) const OF_RECIPIENT: [&str; 5] = ["user_id", "attributes", "tags", "locale", "timezone"];
/// Template variables with the same value for every recipient.
pub(super) const OF_MESSAGE: [&str; 2] = ["data", "app"];

/// A recipient, as templates see them. `Debug` shows nothing of them.
#[derive(Clone, Default, PartialEq)]
pub struct TemplatePerson {
    /// The site's own name for them.
    pub user_id: Option<String>,
    /// Attributes of the recipient.
    pub attributes: Map<String, serde_json::Value>,
    /// Words that they are selected by.
    pub tags: Vec<String>,
    /// A BCP 47 tag.
    pub locale: Option<String>,
    /// An IANA time zone.
    pub timezone: Option<String>,
}

impl fmt::Debug for TemplatePerson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Person(…)")
    }
}

/// Values of a message, equal for all its recipients.
pub(super) struct SharedValues {
    data: Value,
    app: Value,
}

impl SharedValues {
    pub(super) fn of(templated: &Templated) -> Self {
        let Templated { data, app, .. } = templated;
        Self { data: Value::from(Serde(data)), app: Value::from(Serde(app)) }
    }
}

/// The names that a template may use, filled in. What is not there, or null, is not defined.
pub(super) struct TemplateNames {
    pub(super) known: Arc<SharedValues>,
    /// None: of texts that ask for nothing of the recipient.
    pub(super) person: Option<Arc<TemplatePerson>>,
}

impl fmt::Debug for TemplateNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Names(…)")
    }
}

impl Object for TemplateNames {
    fn get_value(self: &Arc<Self>, name: &Value) -> Option<Value> {
        self.get_value_by_str(name.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, name: &str) -> Option<Value> {
        let person = || self.person.as_ref();
        let text = |text: &Option<String>| text.as_deref().map(Value::from);
        match name {
            "data" => Some(self.known.data.clone()),
            "app" => Some(self.known.app.clone()),
            "user_id" => text(&person()?.user_id),
            "locale" => text(&person()?.locale),
            "timezone" => text(&person()?.timezone),
            "tags" => Some(person()?.tags.iter().map(String::as_str).collect()),
            "attributes" => Some(Value::from_object(LazyAttributes(person()?.clone()))),
            _ => None,
        }
    }
}

/// The attributes of a recipient. Only those that are asked for are turned into the language's values.
struct LazyAttributes(Arc<TemplatePerson>);

impl fmt::Debug for LazyAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Attributes(…)")
    }
}

impl Object for LazyAttributes {
    fn get_value(self: &Arc<Self>, name: &Value) -> Option<Value> {
        self.get_value_by_str(name.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, name: &str) -> Option<Value> {
        match self.0.attributes.get(name)? {
            serde_json::Value::Null => None,
            serde_json::Value::String(text) => Some(Value::from(text.as_str())),
            value => Some(Value::from(Serde(value))),
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.attributes.keys().map(|name| Value::from(name.as_str())).collect())
    }
}
