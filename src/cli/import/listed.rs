//! Lines of an import file that are not subscriptions: lists them, or refuses them for an existing app.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::api::exports::record::APP;
use crate::cli::output::{table, text};

/// Maximum characters of a line's content in the listing.
const SAYS_MAX: usize = 120;

/// A settings line of a file.
#[derive(Debug)]
pub(super) struct Setting {
    line: usize,
    kind: &'static str,
    says: String,
}

impl Setting {
    /// Extracts the parts of a line that the operator should review before the import: permissions, URLs of webhooks, and
    /// names.
    pub(super) fn new(line: usize, kind: &'static str, members: &Map<String, Value>) -> Self {
        let says = match kind {
            APP => members.get("origins"),
            "vapid_key" => members.get("state"),
            "webhook" => members.get("url"),
            "campaign" => members.get("plan").and_then(|plan| plan.get("slug")),
            _ => members.get("name"),
        };
        let says = says.map_or_else(|| "-".to_owned(), |says| text(says, ""));
        // The file may be anybody's: what it says must not steer the terminal.
        let says = says.chars().take(SAYS_MAX).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        Self { line, kind, says }
    }
}

/// Returns the settings of a file as JSON.
pub(super) fn as_json(settings: &[Setting]) -> Value {
    settings.iter().map(|it| json!({"line": it.line, "type": it.kind, "says": it.says})).collect()
}

/// Returns the settings of a file as a table.
pub(super) fn as_table(settings: &[Setting]) -> String {
    table(
        ["LINE", "SETS", "WHAT"],
        settings.iter().map(|it| [it.line.to_string(), it.kind.to_owned(), it.says.clone()]),
    )
}

/// Error for a file with settings and an app that exists, with the way to continue.
pub(super) fn refusal(app: &str, settings: &[Setting]) -> String {
    let mut kinds = BTreeMap::<_, usize>::new();
    for setting in settings {
        *kinds.entry(setting.kind).or_default() += 1;
    }
    let kinds: Vec<String> = kinds.into_iter().map(|(kind, n)| format!("{n} {kind}")).collect();
    format!(
        "there is an app {app:?} already, and this file would change its settings: it has lines of other types than `subscription` \
         ({}). The author of the file would decide who may register with the app, which key it signs with and who is told of what \
         happens. `--dry-run` lists these lines; `--with-settings` applies them; to take in subscriptions alone, leave these \
         lines out, as `bellwire export --only subscriptions` does",
        kinds.join(", ")
    )
}
