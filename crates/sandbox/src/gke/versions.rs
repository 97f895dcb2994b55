//! GKE versions: which a channel offers, and what an alias means. One table; change it here only.

use std::cmp::Ordering;

use serde_json::{Value, json};

/// A channel with what it offers, newest first, and its default.
struct Channel {
    name: &'static str,
    default: &'static str,
    versions: &'static [&'static str],
}

const CHANNELS: &[Channel] = &[
    Channel {
        name: "RAPID",
        default: "1.36.0-gke.3302004",
        versions: &["1.36.0-gke.3302004", "1.35.6-gke.1250000", "1.34.1-gke.1829001"],
    },
    Channel {
        name: "REGULAR",
        default: "1.35.6-gke.1250000",
        versions: &["1.35.6-gke.1250000", "1.34.1-gke.1829001", "1.33.5-gke.1201000"],
    },
    Channel {
        name: "STABLE",
        default: "1.33.5-gke.1201000",
        versions: &["1.34.1-gke.1829001", "1.33.5-gke.1201000", "1.32.9-gke.1108000"],
    },
    Channel {
        name: "EXTENDED",
        default: "1.35.6-gke.1250000",
        versions: &[
            "1.35.6-gke.1250000",
            "1.34.1-gke.1829001",
            "1.33.5-gke.1201000",
            "1.32.9-gke.1108000",
            "1.31.13-gke.1023000",
            "1.30.14-gke.1346000",
        ],
    },
];

/// Versions that a cluster outside every channel may also have.
const STATIC: &[&str] = &[
    "1.35.5-gke.1241004",
    "1.35.3-gke.1389002",
    "1.35.1-gke.1396002",
    "1.30.5-gke.1014001",
    "1.29.15-gke.1523000",
];

/// From here an unset driver version is stored as DEFAULT and GKE installs the driver.
pub const DRIVERS_BY_DEFAULT: &str = "1.30.1-gke.1156000";

/// Builds of Container-Optimized OS, newest first, each from the version on that was recorded with it. The last row
/// stands for all older versions.
const NODE_IMAGES: &[(&str, &str)] = &[
    ("1.36.0-gke.3302004", "cos-129-19506-120-64"),
    ("1.35.6-gke.1250000", "cos-125-19216-395-109"),
    ("1.35.5-gke.1241004", "cos-125-19216-395-7"),
    ("0", "cos-125-19216-220-106"),
];

/// Recorded pools of 1.35.6 name the end of their certificate; those of 1.35.5 and 1.36.0 do not.
const BOOTSTRAP_CERTIFICATE: (&str, &str) = ("1.35.6", "1.36.0");

fn number(version: &str) -> Vec<u64> {
    version.split(['.', '-']).filter_map(|part| part.parse().ok()).collect()
}

/// Orders two GKE versions by their numbers.
pub fn compare(left: &str, right: &str) -> Ordering {
    number(left).cmp(&number(right))
}

/// Returns true if `version` is `first` or newer.
pub fn at_least(version: &str, first: &str) -> bool {
    compare(version, first) != Ordering::Less
}

/// `gke-1356-gke1250000-cos-125-19216-395-109-c-pre`: the version without its points, and the build.
pub fn node_image(version: &str) -> String {
    let build = NODE_IMAGES.iter().find(|(first, _)| at_least(version, first)).map_or("", |(_, build)| build);
    format!("gke-{}-{build}-c-pre", version.replace('.', ""))
}

/// Returns true if nodes of this version join with a certificate of their pool.
pub fn has_bootstrap_certificate(version: &str) -> bool {
    let (first, gone) = BOOTSTRAP_CERTIFICATE;
    at_least(version, first) && !at_least(version, gone)
}

/// The default version of a channel; of no channel, the one of REGULAR.
pub fn default_of(channel: &str) -> &'static str {
    CHANNELS.iter().find(|known| known.name == channel).map_or("1.35.6-gke.1250000", |known| known.default)
}

/// All versions, newest first, without doubles.
fn all() -> Vec<&'static str> {
    let mut all: Vec<&str> =
        CHANNELS.iter().flat_map(|channel| channel.versions).chain(STATIC).copied().collect();
    all.sort_by(|left, right| compare(right, left));
    all.dedup();
    all
}

/// Returns the version that `asked` (exact, `latest`, `-`, `1.33`, `1.33.5` or empty) means in a channel; `None` when no
/// offered version fits.
pub fn resolve(asked: &str, channel: &str) -> Option<&'static str> {
    let offered: Vec<&str> = match CHANNELS.iter().find(|known| known.name == channel) {
        Some(known) => known.versions.to_vec(),
        None => all(),
    };
    match asked {
        "" | "-" => Some(default_of(channel)),
        "latest" => offered.first().copied(),
        _ => offered.into_iter().find(|version| {
            version.strip_prefix(asked).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
        }),
    }
}

/// The most mature channel that offers `asked`; what GKE enrols a cluster in that names a version only.
pub fn channel_for(asked: &str) -> Option<&'static str> {
    ["STABLE", "REGULAR", "RAPID"].into_iter().find(|channel| resolve(asked, channel).is_some())
}

/// The body of `serverConfig`.
pub fn server_config() -> Value {
    let channels: Vec<Value> = CHANNELS
        .iter()
        .map(|Channel { name, default, versions }| {
            json!({ "channel": name, "defaultVersion": default, "validVersions": versions })
        })
        .collect();
    json!({
        "channels": channels,
        "defaultClusterVersion": default_of("REGULAR"),
        "defaultImageType": "COS_CONTAINERD",
        "validImageTypes": [
            "COS_CONTAINERD", "UBUNTU_CONTAINERD", "WINDOWS_LTSC_CONTAINERD",
        ],
        "validMasterVersions": all(),
        "validNodeVersions": all(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_resolve_in_their_channel() {
        let cases = [
            ("", "STABLE", Some("1.33.5-gke.1201000")),
            ("latest", "RAPID", Some("1.36.0-gke.3302004")),
            ("1.33", "REGULAR", Some("1.33.5-gke.1201000")),
            ("1.3", "REGULAR", None),
            ("1.30.5-gke.1014001", "UNSPECIFIED", Some("1.30.5-gke.1014001")),
            ("1.30.5-gke.1014001", "STABLE", None),
        ];
        for (asked, channel, want) in cases {
            assert_eq!(resolve(asked, channel), want, "{asked} in {channel}");
        }
        assert_eq!(channel_for("1.36"), Some("RAPID"));
        assert_eq!(channel_for("1.34"), Some("STABLE"), "recorded");
    }

    #[test]
    fn order_is_by_number() {
        assert!(at_least("1.30.14-gke.1346000", "1.30.5-gke.1014001"));
        assert!(!at_least("1.29.15-gke.1523000", DRIVERS_BY_DEFAULT));
        assert!(at_least("1.35.6-gke.1250000", "1.35.3"));
    }

    #[test]
    fn node_images_as_recorded() {
        let recorded = [
            ("1.36.0-gke.3302004", "gke-1360-gke3302004-cos-129-19506-120-64-c-pre", false),
            ("1.35.6-gke.1250000", "gke-1356-gke1250000-cos-125-19216-395-109-c-pre", true),
            ("1.35.5-gke.1241004", "gke-1355-gke1241004-cos-125-19216-395-7-c-pre", false),
            ("1.35.3-gke.1389002", "gke-1353-gke1389002-cos-125-19216-220-106-c-pre", false),
        ];
        for (version, image, certificate) in recorded {
            assert_eq!(node_image(version), image);
            assert_eq!(has_bootstrap_certificate(version), certificate, "{version}");
        }
    }
}
