//! Fault of a template or of its result: pointer and rule, without values.

/// Reason for which a template is refused, or cannot be rendered for a recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateFault {
    /// Kind of the fault.
    pub kind: TemplateFaultKind,
    /// RFC 6901 pointer into the template, such as `/locales/de/content/title`.
    pub pointer: String,
    /// Description with line and column, if known. It contains no values.
    pub detail: String,
}

/// Kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateFaultKind {
    /// The template is invalid, a variable is undefined, or the result violates a rule.
    Unfit,
    /// The result is too long, and must not be truncated, or truncating is not enough.
    TooLong,
}

impl TemplateFault {
    pub(super) fn unfit(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind: TemplateFaultKind::Unfit, pointer: pointer.into(), detail: detail.into() }
    }

    /// Creates a fault of the kind [`TooLong`](TemplateFaultKind::TooLong).
    pub(super) fn too_long(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind: TemplateFaultKind::TooLong, pointer: pointer.into(), detail: detail.into() }
    }

    /// Formats the fault in one line, for the log of attempts and dead letters.
    pub fn line(&self) -> String {
        format!("{}: {}", self.pointer, self.detail)
    }
}

impl From<bellwire_core::message::Problem> for TemplateFault {
    fn from(problem: bellwire_core::message::Problem) -> Self {
        Self::unfit(problem.pointer, problem.detail)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl Position {
    /// Returns the position of a byte offset.
    pub(super) fn of(source: &str, offset: usize) -> Self {
        let before = &source[..source.floor_char_boundary(offset)];
        let line_begins = before.rfind('\n').map_or(0, |at| at + 1);
        Self { line: before.matches('\n').count() + 1, column: before[line_begins..].chars().count() + 1 }
    }

    /// Formats an error about this position.
    pub(super) fn complain(self, what: &str) -> String {
        format!("line {}, column {}: {what}", self.line, self.column)
    }
}
