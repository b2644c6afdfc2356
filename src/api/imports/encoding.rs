//! Detects the encoding and type of a file from its first bytes.

use std::borrow::Cow;

use bytes::Bytes;
use encoding_rs::{Decoder, Encoding, UTF_8, UTF_16BE, UTF_16LE};

use super::super::http::problem::Problem;
use super::entry::UNREADABLE;
use super::split::ImportFormat;

/// Number of bytes used to detect the type of a file.
const HEAD: usize = 64;
/// First bytes of unsupported file types, with the remedy.
const OTHERS: [(&[u8], &str); 11] = [
    (b"PK\x03\x04", "a ZIP archive, as .xlsx, .ods and .numbers files are: save the sheet as CSV (UTF-8)"),
    (b"\xd0\xcf\x11\xe0", "an old Office file such as .xls: save the sheet as CSV (UTF-8)"),
    (b"\x1f\x8b", "a gzip file: decompress it first"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file: decompress it first"),
    (b"BZh", "a bzip2 file: decompress it first"),
    (b"SQLite format 3", "an SQLite database: export the table as CSV or JSON"),
    (b"%PDF", "a PDF file: export the table as CSV or JSON"),
    (b"<", "HTML or XML: export the table as CSV or JSON"),
    (b"INSERT ", "an SQL dump: export the table as CSV or JSON"),
    (b"CREATE ", "an SQL dump: export the table as CSV or JSON"),
    (b"-- ", "an SQL dump: export the table as CSV or JSON"),
];

/// Converts a file to UTF-8 as it arrives, and keeps its first bytes.
pub(super) struct Transcoder {
    named: Option<&'static Encoding>,
    decoder: Option<Decoder>,
    head: Vec<u8>,
    /// Whether bytes were invalid in the encoding, and no character outside ASCII was valid.
    is_foreign: bool,
}

impl Transcoder {
    /// Creates a decoder for the encoding with this WHATWG label. A byte-order mark has precedence.
    pub(super) fn new(charset: Option<&str>) -> Result<Self, Problem> {
        let encoding = |label: &str| {
            let rule = "must be the label of an encoding, such as `utf-8`, `windows-1252` or `utf-16`";
            Encoding::for_label(label.as_bytes()).ok_or_else(|| Problem::invalid_parameter("charset", rule))
        };
        Ok(Self { named: charset.map(encoding).transpose()?, decoder: None, head: Vec::new(), is_foreign: false })
    }

    /// Decodes the next bytes. Invalid bytes become U+FFFD.
    pub(super) fn decode(&mut self, octets: &[u8], is_last: bool) -> Bytes {
        if self.decoder.is_none() && octets.is_empty() {
            return Bytes::new();
        }
        // Without a mark, each second octet of ASCII in UTF-16 is zero.
        let guess = || match octets {
            [_, 0, ..] => UTF_16LE,
            [0, _, ..] => UTF_16BE,
            _ => UTF_8,
        };
        let decoder = self.decoder.get_or_insert_with(|| self.named.unwrap_or_else(guess).new_decoder());
        let mut text =
            String::with_capacity(decoder.max_utf8_buffer_length(octets.len()).unwrap_or(octets.len() * 3 + 16));
        let (.., has_errors) = decoder.decode_to_string(octets, &mut text, is_last);
        self.is_foreign |= has_errors && text.chars().all(|c| c.is_ascii() || c == UNREADABLE);
        let missing = HEAD.saturating_sub(self.head.len());
        let begins = if self.head.is_empty() {
            text.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{1e}')
        } else {
            &text
        };
        self.head.extend(begins.bytes().take(missing));
        self.raw_head(octets);
        text.into()
    }

    /// Keeps the first bytes of the file as they are.
    fn raw_head(&mut self, octets: &[u8]) {
        if OTHERS.iter().any(|(begin, _)| octets.starts_with(begin)) && self.head.len() <= octets.len() * 3 {
            self.head = octets.iter().copied().take(HEAD).collect();
        }
    }

    /// Describes the fault if the file is clearly not of the given format. `None`: it may be.
    pub(super) fn misfit(&self, format: ImportFormat) -> Option<String> {
        let head = self.head.as_slice();
        let expected = match format {
            ImportFormat::Ndjson => "a JSON object on each line",
            ImportFormat::Csv => "a line of names and rows below it",
            ImportFormat::Json => "a JSON array of subscriptions",
        };
        let found: Cow<'_, str> = match (OTHERS.iter().find(|(begin, _)| head.starts_with(begin)), format, head.first())
        {
            (_, _, None) => "an empty file".into(),
            (Some((_, found)), ..) => (*found).into(),
            (_, ImportFormat::Ndjson | ImportFormat::Csv, Some(b'[')) => "a JSON array: set the format to `json`".into(),
            (_, ImportFormat::Csv, Some(b'{')) => "JSON objects: set the format to `ndjson`, or to `json`".into(),
            (_, ImportFormat::Ndjson | ImportFormat::Json, Some(first)) if !b"{[".contains(first) => {
                "text that is no JSON: set the format to `csv` if it is a table".into()
            }
            _ if self.is_foreign => {
                "text that is not UTF-8: save the file as UTF-8, or name its encoding by `charset`, such as `windows-1252`".into()
            }
            _ => return None,
        };
        Some(format!("found {found}; expected {expected}"))
    }
}
