//! Webhooks: events are delivered to apps over HTTP, at least once, with the signatures of Standard Webhooks.
//!
//! ```text
//! settlings, receipts ── webhook_notes ──┐
//! campaigns, messages, alerts ── stream_events ──┤ pack: a request for many events, a row each
//!                                                ▼
//!                  webhook_deliveries ── claim ─► sign ─► post ─► settle: taken · retry · failed (replay)
//! ```
//!
//! Each webhook has its own task while an event is due for it, a few concurrent requests, and its own circuit breaker. A slow receiver
//! delays neither other receivers nor pushes.

mod event;
mod pack;
mod send;
mod signature;

pub(crate) use event::test as test_event;
pub use pack::pack;
pub(crate) use pack::pack_on;
pub use send::Sender;
pub(crate) use send::send_on;
pub(crate) use signature::{Secret, generate};
