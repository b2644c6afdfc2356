//! Effect of a campaign: the people who were to get it compared with its control group.
//!
//! People are assigned to the groups by chance, so the difference of their means estimates the effect, whether or not a person
//! saw a message. Its variance is that of two independent samples (Welch). Conversions before the campaign explain a part of the
//! variance and are subtracted with the regression coefficient that both groups share (CUPED; Deng and others, 2013). The interval
//! of the ratio is Fieller's, so it excludes 0 % exactly when that of the difference excludes 0.
//!
//! A result may be looked at any number of times: before the end, the interval has `2.6 / sqrt(t)` standard errors, where `t` is the
//! elapsed share of the time, and 2.0 at the end. A Brownian motion leaves these bounds (O'Brien and Fleming, 1979, with a final one)
//! with a probability of 4.8 % at any time, and of 4.6 % at the end, so an effect that does not exist is claimed in less than one
//! of twenty campaigns.

use bellwire_core::named;

/// Conversions that each group needs for an interval: with fewer the normal approximation is wrong.
const CONVERTED_MIN: i64 = 10;
/// Standard errors of the final interval.
const FINAL_Z: f64 = 2.0;
/// Standard errors of an earlier interval, times the square root of the elapsed share.
const EARLY_Z: f64 = 2.6;
/// Relative effect for which the number of missing people is computed.
const DETECTABLE: f64 = 0.1;
/// Standard errors that find this effect in 80 % of campaigns.
const POWER_Z: f64 = FINAL_Z + 0.84;
/// Smallest elapsed share: an interval of 26 standard errors is as good as none.
const ELAPSED_MIN: f64 = 0.01;

/// Sums over the people of a group. `y` is a person's conversions, or their value, since the campaign; `x` the same before it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GroupSums {
    /// Number of people.
    pub people: i64,
    /// People with at least one conversion.
    pub converted: i64,
    /// Sum of `y`.
    pub y: f64,
    /// Sum of `y²`.
    pub yy: f64,
    /// Sum of `x`.
    pub x: f64,
    /// Sum of `x²`.
    pub xx: f64,
    /// Sum of `xy`.
    pub xy: f64,
}

impl GroupSums {
    /// Returns the sums over both groups.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            people: self.people + other.people,
            converted: self.converted + other.converted,
            y: self.y + other.y,
            yy: self.yy + other.yy,
            x: self.x + other.x,
            xx: self.xx + other.xx,
            xy: self.xy + other.xy,
        }
    }

    fn n(&self) -> f64 {
        self.people as f64
    }

    /// Returns the sums of squares about the means: of `y`, of `x`, and of their products.
    fn about_means(&self) -> (f64, f64, f64) {
        let about = |sum: f64, a: f64, b: f64| sum - a * b / self.n();
        (about(self.yy, self.y, self.y), about(self.xx, self.x, self.x), about(self.xy, self.x, self.y))
    }

    /// Returns the variance of a person's `y - slope * x`.
    fn variance(&self, slope: f64) -> f64 {
        let (yy, xx, xy) = self.about_means();
        ((yy - 2.0 * slope * xy + slope * slope * xx) / (self.n() - 1.0)).max(0.0)
    }
}

named! {
    /// Effect of a campaign on conversions.
    #[cfg_attr(feature = "openapi", schema(as = LiftEffect))]
    pub enum Effect {
        /// The campaign caused more.
        More = "more",
        /// The campaign caused fewer.
        Fewer = "fewer",
        /// No effect could be shown.
        None = "none",
        /// A group has fewer than 10 people with a conversion.
        TooFew = "too_few",
    }
}

/// An estimate with its confidence interval of 95 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub low: f64,
    pub value: f64,
    pub high: f64,
}

/// Effect of a campaign, with its size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lift {
    pub effect: Effect,
    /// Relative difference of the means: 0.1 is 10 % more. `None`: too few conversions, or the control group's mean may be 0.
    pub relative: Option<Estimate>,
    /// Total that the campaign caused in the group that was to get it. With too few conversions its interval is too narrow. `None`: a group
    /// is empty.
    pub additional: Option<Estimate>,
    /// Standard error of that total.
    pub standard_error: f64,
    /// Further people needed to find an effect of 10 % in four of five campaigns. `None`: none, or not known.
    pub people_needed: Option<i64>,
}

/// Compares the people who were to get a campaign with its control group, after this share of the time: 1 at its end.
pub fn compare(treated: &GroupSums, control: &GroupSums, elapsed: f64) -> Lift {
    let slope = common_slope(treated, control);
    let all = treated.and(*control);
    if treated.people < 2 || control.people < 2 {
        return Lift {
            effect: Effect::TooFew,
            relative: None,
            additional: None,
            standard_error: 0.0,
            people_needed: None,
        };
    }
    let z = bound(elapsed);
    let mean = |group: &GroupSums| group.y / group.n() - slope * (group.x / group.n() - all.x / all.n());
    let (mean_t, mean_c) = (mean(treated), mean(control));
    let (variance_t, variance_c) = (treated.variance(slope) / treated.n(), control.variance(slope) / control.n());
    let (difference, error) = (mean_t - mean_c, (variance_t + variance_c).sqrt());
    let total = |difference: f64| difference * treated.n();
    let additional =
        Estimate { low: total(difference - z * error), value: total(difference), high: total(difference + z * error) };
    let effect = match additional {
        _ if treated.converted.min(control.converted) < CONVERTED_MIN => Effect::TooFew,
        Estimate { low, .. } if low > 0.0 => Effect::More,
        Estimate { high, .. } if high < 0.0 => Effect::Fewer,
        _ => Effect::None,
    };
    Lift {
        effect,
        relative: relative((mean_t, variance_t), (mean_c, variance_c), z).filter(|_| effect != Effect::TooFew),
        additional: Some(additional),
        standard_error: total(error),
        people_needed: people_needed(&all, control, slope).filter(|_| matches!(effect, Effect::None | Effect::TooFew)),
    }
}

/// Returns the half width of an interval in standard errors, after this share of the time.
fn bound(elapsed: f64) -> f64 {
    if elapsed >= 1.0 { FINAL_Z } else { EARLY_Z / elapsed.max(ELAPSED_MIN).sqrt() }
}

/// Adds estimates of independent campaigns, each with its standard error. `elapsed`: smallest share of the time. `None`: there are none.
pub fn sum(estimates: impl Iterator<Item = (f64, f64)>, elapsed: f64) -> Option<Estimate> {
    let (mut value, mut variance, mut n) = (0.0, 0.0, 0);
    for (estimate, standard_error) in estimates {
        value += estimate;
        variance += standard_error * standard_error;
        n += 1;
    }
    let half = bound(elapsed) * f64::sqrt(variance);
    (n > 0).then_some(Estimate { low: value - half, value, high: value + half })
}

/// Returns the regression coefficient of `y` on `x` within the groups.
fn common_slope(treated: &GroupSums, control: &GroupSums) -> f64 {
    let about = |group: &GroupSums| if group.people > 0 { group.about_means() } else { (0.0, 0.0, 0.0) };
    let ((_, xx_t, xy_t), (_, xx_c, xy_c)) = (about(treated), about(control));
    if xx_t + xx_c > 0.0 { (xy_t + xy_c) / (xx_t + xx_c) } else { 0.0 }
}

/// Returns Fieller's interval of the relative difference of two independent means, given with the variances of the means.
fn relative((mean_t, variance_t): (f64, f64), (mean_c, variance_c): (f64, f64), z: f64) -> Option<Estimate> {
    let square = mean_c * mean_c - z * z * variance_c;
    if square <= 0.0 || mean_c <= 0.0 {
        return None;
    }
    let (product, rest) = (mean_t * mean_c, mean_t * mean_t - z * z * variance_t);
    let root = (product * product - square * rest).max(0.0).sqrt();
    let ratio = |product: f64| product / square - 1.0;
    Some(Estimate { low: ratio(product - root), value: mean_t / mean_c - 1.0, high: ratio(product + root) })
}

/// Returns the further people needed to find the detectable effect, rounded up to two digits.
fn people_needed(all: &GroupSums, control: &GroupSums, slope: f64) -> Option<i64> {
    let share = control.n() / all.n();
    if all.people < 2 || all.y <= 0.0 || share <= 0.0 || share >= 1.0 {
        return None;
    }
    let detectable = DETECTABLE * all.y / all.n();
    let of_groups = 1.0 / share + 1.0 / (1.0 - share);
    let missing = POWER_Z * POWER_Z * all.variance(slope) * of_groups / (detectable * detectable) - all.n();
    let unit = 10_f64.powf((missing.log10().floor() - 1.0).max(0.0));
    (missing > 0.0 && missing < 1e15).then(|| ((missing / unit).ceil() * unit) as i64)
}

#[cfg(test)]
#[path = "../../../../tests/crates/rules/unit/campaign/lift.rs"]
mod tests;
