//! Embeds the files for browsers, the packages for backends and the guides, also in compressed form. They are copied beside the table that names them, so that a build
//! survives the move of its directory.
#![allow(clippy::print_stdout, reason = "how build scripts talk to cargo")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Directories of files, and the paths under which they are served.
const ROOTS: [(&str, &str); 8] = [
    ("static/sdk/dist", "/sdk"),
    ("clients/dist", "/clients"),
    ("static/admin/dist", "/admin"),
    ("static/example", "/example"),
    ("static/try", "/try"),
    ("static/playground", "/docs/playground"),
    ("static/shared", "/shared"),
    ("docs", "/docs/guides"),
];
/// Without these the server would be built, but of no use to browsers.
const NEEDED: [&str; 11] = [
    "static/sdk/dist/bellwire-web.tgz",
    "static/sdk/dist/bellwire.js",
    "static/sdk/dist/bellwire.d.ts",
    "static/sdk/dist/service-worker.js",
    "clients/dist/bellwire-server.tgz",
    "static/admin/dist/index.html",
    "static/example/index.html",
    "static/try/index.html",
    "static/playground/index.html",
    "static/shared/tokens.css",
    "docs/README.md",
];

fn main() {
    for (directory, _) in ROOTS {
        println!("cargo:rerun-if-changed={directory}");
    }
    for missing in NEEDED.iter().filter(|path| !Path::new(path).is_file()) {
        println!(
            "cargo::error={missing} is missing: run `make web` (or `npm ci && npm run build` in static/sdk, static/admin and clients/typescript), then build again"
        );
    }
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let mut table = String::from("&[\n");
    for (directory, served) in ROOTS {
        let directory = root.join(directory);
        let files = files(&directory);
        let texts = files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "md"));
        let texts: String = texts.map(|file| fs::read_to_string(file).expect("guides are UTF-8")).collect();
        let is_shown = |file: &&PathBuf| {
            let name = file.file_name().and_then(|name| name.to_str()).expect("names are ASCII");
            !file.starts_with(directory.join("pictures")) || texts.contains(name)
        };
        for file in files.iter().filter(is_shown) {
            let below = file.strip_prefix(&directory).expect("it was found there").to_str().expect("names are ASCII");
            let path = format!("{served}/{below}");
            let content = fs::read(file).expect("it was just found");
            // A file that is compressed already is embedded once: its other forms are empty.
            let is_packed = [".tgz", ".whl", ".png"].iter().any(|extension| below.ends_with(extension));
            let (packed, zipped) = if is_packed { Default::default() } else { (brotli(&content), gzip(&content)) };
            let forms = [("br", packed), ("gz", zipped), ("raw", content)].map(|(extension, octets)| {
                let name = format!("{}.{extension}", path.replace('/', "_"));
                fs::write(out.join(&name), octets).expect("cargo's own directory can be written");
                format!("include_bytes!({name:?})")
            });
            writeln!(table, "    ({path:?}, [{}]),", forms.join(", ")).expect("a string");
        }
    }
    table.push_str("]\n");
    fs::write(out.join("site.rs"), table).expect("cargo's own directory can be written");
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(content).and_then(|()| encoder.finish()).expect("memory takes everything")
}

fn brotli(content: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let params = brotli::enc::BrotliEncoderParams::default(); // the best that there is
    brotli::BrotliCompress(&mut &content[..], &mut packed, &params).expect("memory takes everything");
    packed
}

/// All files below a directory, sorted. None if there is no such directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}
