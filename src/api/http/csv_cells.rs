//! Neutralises and restores CSV cells that a spreadsheet would evaluate as formulas.

/// Name of the column that is `true` in files with neutralised cells. An import then removes the apostrophes.
pub(in crate::api) const NEUTRALISED: &str = "neutralised";

/// Whether a spreadsheet would evaluate the cell. Leading apostrophes are ignored.
fn is_formula(cell: &str) -> bool {
    cell.trim_start_matches('\'').starts_with(['=', '+', '-', '@', '\t', '\r', '\n'])
}

/// Prefixes a formula with an apostrophe, and also a text that looks like a neutralised formula.
pub(in crate::api) fn neutralise(cell: String) -> String {
    if is_formula(&cell) { format!("'{cell}") } else { cell }
}

/// Removes the apostrophe that [`neutralise`] added.
pub(in crate::api) fn restore(cell: &str) -> &str {
    cell.strip_prefix('\'').filter(|rest| is_formula(rest)).unwrap_or(cell)
}
