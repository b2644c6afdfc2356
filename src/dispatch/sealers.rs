//! The threads between a delivery's turn and its POST. Sealing is what keeps a core busy; all else only waits in turn.
//!
//! ```text
//! fair queue ─► admitter: admit, render, sign ─► sealers (niceness 19): encrypt ─► poster: begin the POSTs
//!          └──► the same, one by one, on one thread for transactional deliveries
//! ```
//!
//! Sealers run at the lowest priority, so they soak up whatever is left of the machine: a request, an answer or a one-time
//! code does not stand in line behind a campaign that is being encrypted. But a thread that nobody schedules must not hold
//! what others wait for. So sealers touch nothing but the two channels between admitter and poster, which wait for nobody
//! else; not the fair queue, nor the runtime's queues.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::Dispatcher;
use super::fair::Taker;
use super::line::{Sealed, Unsealed};
use super::turn::Next;

/// How much nicer than the others the sealers are (nice(2)).
const NICENESS: i32 = 19;
/// Deliveries that are handed over at a time: one wake-up for all of them, and those of one connection share a system
/// call.
const BURST: usize = 16;
/// Bursts that wait for a sealer. Few, since those in them had their turn already.
const WAITING: usize = 1;

/// Starts the admitter, `n` sealers, the poster, and the thread for transactional deliveries. They end with `tasks`; a task
/// of `tasks` ends when one of them dies.
pub(super) fn start(dispatcher: &Arc<Dispatcher>, n: usize, tasks: &mut JoinSet<()>) {
    let (alive, wanted) = watch::channel(());
    let (to_seal, unsealed) = sync_channel(WAITING);
    let (to_post, sealed) = channel();
    let unsealed = Arc::new(Mutex::new(unsealed));
    let engine = dispatcher.clone();
    spawn("transactional", tasks, until_unwanted(wanted.clone(), seal_transactional(engine)));
    let engine = dispatcher.clone();
    spawn("admitter", tasks, until_unwanted(wanted, admit_bursts(engine, to_seal)));
    for number in 0..n {
        let (unsealed, to_post) = (unsealed.clone(), to_post.clone());
        spawn(&format!("sealer {number}"), tasks, move |_| seal_bursts(&unsealed, &to_post));
    }
    let engine = dispatcher.clone();
    spawn("poster", tasks, move |runtime| post_bursts(&engine, &runtime, &sealed));
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

/// Work for a thread, which ends as soon as the engine was ended.
fn until_unwanted(
    mut wanted: watch::Receiver<()>,
    work: impl Future<Output = ()> + Send + 'static,
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

/// Takes the turns of transactional deliveries, one at a time, for ever.
async fn seal_transactional(dispatcher: Arc<Dispatcher>) {
    loop {
        match dispatcher.fair.next(Taker::Transactional, || dispatcher.clock.now()).await {
            Next::Turn(turn) => {
                if let Some(unsealed) = dispatcher.take_turn(turn) {
                    dispatcher.begin(unsealed.seal());
                }
            }
            Next::Deferred(jobs, until) => dispatcher.defer(jobs, until),
        }
        tokio::task::yield_now().await; // to notice when it is not wanted any more
    }
}

/// Takes turns and hands them to the sealers, until these are gone. Waits while they have enough to do.
async fn admit_bursts(dispatcher: Arc<Dispatcher>, to_seal: SyncSender<Vec<Unsealed>>) {
    let mut burst = Vec::with_capacity(BURST);
    loop {
        let next = dispatcher.fair.next(Taker::Any, || dispatcher.clock.now());
        let next = if burst.is_empty() { Some(next.await) } else { next.now_or_never() };
        let more = next.is_some();
        match next {
            Some(Next::Turn(turn)) => burst.extend(dispatcher.take_turn(turn)),
            Some(Next::Deferred(jobs, until)) => dispatcher.defer(jobs, until),
            None => {}
        }
        if burst.len() >= BURST || !more {
            if to_seal.send(std::mem::replace(&mut burst, Vec::with_capacity(BURST))).is_err() {
                return;
            }
            tokio::task::yield_now().await; // to notice when it is not wanted any more
        }
    }
}

/// Seals until the admitter is gone.
fn seal_bursts(unsealed: &Mutex<Receiver<Vec<Unsealed>>>, to_post: &Sender<Vec<Sealed>>) {
    be_nice();
    loop {
        let burst = unsealed.lock().recv();
        let Ok(burst) = burst else { return };
        if to_post.send(burst.into_iter().map(Unsealed::seal).collect()).is_err() {
            return;
        }
    }
}

/// Begins POSTs until the sealers are gone.
fn post_bursts(dispatcher: &Arc<Dispatcher>, runtime: &Handle, sealed: &Receiver<Vec<Sealed>>) {
    while let Ok(burst) = sealed.recv() {
        let dispatcher = dispatcher.clone();
        // One task from outside, which starts the others where starting a task is cheap.
        runtime.spawn(async move { burst.into_iter().for_each(|sealed| dispatcher.begin(sealed)) });
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
