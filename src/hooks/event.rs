//! Events as receivers get them. Their shape is a stable interface: members may be added, never changed or removed.

use serde::Serialize;
use serde_json::{Value, json};

use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::ReceiptKind;
use bellwire_core::event_type::EventType;
use bellwire_core::hook::receipt_of_note;
use bellwire_core::id::{AppId, EventId, SubscriptionId};
use bellwire_store::hooks::packing::{Note, PackedEvent};

#[derive(Debug)]
pub(super) struct OutgoingEvent {
    /// App of the event. `None`: the server.
    pub app: Option<AppId>,
    pub kind: EventType,
    pub at: Timestamp,
    /// Subscription whose user is named in the event.
    pub names: Option<SubscriptionId>,
    pub json: String,
}

/// Body of a request, with the members that Standard Webhooks proposes.
#[derive(Serialize)]
struct WebhookPayload<'a> {
    id: EventId,
    #[serde(rename = "type")]
    kind: EventType,
    timestamp: Timestamp,
    data: &'a Value,
}

fn write(id: EventId, kind: EventType, timestamp: Timestamp, data: &Value) -> String {
    serde_json::to_string(&WebhookPayload { id, kind, timestamp, data }).expect("texts and numbers")
}

impl OutgoingEvent {
    /// Converts a note to an event. `None` if a newer version of the program wrote the note's kind.
    pub(super) fn noted(note: Note) -> Option<Self> {
        let kind = EventType::of_note(note.kind)?;
        let mut data = json!({
            "message": note.message, "campaign": note.campaign, "subscription": note.subscription, "user_id": note.user_id,
        });
        match kind {
            EventType::DeliveryWithdrawn => {
                data["withdraws"] = json!(note.withdraws);
                data["result"] = json!(receipt_of_note(note.kind).map(ReceiptKind::name));
            }
            EventType::DeliveryClicked => data["action"] = json!(note.action),
            EventType::DeliveryDisplayed | EventType::DeliveryClosed | EventType::DeliveryAccepted => {}
            _ => {
                data["attempts"] = json!(note.attempt.map(|attempt| attempt + 1));
                data["status"] = json!(note.status);
                data["reason"] = json!(note.reason);
            }
        }
        let names = note.user_id.is_some().then_some(note.subscription);
        Some(Self { app: Some(note.app), kind, at: note.at, names, json: write(note.id, kind, note.at, &data) })
    }

    pub(super) fn told(told: &PackedEvent) -> Option<Self> {
        let kind = match EventType::from_name(&told.kind)? {
            EventType::AlertRaised if told.app.is_none() => EventType::ServerAlertRaised,
            EventType::AlertResolved if told.app.is_none() => EventType::ServerAlertResolved,
            _ if told.app.is_none() => return None,
            kind => kind,
        };
        let json = write(told.id, kind, told.at, &told.data);
        Some(Self { app: told.app, kind, at: told.at, names: told.names, json })
    }
}

pub(crate) fn test(id: EventId, webhook: impl Serialize, at: Timestamp) -> String {
    body([write(id, EventType::WebhookTest, at, &json!({"webhook": webhook})).as_str()].into_iter())
}

/// Returns the body of a request with these events: a JSON array.
pub(super) fn body<'a>(events: impl Iterator<Item = &'a str>) -> String {
    let mut body = String::from("[");
    for (place, event) in events.enumerate() {
        if place > 0 {
            body.push(',');
        }
        body.push_str(event);
    }
    body.push(']');
    body
}
