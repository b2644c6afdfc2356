//! Simulators of the outside world: `gateways` plays the push services, with faults on request, and `policies` plays years of retries
//! under a policy in moments. The main types are [`gateways::Simulator`], [`gateways::Rule`], [`policies::Scenario`] and [`policies::Report`].
//! This crate opens pushes with code of its own and shares none with `bellwire-webpush`, so that a mistake there is seen here.

pub mod gateways;
pub mod policies;
