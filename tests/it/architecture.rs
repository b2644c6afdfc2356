//! Modules and crates depend on each other as they are documented: downwards, and never in a circle.

mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

type Edges = BTreeSet<(String, String)>;

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => files(&path, found),
            false if path.extension().is_some_and(|extension| extension == "rs") => found.push(path),
            false => {}
        }
    }
}

/// The code of a file, without comments and without its unit tests, which may use anything.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a readable file");
    let code = text.split_once("#[cfg(test)]\nmod tests {").map_or(text.as_str(), |(code, _)| code);
    code.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code)).collect::<Vec<_>>().join("\n")
}

/// Names that follow `crate::`, or as many `super::` as lead from a module at that depth to the crate's root.
fn named(code: &str, depth: usize) -> BTreeSet<String> {
    let is_part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut names = BTreeSet::new();
    for root in ["crate::".to_owned(), "super::".repeat(depth)] {
        for (at, _) in code.match_indices(&root) {
            let begins = !code[..at].ends_with(|c: char| is_part_of_name(c) || c == ':' || c == '$');
            let rest = &code[at + root.len()..];
            let listed = rest.strip_prefix('{').and_then(|rest| rest.split_once(';')).map(|(list, _)| list);
            let roots = listed.map_or_else(|| vec![rest], |list| list.split(',').map(str::trim).collect());
            for path in roots.into_iter().filter(|_| begins) {
                names.insert(path.split(|c| !is_part_of_name(c)).next().unwrap_or_default().to_owned());
            }
        }
    }
    names
}

fn edges() -> Edges {
    let root = source();
    let mut found = Vec::new();
    files(&root, &mut found);
    let mut edges = Edges::new();
    for path in found {
        let below = path.strip_prefix(&root).expect("below it").with_extension("");
        let mut parts: Vec<&str> = below.iter().map(|part| part.to_str().expect("ASCII")).collect();
        let is_test = parts.iter().any(|part| *part == "tests" || part.ends_with("_tests") || *part == "testkit");
        if parts.last() == Some(&"mod") {
            parts.pop();
        }
        if !is_test && !matches!(parts[..], ["lib" | "main"]) {
            let names = named(&code(&path), parts.len()).into_iter().filter(|name| *name != parts[0]);
            edges.extend(names.map(|name| (parts[0].to_owned(), name)));
        }
    }
    edges
}

/// The layer of each module, from the top, as the crate comment lists them.
fn layers() -> BTreeMap<String, usize> {
    let text = fs::read_to_string(source().join("lib.rs")).expect("the crate comment").replace("\n//!", "");
    let (_, order) = text.split_once("Dependencies point one way:").expect("the order");
    let (order, _) = order.split_once(" Everything else").expect("its end");
    let layers = order.split('→').enumerate();
    layers
        .flat_map(|(at, layer)| layer.split("[`").skip(1).map(move |name| (at, name)))
        .map(|(at, name)| (name.split_once("`]").expect("a link").0.to_owned(), at))
        .collect()
}

#[test]
fn modules_depend_downwards_only() {
    let (edges, layers) = (edges(), layers());
    assert!(edges.len() > 15, "{edges:?}");
    let layer = |name: &str| *layers.get(name).unwrap_or_else(|| panic!("the crate comment does not list `{name}`"));
    let upwards: Vec<_> = edges.iter().filter(|(from, to)| layer(from) > layer(to)).collect();
    assert!(upwards.is_empty(), "dependencies against the order: {upwards:?}");
}

#[test]
fn modules_form_no_circle() {
    let mut left = edges();
    loop {
        let using: BTreeSet<String> = left.iter().map(|(from, _)| from.clone()).collect();
        let before = left.len();
        left.retain(|(_, to)| using.contains(to));
        if left.len() == before {
            break;
        }
    }
    assert!(left.is_empty(), "modules that depend on each other: {left:?}");
}

/// Dependencies between the workspace's packages, without those of tests.
fn crates() -> Edges {
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let metadata: Value = serde_json::from_slice(&output.expect("cargo runs").stdout).expect("JSON");
    let name = |value: &Value| value["name"].as_str().expect("a name").to_owned();
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let mut edges = Edges::new();
    for package in list(&metadata["packages"]) {
        let own = list(&package["dependencies"]).into_iter().filter(|it| !it["path"].is_null() && it["kind"].is_null());
        edges.extend(own.map(|dependency| (name(&package), name(&dependency))));
    }
    edges
}

#[test]
fn crates_depend_as_documented() {
    let text = fs::read_to_string(source().join("../docs/architecture.md")).expect("the page");
    let block = text.split_once("```crates\n").and_then(|(_, rest)| rest.split_once("```")).expect("the graph").0;
    let lines = block.lines().map(|line| line.split_once(" →").expect("a crate and its dependencies"));
    let documented: Edges =
        lines.flat_map(|(from, to)| to.split_whitespace().map(move |to| (from.to_owned(), to.to_owned()))).collect();
    assert_eq!(crates(), documented);
}
