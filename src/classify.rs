//! What a gateway's answer means: status, headers and body, or a transport failure, become one outcome.

/// Why a POST got no answer. Made by [`crate::gateway`], read by [`classify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The endpoint's host has no address.
    Resolve,
    /// The endpoint's host is not one that may be talked to, or resolves to an address that is not public.
    Forbidden,
    /// No TCP connection.
    Connect,
    /// No TLS session: bad certificate or handshake.
    Tls,
    /// The gateway did not take the request: REFUSED_STREAM, or a stream above GOAWAY's last id (RFC 9113 section 8.7).
    /// Sending it again cannot double it.
    Unprocessed,
    /// The connection or stream broke after the request may have been read.
    Reset,
    /// The peer broke the protocol.
    Protocol,
    /// No complete answer before the deadline.
    Deadline,
}
