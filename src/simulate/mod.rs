//! What plays parts that the world plays in production: push services, years of retries, and a whole demonstration.

pub(crate) mod demo;
pub(crate) mod gateways;
pub(crate) mod policies;
