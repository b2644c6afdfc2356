//! Result types of statements, where a boolean would be unclear.

/// Result of a write to a named object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    Done,
    Unknown,
}

impl WriteOutcome {
    /// Converts the number of changed rows, for a statement about one object.
    pub(super) fn by(rows: u64) -> Self {
        if rows > 0 { Self::Done } else { Self::Unknown }
    }
}

/// Progress of work in chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkProgress {
    /// More work may remain.
    More,
    /// No work remains.
    Done,
}

impl ChunkProgress {
    /// Returns the progress after a chunk. A full chunk means that more work may remain.
    pub(super) fn after(is_full: bool) -> Self {
        if is_full { Self::More } else { Self::Done }
    }
}
