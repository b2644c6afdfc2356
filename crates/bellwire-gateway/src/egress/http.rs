//! CONNECT (RFC 9110 section 9.3.6): after the head of any 2xx a tunnel begins.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use zeroize::Zeroizing;

use super::{ProxyError, TunnelTarget};

/// Maximum octets of the head of a response.
const HEAD_MAX: usize = 8 << 10;
const FIELDS_MAX: usize = 64;
pub(super) async fn connect(
    mut tcp: TcpStream, target: TunnelTarget<'_>, authorization: Option<Zeroizing<String>>,
) -> Result<TcpStream, ProxyError> {
    let authority = match target {
        TunnelTarget::Name(host, port) => format!("{host}:{port}"),
        TunnelTarget::Address(address) => address.to_string(),
    };
    let mut head = Zeroizing::new(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n"));
    if let Some(authorization) = authorization {
        *head += "Proxy-Authorization: ";
        *head += &authorization;
        *head += "\r\n";
    }
    *head += "\r\n";
    tcp.write_all(head.as_bytes()).await?;
    match read_status(&mut tcp).await? {
        200..=299 => Ok(tcp),
        407 | 401 => Err(ProxyError::Credentials), // tinyproxy responds with 401 to other credentials
        status => Err(ProxyError::Status(status)),
    }
}

/// Reads the head of a response. A 2xx is not followed by other octets, because the client starts TLS. The body of
/// another status is ignored.
async fn read_status(tcp: &mut TcpStream) -> Result<u16, ProxyError> {
    let (mut head, mut read) = ([0; HEAD_MAX], 0);
    loop {
        match tcp.read(&mut head[read..]).await? {
            0 => return Err(ProxyError::Protocol), // it hung up, or its head has no end
            n => read += n,
        }
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut answer = httparse::Response::new(&mut fields);
        let parsed = answer.parse(&head[..read]).map_err(|_| ProxyError::Protocol)?;
        if let httparse::Status::Complete(length) = parsed {
            let status = answer.code.ok_or(ProxyError::Protocol)?;
            let is_tunnel = (200..=299).contains(&status);
            return if is_tunnel && length < read { Err(ProxyError::Protocol) } else { Ok(status) };
        }
    }
}
