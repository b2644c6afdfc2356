//! SOCKS 5 (RFC 1928) with user name and password (RFC 1929).

use std::net::IpAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use zeroize::Zeroizing;

use super::{CREDENTIAL_MAX, Credentials, ProxyError, TunnelTarget};

const VERSION: u8 = 5;
/// Authentication methods of RFC 1928.
const NOBODY: u8 = 0;
const BY_PASSWORD: u8 = 2;
/// Version of the subnegotiation of RFC 1929.
const PASSWORD_VERSION: u8 = 1;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;
pub(super) async fn connect(
    mut tcp: TcpStream, target: TunnelTarget<'_>, credentials: Option<&Credentials>,
) -> Result<TcpStream, ProxyError> {
    sign_in(&mut tcp, credentials).await?;
    tcp.write_all(&request(target)?).await?;
    let [version, reply, _, kind] = read(&mut tcp).await?;
    if version != VERSION {
        return Err(ProxyError::Protocol);
    }
    if reply != 0 {
        return Err(ProxyError::Socks(words(reply)));
    }
    // The address that the proxy connects from is not used.
    let length = match kind {
        IPV4 => 4,
        IPV6 => 16,
        NAME => {
            let [length] = read(&mut tcp).await?;
            usize::from(length)
        }
        _ => return Err(ProxyError::Protocol),
    };
    let mut rest = [0; CREDENTIAL_MAX + 2];
    tcp.read_exact(&mut rest[..length + 2]).await?;
    Ok(tcp)
}

async fn sign_in(tcp: &mut TcpStream, credentials: Option<&Credentials>) -> Result<(), ProxyError> {
    let ways: &[u8] = if credentials.is_some() { &[VERSION, 2, NOBODY, BY_PASSWORD] } else { &[VERSION, 1, NOBODY] };
    tcp.write_all(ways).await?;
    match (read(tcp).await?, credentials) {
        ([VERSION, NOBODY], _) => Ok(()),
        ([VERSION, BY_PASSWORD], Some(Credentials { user, password })) => {
            let length = |text: &str| u8::try_from(text.len()).map_err(|_| ProxyError::Credentials);
            let mut said = Zeroizing::new(vec![PASSWORD_VERSION, length(user)?]);
            said.extend_from_slice(user.as_bytes());
            said.push(length(password)?);
            said.extend_from_slice(password.as_bytes());
            tcp.write_all(&said).await?;
            match read(tcp).await? {
                [PASSWORD_VERSION, 0] => Ok(()),
                _ => Err(ProxyError::Credentials),
            }
        }
        ([VERSION, 0xff], _) => Err(ProxyError::Credentials),
        _ => Err(ProxyError::Protocol),
    }
}

fn request(target: TunnelTarget<'_>) -> Result<Vec<u8>, ProxyError> {
    let mut request = vec![VERSION, CONNECT, 0];
    let port = match target {
        TunnelTarget::Name(host, port) => {
            let length = u8::try_from(host.len()).map_err(|_| ProxyError::Protocol)?;
            request.extend_from_slice(&[NAME, length]);
            request.extend_from_slice(host.as_bytes());
            port
        }
        TunnelTarget::Address(address) => {
            match address.ip() {
                IpAddr::V4(v4) => {
                    request.push(IPV4);
                    request.extend_from_slice(&v4.octets());
                }
                IpAddr::V6(v6) => {
                    request.push(IPV6);
                    request.extend_from_slice(&v6.octets());
                }
            }
            address.port()
        }
    };
    request.extend_from_slice(&port.to_be_bytes());
    Ok(request)
}

async fn read<const N: usize>(tcp: &mut TcpStream) -> Result<[u8; N], ProxyError> {
    let mut octets = [0; N];
    match tcp.read_exact(&mut octets).await {
        Ok(_) => Ok(octets),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(ProxyError::Protocol),
        Err(error) => Err(error.into()),
    }
}

/// Returns the meaning of a reply code (RFC 1928 section 6).
fn words(reply: u8) -> &'static str {
    match reply {
        1 => "general failure",
        2 => "not allowed by its rules",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "time to live expired",
        7 => "command not supported",
        8 => "kind of address not supported",
        _ => "a reply that has no meaning",
    }
}
