//! Checks of text values with a special format in GKE's sections.

use std::net::IpAddr;

use jiff::Timestamp;

use crate::rules::Context;
use crate::rules::names::is_compute_name;
use kinds::gke::cluster::{Cluster, Maintenance};
use model::address::FieldPath;
use model::diag::{Code, Diagnostic, listed, nearest};

/// Formats of values.
#[derive(Clone, Copy)]
enum Form {
    Network,
    TimeOfDay,
    Instant,
    Recurrence,
    /// A range of Pods or Services: a network, only its size, or the name of a secondary range.
    Range,
    Version,
    Tag,
}

impl Form {
    fn fits(self, text: &str) -> bool {
        match self {
            Self::Network => is_network(text),
            Self::TimeOfDay => text.split_once(':').is_some_and(|(hour, minute)| {
                two_digits(hour).is_some_and(|hour| hour < 24) && two_digits(minute).is_some_and(|it| it < 60)
            }),
            Self::Instant => text.parse::<Timestamp>().is_ok(),
            Self::Recurrence => recurs(text),
            Self::Range => match text.strip_prefix('/') {
                Some(bits) => bits.parse::<u8>().is_ok_and(|bits| (1..=32).contains(&bits)),
                None => is_network(text) || is_compute_name(text),
            },
            Self::Version => is_version(text),
            Self::Tag => is_compute_name(text),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Network => "a network",
            Self::TimeOfDay => "a time of day",
            Self::Instant => "a time with date and zone",
            Self::Recurrence => "an RFC 5545 recurrence rule",
            Self::Range => "a range of addresses",
            Self::Version => "a version of Kubernetes",
            Self::Tag => "a network tag",
        }
    }

    fn help(self) -> &'static str {
        match self {
            Self::Network => "write `10.0.0.0/8`, or `192.0.2.7/32` for one address",
            Self::TimeOfDay => "write hours and minutes in UTC: `03:00`",
            Self::Instant => "write `2026-01-03T03:00:00Z`",
            Self::Recurrence => "write `FREQ=WEEKLY;BYDAY=SA,SU`, or `FREQ=DAILY`",
            Self::Range => {
                "write a network (`10.4.0.0/14`), a size (`/17`) or the name of a secondary range of the subnetwork"
            }
            Self::Version => "write `1.33`, or a whole version: `1.33.2-gke.1240000`",
            Self::Tag => "lowercase letters, digits and `-`, at most 63, and a letter first: `gpu-nodes`",
        }
    }

    fn code(self) -> Code {
        match self {
            Self::Network => Code::BadNetwork,
            _ => Code::BadForm,
        }
    }
}

/// Parses two digits, such as `03`.
fn two_digits(text: &str) -> Option<u8> {
    text.parse().ok().filter(|_| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_network(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, bits)| {
        let most = match address.parse() {
            Ok(IpAddr::V4(_)) => 32,
            Ok(IpAddr::V6(_)) => 128,
            Err(_) => return false,
        };
        bits.parse::<u8>().is_ok_and(|bits| bits <= most)
    })
}

/// Returns true for the form of a recurrence rule: parts with a name and a value. GKE checks the parts.
fn recurs(text: &str) -> bool {
    const OFTEN: [&str; 4] = ["DAILY", "WEEKLY", "MONTHLY", "YEARLY"];
    let text = text.trim_start_matches("RRULE:").to_ascii_uppercase();
    let parts: Option<Vec<(&str, &str)>> = text.split(';').map(|part| part.split_once('=')).collect();
    let says = |(name, value): &(&str, &str)| *name == "FREQ" && OFTEN.contains(value);
    parts.is_some_and(|parts| parts.iter().any(says) && parts.iter().all(|(_, value)| !value.is_empty()))
}

/// Returns true for `latest`, or a version of two or three numbers, which may have GKE's patch: `1.33.2-gke.1240000`.
fn is_version(text: &str) -> bool {
    let (numbers, patch) = match text.split_once("-gke.") {
        Some((numbers, patch)) => (numbers, Some(patch)),
        None => (text, None),
    };
    let parts: Vec<&str> = numbers.split('.').collect();
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_long = parts.len() == 3 || parts.len() == 2 && patch.is_none();
    // `-` is GKE's word for its default.
    matches!(text, "latest" | "-") || is_long && parts.into_iter().chain(patch).all(is_number)
}

/// Reports values that GKE would refuse, some of them after minutes.
pub(crate) fn values_have_their_form(context: &mut Context<'_>) {
    let mut given: Vec<Given<'_>> = Vec::new();
    if let Some(cluster) = &context.stack.cluster {
        of_cluster(cluster, &mut given);
    }
    for (path, pool) in context.pools() {
        given.extend(pool.version.as_deref().map(|text| (path.key("version"), text, Form::Version)));
        let tags = pool.tags.iter().enumerate();
        given.extend(tags.map(|(index, tag)| (path.key("tags").index(index), tag.as_str(), Form::Tag)));
    }
    for (place, text, form) in given.into_iter().filter(|(_, text, form)| !form.fits(text)) {
        let finding = Diagnostic::error(form.code(), format!("`{text}` is not {}", form.name()));
        context.say(finding.at_value(place, "").help(form.help()));
    }
}

/// A value with its path and format.
type Given<'a> = (FieldPath, &'a str, Form);

/// Adds the values of some keys, as far as the section sets them.
fn said<'a, const N: usize>(
    section: &FieldPath,
    texts: [(&str, &'a Option<String>, Form); N],
    given: &mut Vec<Given<'a>>,
) {
    let said = |(key, text, form): (&str, &'a Option<String>, Form)| {
        Some((section.key(key), text.as_deref()?, form))
    };
    given.extend(texts.into_iter().filter_map(said));
}

fn of_cluster<'a>(cluster: &'a Cluster, given: &mut Vec<Given<'a>>) {
    let section = FieldPath::keys(["cluster"]);
    let texts = [
        ("version", &cluster.version, Form::Version),
        ("pods_range", &cluster.pods_range, Form::Range),
        ("services_range", &cluster.services_range, Form::Range),
    ];
    said(&section, texts, given);
    if let Some(networks) = &cluster.authorized_networks {
        let at = section.key("authorized_networks");
        let ranges = networks.ranges().into_iter().enumerate();
        given.extend(ranges.map(|(index, (name, range))| {
            (name.map_or_else(|| at.index(index), |name| at.key(name)), range, Form::Network)
        }));
    }
    if let Some(maintenance) = &cluster.maintenance {
        of_maintenance(maintenance, &section.key("maintenance"), given);
    }
}

fn of_maintenance<'a>(maintenance: &'a Maintenance, section: &FieldPath, given: &mut Vec<Given<'a>>) {
    let texts = [
        ("daily", &maintenance.daily, Form::TimeOfDay),
        ("start", &maintenance.start, Form::Instant),
        ("end", &maintenance.end, Form::Instant),
        ("recurrence", &maintenance.recurrence, Form::Recurrence),
    ];
    said(section, texts, given);
    for (name, exclusion) in &maintenance.exclusions {
        let at = section.key("exclusions").key(name);
        given.push((at.key("start"), &exclusion.start, Form::Instant));
        given.push((at.key("end"), &exclusion.end, Form::Instant));
    }
}

/// Checks that the end of a time range is after its start.
pub(crate) fn times_are_in_order(context: &mut Context<'_>) {
    let Some(maintenance) = context.stack.cluster.as_ref().and_then(|it| it.maintenance.as_ref()) else {
        return;
    };
    let at = FieldPath::keys(["cluster", "maintenance"]);
    let window = maintenance.start.as_ref().zip(maintenance.end.as_ref()).map(|times| (at.clone(), times));
    let exclusions = maintenance.exclusions.iter();
    let exclusions = exclusions.map(|(name, it)| (at.key("exclusions").key(name), (&it.start, &it.end)));
    for (place, (start, end)) in window.into_iter().chain(exclusions) {
        let (Ok(first), Ok(last)) = (start.parse::<Timestamp>(), end.parse::<Timestamp>()) else { continue };
        if first >= last {
            let finding = Diagnostic::error(Code::BadForm, "`end` must be after `start`");
            let finding = finding.at_value(place.key("start"), "begins").at_value(place.key("end"), "ends");
            context.say(finding.help("swap the two, or write a later `end`"));
        }
    }
}

/// Known disk types. Source: the reference of GKE's `NodeConfig`, and Compute Engine's list of disks.
const DISKS: [&str; 8] = [
    "pd-standard",
    "pd-balanced",
    "pd-ssd",
    "pd-extreme",
    "hyperdisk-balanced",
    "hyperdisk-extreme",
    "hyperdisk-ml",
    "hyperdisk-throughput",
];
/// Known node images. Source: <https://cloud.google.com/kubernetes-engine/docs/concepts/node-images>, and those before
/// containerd.
const IMAGES: [&str; 8] = [
    "cos_containerd",
    "ubuntu_containerd",
    "windows_ltsc_containerd",
    "windows_sac_containerd",
    "cos",
    "ubuntu",
    "windows_ltsc",
    "windows_sac",
];

/// Warns of unknown disk types and node images, which may be new ones.
pub(crate) fn words_are_known(context: &mut Context<'_>) {
    for (path, pool) in context.pools() {
        let disk = ("disk_type", pool.disk_type.as_deref(), "boot disk type", &DISKS);
        let image = ("image_type", pool.image_type.as_deref(), "node image", &IMAGES);
        for (key, word, what, known) in [disk, image] {
            let Some(word) = word else { continue };
            if known.iter().any(|known| known.eq_ignore_ascii_case(word)) {
                continue;
            }
            let message = format!("`{word}` is not a known {what}");
            let finding = Diagnostic::warning(Code::BadForm, message).at_value(path.key(key), "");
            context.say(finding.help(match nearest(word, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known are {}; GKE may support others", listed(known.iter().copied(), "and")),
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_those_of_google() {
        for (form, good, bad) in [
            (Form::TimeOfDay, &["00:00", "23:59"][..], &["25:00", "3:00", "03:60", "03", "", "+1:00"][..]),
            (
                Form::Instant,
                &["2026-01-03T03:00:00Z", "2026-01-03T03:00:00+02:00"],
                &["2026-01-03", "2026-13-03T03:00:00Z", ""],
            ),
            (
                Form::Recurrence,
                &["FREQ=DAILY", "RRULE:FREQ=DAILY", "FREQ=WEEKLY;BYDAY=SA,SU"],
                &["DAILY", "BYDAY=SA", "FREQ=SOMETIMES", "FREQ=DAILY;", ""],
            ),
            (Form::Network, &["10.0.0.0/8", "fd00::/8"], &["10.0.0.0", "10.0.0.0/33", "office"]),
            (
                Form::Range,
                &["10.4.0.0/14", "/17", "pods"],
                &["/33", "10.4.0.0/99", "10.4.0.0", "/", "My range"],
            ),
            (
                Form::Version,
                &["latest", "1.33", "1.33.2", "1.33.2-gke.1240000"],
                &["1", "v1.33", "1.", "1.33-gke.1", "1.33.x", "newest", ""],
            ),
            (Form::Tag, &["gpu-nodes", "a"], &["GPU", "1a", "a-", "", "a b"]),
        ] {
            good.iter().for_each(|text| assert!(form.fits(text), "{text}"));
            bad.iter().for_each(|text| assert!(!form.fits(text), "{text}"));
        }
        assert!(!Form::Tag.fits(&"a".repeat(64)));
    }
}
