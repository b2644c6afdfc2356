//! Which of several variants did better, and how certain that is.
//!
//! Each variant's click rate is unknown but for what was counted: with a uniform prior its posterior is
//! Beta(1 + clicks, 1 + the rest). One variant is better than another with the probability that a draw from its posterior is
//! larger, for which the normal approximation of both is used: it is off by less than a percent from some ten clicks on, and
//! before that no variant comes near the thresholds that can be asked for.

/// What was counted of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count {
    /// Deliveries that a push service took.
    pub accepted: i64,
    /// Of these, how many were clicked.
    pub clicked: i64,
}

/// What the counts say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Verdict {
    /// The variant with the best rate, by its place.
    pub best: usize,
    /// How probable it is that it is better than each of the others.
    pub confidence: f64,
}

impl Count {
    /// Mean and variance of its click rate's posterior.
    fn posterior(self) -> (f64, f64) {
        let clicked = self.clicked.clamp(0, self.accepted.max(0)) as f64 + 1.0;
        let rest = (self.accepted.max(0) - self.clicked.clamp(0, self.accepted.max(0))) as f64 + 1.0;
        let n = clicked + rest;
        (clicked / n, clicked * rest / (n * n * (n + 1.0)))
    }

    /// The bounds between which its click rate lies with a probability of 95 %; none: nothing was accepted.
    pub(crate) fn interval(self) -> Option<(f64, f64)> {
        if self.accepted <= 0 {
            return None;
        }
        // Wilson's: it stays within 0 and 1, and is right for few clicks, too.
        let (n, z) = (self.accepted as f64, 1.96);
        let p = (self.clicked as f64 / n).clamp(0.0, 1.0);
        let middle = (p + z * z / (2.0 * n)) / (1.0 + z * z / n);
        let half = z / (1.0 + z * z / n) * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
        Some(((middle - half).max(0.0), (middle + half).min(1.0)))
    }
}

/// How probable it is that the first one's rate is the higher one.
pub(crate) fn is_better(one: Count, other: Count) -> f64 {
    let ((mean, variance), (other_mean, other_variance)) = (one.posterior(), other.posterior());
    normal_cdf((mean - other_mean) / (variance + other_variance).sqrt())
}

/// What the counts of at least two variants say; none: of fewer.
pub(crate) fn judge(counts: &[Count]) -> Option<Verdict> {
    if counts.len() < 2 {
        return None;
    }
    let rate = |count: &Count| count.posterior().0;
    let (best, count) = counts.iter().enumerate().max_by(|(_, a), (_, b)| rate(a).total_cmp(&rate(b)))?;
    let others = counts.iter().enumerate().filter(|(place, _)| *place != best);
    let confidence = others.map(|(_, other)| is_better(*count, *other)).fold(1.0, f64::min);
    Some(Verdict { best, confidence })
}

/// The standard normal distribution's cumulative function, to seven digits (Abramowitz and Stegun, 26.2.17).
fn normal_cdf(x: f64) -> f64 {
    const A: [f64; 5] = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let tail =
        A.iter().rev().fold(0.0, |sum, a| (sum + a) * t) * (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if x < 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(accepted: i64, clicked: i64) -> Count {
        Count { accepted, clicked }
    }

    #[test]
    fn the_normal_distribution_is_what_tables_say() {
        for (x, p) in [(0.0, 0.5), (1.0, 0.841_344_7), (1.644_853_6, 0.95), (-1.96, 0.024_997_9), (4.0, 0.999_968_3)] {
            assert!((normal_cdf(x) - p).abs() < 1e-6, "{x}: {}", normal_cdf(x));
        }
    }

    #[test]
    fn a_variant_wins_when_chance_does_not_explain_it_and_not_before() {
        for (counts, best, certain) in [
            (vec![count(1_000, 50), count(1_000, 80)], 1, true),
            (vec![count(1_000, 50), count(1_000, 52)], 1, false),
            (vec![count(100, 5), count(100, 8)], 1, false),
            (vec![count(10_000, 900), count(10_000, 500), count(10_000, 880)], 0, false), // the third is close behind
            (vec![count(10_000, 900), count(10_000, 500), count(10_000, 700)], 0, true),
            (vec![count(0, 0), count(0, 0)], 1, false),
            (vec![count(5, 0), count(5, 2)], 1, false),
        ] {
            let verdict = judge(&counts).unwrap();
            assert_eq!((verdict.best, verdict.confidence >= 0.95), (best, certain), "{counts:?}: {verdict:?}");
        }
        assert_eq!(judge(&[count(10, 1)]), None);
    }

    #[test]
    fn an_interval_holds_the_rate_and_narrows_with_what_is_counted() {
        assert_eq!(count(0, 0).interval(), None);
        let (few, many) = (count(100, 10).interval().unwrap(), count(10_000, 1_000).interval().unwrap());
        assert!(few.0 < 0.1 && 0.1 < few.1 && few.0 < many.0 && many.1 < few.1, "{few:?} {many:?}");
        let none = count(50, 0).interval().unwrap();
        assert!(none.0 == 0.0 && none.1 > 0.05, "{none:?}");
    }
}
