//! Ledger of deliveries. Each transition is written here, in one place, with all its consequences: the row of the log, the
//! counts, the dead letter, the events.
//!
//! - A delivery *ends* by the [`Settlement`] of its worker. [`batch`] and [`rows`] write settlements, hundreds in one statement,
//!   and [`consequences`] the effects of an ending beyond its own row. Deliveries that end without another POST are [taken out of
//!   the queue](take) and [ended there](unsent). [`forged`] ends rows that no worker wrote.
//! - It is *kept*, for a retry or another turn: [`batch`] and [`rows`] again.
//! - It is *enqueued* with its message (`queue::sending`, in the statement that stores both), with the next batch of a fan-out
//!   (`queue::claims`), or by [`enqueue`] in all other cases.
//!
//! The due time of waiting deliveries may also change without a transition: claims, leases, holds and pauses only move it.

mod batch;
pub mod closing;
mod consequences;
mod dead_letters;
pub mod enqueue;
pub mod forged;
pub mod log;
#[cfg(test)]
#[path = "../../../../tests/crates/store/unit/outcomes/ledger/properties.rs"]
mod properties;
pub(crate) mod prune;
mod rows;
pub mod settlement;
pub mod take;
pub mod unsent;

pub use batch::settle_batch;
pub use rows::settle_rows;
pub use settlement::{Attempt, ClaimableAt, Delivery, End, Fate, MessageOrigin, RowSettlement, Settlement};
pub use settlement::{Death, Fenced, Sla};
