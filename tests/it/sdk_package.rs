//! Packages that the guides name are installed from a running server, and load.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::guide_pages::{Page, commands, pages};
use crate::support::program::run_offline;
use crate::support::repository::root;
use crate::support::{Server, TempDir, TestApp};

/// Addresses of the server in the guides.
const SERVERS: [&str; 2] = ["https://push.example.com", "http://localhost:8787"];
/// Loads every entry point, and prints what each exports. A worker's script finds the worker around it.
const LOAD: &str = r#"
    import { readFileSync } from "node:fs";
    const name = process.argv[1];
    const manifest = JSON.parse(readFileSync(`node_modules/${name}/package.json`, "utf8"));
    const registration = { scope: "https://shop.example/", showNotification() {} };
    const location = new URL("https://shop.example/service-worker.js");
    globalThis.self = { location, registration, addEventListener() {} };
    const exported = {};
    for (const [entry, target] of Object.entries(manifest.exports)) {
      if (typeof target === "string") continue;
      readFileSync(`node_modules/${name}/${target.types}`);
      exported[entry] = Object.keys(await import(name + entry.slice(1)));
    }
    const { version, license, repository, engines } = manifest;
    const files = ["README.md", "LICENSE", "LICENSE-MIT", "LICENSE-APACHE"];
    const texts = files.filter((file) => readFileSync(`node_modules/${name}/${file}`, "utf8").length > 100);
    console.log(JSON.stringify({ version, license, repository, engines, texts, exported, worker: Object.keys(self.bellwire ?? {}) }));
"#;

/// Paths on the server of the packages that the guides have people install.
fn installed_by_guides(pages: &[Page]) -> BTreeSet<String> {
    let all = pages.iter().flat_map(Page::shell).flat_map(commands);
    let installs = all.filter(|words| matches!(words.as_slice(), [npm, verb, ..] if npm == "npm" && ["i", "install"].contains(&verb.as_str())));
    let packages = installs.flat_map(|words| words.into_iter().skip(2));
    let here =
        packages.filter_map(|word| SERVERS.iter().find_map(|server| word.strip_prefix(server).map(str::to_owned)));
    here.collect()
}

/// The names below `@bellwire` that the guides use, such as `web` and `web/react`.
fn named_by_guides(pages: &[Page]) -> BTreeSet<String> {
    let texts = pages.iter().map(|page| std::fs::read_to_string(root().join(&page.path)).expect("UTF-8"));
    let names = |text: String| {
        let parts = text.split("@bellwire/").skip(1).map(str::to_owned).collect::<Vec<_>>();
        parts
            .into_iter()
            .map(|rest| rest.chars().take_while(|c| c.is_ascii_alphanumeric() || "/-._".contains(*c)).collect())
    };
    texts.flat_map(names).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_of_the_guides_install_and_load() {
    let app = TestApp::start().await;
    let server = Server::with(&app, &["--roles", "api"]).await;
    let pages = pages();
    let (mut loaded, dir) = (BTreeSet::new(), TempDir::new());
    std::fs::write(dir.path().join("package.json"), "{}").expect("a file of ours");
    for path in installed_by_guides(&pages) {
        run_offline("npm", &["i", &format!("http://{}{path}", server.address)], &dir).await;
    }
    run_offline("npm", &["ci"], &dir).await; // the lock file fits what the server serves
    let manifest = std::fs::read_to_string(dir.path().join("package.json")).expect("npm wrote it");
    let manifest: Value = serde_json::from_str(&manifest).expect("JSON");
    for framework in ["react", "vue"] {
        let installed = root().join("static/sdk/node_modules").join(framework);
        std::os::unix::fs::symlink(installed, dir.path().join("node_modules").join(framework)).expect("a link");
    }
    for name in manifest["dependencies"].as_object().expect("packages").keys() {
        let printed = run_offline("node", &["--input-type=module", "-e", LOAD, name], &dir).await;
        let printed: Value = serde_json::from_str(&printed).expect("JSON");
        assert_eq!(printed["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(printed["texts"], json!(["README.md", "LICENSE", "LICENSE-MIT", "LICENSE-APACHE"]));
        for member in ["license", "repository", "engines"] {
            assert!(!printed[member].is_null(), "{member}: {printed}");
        }
        let exported = printed["exported"].as_object().expect("entry points");
        let name = name.strip_prefix("@bellwire/").expect("our name");
        if name == "server" {
            assert!(exported["."].as_array().is_some_and(|names| names.contains(&json!("createClient"))), "{printed}");
        } else {
            assert_eq!(exported["."], json!(["init"]));
            let components = json!(["BellwireBell", "BellwirePreferences", "BellwirePrompt", "usePush"]);
            assert_eq!((&exported["./react"], &exported["./vue"]), (&components, &components));
            assert_eq!(exported["./ui"], json!(["define", "ui"]));
            assert!(
                printed["worker"].as_array().is_some_and(|members| members.contains(&json!("onPush"))),
                "{printed}"
            );
        }
        loaded.extend(exported.keys().map(|entry| entry.replacen('.', name, 1)));
    }
    let is_there =
        |name: &String| loaded.contains(name) || dir.path().join("node_modules/@bellwire").join(name).is_file();
    let named = named_by_guides(&pages);
    let missing: Vec<_> = named.iter().filter(|name| !is_there(name)).collect();
    assert!(named.len() >= 4 && missing.is_empty(), "the guides name {missing:?}; there are {loaded:?}");
    app.finish().await;
}
