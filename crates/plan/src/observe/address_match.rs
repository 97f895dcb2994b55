//! Matches addresses: one address, or all of a section.

use std::collections::BTreeMap;

use model::address::Address;

/// An index of addresses, by address and by section.
pub struct AddressIndex<'a> {
    /// Indices keyed by address and by section. An index is at most once under each key.
    positions: BTreeMap<&'a str, Vec<usize>>,
}

impl<'a> AddressIndex<'a> {
    /// Indexes these addresses by their position.
    pub fn new(addresses: impl IntoIterator<Item = &'a Address>) -> Self {
        let mut positions: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, address) in addresses.into_iter().enumerate() {
            positions.entry(address.as_str()).or_default().push(index);
            if address.section() != address.as_str() {
                positions.entry(address.section()).or_default().push(index);
            }
        }
        Self { positions }
    }

    /// Returns the indices of the addresses that `named`, an address or a whole section, includes.
    pub fn lookup(&self, named: &Address) -> &[usize] {
        self.positions.get(named.as_str()).map_or(&[], Vec::as_slice)
    }
}

/// Returns true if `named`, an address or a whole section, includes `address`.
pub fn includes(named: &Address, address: &Address) -> bool {
    named == address || named.as_str() == address.section()
}
