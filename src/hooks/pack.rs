//! Packs events into requests. Any replica with the maintenance role does it, one at a time.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tracing::warn;

use super::event::{OutgoingEvent, body};
use bellwire_core::clock::{Clock, Timestamp, uuid_of};
use bellwire_core::event_type::EventType;
use bellwire_core::id::WebhookDeliveryId;
use bellwire_dispatch::idle::{AT_REST, Rest};
use bellwire_store::hooks::packing::{self, Hearer, NOTES_MAX, NewDelivery, STREAM_MAX};
use bellwire_vault::{Vault, WEBHOOK_BODY};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Maximum bytes of a request's body, unless a single event is longer.
const BODY_MAX: usize = 256 * 1024;

pub(crate) async fn pack_on(pool: PgPool, vault: Vault, clock: Clock, rest: Arc<Rest>) {
    loop {
        if let Err(error) = pack(&pool, &vault, clock.now()).await {
            warn!(%error, "what webhooks are to be told could not be packed; it is tried again");
        }
        rest.pause(LOOK_EVERY, AT_REST).await;
    }
}

/// Packs all events into requests.
pub async fn pack(pool: &PgPool, vault: &Vault, now: Timestamp) -> sqlx::Result<()> {
    while packing::any(pool).await? && round(pool, vault, now).await? {}
    Ok(())
}

/// Packs some events. Returns whether there may be more.
async fn round(pool: &PgPool, vault: &Vault, now: Timestamp) -> sqlx::Result<bool> {
    let Some(mut tx) = packing::begin(pool).await? else { return Ok(false) };
    let hearers = packing::hearers(&mut tx).await?;
    let (noted, notes) = packing::take_notes(&mut tx).await?;
    let mut apps: Vec<_> = hearers.iter().map(|hearer| hearer.app).collect();
    apps.sort_unstable();
    apps.dedup();
    let kinds = EventType::ALL.into_iter().filter(|kind| kind.is_for_webhooks());
    let kinds: Vec<_> = kinds.map(|kind| kind.name().to_owned()).collect();
    let about_server = |name: &String| EventType::from_name(name).is_some_and(EventType::is_about_server);
    let of_apps = (!hearers.iter().any(|hearer| hearer.events.iter().any(about_server))).then_some(apps.as_slice());
    let (streamed, told) = packing::take_stream(pool, &mut tx, of_apps, &kinds).await?;
    let mut events: Vec<OutgoingEvent> = notes.into_iter().filter_map(OutgoingEvent::noted).collect();
    events.extend(told.iter().filter_map(OutgoingEvent::told));
    for hearer in &hearers {
        let heard: Vec<&OutgoingEvent> = events.iter().filter(|event| hears(hearer, event)).collect();
        let requests = split(&heard, usize::try_from(hearer.max_events).unwrap_or(1));
        let kept = requests.len().min(usize::try_from(hearer.room).unwrap_or(0));
        let new: Vec<_> = requests[..kept].iter().map(|events| delivery(vault, hearer, events, now)).collect();
        packing::add(&mut tx, &new, now).await?;
        if kept < requests.len() {
            let dropped = requests[kept..].iter().map(|events| events.len()).sum();
            packing::dropped(&mut tx, hearer, dropped, now).await?;
        }
    }
    tx.commit().await?;
    Ok(noted == NOTES_MAX || streamed == STREAM_MAX)
}

fn hears(hearer: &Hearer, event: &OutgoingEvent) -> bool {
    event.app.is_none_or(|app| hearer.app == app)
        && event.at >= hearer.heard_from
        && hearer.events.iter().any(|name| name == event.kind.name())
}

/// Divides events into requests, in order. Each request has at most `max` events, and at most the allowed number of bytes.
fn split<'a, 'e>(events: &'e [&'a OutgoingEvent], max_events: usize) -> Vec<&'e [&'a OutgoingEvent]> {
    let (mut requests, mut from, mut octets) = (Vec::new(), 0, 0);
    for (place, event) in events.iter().enumerate() {
        let is_full = place - from >= max_events || octets + event.json.len() > BODY_MAX;
        if place > from && is_full {
            requests.push(&events[from..place]);
            (from, octets) = (place, 0);
        }
        octets += event.json.len() + 1;
    }
    if from < events.len() {
        requests.push(&events[from..]);
    }
    requests
}

fn delivery(vault: &Vault, hearer: &Hearer, events: &[&OutgoingEvent], now: Timestamp) -> NewDelivery {
    let id = WebhookDeliveryId(uuid_of(now));
    let body = body(events.iter().map(|event| event.json.as_str()));
    NewDelivery {
        id,
        webhook: hearer.id,
        events: events.len(),
        body: vault.seal(WEBHOOK_BODY, id, body.as_bytes()),
        subscriptions: packing::named(events.iter().filter_map(|event| event.names)),
    }
}

#[cfg(test)]
#[path = "../../tests/unit/hooks/pack.rs"]
mod tests;
