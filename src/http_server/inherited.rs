//! A socket that a service manager such as systemd opened, and holds from one server to the next: whoever connects while one stops
//! and the next starts waits, and is not refused.

use std::io;

use listenfd::ListenFd;
use tokio::net::TcpListener;

/// The sockets that were handed to this process, as sd_listen_fds(3) has it.
pub(crate) struct Inherited(ListenFd);

impl Inherited {
    /// Takes them over, and removes the variables that told of them. To be called before there are other threads, which might
    /// read the environment at that moment.
    pub(crate) fn take() -> Self {
        Self(ListenFd::from_env())
    }

    /// The one to serve on, open for Tokio; none if there is none. Fails if there are several, of which none is the right one, and
    /// if it is not of TCP.
    pub(crate) fn listener(mut self) -> io::Result<Option<TcpListener>> {
        if self.0.len() > 1 {
            let error = format!("there are {} sockets, of which only one can be served", self.0.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        let Some(listener) = self.0.take_tcp_listener(0)? else { return Ok(None) };
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener).map(Some)
    }
}
