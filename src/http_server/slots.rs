//! Who has how many connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Limits;
use crate::http_server::address::household;

/// How many connections each client has open.
type Clients = Arc<Mutex<HashMap<IpAddr, usize>>>;

/// The connections that there may be.
pub(super) struct ConnectionSlots {
    all: Arc<Semaphore>,
    per_client: Option<usize>,
    clients: Clients,
}

/// Room for one connection, given back when it is dropped.
pub(super) struct ConnectionSlot {
    _place: OwnedSemaphorePermit,
    of_client: Option<(IpAddr, Clients)>,
}

/// Why there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Full {
    /// All slots are taken.
    #[error("all connections that there may be are open (connections_max)")]
    All,
    /// The client has all that one may have.
    #[error("one client has all connections that it may have (connections_per_client)")]
    Client,
}

impl ConnectionSlots {
    pub(super) fn new(limits: &Limits) -> Self {
        let all = Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)));
        Self { all, per_client: limits.connections_per_client, clients: Arc::default() }
    }

    pub(super) fn take(&self, address: IpAddr) -> Result<ConnectionSlot, Full> {
        let place = self.all.clone().try_acquire_owned().map_err(|_| Full::All)?;
        let of_client = match self.per_client {
            None => None,
            Some(most) => {
                let client = household(address);
                let mut clients = self.clients.lock();
                let taken = clients.entry(client).or_insert(0);
                if *taken >= most {
                    return Err(Full::Client);
                }
                *taken += 1;
                Some((client, self.clients.clone()))
            }
        };
        Ok(ConnectionSlot { _place: place, of_client })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let Some((client, clients)) = &self.of_client else { return };
        let mut clients = clients.lock();
        if let Some(taken) = clients.get_mut(client) {
            *taken -= 1;
            if *taken == 0 {
                clients.remove(client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_its_places_and_no_more_and_leaves_no_trace() {
        let slots =
            ConnectionSlots::new(&Limits { connections: 3, connections_per_client: Some(2), ..Limits::default() });
        let take = |address: &str| slots.take(address.parse().unwrap());
        let (first, second) = (take("2001:db8::1").unwrap(), take("2001:db8::2").unwrap());
        assert_eq!(take("2001:db8::3").err(), Some(Full::Client), "one /64 is one client");
        let other = take("192.0.2.1").unwrap();
        assert_eq!(take("192.0.2.2").err(), Some(Full::All));
        drop(first);
        let again = take("2001:db8::3").unwrap();
        drop((second, other, again));
        assert!(slots.clients.lock().is_empty());
        assert_eq!(slots.all.available_permits(), 3);
    }

    #[test]
    fn behind_a_proxy_one_address_may_have_all() {
        let slots = ConnectionSlots::new(&Limits { connections: 2, connections_per_client: None, ..Limits::default() });
        let (_first, _second) = (slots.take([10, 0, 0, 1].into()), slots.take([10, 0, 0, 1].into()).unwrap());
        assert_eq!(slots.take([10, 0, 0, 1].into()).err(), Some(Full::All));
    }
}
