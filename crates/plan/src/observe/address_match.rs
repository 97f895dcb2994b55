//! Addresses that name others: themselves, or all of a section.

use std::collections::BTreeMap;

use model::address::Address;

/// Which of many addresses an address or a whole section names, without looking at each of them.
pub struct AddressIndex<'a> {
    /// By the address itself and by its section; every place stands once under a name.
    places: BTreeMap<&'a str, Vec<usize>>,
}

impl<'a> AddressIndex<'a> {
    /// Of these addresses, in their order.
    pub fn of(addresses: impl IntoIterator<Item = &'a Address>) -> Self {
        let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (place, address) in addresses.into_iter().enumerate() {
            places.entry(address.as_str()).or_default().push(place);
            if address.section() != address.as_str() {
                places.entry(address.section()).or_default().push(place);
            }
        }
        Self { places }
    }

    /// Returns the places of the addresses that `named`, an address or a whole section, includes.
    pub fn by(&self, named: &Address) -> &[usize] {
        self.places.get(named.as_str()).map_or(&[], Vec::as_slice)
    }
}

/// Returns true if `named`, an address or a whole section, includes `address`.
pub fn names(named: &Address, address: &Address) -> bool {
    named == address || named.as_str() == address.section()
}
