//! The nouns: what Bellwire speaks of, what each may be, and how it is written down. No I/O, but for the [`clock`].

pub(crate) mod base64url;
pub(crate) mod clock;
pub(crate) mod delivery;
pub(crate) mod duration;
pub(crate) mod fact;
pub(crate) mod filter;
pub(crate) mod habits;
pub(crate) mod hook;
pub(crate) mod id;
pub(crate) mod lane;
pub(crate) mod log_filter;
pub(crate) mod message;
mod named;
pub(crate) mod permission;
pub(crate) mod person;
pub(crate) mod role;
pub(crate) mod scope;
pub(crate) mod subscription;
pub(crate) mod template;

pub(crate) use named::named;
