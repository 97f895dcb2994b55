//! How fast time runs in the sandbox.

use jiff::{SignedDuration, Timestamp};

/// Converts durations of the real service into durations in the sandbox.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The number of seconds of the real service that pass in one second of the sandbox.
    pub time_scale: f64,
}

impl Default for Scale {
    fn default() -> Self {
        Self { time_scale: 60.0 }
    }
}

impl Scale {
    /// Returns how long `seconds` of the real service take in the sandbox. A scale that is not a positive number counts as 1.
    pub fn real(&self, seconds: f64) -> SignedDuration {
        let scale = if self.time_scale.is_finite() && self.time_scale > 0.0 { self.time_scale } else { 1.0 };
        SignedDuration::try_from_secs_f64((seconds / scale).max(0.0)).unwrap_or(SignedDuration::MAX)
    }

    /// Returns the moment `seconds` of the real service after `start`; the last representable moment if that is out of range.
    pub fn after(&self, start: Timestamp, seconds: f64) -> Timestamp {
        start.checked_add(self.real(seconds)).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_shrink_by_the_scale() {
        let cases = [(60.0, 300.0, 5_000), (1.0, 2.0, 2_000), (0.0, 2.0, 2_000), (600.0, 300.0, 500)];
        for (time_scale, seconds, millis) in cases {
            assert_eq!(Scale { time_scale }.real(seconds).as_millis(), millis, "{time_scale}");
        }
    }
}
