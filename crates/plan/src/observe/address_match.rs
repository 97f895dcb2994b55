//! Addresses that name others: themselves, or all of a section.

use std::collections::BTreeMap;

use model::address::Address;

/// Which of many addresses an address or a whole section names, without looking at each of them.
pub struct Named<'a> {
    /// By the address itself and by its section; every place stands once under a name.
    places: BTreeMap<&'a str, Vec<usize>>,
}

impl<'a> Named<'a> {
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

    /// The places of those that `desired`, an address or a whole section, names.
    pub fn by(&self, desired: &Address) -> &[usize] {
        self.places.get(desired.as_str()).map_or(&[], Vec::as_slice)
    }
}

/// Returns true if `desired`, an address or a whole section, names `address`.
pub fn names(desired: &Address, address: &Address) -> bool {
    desired == address || desired.as_str() == address.section()
}
