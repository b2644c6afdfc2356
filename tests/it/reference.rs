//! Reference material in the guides matches its declaration in the code. A guide has it between `<!-- generated: KIND NAMES -->` and
//! `<!-- /generated -->`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use bellwire_core::event_type::EventType;

use crate::support::TempDir;
use crate::support::generated_parts::{END, compare_generated_parts};
use crate::support::metrics::rendered_metrics;
use crate::support::repository::root;

/// Words of a table's cell.
const WORDS_MAX: usize = 20;

fn guides() -> impl Iterator<Item = PathBuf> {
    let directories = [root().join("docs"), root().join("docs/operate")];
    let files = directories.into_iter().flat_map(|directory| fs::read_dir(directory).expect("guides"));
    files
        .map(|file| file.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
}

/// Help and default of each setting by its key, from the settings file that the program prints.
fn settings() -> BTreeMap<String, (String, String)> {
    let dir = TempDir::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwire"));
    let output =
        command.env_clear().current_dir(dir.path()).args(["serve", "--print-template"]).output().expect("it runs");
    let template = String::from_utf8(output.stdout).expect("UTF-8");
    let (mut settings, mut help) = (BTreeMap::new(), Vec::new());
    for line in template.lines() {
        match (line.strip_prefix("# "), line.split_once(" = ")) {
            (Some(text), _) => help.push(text.to_owned()),
            (None, Some((key, default))) => {
                let default = default.trim_matches('"').to_owned();
                settings.insert(key.trim_start_matches('#').to_owned(), (help.join(" "), default));
            }
            _ => help.clear(),
        }
    }
    assert!(settings.len() > 80, "{settings:?}");
    settings
}

/// The longest beginning of a text that ends a clause and fits a cell, without its stop.
fn cell(text: &str) -> String {
    let ends = text
        .char_indices()
        .filter(|(at, c)| matches!(c, '.' | ';') && text[at + 1..].chars().next().is_none_or(|next| next == ' '));
    let clauses = ends.map(|(at, _)| &text[..at]).take_while(|clause| clause.split_whitespace().count() <= WORDS_MAX);
    clauses.last().unwrap_or_else(|| panic!("the first clause has more than {WORDS_MAX} words: {text}")).to_owned()
}

fn table_of_settings(settings: &BTreeMap<String, (String, String)>, keys: &[&str]) -> String {
    let mut table = "|variable|default|meaning|\n|---|---|---|\n".to_owned();
    for key in keys {
        let (help, default) = settings.get(*key).unwrap_or_else(|| panic!("{key} is not a setting"));
        let prefix = if key.starts_with("otel_") { "" } else { "BELLWIRE_" };
        let default = if default.is_empty() { "empty".to_owned() } else { format!("`{default}`") };
        writeln!(table, "|`{prefix}{}`|{default}|{}|", key.to_uppercase(), cell(help)).expect("a string");
    }
    table
}

/// Names and doc comments of the values of the first `named!` of a file.
fn named(file: &str) -> Vec<(String, String)> {
    let source = fs::read_to_string(root().join(file)).expect("a file");
    let source = syn::parse_file(&source).expect("Rust");
    let body = source.items.into_iter().find_map(|item| match item {
        syn::Item::Macro(item) if item.mac.path.is_ident("named") => Some(item.mac.tokens),
        _ => None,
    });
    let values = syn::parse2::<syn::ItemEnum>(body.expect("it names values")).expect("an enum").variants;
    let text = |value: &syn::Expr| match value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => text.value(),
        _ => panic!("a name is a text"),
    };
    let doc = |value: &syn::Variant| {
        let lines = value.attrs.iter().filter_map(|attribute| match &attribute.meta {
            syn::Meta::NameValue(doc) if doc.path.is_ident("doc") => Some(text(&doc.value)),
            _ => None,
        });
        lines.map(|line| line.trim().to_owned()).collect::<Vec<_>>().join(" ")
    };
    values.iter().map(|value| (text(&value.discriminant.as_ref().expect("a name").1), doc(value))).collect()
}

fn table_of_scopes() -> String {
    let rows = named("crates/bellwire-core/src/scope.rs");
    let rows = rows.iter().map(|(name, doc)| format!("|`{name}`|{}|\n", cell(doc)));
    format!("|scope|allows|\n|---|---|\n{}", rows.collect::<String>())
}

/// A list of the events of webhooks or streams.
fn list_of_events(is_listed: impl Fn(EventType) -> bool) -> String {
    let rows = named("crates/bellwire-core/src/event_type.rs");
    let rows = rows.iter().filter(|(name, _)| is_listed(EventType::from_name(name).expect("its own name")));
    rows.map(|(name, doc)| format!("- `{name}`: {doc}\n")).collect()
}

fn list_of_metrics(names: &[&str]) -> String {
    let rendered = rendered_metrics();
    let help = |name: &str| {
        let family = name.trim_end_matches("_total");
        let line = rendered.lines().find_map(|line| line.strip_prefix(&format!("# HELP {family} ")));
        line.unwrap_or_else(|| panic!("{name} is not a metric")).to_owned()
    };
    names.iter().map(|name| format!("- `{name}`: {}\n", help(name))).collect()
}

#[test]
fn reference_in_guides_matches_the_code() {
    let settings = settings();
    let generate = |kind: &str, names: &[&str]| match (kind, names) {
        ("settings", keys) => Some(table_of_settings(&settings, keys)),
        ("scopes", []) => Some(table_of_scopes()),
        ("events", ["webhooks"]) => Some(list_of_events(EventType::is_for_webhooks)),
        ("events", ["streams"]) => Some(list_of_events(|event| event.is_streamed() && !event.is_for_webhooks())),
        ("metrics", names) => Some(list_of_metrics(names)),
        ("lists", []) => None, // see api::contract
        _ => panic!("nothing generates {kind} {names:?}"),
    };
    let compared: Vec<_> = guides().map(|guide| compare_generated_parts(&guide, generate)).collect();
    let faults: Vec<_> = compared.iter().filter_map(|compared| compared.as_ref().err()).cloned().collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    let parts: usize = compared.iter().flatten().sum();
    assert!(parts >= 10, "generated parts are not found: {parts}");
}

#[test]
fn no_other_table_of_settings_is_in_guides() {
    for guide in guides() {
        let text = fs::read_to_string(&guide).expect("a guide");
        let outside = text.split(END).map(|part| part.split("<!-- generated: ").next().unwrap_or_default());
        let rows = outside
            .flat_map(str::lines)
            .filter(|line| line.starts_with("| `BELLWIRE_") || line.starts_with("| `OTEL_"));
        let rows: Vec<_> = rows.collect();
        assert!(rows.is_empty(), "{}: write `<!-- generated: settings KEYS -->` instead of {rows:?}", guide.display());
    }
}

/// Value of a setting as the guide of limits writes it.
fn in_prose(key: &str, value: &str) -> String {
    let seconds = value.strip_suffix('s').and_then(|seconds| seconds.parse::<u32>().ok());
    let number = value.parse::<u32>().unwrap_or_default();
    match seconds {
        Some(seconds) => format!("{seconds} s"),
        None if key.ends_with("_OCTETS") && number % (1 << 20) == 0 => format!("{} MiB", number >> 20),
        None if key.ends_with("_OCTETS") => format!("{} KiB", number >> 10),
        None if number < 1_000 => number.to_string(),
        None if number < 1_000_000 => format!("{},{:03}", number / 1_000, number % 1_000),
        None => format!("{},{:03},{:03}", number / 1_000_000, number / 1_000 % 1_000, number % 1_000),
    }
}

#[test]
fn guide_of_limits_has_the_defaults() {
    let settings = settings();
    let guide = fs::read_to_string(root().join("docs/operate/limits.md")).expect("the guide");
    let mut seen = 0;
    for row in guide.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<_> = row.split(" | ").collect();
        let keys = cells[0].split('`').skip(1).step_by(2).filter(|key| key.contains('_'));
        for key in keys.filter(|key| settings.contains_key(&key.to_lowercase())) {
            seen += 1;
            let default = in_prose(key, &settings[&key.to_lowercase()].1);
            let told = cells[1].split([';', ' ']).map(|word| word.trim_end_matches(',')).collect::<Vec<_>>().join(" ");
            assert!(format!(" {told} ").contains(&format!(" {default} ")), "{key} is {default} by default: {row}");
        }
    }
    assert!(seen >= 15, "settings are not found: {seen}");
}
