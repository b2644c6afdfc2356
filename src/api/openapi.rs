//! The OpenAPI 3.1 description of the API, generated from the handlers and served at `/openapi.json`.

mod examples;
pub(super) mod samples;
pub(super) mod shapes;

use std::collections::BTreeSet;

use axum::Router;
use axum::body::Bytes;
use axum::http::header;
use axum::routing::get;
use serde_json::{Value, json};
use utoipa::PartialSchema as _;
use utoipa::openapi::OpenApi;

use super::ApiState;
use super::http::deprecation;
use super::http::problem::{Details, FieldError, PROBLEM_KINDS};

const ABOUT: &str = "Self-hosted web-push delivery.

The response to a refused request is a problem (RFC 9457), whose `type` is the path of a page with the remedy. JSON responses have \
an `ETag`: with `If-None-Match` the response is 304 if nothing has changed, and with `If-Match` a change is refused if the resource \
has changed (412, `precondition_failed`). A `POST` that creates a resource is carried out once, even if it is repeated with the same \
`Idempotency-Key`. Lists have pages: `Link` contains the next page. Unknown query parameters are refused (400).

Each route refuses a body that is too large (413, `body_too_large`) or too slow (408, `body_too_slow`). Too many requests get 429 \
(`rate_limited`) with `Retry-After`. `RateLimit` and `RateLimit-Policy` contain the remaining quota: for servers that of the `key`; \
for browsers that of the `client`, the IPv6 `network`, the `subscription` or `receipts`. Invalid API keys also count against their \
client (`keys`). Path and query values must not contain NUL (400).";

const SESSION: &str = "The cookie that `POST /v1/session` sets; without TLS it is called `bellwire`. The role that a route names \
must be granted for the app in the path, or for all apps. Routes without an app, and the deletion of an app, need it for all apps. With \
`any_app`, the role for any app is enough, and the response contains only the apps with that role. \
Only this server's own pages may use it: requests need `Sec-Fetch-Site: same-origin` or, if they change \
anything, at least an `Origin` of this server.";

/// Purpose of each group of routes.
const TAGS: [(&str, &str); 18] = [
    ("Messages", "Send, pause, resume and cancel messages; list deliveries with their attempts."),
    ("Templates", "Content that is written once and rendered for each recipient."),
    ("Campaigns", "Plans that create messages: schedules, variants, results."),
    ("Subscriptions", "Register, change, unsubscribe and erase browsers and users."),
    ("Receipts", "Reports of browsers: displayed, clicked, closed."),
    ("Topics", "Named audiences that browsers join."),
    ("Segments", "Stored filters of the audience."),
    ("Policies", "Retries, and times at which deliveries may be sent."),
    ("Flow control", "Limits of the delivery rate."),
    ("Dead letters", "Deliveries that failed for good: find, replay, discard, export."),
    ("Webhooks", "Receivers of events over HTTP, signed by Standard Webhooks."),
    ("Events", "History of events, and the live stream."),
    ("Apps", "Sites, and the audit log of their changes."),
    ("API keys", "Credentials of servers."),
    ("Identity", "Keys that sign user tokens."),
    ("VAPID keys", "Keys that sign pushes (RFC 8292)."),
    ("Team", "Sessions, teammates and their roles."),
    ("Operations", "For operators of the server."),
];

/// Problems that routes share: name, status and cause.
const PROBLEMS: [(&str, u16, &str); 12] = [
    ("BadRequest", 400, "A parameter, a header or the syntax of the body is invalid; `errors` names each"),
    ("Unauthorized", 401, "The key or token is missing, invalid or expired"),
    ("Forbidden", 403, "The caller is known, but lacks the permission"),
    ("NotFound", 404, "The resource does not exist, or the caller may not see it"),
    ("TooSlow", 408, "The body did not arrive in time (`body_too_slow`)"),
    ("Conflict", 409, "The current state does not allow the request; `code` has the reason"),
    ("PreconditionFailed", 412, "The resource does not have the tag in `If-Match` (`precondition_failed`)"),
    ("TooLarge", 413, "The body is too large (`body_too_large`)"),
    ("UnsupportedMediaType", 415, "The body must be sent as `application/json`"),
    ("Invalid", 422, "The body is well-formed, but members are invalid; `errors` points to each"),
    ("TooManyRequests", 429, "Too many requests (`rate_limited`); `Retry-After` contains the delay"),
    ("HeadTooLarge", 431, "The head of the request is too large (`head_too_large`)"),
];

/// Types and descriptions of path parameters. A parameter that is not listed is a string without a description.
const PATH_PARAMETERS: [(&str, &str, Option<&str>); 9] = [
    ("app", "string", Some("Id or slug")),
    ("campaign", "string", Some("Id or slug")),
    ("code", "string", Some("Code that the browser displayed, in upper or lower case")),
    ("key", "string", Some("`key` that the sender gave the message")),
    ("lane", "integer", None),
    ("run", "integer", Some("Number of the run, from 1")),
    ("template", "string", Some("1 to 64 lower-case letters, digits and dashes")),
    ("tier", "string", Some("Name, or 1, 2, 3")),
    ("user", "string", Some("`user_id`")),
];

/// Adds title, security schemes, problems, examples, and bounds of strings and numbers to the description generated from the
/// handlers.
pub(crate) fn complete(api: OpenApi) -> Value {
    let mut api = serde_json::to_value(api).expect("a description consists of strings and numbers");
    api["info"] = json!({
        "title": "Bellwire",
        "version": env!("CARGO_PKG_VERSION"),
        "description": ABOUT,
        "license": {"name": "MIT or Apache-2.0", "identifier": env!("CARGO_PKG_LICENSE")},
    });
    api["servers"] = json!([{"url": "/", "description": "The server that this description came from"}]);
    let bearer = |description: &str| json!({"type": "http", "scheme": "bearer", "description": description});
    api["components"]["securitySchemes"] = json!({
        "api_key": bearer("An API key, `bw_…`, with the scope that the route names."),
        "browser_token": bearer("A subscription's own token, `bt_…`."),
        "session": {"type": "apiKey", "in": "cookie", "name": "__Host-bellwire", "description": SESSION},
    });
    api["components"]["schemas"]["Problem"] = json!(Details::schema());
    // Not an `enum`: each new code would be a breaking change.
    api["components"]["schemas"]["Problem"]["properties"]["code"]["examples"] =
        PROBLEM_KINDS.iter().map(|kind| kind.code).collect();
    api["components"]["schemas"]["FieldError"] = json!(FieldError::schema());
    let content = json!({"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}});
    let problem = |description: &str| json!({"description": description, "content": content});
    for (name, status, description) in PROBLEMS {
        api["components"]["responses"][name] = problem(description);
        if status == 429 {
            let seconds = json!({"type": "integer", "minimum": 0, "maximum": 86_400});
            api["components"]["responses"][name]["headers"] =
                json!({"Retry-After": {"description": "Seconds to wait", "schema": seconds}});
        }
    }
    api["components"]["responses"]["Problem"] = problem("A problem (RFC 9457)");
    let mut used = BTreeSet::new();
    for (path, item) in api["paths"].as_object_mut().into_iter().flatten() {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            complete_operation(path, method, operation);
            used.extend(operation["tags"][0].as_str().map(str::to_owned));
        }
    }
    let tags = TAGS.iter().filter(|(name, _)| used.contains(*name));
    api["tags"] = tags.map(|(name, description)| json!({"name": name, "description": description})).collect();
    name_pages(&mut api);
    shapes::bound(&mut api);
    show_answers(&mut api);
    api
}

/// Renames the schemas of pages by their rows (`Page_AppResponse` becomes `AppResponsePage`), and refers to the schema of the
/// rows.
fn name_pages(api: &mut Value) {
    let schemas = api["components"]["schemas"].as_object_mut().expect("there are schemas");
    let rows: Vec<String> = schemas.keys().filter_map(|name| name.strip_prefix("Page_")).map(str::to_owned).collect();
    for row in rows {
        let Some(mut page) = schemas.remove(&format!("Page_{row}")) else { continue };
        let items = &mut page["properties"]["data"]["items"];
        // Rows that occur only in this list have no schema yet.
        schemas.entry(row.as_str()).or_insert(items.take());
        *items = json!({"$ref": format!("#/components/schemas/{row}")});
        schemas.insert(format!("{row}Page"), page);
    }
    rename_pages(api);
}

/// Renames the references to schemas of pages.
fn rename_pages(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(target)) = members.get_mut("$ref")
                && let Some(row) = target.strip_prefix("#/components/schemas/Page_")
            {
                *target = format!("#/components/schemas/{row}Page");
            }
            members.values_mut().for_each(rename_pages);
        }
        Value::Array(items) => items.iter_mut().for_each(rename_pages),
        _ => {}
    }
}

/// Adds an example to each JSON response.
fn show_answers(api: &mut Value) {
    let schemas = api["components"]["schemas"].as_object().cloned().unwrap_or_default();
    let items = api["paths"].as_object_mut().into_iter().flatten().map(|(_, item)| item);
    let operations = items.filter_map(Value::as_object_mut).flatten().map(|(_, operation)| operation);
    for response in
        operations.filter_map(|operation| operation["responses"].as_object_mut()).flatten().map(|(_, it)| it)
    {
        let Some(content) = response.pointer_mut("/content/application~1json") else { continue };
        if content.get("example").is_none() {
            let schema = content["schema"].clone();
            content["example"] = samples::of(&schemas, &schema, "");
        }
    }
}

fn complete_operation(path: &str, method: &str, operation: &mut Value) {
    operation["operationId"] = operation_id(path, operation["operationId"].as_str().unwrap_or_default()).into();
    operation["x-effect"] = effect(path, method).into();
    if operation["security"].as_array().is_none_or(Vec::is_empty) {
        operation["security"] = json!([{}]); // no authentication
    }
    add_path_parameters(path, operation);
    deprecation::describe(operation);
    tell(operation);
    if is_made_once(path, method, operation) {
        add_idempotency_key(operation);
    }
    let has_body = operation.get("requestBody").is_some_and(Value::is_object);
    let takes_json = operation["requestBody"]["content"]["application/json"].is_object();
    let takes_parameters = operation["parameters"].as_array().is_some_and(|parameters| !parameters.is_empty());
    let takes_keys = operation["security"]
        .as_array()
        .is_some_and(|ways| ways.iter().any(|way| way.as_object().is_some_and(|keys| !keys.is_empty())));
    if takes_json {
        let content = &mut operation["requestBody"]["content"]["application/json"];
        let name = schema_name(&content["schema"]);
        let is_file = content["schema"]["type"] == "array";
        if let Some(example) = if is_file { Some(examples::file()) } else { examples::of(name.as_deref()) } {
            content["example"] = example;
        }
        // An order without a body is the plain order.
        operation["requestBody"]["required"] = (name.as_deref() != Some("LaneOrderRequest")).into();
    }
    for (status, response) in operation["responses"].as_object_mut().into_iter().flatten() {
        if status == "201" {
            let path = json!({"type": "string", "format": "uri-reference", "maxLength": 2_048});
            response["headers"]["Location"] = json!({"description": "Path of the resource", "schema": path});
        }
        if response["description"].as_str().is_none_or(str::is_empty) {
            response["description"] = meaning(method, status).into();
        }
    }
    for (name, status, _) in PROBLEMS {
        let may_come = match status {
            400 => takes_parameters || has_body,
            401 | 403 => takes_keys,
            404 => path.contains('{'),
            408 | 413 => has_body,
            412 => method != "get" && takes(operation, "If-Match"),
            409 => method != "get" && path.starts_with("/v1/"),
            415 | 422 => takes_json,
            _ => path.starts_with("/v1/"),
        };
        if may_come {
            operation["responses"][status.to_string()] = json!({"$ref": format!("#/components/responses/{name}")});
        }
    }
    if !path.starts_with("/v1/") {
        let about = "The path supports only `GET` (`method_not_allowed`)";
        operation["responses"]["405"] = json!({"description": about});
    }
    operation["responses"]["default"] = json!({"$ref": "#/components/responses/Problem"});
}

/// Requests that accept an `Idempotency-Key` although they do not respond with 201.
const ONCE_BESIDE: [&str; 5] = [
    "/v1/apps/{app}/messages",
    "/v1/apps/{app}/campaigns/{campaign}/test",
    "/v1/apps/{app}/dead-letters/replay",
    "/v1/apps/{app}/webhooks/{webhook}/test",
    "/v1/team/{teammate}/reset",
];
/// Requests that respond with 201 but do not accept an `Idempotency-Key`. A browser is registered once by its endpoint, and a
/// one-time proof of a sign-in works once. Importing a file twice changes nothing.
const NEVER_ONCE: [&str; 4] =
    ["/v1/apps/{app}/imports", "/v1/apps/{app}/subscriptions", "/v1/session", "/v1/session/passkeys"];

/// Requests that change nothing, although they are no `GET`. A link check is not among them: it calls an address of the caller's choice.
const READS: [&str; 6] = [
    "/v1/apps/{app}/campaigns/{campaign}/dry-run",
    "/v1/apps/{app}/policies/preview",
    "/v1/apps/{app}/policies/simulate",
    "/v1/apps/{app}/segments/preview",
    "/v1/apps/{app}/templates/check",
    "/v1/apps/{app}/templates/preview",
];
/// Requests that send to subscriptions. One that resumes a send is not among them, because its start was.
const SENDS: [&str; 8] = [
    "/v1/apps/{app}/campaigns/{campaign}/start",
    "/v1/apps/{app}/campaigns/{campaign}/test",
    "/v1/apps/{app}/dead-letters/replay",
    "/v1/apps/{app}/dead-letters/{dead_letter}/replay",
    "/v1/apps/{app}/messages",
    "/v1/apps/{app}/messages/batch",
    "/v1/apps/{app}/messages/{message}/deliveries/{subscription}/retry",
    "/v1/apps/{app}/subscriptions/{subscription}/diagnoses",
];

/// Change of a message, which is sent to the browsers that have it.
const UPDATE: &str = "/v1/apps/{app}/messages/by-key/{key}";

/// Returns the effect of an operation, for tools that are made from the description.
fn effect(path: &str, method: &str) -> &'static str {
    match method {
        "get" => "read",
        "post" if READS.contains(&path) => "read",
        "post" if SENDS.contains(&path) => "send",
        "patch" if path == UPDATE => "send",
        _ => "write",
    }
}

fn is_made_once(path: &str, method: &str, operation: &Value) -> bool {
    let makes = operation["responses"]["201"].is_object() && !NEVER_ONCE.contains(&path);
    method == "post" && (makes || ONCE_BESIDE.contains(&path))
}

fn add_idempotency_key(operation: &mut Value) {
    let about = "1 to 255 ASCII characters. The same request with it from the same caller gets the response to the first one \
                 and does nothing. Kept for two days";
    let header = json!({
        "name": "Idempotency-Key", "in": "header", "required": false, "description": about, "schema": {"type": "string"}
    });
    match operation["parameters"].as_array_mut() {
        Some(parameters) => parameters.push(header),
        None => operation["parameters"] = json!([header]),
    }
    let repeat = json!({"description": "`true`: the stored response to the first request", "schema": {"type": "string", "const": "true"}});
    for (status, response) in operation["responses"].as_object_mut().into_iter().flatten() {
        if status.starts_with('2') {
            response["headers"]["Idempotent-Replayed"] = repeat.clone();
        }
    }
}

/// Adds the path parameters that the handler does not describe, in path order, before all other parameters.
fn add_path_parameters(path: &str, operation: &mut Value) {
    let names = path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = names.filter(|name| !takes(operation, name)).map(path_parameter).collect();
    if let Some(described) = operation.get_mut("parameters").and_then(Value::as_array_mut) {
        parameters.append(described);
    }
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
}

fn path_parameter(name: &str) -> Value {
    let (_, kind, description) =
        *PATH_PARAMETERS.iter().find(|(known, ..)| *known == name).unwrap_or(&(name, "string", None));
    let mut parameter = json!({"name": name, "in": "path", "required": true, "schema": {"type": kind}});
    if kind == "integer" {
        parameter["schema"]["format"] = "int32".into();
    }
    if let Some(description) = description {
        parameter["description"] = description.into();
    }
    parameter
}

fn takes(operation: &Value, parameter: &str) -> bool {
    operation["parameters"].as_array().into_iter().flatten().any(|taken| taken["name"] == parameter)
}

/// Splits the doc comment of a handler into a summary (the first sentence) and a description, and adds the allowed callers.
fn tell(operation: &mut Value) {
    let said = [&operation["summary"], &operation["description"]].map(|text| text.as_str().unwrap_or_default());
    let mut paragraphs: Vec<String> = said
        .iter()
        .flat_map(|text| text.split("\n\n"))
        .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|paragraph| !paragraph.is_empty())
        .collect();
    let first = if paragraphs.is_empty() { String::new() } else { paragraphs.remove(0) };
    let (summary, rest) = match first.split_once(". ") {
        Some((sentence, rest)) => (format!("{sentence}."), Some(rest.to_owned())),
        None => (first, None),
    };
    let description: Vec<String> = rest.into_iter().chain(paragraphs).chain([for_whom(operation)]).collect();
    operation["summary"] = summary.into();
    operation["description"] = description.join("\n\n").into();
}

/// Describes the allowed callers of an operation.
fn for_whom(operation: &Value) -> String {
    let mut ways = Vec::new();
    for way in operation["security"].as_array().into_iter().flatten() {
        let of = |scheme: &str| way[scheme].as_array();
        if let Some(scopes) = of("api_key") {
            let scope = scopes.first().and_then(Value::as_str).unwrap_or_default();
            ways.push(format!("an API key with the scope `{scope}`"));
        } else if of("browser_token").is_some() {
            ways.push("the subscription's own token".to_owned());
        } else if let Some(roles) = of("session") {
            ways.push(match roles.first().and_then(Value::as_str) {
                Some(role) => format!("a session of a teammate with the role `{role}`"),
                None => "a session".to_owned(),
            });
        } else {
            return "Takes no key: everyone may call it.".to_owned();
        }
    }
    format!("Takes {}.", ways.join(", or "))
}

/// Returns the component name of a schema, also of an optional one.
fn schema_name(schema: &Value) -> Option<String> {
    let reference = schema["$ref"]
        .as_str()
        .or_else(|| schema["oneOf"].as_array().into_iter().flatten().find_map(|choice| choice["$ref"].as_str()));
    reference.and_then(|reference| reference.rsplit('/').next()).map(str::to_owned)
}

/// Returns the operation's name for generated clients: its resource (from the path) and its action (from the handler).
fn operation_id(path: &str, handler: &str) -> String {
    let mut nouns: Vec<String> = path
        .split('/')
        .filter(|segment| !segment.is_empty() && !segment.starts_with('{') && *segment != "v1")
        .map(|segment| segment.replace('-', "_"))
        .collect();
    if nouns.len() > 1 && nouns[0] == "apps" {
        nouns.remove(0);
    }
    if nouns.last().is_some_and(|noun| handler.starts_with(noun.as_str())) {
        nouns.pop();
    }
    nouns.push(handler.to_owned());
    nouns.join("_")
}

fn meaning(method: &str, status: &str) -> &'static str {
    match (method, status) {
        ("get", _) => "The resource",
        (_, "201") => "Created; the body contains the resource",
        (_, "202") => "Accepted; the work continues after the response",
        (_, "204") => "Done; no body",
        ("put" | "patch", _) => "Done; the body contains the current state",
        _ => "Done; the body contains the result",
    }
}

/// Creates the route of `/openapi.json`.
pub(crate) fn route(description: &Value) -> Router<ApiState> {
    let text = Bytes::from(description.to_string());
    Router::new().route("/openapi.json", get(|| async move { ([(header::CONTENT_TYPE, "application/json")], text) }))
}

#[cfg(test)]
#[path = "../../tests/unit/api/openapi.rs"]
mod tests;
