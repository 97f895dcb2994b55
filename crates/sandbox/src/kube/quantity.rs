//! Kubernetes quantities as integers.
//!
//! Source: apimachinery, `pkg/api/resource/quantity.go`.

use serde_json::Value;

/// A quantity in thousandths of its unit, rounded up: `"250m"` is 250, `"1Gi"` is 1024³ × 1000, 2 is
/// 2000. `None` when it is no quantity.
pub fn milli(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64()?.checked_mul(1000),
        Value::String(text) => parse(text),
        _ => None,
    }
}

/// The quantity of a resource list, 0 when absent.
pub fn of(resources: &Value, name: &str) -> i64 {
    resources.get(name).and_then(milli).unwrap_or(0)
}

fn parse(text: &str) -> Option<i64> {
    let end =
        text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '+' && c != '-').unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let (factor, divisor) = scale(suffix)?;
    let divisor = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?.checked_mul(divisor)?;
    let product = mantissa.checked_mul(factor)?.checked_mul(1000)?;
    let rounded = product.div_euclid(divisor) + i128::from(product.rem_euclid(divisor) != 0);
    i64::try_from(rounded).ok()
}

/// Returns the numbers that a suffix multiplies and divides by.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
            if exponent < 0 { (1, power) } else { (power, 1) }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quantities() {
        let table = [
            (json!("250m"), Some(250)),
            (json!("2"), Some(2000)),
            (json!(2), Some(2000)),
            (json!("0.5"), Some(500)),
            (json!("1.5Gi"), Some(1_610_612_736_000)),
            (json!("1e3"), Some(1_000_000)),
            (json!("100u"), Some(1)),
            (json!("5M"), Some(5_000_000_000)),
            (json!("x"), None),
            (json!(""), None),
            (json!(true), None),
        ];
        for (text, want) in table {
            assert_eq!(milli(&text), want, "{text}");
        }
    }
}
