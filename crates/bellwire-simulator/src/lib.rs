//! Simulators: `gateways` plays the push services, with faults on request, and `policies` simulates retries under a policy on a
//! fast clock. The main types are [`gateways::Simulator`], [`gateways::Rule`], [`policies::Scenario`] and
//! [`policies::SimulationReport`]. The crate decrypts pushes with its own code and shares none with `bellwire-webpush`, so that
//! a fault there is detected.

pub mod gateways;
pub mod policies;
