//! Values for templates: of the recipient and of the message.

use std::fmt;
use std::sync::Arc;

use minijinja::value::{Enumerator, Object, Serde, Value};
use serde_json::Map;

use bellwire_core::template::Templated;

pub(super) const OF_RECIPIENT: [&str; 5] = ["user_id", "attributes", "tags", "locale", "timezone"];
/// Template variables with the same value for every recipient.
pub(super) const OF_MESSAGE: [&str; 2] = ["data", "app"];

/// Recipient data for templates. `Debug` shows none of it.
#[derive(Clone, Default, PartialEq)]
pub struct TemplatePerson {
    /// User id, chosen by the site.
    pub user_id: Option<String>,
    /// Attributes of the recipient.
    pub attributes: Map<String, serde_json::Value>,
    /// Tags of the recipient.
    pub tags: Vec<String>,
    /// BCP 47 language tag.
    pub locale: Option<String>,
    /// IANA time zone.
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

/// Variables for a template. Missing and null values are undefined.
pub(super) struct TemplateNames {
    pub(super) known: Arc<SharedValues>,
    /// Recipient. `None` for texts that use no recipient data.
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

/// Attributes of a recipient. Only those that the template uses are converted.
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
