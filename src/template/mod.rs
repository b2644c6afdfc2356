//! Templates: what is written once and reads differently to each recipient.
//!
//! ```text
//! author's JSON ─ compile ─► what is the same for everybody, filled in ─┐
//!                     └────► texts that ask for the recipient ──────────┴─ fill(person) ─► a notification that fits
//! ```
//!
//! The language is minijinja's, less what lets a short text grow or run for long ([`grammar`], [`language`]). A text that asks
//! for nothing of its recipient is filled in once, when the template is compiled, and costs no recipient anything. Values are
//! data: they never become markup of the notification, and never decide where a link leads.

mod compile;
mod fault;
mod fill;
mod grammar;
mod language;
mod person;
#[cfg(test)]
mod tests;

pub use compile::Compiled;
pub use fault::{Fault, Kind};
pub use fill::Filled;
pub use person::Person;

/// Most languages of a template beside its own.
pub(crate) const LOCALES_MAX: usize = 50;
/// Most octets of a template, as JSON.
pub(crate) const TEMPLATE_MAX: usize = 32_768;
/// Most octets of a message's `data`, as JSON.
pub(crate) const DATA_MAX: usize = 8_192;
