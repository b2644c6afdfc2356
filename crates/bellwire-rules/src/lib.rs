//! The decisions of Bellwire: `policy` (when a failed delivery is retried, and when it ends), `classify` (the meaning of a push
//! service's response), `campaign` (the messages of a plan) and `explain` (the explanation of one delivery). The main types are
//! [`policy::Policy`], [`policy::Layer`], [`classify::Outcome`], `campaign::plan::Plan` and [`explain::Facts`]. Every decision
//! is a function of its arguments: this crate has no I/O, no runtime and no clock.

pub mod campaign;
pub mod classify;
pub mod explain;
pub mod policy;
