//! Webhooks: who is told, what there is to tell, and the requests that it becomes.

pub mod deliveries;
pub mod notes;
pub mod packing;
pub mod webhooks;
