//! Embedded files for browsers: the SDK and its service worker under `/sdk`, the admin page under `/admin`, the example page
//! under `/example`, the subscribing page of the app setup under `/try`, and shared files under `/shared`. Client packages are
//! under `/clients`; the Python package is absent unless `make clients` built it. Sources and pictures of guides are under
//! `/docs/guides`, and the playground for the elements of the SDK under `/docs/playground`.

use std::collections::HashMap;
use std::sync::LazyLock;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};

use super::example::ExampleVisitor;
use super::http::etag::{self, Comparison};
use super::http::problem::Problem;
use super::{ApiState, example};

/// Paths and contents in each of [`CODINGS`], from build.rs. Empty: not available in that coding.
static EMBEDDED: &[(&str, [&[u8]; 3])] = include!(concat!(env!("OUT_DIR"), "/site.rs"));

static FILES: LazyLock<HashMap<&str, File>> =
    LazyLock::new(|| EMBEDDED.iter().map(|(path, forms)| (*path, File::new(path, *forms))).collect());

/// Content codings of files, in order of preference.
const CODINGS: [&str; 3] = ["br", "gzip", "identity"];

/// Content security policy of pages: nothing from other origins, and no framing.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                           img-src 'self' data:; manifest-src 'self'; worker-src 'self'; base-uri 'none'; \
                           form-action 'none'; frame-ancestors 'none'";
/// Content security policy of the admin page. In addition, Trusted Types prevents that text becomes code or markup.
const ADMIN_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                            base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
                            require-trusted-types-for 'script'; trusted-types 'none'";
/// Content security policy of the playground. It requests only scripts, styles and images. Its preview is an `about:srcdoc` frame.
const PLAYGROUND_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; frame-src about:; \
                                 base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
                                 require-trusted-types-for 'script'; trusted-types 'none'";
/// Content security policy of a service worker's script, which applies to the worker. It may report to any server, and show
/// icons from anywhere.
const SCRIPT_POLICY: &str =
    "default-src 'none'; script-src 'self'; connect-src *; img-src * data:; frame-ancestors 'none'";

/// Browsers revalidate these files at each use, because a service worker must match its server's version.
const FRESH: &str = "no-cache";
/// For files with a hash of their content in the name.
const FOR_EVER: &str = "public, max-age=31536000, immutable";
/// For the SDK module, which pages of many sites load.
const SOON: &str = "public, max-age=600";

struct File {
    forms: [EncodedFile; 3],
    kind: &'static str,
    policy: &'static str,
    cached: &'static str,
    /// Whether the file belongs to the SDK: other origins may load it, and a worker may have any scope.
    is_public: bool,
}

struct EncodedFile {
    coding: &'static str,
    content: &'static [u8],
    etag: HeaderValue,
}

impl EncodedFile {
    fn new(coding: &'static str, content: &'static [u8]) -> Self {
        Self { coding, content, etag: etag::of(content) }
    }
}

impl File {
    fn new(path: &str, forms: [&'static [u8]; 3]) -> Self {
        let extension = path.rsplit('.').next().unwrap_or_default();
        let kind = match extension {
            "html" => "text/html; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "ts" => "text/plain; charset=utf-8", // browsers would take `video/mp2t` from the system's list
            "json" | "map" => "application/json",
            "md" => "text/markdown; charset=utf-8",
            "webmanifest" => "application/manifest+json",
            "svg" => "image/svg+xml",
            "png" => "image/png",
            "tgz" => "application/gzip",
            "whl" => "application/zip",
            _ => "application/octet-stream",
        };
        let is_public = path.starts_with("/sdk/");
        let [brotli, gzip, plain] = CODINGS;
        let [packed, zipped, content] = forms;
        Self {
            forms: [EncodedFile::new(brotli, packed), EncodedFile::new(gzip, zipped), EncodedFile::new(plain, content)],
            kind,
            policy: match (path.starts_with("/admin/"), extension) {
                (true, _) => ADMIN_POLICY,
                (_, "html") if path.starts_with("/docs/playground/") => PLAYGROUND_POLICY,
                (_, "js") => SCRIPT_POLICY,
                _ => PAGE_POLICY,
            },
            cached: match path {
                _ if path.starts_with("/admin/assets/") => FOR_EVER,
                _ if is_public && !path.ends_with("/service-worker.js") => SOON,
                _ => FRESH,
            },
            is_public,
        }
    }

    fn answer(&self, request: &HeaderMap) -> Response {
        let [.., plain] = &self.forms;
        let taken = |form: &&EncodedFile| !form.content.is_empty() && takes(request, form.coding);
        let form = self.forms.iter().find(taken).unwrap_or(plain);
        let mut headers = HeaderMap::new();
        headers.insert(header::ETAG, form.etag.clone());
        let fixed = |text| HeaderValue::from_static(text);
        headers.insert(header::VARY, fixed("Accept-Encoding"));
        headers.insert(header::CACHE_CONTROL, fixed(self.cached));
        headers.insert(header::CONTENT_SECURITY_POLICY, fixed(self.policy));
        if self.is_public {
            // A module from another origin is only run if it may be read.
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, fixed("*"));
            headers.insert(HeaderName::from_static("cross-origin-resource-policy"), fixed("cross-origin"));
            headers.insert(HeaderName::from_static("service-worker-allowed"), fixed("/"));
        }
        if etag::is_named(request, &header::IF_NONE_MATCH, Some(&form.etag), Comparison::Weak) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        headers.insert(header::CONTENT_TYPE, fixed(self.kind));
        if form.coding != plain.coding {
            headers.insert(header::CONTENT_ENCODING, fixed(form.coding));
        }
        (headers, form.content).into_response()
    }
}

/// Whether a client accepts a content coding by name (RFC 9110 section 12.5.3). Wildcards are ignored.
fn takes(request: &HeaderMap, coding: &str) -> bool {
    let given = request.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    given.flat_map(|list| list.split(',')).any(|item| {
        let (name, weight) = item.split_once(';').unwrap_or((item, "q=1"));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case(coding) && weight.is_some_and(|weight| weight > 0.0)
    })
}

/// Returns the routes. Those of the example page are omitted if it is disabled.
pub(crate) fn routes(state: &ApiState) -> Router<ApiState> {
    let always = Router::new()
        .route("/", get(front))
        .route("/sdk/{*file}", get(file))
        .route("/clients/{*file}", get(file))
        .route("/shared/{*file}", get(file))
        .route("/admin", get(to_admin))
        .route("/admin/", get(admin))
        .route("/admin/{*file}", get(admin))
        .route("/try/", get(try_page))
        .route("/try/{*file}", get(file))
        .route("/docs/playground", get(|| async { Redirect::permanent("/docs/playground/") }))
        .route("/docs/playground/", get(playground))
        .route("/docs/playground/{*file}", get(file));
    if state.settings.example.is_none() {
        return always;
    }
    let example = Router::new()
        .route("/example", get(example::to_page))
        .route("/example/", get(page))
        .route("/example/index.html", get(page))
        .route("/example/config.json", get(example::config))
        .route("/example/send", post(example::send))
        .route("/example/{*file}", get(file))
        .layer(from_fn_with_state(state.clone(), example::door));
    always.merge(example)
}

/// Returns the page at the root, with links.
async fn front(State(state): State<ApiState>) -> Html<String> {
    let example = match state.settings.example {
        Some(_) => "<li><a href=\"/example/\">Try it</a> (on the server's own machine, unless it is open to everybody)",
        None => "",
    };
    Html(format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Bellwire</title><h1>Bellwire</h1>\
         <p>A web-push delivery server. <ul><li><a href=\"/admin/\">The admin page</a>{example}<li><a href=\"/docs/guides/\">Guides</a><li><a href=\"/docs/\">The API</a>\
         <li><a href=\"/sdk/bellwire.js\">The module for your pages</a><li><a href=\"/readyz\">Its health</a></ul>"
    ))
}

async fn file(uri: Uri, headers: HeaderMap) -> Result<Response, Problem> {
    embedded(uri.path(), &headers).ok_or_else(|| Problem::not_found("file"))
}

/// Response with the embedded file of a path.
pub(super) fn embedded(path: &str, request: &HeaderMap) -> Option<Response> {
    FILES.get(path).map(|file| file.answer(request))
}

/// Paths of all embedded files.
pub(super) fn paths() -> impl Iterator<Item = &'static str> {
    EMBEDDED.iter().map(|(path, _)| *path)
}

/// Text of an embedded file. Empty for a picture.
pub(super) fn source(path: &str) -> Option<&'static str> {
    FILES.get(path).map(|File { forms: [.., plain], .. }| std::str::from_utf8(plain.content).unwrap_or_default())
}

/// Redirects to the path with a slash at the end.
async fn to_admin() -> Redirect {
    Redirect::permanent("/admin/")
}

/// Returns a file of the admin page. Any other path returns the page itself, whose script reads the address.
async fn admin(uri: Uri, headers: HeaderMap) -> Result<Response, Problem> {
    let path = uri.path();
    let is_asset = path.starts_with("/admin/assets/");
    let file = FILES.get(path).or_else(|| FILES.get("/admin/index.html").filter(|_| !is_asset));
    Ok(file.ok_or_else(|| Problem::not_found("file"))?.answer(&headers))
}

/// Returns the page on which an operator subscribes their own browser during the setup of an app. It is separate from the admin
/// page, because [`ADMIN_POLICY`] allows no service workers. It needs no sign-in, because pages of any site can do the same.
async fn try_page(headers: HeaderMap) -> Result<Response, Problem> {
    Ok(FILES.get("/try/index.html").ok_or_else(|| Problem::not_found("file"))?.answer(&headers))
}

/// Returns the page on which developers try the elements of the SDK. It needs no app and no sign-in.
async fn playground(headers: HeaderMap) -> Result<Response, Problem> {
    embedded("/docs/playground/index.html", &headers).ok_or_else(|| Problem::not_found("file"))
}

/// Returns the example page. The first request creates its app.
async fn page(
    State(state): State<ApiState>, Extension(visitor): Extension<ExampleVisitor>, headers: HeaderMap,
) -> Result<Response, Problem> {
    example::app(&state, visitor, &headers).await?;
    let page = FILES.get("/example/index.html").ok_or_else(|| Problem::not_found("file"))?;
    Ok(page.answer(&headers))
}

#[cfg(test)]
#[path = "../../tests/unit/api/site.rs"]
mod tests;
