//! The nouns of Bellwire: ids, the clock, durations, names, messages and their content, subscriptions, deliveries, lanes,
//! permissions and roles. The main types are [`id::SubscriptionId`] and its siblings, [`clock::Clock`], [`message::Content`],
//! [`subscription::Endpoint`], [`delivery::Tier`] and [`permission::Maker`]. This crate does no I/O except that `clock` reads the time, and it
//! needs no runtime. `sqlx`, `utoipa` and `clap` reach it only through the features `sqlx`, `openapi` and `clap`.

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
pub mod origin;
pub mod permission;
pub mod person;
pub mod request_time;
pub mod role;
pub mod scope;
pub mod subscription;
pub mod template;
pub mod time_zone;

/// Named by the macros of this crate, so that a caller needs no dependency of its own.
#[cfg(feature = "sqlx")]
#[doc(hidden)]
pub use sqlx;
