//! Parts of guides that are generated from the code, between `<!-- generated: KIND NAMES -->` and `<!-- /generated -->`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::repository::root;

pub const END: &str = "<!-- /generated -->";

/// Compares the generated parts of a guide with what `generate` returns for their kind and names. `None`: another test compares
/// that kind. Writes the corrected guide below cargo's directory for tests.
pub fn compare_generated_parts(
    guide: &Path, generate: impl Fn(&str, &[&str]) -> Option<String>,
) -> Result<usize, String> {
    let text = fs::read_to_string(guide).expect("a guide");
    let (mut fresh, mut rest, mut parts) = (String::new(), text.as_str(), 0);
    while let Some((before, after)) = rest.split_once("<!-- generated: ") {
        let (head, after) = after.split_once(" -->\n").expect("the head of a part ends its line");
        let (old, after) = after.split_once(END).expect("the end of a part");
        let words: Vec<&str> = head.split(' ').collect();
        let new = generate(words[0], &words[1..]);
        parts += usize::from(new.is_some());
        write!(fresh, "{before}<!-- generated: {head} -->\n{}{END}", new.as_deref().unwrap_or(old)).expect("a string");
        rest = after;
    }
    fresh.push_str(rest);
    if fresh == text {
        return Ok(parts);
    }
    let name = guide.strip_prefix(root()).expect("within the repository");
    let corrected = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(corrected.parent().expect("a directory")).expect("cargo's own directory");
    fs::write(&corrected, fresh).expect("cargo's own directory");
    Err(format!("the code declares something else: cp {} {}", corrected.display(), name.display()))
}
