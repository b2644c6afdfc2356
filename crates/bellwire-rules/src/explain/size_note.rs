//! The text that the log of attempts keeps when a payload was too large: written by dispatch, read back by explanations.

const TOLD: &str = " octets: sent again without ";
const TOLD_BEFOREHAND: &str = "sent without ";
const AFTER_NAMES: &str = ": more than this gateway takes";

/// Text for an attempt that was too large with `octets` of plaintext, and followed by one without these parts.
/// [`dropped`] reads it back.
pub fn tell(octets: usize, dropped: &[&str]) -> String {
    let what = if dropped.is_empty() { "padding".to_owned() } else { dropped.join(", ") };
    format!("too large at {octets}{TOLD}{what}")
}

/// Text for an attempt whose payload was made smaller beforehand, followed by the gateway's words: at most `max` octets.
/// None: only padding was left out.
pub fn tell_beforehand(dropped: &[&str], words: Option<&str>, max: usize) -> Option<String> {
    let names = Some(dropped.join(", ")).filter(|names| !names.is_empty())?;
    let mut told = format!("{TOLD_BEFOREHAND}{names}{AFTER_NAMES}");
    words.iter().for_each(|words| told.extend(["; ", words]));
    told.truncate(told.floor_char_boundary(max));
    Some(told)
}

/// The names of the parts left out, from a text that [`tell`] or [`tell_beforehand`] wrote. None: the text names no parts.
pub fn dropped(told: &str) -> Option<Vec<&str>> {
    let beforehand = || Some(beforehand(told)?.0);
    let afterwards = || Some(told.strip_prefix("too large at ")?.split_once(TOLD)?.1);
    let what = beforehand().or_else(afterwards)?;
    Some(what.split(", ").filter(|name| *name != "padding").collect())
}

/// The names of the parts left out, and the gateway's own words, from a text that [`tell_beforehand`] wrote.
pub(crate) fn beforehand(told: &str) -> Option<(&str, &str)> {
    let (names, words) = told.strip_prefix(TOLD_BEFOREHAND)?.split_once(AFTER_NAMES)?;
    Some((names, words.strip_prefix("; ").unwrap_or_default()))
}

#[cfg(test)]
#[path = "../../../../tests/crates/rules/unit/explain/size_note.rs"]
mod tests;
