//! Bodies of any length, produced part by part at the client's speed: a slow client costs the memory of a few parts. A stalled
//! client, or one whose permission ended, gets no more, and its memory is freed.

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

/// Reason why a body was interrupted. The connection is then closed, so that a part cannot be taken for the whole.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyInterrupted {
    #[error("the client has gone, or took nothing for too long")]
    Client,
    #[error("the caller no longer has permission")]
    Forbidden,
}

enum BodyChunk {
    Part(Bytes),
    End,
}

/// The end of a body at which it is made. Dropping it cuts the body off.
pub(crate) struct Outgoing {
    to: mpsc::Sender<BodyChunk>,
    patience: Duration,
    /// Check of the caller's permission. `None`: it cannot end.
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

    /// Waits until the client has taken what it was given, and asks whether it may have more. To be called before a part is read that
    /// only those may have: it is given without being asked again.
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

    /// Gives a part, once the client has taken the one before.
    pub(crate) async fn part(&self, octets: Bytes) -> Result<(), BodyInterrupted> {
        self.may_go_on().await?;
        self.has_room().await?.send(BodyChunk::Part(octets));
        Ok(())
    }

    pub(crate) async fn end(&self) -> Result<(), BodyInterrupted> {
        self.has_room().await?.send(BodyChunk::End);
        Ok(())
    }

    /// Gives all of these parts, each of which is made when the one before was taken, and keeps the place for as long. `what` it is
    /// names it in the log if it breaks off.
    pub(crate) fn give<E>(
        self,
        parts: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
        place: SharePermit,
        what: &'static str,
    ) where
        E: Display + Send + 'static,
    {
        tokio::spawn(async move {
            let _place = place;
            if let Err(why) = self.give_all(parts).await {
                tracing::warn!(what, why, "an answer broke off");
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
