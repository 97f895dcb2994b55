//! Numbers, uids and suffixes of generated names that a cluster draws: the same for the same seed.

use super::object::letters;

/// The counter of one cluster.
#[derive(Debug, Default)]
pub struct Numbers {
    seed: String,
    drawn: u64,
    /// Counters given to dry runs.
    dry_runs: u64,
}

impl Numbers {
    /// Goes on after `drawn` numbers; `seed` makes uids differ from other clusters'.
    pub fn new(seed: &str, drawn: u64) -> Self {
        Self { seed: seed.to_owned(), drawn, dry_runs: 0 }
    }

    /// Returns the counter of a dry run: no object of this cluster ever has a uid that it draws.
    pub fn of_dry_run(&mut self) -> Self {
        self.dry_runs += 1;
        Self::new(&format!("{} dry run {}", self.seed, self.dry_runs), self.drawn)
    }

    /// Returns the seed of the uids.
    pub fn seed(&self) -> &str {
        &self.seed
    }

    /// How many have been drawn.
    pub fn drawn(&self) -> u64 {
        self.drawn
    }

    /// The next number, for addresses and names.
    pub fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    fn word(&mut self) -> String {
        let number = self.draw();
        format!("{}/{number}", self.seed)
    }

    /// A random UUID (version 4).
    pub fn uid(&mut self) -> String {
        let mut bytes = *blake3::hash(self.word().as_bytes()).as_bytes();
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let hex: String = bytes[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// Five letters as in `generateName`.
    pub fn suffix(&mut self) -> String {
        letters(&self.word(), 5)
    }
}
