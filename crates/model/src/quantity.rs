//! Kubernetes quantities without rounding.
//!
//! Source: `resource.Quantity` of k8s.io/apimachinery v0.36.1 (`pkg/api/resource/quantity.go`, `suffix.go`).

use serde_json::Value;

/// Billionths in one unit. A Kubernetes `Quantity` has no finer parts.
const NANO: i128 = 1_000_000_000;

/// Billionths in a thousandth of a unit.
const MILLI: i128 = NANO / 1000;

/// The largest quantity, 2^63 - 1 units. Kubernetes cuts larger ones down to it.
const LARGEST: i128 = (i64::MAX as i128) * NANO;

/// An amount of a resource, exact to a billionth: `250m`, `1.5Gi`, `2`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(i128);

impl Quantity {
    /// Returns the quantity of a JSON value: a string, or a number as YAML has it. `None` if it is not a quantity.
    pub fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// Returns a number of whole units.
    pub fn units(number: i64) -> Self {
        Self(i128::from(number) * NANO)
    }

    /// Reads the text of a quantity. `None` if it is not a quantity.
    pub fn parse(text: &str) -> Option<Self> {
        let Spelling { negative, whole, fraction, suffix, .. } = Spelling::of(text)?;
        let size = Scale::of(suffix)?.nanos(whole, fraction.unwrap_or_default()).min(LARGEST);
        Some(Self(if negative { -size } else { size }))
    }

    /// Returns the sum of both, capped at the largest quantity.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the quantity times a whole number.
    #[must_use]
    pub fn times(self, number: u32) -> Self {
        Self(self.0.saturating_mul(i128::from(number)))
    }

    /// Returns the quantity rounded up to thousandths, as kube-apiserver stores requests and limits.
    #[must_use]
    pub fn rounded_to_milli(self) -> Self {
        Self(up(self.0, MILLI).saturating_mul(MILLI))
    }

    /// Billionths.
    pub fn nanos(self) -> i128 {
        self.0
    }

    /// Whole units (bytes, GPUs), rounded up.
    pub fn whole(self) -> i64 {
        bounded(up(self.0, NANO))
    }

    /// Whole units, rounded down.
    pub fn floor(self) -> i64 {
        bounded(self.0.div_euclid(NANO))
    }

    /// Thousandths of a unit (of a CPU), rounded up.
    pub fn milli(self) -> i64 {
        bounded(up(self.0, MILLI))
    }
}

/// Units in a number of billionths, rounded up.
fn up(nanos: i128, unit: i128) -> i128 {
    nanos.div_euclid(unit) + i128::from(nanos.rem_euclid(unit) != 0)
}

fn bounded(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

/// The parts of a quantity's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spelling<'t> {
    /// True if a sign stands before the number.
    pub signed: bool,
    pub negative: bool,
    /// The digits before the point. May be empty.
    pub whole: &'t str,
    /// The digits after the point; `None` without a point. May be empty.
    pub fraction: Option<&'t str>,
    /// `Gi`, `m`, `e3`, or nothing.
    pub suffix: &'t str,
}

impl<'t> Spelling<'t> {
    /// Splits the text of a quantity. `None` if it is not a quantity.
    pub fn of(text: &'t str) -> Option<Self> {
        let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = match number.split_once('.') {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (number, None),
        };
        let digits = fraction.unwrap_or_default();
        if digits.contains('.') || (whole.is_empty() && digits.is_empty()) {
            return None;
        }
        Scale::of(suffix)?;
        let signed = rest.len() < text.len();
        Some(Self { signed, negative: text.starts_with('-'), whole, fraction, suffix })
    }
}

/// The factor of a suffix.
#[derive(Clone, Copy)]
enum Scale {
    /// A power of ten.
    Decimal(i64),
    /// A power of two.
    Binary(u32),
}

impl Scale {
    fn of(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "" => Self::Decimal(0),
            "n" => Self::Decimal(-9),
            "u" => Self::Decimal(-6),
            "m" => Self::Decimal(-3),
            "k" => Self::Decimal(3),
            "M" => Self::Decimal(6),
            "G" => Self::Decimal(9),
            "T" => Self::Decimal(12),
            "P" => Self::Decimal(15),
            "E" => Self::Decimal(18),
            "Ki" => Self::Binary(10),
            "Mi" => Self::Binary(20),
            "Gi" => Self::Binary(30),
            "Ti" => Self::Binary(40),
            "Pi" => Self::Binary(50),
            "Ei" => Self::Binary(60),
            _ => Self::Decimal(suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
        })
    }

    /// Returns `WHOLE.FRACTION` times the factor in billionths, rounded up. Values that are too large become the largest
    /// quantity.
    fn nanos(self, whole: &str, fraction: &str) -> i128 {
        let fraction = fraction.trim_end_matches('0');
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        if digits.is_empty() {
            return 0;
        }
        // More digits than any quantity has: what is behind them is below a billionth, or the number is too large.
        let Ok(mantissa) = digits.parse::<i128>() else {
            return if whole.trim_start_matches('0').len() > 20 {
                i128::MAX
            } else {
                self.cut(whole, fraction)
            };
        };
        let places = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
        let (power, factor) = match self {
            Self::Decimal(power) => (power, 1),
            Self::Binary(bits) => (0, 1_i128 << bits),
        };
        let Some(product) = mantissa.checked_mul(factor) else { return i128::MAX };
        scaled(product, power.saturating_sub(places).saturating_add(9))
    }

    /// Handles a long fraction, of which only the first twelve digits matter: with the finest suffix, `n`, three of them are
    /// below a billionth.
    fn cut(self, whole: &str, fraction: &str) -> i128 {
        let mut kept: String = fraction.chars().take(12).collect();
        // Anything behind them rounds up.
        kept.push('1');
        self.nanos(whole, &kept)
    }
}

/// A number times a power of ten, rounded up.
fn scaled(number: i128, power: i64) -> i128 {
    let Ok(size) = u32::try_from(power.unsigned_abs()) else {
        return if power < 0 { 1 } else { i128::MAX };
    };
    match (10_i128.checked_pow(size), power < 0) {
        (Some(factor), false) => number.checked_mul(factor).unwrap_or(i128::MAX),
        (Some(divisor), true) => number.div_euclid(divisor) + i128::from(number.rem_euclid(divisor) != 0),
        (None, false) => i128::MAX,
        (None, true) => 1,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        for (value, milli) in [
            (json!("250m"), Some(250)),
            (json!("2"), Some(2000)),
            (json!(2), Some(2000)),
            (json!(0.5), Some(500)),
            (json!("+.5"), Some(500)),
            (json!("5."), Some(5000)),
            (json!("-1"), Some(-1000)),
            (json!("1.5Gi"), Some(1_610_612_736_000)),
            (json!("1e3"), Some(1_000_000)),
            (json!("1E3"), Some(1_000_000)),
            (json!("1E"), Some(i64::MAX)),
            (json!("12e-4"), Some(2)),
            (json!("100u"), Some(1)),
            (json!("0.1n"), Some(1)),
            (json!("5M"), Some(5_000_000_000)),
            (json!("0.0000000000000000000000000000000000000000001"), Some(1)),
            (json!("x"), None),
            (json!(""), None),
            (json!("."), None),
            (json!("1.2.3"), None),
            (json!("4GB"), None),
            (json!("1 Gi"), None),
            (json!(true), None),
        ] {
            assert_eq!(Quantity::of(&value).map(Quantity::milli), milli, "{value}");
        }
    }

    #[test]
    fn spellings_keep_their_parts() {
        let parts = |text| {
            let Spelling { signed, negative, whole, fraction, suffix } = Spelling::of(text)?;
            Some((signed, negative, whole, fraction, suffix))
        };
        assert_eq!(parts("1.5Gi"), Some((false, false, "1", Some("5"), "Gi")));
        assert_eq!(parts("-5."), Some((true, true, "5", Some(""), "")));
        assert_eq!(parts("+.5e-3"), Some((true, false, "", Some("5"), "e-3")));
        for text in ["", ".", "8gi", "1e", "+-1", "1e99999999999999999999"] {
            assert_eq!(parts(text), None, "{text}");
        }
    }

    #[test]
    fn thousandths_round_up_away_from_a_fraction() {
        for (text, milli, floor) in [("100u", 1, 0), ("1001u", 2, 0), ("-1500u", -1, -1), ("1.9", 1900, 1)] {
            let quantity = Quantity::parse(text).unwrap();
            assert_eq!(
                (quantity.rounded_to_milli().nanos(), quantity.floor()),
                (milli * MILLI, floor),
                "{text}"
            );
        }
        assert_eq!(Quantity::parse("100u").unwrap().times(3).milli(), 1);
    }

    #[test]
    fn whole_units_round_up_and_end_at_the_largest() {
        for (text, whole) in [
            ("1.5", 2),
            ("1m", 1),
            ("0", 0),
            ("1Ki", 1024),
            ("7Ei", 7 << 60),
            ("8Ei", i64::MAX),
            ("1e30", i64::MAX),
            ("99999999999999999999999999999999999999999999", i64::MAX),
        ] {
            assert_eq!(Quantity::parse(text).map(Quantity::whole), Some(whole), "{text}");
        }
    }

    #[test]
    fn sums_are_exact() {
        let tenth = Quantity::parse("100u").unwrap();
        let sum = (0..10).fold(Quantity::default(), |sum, _| sum.plus(tenth));
        assert_eq!((sum.milli(), sum), (1, Quantity::parse("1m").unwrap()));
        assert_eq!(Quantity::units(3).whole(), 3);
    }
}
