//! The slope of samples over time, robust against outliers: Theil and Sen.

/// A slope, and the interval that holds the true one with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Slope {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// The median of the slopes between all pairs of samples `(time, value)`, with Sen's interval,
/// which takes the samples as independent of each other. `None`: there are too few.
pub(crate) fn theil_sen(samples: &[(f64, f64)]) -> Option<Slope> {
    let count = samples.len();
    if count < 8 {
        return None;
    }
    let mut slopes = Vec::with_capacity(count * (count - 1) / 2);
    for (at, (time, value)) in samples.iter().enumerate() {
        slopes.extend(
            samples
                .iter()
                .skip(at + 1)
                .map(|(later, other)| (other - value) / (later - time)),
        );
    }
    slopes.retain(|slope| slope.is_finite());
    slopes.sort_unstable_by(f64::total_cmp);
    let (n, pairs) = (count as f64, slopes.len() as f64);
    // The standard deviation of Kendall's statistic without ties.
    let deviation = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    let at = |rank: f64| {
        slopes
            .get((rank.max(0.0) as usize).min(slopes.len().saturating_sub(1)))
            .copied()
    };
    Some(Slope {
        median: at(pairs / 2.0)?,
        low: at((pairs - 1.96 * deviation) / 2.0)?,
        high: at((pairs + 1.96 * deviation) / 2.0)?,
    })
}
