//! The recipes for frameworks: each is built with the package that the server serves, and a person subscribes there and is shown a
//! notification. `RECIPES` names the recipes to build; by default one, since builds take long.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use axum::Router;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::task::JoinSet;

use super::chromium::Chromium;
use super::example_program::{Backend, copy, run};
use super::push_clients::{pushed, start_firefox};
use super::site::{Scheme, Site, serve};
use super::{DISPLAYED, until, when};
use crate::support::TempDir;
use crate::support::repository::root;

/// Ways to serve the built pages.
#[derive(Clone, Copy)]
enum Serving {
    /// As files of a directory.
    Files(&'static str),
    /// By a program with these arguments, which prints its address behind these words.
    Program(&'static [&'static str], &'static str),
}

const RECIPES: [(&str, Serving); 6] = [
    ("plain", Serving::Files("")),
    ("vite", Serving::Files("dist")),
    ("vite-pwa", Serving::Files("dist")),
    ("next", Serving::Program(&["node_modules/next/dist/bin/next", "start", "--port", "0"], "Local:")),
    ("nuxt", Serving::Program(&[".output/server/index.mjs"], "Listening on ")),
    ("angular", Serving::Files("dist")),
];
/// The recipe that every run of the tests builds.
const ONE: &str = "vite";

/// Pages that are served. Dropping it ends that.
struct Pages {
    origin: String,
    _serving: (JoinSet<()>, Option<Backend>),
}

impl Pages {
    async fn open(serving: Serving, project: &Path) -> Self {
        match serving {
            Serving::Files(directory) => {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
                let origin = Scheme::Http.origin("shop", listener.local_addr().expect("an address"));
                let mut tasks = JoinSet::new();
                let router = Router::new().fallback(file).with_state(project.join(directory));
                tasks.spawn(serve(listener, Scheme::Http, router));
                Self { origin, _serving: (tasks, None) }
            }
            Serving::Program(arguments, listening) => {
                let mut command = Command::new("node");
                command.args(arguments).current_dir(project).env("PORT", "0").env("NEXT_TELEMETRY_DISABLED", "1");
                let backend = Backend::start(command, listening).await;
                let (_, port) = backend.origin.rsplit_once(':').expect("an address with a port");
                let origin = format!("http://localhost:{port}");
                Self { origin, _serving: (JoinSet::new(), Some(backend)) }
            }
        }
    }
}

async fn file(State(directory): State<PathBuf>, uri: Uri) -> Response {
    let path = if uri.path() == "/" { "/index.html" } else { uri.path() };
    let Ok(content) = tokio::fs::read(directory.join(&path[1..])).await else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let kind = match path.rsplit('.').next() {
        Some("js") => "text/javascript",
        Some("json" | "webmanifest") => "application/json",
        _ => "text/html",
    };
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], content).into_response()
}

/// A promise that the page shows one of these states.
fn shows(states: &[&str]) -> String {
    when(&format!("{}.includes(document.getElementById('status')?.textContent)", json!(states)))
}

async fn subscribe_in_firefox(site: &Site, pages: &Pages) {
    let profile = TempDir::new();
    let mut firefox = start_firefox(site, &profile.path().join("profile"), &json!({})).await;
    firefox.open(&pages.origin).await;
    firefox.evaluate(&shows(&["unsubscribed"])).await;
    firefox.click("subscribe").await;
    firefox.evaluate(&shows(&["subscribed"])).await;
    let message =
        site.send_message(json!({"to": {"topic": "news"}, "content": {"title": "Hello", "body": "In Firefox"}}));
    let message = message.await;
    site.until_counts(&message, json!({"targeted": 1, "accepted": 1, "displayed": 1})).await;
    let displayed = firefox.evaluate(DISPLAYED).await;
    assert_eq!((&displayed[0]["title"], &displayed[1]), (&json!("Hello"), &json!(null)), "{displayed}");
    assert_eq!(firefox.complaints(), Vec::<String>::new());
    firefox.quit().await;
}

/// The same in Chromium, whose push service cannot be reached: the worker is handed the push.
async fn show_in_chromium(site: &Site, pages: &Pages) {
    let home = TempDir::new();
    let mut chromium = Chromium::start(home.path()).await;
    chromium.permit(&pages.origin).await;
    chromium.open(&format!("{}/", pages.origin)).await;
    chromium.evaluate(&shows(&["unsubscribed"])).await;
    chromium.click("subscribe").await;
    chromium.evaluate(&shows(&["pending"])).await;
    chromium.evaluate("navigator.serviceWorker.ready.then(() => true)").await;
    let (_, payload) = pushed(site, json!({"content": {"title": "Hello", "body": "In Chromium"}})).await;
    chromium.deliver(&pages.origin, &payload).await;
    let displayed = until(async || chromium.evaluate(DISPLAYED).await, |all| *all != json!([])).await;
    assert_eq!((&displayed[0]["body"], &displayed[1]), (&json!("In Chromium"), &json!(null)), "{displayed}");
}

async fn build_and_drive(name: &str, serving: Serving) {
    eprintln!("recipe {name}");
    let site = Site::of_shop(Scheme::Http).await;
    let project = copy(&format!("recipes/{name}"), &site).await;
    if project.path().join("package.json").exists() {
        run("/bin/sh", &["-c", "NEXT_TELEMETRY_DISABLED=1 NUXT_TELEMETRY_DISABLED=1 npm run build"], &project).await;
    }
    let pages = Pages::open(serving, project.path()).await;
    site.app.operate(Method::PATCH, "/v1/apps/shop", json!({"origins": [pages.origin]})).await.ok(200);
    subscribe_in_firefox(&site, &pages).await;
    show_in_chromium(&site, &pages).await;
    site.app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recipes_subscribe_and_show_a_notification() {
    let selected = std::env::var("RECIPES").unwrap_or_else(|_| ONE.to_owned());
    let selected: BTreeSet<&str> = selected.split_whitespace().collect();
    let unknown: Vec<_> = selected.iter().filter(|name| RECIPES.iter().all(|(known, _)| known != *name)).collect();
    assert!(
        unknown.is_empty() && !selected.is_empty(),
        "RECIPES names {unknown:?}; examples/recipes has no such recipe"
    );
    for (name, serving) in RECIPES.into_iter().filter(|(name, _)| selected.contains(name)) {
        build_and_drive(name, serving).await;
    }
}

#[test]
fn every_recipe_is_driven() {
    let entries = std::fs::read_dir(root().join("examples/recipes")).expect("a directory");
    let directories = entries.map(|entry| entry.expect("an entry")).filter(|entry| entry.path().is_dir());
    let found: BTreeSet<String> = directories.map(|entry| entry.file_name().into_string().expect("UTF-8")).collect();
    assert_eq!(found, RECIPES.iter().map(|(name, _)| (*name).to_owned()).collect());
}
