//! A certificate in files, read again when they change.

use std::future::Future;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::warn;
use zeroize::Zeroizing;

use super::Show;
use bellwire_core::clock::Clock;
use bellwire_net::http_server::certificate::Certificate;

const LOOK_EVERY: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub(super) struct Files {
    pub(super) chain: PathBuf,
    pub(super) key: PathBuf,
}

/// State of a file behind its links: device, inode, length, and time of the last change.
type Mark = (u64, u64, u64, i64, i64);

fn mark(path: &Path) -> io::Result<Mark> {
    let found = std::fs::metadata(path)?;
    Ok((found.dev(), found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

impl Files {
    fn marks(&self) -> Option<(Mark, Mark)> {
        mark(&self.chain).ok().zip(mark(&self.key).ok())
    }

    fn read(&self) -> anyhow::Result<Certificate> {
        let read = |path: &Path| {
            std::fs::read(path).map(Zeroizing::new).with_context(|| format!("cannot read {}", path.display()))
        };
        let (chain, key) = (read(&self.chain)?, read(&self.key)?);
        let found = Certificate::parse(&chain, &key);
        found.with_context(|| format!("{} and {} cannot be used", self.chain.display(), self.key.display()))
    }

    /// Reads the files. The marks are taken before the read, so that a change during it is noticed.
    async fn look(&self) -> (Option<(Mark, Mark)>, anyhow::Result<Certificate>) {
        let files = self.clone();
        let looked = spawn_blocking(move || (files.marks(), files.read())).await;
        looked.unwrap_or_else(|panic| (None, Err(panic.into())))
    }
}

/// Publishes the certificate in the files, or fails. Then publishes each change in an endless loop; unusable files
/// change nothing.
pub(super) async fn open(
    files: Files, show: Show, clock: Clock,
) -> anyhow::Result<impl Future<Output = ()> + Send + 'static> {
    let (mut marks, certificate) = files.look().await;
    let certificate = certificate?;
    if certificate.not_after <= clock.now() {
        warn!(until = %certificate.not_after, "the certificate has expired: browsers refuse it");
    }
    show.show(certificate);
    Ok(async move {
        loop {
            sleep(LOOK_EVERY).await;
            let looked = files.clone();
            if spawn_blocking(move || looked.marks()).await.ok().flatten() == marks {
                continue;
            }
            let (seen, read) = files.look().await;
            marks = seen;
            match read {
                Ok(certificate) => show.show(certificate),
                Err(error) => warn!("the certificate has changed, and the one before stays: {error:#}"),
            }
        }
    })
}
