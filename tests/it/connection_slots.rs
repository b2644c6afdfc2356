//! Slots of connections: shares of a client, an IPv6 /64 and an IPv6 /48, and which connection gives way.

use bellwire_net::http_server::ListenerLimits;
use bellwire_net::http_server::slots::{ConnectionSlot, ConnectionSlots, Full};

fn slots(connections: usize, connections_per_client: Option<usize>) -> ConnectionSlots {
    ConnectionSlots::new(&ListenerLimits { connections, connections_per_client, ..ListenerLimits::default() })
}

/// Takes a slot for a connection that has a request at once.
fn take(slots: &ConnectionSlots, address: &str, in_handshake: bool) -> Result<ConnectionSlot, Full> {
    slots.take(address.parse().unwrap(), in_handshake).inspect(|slot| slot.activity.begin())
}

/// Slots that one address after the other gets before one is refused.
fn taken(
    slots: &ConnectionSlots, in_handshake: bool, address: impl Fn(usize) -> String,
) -> (Vec<ConnectionSlot>, Full) {
    let mut held = Vec::new();
    loop {
        match take(slots, &address(held.len()), in_handshake) {
            Ok(slot) => held.push(slot),
            Err(full) => return (held, full),
        }
    }
}

#[test]
fn clients_and_sites_have_limits_of_connections() {
    let addresses: [fn(usize) -> String; 3] =
        [|_| "192.0.2.1".to_owned(), |_| "::ffff:192.0.2.1".to_owned(), |n| format!("2001:db8::{n:x}:1")];
    for address in addresses {
        let slots = slots(1_000, Some(8));
        let (held, full) = taken(&slots, false, address);
        assert_eq!((held.len(), full), (8, Full::Client), "{}", address(1));
        let _other = take(&slots, "2001:db8:0:1::1", false).unwrap();
        drop(held);
        assert_eq!(taken(&slots, false, address).0.len(), 8, "slots come back");
    }
    let slots = slots(1_000, Some(8));
    let (site, full) = taken(&slots, false, |n| format!("2001:db8:0:{n:x}::1"));
    assert_eq!((site.len(), full), (32, Full::Client), "an IPv6 /48");
    let _other = take(&slots, "2001:db8:1::1", false).unwrap();
}

#[test]
fn clients_and_sites_have_limits_of_handshakes() {
    let slots = slots(1_000, Some(8));
    let (client, full) = taken(&slots, true, |_| "192.0.2.1".to_owned());
    assert_eq!((client.len(), full), (2, Full::Handshakes));
    client[0].end_handshake();
    let _next = take(&slots, "192.0.2.1", true).unwrap();
    let (site, full) = taken(&slots, true, |n| format!("2001:db8:0:{n:x}::1"));
    assert_eq!((site.len(), full), (8, Full::Handshakes), "an IPv6 /48");
}

#[test]
fn newcomer_gets_longest_idle_slot_unless_busy() {
    // Behind a proxy, one address may have all.
    let slots = slots(2, None);
    let take = || slots.take([10, 0, 0, 1].into(), false);
    let (first, second) = (take().unwrap(), take().unwrap());
    first.activity.begin();
    let third = take().unwrap();
    assert!(third.made_room);
    third.activity.begin();
    drop(second);
    assert_eq!(take().err(), Some(Full::All), "the slot of the second connection is the third's");
    first.activity.wait();
    assert!(take().unwrap().made_room);
}
