//! Regions and zones. The lists are general knowledge about Google's regions, not from a recorded
//! exchange; a region that is missing here is refused as GKE refuses an unknown one.

/// Region and the letters of its zones, the default three first.
const REGIONS: &[(&str, &str)] = &[
    ("africa-south1", "abc"),
    ("asia-east1", "abc"),
    ("asia-east2", "abc"),
    ("asia-northeast1", "abc"),
    ("asia-northeast2", "abc"),
    ("asia-northeast3", "abc"),
    ("asia-south1", "abc"),
    ("asia-south2", "abc"),
    ("asia-southeast1", "abc"),
    ("asia-southeast2", "abc"),
    ("australia-southeast1", "abc"),
    ("australia-southeast2", "abc"),
    ("europe-central2", "abc"),
    ("europe-north1", "abc"),
    ("europe-north2", "abc"),
    ("europe-southwest1", "abc"),
    ("europe-west1", "bcd"),
    ("europe-west10", "abc"),
    ("europe-west12", "abc"),
    ("europe-west2", "abc"),
    ("europe-west3", "abc"),
    ("europe-west4", "abc"),
    ("europe-west6", "abc"),
    ("europe-west8", "abc"),
    ("europe-west9", "abc"),
    ("me-central1", "abc"),
    ("me-central2", "abc"),
    ("me-west1", "abc"),
    ("northamerica-northeast1", "abc"),
    ("northamerica-northeast2", "abc"),
    ("northamerica-south1", "abc"),
    ("southamerica-east1", "abc"),
    ("southamerica-west1", "abc"),
    ("us-central1", "abcf"),
    ("us-east1", "bcd"),
    ("us-east4", "abc"),
    ("us-east5", "abc"),
    ("us-south1", "abc"),
    ("us-west1", "abc"),
    ("us-west2", "abc"),
    ("us-west3", "abc"),
    ("us-west4", "abc"),
];

/// Returns true if a location is a zone (`us-central1-c`) rather than a region.
pub fn is_zone(location: &str) -> bool {
    location.rsplit('-').next().is_some_and(|last| last.len() == 1)
}

/// The region of a zone; a region is its own.
pub fn region(location: &str) -> &str {
    match location.rsplit_once('-') {
        Some((region, _)) if is_zone(location) => region,
        _ => location,
    }
}

/// `zones` or `locations`: how links and messages spell the collection that holds `location`.
pub fn word(location: &str) -> &'static str {
    if is_zone(location) { "zones" } else { "locations" }
}

pub fn exists(location: &str) -> bool {
    let Some((_, letters)) = REGIONS.iter().find(|(name, _)| *name == region(location)) else { return false };
    !is_zone(location) || location.chars().last().is_some_and(|letter| letters.contains(letter))
}

/// The zones where nodes go when nobody says: a zone's own, a region's first three.
pub fn default_zones(location: &str) -> Vec<String> {
    if is_zone(location) {
        return vec![location.to_owned()];
    }
    zones(location).into_iter().take(3).collect()
}

/// All zones of a region, sorted.
pub fn zones(region: &str) -> Vec<String> {
    let letters = REGIONS.iter().find(|(name, _)| *name == region).map_or("", |(_, letters)| *letters);
    letters.chars().map(|letter| format!("{region}-{letter}")).collect()
}

/// All regions, sorted.
pub fn regions() -> impl Iterator<Item = &'static str> {
    REGIONS.iter().map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_and_regions() {
        assert!(is_zone("us-central1-c") && !is_zone("us-central1"));
        assert_eq!(region("europe-west4-a"), "europe-west4");
        assert_eq!(default_zones("us-central1"), ["us-central1-a", "us-central1-b", "us-central1-c"]);
        assert_eq!(default_zones("us-east1-d"), ["us-east1-d"]);
        for (location, known) in
            [("us-central1-f", true), ("us-central1-x", false), ("", false), ("mars1", false)]
        {
            assert_eq!(exists(location), known, "{location}");
        }
    }
}
