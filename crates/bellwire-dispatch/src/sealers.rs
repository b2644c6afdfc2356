//! The threads between a delivery's turn and its POST. Sealing is what keeps a core busy; all else only waits in turn.
//!
//! ```text
//! fair queue ─► preparer: check, render, sign ─► sealers (niceness 19): encrypt ─► poster: begin the POSTs
//!          └──► the same on one thread for transactional deliveries
//! ```
//!
//! A burst contains the deliveries that have their turn at the same moment. No delivery waits for another: an accelerator seals a
//! campaign's burst in two passes of eight, and codes in one pass where two or more have their turn. A single delivery is sealed
//! alone.
//!
//! Sealers run at the lowest priority and use otherwise idle time of the machine, so that a request, a response or a one-time
//! code does not wait for the encryption of a campaign. A suspended thread must not hold resources that others wait for.
//! Therefore sealers only use the two channels between preparer and poster, not the fair queue or the runtime's queues.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::fair::Taker;
use super::pipeline::Pipeline;
use super::seal::{SealedDelivery, Unsealed, seal_all};
use bellwire_webpush::sealer::{LANES, Sealer};

/// Niceness of encryption threads, added to that of other threads (nice(2)).
const NICENESS: i32 = 19;
/// Maximum deliveries passed on at a time: one wake-up for all of them, and those of one connection share a system call.
const BURST: usize = 16;
/// Maximum bursts that wait for an encryption thread. Few, because their deliveries left the fair queue already.
const WAITING: usize = 1;
/// Maximum bursts that wait for the poster, which only starts tasks: encryption hardly ever waits for it.
const SEALED_WAITING: usize = 64;

/// Starts the preparer, `n` encryption threads, the poster, and the thread for transactional deliveries. They end with `tasks`;
/// a task of `tasks` ends if one of them dies.
pub(super) fn start(line: &Arc<Pipeline>, n: usize, tasks: &mut JoinSet<()>) {
    let (alive, wanted) = watch::channel(());
    let (to_seal, unsealed) = sync_channel(WAITING);
    let (to_post, sealed) = sync_channel(SEALED_WAITING);
    let unsealed = Arc::new(Mutex::new(unsealed));
    spawn("transactional", tasks, until_unwanted(wanted.clone(), seal_transactional(line.clone())));
    spawn("preparer", tasks, until_unwanted(wanted, prepare_bursts(line.clone(), to_seal)));
    for number in 0..n {
        let (unsealed, to_post, sealer) = (unsealed.clone(), to_post.clone(), line.shared.settings.sealer);
        spawn(&format!("sealer {number}"), tasks, move |_| seal_bursts(sealer, &unsealed, &to_post));
    }
    let line = line.clone();
    spawn("poster", tasks, move |runtime| post_bursts(&line, &runtime, &sealed));
    tasks.spawn(async move {
        let _alive = alive;
        std::future::pending::<()>().await;
    });
}

/// Starts a thread, and a task that ends when the thread does.
fn spawn(name: &str, tasks: &mut JoinSet<()>, work: impl FnOnce(Handle) + Send + 'static) {
    let (living, dead) = oneshot::channel::<()>();
    let runtime = Handle::current();
    let run = move || {
        let _living = living;
        work(runtime);
    };
    if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(run) {
        tracing::error!(%error, name, "a thread could not be started");
    }
    tasks.spawn(async move {
        let _ = dead.await; // it never sends; it is dropped with its thread
    });
}

/// Runs work on a thread until the engine ends.
fn until_unwanted(
    mut wanted: watch::Receiver<()>, work: impl Future<Output = ()> + Send + 'static,
) -> impl FnOnce(Handle) + Send + 'static {
    move |runtime| {
        runtime.block_on(async {
            tokio::select! {
                () = work => {}
                _ = wanted.changed() => {} // its sender is gone
            }
        });
    }
}

/// Encrypts transactional deliveries in an endless loop: one at a time, or with an accelerator all current ones, up to a full
/// pass.
async fn seal_transactional(line: Arc<Pipeline>) {
    let sealer = line.shared.settings.sealer;
    loop {
        let mut burst: Vec<_> = line.next(Taker::Transactional).await.into_iter().collect();
        while sealer.is_accelerated()
            && burst.len() < LANES
            && let Some(next) = line.next(Taker::Transactional).now_or_never()
        {
            burst.extend(next);
        }
        seal_all(sealer, burst).into_iter().for_each(|sealed| line.begin(sealed));
        tokio::task::yield_now().await; // to notice when it is not wanted any more
    }
}

/// Takes deliveries from the fair queue and passes them to the encryption threads, until these have ended. Waits while they are
/// busy.
async fn prepare_bursts(line: Arc<Pipeline>, to_seal: SyncSender<Vec<Unsealed>>) {
    let mut burst = Vec::with_capacity(BURST);
    loop {
        let next = line.next(Taker::Any);
        let next = if burst.is_empty() { Some(next.await) } else { next.now_or_never() };
        let more = next.is_some();
        burst.extend(next.flatten());
        if burst.len() >= BURST || !more {
            if to_seal.send(std::mem::replace(&mut burst, Vec::with_capacity(BURST))).is_err() {
                return;
            }
            tokio::task::yield_now().await; // to notice when it is not wanted any more
        }
    }
}

fn seal_bursts(sealer: &Sealer, unsealed: &Mutex<Receiver<Vec<Unsealed>>>, to_post: &SyncSender<Vec<SealedDelivery>>) {
    be_nice();
    loop {
        let burst = unsealed.lock().recv();
        let Ok(burst) = burst else { return };
        if to_post.send(seal_all(sealer, burst)).is_err() {
            return;
        }
    }
}

fn post_bursts(line: &Arc<Pipeline>, runtime: &Handle, sealed: &Receiver<Vec<SealedDelivery>>) {
    while let Ok(burst) = sealed.recv() {
        let line = line.clone();
        // One task from outside, which starts the others where starting a task is cheap.
        runtime.spawn(async move { burst.into_iter().for_each(|sealed| line.begin(sealed)) });
    }
}

/// Lowers this thread's priority. Only on Linux: elsewhere it would change the priority of the whole process.
fn be_nice() {
    if cfg!(target_os = "linux")
        && let Err(error) = rustix::process::nice(NICENESS)
    {
        tracing::debug!(%error, "sealing runs at ordinary priority");
    }
}
