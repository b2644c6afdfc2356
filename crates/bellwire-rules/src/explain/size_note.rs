//! Text in the log of attempts about a payload that was too large: dispatch writes it, and explanations parse it.

const TOLD: &str = " octets: sent again without ";
const TOLD_BEFOREHAND: &str = "sent without ";
const AFTER_NAMES: &str = ": more than this gateway takes";

/// Returns the text for a refused payload of `octets` bytes plaintext, followed by an attempt without these parts. [`dropped`]
/// parses it.
pub fn tell(octets: usize, dropped: &[&str]) -> String {
    let what = if dropped.is_empty() { "padding".to_owned() } else { dropped.join(", ") };
    format!("too large at {octets}{TOLD}{what}")
}

/// Returns the text for a payload that was reduced in advance, followed by the push service's text: at most `max` bytes.
/// `None`: only padding was omitted.
pub fn tell_beforehand(dropped: &[&str], words: Option<&str>, max: usize) -> Option<String> {
    let names = Some(dropped.join(", ")).filter(|names| !names.is_empty())?;
    let mut told = format!("{TOLD_BEFOREHAND}{names}{AFTER_NAMES}");
    words.iter().for_each(|words| told.extend(["; ", words]));
    told.truncate(told.floor_char_boundary(max));
    Some(told)
}

/// Returns the omitted parts in a text of [`tell`] or [`tell_beforehand`]. `None`: the text names no parts.
pub fn dropped(told: &str) -> Option<Vec<&str>> {
    let beforehand = || Some(beforehand(told)?.0);
    let afterwards = || Some(told.strip_prefix("too large at ")?.split_once(TOLD)?.1);
    let what = beforehand().or_else(afterwards)?;
    Some(what.split(", ").filter(|name| *name != "padding").collect())
}

/// Returns the omitted parts and the push service's own text, from a text of [`tell_beforehand`].
pub(crate) fn beforehand(told: &str) -> Option<(&str, &str)> {
    let (names, words) = told.strip_prefix(TOLD_BEFOREHAND)?.split_once(AFTER_NAMES)?;
    Some((names, words.strip_prefix("; ").unwrap_or_default()))
}

#[cfg(test)]
#[path = "../../../../tests/crates/rules/unit/explain/size_note.rs"]
mod tests;
