//! `/docs`: the OpenAPI description and the guides as HTML pages, and a page for each kind of problem. Pages load only style
//! sheets and images from this server, and run no scripts. The playground, which has scripts, is an embedded file.

pub(super) mod guides;
mod schema;

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use maud::{DOCTYPE, Markup, html};
use serde_json::Value;

use super::ApiState;
use super::http::problem::{PROBLEM_KINDS, Problem, ProblemKind};

const STYLE: &str = include_str!("docs/docs.css");
/// Content security policy: no scripts, and nothing from other servers. The search of guides is a form without a script.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; \
                      frame-ancestors 'none'";
/// HTTP methods in the order in which a path's page lists them.
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

pub(super) fn routes(description: Arc<Value>) -> Router<ApiState> {
    Router::new()
        .route("/docs", get(|| async { Redirect::permanent("/docs/") }))
        .route("/docs/", get(index))
        .route("/docs/operations/{operation}", get(operation))
        .route("/docs/schemas/{schema}", get(schema::show))
        .route("/docs/problems", get(|| async { Redirect::permanent("/docs/problems/") }))
        .route("/docs/problems/", get(|| async { problems() }))
        .route("/docs/problems/{code}", get(|code: DocName| async move { problem(&read(code)?) }))
        .route("/docs/guides", get(|| async { Redirect::permanent(guides::ROOT) }))
        .route(guides::ROOT, get(guides::index))
        .route("/docs/guides/{*page}", get(guides::show))
        .route("/llms.txt", get(outline))
        .route("/docs/docs.css", get(|| async { ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE) }))
        .with_state(description)
}

type DocName = Result<Path<String>, PathRejection>;

fn read(name: DocName) -> Result<String, Problem> {
    name.map(|Path(name)| name).map_err(|_| Problem::not_found("page"))
}

/// Renders a page. `search` is the text in its search field, which may be empty.
fn page(title: &str, search: &str, body: &Markup) -> Response {
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " · Bellwire" }
                link rel="stylesheet" href="/shared/tokens.css";
                link rel="stylesheet" href="/docs/docs.css";
            }
            body {
                header {
                    nav aria-label="Documentation" {
                        a href=(guides::ROOT) { "Guides" } " · " a href="/docs/" { "The API" } " · "
                        a href="/docs/problems/" { "Problems" } " · "
                        a href="/docs/playground/" { "Playground" } " · " a href="/openapi.json" { "OpenAPI" }
                    }
                    form role="search" action=(guides::ROOT) {
                        input type="search" name="q" value=(search) maxlength="100" required aria-label="Search the guides";
                        button { "Search" }
                    }
                }
                main { h1 { (title) } (body) }
            }
        }
    };
    let headers = [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, POLICY)];
    (headers, document.into_string()).into_response()
}

/// Returns the members of a JSON object, or none for another value.
fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn operations(description: &Value) -> impl Iterator<Item = (&str, &'static str, &Value)> {
    members(&description["paths"]).flat_map(|(path, item)| {
        METHODS
            .into_iter()
            .filter_map(move |method| item.get(method).map(|operation| (path.as_str(), method, operation)))
    })
}

async fn index(State(description): State<Arc<Value>>) -> Response {
    let of = |tag: &Value| {
        operations(&description).filter(|(.., operation)| operation["tags"][0] == *tag).collect::<Vec<_>>()
    };
    page(
        "The API",
        "",
        &html! {
            @for paragraph in text(&description["info"]["description"]).split("\n\n") { p { (words(paragraph)) } }
            @for tag in items(&description["tags"]) {
                h2 { (text(&tag["name"])) }
                p.soft { (text(&tag["description"])) }
                table {
                    @for (path, method, operation) in of(&tag["name"]) {
                        tr {
                            td { span.method { (method.to_uppercase()) } a href={ "/docs/operations/" (text(&operation["operationId"])) } { code { (path) } } }
                            td { (words(text(&operation["summary"]))) }
                        }
                    }
                }
            }
        },
    )
}

/// Guides and operations as Markdown for language models (llmstxt.org): one line each, with a link to its page.
async fn outline(State(description): State<Arc<Value>>) -> impl IntoResponse {
    let mut text = format!("# Bellwire\n\n> {}\n\n", self::text(&description["info"]["description"]));
    text.push_str("The OpenAPI 3.1 document is at /openapi.json, all problem codes at /docs/problems/.\n");
    text.push_str("\n## Guides\n\n");
    for guide in guides::all(&description).values().filter(|guide| !guide.name.is_empty()) {
        text.push_str(&format!("- [{}]({}{}.md): {}\n", guide.title, guides::ROOT, guide.name, guide.about));
    }
    for tag in items(&description["tags"]) {
        let [name, about] = ["name", "description"].map(|member| self::text(&tag[member]));
        text.push_str(&format!("\n## {name}\n\n{about}\n\n"));
        for (path, method, operation) in operations(&description).filter(|(.., it)| it["tags"][0] == tag["name"]) {
            let [id, summary] = ["operationId", "summary"].map(|member| self::text(&operation[member]));
            text.push_str(&format!("- [{} {path}](/docs/operations/{id}): {summary}\n", method.to_uppercase()));
        }
    }
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text)
}

async fn operation(State(description): State<Arc<Value>>, name: DocName) -> Result<Response, Problem> {
    let name = read(name)?;
    let found = operations(&description).find(|(.., operation)| operation["operationId"] == *name);
    let (path, method, operation) = found.ok_or_else(|| Problem::not_found("operation"))?;
    let body = &operation["requestBody"]["content"]["application/json"];
    Ok(page(
        &format!("{} {path}", method.to_uppercase()),
        "",
        &html! {
            p { (words(text(&operation["summary"]))) }
            @for paragraph in text(&operation["description"]).split("\n\n") { p { (words(paragraph)) } }
            @if !items(&operation["parameters"]).is_empty() {
                h2 { "Parameters" }
                table {
                    @for parameter in items(&operation["parameters"]) {
                        tr {
                            td { code { (text(&parameter["name"])) } }
                            td { (text(&parameter["in"])) @if parameter["required"] == true { ", required" } }
                            td { (schema::kind(&parameter["schema"])) " " (words(text(&parameter["description"]))) }
                        }
                    }
                }
            }
            @if body.is_object() { h2 { "Body" } (content(body)) }
            h2 { "Answers" }
            @for (status, response) in members(&operation["responses"]) { (answer(&description, status, response)) }
        },
    ))
}

/// Renders a JSON body: its schema, and an example.
fn content(body: &Value) -> Markup {
    html! {
        p { (schema::kind(&body["schema"])) }
        @if let Some(example) = body.get("example") { pre { (pretty(example)) } }
    }
}

fn answer(description: &Value, status: &str, response: &Value) -> Markup {
    let shared = response["$ref"].as_str().and_then(|place| description.pointer(place.trim_start_matches('#')));
    let number: u16 = status.parse().unwrap_or_default();
    let json = &response["content"]["application/json"];
    html! {
        h3 { (status) }
        p { (words(text(&shared.unwrap_or(response)["description"]))) }
        @if json.is_object() { (content(json)) }
        @if shared.is_some() && number > 0 {
            p.soft { "Problems: " @for kind in PROBLEM_KINDS.iter().filter(|kind| kind.status == number) { (link(kind)) " " } }
        }
    }
}

fn problems() -> Response {
    page(
        "Problems",
        "",
        &html! {
            p {
                "The response to a refused request is " code { "application/problem+json" } " (RFC 9457). " code { "code" }
                " is for programs and never changes, " code { "detail" } " is for people, " code { "errors" }
                " names every place that is wrong, and " code { "type" } " links to one of these pages."
            }
            table {
                tr { th { "Code" } th { "Status" } th { "Meaning" } }
                @for kind in PROBLEM_KINDS { tr { td { (link(kind)) } td { (kind.status.as_u16()) } td { (words(kind.means)) } } }
            }
        },
    )
}

fn link(kind: &ProblemKind) -> Markup {
    html! { a href=(kind.page()) { code { (kind.code) } } }
}

fn problem(code: &str) -> Result<Response, Problem> {
    let kind = ProblemKind::find(code).ok_or_else(|| Problem::not_found("kind of problem"))?;
    Ok(page(
        kind.code,
        "",
        &html! {
            p { strong { (kind.status.as_u16()) " " (kind.title()) } }
            p { (words(kind.means)) }
            h2 { "What to do" }
            p { (words(kind.remedy)) }
        },
    ))
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn words(prose: &str) -> Markup {
    html! {
        @for (n, part) in prose.split('`').enumerate() {
            @if n % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}
