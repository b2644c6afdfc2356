//! The documentation is correct: every link works, and every command, variable, route, target and metric exists.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use axum::http::Method;
use serde_json::Value;

use crate::support::guide_pages::{Page, commands, is_variable, pages};
use crate::support::metrics::rendered_metrics;
use crate::support::repository::root;
use crate::support::{TempDir, TestApp};

/// Variables that are no settings: the file of settings, what `bellwire init` prints for a backend, and where tests find a cluster.
const NO_SETTINGS: [&str; 5] =
    ["BELLWIRE_CONFIG", "BELLWIRE_KEY", "BELLWIRE_TEST_CITUS_URL", "BELLWIRE_SERVER", "BELLWIRE_SSL_CERT_FILE"];
/// Verbs that read no settings.
const WITHOUT_SETTINGS: [&str; 3] = ["policy", "demo", "simulate-gateway"];
/// Prefix of the paths that the guides abbreviate.
const OF_APP: &str = "/v1/apps/{app}";

/// Fails with all faults at once.
#[track_caller]
fn none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn every_file_that_is_named_exists() {
    let here = |path: &str| root().join(path).exists();
    let (mut faults, mut seen) = (Vec::new(), 0);
    for page in pages() {
        let rooms = ["src/", "crates/", "tests/", "docs/", "static/", "migrations/", "benches/", "fuzz/", "scripts/"];
        let files =
            page.spans().filter(|span| rooms.iter().any(|room| span.starts_with(room)) && !span.contains(['…', ' ']));
        // SECURITY.md names in brackets the tests that hold a promise.
        let promises = page.prose.split("(`").skip(1).filter(|_| page.path == "SECURITY.md");
        let tests =
            promises.flat_map(|rest| rest.split(')').next().into_iter().flat_map(|group| group.split('`').step_by(2)));
        let tests = tests.filter(|name| !name.contains(['.', ' ', '…'])).map(|name| format!("tests/it/{name}"));
        for path in files.chain(tests) {
            seen += 1;
            if !here(&path) && !here(&format!("{path}.rs")) {
                faults.push(format!("{}: there is no {path}", page.path));
            }
        }
    }
    assert!(seen > 30, "files are not found: {seen}");
    none(&faults);
}

#[test]
fn every_link_leads_somewhere() {
    let pages: BTreeMap<String, Page> = pages().into_iter().map(|page| (page.path.clone(), page)).collect();
    let mut faults = Vec::new();
    let mut seen = 0;
    for page in pages.values() {
        for link in page.links().filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            seen += 1;
            let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
            let here = root().join(&page.path);
            let target = if file.is_empty() { here } else { here.parent().expect("a directory").join(file) };
            let Ok(target) = target.canonicalize() else {
                faults.push(format!("{}: there is no {link}", page.path));
                continue;
            };
            let Some(anchor) = anchor else { continue };
            let name =
                target.strip_prefix(root().canonicalize().expect("it exists")).map(|name| name.display().to_string());
            let there = name.ok().and_then(|name| pages.get(&name)).map(Page::anchors).unwrap_or_default();
            if !there.contains(anchor) {
                faults.push(format!("{}: no heading makes {link}; there are {there:?}", page.path));
            }
        }
    }
    assert!(seen > 20, "links are not found: {seen}");
    none(&faults);
}

/// Error of a command that the program's parser refuses. The command is not run: it only prints its help, or stops at an unknown setting,
/// which is checked after the arguments.
fn refusal(dir: &TempDir, words: &[String], whole: bool) -> Option<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwire"));
    command.env_clear().current_dir(dir.path()).args(&words[1..]);
    command.env("BELLWIRE_DATA_DIR", dir.path()).env("BELLWIRE_DATABASE_CONNECTIONS", "0");
    if !whole || words.get(1).is_some_and(|verb| WITHOUT_SETTINGS.contains(&verb.as_str())) {
        command.arg("--help");
    }
    let output = command.output().expect("it runs");
    let told = String::from_utf8_lossy(&output.stderr);
    let understood = output.status.success() || told.starts_with("bellwire: BELLWIRE_DATABASE_CONNECTIONS is \"0\"");
    (!understood).then(|| format!("`{}`: {told}", words.join(" ")))
}

#[test]
fn every_command_is_one_that_the_program_takes() {
    let dir = TempDir::new();
    let mut faults = Vec::new();
    let mut seen = 0;
    for page in pages() {
        let told = page.shell().flat_map(commands).map(|words| (words, true));
        let mentioned = page.spans().flat_map(|span| commands(&span)).map(|words| (words, false));
        for (words, whole) in told.chain(mentioned).filter(|(words, _)| words[0] == "bellwire" && words.len() > 1) {
            seen += 1;
            faults.extend(refusal(&dir, &words, whole).map(|fault| format!("{}: {fault}", page.path)));
        }
    }
    assert!(seen > 40, "commands are not found: {seen}");
    none(&faults);
    // Lest everything be taken.
    for wrong in ["bellwire send --topic news", "bellwire app list --colour", "bellwire policy preview --tier huge"] {
        let words = commands(wrong).remove(0);
        assert!(refusal(&dir, &words, true).is_some(), "{wrong} is taken");
    }
}

#[test]
fn every_command_of_checks_is_accepted() {
    let dir = TempDir::new();
    let directories = ["src/checks", "src/checks/rules"].map(|directory| std::fs::read_dir(root().join(directory)));
    let files = directories
        .into_iter()
        .flat_map(|entries| entries.expect("a directory"))
        .map(|entry| entry.expect("an entry").path());
    let files = files.chain(["src/checks.rs", "src/cli/admin.rs"].map(|file| root().join(file)));
    let (mut faults, mut seen) = (Vec::new(), 0);
    for file in files.filter(|file| file.is_file()) {
        let source = std::fs::read_to_string(&file).expect("UTF-8").replace("const BY: &str = ", ".by(");
        for rest in source.split(".by(").skip(1) {
            let line = rest.trim_start_matches("format!(").strip_prefix('"').and_then(|rest| rest.split('"').next());
            let Some(line) = line.filter(|line| line.starts_with("bellwire ")) else { continue };
            seen += 1;
            let words = commands(&line.replace("{app}", "shop").replace("{first}", "shop")).remove(0);
            faults.extend(refusal(&dir, &words, !line.contains("--version")));
        }
    }
    assert!(seen >= 10, "commands of checks are not found: {seen}");
    none(&faults);
}

#[test]
fn every_policy_is_one_that_the_program_takes() {
    let (mut faults, mut seen) = (Vec::new(), 0);
    for page in pages() {
        for (_, block) in page.blocks.iter().filter(|(language, _)| language == "jsonc") {
            let lines = block.lines().filter(|line| !line.starts_with("//")).collect::<String>();
            for policy in serde_json::Deserializer::from_str(&lines).into_iter::<Value>() {
                seen += 1;
                let policy = policy.unwrap_or_else(|error| panic!("{}: {error}", page.path)).to_string();
                let mut command = Command::new(env!("CARGO_BIN_EXE_bellwire"));
                let output = command.args(["policy", "preview", "--policy", &policy]).output().expect("it runs");
                let told = String::from_utf8_lossy(&output.stderr).into_owned();
                faults.extend(Some(told).filter(|_| !output.status.success()));
            }
        }
    }
    assert!(seen >= 3, "policies are not found: {seen}");
    none(&faults);
}

/// Every setting's variable with its default.
fn settings() -> BTreeMap<String, String> {
    let dir = TempDir::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwire"));
    command.env_clear().env("HOME", "/home/somebody").current_dir(dir.path()).args(["serve", "--print-config"]);
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let setting = |line: &str| {
        let (key, rest) = line.trim_start_matches("# ").split_once(" = \"")?;
        let prefix = if key.starts_with("otel_") { "" } else { "BELLWIRE_" };
        Some((format!("{prefix}{}", key.to_uppercase()), rest.split('"').next()?.to_owned()))
    };
    text.lines().filter_map(setting).collect()
}

#[test]
fn documented_defaults_match_the_settings() {
    let settings = settings();
    let (mut faults, mut seen) = (Vec::new(), 0);
    for page in pages() {
        let blocks = page.blocks.iter().map(|(_, block)| block.as_str());
        let texts = blocks.chain([page.prose.as_str()]);
        let words = texts.flat_map(|text| text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')));
        let is_ours = |name: &str| ["BELLWIRE_", "OTEL_"].iter().any(|prefix| name.starts_with(prefix));
        let full = words.filter(|word| is_ours(word) && !word.ends_with('_'));
        // The table of limits leaves the prefix out.
        let other = ["BELLWIRE_", "OTEL_", "DATABASE_URL"];
        let short = page.spans().filter(|span| is_variable(span) && span.contains('_') && !other.contains(&&**span));
        let short = short.map(|name| if is_ours(&name) { name } else { format!("BELLWIRE_{name}") });
        for name in full.map(str::to_owned).chain(short) {
            seen += 1;
            // Secrets can come from files.
            let setting = name.strip_suffix("_FILE").filter(|base| settings.contains_key(*base)).unwrap_or(&name);
            if !settings.contains_key(setting) && !NO_SETTINGS.contains(&name.as_str()) {
                faults.push(format!("{}: {name} is no setting", page.path));
            }
        }
        let rows = page.prose.lines().filter(|line| ["|`BELLWIRE_", "|`OTEL_"].iter().any(|row| line.starts_with(row)));
        for row in rows {
            let mut cells = row.split('|').skip(1).map(|cell| cell.split('`').skip(1).step_by(2).collect::<Vec<_>>());
            let (names, defaults) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
            let told = names.iter().zip(&defaults).filter(|_| names.len() == defaults.len());
            let wrong = told.filter(|(name, default)| settings.get(**name).is_some_and(|real| real != *default));
            faults.extend(wrong.map(|(name, told)| format!("{}: {name} is not {told} by default", page.path)));
        }
    }
    assert!(settings.len() > 40 && seen > 40, "variables are not found: {seen}");
    none(&faults);
}

#[test]
fn every_target_and_script_exists() {
    let makefile = std::fs::read_to_string(root().join("Makefile")).expect("a file");
    let targets: BTreeSet<&str> = makefile.lines().filter_map(|line| Some(line.split_once(": ")?.0)).collect();
    let (mut faults, mut seen) = (Vec::new(), 0);
    for page in pages() {
        let told = page.shell().map(str::to_owned).chain(page.spans()).flat_map(|text| commands(&text));
        for words in told.filter(|words| words.len() > 1 || words[0].starts_with("scripts/")) {
            let mut arguments = words[1..].iter().filter(|word| !word.contains('='));
            let missing = match words[0].as_str() {
                "make" => arguments.find(|target| !targets.contains(target.as_str())),
                "scripts/bench" => arguments.find(|name| !root().join(format!("benches/{name}.rs")).is_file()),
                script if script.starts_with("scripts/") => {
                    Some(&words[0]).filter(|script| !root().join(script).exists())
                }
                _ => continue,
            };
            seen += 1;
            faults.extend(missing.map(|missing| format!("{}: `{}`: no {missing}", page.path, words.join(" "))));
        }
    }
    assert!(seen > 10, "targets are not found: {seen}");
    none(&faults);
}

/// Whether a path is one of the description's. An example's segment may stand for a parameter, a `{parameter}` for nothing
/// else.
fn fits(path: &str, described: &str, example: bool) -> bool {
    let is_parameter = |segment: &str| segment.starts_with('{');
    let same = |(told, described): (&str, &str)| match is_parameter(described) {
        true => is_parameter(told) || example,
        false => told == described,
    };
    path.split('/').count() == described.split('/').count() && path.split('/').zip(described.split('/')).all(same)
}

/// The method and URL of a `curl`, with what the block has assigned.
fn requested(words: &[String], block: &str) -> Option<(Method, String)> {
    let after = |flag: &str| words.iter().position(|word| word == flag).and_then(|at| words.get(at + 1));
    let method = match after("-X") {
        Some(method) => method.parse().ok()?,
        None if after("-d").is_some() => Method::POST,
        None => Method::GET,
    };
    let assigned = block.lines().filter_map(|line| line.split_once('=')).filter(|(name, _)| is_variable(name));
    let assigned: Vec<_> = assigned.collect();
    let mut urls = words.iter().map(|word| {
        let with = |url: String, (name, value): &(&str, &str)| url.replace(&format!("${name}"), value);
        assigned.iter().fold(word.clone(), with)
    });
    urls.find(|word| word.starts_with("http://")).map(|url| (method, url))
}

#[tokio::test]
async fn every_route_is_in_the_description() {
    let app = TestApp::start().await;
    let description = app.call(Method::GET, "/openapi.json", Value::Null).await.ok(200);
    let routes: BTreeMap<&str, BTreeSet<String>> = description["paths"]
        .as_object()
        .expect("paths")
        .iter()
        .map(|(path, item)| {
            (path.as_str(), item.as_object().expect("an item").keys().map(|k| k.to_uppercase()).collect())
        })
        .collect();
    let known = |method: Option<&str>, path: &str, example: bool| {
        let path = path.split('?').next().unwrap_or(path);
        let path = path.strip_prefix('…').map_or(path.to_owned(), |rest| format!("{OF_APP}{rest}"));
        let mut fitting = routes.iter().filter(|(described, _)| fits(&path, described, example));
        fitting.any(|(_, methods)| method.is_none_or(|method| methods.contains(method)))
    };
    let (mut faults, mut seen) = (Vec::new(), 0);
    for page in pages() {
        let mut check = |method: Option<&str>, path: &str, example: bool| {
            seen += 1;
            if !known(method, path, example) {
                faults.push(format!("{}: {} {path} is not in the description", page.path, method.unwrap_or("any")));
            }
        };
        for span in page.spans() {
            let (method, path) = span.split_once(' ').map_or((None, span.as_str()), |(m, path)| (Some(m), path));
            let is_method = method.is_none_or(|method| ["GET", "PUT", "POST", "PATCH", "DELETE"].contains(&method));
            if is_method && (path.starts_with("/v1/") || path.starts_with("…/") && path.len() > "…/".len()) {
                check(method, path, false);
            }
        }
        for block in page.shell() {
            for words in commands(block).iter().filter(|words| words[0] == "curl") {
                let (method, url) = requested(words, block).unwrap_or_else(|| panic!("{}: {words:?}", page.path));
                let path = url.splitn(4, '/').nth(3).map(|path| format!("/{path}")).expect("a path");
                check(Some(method.as_str()), &path, true);
            }
        }
    }
    assert!(seen > 30, "routes are not found: {seen}");
    none(&faults);
    app.finish().await;
}

#[test]
fn every_metric_is_written() {
    let written = rendered_metrics();
    let names: BTreeSet<&str> = written
        .lines()
        .flat_map(|line| line.strip_prefix("# TYPE ").unwrap_or(line).split(['{', ' ']).take(1))
        .collect();
    let (mut faults, mut seen) = (Vec::new(), 0);
    for page in pages() {
        let is_metric = |span: &String| span.starts_with("bellwire_") || span.starts_with("http_server_");
        for name in page.spans().filter(|span| is_metric(span) && !span.contains("::")) {
            seen += 1;
            if !names.contains(name.as_str()) {
                faults.push(format!("{}: {name} is not among {names:?}", page.path));
            }
        }
    }
    assert!(seen >= 3, "metrics are not found: {seen}");
    none(&faults);
}
