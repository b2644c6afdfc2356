//! Cells of CSV exports that a spreadsheet would evaluate as formulas, and the way back.

/// Column whose cells are `true` in a file with neutralised cells. An import then removes the apostrophes.
pub(in crate::api) const NEUTRALISED: &str = "neutralised";

/// Whether a spreadsheet would evaluate the cell, behind any number of apostrophes.
fn is_formula(cell: &str) -> bool {
    cell.trim_start_matches('\'').starts_with(['=', '+', '-', '@', '\t', '\r', '\n'])
}

/// Puts an apostrophe before a formula, and before a text that would read back as a neutralised formula.
pub(in crate::api) fn neutralise(cell: String) -> String {
    if is_formula(&cell) { format!("'{cell}") } else { cell }
}

/// Returns the cell that [`neutralise`] was given.
pub(in crate::api) fn restore(cell: &str) -> &str {
    cell.strip_prefix('\'').filter(|rest| is_formula(rest)).unwrap_or(cell)
}
