//! Observability of a process: metrics, OpenTelemetry spans and their export, and panics.

#![allow(missing_docs, reason = "internal to the server: names and types document most items")]

pub mod metrics;
pub mod otlp;
pub mod panics;
