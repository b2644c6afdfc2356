//! Access: apps, their keys of each kind, teammates with passkeys and sessions, the keys that seal all of them, the server's
//! certificates, and the audit log.

pub(crate) mod api_keys;
pub(crate) mod apps;
pub(crate) mod audit;
pub(crate) mod certificates;
pub(crate) mod data_keys;
pub(crate) mod identity_keys;
pub(crate) mod oidc;
pub(crate) mod passkeys;
pub(crate) mod resealing;
pub(crate) mod sessions;
pub(crate) mod team;
pub(crate) mod vapid_keys;
