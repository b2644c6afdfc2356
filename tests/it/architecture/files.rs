//! Files of the crates that use each other in a circle, and files of tests that use each other, found in their imports and paths. A
//! module may use its own descendants, which may use it: such a use is no tie between them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

use crate::support::TempDir;

/// Path of a module or an item from the crate's root, without `crate`.
type Name = Vec<String>;

#[derive(Default)]
struct Module {
    /// File, relative to the workspace.
    file: String,
    /// Names of imports, with the paths that they stand for.
    imports: BTreeMap<String, Name>,
    /// Paths as they are written, `use` included.
    paths: Vec<Name>,
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        list.path.is_ident("cfg")
            && list.tokens.to_string().split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
    })
}

/// Collects the paths of a file outside of its unit tests.
#[derive(Default)]
struct Paths {
    written: Vec<Name>,
    imports: BTreeMap<String, Name>,
}

impl Paths {
    fn import(&mut self, tree: &UseTree, before: &[String]) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.import(&path.tree, &with(&path.ident)),
            UseTree::Group(group) => group.items.iter().for_each(|item| self.import(item, before)),
            UseTree::Glob(_) => self.written.push(before.to_vec()),
            UseTree::Name(name) if name.ident == "self" => self.bind(before.last().cloned(), before.to_vec()),
            UseTree::Name(name) => self.bind(Some(name.ident.to_string()), with(&name.ident)),
            UseTree::Rename(name) => self.bind(Some(name.rename.to_string()), with(&name.ident)),
        }
    }

    fn bind(&mut self, name: Option<String>, path: Name) {
        self.written.push(path.clone());
        self.imports.extend(name.map(|name| (name, path)));
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Mod(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            Item::Struct(item) => &item.attrs,
            Item::Const(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_test(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            self.written.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        // Arguments of macros are no syntax yet: names separated by `::` are paths.
        let text = without_literals(&call.tokens.to_string()).replace(" :: ", "::");
        for word in text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')) {
            let parts: Name = word.split("::").map(str::to_owned).collect();
            if parts.len() > 1 && parts.iter().all(|part| !part.is_empty() && !part.contains(':')) {
                self.written.push(parts);
            }
        }
        self.visit_path(&call.path);
    }
}

/// Removes the texts between quotes, which may contain paths of links.
fn without_literals(code: &str) -> String {
    let mut rest = code.chars();
    let mut kept = String::new();
    while let Some(c) = rest.next() {
        match c {
            '"' => while !matches!(rest.next(), None | Some('"')) {},
            '\\' => drop(rest.next()),
            c => kept.push(c),
        }
    }
    kept
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn modules(root: &Path, source: &Path) -> BTreeMap<Name, Module> {
    let mut files = Vec::new();
    sources(source, &mut files);
    let mut modules = BTreeMap::new();
    for path in files {
        let below = path.strip_prefix(source).expect("below it").with_extension("");
        let mut name: Name = below.iter().map(|part| part.to_str().expect("ASCII").to_owned()).collect();
        if name.iter().any(|part| ["tests", "testkit", "bin"].contains(&part.as_str()) || part.ends_with("_tests")) {
            continue;
        }
        if matches!(name.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            name.pop();
        }
        let parsed = syn::parse_file(&fs::read_to_string(&path).expect("a readable file")).expect("Rust");
        let mut paths = Paths::default();
        paths.visit_file(&parsed);
        let file = path.strip_prefix(root).expect("below it").display().to_string();
        let module: &mut Module = modules.entry(name).or_default();
        module.file = file;
        module.imports.extend(paths.imports);
        module.paths.extend(paths.written);
    }
    modules
}

/// The file that defines what a path in a module stands for, and the name that is taken from it. `None`: another crate.
fn resolve(modules: &BTreeMap<Name, Module>, from: &Name, path: &[String], depth: usize) -> Option<Name> {
    let (first, rest) = path.split_first()?;
    let absolute: Name = match first.as_str() {
        "crate" => rest.to_vec(),
        "self" => [from.as_slice(), rest].concat(),
        "super" => {
            let ups = path.iter().take_while(|part| *part == "super").count();
            [&from[..from.len().checked_sub(ups)?], &path[ups..]].concat()
        }
        name => {
            if let Some(import) =
                modules[from].imports.get(name).filter(|import| depth < 8 && import.as_slice() != path)
            {
                return resolve(modules, from, &[import.as_slice(), rest].concat(), depth + 1);
            }
            let own = [from.as_slice(), path].concat();
            modules.contains_key(&own[..=from.len()]).then_some(own)?
        }
    };
    let longest = (0..=absolute.len()).rev().find(|n| modules.contains_key(&absolute[..*n]))?;
    let module = absolute[..longest].to_vec();
    // Re-exported from elsewhere.
    match absolute.get(longest).and_then(|name| modules[&module].imports.get(name)) {
        Some(import) if depth < 8 => {
            resolve(modules, &module, &[import.as_slice(), &absolute[longest + 1..]].concat(), depth + 1)
        }
        _ => Some(absolute[..longest].to_vec()).filter(|module| !module.is_empty() || longest == 0),
    }
}

/// Uses of other files, by file.
type Uses = BTreeMap<Name, BTreeMap<Name, BTreeSet<String>>>;

fn uses(modules: &BTreeMap<Name, Module>) -> Uses {
    let mut uses = Uses::new();
    for (name, module) in modules {
        for path in &module.paths {
            if let Some(to) = resolve(modules, name, path, 0).filter(|to| !to.starts_with(name) && !to.is_empty()) {
                uses.entry(name.clone()).or_default().entry(to).or_default().insert(path.join("::"));
            }
        }
    }
    uses
}

/// Modules of the server that use each other.
pub fn modules_of(root: &Path) -> BTreeSet<(String, String)> {
    let uses = uses(&modules(root, &root.join("src")));
    let tops = uses.iter().filter(|(from, _)| !from.is_empty()).flat_map(|(from, targets)| {
        targets.keys().map(|to| (from[0].clone(), to[0].clone())).filter(|(from, to)| from != to)
    });
    tops.collect()
}

/// Files that a file uses, also by others.
fn reached(uses: &Uses, from: &Name) -> BTreeSet<Name> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from.clone()]);
    while let Some(at) = open.pop() {
        for to in uses.get(&at).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(to.clone()) {
                open.push(to.clone());
            }
        }
    }
    seen
}

/// Returns the uses within circles, each as "file uses file: paths".
pub fn circles(root: &Path) -> Vec<String> {
    let crates = fs::read_dir(root.join("crates")).expect("crates");
    let crates = crates.map(|entry| entry.expect("an entry").path().join("src")).chain([root.join("src")]);
    let mut found = Vec::new();
    for source in crates.filter(|source| source.is_dir()) {
        let modules = modules(root, &source);
        let uses = uses(&modules);
        let reach: BTreeMap<&Name, BTreeSet<Name>> = uses.keys().map(|name| (name, reached(&uses, name))).collect();
        for (from, targets) in &uses {
            for (to, paths) in targets.iter().filter(|(to, _)| reach.get(to).is_some_and(|back| back.contains(from))) {
                let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
                found.push(format!("{} uses {}: {}", modules[from].file, modules[to].file, paths.join(", ")));
            }
        }
    }
    found
}

#[test]
fn files_form_no_circle() {
    let found = circles(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(found.is_empty(), "move what two files share into a third:\n{}", found.join("\n"));
}

/// Returns the imports between integration tests, each as "file uses file: paths". Files may use `support`, files without tests in
/// their own folder, and the modules that they are below.
pub fn imports_between_tests(root: &Path) -> Vec<String> {
    let modules = modules(root, &root.join("tests/it"));
    let has_tests = |name: &Name| {
        let text = fs::read_to_string(root.join(&modules[name].file)).expect("a readable file");
        text.lines().any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
    };
    let mut found = Vec::new();
    for (from, targets) in uses(&modules).iter().filter(|(from, _)| !from.is_empty()) {
        let is_foreign = |to: &Name| to[0] != from[0] || has_tests(to) && !from.starts_with(to);
        for (to, paths) in targets.iter().filter(|(to, _)| to[0] != "support" && is_foreign(to)) {
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            found.push(format!("{} uses {}: {}", modules[from].file, modules[to].file, paths.join(", ")));
        }
    }
    found
}

#[test]
fn test_files_import_from_no_other() {
    let found = imports_between_tests(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(found.is_empty(), "move what tests share to tests/it/support:\n{}", found.join("\n"));
}

fn write(dir: &TempDir, file: &str, text: &str) {
    let file = dir.path().join(file);
    fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
    fs::write(file, text).expect("a file");
}

#[test]
fn import_of_another_test_file_is_found() {
    let dir = TempDir::new();
    write(&dir, "tests/it/main.rs", "mod one; mod support; mod two;");
    write(&dir, "tests/it/support/mod.rs", "pub fn s() {}");
    write(&dir, "tests/it/one.rs", "mod below; mod beside; mod plain; pub fn f() {}\n#[test]\nfn t() {}");
    write(&dir, "tests/it/one/plain.rs", "pub fn g() {}");
    write(&dir, "tests/it/one/beside.rs", "pub fn h() {}\n#[tokio::test]\nasync fn t() {}");
    write(&dir, "tests/it/one/below.rs", "use super::{f, plain::g}; use crate::support::s;");
    write(&dir, "tests/it/two.rs", "use crate::support::s;");
    assert_eq!(imports_between_tests(dir.path()), [""; 0]);
    write(&dir, "tests/it/one/below.rs", "use super::beside::h;");
    write(&dir, "tests/it/two.rs", "fn u() { assert!(crate::one::f() == ()) }");
    write(&dir, "tests/it/support/mod.rs", "use crate::one::plain::g; pub fn s() {}");
    assert_eq!(
        imports_between_tests(dir.path()),
        [
            "tests/it/one/below.rs uses tests/it/one/beside.rs: super::beside::h",
            "tests/it/support/mod.rs uses tests/it/one/plain.rs: crate::one::plain::g",
            "tests/it/two.rs uses tests/it/one.rs: crate::one::f",
        ]
    );
}

#[test]
fn circle_over_a_re_export_is_found() {
    let dir = TempDir::new();
    let write = |file: &str, text: &str| write(&dir, file, text);
    write("crates/none/README.md", "");
    write("src/lib.rs", "mod one; mod two; mod three;");
    write("src/one.rs", "mod inner; pub use inner::A; use inner::B; fn f() { crate::three::g() }");
    write("src/one/inner.rs", "pub struct A; pub struct B; fn h() { super::f() }");
    write("src/two.rs", "use crate::one::A; pub fn t() {} #[cfg(test)] mod tests { use crate::three::g; }");
    write("src/three.rs", "pub fn g() { println!(\"{}\", 1) }");
    assert_eq!(circles(dir.path()), [""; 0]);
    write("src/one/inner.rs", "pub struct A; pub struct B; fn h() { assert!(crate::two::t() == ()) }");
    assert_eq!(
        circles(dir.path()),
        ["src/one/inner.rs uses src/two.rs: crate::two::t", "src/two.rs uses src/one/inner.rs: crate::one::A"]
    );
}
