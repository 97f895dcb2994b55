//! Equality of values in Kubernetes objects that are written differently but mean the same. The schema of a field gives its
//! format. If the schema only says "string", as in the Dask operator's CRDs, the field's position in a pod gives the format. All
//! other values are the same only if they are equal: as labels, `1` and `1000m` differ.

use serde_json::{Map, Value, json};

use model::address::{FieldPath, Segment};
use model::quantity::Quantity;
use model::schema::{List, Schema, Type};

/// Formats of values, by which spellings are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueFormat {
    /// A value with a single spelling.
    Plain,
    /// A Kubernetes quantity: `1`, `"1"` and `"1000m"` are equal.
    Quantity,
    /// A whole number or text: `80` and `"80"` are equal.
    IntOrString,
    /// A duration as Go writes it: `1h`, `60m` and `3600s` are equal.
    Duration,
    /// The value of an environment variable, which is always a string: `true` and `"true"` are equal.
    Text,
}

/// A part of the pattern that every version of controller-gen generates for quantities.
const QUANTITY_PATTERN: &str = "([KMGTPE]i)|[numkMGTPE]";
/// A part of the pattern of durations in the Gateway API and in APIs that copied it.
const DURATION_PATTERN: &str = "(h|m|s|ms)";

impl ValueFormat {
    /// Returns the format of a value at a path of a schema. A value that the schema only calls a string may have a format by its
    /// position in a pod.
    pub fn of(schema: Option<&Schema>, path: &FieldPath) -> Self {
        let Some(schema) = schema else { return Self::of_path(path) };
        let pattern = |part: &str| schema.pattern().is_some_and(|pattern| pattern.contains(part));
        match schema.ty() {
            Type::Quantity => Self::Quantity,
            Type::IntOrString | Type::String if pattern(QUANTITY_PATTERN) => Self::Quantity,
            Type::IntOrString => Self::IntOrString,
            Type::String if schema.format() == Some("duration") || pattern(DURATION_PATTERN) => {
                Self::Duration
            }
            Type::String | Type::Any => Self::of_path(path),
            Type::Object | Type::Map | Type::List | Type::Integer | Type::Number | Type::Boolean => {
                Self::Plain
            }
        }
    }

    /// Returns the format of a value by its path in a pod template.
    fn of_path(path: &FieldPath) -> Self {
        let keys =
            |at: usize| path.segments().len().checked_sub(at).and_then(|index| path.segments().get(index));
        let is = |at: usize, name: &str| matches!(keys(at), Some(Segment::Key(key)) if key == name);
        match () {
            () if is(2, "emptyDir") && is(1, "sizeLimit") => Self::Quantity,
            // Of Kueue's queues, whose webhook writes `10000` as `10k`.
            () if is(1, "nominalQuota") || is(1, "borrowingLimit") || is(1, "lendingLimit") => Self::Quantity,
            () if is(2, "resourceFieldRef") && is(1, "divisor") => Self::Quantity,
            () if is(3, "env") && matches!(keys(2), Some(Segment::Index(_))) && is(1, "value") => Self::Text,
            () => Self::Plain,
        }
    }
}

/// Returns true if an object has the form of Kubernetes' ResourceRequirements: `limits` and `requests` of named resources.
pub fn is_requirements(fields: &Map<String, Value>) -> bool {
    let amounts = |amounts: &Value| {
        let Some(amounts) = amounts.as_object() else { return false };
        amounts.iter().all(|(name, amount)| is_resource(name) && Quantity::of(amount).is_some())
    };
    let known = |(key, value): (&String, &Value)| match key.as_str() {
        "limits" | "requests" => amounts(value),
        "claims" => value.is_array(),
        _ => false,
    };
    (fields.contains_key("limits") || fields.contains_key("requests")) && fields.iter().all(known)
}

/// Source: `k8s.io/api/core/v1`, `ResourceName`: those without a domain are Kubernetes' own.
fn is_resource(name: &str) -> bool {
    const OWN: [&str; 5] = ["cpu", "memory", "storage", "ephemeral-storage", "pods"];
    OWN.contains(&name) || name.starts_with("hugepages-") || name.contains('/')
}

/// Returns true if two values of a format mean the same.
pub fn same(want: &Value, live: &Value, format: ValueFormat) -> bool {
    if want == live {
        return true;
    }
    if let (Value::Number(want), Value::Number(live)) = (want, live) {
        return want.as_f64() == live.as_f64();
    }
    fn equal<T: PartialEq>(want: Option<T>, live: Option<T>) -> bool {
        want.is_some() && want == live
    }
    match format {
        ValueFormat::Plain => false,
        ValueFormat::Quantity => equal(Quantity::of(want), Quantity::of(live)),
        ValueFormat::Duration => equal(duration(want), duration(live)),
        ValueFormat::IntOrString => equal(whole(want), whole(live)),
        ValueFormat::Text => equal(scalar(want), scalar(live)),
    }
}

/// Returns the canonical spelling of a value: two results are equal if [`same`] holds for every leaf. Written-out defaults and
/// empty lists are left out, as a comparison with the server's object finds no difference for them.
pub fn canonical(value: &Value, schema: Option<&Schema>) -> Value {
    at(&FieldPath::root(), value, schema, false)
}

fn at(path: &FieldPath, value: &Value, schema: Option<&Schema>, in_requirements: bool) -> Value {
    match value {
        Value::Object(fields) => {
            let amounts = in_requirements || is_requirements(fields);
            let mut all = Map::new();
            for (key, value) in fields {
                let child = schema.and_then(|schema| schema.property(key).or_else(|| schema.values()));
                let said = at(&path.key(key), value, child.as_ref(), amounts);
                let default = child.as_ref().and_then(Schema::default);
                let default = default.map(|default| at(&path.key(key), &default, child.as_ref(), amounts));
                let empty = said.is_null() || said.as_array().is_some_and(Vec::is_empty);
                if !empty && default.as_ref() != Some(&said) {
                    all.insert(key.clone(), said);
                }
            }
            Value::Object(all)
        }
        Value::Array(items) => {
            let below = schema.and_then(Schema::items);
            let each = items.iter().enumerate();
            let mut items: Vec<Value> = each
                .map(|(index, item)| at(&path.index(index), item, below.as_ref(), in_requirements))
                .collect();
            match schema.map(Schema::list) {
                // Their order says nothing.
                Some(List::Map(_) | List::Set) => items.sort_by_key(ToString::to_string),
                Some(List::Atomic) | None => {}
            }
            Value::Array(items)
        }
        leaf => {
            let format = if in_requirements { ValueFormat::Quantity } else { ValueFormat::of(schema, path) };
            spelled(leaf, format)
        }
    }
}

/// Returns the canonical spelling of a leaf: a quantity in billionths, a duration in nanoseconds.
fn spelled(leaf: &Value, format: ValueFormat) -> Value {
    let one = match format {
        ValueFormat::Plain => None,
        ValueFormat::Quantity => Quantity::of(leaf).map(|one| json!(format!("{}n", one.nanos()))),
        ValueFormat::Duration => duration(leaf).map(|nanoseconds| json!(format!("{nanoseconds}ns"))),
        ValueFormat::IntOrString => whole(leaf).map(Value::from),
        ValueFormat::Text => scalar(leaf).map(Value::from),
    };
    match one {
        Some(one) => one,
        None => {
            leaf.as_f64().filter(|number| number.fract() == 0.0).map_or_else(|| leaf.clone(), Value::from)
        }
    }
}

/// Returns a whole number, also from its decimal string.
fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.parse().ok().filter(|number: &i64| number.to_string() == *text),
        _ => None,
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Returns the digits of a decimal number, and how many of them follow the point.
fn decimal(text: &str) -> Option<(i128, u32)> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{fraction}");
    if all.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((sign * all.parse::<i128>().ok()?, u32::try_from(fraction.len()).ok()?))
}

/// Returns `digits` / 10^`behind` × `factor`, rounded away from zero as the API server does.
fn scaled(digits: i128, behind: u32, factor: i128) -> Option<i128> {
    let (value, unit) = (digits.checked_mul(factor)?, 10_i128.checked_pow(behind)?);
    let rest = if value % unit == 0 { 0 } else { value.signum() };
    Some(value / unit + rest)
}

/// Returns a duration in nanoseconds. Source: Go's `time.ParseDuration`, which `metav1.Duration` reads with.
pub fn duration(value: &Value) -> Option<i128> {
    let text = value.as_str()?;
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut all: Option<i128> = None;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let factor = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (digits, behind) = decimal(number)?;
        all = Some(all.unwrap_or(0).checked_add(scaled(digits, behind, factor)?)?);
        rest = after;
    }
    Some(sign * all?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Checks that spellings in the same row are equal, and spellings in different rows are not.
    fn check(format: ValueFormat, rows: &[&[Value]]) {
        for (index, row) in rows.iter().enumerate() {
            for (other, others) in rows.iter().enumerate() {
                for left in *row {
                    for right in *others {
                        assert_eq!(same(left, right, format), index == other, "{format:?} {left} {right}");
                        let one = spelled(left, format) == spelled(right, format);
                        assert_eq!(one, index == other, "{format:?} {left} {right}");
                    }
                }
            }
        }
    }

    #[test]
    fn spellings_of_one_value_are_the_same() {
        check(
            ValueFormat::Quantity,
            &[
                &[
                    json!(1),
                    json!("1"),
                    json!("1000m"),
                    json!("1.0"),
                    json!("1e0"),
                    json!("+1"),
                    json!("1000000u"),
                ],
                &[json!("1m"), json!("1e-3"), json!("0.001"), json!(".001")],
                &[json!("8Gi"), json!("8192Mi"), json!("8388608Ki"), json!(8_589_934_592_u64)],
                &[json!("8G"), json!("8000M"), json!("8e9"), json!("8E9")],
                &[json!("0.5Gi"), json!("512Mi")],
                // The server rounds up to a billionth.
                &[json!("1.5n"), json!("2n")],
                &[json!("-1"), json!("-1000m")],
                &[json!("0"), json!(0), json!("0Gi"), json!("-0")],
                &[json!("x")],
                &[json!("")],
                &[json!("1 ")],
                &[json!("1..0")],
                &[json!("1-0")],
                &[json!(true)],
                &[json!("8gi")],
            ],
        );
        check(
            ValueFormat::Duration,
            &[
                &[json!("1h"), json!("60m"), json!("3600s"), json!("1h0m0s"), json!("0.5h1800s")],
                &[json!("1500ms"), json!("1.5s"), json!("1s500ms")],
                &[json!("0"), json!("0s")],
                &[json!("1m")],
                &[json!("1")],
                &[json!(1)],
                &[json!("h")],
                &[json!("1h ")],
                &[json!("")],
            ],
        );
        check(
            ValueFormat::IntOrString,
            &[&[json!(80), json!("80")], &[json!("080")], &[json!("80%")], &[json!("http")], &[json!("+80")]],
        );
        check(
            ValueFormat::Text,
            &[
                &[json!(true), json!("true")],
                &[json!(1), json!("1")],
                &[json!("1.0"), json!("1.0")],
                &[json!("True")],
            ],
        );
        check(
            ValueFormat::Plain,
            &[&[json!("1")], &[json!("1000m")], &[json!(1)], &[json!(true)], &[json!("true")]],
        );
    }

    #[test]
    fn only_limits_and_requests_of_resources_are_requirements() {
        let is = |value: Value| is_requirements(value.as_object().unwrap());
        assert!(is(
            json!({ "limits": { "cpu": "1", "nvidia.com/gpu": 1 }, "requests": { "memory": "1Gi" } })
        ));
        assert!(is(json!({ "requests": { "storage": "1Ti" }, "claims": [] })));
        for other in [
            json!({}),
            json!({ "claims": [] }),
            json!({ "limits": { "cpu": "1" }, "name": "a" }),
            json!({ "limits": { "team": "1" } }),
            json!({ "limits": { "cpu": "much" } }),
            json!({ "limits": 1 }),
        ] {
            assert!(!is(other.clone()), "{other}");
        }
    }
}
