//! Templates: content written once that reads differently to each recipient. `Compiled` is a checked template, `Person` holds the
//! facts of one recipient, `Filled` is a notification that fits into a push, and `Fault` describes an error with its position. The
//! language is minijinja's without the parts that let a short text grow or run for long. This crate does no I/O, and a value never
//! becomes markup or decides where a link leads.
//!
//! ```text
//! author's JSON ─ compile ─► what is the same for everybody, filled in ─┐
//!                     └────► texts that ask for the recipient ──────────┴─ fill(person) ─► a notification that fits
//! ```

mod compile;
mod fault;
mod fill;
mod grammar;
mod language;
mod person;

pub use compile::Compiled;
pub use fault::{TemplateFault, TemplateFaultKind};
pub use fill::Filled;
pub use language::COMPLAINTS;
pub use person::TemplatePerson;

/// Maximum languages of a template in addition to the default.
pub const LOCALES_MAX: usize = 50;
/// Maximum bytes of a template, as JSON.
pub(crate) const TEMPLATE_MAX: usize = 32_768;
/// Maximum bytes of a message's `data`, as JSON.
pub const DATA_MAX: usize = 8_192;
