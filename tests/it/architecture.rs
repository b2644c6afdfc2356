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
    let (edges, layers) = (files::modules_of(Path::new(env!("CARGO_MANIFEST_DIR"))), layers());
    assert!(edges.len() > 15, "{edges:?}");
    let layer = |name: &str| *layers.get(name).unwrap_or_else(|| panic!("the crate comment does not list `{name}`"));
    let upwards: Vec<_> = edges.iter().filter(|(from, to)| layer(from) > layer(to)).collect();
    assert!(upwards.is_empty(), "dependencies against the order: {upwards:?}");
}

#[test]
fn modules_form_no_circle() {
    let mut left = files::modules_of(Path::new(env!("CARGO_MANIFEST_DIR")));
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
