//! Winner among variants, with its probability.
//!
//! The click rate of a variant is estimated from its counts: with a uniform prior, its posterior is Beta(1 + clicks, 1 +
//! non-clicks). The probability that one variant is better than another is that of a larger draw from its posterior, in the
//! normal approximation. From about ten clicks its error is below a percent, and with fewer clicks no variant comes near the
//! allowed thresholds.

/// Counts of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VariantCount {
    /// Deliveries accepted by push services.
    pub accepted: i64,
    /// Accepted deliveries that were clicked.
    pub clicked: i64,
}

/// Best variant, and the probability of that.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WinnerVerdict {
    /// Index of the variant with the best rate.
    pub best: usize,
    /// Probability that it is better than every other variant.
    pub confidence: f64,
}

impl VariantCount {
    fn posterior(self) -> (f64, f64) {
        let clicked = self.clicked.clamp(0, self.accepted.max(0)) as f64 + 1.0;
        let rest = (self.accepted.max(0) - self.clicked.clamp(0, self.accepted.max(0))) as f64 + 1.0;
        let n = clicked + rest;
        (clicked / n, clicked * rest / (n * n * (n + 1.0)))
    }

    /// Returns the 95 % confidence interval of its click rate. `None`: no delivery was accepted.
    pub fn interval(self) -> Option<(f64, f64)> {
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

/// Returns the probability that the first rate is higher than the second.
pub fn is_better(one: VariantCount, other: VariantCount) -> f64 {
    let ((mean, variance), (other_mean, other_variance)) = (one.posterior(), other.posterior());
    normal_cdf((mean - other_mean) / (variance + other_variance).sqrt())
}

/// Returns the result for the counts of at least two variants. `None` for fewer.
pub fn judge(counts: &[VariantCount]) -> Option<WinnerVerdict> {
    if counts.len() < 2 {
        return None;
    }
    let rate = |count: &VariantCount| count.posterior().0;
    let (best, count) = counts.iter().enumerate().max_by(|(_, a), (_, b)| rate(a).total_cmp(&rate(b)))?;
    let others = counts.iter().enumerate().filter(|(place, _)| *place != best);
    let confidence = others.map(|(_, other)| is_better(*count, *other)).fold(1.0, f64::min);
    Some(WinnerVerdict { best, confidence })
}

/// Cumulative distribution function of the standard normal distribution, to seven digits (Abramowitz and Stegun, 26.2.17).
fn normal_cdf(x: f64) -> f64 {
    const A: [f64; 5] = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let tail =
        A.iter().rev().fold(0.0, |sum, a| (sum + a) * t) * (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if x < 0.0 { tail } else { 1.0 - tail }
}
