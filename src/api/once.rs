//! Requests that make something, and are carried out once however often they are made with the same `Idempotency-Key`.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;
use sqlx::{PgConnection, PgTransaction};

use super::ApiState;
use super::accept::{in_progress, reused};
use super::messages::idempotency_key;
use super::problem::Problem;
use crate::model::id::AppId;
use crate::store::queue::idempotency::{self, Claim, Key, KeyScope};

/// How long a request waits for another one with the same key.
const PATIENCE: Duration = Duration::from_secs(2);

/// A request that is to be carried out now, and the transaction to do it in. Dropping it undoes everything, its claim of the key
/// included.
pub(super) struct Once {
    tx: PgTransaction<'static>,
    claimed: Option<Claimed>,
}

struct Claimed {
    app: AppId,
    route: &'static str,
    key: String,
}

/// Whether there is anything left to do.
pub(super) enum Begun {
    /// It is to be carried out.
    First(Once),
    /// It was, and answered so.
    Before(Response),
}

impl Once {
    /// Begins to carry out a request, whose body is `octets`.
    pub(super) async fn begin(
        state: &ApiState,
        app: AppId,
        route: &'static str,
        headers: &HeaderMap,
        octets: &[u8],
    ) -> Result<Begun, Problem> {
        let key = idempotency_key(headers)?;
        let mut tx = state.pool.begin().await?;
        let Some(key) = key else { return Ok(Begun::First(Self { tx, claimed: None })) };
        let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, octets);
        let keys = [Key { key, body_hash: hash.as_ref() }];
        let claims = idempotency::claim(&mut tx, KeyScope { app, route }, &keys, PATIENCE, state.clock.now()).await?;
        match claims.and_then(|mut claims| claims.pop()) {
            Some(Claim::First) => {
                Ok(Begun::First(Self { tx, claimed: Some(Claimed { app, route, key: key.to_owned() }) }))
            }
            Some(Claim::Answered { status, response }) => Ok(Begun::Before(replay(status, response))),
            Some(Claim::OtherBody) => Err(reused()),
            Some(Claim::InProgress) | None => Err(in_progress()),
        }
    }

    /// What to do it with.
    pub(super) fn conn(&mut self) -> &mut PgConnection {
        &mut self.tx
    }

    /// Commits it with its answer.
    pub(super) async fn finish(mut self, status: StatusCode, answer: &impl Serialize) -> Result<Response, Problem> {
        let answer = serde_json::to_value(answer).map_err(|_| Problem::internal())?;
        if let Some(Claimed { app, route, key }) = &self.claimed {
            let code = i16::try_from(status.as_u16()).unwrap_or(200);
            let answers = [(key.as_str(), answer.clone())];
            idempotency::remember(&mut self.tx, KeyScope { app: *app, route }, &answers, code).await?;
        }
        self.tx.commit().await?;
        Ok((status, axum::Json(answer)).into_response())
    }
}

fn replay(status: i16, response: Value) -> Response {
    let status = u16::try_from(status).ok().and_then(|code| StatusCode::from_u16(code).ok());
    let replayed = (HeaderName::from_static("idempotent-replayed"), HeaderValue::from_static("true"));
    (status.unwrap_or(StatusCode::OK), [replayed], axum::Json(response)).into_response()
}
