//! A socket from a service manager such as systemd, which keeps it open between two servers. Clients that connect
//! during a restart wait and are not refused.

use std::io;

use listenfd::ListenFd;
use tokio::net::TcpListener;

/// Sockets that were passed to this process, see sd_listen_fds(3).
pub struct Inherited(ListenFd);

impl Inherited {
    /// Takes the sockets and removes their environment variables. Must run before other threads start, because these
    /// could read the environment at the same time.
    pub fn take() -> Self {
        Self(ListenFd::from_env())
    }

    /// Returns the socket to serve on, or `None` without a socket. Several sockets, or a socket other than TCP, are an
    /// error.
    pub fn listener(mut self) -> io::Result<Option<TcpListener>> {
        if self.0.len() > 1 {
            let error = format!("there are {} sockets, of which only one can be served", self.0.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        let Some(listener) = self.0.take_tcp_listener(0)? else { return Ok(None) };
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener).map(Some)
    }
}
