//! Splits a file into records as it arrives, within the memory of one record.

use bytes::Bytes;

use bellwire_core::named;

/// Maximum bytes of a record: twice the size of a record with all members at their limits.
pub(super) const RECORD_MAX: usize = 64 * 1024;

named! {
    /// Format of a file.
    #[schema(as = ImportFormat)]
    pub(crate) enum ImportFormat {
        /// A JSON object on each line.
        Ndjson = "ndjson",
        /// Comma-separated values (RFC 4180) with a header line. Semicolons, tabs and `|` are accepted as separators.
        Csv = "csv",
        /// An array of JSON objects, or a single one.
        Json = "json",
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Number of its first line, or of the array element, from 1.
    pub line: i64,
    pub end: i64,
    /// Record without its line end. `None`: longer than [`RECORD_MAX`].
    pub octets: Option<Vec<u8>>,
}

/// Reason for which the bytes are not a file of this format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoFile {
    #[error("is not a JSON array of subscriptions")]
    NoArray,
    #[error("has a JSON array or object without an end")]
    NoEnd,
    #[error("has text after its JSON array")]
    More,
}

/// Position of the parser in an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArrayPosition {
    Before,
    /// Within an element. The depth counts open brackets.
    Inside {
        depth: usize,
        text: bool,
        escaped: bool,
    },
    After,
}

/// Splitter of a file into records.
#[derive(Debug)]
pub(super) struct Splitter {
    format: ImportFormat,
    /// Received bytes that are read from `at`.
    part: Bytes,
    at: usize,
    record: Vec<u8>,
    too_long: bool,
    ended: i64,
    begins: i64,
    quoted: bool,
    /// Last byte of the record, stored or not.
    last: Option<u8>,
    place: ArrayPosition,
    /// Whether the JSON has objects without an array around them.
    is_bare: bool,
}

impl Splitter {
    /// Creates a splitter. `first` is the number of the first line.
    pub(super) fn new(format: ImportFormat, first: i64) -> Self {
        Self {
            format,
            part: Bytes::new(),
            at: 0,
            record: Vec::new(),
            too_long: false,
            ended: first - 1,
            begins: first,
            quoted: false,
            last: None,
            place: ArrayPosition::Before,
            is_bare: false,
        }
    }

    /// Sets the number of the next line, after a header line.
    pub(super) fn go_on_at(&mut self, line: i64) {
        (self.ended, self.begins) = (line - 1, line);
    }

    /// Adds the next part of the file. First call [`next`](Self::next) until it returns no more records.
    pub(super) fn feed(&mut self, part: Bytes) {
        (self.part, self.at) = (part, 0);
    }

    pub(super) fn next(&mut self) -> Result<Option<Record>, NoFile> {
        while let Some(octet) = self.part.get(self.at).copied() {
            self.at += 1;
            let record = match self.format {
                ImportFormat::Ndjson | ImportFormat::Csv => self.take_of_lines(octet),
                ImportFormat::Json => self.take_of_array(octet)?,
            };
            if record.is_some() {
                return Ok(record);
            }
        }
        Ok(None)
    }

    /// Returns the last record if the file does not end with a line end.
    pub(super) fn finish(&mut self) -> Result<Option<Record>, NoFile> {
        match self.format {
            ImportFormat::Ndjson | ImportFormat::Csv if self.last.is_none() => Ok(None),
            ImportFormat::Ndjson | ImportFormat::Csv => {
                self.ended += 1;
                Ok(self.complete())
            }
            ImportFormat::Json => match self.place {
                ArrayPosition::Before => Err(NoFile::NoArray),
                ArrayPosition::Inside { depth: 0, text: false, .. } if self.is_bare => Ok(None),
                ArrayPosition::Inside { .. } => Err(NoFile::NoEnd),
                ArrayPosition::After => Ok(None),
            },
        }
    }

    /// Returns the number of complete lines or elements.
    pub(super) fn ended(&self) -> i64 {
        self.ended
    }

    fn take_of_lines(&mut self, octet: u8) -> Option<Record> {
        // A carriage return alone ends a line, too: spreadsheets on macOS write it.
        if self.last == Some(b'\r') && octet != b'\n' && !self.quoted {
            self.at -= 1;
            self.ended += 1;
            return self.complete();
        }
        if octet == b'\n' {
            self.ended += 1;
            if !self.quoted {
                return self.complete();
            }
        }
        if self.format == ImportFormat::Csv && octet == b'"' {
            // A quote opens a cell where one begins, or goes on with one after a doubled quote.
            let opens = matches!(self.last, None | Some(b',' | b';' | b'\t' | b'|' | b'"'));
            self.quoted = !self.quoted && opens;
        }
        self.keep(octet);
        None
    }

    fn take_of_array(&mut self, octet: u8) -> Result<Option<Record>, NoFile> {
        let white = octet.is_ascii_whitespace();
        match self.place {
            ArrayPosition::Before if octet == b'[' => {
                self.place = ArrayPosition::Inside { depth: 0, text: false, escaped: false }
            }
            ArrayPosition::Before if white => {}
            // A single object, or one after the other.
            ArrayPosition::Before if octet == b'{' => {
                self.is_bare = true;
                self.place = ArrayPosition::Inside { depth: 1, text: false, escaped: false };
                self.keep(octet);
            }
            ArrayPosition::Before => return Err(NoFile::NoArray),
            ArrayPosition::After if white => {}
            ArrayPosition::After => return Err(NoFile::More),
            ArrayPosition::Inside { depth, text: true, escaped } => {
                let ends = octet == b'"' && !escaped;
                self.place = ArrayPosition::Inside { depth, text: !ends, escaped: octet == b'\\' && !escaped };
                self.keep(octet);
            }
            ArrayPosition::Inside { depth: 0, .. } if self.is_bare && octet != b'{' => {}
            ArrayPosition::Inside { depth: 0, .. } if octet == b',' || octet == b']' => {
                if octet == b']' {
                    self.place = ArrayPosition::After;
                }
                let is_empty = self.last.is_none();
                if is_empty && octet == b']' {
                    return Ok(None);
                }
                self.ended += 1;
                return Ok(self.complete());
            }
            ArrayPosition::Inside { depth, .. } => {
                let depth = match octet {
                    b'{' | b'[' => depth + 1,
                    b'}' | b']' => depth.saturating_sub(1),
                    _ => depth,
                };
                self.place = ArrayPosition::Inside { depth, text: octet == b'"', escaped: false };
                if !white || self.last.is_some() {
                    self.keep(octet);
                }
                if self.is_bare && depth == 0 {
                    self.ended += 1;
                    return Ok(self.complete());
                }
            }
        }
        Ok(None)
    }

    fn keep(&mut self, octet: u8) {
        self.last = Some(octet);
        if self.record.len() < RECORD_MAX {
            self.record.push(octet);
        } else {
            self.too_long = true;
        }
    }

    /// Returns the current record, unless it is blank, and begins a new one.
    fn complete(&mut self) -> Option<Record> {
        let (line, end) = (self.begins, self.ended);
        (self.begins, self.quoted, self.last) = (end + 1, false, None);
        let too_long = std::mem::take(&mut self.too_long);
        let octets = std::mem::take(&mut self.record);
        let is_blank = octets.trim_ascii().is_empty() && self.format != ImportFormat::Json;
        (too_long || !is_blank).then_some(Record { line, end, octets: (!too_long).then_some(octets) })
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/api/imports/split.rs"]
mod tests;
