//! Deliveries in progress: messages, waiting rows and cursors, claims, and stops and limits.

pub(crate) mod calendars;
pub(crate) mod caps;
pub(crate) mod claims;
pub(crate) mod flows;
pub(crate) mod gone_watches;
pub(crate) mod guards;
pub(crate) mod lanes;
pub(crate) mod messages;
pub(crate) mod opening;
pub(crate) mod policies;
pub(crate) mod recall;
pub(crate) mod sending;
pub(crate) mod steering;
pub(crate) mod stops;
pub(crate) mod subscription_holds;
pub(crate) mod templates;
pub(crate) mod throttles;
