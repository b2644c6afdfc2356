//! Webhooks: apps are told over HTTP of what happens, at least once, with the signatures of Standard Webhooks.
//!
//! ```text
//! settlings, receipts ── webhook_notes ──┐
//! campaigns, messages, alerts ── stream_events ──┤ pack: a request for many events, a row each
//!                                                ▼
//!                  webhook_deliveries ── claim ─► sign ─► post ─► settle: taken · retry · failed (replay)
//! ```
//!
//! Each webhook has a task of its own while something is due for it, a few requests in flight, and its own circuit breaker: one that is
//! slow or hangs holds up nobody else, and no push.

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
