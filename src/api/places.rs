//! Places among what is costly and done a few at a time: charts, simulations.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::problem::Problem;

/// How those are told of it who waited in vain.
pub(super) struct Busy {
    /// By which programs know it.
    pub code: &'static str,
    /// For people.
    pub detail: &'static str,
}

/// Waits for a place. 503: it took longer than `patience`, and whoever asks is to come back.
pub(super) async fn take(
    places: &Arc<Semaphore>,
    patience: Duration,
    busy: &Busy,
) -> Result<OwnedSemaphorePermit, Problem> {
    match timeout(patience, places.clone().acquire_owned()).await {
        Ok(Ok(place)) => Ok(place),
        Ok(Err(_)) | Err(_) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, busy.code, busy.detail)
            .with_header(header::RETRY_AFTER, HeaderValue::from_static("5"))),
    }
}
