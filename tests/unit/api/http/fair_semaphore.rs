//! Unit tests of `src/api/http/fair_semaphore.rs`, which includes them.

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use uuid::Uuid;

use super::*;

const BUSY: Busy = Busy { code: ProblemCode::ChartsBusy, detail: "Too many." };
const PATIENCE: Duration = Duration::from_secs(3_600);

fn app(n: u128) -> Option<AppId> {
    Some(AppId(Uuid::from_u128(n)))
}

async fn take(places: &Places, app: Option<AppId>) -> SharePermit {
    places.take(app, PATIENCE, &BUSY).await.unwrap()
}

#[tokio::test]
async fn one_app_has_half_the_slots() {
    let places = Places::new(4);
    let mut mine = join_all((0..2).map(|_| take(&places, app(1)))).await;
    assert!(take(&places, app(1)).now_or_never().is_none(), "two of four");
    let others = (take(&places, app(2)).await, take(&places, None).await);
    assert!(take(&places, app(3)).now_or_never().is_none(), "all are taken");
    drop(others);
    assert!(take(&places, app(1)).now_or_never().is_none(), "two of four still");
    drop(mine.pop());
    take(&places, app(1)).await;
}

#[tokio::test]
async fn single_slot_prefers_a_newcomer_to_repeaters() {
    let places = Places::new(1);
    let held = take(&places, app(1)).await;
    let mut crowd: Vec<_> = (0..100).map(|_| Box::pin(take(&places, app(1)))).collect();
    assert!(crowd.iter_mut().all(|one| one.now_or_never().is_none()));
    let mut late = Box::pin(take(&places, app(2)));
    assert!((&mut late).now_or_never().is_none());
    drop(held);
    assert!(crowd.iter_mut().skip(1).all(|one| one.now_or_never().is_none()));
    let late = late.now_or_never().expect("it is the next");
    assert!(crowd[0].as_mut().now_or_never().is_none());
    drop(late);
    crowd.remove(0).now_or_never().expect("then the longest of the others");
}

#[tokio::test]
async fn waiting_is_bounded_and_leaves_no_memory() {
    let places = Places::new(1);
    let held = take(&places, app(1)).await;
    let refused = places.take(app(2), Duration::ZERO, &BUSY).await.unwrap_err();
    assert_eq!(refused.code, ProblemCode::ChartsBusy);
    let crowded = places.take(app(1), Duration::ZERO, &BUSY).await.unwrap_err();
    assert_eq!(crowded.code, ProblemCode::ChartsBusy, "within its own share");
    drop(held);
    for n in 0..100 {
        take(&places, app(n)).await;
    }
    assert_eq!(places.0.shares.lock().len(), 1);
}
