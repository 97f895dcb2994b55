//! Things that Google bills by the hour, and their prices: the fee of a cluster, and nodes with their boot disks. Without traffic, addresses,
//! volumes and load balancers.

use model::catalog::{self, PriceModel};
use model::prices::{Prices, Sum};

/// Something that exists and is billed by itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Billed {
    /// A cluster: GKE's fee.
    Cluster,
    /// The Pods of an Autopilot cluster, by what they request while they run.
    AutopilotPods,
    /// Nodes of a pool.
    Nodes(Node, u32),
}

impl Billed {
    /// Returns the price in a region.
    pub fn price(&self, prices: &Prices, region: &str) -> Sum {
        match self {
            Self::Cluster => fee(prices, region),
            Self::AutopilotPods => {
                let mut sum = Sum::default();
                sum.add(None, || "Pods on Autopilot".to_owned());
                sum
            }
            Self::Nodes(node, number) => node.price(prices, region).times(*number),
        }
    }
}

/// Returns the fee of a GKE cluster. A credit of the billing account may cover one cluster; nothing here knows of it.
pub fn fee(prices: &Prices, region: &str) -> Sum {
    let mut sum = Sum::default();
    sum.add(prices.fee(region), || "fee of GKE".to_owned());
    sum
}

/// The first words of the name of a secondary boot disk among what has no price.
const SECONDARY_DISK: &str = "secondary boot disk";

/// Returns true if everything without a price is a secondary boot disk. Such a disk has the size of its disk image, which no list of prices
/// knows.
pub fn are_secondary_disks<'n>(mut unknown: impl Iterator<Item = &'n String>) -> bool {
    unknown.all(|name| name.starts_with(SECONDARY_DISK))
}

/// The parts of a node that have a price.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its type: `n1-standard-4`.
    pub machine: String,
    /// The type and the number of its GPUs.
    pub gpus: Option<(String, u32)>,
    /// Flex-start and queued machines count as those on demand, which cost no less.
    pub capacity: PriceModel,
    /// The type of its boot disk.
    pub disk: String,
    /// The size of its boot disk.
    pub disk_gib: u32,
    /// Local SSDs that the pool asks for.
    pub ssds: u32,
    /// The names of its secondary boot disks. They are of the type of the boot disk and as large as their image, which only Google knows.
    /// Source: GKE, "Use secondary boot disks to preload data or container images", "How secondary boot disks work".
    pub secondary_disks: Vec<String>,
}

/// Series whose local SSDs are attached and billed one by one. With other machines they come with the type, and are in its price: those
/// of `c3-standard-8-lssd` and `c3-standard-8` differ by two disks in every region of the list.
/// Source: Compute Engine's page "About Local SSD disks", "Choose a valid number of Local SSD disks".
const SSDS_ATTACHED: [&str; 8] = ["a2-highgpu", "a2-megagpu", "c2", "c2d", "g2", "n1", "n2", "n2d"];

/// The size of one local SSD in GiB.
const SSD_GIB: u32 = 375;

impl Node {
    /// Returns the same node on demand.
    #[must_use]
    pub fn on_demand(self) -> Self {
        Self { capacity: PriceModel::OnDemand, ..self }
    }

    /// Returns the same node without its secondary boot disks, whose price nobody knows, to compare it with others.
    #[must_use]
    pub fn without_secondary_disks(self) -> Self {
        Self { secondary_disks: Vec::new(), ..self }
    }

    /// Returns true for Spot machines.
    pub fn is_spot(&self) -> bool {
        self.capacity == PriceModel::Spot
    }

    /// Returns the price of one node in a region.
    pub fn price(&self, prices: &Prices, region: &str) -> Sum {
        let mut sum = Sum { spot: self.is_spot(), ..Sum::default() };
        sum.add(self.machine_price(prices, region), || self.name());
        sum.add(prices.disk(&self.disk, self.disk_gib, region), || format!("disks {}", self.disk));
        let attaches = SSDS_ATTACHED.iter().any(|series| self.machine.starts_with(&format!("{series}-")));
        if self.ssds > 0 && attaches {
            let ssds = prices.disk("local-ssd", self.ssds * SSD_GIB, region);
            sum.add(ssds, || "local SSDs".to_owned());
        }
        for disk in &self.secondary_disks {
            sum.add(None, || format!("{SECONDARY_DISK} {disk}"));
        }
        sum
    }

    /// Returns the price of one machine with its GPUs, in US dollars per hour. `None` if the price of a part is unknown, or if there is
    /// no such machine.
    pub fn machine_price(&self, prices: &Prices, region: &str) -> Option<f64> {
        let machine = catalog::machine(&self.machine)?;
        let price = prices.machine(&machine.name, region, self.capacity)?;
        let Some((kind, count)) = self.gpus.as_ref().filter(|(_, count)| *count > 0) else {
            return Some(price);
        };
        if let Some(fixed) = &machine.accelerator {
            return (fixed.kind == *kind && fixed.count == *count).then_some(price);
        }
        let each = prices.gpu(kind, region, self.capacity).filter(|_| machine.takes_accelerators())?;
        Some(price + each * f64::from(*count))
    }

    /// `n1-standard-4 with nvidia-tesla-t4 (spot)`. GPUs that come with the machine are not named.
    fn name(&self) -> String {
        let comes_with = catalog::machine(&self.machine).is_some_and(|machine| machine.accelerator.is_some());
        let gpus = self.gpus.as_ref().filter(|_| !comes_with);
        let with = gpus.map(|(kind, _)| format!(" with {kind}")).unwrap_or_default();
        let spot = if self.is_spot() { " (spot)" } else { "" };
        format!("{}{with}{spot}", self.machine)
    }
}
