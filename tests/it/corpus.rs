//! The inputs that the fuzz targets start from, and those that once broke something, keep their promises.

#[path = "../../fuzz/checks.rs"]
mod checks;

use std::path::Path;

/// Runs a check on every file of a corpus.
fn replay(corpus: &str, check: impl Fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(corpus);
    let files = std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut replayed = 0;
    for file in files {
        check(&std::fs::read(file.expect("an entry").path()).expect("a readable file"));
        replayed += 1;
    }
    assert!(replayed >= 15, "{corpus} has lost its inputs: {replayed}");
}

#[test]
fn no_expression_of_the_corpus_breaks_the_parser() {
    replay("expression", checks::expression);
}

#[test]
fn no_segment_of_the_corpus_breaks_the_parser() {
    replay("segment", checks::segment);
}

#[test]
fn no_header_of_the_corpus_breaks_the_reader() {
    replay("retry_after", checks::retry_after);
}

#[test]
fn no_policy_of_the_corpus_breaks_its_timetable() {
    replay("layer", checks::layer);
}
