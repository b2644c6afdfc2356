//! Fault of a template or of its result: a place and a rule, never a value.

/// Reason why a template cannot be used, or cannot be rendered for a recipient.
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
    /// It is no template, something that it needs is not defined, or what came of it breaks a rule.
    Unfit,
    /// The result is too long, and may not be cut, or not enough.
    TooLong,
}

impl TemplateFault {
    pub(super) fn unfit(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind: TemplateFaultKind::Unfit, pointer: pointer.into(), detail: detail.into() }
    }

    /// One of the second.
    pub(super) fn too_long(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind: TemplateFaultKind::TooLong, pointer: pointer.into(), detail: detail.into() }
    }

    /// In one line, for logs of attempts and dead letters.
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
    /// Line from 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
}

impl Position {
    /// Of an octet of a text.
    pub(super) fn of(source: &str, offset: usize) -> Self {
        let before = &source[..source.floor_char_boundary(offset)];
        let line_begins = before.rfind('\n').map_or(0, |at| at + 1);
        Self { line: before.matches('\n').count() + 1, column: before[line_begins..].chars().count() + 1 }
    }

    /// A complaint about what stands here.
    pub(super) fn complain(self, what: &str) -> String {
        format!("line {}, column {}: {what}", self.line, self.column)
    }
}
