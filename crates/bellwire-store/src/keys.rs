//! Access: apps with their keys, teammates with passkeys and sessions, encryption keys, the server's certificates, and the
//! audit log.

pub mod api_keys;
pub mod apps;
pub mod audit;
pub mod certificates;
pub mod data_keys;
pub mod identity_keys;
pub mod oidc;
pub mod passkeys;
pub mod resealing;
pub mod sessions;
pub mod team;
pub mod vapid_keys;
