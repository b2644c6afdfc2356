//! Results of statements, where a bool would be unclear.

/// Result of a write to a named object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    Done,
    Unknown,
}

impl WriteOutcome {
    /// By how many rows a statement changed that names one.
    pub(super) fn by(rows: u64) -> Self {
        if rows > 0 { Self::Done } else { Self::Unknown }
    }
}

/// Progress of work in chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkProgress {
    /// There may be more to do.
    More,
    /// There is nothing left to do.
    Done,
}

impl ChunkProgress {
    /// After a chunk: there may be more if it was full.
    pub(super) fn after(is_full: bool) -> Self {
        if is_full { Self::More } else { Self::Done }
    }
}
