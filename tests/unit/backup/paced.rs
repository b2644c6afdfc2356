//! Unit tests of `src/backup/paced.rs`, which includes them.

use super::*;

#[test]
fn paced_writing_takes_its_minimum_time() {
    let mut paced = Paced::new(Vec::new(), NonZeroU64::new(1_000_000));
    let began = Instant::now();
    for _ in 0..10 {
        paced.write_all(&[7; 5_000]).unwrap();
    }
    assert!(began.elapsed() >= Duration::from_millis(50));
    assert_eq!((paced.octets(), paced.get_ref().len()), (50_000, 50_000));
    assert_eq!(takes(usize::MAX, NonZeroU64::MIN), Duration::from_nanos(u64::MAX));
}
