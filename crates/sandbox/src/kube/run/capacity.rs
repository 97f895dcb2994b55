//! Which machines there are, by script: where, how many, from when and for how long. It is about those that are waited for:
//! of pools with queued provisioning, and with flex-start.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The ways to buy machines that wait for some.
pub const WAYS: [&str; 2] = ["queued", "flex-start"];

/// Machines that there are. Pools that a rule covers, wherever and whenever, have no others than the rules say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Which pools, by name; `*` stands for any run of letters.
    pub pool: String,
    /// Only in this zone; everywhere when unset. `*` as above.
    pub zone: Option<String>,
    /// Only machines with this GPU; all when unset. `*` as above.
    pub gpu: Option<String>,
    /// Only this machine type; all when unset. `*` as above.
    pub machine: Option<String>,
    /// Only machines that are bought in this way, one of [`WAYS`]; both when unset.
    pub way: Option<String>,
    /// How many there are in each zone, at a time; as many as are asked for when unset.
    pub nodes: Option<u32>,
    pub from: Start,
    /// For how many seconds of the service they are to be had; forever when unset.
    pub lasts: Option<u64>,
}

/// Since when machines are to be had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Start {
    #[default]
    Always,
    /// From a moment of the sandbox's clock.
    At(Timestamp),
    /// So many seconds of the service after they were asked for.
    After(u64),
}

impl Default for Capacity {
    fn default() -> Self {
        Self {
            pool: "*".to_owned(),
            zone: None,
            gpu: None,
            machine: None,
            way: None,
            nodes: None,
            from: Start::Always,
            lasts: None,
        }
    }
}
