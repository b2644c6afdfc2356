//! store
pub mod claims;
pub mod copy;
pub mod endings;
pub mod settle;
pub mod stops;
pub mod workers;
