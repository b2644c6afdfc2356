//! The pages under `/docs`.

use std::collections::BTreeMap;
use std::path::Path;

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::json;
use tower::ServiceExt as _;

use crate::support::api::TestApi;
use crate::support::openapi::{openapi_description, operations};

/// Status and content of a page.
async fn page(api: &TestApi, path: &str) -> (u16, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = api.router.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    if response.headers()["content-type"].to_str().unwrap().starts_with("text/html") && path.starts_with("/docs") {
        let policy = response.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; style-src 'self';"), "{path}: {policy}");
    }
    let octets = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8_lossy(&octets).into_owned())
}

/// Values of an attribute.
fn values<'a>(html: &'a str, attribute: &str) -> impl Iterator<Item = &'a str> {
    let begin = format!(" {attribute}=\"");
    html.match_indices(&begin)
        .map(|(at, _)| at + begin.len())
        .map(|at| html[at..].split('"').next().unwrap())
        .collect::<Vec<_>>()
        .into_iter()
}

/// All pages under `/docs` that links lead to, by path. Each link and picture is loaded, and each anchor is on its page.
async fn walk(api: &TestApi) -> BTreeMap<String, String> {
    let (mut open, mut pages, mut anchors) = (vec!["/docs/".to_owned()], BTreeMap::new(), Vec::new());
    while let Some(path) = open.pop() {
        if pages.contains_key(&path) {
            continue;
        }
        let (status, html) = page(api, &path).await;
        assert_eq!(status, 200, "{path}");
        if path.starts_with("/docs/") && ![".css", ".js", ".png"].iter().any(|extension| path.ends_with(extension)) {
            let has_scripts = path == "/docs/playground/";
            assert!((has_scripts || !html.contains("<script")) && !html.contains(" style="), "{path}");
            let links = values(&html, "href").chain(values(&html, "src"));
            for link in links.filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
                let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
                let target = if target.is_empty() { &path } else { target };
                assert!(target.starts_with('/'), "{path}: {link} is relative");
                open.push(target.to_owned());
                anchors.extend((!anchor.is_empty()).then(|| (path.clone(), target.to_owned(), anchor.to_owned())));
            }
        }
        pages.insert(path, html);
    }
    for (path, target, anchor) in anchors {
        assert!(values(&pages[&target], "id").any(|id| id == anchor), "{path}: {target} has no {anchor}");
    }
    pages
}

#[tokio::test]
async fn each_operation_has_a_page_without_dead_links() {
    let api = TestApi::start().await;
    let seen = walk(&api).await;
    let description = openapi_description(&api).await;
    for (path, method, operation) in operations(&description) {
        let page = format!("/docs/operations/{}", operation["operationId"].as_str().unwrap());
        assert!(seen.contains_key(&page), "{method} {path}: nothing leads to {page}");
    }
    for missing in ["/docs/operations/x", "/docs/schemas/x", "/docs/problems/x", "/docs/problems/%ff"] {
        assert_eq!(page(&api, missing).await.0, 404, "{missing}");
    }
}

#[tokio::test]
async fn each_guide_has_a_page_without_dead_links() {
    let api = TestApi::start().await;
    let seen = walk(&api).await;
    let (_, outline) = page(&api, "/llms.txt").await;
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let files = [docs.clone(), docs.join("operate")].map(|directory| std::fs::read_dir(directory).unwrap());
    let files = files.into_iter().flatten().map(|entry| entry.unwrap().path());
    for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "md")) {
        let source = std::fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(&docs).unwrap().with_extension("");
        let path = format!("/docs/guides/{}", name.display());
        let html = seen.get(path.trim_end_matches("README")).unwrap_or_else(|| panic!("nothing leads to {path}"));
        let title = source.lines().next().unwrap().trim_start_matches("# ");
        assert!(html.contains(&format!("<h1>{title}</h1>")), "{path}");
        assert!(outline.contains(&format!("[{title}]({path}.md): ")) || path.ends_with("README"), "{path}");
        let (status, markdown) = page(&api, &format!("{path}.md")).await;
        assert_eq!((status, markdown == source), (200, true), "{path}.md");
    }
    assert!(seen.keys().any(|path| path.ends_with(".png")), "pictures are shown");
    assert!(seen["/docs/guides/send"].contains("<a href=\"/docs/operations/"), "routes lead to their operations");
    assert!(!seen["/docs/guides/operate/alerts"].contains("alerts.yml\""), "the source is not served");
    for missing in ["x", "x.md", "README", "operate/", "operate/x", "../guides/x", "pictures/x.png", "%ff", "send.html"]
    {
        let (status, problem) = page(&api, &format!("/docs/guides/{missing}")).await;
        assert!(status == 404 && problem.contains("\"not_found\""), "{missing}: {status} {problem}");
    }
}

#[tokio::test]
async fn admin_pages_lead_to_their_guides() {
    let api = TestApi::start().await;
    let pages = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/static/admin/src/pages.ts")).unwrap();
    let guides: Vec<_> = pages.split("guide: \"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(guides.len(), pages.matches(" letter: \"").count(), "each page has a guide");
    for guide in guides {
        assert_eq!(page(&api, &format!("/docs/guides/{guide}")).await.0, 200, "{guide}");
    }
}

/// Links to the sections that a search finds.
async fn search(api: &TestApi, query: &str) -> Vec<String> {
    let (status, html) = page(api, &format!("/docs/guides/?q={query}")).await;
    assert_eq!(status, 200, "{query}");
    html.split("<h2><a href=\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn search_ranks_headings_before_text() {
    let api = TestApi::start().await;
    for (query, first) in [
        ("reliability+metrics", "/docs/guides/operate/metrics#reliability-metrics"),
        ("Dead+letters", "/docs/guides/operate/dead-letters"),
        ("BELLWIRE_TRUSTED_PROXIES", "/docs/guides/operate/https#a-proxy-in-front"),
        ("how+do+I+restore+a+backup", "/docs/guides/operate/backup"),
    ] {
        let found = search(&api, query).await;
        assert!(found[0].starts_with(first), "{query}: {found:?}");
        assert!(found.len() <= 30, "{query}: {}", found.len());
    }
}

#[tokio::test]
async fn search_escapes_and_bounds_its_input() {
    let api = TestApi::start().await;
    let (status, html) = page(&api, "/docs/guides/?q=%22%3E%3Cxqzy%3E").await;
    assert!(status == 200 && html.contains("&quot;&gt;&lt;xqzy&gt;") && !html.contains("<xqzy"), "{html}");
    assert!(html.contains("No guide contains"), "{html}");
    for empty in ["", "+", "%C3%A9%C3%A9", "%3F%3F"] {
        assert!(search(&api, empty).await.is_empty(), "{empty}");
    }
    let (status, problem) = page(&api, &format!("/docs/guides/?q={}", "x".repeat(101))).await;
    assert!(status == 400 && problem.contains("\"parameter\":\"q\""), "{status} {problem}");
}

#[tokio::test]
async fn problem_type_links_to_its_page() {
    let api = TestApi::start().await;
    for (path, body) in [("/topics", json!({"name": "!"})), ("/nothing", json!({})), ("/messages", json!({}))] {
        let problem = api.call(Method::POST, &format!("/v1/apps/shop{path}"), Some(&api.key), Some(body)).await.json;
        let (status, html) = page(&api, problem["type"].as_str().unwrap()).await;
        assert_eq!(status, 200, "{problem}");
        assert!(html.contains(problem["code"].as_str().unwrap()) && html.contains("What to do"), "{html}");
    }
}
