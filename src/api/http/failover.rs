//! Handles requests while no Postgres accepts writes, or a synchronous standby does not confirm them.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::api::ApiState;
use crate::api::http::problem::{Problem, ProblemCode};

/// Maximum time that a request waits for a primary: enough for the promotion of a standby.
const PATIENCE: Duration = Duration::from_secs(8);

/// Delays a request while no database host accepts writes. Refuses writes while commits are not confirmed: the request would
/// otherwise hang.
pub(in crate::api) async fn wait(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if !path.starts_with("/v1/") && path != "/mcp" {
        return next.run(request).await;
    }
    if state.primary.is_gone() {
        state.primary.until_there(PATIENCE).await; // if in vain, the handler says so
    }
    if request.method().is_safe() {
        return next.run(request).await;
    }
    tokio::select! {
        biased;
        names = state.primary.until_unconfirmed() => unconfirmed(&names).into_response(),
        response = next.run(request) => response,
    }
}

fn unconfirmed(standbys: &str) -> Problem {
    tracing::warn!(synchronous_standby_names = standbys, "a request was refused: Postgres does not confirm commits");
    let detail = "Postgres does not confirm commits, since the standbys that it waits for are missing. What was asked for may have \
                  been done all the same.";
    Problem::new(ProblemCode::CommitsUnconfirmed, detail)
        .with_header(header::RETRY_AFTER, HeaderValue::from_static("5"))
}
