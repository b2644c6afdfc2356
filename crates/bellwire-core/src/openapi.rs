//! OpenAPI schemas of types whose JSON is parsed by hand.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use utoipa::openapi::{ObjectBuilder, OneOfBuilder, Ref, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::delivery::Tier;
use crate::message::Payload;

/// Schema of a tier in requests: a name or a number.
pub struct TierSchema;

impl PartialSchema for TierSchema {
    fn schema() -> RefOr<Schema> {
        let numbers = ObjectBuilder::new().schema_type(Type::Integer).enum_values(Some(Tier::ALL.map(Tier::code)));
        let name = Ref::from_schema_name(<Tier as ToSchema>::name());
        Schema::OneOf(OneOfBuilder::new().item(name).item(numbers).build()).into()
    }
}

impl ToSchema for TierSchema {
    fn name() -> Cow<'static, str> {
        "TierRef".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((<Tier as ToSchema>::name().into_owned(), Tier::schema()));
    }
}

/// Payload of a push that is no notification, for the site's own service worker.
#[derive(Serialize, ToSchema)]
#[schema(as = Payload)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes JSON, is never built")]
enum PayloadSchema {
    /// Text, sent as UTF-8.
    Text(String),
    Object(#[schema(inline)] PayloadObject),
}

/// An object with `base64` alone gives bytes. Any other is sent as its JSON text.
#[derive(Serialize, ToSchema)]
struct PayloadObject {
    /// Base64 or base64url, with or without padding.
    #[schema(nullable = false)]
    base64: Option<String>,
    #[serde(flatten)]
    members: BTreeMap<String, Value>,
}

impl PartialSchema for Payload {
    fn schema() -> RefOr<Schema> {
        PayloadSchema::schema()
    }
}

impl ToSchema for Payload {
    fn name() -> Cow<'static, str> {
        "Payload".into()
    }
}
