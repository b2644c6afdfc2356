//! Who may do what: apps, their keys of every kind, the keys that seal all of them, and the log of who did what.

pub mod api_keys;
pub mod apps;
pub mod audit;
pub mod data_keys;
pub mod identity_keys;
pub mod vapid_keys;
