//! Request bodies whose schema faults are reported together with faults of their values. A member that violates the schema is
//! replaced by an example, so that all other values can be checked.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::extract::{json_octets, parse, pointer, without_position};
use super::problem::{Faults, FieldError, Problem, ProblemCode};
use super::schema_errors::{in_plain_words, schema_of};
use crate::api::ApiState;
use crate::api::openapi::samples;

/// Maximum faults found by serde alone. Each needs another parse.
const ROUNDS_MAX: usize = 16;

/// A parsed JSON body, its faults so far, and its bytes. Do not use the body before [`Faults::finish`].
#[derive(Debug)]
pub(crate) struct Draft<T>(pub T, pub Faults, pub Bytes);

impl<T: DeserializeOwned + ToSchema> FromRequest<ApiState> for Draft<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Problem> {
        let octets = json_octets(request, state).await?;
        let (body, faults) = draft(&octets)?;
        Ok(Self(body, faults, octets))
    }
}

/// Parses JSON. Fails only if no part of the value can be checked.
pub(crate) fn draft<T: DeserializeOwned + ToSchema>(octets: &Bytes) -> Result<(T, Faults), Problem> {
    let refused = match parse(octets) {
        Ok(body) => return Ok((body, Faults::of_body(octets.clone(), Vec::new()))),
        Err(refused) => refused,
    };
    let body = serde_json::from_slice::<Value>(octets).ok().filter(Value::is_object);
    let Some(mut body) = body.filter(|_| refused.code == ProblemCode::Invalid) else { return Err(refused) };
    let (named, schema) = schema_of::<T>();
    let (mut errors, mut repaired) = (refused.errors.clone(), 0);
    for _ in 0..ROUNDS_MAX {
        let places = errors[repaired..].iter().filter_map(|error| error.pointer.as_deref());
        places.for_each(|place| repair(&named, &schema, &mut body, place));
        repaired = errors.len();
        let text = serde_json::to_vec(&body).map_err(|_| Problem::internal())?;
        let mut reader = serde_json::Deserializer::from_slice(&text);
        let error = match serde_path_to_error::deserialize(&mut reader) {
            Ok(body) => return Ok((body, Faults::of_body(octets.clone(), errors))),
            Err(error) => error,
        };
        let at = pointer(error.path());
        if errors.iter().any(|known| known.pointer.as_deref() == Some(&at)) {
            break;
        }
        errors.push(FieldError::member(at, in_plain_words(&without_position(error.inner()))));
    }
    Err(refused)
}

/// Replaces the member or item at `place` by an example. Removes it if the schema has no such member.
fn repair(named: &Map<String, Value>, schema: &Value, body: &mut Value, place: &str) {
    let segments: Vec<String> = place.split('/').skip(1).map(|it| it.replace("~1", "/").replace("~0", "~")).collect();
    let Some((name, _)) = segments.split_last() else { return };
    let example = schema_at(named, schema, &segments).map(|schema| samples::of(named, schema, name));
    let above = place.rsplit_once('/').map_or("", |(above, _)| above);
    match (body.pointer_mut(above), example) {
        (Some(Value::Object(members)), Some(example)) => drop(members.insert(name.clone(), example)),
        (Some(Value::Object(members)), None) => drop(members.remove(name)),
        (Some(Value::Array(items)), Some(example)) => {
            let item = name.parse::<usize>().ok().and_then(|at| items.get_mut(at));
            item.into_iter().for_each(|item| *item = example.clone());
        }
        _ => {}
    }
}

/// Returns the schema of a member or item.
fn schema_at<'a>(named: &'a Map<String, Value>, schema: &'a Value, segments: &[String]) -> Option<&'a Value> {
    if let Some(name) = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) {
        return schema_at(named, named.get(name)?, segments);
    }
    let [first, rest @ ..] = segments else { return Some(schema) };
    let mut parts = ["oneOf", "anyOf", "allOf"].into_iter().filter_map(|word| schema[word].as_array()).flatten();
    if let Some(found) = parts.find_map(|part| schema_at(named, part, segments)) {
        return Some(found);
    }
    let others = ["additionalProperties", "items"].into_iter().filter_map(|word| schema.get(word));
    let below = schema["properties"].get(first).or_else(|| others.into_iter().find(|schema| schema.is_object()))?;
    schema_at(named, below, rest)
}
