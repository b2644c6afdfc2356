//! Unit tests of `crates/bellwire-store/src/connections/watch.rs`, which includes them.

use super::*;

fn primary(timeline: u32) -> Sight {
    Sight::Seen(PrimaryObservation { timeline: Some(timeline), system: Some(7), ..PrimaryObservation::default() })
}

fn standby() -> Sight {
    Sight::Seen(PrimaryObservation { read_only: true, system: Some(7), ..PrimaryObservation::default() })
}

#[track_caller]
fn chosen(sights: &[Sight], current: Option<(usize, u32)>) -> Option<(usize, u32)> {
    let current = current.map(|(host, timeline)| Choice { host, timeline });
    let known = ClusterState { system: Some(7), timeline: current.map_or(2, |current| current.timeline) };
    choose(sights, current, &known).map(|choice| (choice.host, choice.timeline))
}

#[test]
fn primary_has_the_highest_timeline() {
    assert_eq!(chosen(&[standby(), primary(2)], None), Some((1, 2)));
    assert_eq!(chosen(&[primary(2), primary(3)], Some((0, 2))), Some((1, 3)), "it was promoted");
    assert_eq!(chosen(&[primary(2), primary(3)], Some((1, 3))), Some((1, 3)), "an old one came back");
    assert_eq!(chosen(&[primary(2), standby()], Some((1, 3))), None, "an old one is not gone back to");
    assert_eq!(chosen(&[primary(2), primary(2)], Some((1, 2))), Some((1, 2)), "the terms are equal");
    assert_eq!(chosen(&[primary(2), primary(2)], None), Some((0, 2)), "the first that was named");
    assert_eq!(chosen(&[Sight::Down, standby()], Some((0, 2))), None);
}

#[test]
fn silent_primary_is_kept_until_a_promotion() {
    assert_eq!(chosen(&[Sight::Unknown, standby()], Some((0, 2))), Some((0, 2)));
    assert_eq!(chosen(&[Sight::Unknown, primary(3)], Some((0, 2))), Some((1, 3)));
}

#[test]
fn a_host_of_another_cluster_is_none() {
    let other = Sight::Seen(PrimaryObservation { timeline: Some(9), system: Some(8), ..PrimaryObservation::default() });
    assert_eq!(chosen(&[other, primary(2)], None), Some((1, 2)));
}
