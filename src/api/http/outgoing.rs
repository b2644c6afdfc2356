//! Streaming bodies of any length, produced at the client's speed within the memory of a few parts. A stalled client, or one
//! whose permission ended, is disconnected.

use std::fmt::Display;
use std::io;
use std::pin::pin;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use futures_util::{Stream, TryStreamExt as _, stream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::extract::Recheck;
use super::fair_semaphore::SharePermit;
use crate::api::ApiState;

/// Reason for which a body was interrupted. The connection is then closed without the end of the body, so that a client notices
/// the truncation.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyInterrupted {
    #[error("the client disconnected or stopped reading")]
    Client,
    #[error("the caller no longer has permission")]
    Forbidden,
}

enum BodyChunk {
    Part(Bytes),
    End,
}

/// Writing end of a streaming body. Dropping it truncates the body.
pub(crate) struct Outgoing {
    to: mpsc::Sender<BodyChunk>,
    patience: Duration,
    /// Check of the caller's permission. `None`: the permission cannot end.
    recheck: Option<(Recheck, ApiState)>,
}

impl Outgoing {
    pub(crate) fn answering(request: &mut Request, state: &ApiState) -> (Self, Body) {
        let recheck = request.extensions_mut().remove::<Recheck>();
        Self::new(state.settings.part_timeout, recheck.map(|recheck| (recheck, state.clone())))
    }

    fn new(patience: Duration, recheck: Option<(Recheck, ApiState)>) -> (Self, Body) {
        let (to, from) = mpsc::channel(1);
        let parts = stream::unfold(Some(from), |from| async move {
            let mut from: mpsc::Receiver<BodyChunk> = from?;
            match from.recv().await {
                Some(BodyChunk::Part(octets)) => Some((Ok::<_, io::Error>(octets), Some(from))),
                Some(BodyChunk::End) => None,
                None => Some((Err(io::Error::other("it broke off")), None)),
            }
        });
        (Self { to, patience, recheck }, Body::from_stream(parts))
    }

    /// Waits until the client has read the previous part, then rechecks its permission. Call it before reading a part that
    /// requires the permission.
    async fn may_go_on(&self) -> Result<(), BodyInterrupted> {
        self.has_room().await?;
        match &self.recheck {
            Some((recheck, state)) => recheck.ask(state).await.map_err(|_| BodyInterrupted::Forbidden),
            None => Ok(()),
        }
    }

    async fn has_room(&self) -> Result<mpsc::Permit<'_, BodyChunk>, BodyInterrupted> {
        timeout(self.patience, self.to.reserve())
            .await
            .map_err(|_| BodyInterrupted::Client)?
            .map_err(|_| BodyInterrupted::Client)
    }

    /// Sends a part after the client has read the previous one.
    pub(crate) async fn part(&self, octets: Bytes) -> Result<(), BodyInterrupted> {
        self.may_go_on().await?;
        self.has_room().await?.send(BodyChunk::Part(octets));
        Ok(())
    }

    pub(crate) async fn end(&self) -> Result<(), BodyInterrupted> {
        self.has_room().await?.send(BodyChunk::End);
        Ok(())
    }

    /// Sends all parts, each produced after the client has read the previous one. Holds the slot until the end. `what` is the
    /// name of the body in log lines.
    pub(crate) fn give<E>(
        self, parts: impl Stream<Item = Result<Bytes, E>> + Send + 'static, place: SharePermit, what: &'static str,
    ) where
        E: Display + Send + 'static,
    {
        tokio::spawn(async move {
            let _place = place;
            if let Err(why) = self.give_all(parts).await {
                tracing::warn!(what, why, "a response was aborted");
            }
        });
    }

    async fn give_all<E: Display>(&self, parts: impl Stream<Item = Result<Bytes, E>>) -> Result<(), String> {
        let (mut parts, cut) = (pin!(parts), |cut: BodyInterrupted| cut.to_string());
        loop {
            self.may_go_on().await.map_err(cut)?;
            let part = tokio::select! {
                part = parts.try_next() => part.map_err(|error| error.to_string())?,
                () = self.to.closed() => return Err(cut(BodyInterrupted::Client)), // the client has disconnected
            };
            let Some(part) = part else { return self.end().await.map_err(cut) };
            self.has_room().await.map_err(cut)?.send(BodyChunk::Part(part));
        }
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/api/http/outgoing.rs"]
mod tests;
