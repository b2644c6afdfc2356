//! Webhooks: receivers, events and requests.

pub mod deliveries;
pub mod notes;
pub mod packing;
pub mod webhooks;
