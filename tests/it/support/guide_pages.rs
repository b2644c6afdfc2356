//! Markdown pages of the repository, and the commands in them.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use super::repository::root;

/// Directories whose pages are others' work.
const FOREIGN: [&str; 3] = ["node_modules", "target", ".deps"];

/// A Markdown file.
pub struct Page {
    /// Path from the repository's root.
    pub path: String,
    /// Text in which fenced blocks are empty lines.
    pub prose: String,
    /// Fenced blocks with their languages.
    pub blocks: Vec<(String, String)>,
}

impl Page {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("UTF-8");
        let name = path.strip_prefix(root()).expect("within the repository");
        let mut page = Self { path: name.display().to_string(), prose: String::new(), blocks: Vec::new() };
        let mut open = false;
        for line in text.lines() {
            match line.trim_start().strip_prefix("```") {
                Some(language) if !open => page.blocks.push((language.trim().to_owned(), String::new())),
                Some(_) => {}
                None if open => {
                    let (_, block) = page.blocks.last_mut().expect("it was opened");
                    *block += line;
                    *block += "\n";
                }
                None => page.prose += line,
            }
            open ^= line.trim_start().starts_with("```");
            page.prose += "\n";
        }
        assert!(!open, "{}: a block has no end", page.path);
        page
    }

    /// Text between single backticks.
    pub fn spans(&self) -> impl Iterator<Item = String> {
        self.prose.split("\n\n").flat_map(|paragraph| {
            let parts: Vec<_> = paragraph.split('`').skip(1).step_by(2).collect();
            parts.into_iter().map(|span| span.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        })
    }

    pub fn shell(&self) -> impl Iterator<Item = &str> {
        self.blocks.iter().filter(|(language, _)| language == "sh").map(|(_, block)| block.as_str())
    }

    /// The anchors of its headings, as GitHub makes them.
    pub fn anchors(&self) -> BTreeSet<String> {
        let mut seen: HashMap<String, usize> = HashMap::new();
        let headings = self.prose.lines().filter(|line| line.starts_with('#'));
        let mut anchor = |heading: &str| {
            let kept = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            let name: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
            let n = seen.entry(name.clone()).or_default();
            *n += 1;
            if *n == 1 { name } else { format!("{name}-{}", *n - 1) }
        };
        headings.map(&mut anchor).collect()
    }

    /// Targets of links and pictures.
    pub fn links(&self) -> impl Iterator<Item = &str> {
        self.prose.split("](").skip(1).map(|rest| rest.split(')').next().unwrap_or(rest))
    }
}

/// Every page of the repository.
pub fn pages() -> Vec<Page> {
    let (mut directories, mut found) = (vec![root().to_owned()], Vec::new());
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).expect("a directory") {
            let path: PathBuf = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && !FOREIGN.contains(&name) && name != ".git" {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(Page::read(&path));
            }
        }
    }
    assert!(found.iter().any(|page| page.path == "README.md") && found.len() > 5, "these are not all");
    found
}

/// The commands of a shell block as words, without comments, redirections and assignments before them.
pub fn commands(block: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words) = (Vec::new(), Vec::new());
    let (mut word, mut quote) = (String::new(), None);
    let mut rest = block.chars();
    while let Some(c) = rest.next() {
        match c {
            _ if quote == Some(c) => quote = None,
            '\\' if quote != Some('\'') => word.extend(rest.next().filter(|&next| next != '\n')),
            _ if quote.is_some() => word.push(c),
            '\'' | '"' => quote = Some(c),
            '#' if word.is_empty() => {
                rest.by_ref().find(|&c| c == '\n');
                commands.push(std::mem::take(&mut words));
            }
            _ if c.is_whitespace() || "|&;<>()".contains(c) => {
                words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()));
                if c != ' ' {
                    commands.push(std::mem::take(&mut words));
                }
            }
            _ => word.push(c),
        }
    }
    words.push(word);
    commands.push(words);
    let assigns = |word: &String| word.split_once('=').is_some_and(|(name, _)| is_variable(name));
    let plain = commands.into_iter().map(|words| words.into_iter().skip_while(assigns).collect::<Vec<_>>());
    plain.filter(|words| words.first().is_some_and(|word| !word.is_empty())).collect()
}

/// Whether it looks like a variable's name.
pub fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}
