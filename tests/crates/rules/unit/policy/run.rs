//! Unit tests of `crates/bellwire-rules/src/policy/run.rs`, which includes them.

use super::*;

fn begun(n: u64) -> Run {
    let mut run = Run::default();
    (0..n).for_each(|number| assert_eq!(run.begin(), number));
    run
}

#[test]
fn run_is_ordered_by_start_of_requests() {
    let mut run = begun(10);
    assert_eq!([2, 8, 4, 6].map(|number| run.fail(number)), [1, 1, 1, 1], "others between them are out");
    assert_eq!([3, 7, 5].map(|number| run.fail(number)), [3, 3, 7]);
    assert_eq!(run.fail(0), 1);
}

#[test]
fn neutral_responses_neither_form_nor_end_runs() {
    let mut run = begun(5);
    run.void(1);
    run.void(3);
    assert_eq!([0, 4, 2].map(|number| run.fail(number)), [1, 1, 3]);
}

#[test]
fn old_or_forgotten_responses_form_no_run() {
    let mut run = begun(4);
    run.fail(3);
    run.forget();
    assert!(!run.counts(3) && !run.counts(4));
    assert_eq!(run.begin(), 4);
    assert_eq!((run.counts(4), run.fail(4)), (true, 1));
    for _ in 0..REMEMBERED {
        run.begin();
    }
    assert_eq!((run.fail(4), run.fail(5)), (0, 1));
}
