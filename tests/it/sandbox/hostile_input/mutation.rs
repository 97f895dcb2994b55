//! Mutations of seeds: bytes that are cut, repeated, spliced and mixed with sequences that break parsers and
//! terminals, and
//! values that their readers do not expect.

use serde_json::{Value, json};

/// xorshift64*: the same inputs for the same seed.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(number).unwrap() % most.max(1)
    }

    pub fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.below(from.len())]
    }
}

/// Sequences that break parsers, terminals and readers of JSON.
const PIECES: [&str; 60] = [
    "[",
    "]",
    "{",
    "}",
    "[[",
    "]]",
    "\"",
    "'",
    "\"\"\"",
    "\\",
    ".",
    "..",
    "=",
    ":",
    "- ",
    "\n",
    "\r\n",
    "\t",
    "&a ",
    "*a ",
    "<<: ",
    "!!binary ",
    "|\n",
    ">\n",
    "---\n",
    "#",
    "${",
    "${var.x}",
    "${env.X}",
    "$${",
    "null",
    "true",
    "-1",
    "1e999",
    "18446744073709551616",
    "0x",
    "NaN",
    "\u{0}",
    "\u{1b}[2J",
    "\u{9b}31m",
    "\u{202e}",
    "\u{200b}",
    "\u{2028}",
    "\u{feff}",
    "é",
    "\u{7f}",
    "\u{1b}]8;;http://x\u{7}",
    "\r",
    "<<: *a\n",
    "!!python/object/apply:x ",
    "!<tag:x> ",
    "%YAML 1.1\n---\n",
    "? ",
    "{\"a\":",
    "a.b.\"c d\".",
    "-9223372036854775809",
    "1979-05-27T07:32:00Z",
    "inf",
    "1_0",
    "\u{10ffff}",
];

pub fn mutate_bytes(seed: &[u8], others: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=rng.below(4) {
        let at = rng.below(bytes.len() + 1);
        let end = (at + rng.below(40)).min(bytes.len());
        match rng.below(13) {
            0 => drop(bytes.drain(at..end)),
            1 => bytes.truncate(at),
            2 => {
                let piece = rng.pick(&PIECES).as_bytes().to_vec();
                bytes.splice(at..at, piece);
            }
            3 => {
                // Rarely as deep as breaks a stack of calls that knows no limit.
                let times = if rng.below(16) == 0 { 20_000 } else { 300 };
                let piece = rng.pick(&PIECES).as_bytes().repeat(1 + rng.below(times));
                bytes.splice(at..at, piece);
            }
            4 => {
                let piece = bytes[at..end].to_vec().repeat(1 + rng.below(8));
                bytes.splice(at..at, piece);
            }
            5 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.below(8);
                }
            }
            6 => {
                let other = rng.pick(others);
                let from = rng.below(other.len() + 1);
                let to = (from + rng.below(200)).min(other.len());
                bytes.splice(at..end, other[from..to].to_vec());
            }
            7 => {
                let piece = rng.pick(&PIECES).as_bytes().to_vec();
                bytes.splice(at..end, piece);
            }
            8 => edit_lines(&mut bytes, rng, |lines, rng| {
                // A line somewhere else.
                let line = lines.remove(rng.below(lines.len()));
                lines.insert(rng.below(lines.len() + 1), line);
            }),
            9 => edit_lines(&mut bytes, rng, |lines, rng| {
                // A line twice: a key, a header or an item that is there already.
                let line = lines[rng.below(lines.len())].clone();
                lines.insert(rng.below(lines.len() + 1), line);
            }),
            10 => edit_lines(&mut bytes, rng, |lines, rng| {
                // An anchor at one value, and an alias or a merge of it elsewhere, which may be within it.
                let (one, other) = (rng.below(lines.len()), rng.below(lines.len()));
                lines[one] = lines[one].replacen(": ", ": &a ", 1);
                lines[other] = match (rng.below(2), lines[other].split_once(": ")) {
                    (0, Some((key, _))) => format!("{key}: *a"),
                    _ => format!("{}<<: *a", &lines[other][..indent(&lines[other])]),
                };
            }),
            11 => edit_lines(&mut bytes, rng, |lines, rng| {
                // A dotted key.
                let at = rng.below(lines.len());
                let other = lines[rng.below(lines.len())].split(['=', ':']).next().unwrap_or_default();
                lines[at] = format!("{}.{}", other.trim().trim_matches(['[', ']']), lines[at].trim_start());
            }),
            _ => {
                // A number that fits nowhere.
                let digit = bytes.iter().skip(at).position(u8::is_ascii_digit);
                if let Some(from) = digit.map(|place| at + place) {
                    let more = ["9".repeat(400), "0".repeat(40), ".5e-400".into(), "e400".into()];
                    bytes.splice(from..from, rng.pick(&more).bytes());
                }
            }
        }
    }
    bytes
}

fn edit_lines(bytes: &mut Vec<u8>, rng: &mut Rng, change: impl FnOnce(&mut Vec<String>, &mut Rng)) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
    change(&mut lines, rng);
    *bytes = lines.join("\n").into_bytes();
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn odd_value(rng: &mut Rng) -> Value {
    let deep = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!([inner]));
    match rng.below(16) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(u64::MAX),
        4 => json!(1e300),
        5 => json!(""),
        6 => json!({}),
        7 => json!([]),
        8 => json!([null, {}, [], "", 0]),
        9 => deep(60),
        10 => json!("x".repeat(5000)),
        11 => json!(i64::MIN),
        12 => deep(120),
        _ => json!(format!("a{}b", rng.pick(&PIECES))),
    }
}

pub fn mutate_value(value: &mut Value, rng: &mut Rng) {
    let keys: Vec<String> = value.as_object().map(|all| all.keys().cloned().collect()).unwrap_or_default();
    let length = value.as_array().map_or(keys.len(), Vec::len);
    if length == 0 || rng.below(12) == 0 {
        *value = odd_value(rng);
        return;
    }
    let at = rng.below(length);
    match (value, rng.below(10)) {
        (Value::Object(table), 0) => drop(table.remove(&keys[at])),
        (Value::Object(table), 1) => {
            let key = format!("{}{}", keys[at], rng.pick(&PIECES));
            table.insert(key, odd_value(rng));
        }
        (Value::Object(table), _) => mutate_value(&mut table[&keys[at]], rng),
        (Value::Array(items), 0) => drop(items.remove(at)),
        (Value::Array(items), 1) => items.push(items[at].clone()),
        (Value::Array(items), _) => mutate_value(&mut items[at], rng),
        _ => {}
    }
}
