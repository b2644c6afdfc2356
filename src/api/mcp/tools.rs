//! Tools, made from the operations of the OpenAPI description by the same rules.
//!
//! An operation is a tool if an API key may call it, its body is a JSON object or absent, its response is JSON or empty, no
//! credential is created by it, and its recipients can be counted before it sends.

use std::sync::LazyLock;

use axum::http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};
use url::form_urlencoded;

use super::redaction;
use bellwire_core::scope::Scope;

/// Argument with the number of recipients that the caller confirms.
pub(super) const EXPECTED: &str = "expected_recipients";
const BODY: &str = "body";
const DRY_RUN: &str = "dry_run";

/// All tools of the API.
pub(super) static TOOLS: LazyLock<Vec<OperationTool>> = LazyLock::new(|| of(&crate::api::document()));

/// Request that counts the recipients of a send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DryRun {
    /// The send itself, with a query parameter.
    Query,
    /// The send itself, with a member of the body.
    Body,
    /// Another operation of the same resource, at this path.
    Path(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    Read,
    Write,
    Send(DryRun),
}

/// An operation as a tool.
#[derive(Debug)]
pub(super) struct OperationTool {
    pub tool: Tool,
    pub effect: Effect,
    pub scope: Scope,
    pub method: Method,
    /// Path with `{parameter}` placeholders.
    pub path: String,
    query: Vec<String>,
}

/// A request to the API.
#[derive(Debug, PartialEq)]
pub(super) struct ToolRequest {
    pub method: Method,
    pub uri: String,
    /// JSON. Null: no body.
    pub body: Value,
}

/// Returns the tools of a description.
pub(super) fn of(description: &Value) -> Vec<OperationTool> {
    let items = description["paths"].as_object().into_iter().flatten();
    let operations = items.flat_map(|(path, item)| {
        item.as_object().into_iter().flatten().map(move |(method, operation)| (path, method, operation))
    });
    operations.filter_map(|(path, method, operation)| tool(description, path, method, operation)).collect()
}

fn tool(description: &Value, path: &str, method: &str, operation: &Value) -> Option<OperationTool> {
    let scope = operation["security"].as_array()?.iter().find_map(|way| way["api_key"][0].as_str())?;
    let body = match operation["requestBody"]["content"].as_object() {
        Some(content) => Some(inlined(description, &content.get("application/json")?["schema"])),
        None => None,
    };
    // An array is a file.
    if body.as_ref().is_some_and(|body| body["type"] == "array") || !responds_with_json(operation) {
        return None;
    }
    let effect = effect(description, path, operation, body.as_ref())?;
    if effect != Effect::Read && redaction::has_credential(&responses(description, operation)) {
        return None;
    }
    let parameters = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
    let of = |place: &'static str| parameters.iter().filter(move |parameter| parameter["in"] == place);
    let text = |member: &str| operation[member].as_str().unwrap_or_default();
    let mut schema = Map::new();
    let mut required = Vec::new();
    for parameter in of("path").chain(of("query")) {
        let name = parameter["name"].as_str()?;
        // The app of a key is its default.
        if parameter["required"] == true && name != "app" {
            required.push(json!(name));
        }
        let mut property = inlined(description, &parameter["schema"]);
        if parameter["description"].is_string() {
            property["description"] = parameter["description"].clone();
        }
        schema.insert(name.to_owned(), property);
    }
    if operation["requestBody"]["required"] == true {
        required.push(json!(BODY));
    }
    schema.extend(body.map(|body| (BODY.to_owned(), body)));
    if let Effect::Send(_) = effect {
        schema.remove(DRY_RUN);
        if let Some(members) = schema.get_mut(BODY).and_then(|body| body["properties"].as_object_mut()) {
            members.remove(DRY_RUN);
        }
        let about = "Number of recipients that the call without it returned. Without it nothing is sent.";
        schema.insert(EXPECTED.to_owned(), json!({"type": "integer", "minimum": 0, "description": about}));
    }
    let input = JsonObject::from_iter([
        ("type".to_owned(), json!("object")),
        ("properties".to_owned(), Value::Object(schema)),
        ("required".to_owned(), Value::Array(required)),
        ("additionalProperties".to_owned(), json!(false)),
    ]);
    let about = format!("{}\n\n{}", text("summary"), text("description"));
    let hints = ToolAnnotations::new()
        .read_only(effect == Effect::Read)
        .destructive(effect != Effect::Read)
        .idempotent(matches!(method, "get" | "put" | "delete"))
        .open_world(false);
    Some(OperationTool {
        tool: Tool::new(text("operationId").to_owned(), about, input)
            .with_title(text("summary"))
            .with_annotations(hints),
        effect,
        scope: Scope::from_name(scope)?,
        method: method.to_ascii_uppercase().parse().ok()?,
        path: path.to_owned(),
        query: of("query").filter_map(|parameter| parameter["name"].as_str().map(str::to_owned)).collect(),
    })
}

/// Returns the effect of an operation. `None`: a send without a dry run.
fn effect(description: &Value, path: &str, operation: &Value, body: Option<&Value>) -> Option<Effect> {
    match operation["x-effect"].as_str()? {
        "read" => return Some(Effect::Read),
        "write" => return Some(Effect::Write),
        _ => {}
    }
    let in_query =
        operation["parameters"].as_array().into_iter().flatten().any(|parameter| parameter["name"] == DRY_RUN);
    if in_query {
        return Some(Effect::Send(DryRun::Query));
    }
    if body.is_some_and(|body| body["properties"][DRY_RUN].is_object()) {
        return Some(Effect::Send(DryRun::Body));
    }
    let start = path.strip_suffix("/start")?;
    let beside = format!("{start}/dry-run");
    description["paths"][&beside]["post"].is_object().then_some(Effect::Send(DryRun::Path(beside)))
}

fn successes(operation: &Value) -> impl Iterator<Item = &Value> {
    let responses = operation["responses"].as_object().into_iter().flatten();
    responses.filter(|(status, _)| status.starts_with('2')).map(|(_, response)| response)
}

fn responds_with_json(operation: &Value) -> bool {
    successes(operation).all(|response| match response["content"].as_object() {
        Some(content) => content.contains_key("application/json"),
        None => true,
    })
}

/// Returns the schemas of an operation's successful responses.
pub(super) fn responses(description: &Value, operation: &Value) -> Value {
    successes(operation)
        .map(|response| inlined(description, &response["content"]["application/json"]["schema"]))
        .collect()
}

/// Returns a schema with its references replaced by what they refer to, without examples. No schema of the API contains itself.
fn inlined(description: &Value, schema: &Value) -> Value {
    match schema {
        Value::Object(members) => {
            let target = members.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
            let mut whole = match target.and_then(|pointer| description.pointer(pointer)) {
                Some(target) => inlined(description, target),
                None => json!({}),
            };
            for (name, member) in members {
                if !matches!(name.as_str(), "$ref" | "example" | "examples") {
                    whole[name] = inlined(description, member);
                }
            }
            whole
        }
        Value::Array(items) => items.iter().map(|item| inlined(description, item)).collect(),
        _ => schema.clone(),
    }
}

impl OperationTool {
    /// Builds the request of a call. The error names the argument that is missing or unknown.
    pub(super) fn request(&self, arguments: &JsonObject) -> Result<ToolRequest, String> {
        let known = &self.tool.input_schema["properties"];
        if let Some(name) = arguments.keys().find(|name| known.get(name.as_str()).is_none()) {
            return Err(format!("the argument \"{name}\" does not exist; see the tool's input schema"));
        }
        if let Some((name, _)) = arguments.iter().find(|(name, value)| *name != BODY && value.is_object()) {
            return Err(format!("the argument \"{name}\" must not be an object"));
        }
        let mut uri = self.filled(&self.path, arguments)?;
        let mut query = form_urlencoded::Serializer::new(String::new());
        for name in &self.query {
            if let Some(value) = arguments.get(name).and_then(plain) {
                query.append_pair(name, &value);
            }
        }
        let query = query.finish();
        if !query.is_empty() {
            uri = format!("{uri}?{query}");
        }
        Ok(ToolRequest { method: self.method.clone(), uri, body: arguments.get(BODY).cloned().unwrap_or_default() })
    }

    /// Builds the request that counts the recipients of a send.
    pub(super) fn dry_run(&self, how: &DryRun, arguments: &JsonObject) -> Result<ToolRequest, String> {
        let mut request = self.request(arguments)?;
        match how {
            DryRun::Query => {
                let joint = if request.uri.contains('?') { '&' } else { '?' };
                request.uri = format!("{}{joint}{DRY_RUN}=true", request.uri);
            }
            DryRun::Body => match request.body.as_object_mut() {
                Some(body) => drop(body.insert(DRY_RUN.to_owned(), true.into())),
                None => return Err(format!("the argument \"{BODY}\" must be an object")),
            },
            DryRun::Path(path) => {
                request = ToolRequest { method: Method::POST, uri: self.filled(path, arguments)?, body: Value::Null };
            }
        }
        Ok(request)
    }

    /// Fills the placeholders of a path. Each value is percent-encoded, so that it cannot add segments.
    fn filled(&self, path: &str, arguments: &JsonObject) -> Result<String, String> {
        let segment = |segment: &str| {
            let Some(name) = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else {
                return Ok(segment.to_owned());
            };
            let value = arguments.get(name).and_then(plain).filter(|value| !value.is_empty());
            let value = value.ok_or_else(|| format!("the argument \"{name}\" is missing"))?;
            Ok(utf8_percent_encode(&value, NON_ALPHANUMERIC).to_string())
        };
        let segments: Result<Vec<String>, String> = path.split('/').map(segment).collect();
        Ok(segments?.join("/"))
    }
}

/// Returns a value as a parameter: lists are separated by commas.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Object(_) => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => Some(items.iter().filter_map(plain).collect::<Vec<_>>().join(",")),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/api/mcp/tools.rs"]
mod tests;
