//! Webhooks: who is told, what there is to tell, and the requests that it becomes.

pub(crate) mod deliveries;
pub(crate) mod notes;
pub(crate) mod packing;
pub(crate) mod webhooks;
