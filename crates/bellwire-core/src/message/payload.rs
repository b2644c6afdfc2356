//! A raw payload and its JSON.

use std::fmt;

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::base64url;

/// Payload for the site's own push handler. In JSON it is a string, `{"base64": "…"}` in any form of base64, or another object,
/// which is sent as its JSON text.
#[derive(Clone, PartialEq, Eq)]
pub enum Payload {
    /// Text, sent as UTF-8.
    Text(String),
    /// Bytes, sent unchanged.
    Octets(Vec<u8>),
}

impl Payload {
    /// Returns the bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Octets(octets) => octets,
        }
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Octets(octets) => serializer.collect_map([("base64", base64url::encode(octets))]),
        }
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Implemented by hand, because an untagged enum would hide faults of the base64.
        struct TextOrBase64;
        impl<'de> Visitor<'de> for TextOrBase64 {
            type Value = Payload;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an object")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Payload, E> {
                Ok(Payload::Text(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Payload, A::Error> {
                let members = Map::deserialize(de::value::MapAccessDeserializer::new(map))?;
                match (members.get("base64"), members.len()) {
                    (None, _) => Ok(Payload::Text(Value::Object(members).to_string())),
                    (Some(Value::String(base64)), 1) => base64url::decode_any(base64)
                        .map(Payload::Octets)
                        .ok_or_else(|| de::Error::custom("`base64` is not base64")),
                    _ => Err(de::Error::custom("`base64` must be a string and have no more members beside it")),
                }
            }
        }
        deserializer.deserialize_any(TextOrBase64)
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} octets)", self.as_bytes().len())
    }
}

#[cfg(test)]
#[path = "../../../../tests/crates/core/unit/message/payload.rs"]
mod tests;
