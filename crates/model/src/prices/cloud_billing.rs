//! Prices of the Cloud Billing API: which SKU is the price of what, and the price list that they make. Pure: answers in, a list
//! out. A SKU that no pattern knows, or with another unit or currency than expected, has no price.
//!
//! Sources, read in 2026-11. Shape of the catalogue: the REST reference of `cloudbilling` v1, `services.skus.list`, and the answers
//! that opencost records (`pkg/cloud/gcp/test/skus.json`). Contract prices: the reference of v1beta,
//! `billingAccounts.skus.prices.list`, and "Get Google Cloud pricing information" of the documentation of Cloud Billing. Words of
//! descriptions: `build/mapping.csv` of Cyclenerd's google-cloud-pricing-cost-calculator, `fetch_gcp.py` of SkyPilot, infracost's
//! `compute_disk.go`, and prices that public projects read from the catalogue in 2026; the test data names them for each entry.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use super::Prices;
use crate::catalog::{self, Machine, PriceModel};

/// Compute Engine among the services of the catalogue.
pub const COMPUTE_ENGINE: &str = "6F81-5844-456A";
/// Kubernetes Engine among the services of the catalogue.
pub const KUBERNETES_ENGINE: &str = "CCD8-9BF1-090E";

/// Series of machines, by the beginning of their names, and the words of their SKUs before `Core` and `Ram`. C2 has another
/// wording in its newer regions. A3 Mega is called A3Plus, or H100 Plus where its GPU is meant.
const SERIES: [(&str, &[&str]); 20] = [
    ("a2", &["A2 Instance"]),
    ("a3-highgpu", &["A3 Instance"]),
    ("a3-megagpu", &["A3Plus Instance"]),
    ("c2", &["Compute optimized", "Compute optimized Instance"]),
    ("c2d", &["C2D AMD Instance"]),
    ("c3", &["C3 Instance"]),
    ("c3d", &["C3D Instance"]),
    ("c4", &["C4 Instance"]),
    ("c4a", &["C4A Arm Instance"]),
    ("c4d", &["C4D Instance"]),
    ("e2", &["E2 Instance"]),
    ("g2", &["G2 Instance"]),
    ("g4", &["G4 Instance"]),
    ("n1", &["N1 Predefined Instance"]),
    ("n2", &["N2 Instance"]),
    ("n2d", &["N2D AMD Instance"]),
    ("n4", &["N4 Instance"]),
    ("n4d", &["N4D Instance"]),
    ("t2a", &["T2A Arm Instance"]),
    ("t2d", &["T2D AMD Instance"]),
];

/// GPUs by their names in the API, and the words of their SKUs.
const GPUS: [(&str, &[&str]); 10] = [
    ("nvidia-a100-80gb", &["Nvidia Tesla A100 80GB GPU"]),
    ("nvidia-h100-80gb", &["Nvidia H100 80GB GPU"]),
    ("nvidia-h100-mega-80gb", &["Nvidia H100 80GB Mega GPU", "Nvidia H100 80GB Plus GPU"]),
    ("nvidia-l4", &["Nvidia L4 GPU"]),
    ("nvidia-rtx-pro-6000", &["RTX 6000 96GB"]),
    ("nvidia-tesla-a100", &["Nvidia Tesla A100 GPU"]),
    ("nvidia-tesla-p100", &["Nvidia Tesla P100 GPU"]),
    ("nvidia-tesla-p4", &["Nvidia Tesla P4 GPU"]),
    ("nvidia-tesla-t4", &["Nvidia Tesla T4 GPU"]),
    ("nvidia-tesla-v100", &["Nvidia Tesla V100 GPU"]),
];

/// Disks by their names in the list, and the words of their SKUs. A `Regional` disk is another one. Hyperdisk is billed by its IOPS
/// and its throughput, too, and has no line.
const DISKS: [(&str, &str); 4] = [
    (LOCAL_SSD, "SSD backed Local Storage"),
    ("pd-balanced", "Balanced PD Capacity"),
    ("pd-ssd", "SSD backed PD Capacity"),
    ("pd-standard", "Storage PD Capacity"),
];
const LOCAL_SSD: &str = "local-ssd";

/// The fees of clusters, which are one line of the list. They cost the same.
const FEES: [&str; 3] =
    ["Autopilot Kubernetes Clusters", "Regional Kubernetes Clusters", "Zonal Kubernetes Clusters"];

/// Local SSDs of 375 GiB that come with each GPU of a machine, and are billed by SKUs of their own. Source: Compute Engine's page
/// "GPU machine types"; with them, the prices of A2 Ultra and A3 High are those of the built-in list.
const SSDS_OF_A_GPU: [(&str, u32); 3] = [("a2-ultragpu", 1), ("a3-highgpu", 2), ("a3-megagpu", 2)];
const SSD_GIB: f64 = 375.0;

/// The part of a vCPU that a shared-core machine is billed for. Source: Compute Engine's page "Shared-core machine types".
const SHARED_CORES: [(&str, f64); 3] = [("e2-micro", 0.25), ("e2-small", 0.5), ("e2-medium", 1.0)];

/// Gigabytes of 10^9 bytes in a GiB: RAM of C4D is billed by these.
const GB_OF_A_GIB: f64 = 1.073_741_824;

/// Something that a SKU is the price of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// One vCPU of a series for an hour.
    Core(&'static str),
    /// One GiB of memory of a series for an hour.
    Ram(&'static str),
    /// One GPU for an hour.
    Gpu(&'static str),
    /// One GiB of a disk for a month.
    Disk(&'static str),
    /// One cluster for an hour.
    Fee,
}

impl Part {
    /// Returns the part that a description names, and how it is bought. The usage type does not tell Spot: some Spot SKUs have
    /// `OnDemand`.
    fn of(description: &str, group: &str) -> Option<(Self, PriceModel)> {
        let spot = description.strip_prefix("Spot Preemptible ");
        let (words, capacity) = match spot {
            Some(words) => (words, PriceModel::Spot),
            None => (description, PriceModel::OnDemand),
        };
        match group {
            "CPU" | "RAM" | "N1Standard" => {
                let what = words.split_once(" running in ")?.0;
                let (series, is_core) = match what.strip_suffix(" Core") {
                    Some(series) => (series, true),
                    None => (what.strip_suffix(" Ram")?, false),
                };
                let series = SERIES.iter().find(|(_, words)| words.contains(&series))?.0;
                Some((if is_core { Self::Core(series) } else { Self::Ram(series) }, capacity))
            }
            "GPU" => {
                let what = description.split_once(" running in ")?.0;
                let (what, capacity) = match what.strip_suffix(" attached to Spot Preemptible VMs") {
                    Some(what) => (what, PriceModel::Spot),
                    None => (what, PriceModel::OnDemand),
                };
                let gpu = GPUS.iter().find(|(_, words)| words.contains(&what))?.0;
                Some((Self::Gpu(gpu), capacity))
            }
            "SSD" | "PDStandard" | "LocalSSD" => {
                let (what, capacity) = match description.split_once(" attached to Spot Preemptible VMs") {
                    Some((what, _)) => (what, PriceModel::Spot),
                    None => (description, PriceModel::OnDemand),
                };
                let is = |words: &str| {
                    what.strip_prefix(words)
                        .is_some_and(|place| place.is_empty() || place.starts_with(" in "))
                };
                Some((Self::Disk(DISKS.iter().find(|(_, words)| is(words))?.0), capacity))
            }
            _ if FEES.contains(&description) => Some((Self::Fee, PriceModel::OnDemand)),
            _ => None,
        }
    }

    /// Returns the price of one unit of the part, from that of a unit of the API.
    fn price(self, unit: &str, price: f64) -> Option<f64> {
        match (self, unit) {
            (Self::Core(_) | Self::Gpu(_) | Self::Fee, "h")
            | (Self::Ram(_), "GiBy.h")
            | (Self::Disk(_), "GiBy.mo") => Some(price),
            (Self::Ram(_), "GBy.h") => Some(price * GB_OF_A_GIB),
            _ => None,
        }
    }
}

/// A SKU of the region that is part of the list.
#[derive(Clone, Debug)]
struct Sku {
    part: Part,
    is_spot: bool,
    price: Option<f64>,
}

/// The SKUs that make the price list of a region. All others are dropped page by page: the catalogue has tens of thousands.
#[derive(Clone, Debug)]
pub struct Skus {
    region: String,
    by_id: BTreeMap<String, Sku>,
    /// SKUs whose contract price is still to come.
    open: BTreeSet<String>,
}

impl Skus {
    /// Creates the empty list of a region.
    pub fn new(region: &str) -> Self {
        Self { region: region.to_owned(), by_id: BTreeMap::new(), open: BTreeSet::new() }
    }

    /// Adds the SKUs of an answer of `services.skus.list`.
    pub fn add_page(&mut self, page: &Value) {
        for sku in page["skus"].as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let category = &sku["category"];
            let usage = text(&category["usageType"]);
            let named = Part::of(&text(&sku["description"]), &text(&category["resourceGroup"]));
            let Some((part, capacity)) = named else { continue };
            let is_spot = capacity == PriceModel::Spot;
            let is_bought_so = usage == "OnDemand" || is_spot && usage == "Preemptible";
            let place = if part == Part::Fee { "global" } else { &self.region };
            let regions = sku["serviceRegions"].as_array().into_iter().flatten();
            if is_bought_so && regions.into_iter().any(|region| region == place) {
                let price = list_price(part, sku);
                self.by_id.insert(text(&sku["skuId"]), Sku { part, is_spot, price });
            }
        }
    }

    /// Forgets all prices, because those of a billing account come in their place.
    pub fn expect_contract_prices(&mut self) {
        self.by_id.values_mut().for_each(|sku| sku.price = None);
        self.open = self.by_id.keys().cloned().collect();
    }

    /// Adds the prices of an answer of `billingAccounts.skus.prices.list`.
    pub fn add_contract_prices(&mut self, page: &Value) {
        for price in page["billingAccountPrices"].as_array().into_iter().flatten() {
            let name = price["name"].as_str().unwrap_or_default();
            let id = name.split_once("/skus/").and_then(|(_, rest)| rest.strip_suffix("/price"));
            let Some((id, sku)) = id.and_then(|id| Some((id, self.by_id.get_mut(id)?))) else { continue };
            sku.price = contract_price(sku.part, price);
            self.open.remove(id);
        }
    }

    /// Returns true if every SKU has had its contract price.
    pub fn is_complete(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns true if nothing of the region is in the catalogue.
    pub fn is_empty(&self) -> bool {
        self.by_id.values().all(|sku| sku.part == Part::Fee)
    }

    /// Returns the price list as the text of a price file.
    pub fn price_file(&self, date: &str, source: &str) -> String {
        let mut rows = vec![row("fee", "cluster", [self.price(Part::Fee, false), None])];
        let both = |price: &dyn Fn(bool) -> Option<f64>| [price(false), price(true)];
        rows.extend(
            catalog::machines()
                .map(|machine| row("machine", &machine.name, both(&|spot| self.machine(machine, spot)))),
        );
        let attached = catalog::accelerators().filter(|gpu| gpu.attach == catalog::Attach::N1);
        rows.extend(attached.map(|gpu| row("gpu", &gpu.kind, both(&|spot| self.gpu(&gpu.kind, spot)))));
        rows.extend(DISKS.map(|(disk, _)| row("disk", disk, [self.price(Part::Disk(disk), false), None])));
        let region = &self.region;
        format!(
            "# Prices of Google's Cloud Billing API in US dollars, read by `dask-infra --prices`. docs/costs.md describes the format.\n\
             date\t{date}\nsource\t{source}\nwhat\tname\t{region}\n{}",
            rows.concat()
        )
    }

    /// Returns the price list.
    ///
    /// # Errors
    /// The region, the date or the source is not a word of a price file.
    pub fn prices(&self, date: &str, source: &str) -> Result<Prices, super::BadLine> {
        Prices::parse(&self.price_file(date, source))
    }

    /// The price of a part. Of two SKUs for it the dearer one: it is not known which of them Google takes, and a sum is not to be
    /// too low. If one of them has no price, there is none.
    fn price(&self, part: Part, is_spot: bool) -> Option<f64> {
        let mut found =
            self.by_id.values().filter(|sku| (sku.part, sku.is_spot) == (part, is_spot)).peekable();
        found.peek()?;
        found.try_fold(0.0_f64, |most, sku| Some(most.max(sku.price?)))
    }

    fn gpu(&self, kind: &str, is_spot: bool) -> Option<f64> {
        let (kind, _) = GPUS.iter().find(|(known, _)| *known == kind)?;
        self.price(Part::Gpu(kind), is_spot)
    }

    /// The price of a machine with its GPUs and the local SSDs that come with them.
    fn machine(&self, machine: &Machine, is_spot: bool) -> Option<f64> {
        let begins =
            |series: &str| machine.name.strip_prefix(series).is_some_and(|rest| rest.starts_with('-'));
        let (series, _) = SERIES.iter().find(|(series, _)| begins(series))?;
        let shared = SHARED_CORES.iter().find(|(name, _)| *name == machine.name).map(|(_, cores)| *cores);
        let cores = shared.or(machine.vcpus.map(f64::from))?;
        let mut sum = cores * self.price(Part::Core(series), is_spot)?
            + machine.memory_gb? * self.price(Part::Ram(series), is_spot)?;
        let Some(gpus) = &machine.accelerator else { return Some(sum) };
        sum += f64::from(gpus.count) * self.gpu(&gpus.kind, is_spot)?;
        let ssds = SSDS_OF_A_GPU.iter().find(|(series, _)| begins(series)).map_or(0, |(_, ssds)| *ssds);
        if ssds > 0 {
            let month =
                f64::from(ssds * gpus.count) * SSD_GIB * self.price(Part::Disk(LOCAL_SSD), is_spot)?;
            sum += month / super::HOURS_OF_A_MONTH;
        }
        Some(sum)
    }
}

/// A line of a price file; without a price its cell is empty, and no price is ever 0.
fn row(what: &str, name: &str, [on_demand, spot]: [Option<f64>; 2]) -> String {
    // Google's own prices have nine decimals: what is below comes from the floats.
    let cell = |price: Option<f64>| {
        let rounded = price.map(|price| (price * 1e9).round() / 1e9);
        rounded
            .filter(|price| price.is_finite() && *price > 0.0)
            .map_or(String::new(), |price| price.to_string())
    };
    let (on_demand, spot) = (cell(on_demand), cell(spot));
    let slash = if spot.is_empty() { "" } else { "/" };
    format!("{what}\t{name}\t{on_demand}{slash}{spot}\n")
}

/// The list price of a SKU: of the newest entry of its timeline, the first tier that costs something. A tier before it is a free
/// amount of the billing account.
fn list_price(part: Part, sku: &Value) -> Option<f64> {
    let expression = &sku["pricingInfo"].as_array()?.last()?["pricingExpression"];
    let tier =
        |tier: &Value| Some((tier["startUsageAmount"].as_f64().unwrap_or(0.0), money(&tier["unitPrice"])?));
    part.price(expression["usageUnit"].as_str()?, first_paid(expression["tieredRates"].as_array()?, tier)?)
}

/// The price that a billing account pays for a SKU.
fn contract_price(part: Part, price: &Value) -> Option<f64> {
    let rate = &price["rate"];
    let unit = &rate["unitInfo"];
    let decimal = |value: &Value| value["value"].as_str().and_then(|text| text.parse::<f64>().ok());
    if decimal(&unit["unitQuantity"]) != Some(1.0) {
        return None;
    }
    let tier =
        |tier: &Value| Some((decimal(&tier["startAmount"]).unwrap_or(0.0), money(&tier["contractPrice"])?));
    part.price(unit["unit"].as_str()?, first_paid(rate["tiers"].as_array()?, tier)?)
}

/// The price of the first tier that costs something. `None` if one of them cannot be read, or all are free.
fn first_paid(tiers: &[Value], read: impl Fn(&Value) -> Option<(f64, f64)>) -> Option<f64> {
    let mut tiers: Vec<(f64, f64)> = tiers.iter().map(read).collect::<Option<_>>()?;
    tiers.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    tiers.into_iter().map(|(_, price)| price).find(|price| *price > 0.0)
}

/// US dollars of Google's `Money`: whole units as text, and billionths. Zeros are left out.
fn money(money: &Value) -> Option<f64> {
    let units = match &money["units"] {
        Value::Null => 0.0,
        units => units.as_str()?.parse::<f64>().ok()?,
    };
    let nanos = match &money["nanos"] {
        Value::Null => 0.0,
        nanos => nanos.as_f64()?,
    };
    (money["currencyCode"] == "USD").then_some(units + nanos / 1e9)
}

/// A billing account: `billingAccounts/012345-6789AB-CDEF01`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BillingAccount(String);

impl BillingAccount {
    /// The word that its name begins with.
    pub const PREFIX: &str = "billingAccounts/";

    /// Parses the name of an account.
    pub fn parse(name: &str) -> Option<Self> {
        let id = name.strip_prefix(Self::PREFIX)?;
        let is_group = |group: &str| {
            group.len() == 6 && group.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'A'..=b'F'))
        };
        let groups: Vec<&str> = id.split('-').collect();
        (groups.len() == 3 && groups.into_iter().all(is_group)).then(|| Self(id.to_owned()))
    }

    /// `012345-6789AB-CDEF01`.
    pub fn id(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BillingAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::PREFIX, self.0)
    }
}

#[cfg(test)]
mod tests;
