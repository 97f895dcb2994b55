//! List prices of Google Cloud by region: `schemas/gcp-prices.tsv`, or a file in the same format. Look-up only. A price that no
//! source has is `None`, never zero.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::catalog::PriceModel;

pub mod cloud_billing;

/// Hours of a month, by which monthly prices are divided. Source: cloud.google.com/compute/all-pricing, "a 730-hour month".
pub const HOURS_OF_A_MONTH: f64 = 730.0;

/// Price lists by region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prices {
    /// The file, so that a saved plan holds the prices that it was made with.
    text: String,
    date: String,
    source: Option<String>,
    regions: Vec<String>,
    /// Prices of all regions, by `machine`, `gpu`, `disk` or `fee` and the name.
    rows: BTreeMap<(String, String), Vec<Rate>>,
}

/// The origin of prices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The list of the program.
    #[default]
    List,
    /// A file that does not name its source.
    File,
    /// The source that the prices name: `Cloud Billing`.
    Source(String),
}

/// One price in US dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rate {
    on_demand: Option<f64>,
    spot: Option<f64>,
}

/// A line of a price file that has no meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Counted from 1.
    pub line: usize,
    pub why: String,
}

/// The price list of the program.
static LIST: LazyLock<Prices> = LazyLock::new(|| {
    // A file that cannot be read would have no prices, which a test rules out.
    Prices::parse(include_str!("../../../schemas/gcp-prices.tsv")).unwrap_or_else(|_| Prices::empty())
});

impl Origin {
    /// Returns the origin as it is printed: `list`, `file`, or the source that the prices name.
    pub fn as_str(&self) -> &str {
        match self {
            Self::List => "list",
            Self::File => "file",
            Self::Source(source) => source,
        }
    }
}

impl Prices {
    /// The price list of the program.
    pub fn list() -> &'static Self {
        &LIST
    }

    fn empty() -> Self {
        let (text, date, source) = (String::new(), String::new(), None);
        Self { text, date, source, regions: Vec::new(), rows: BTreeMap::new() }
    }

    /// Reads a price file: a line `date`, a line of `what`, `name` and the regions, then a line for each thing, separated by tabs. A
    /// line `source` may say where the prices are from.
    ///
    /// # Errors
    /// A line is not of that form.
    pub fn parse(text: &str) -> Result<Self, BadLine> {
        let mut prices = Self { text: text.to_owned(), ..Self::empty() };
        for (at, line) in text.lines().enumerate() {
            let line = line.trim_end_matches('\r');
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            prices.read_line(line).map_err(|why| BadLine { line: at + 1, why })?;
        }
        let end = |why: &str| BadLine { line: text.lines().count().max(1), why: why.to_owned() };
        match (prices.date.is_empty(), prices.regions.is_empty()) {
            (true, _) => Err(end("no line `date`, a tab and the day of the prices")),
            (_, true) => Err(end("no line of `what`, `name` and the regions")),
            (false, false) => Ok(prices),
        }
    }

    fn read_line(&mut self, line: &str) -> Result<(), String> {
        let mut cells = line.split('\t');
        let (what, name) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        match what {
            "date" if is_date(name) => self.date = name.to_owned(),
            "date" => return Err(format!("`{name}` is not a date like `2026-07-30`")),
            "source" if is_source(name) => self.source = Some(name.to_owned()),
            "source" => return Err("a source is some words of one line".to_owned()),
            "what" if name == "name" => self.regions = cells.map(str::to_owned).collect(),
            "fee" | "machine" | "gpu" | "disk" if self.regions.is_empty() => {
                return Err("the line of regions comes first".to_owned());
            }
            "fee" | "machine" | "gpu" | "disk" if !name.is_empty() => {
                let rates: Vec<Rate> = cells.map(Rate::parse).collect::<Result<_, String>>()?;
                if rates.len() > self.regions.len() {
                    return Err(format!("{} prices for {} regions", rates.len(), self.regions.len()));
                }
                if self.rows.insert((what.to_owned(), name.to_owned()), rates).is_some() {
                    return Err(format!("a second line of {what} `{name}`"));
                }
            }
            _ => {
                return Err(
                    "a line begins with `date`, `source`, `what`, `fee`, `machine`, `gpu` or `disk`, a tab and a name"
                        .to_owned(),
                );
            }
        }
        Ok(())
    }

    /// The day of the prices: `2026-07-30`.
    pub fn date(&self) -> &str {
        &self.date
    }

    /// True for the price list of the program.
    pub fn is_list(&self) -> bool {
        self.text == LIST.text
    }

    /// Returns the origin of the prices.
    pub fn origin(&self) -> Origin {
        match &self.source {
            _ if self.is_list() => Origin::List,
            Some(source) => Origin::Source(source.clone()),
            None => Origin::File,
        }
    }

    /// US dollars per hour of a GKE cluster, of whatever size.
    pub fn fee(&self, region: &str) -> Option<f64> {
        self.rate("fee", "cluster", region)?.on_demand
    }

    /// US dollars per hour of a machine, with the GPUs and the local SSDs that come with its type.
    pub fn machine(&self, name: &str, region: &str, capacity: PriceModel) -> Option<f64> {
        if let Some(rate) = self.rate("machine", name, region) {
            return rate.of(capacity);
        }
        let (family, size) = family(name)?;
        finite(self.rate("machine", &family, region)?.of(capacity)? * f64::from(size))
    }

    /// US dollars per hour of one GPU that is attached to a machine.
    pub fn gpu(&self, kind: &str, region: &str, capacity: PriceModel) -> Option<f64> {
        self.rate("gpu", kind, region)?.of(capacity)
    }

    /// US dollars per hour of a disk, by its type in the API; `local-ssd` for those in the machine. No disk is Spot.
    pub fn disk(&self, kind: &str, gib: u32, region: &str) -> Option<f64> {
        finite(self.rate("disk", kind, region)?.on_demand? * f64::from(gib) / HOURS_OF_A_MONTH)
    }

    /// The price in a region; `None` for things without a line. A line without a price for the region is a price that is unknown.
    fn rate(&self, what: &str, name: &str, region: &str) -> Option<Rate> {
        let row = self.rows.get(&(what.to_owned(), name.to_owned()))?;
        let at = self.regions.iter().position(|known| known == region);
        Some(at.and_then(|at| row.get(at)).copied().unwrap_or_default())
    }

    /// The regions that have a column.
    pub fn regions(&self) -> impl Iterator<Item = &str> {
        self.regions.iter().map(String::as_str)
    }

    /// Names of the lines of a sort: `machine`, `gpu`, `disk` or `fee`.
    pub fn names(&self, what: &str) -> impl Iterator<Item = &str> {
        self.rows.keys().filter(move |(sort, _)| sort == what).map(|(_, name)| name.as_str())
    }
}

impl TryFrom<String> for Prices {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).map_err(|bad| format!("line {}: {}", bad.line, bad.why))
    }
}

impl From<Prices> for String {
    fn from(prices: Prices) -> Self {
        prices.text
    }
}

impl Rate {
    /// `0.134/0.08`: on demand and Spot; `0.134`, `/0.08`, or nothing where one is unknown.
    fn parse(cell: &str) -> Result<Self, String> {
        let (on_demand, spot) = cell.split_once('/').unwrap_or((cell, ""));
        let price = |text: &str| match text.trim() {
            "" => Ok(None),
            text => match text.parse::<f64>() {
                Ok(price) if price.is_finite() && price >= 0.0 => Ok(Some(price)),
                Ok(_) | Err(_) => Err(format!("`{cell}` is not a price like `0.134` or `0.134/0.08`")),
            },
        };
        Ok(Self { on_demand: price(on_demand)?, spot: price(spot)? })
    }

    fn of(self, capacity: PriceModel) -> Option<f64> {
        match capacity {
            PriceModel::OnDemand => self.on_demand,
            PriceModel::Spot => self.spot,
        }
    }
}

/// A price that is too large for a number is unknown.
fn finite(price: f64) -> Option<f64> {
    price.is_finite().then_some(price)
}

/// Adds amounts that are finite and not negative. JSON has no number above the largest one.
pub(crate) fn add_finite(one: f64, other: f64) -> f64 {
    (one + other).min(f64::MAX)
}

/// `2026-07-30`.
fn is_date(text: &str) -> bool {
    let digit_or_dash = |(at, byte): (usize, u8)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    text.len() == 10 && text.bytes().enumerate().all(digit_or_dash)
}

/// A few words that are shown on a terminal.
fn is_source(text: &str) -> bool {
    let is_shown = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    !text.trim().is_empty() && text.len() <= 60 && text.bytes().all(is_shown)
}

/// `e2-standard-*` and 4 of `e2-standard-4`; `a2-highgpu-*g` and 1 of `a2-highgpu-1g`.
fn family(machine: &str) -> Option<(String, u32)> {
    let (stem, size) = machine.rsplit_once('-')?;
    let digits = size.trim_end_matches('g');
    let unit = &size[digits.len()..];
    Some((format!("{stem}-*{unit}"), digits.parse().ok()?))
}

/// A sum of prices in US dollars per hour.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sum {
    /// The sum of the known prices.
    pub usd: f64,
    /// Names of parts without a price: the sum is at least `usd`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unknown: BTreeSet<String>,
    /// True if prices of Spot machines are in it, which move from day to day.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spot: bool,
}

impl Sum {
    /// Adds a price, or the name of what has none.
    pub fn add(&mut self, price: Option<f64>, what: impl FnOnce() -> String) {
        match price {
            Some(price) => self.usd = add_finite(self.usd, price),
            None => drop(self.unknown.insert(what())),
        }
    }

    /// So many of it; of none, nothing is unknown.
    #[must_use]
    pub fn times(self, number: u32) -> Self {
        match number {
            0 => Self::default(),
            number => Self { usd: (self.usd * f64::from(number)).min(f64::MAX), ..self },
        }
    }

    /// Raises this sum to `other` where that is higher: of two alternatives one will be paid.
    pub fn raise_to(&mut self, other: Sum) {
        self.usd = self.usd.max(other.usd);
        self.unknown.extend(other.unknown);
        self.spot |= other.spot;
    }

    /// Returns true if all prices are known.
    pub fn is_known(&self) -> bool {
        self.unknown.is_empty()
    }

    /// Returns true if nothing is billed.
    pub fn is_zero(&self) -> bool {
        self.usd == 0.0 && self.is_known()
    }
}

impl std::ops::AddAssign<&Sum> for Sum {
    fn add_assign(&mut self, other: &Sum) {
        self.usd += other.usd;
        self.usd = self.usd.min(f64::MAX);
        self.unknown.extend(other.unknown.iter().cloned());
        self.spot |= other.spot;
    }
}

impl<'s> std::iter::Sum<&'s Sum> for Sum {
    fn sum<I: Iterator<Item = &'s Sum>>(sums: I) -> Self {
        sums.fold(Self::default(), |mut all, one| {
            all += one;
            all
        })
    }
}

#[cfg(test)]
mod tests;
