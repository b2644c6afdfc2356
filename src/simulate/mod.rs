//! What plays parts that the world plays in production: push services, years of retries, and a whole demonstration.

pub mod demo;
pub mod gateways;
pub mod policies;
