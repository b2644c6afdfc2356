//! The sealers: threads of their own, because sealing is what keeps a core busy, and all else only waits in turn.
//!
//! They run at a lower priority than the runtime's threads and Postgres. So they soak up whatever is left of the machine,
//! and a request, an answer or a one-time code does not stand in line behind a campaign that is being encrypted.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::Dispatcher;
use super::line::seal_on;

/// How much nicer than the others the sealers are (nice(2)).
const NICENESS: i32 = 10;

/// Starts `n` sealers, and one more, of ordinary priority, for transactional deliveries alone. They end with `tasks`; a
/// task of `tasks` ends when one of them dies.
pub fn start(dispatcher: &Arc<Dispatcher>, n: usize, tasks: &mut JoinSet<()>) {
    let (alive, wanted) = watch::channel(());
    for number in 0..=n {
        let (dispatcher, mut wanted, runtime) = (dispatcher.clone(), wanted.clone(), Handle::current());
        let (living, dead) = oneshot::channel::<()>();
        let only_transactional = number == 0;
        let seal = move || {
            let _living = living;
            if !only_transactional {
                be_nice();
            }
            runtime.block_on(async {
                tokio::select! {
                    () = seal_on(dispatcher, only_transactional) => {}
                    _ = wanted.changed() => {} // its sender is gone: the engine was ended
                }
            });
        };
        if let Err(error) = std::thread::Builder::new().name(format!("sealer {number}")).spawn(seal) {
            tracing::error!(%error, "a thread for sealing could not be started");
        }
        tasks.spawn(async move {
            let _ = dead.await; // it never sends; it is dropped with its thread
        });
    }
    tasks.spawn(async move {
        let _alive = alive;
        std::future::pending::<()>().await;
    });
}

/// Lowers this thread's priority. Elsewhere than on Linux it would be the whole process's, which helps nobody.
fn be_nice() {
    if cfg!(target_os = "linux")
        && let Err(error) = rustix::process::nice(NICENESS)
    {
        tracing::debug!(%error, "sealing runs at ordinary priority");
    }
}
