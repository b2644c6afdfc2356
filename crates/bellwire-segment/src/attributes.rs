//! Reads a subscription's attributes for a filter. Millions of candidates are evaluated, so copies are avoided.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Attributes of one subscription, in stored order.
#[derive(Debug, Default)]
pub struct Attributes<'a>(Vec<(Cow<'a, str>, Scalar<'a>)>);

#[derive(Debug)]
pub(super) enum Scalar<'a> {
    Text(Cow<'a, str>),
    Number(f64),
    Flag(bool),
    /// A value that cannot be compared. Accepted attributes have none.
    Other,
}

/// Initial capacity: more attributes than most subscriptions have.
const USUAL: usize = 8;

impl<'a> Attributes<'a> {
    /// Parses a JSON object. Any other value has no attributes.
    pub fn from_json(json: &'a [u8]) -> Self {
        serde_json::from_slice(json).unwrap_or_default()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Scalar<'a>> {
        self.0.iter().find_map(|(known, value)| (known == name).then_some(value))
    }
}

impl<'de> Deserialize<'de> for Attributes<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Attributes<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut attributes = Vec::with_capacity(USUAL);
                while let Some((AttributeName(name), value)) = map.next_entry()? {
                    attributes.push((name, value));
                }
                Ok(Attributes(attributes))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// Name of an attribute, borrowed unless it contains escapes.
#[derive(Deserialize)]
struct AttributeName<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Scalar<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Scalar<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Scalar::Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Scalar::Text(Cow::Owned(text.to_owned())))
            }

            fn visit_bool<E>(self, flag: bool) -> Result<Self::Value, E> {
                Ok(Scalar::Flag(flag))
            }

            fn visit_i64<E>(self, n: i64) -> Result<Self::Value, E> {
                Ok(Scalar::Number(n as f64))
            }

            fn visit_u64<E>(self, n: u64) -> Result<Self::Value, E> {
                Ok(Scalar::Number(n as f64))
            }

            fn visit_f64<E>(self, n: f64) -> Result<Self::Value, E> {
                Ok(Scalar::Number(n))
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Scalar::Other)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Scalar::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Scalar::Other)
            }
        }
        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/segment/unit/attributes.rs"]
mod tests;
