//! All SQL, a file per table group. Functions are named after the transition they make; what is expected to happen
//! comes back as a value, and an error means that the database failed.

pub mod api_keys;
pub mod apps;
pub mod cancelling;
pub mod claims;
pub mod copy;
pub mod endings;
pub mod idempotency;
pub mod lanes;
pub mod registration;
pub mod retrying;
pub mod settle;
pub mod stops;
pub mod subscriptions;
pub mod topics;
pub mod vapid_keys;
pub mod workers;
