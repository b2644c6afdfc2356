//! The sealers: threads of their own, because sealing is what keeps a core busy, and all else only waits in turn.
//!
//! They run at a lower priority than the runtime's threads and Postgres. So they soak up whatever is left of the machine,
//! and a request, an answer or a one-time code does not stand in line behind a campaign that is being encrypted.

use std::sync::Arc;

use futures_util::FutureExt as _;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::Dispatcher;
use super::fair::Next;
use crate::delivery::Tier;

/// How much nicer than the others the sealers are (nice(2)).
const NICENESS: i32 = 19;
/// Deliveries that a sealer seals before it lets their POSTs begin: those of one connection share a system call.
const BURST: usize = 8;

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
                    () = seal_bursts(dispatcher, only_transactional) => {}
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

/// Takes turns for ever; can be ended between two bursts.
async fn seal_bursts(dispatcher: Arc<Dispatcher>, only_transactional: bool) {
    let burst = if only_transactional { 1 } else { BURST };
    let mut sealed = Vec::with_capacity(burst);
    loop {
        let next = dispatcher.fair.next(only_transactional, || dispatcher.clock.now());
        let next = if sealed.is_empty() { Some(next.await) } else { next.now_or_never() };
        let (more, mut urgent) = (next.is_some(), false);
        match next {
            Some(Next::Turn(turn)) => {
                urgent = turn.job.message.tier == Tier::Transactional;
                sealed.extend(dispatcher.take_turn(turn));
            }
            Some(Next::PutOff(jobs, until)) => dispatcher.put_off(jobs, until),
            None => {}
        }
        if sealed.len() >= burst || !more || urgent {
            for (turn, post) in sealed.drain(..) {
                tokio::spawn(dispatcher.clone().deliver(turn, post));
            }
            tokio::task::yield_now().await; // to notice when it is not wanted any more
        }
    }
}

/// Lowers this thread's priority. Elsewhere than on Linux it would be the whole process's, which helps nobody.
fn be_nice() {
    if cfg!(target_os = "linux")
        && let Err(error) = rustix::process::nice(NICENESS)
    {
        tracing::debug!(%error, "sealing runs at ordinary priority");
    }
}
