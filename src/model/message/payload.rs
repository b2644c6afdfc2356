//! A raw payload and its JSON.

use std::fmt;

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use crate::model::base64url;

/// Octets for the page's own handler: in JSON a string, or `{"base64": "…"}` in any of base64's spellings.
#[derive(Clone, PartialEq, Eq)]
pub enum Payload {
    /// Sent as UTF-8.
    Text(String),
    /// Sent as they are.
    Octets(Vec<u8>),
}

impl Payload {
    /// The octets to send.
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
        /// By hand, since an untagged enum would hide what is wrong with the base64.
        struct TextOrBase64;
        impl<'de> Visitor<'de> for TextOrBase64 {
            type Value = Payload;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or {\"base64\": \"…\"}")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Payload, E> {
                Ok(Payload::Text(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Payload, A::Error> {
                #[derive(Deserialize)]
                #[serde(deny_unknown_fields)]
                struct Octets {
                    base64: String,
                }
                let Octets { base64 } = Octets::deserialize(de::value::MapAccessDeserializer::new(map))?;
                base64url::decode_any(&base64)
                    .map(Payload::Octets)
                    .ok_or_else(|| de::Error::custom("`base64` is not base64"))
            }
        }
        deserializer.deserialize_any(TextOrBase64)
    }
}

/// What the derived schemas of [`Payload`] look like, since its JSON is written by hand.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = Payload)]
#[expect(dead_code, reason = "describes JSON, is never built")]
enum PayloadSchema {
    /// Sent as UTF-8.
    Text(String),
    /// Sent as the octets it stands for.
    Octets {
        /// In any of base64's four spellings.
        base64: String,
    },
}

impl utoipa::PartialSchema for Payload {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        PayloadSchema::schema()
    }
}

impl ToSchema for Payload {
    fn name() -> std::borrow::Cow<'static, str> {
        "Payload".into()
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} octets)", self.as_bytes().len())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_payload_is_a_string_or_base64_in_any_spelling_and_says_what_is_wrong() {
        for spelling in ["+/8=", "-_8", "-_8=", "+/8"] {
            let payload: Payload = serde_json::from_value(json!({"base64": spelling})).unwrap();
            assert_eq!(payload.as_bytes(), [0xfb, 0xff]);
        }
        assert_eq!(serde_json::from_value::<Payload>(json!("tëxt")).unwrap().as_bytes(), "tëxt".as_bytes());
        let refusal = |value| serde_json::from_value::<Payload>(value).unwrap_err().to_string();
        assert!(refusal(json!({"base64": "*"})).contains("not base64"));
        assert!(refusal(json!({"base64": "AA", "more": 1})).contains("more"));
        assert!(refusal(json!(7)).contains("a string or"));
    }
}
