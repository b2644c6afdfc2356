//! Detection of ambiguous HTTP/1.1 heads. A proxy and this server could disagree about the end of such a request (RFC
//! 9112 section 11.2). The HTTP library accepts more than the RFC, so its result is checked here.

use std::net::Ipv6Addr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, Version, header};

use super::progress::ConnectionProgress;

/// Returns the reason to reject a request.
pub(super) fn fault(version: Version, headers: &HeaderMap, has_bare_lf: bool) -> Option<&'static str> {
    if has_bare_lf {
        return Some("A line of the request's head ends in LF without CR.");
    }
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if version >= Version::HTTP_11 => return Some("The header Host is missing."),
        (Some(_), Some(_)) => return Some("The header Host occurs more than once."),
        (Some(host), None) if !host.to_str().is_ok_and(is_host) => {
            return Some("The header Host is not `host` or `host:port`.");
        }
        _ => {}
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_chunked = codings.next().is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    (!is_chunked || codings.next().is_some()).then_some("The only Transfer-Encoding is `chunked`, once.")
}

/// Whether a text is `host` or `host:port`.
fn is_host(text: &str) -> bool {
    let Ok(authority) = text.parse::<Authority>() else { return false };
    let host = authority.host();
    let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host =
        in_brackets.map_or(!host.is_empty() && !host.contains(['[', ']']), |v6| v6.parse::<Ipv6Addr>().is_ok());
    // Without user information, the host is what the text begins with.
    let port = text.strip_prefix(host).filter(|_| is_host && !text.contains('@'));
    port.is_some_and(|port| {
        let digits = port.strip_prefix(':').unwrap_or(port);
        let is_number = digits.bytes().all(|octet| octet.is_ascii_digit()) && digits.parse::<u16>().is_ok();
        port.is_empty() || (port.starts_with(':') && (digits.is_empty() || is_number))
    })
}

/// State of the parser before the next octet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParserState {
    Head,
    /// After a head. The length of the body is unknown until the library has parsed the head.
    HeadEnd,
    /// In a body with this number of octets left.
    Body(u64),
    /// In a chunked body. The library finds its end, and the connection closes after it.
    Chunks,
}

/// Detects a bare LF in heads while octets arrive.
#[derive(Debug)]
pub(super) struct Heads {
    at: ParserState,
    /// Whether the head has a non-empty line.
    has_begun: bool,
    line_is_empty: bool,
    after_cr: bool,
}

impl Heads {
    pub(super) fn new() -> Self {
        Self { at: ParserState::Head, has_begun: false, line_is_empty: true, after_cr: false }
    }

    /// Whether the next octets must wait until the library has parsed the head.
    pub(super) fn is_at_end_of_head(&mut self, progress: &ConnectionProgress) -> bool {
        if self.at == ParserState::HeadEnd
            && let Some(body) = progress.take_body()
        {
            self.at = body.map_or(ParserState::Chunks, ParserState::Body);
        }
        self.at == ParserState::HeadEnd
    }

    /// Returns the number of octets that the library may read, up to the end of the next head. Records a bare LF.
    pub(super) fn pass(&mut self, octets: &[u8], progress: &ConnectionProgress) -> usize {
        let mut passed = 0;
        while passed < octets.len() {
            match self.at {
                ParserState::HeadEnd => break,
                ParserState::Chunks => return octets.len(),
                ParserState::Body(0) => *self = Self::new(),
                ParserState::Body(left) => {
                    let part = (octets.len() - passed).min(usize::try_from(left).unwrap_or(usize::MAX));
                    passed += part;
                    self.at = ParserState::Body(left - part as u64);
                }
                ParserState::Head => {
                    self.read(octets[passed], progress);
                    passed += 1;
                }
            }
        }
        passed
    }

    fn read(&mut self, octet: u8, progress: &ConnectionProgress) {
        match octet {
            b'\n' => {
                if !self.after_cr {
                    progress.note_bare_lf();
                }
                // Empty lines before a request are allowed.
                if self.line_is_empty && self.has_begun {
                    self.at = ParserState::HeadEnd;
                }
                self.has_begun |= !self.line_is_empty;
                self.line_is_empty = true;
            }
            b'\r' => {}
            _ => self.line_is_empty = false,
        }
        self.after_cr = octet == b'\r';
    }
}
