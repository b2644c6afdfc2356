//! Core types of Bellwire: ids, the clock, durations, names, messages and their content, subscriptions, deliveries, lanes,
//! permissions and roles. The main types are [`id::SubscriptionId`] and its siblings, [`clock::Clock`], [`message::Content`],
//! [`subscription::Endpoint`], [`delivery::Tier`] and [`permission::Maker`]. This crate does no I/O except that `clock` reads
//! the time, and needs no async runtime. `sqlx`, `utoipa` and `clap` are optional, by features of these names (`openapi` for
//! `utoipa`).

pub mod assignment;
pub mod base64url;
pub mod clock;
pub mod delivery;
pub mod duration;
pub mod engagement_stats;
pub mod event_type;
pub mod fact;
pub mod hook;
pub mod id;
pub mod lane;
pub mod locale;
pub mod log_filter;
pub mod message;
mod named;
#[cfg(feature = "openapi")]
pub mod openapi;
pub mod opt_in;
pub mod origin;
pub mod permission;
pub mod person;
pub mod request_time;
pub mod role;
pub mod scope;
pub mod subscription;
pub mod template;
pub mod time_zone;
pub mod user_event;

/// Re-exported for the macros of this crate, so that callers need no dependency of their own.
#[cfg(feature = "sqlx")]
#[doc(hidden)]
pub use sqlx;
