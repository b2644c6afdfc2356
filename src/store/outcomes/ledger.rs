//! The ledger of deliveries. Each transition is written here, in one place, together with everything that has to follow from
//! it: the row of the log, the counts, the dead letter, what is told.
//!
//! - A delivery *ends* by what its worker says in a [`Settlement`]: [`batch`] and [`rows`] write those, in one statement for
//!   hundreds of them, and [`consequences`] what an ending does beyond its own row. Whatever ends without another POST is
//!   [taken out of the queue](take) and [ended there](unsent); [`forged`] is the case in which nobody of ours put it in.
//! - It is *kept*, for a retry or another turn: [`batch`] and [`rows`] again.
//! - It is *enqueued* with its message (`queue::sending`, in the statement that stores both), with the next batch of a
//!   fan-out (`queue::claims`), or by [`enqueue`], whatever else puts it there.
//!
//! When what waits is due may change without a transition: claims, leases, holds and pauses only move it.

mod batch;
pub(crate) mod closing;
mod consequences;
mod dead_letters;
pub(crate) mod enqueue;
pub(crate) mod forged;
pub(crate) mod log;
#[cfg(test)]
mod properties;
pub(in crate::store) mod prune;
mod rows;
pub(crate) mod settlement;
pub(crate) mod take;
pub(crate) mod unsent;

pub(crate) use batch::settle_batch;
pub use rows::settle_rows;
pub use settlement::{Attempt, Delivery, Due, End, Fate, Origin, RowSettlement, Settlement};
pub(crate) use settlement::{Death, Fenced, Sla};
