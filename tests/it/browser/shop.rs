//! Site on another origin than the server: its pages load the SDK from the server, and each test provides the worker.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::site::{Scheme, Site, serve};

type Files = Arc<Mutex<HashMap<String, String>>>;

/// The site, and the server that it uses. Dropping it ends both.
pub struct Shop {
    pub server: Site,
    pub origin: String,
    files: Files,
    _serving: JoinSet<()>,
}

impl Shop {
    pub async fn open(scheme: Scheme) -> Self {
        let server = Site::of_shop(scheme).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = scheme.origin("shop", listener.local_addr().unwrap());
        let app = server.app.operate(Method::PATCH, "/v1/apps/shop", json!({"origins": [origin]})).await;
        assert_eq!(app.ok(200)["origins"], json!([origin]));
        let files = Files::default();
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, scheme, Router::new().fallback(file).with_state(files.clone())));
        Self { server, origin, files, _serving: serving }
    }

    /// Puts a file there, or another one in its place; `{server}` in it becomes the server's origin.
    pub fn put(&self, path: &str, text: &str) {
        self.files.lock().insert(path.to_owned(), text.replace("{server}", &self.server.origin));
    }

    /// Puts a page at `/` that starts the SDK with these options beside the app, and has it as `bellwire`.
    pub fn put_page(&self, options: &str) {
        self.put(
            "/",
            &format!(
                r#"<!doctype html><meta charset="utf-8"><title>Shop</title><link rel="icon" href="data:,"><p id="log"></p>
                <script type="module">
                  import {{ init }} from "{{server}}/sdk/bellwire.js";
                  window.bellwire = init({{ app: "shop", checkEvery: 0, ...{options} }});
                  bellwire.on("message", ({{ title, payload }}) => document.getElementById("log").append(title ?? payload, " "));
                </script>"#
            ),
        );
    }

    pub fn page(&self) -> String {
        format!("{}/", self.origin)
    }
}

async fn file(State(files): State<Files>, uri: Uri) -> Response {
    let path = uri.path();
    let Some(text) = files.lock().get(path).cloned() else { return StatusCode::NOT_FOUND.into_response() };
    let kind = match path.rsplit('.').next() {
        Some("js") => "text/javascript",
        Some("css") => "text/css",
        _ => "text/html",
    };
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], text).into_response()
}
