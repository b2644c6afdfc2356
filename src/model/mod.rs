//! The nouns: what Bellwire speaks of, what each may be, and how it is written down. No I/O, but for the [`clock`].

pub mod clock;
pub mod delivery;
pub mod id;
pub mod lane;
pub mod message;
mod named;
pub mod permission;
pub mod subscription;

pub(crate) use named::named;
