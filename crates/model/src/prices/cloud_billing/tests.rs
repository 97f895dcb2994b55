use serde_json::json;

use super::*;

const COMPUTE: [&str; 2] = [
    include_str!("../../../../../tests/data/cloud-billing/compute-1.json"),
    include_str!("../../../../../tests/data/cloud-billing/compute-2.json"),
];
const KUBERNETES: &str = include_str!("../../../../../tests/data/cloud-billing/kubernetes.json");
const ACCOUNT: &str = include_str!("../../../../../tests/data/cloud-billing/account.json");

fn page(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn skus(region: &str) -> Skus {
    let mut skus = Skus::new(region);
    for text in COMPUTE.into_iter().chain([KUBERNETES]) {
        skus.add_page(&page(text));
    }
    skus
}

fn prices(skus: &Skus) -> Prices {
    skus.prices("2026-11-30", "Cloud Billing").unwrap()
}

/// A page with one SKU.
fn one(description: &str, group: &str, usage: &str, unit: &str, money: &Value) -> Value {
    json!({ "skus": [{
        "skuId": "AAAA-AAAA-AAAA", "description": description,
        "category": { "resourceGroup": group, "usageType": usage }, "serviceRegions": ["us-central1"],
        "pricingInfo": [{ "pricingExpression": { "usageUnit": unit, "tieredRates": [{ "unitPrice": money }] } }],
    }] })
}

/// Recorded entries and the built-in list, which a price calculator collected from the same catalogue, say the same.
#[test]
fn forty_prices_of_recorded_skus_are_those_of_the_built_in_list() {
    let (live, list) = (prices(&skus("us-central1")), Prices::list());
    let machines = [
        "a2-highgpu-1g",
        "a2-highgpu-4g",
        "a2-highgpu-8g",
        "a2-megagpu-16g",
        "a2-ultragpu-1g",
        "a2-ultragpu-8g",
        "c3-highcpu-8",
        "c3-highmem-22",
        "c3-standard-8",
        "c4-highcpu-8",
        "c4-highmem-16",
        "c4-standard-2",
        "c4-standard-48",
        "e2-highcpu-8",
        "e2-highmem-16",
        "e2-medium",
        "e2-micro",
        "e2-small",
        "e2-standard-4",
        "g2-standard-4",
        "g2-standard-8",
        "g2-standard-48",
        "n1-highcpu-16",
        "n1-highmem-8",
        "n1-standard-4",
        "n2-highcpu-32",
        "n2-highmem-128",
        "n2-standard-8",
        "n2d-highcpu-16",
        "n2d-highmem-8",
        "n2d-standard-4",
    ];
    let mut pairs = vec![("fee", live.fee("us-central1"), list.fee("us-central1"))];
    pairs.extend(machines.map(|name| {
        let of = |prices: &Prices| prices.machine(name, "us-central1", PriceModel::OnDemand);
        (name, of(&live), of(list))
    }));
    pairs.extend(["nvidia-tesla-p100", "nvidia-tesla-p4", "nvidia-tesla-t4", "nvidia-tesla-v100"].map(
        |name| {
            let of = |prices: &Prices| prices.gpu(name, "us-central1", PriceModel::OnDemand);
            (name, of(&live), of(list))
        },
    ));
    pairs.extend(DISKS.map(|(name, _)| {
        let of = |prices: &Prices| prices.disk(name, 1000, "us-central1");
        (name, of(&live), of(list))
    }));
    assert!(pairs.len() >= 40, "{}", pairs.len());
    for (name, live, list) in pairs {
        let (live, list) = (live.unwrap_or_default(), list.unwrap());
        assert!((live - list).abs() < list / 100.0, "{name}: {live}, and the list has {list}");
    }
}

#[test]
fn disks_of_a_region_are_those_with_its_name() {
    let (live, list) = (prices(&skus("europe-west9")), Prices::list());
    for disk in ["pd-balanced", "pd-ssd", "pd-standard"] {
        let [live, list] = [&live, list].map(|prices| prices.disk(disk, 1000, "europe-west9").unwrap());
        assert!((live - list).abs() < list / 100.0, "{disk}: {live} {list}");
    }
    assert_eq!(live.machine("e2-standard-4", "europe-west9", PriceModel::OnDemand), None);
    assert_eq!(live.regions().collect::<Vec<_>>(), ["europe-west9"]);
}

/// 48 vCPUs and 180 GiB, $1.42 as Spot: so the notes that the two SKUs are from.
#[test]
fn spot_prices_have_skus_of_their_own() {
    let live = prices(&skus("us-central1"));
    let spot = |name| live.machine(name, "us-central1", PriceModel::Spot);
    assert_eq!(spot("c4-standard-48").map(|price| format!("{price:.4}")).as_deref(), Some("1.4198"));
    // No recorded SKU is one of these.
    assert_eq!(
        (spot("n1-standard-4"), live.gpu("nvidia-tesla-t4", "us-central1", PriceModel::Spot)),
        (None, None)
    );
    for (description, group, part) in [
        ("Spot Preemptible N1 Predefined Instance Core running in Iowa", "N1Standard", Part::Core("n1")),
        ("Spot Preemptible Compute optimized Instance Ram running in Madrid", "RAM", Part::Ram("c2")),
        (
            "Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Warsaw",
            "GPU",
            Part::Gpu("nvidia-tesla-t4"),
        ),
        (
            "RTX 6000 96GB attached to Spot Preemptible VMs running in Belgium",
            "GPU",
            Part::Gpu("nvidia-rtx-pro-6000"),
        ),
        (
            "SSD backed Local Storage attached to Spot Preemptible VMs in Paris",
            "LocalSSD",
            Part::Disk("local-ssd"),
        ),
        ("SSD backed Local Storage attached to Spot Preemptible VMs", "LocalSSD", Part::Disk("local-ssd")),
    ] {
        assert_eq!(Part::of(description, group), Some((part, PriceModel::Spot)), "{description}");
    }
}

#[test]
fn memory_that_is_billed_by_decimal_gigabytes_is_counted_in_them() {
    let live = prices(&skus("us-central1"));
    let machine = catalog::machine("c4d-standard-8").unwrap();
    let gib = machine.memory_gb.unwrap();
    let expected = 8.0 * 0.032_703_5 + gib * 1.073_741_824 * 0.003_495_578;
    let price = live.machine("c4d-standard-8", "us-central1", PriceModel::OnDemand).unwrap();
    assert!((price - expected).abs() < 1e-5, "{price} {expected}");
}

#[test]
fn other_skus_are_no_part_of_the_list() {
    for (description, group) in [
        ("N2 Custom Instance Core running in Sao Paulo", "CPU"),
        ("N2D AMD Custom Instance Ram running in Zurich", "RAM"),
        ("Commitment v1: Cpu in Montreal for 1 Year", "CPU"),
        ("Reserved A2 Ram in Netherlands", "RAM"),
        ("Sole Tenancy Premium for N4A Sole Tenancy Instance Core running in Iowa", "CPU"),
        ("Memory Optimized Upgrade Premium for Memory-optimized Instance Core running in Iowa", "CPU"),
        ("Nvidia L4 GPU attached to DWS Defined Duration VMs running in Frankfurt", "GPU"),
        ("Reserved Nvidia H100 80GB Mega GPU in Americas in Calendar Mode", "GPU"),
        ("Nvidia Tesla T4 GPU attached to Sole Tenancy VMs running in Americas", "GPU"),
        ("Regional SSD backed PD Capacity in Paris", "SSD"),
        ("Balanced PD Capacity - Confidential", "SSD"),
        ("Hyperdisk Balanced Capacity in Mumbai", "SSD"),
        ("C4D Instance Local SSD running in Frankfurt", "LocalSSD"),
        ("Autopilot Pod mCPU Requests (us-east1)", "Compute"),
        ("", ""),
    ] {
        assert_eq!(Part::of(description, group), None, "{description}");
    }
}

/// A price of another currency, unit or usage, and one that cannot be read, is unknown. So is one that costs nothing.
#[test]
fn a_price_that_is_not_understood_is_unknown_and_never_zero() {
    let usd = json!({ "currencyCode": "USD", "units": "1", "nanos": 500_000_000 });
    let (words, group) = ("Nvidia Tesla T4 GPU running in Americas", "GPU");
    let price = |page: &Value| {
        let mut skus = Skus::new("us-central1");
        skus.add_page(page);
        prices(&skus).gpu("nvidia-tesla-t4", "us-central1", PriceModel::OnDemand)
    };
    assert_eq!(price(&one(words, group, "OnDemand", "h", &usd)), Some(1.5));
    for (usage, unit, money) in [
        ("Commit1Yr", "h", usd.clone()),
        ("Preemptible", "h", usd.clone()),
        ("OnDemand", "s", usd.clone()),
        ("OnDemand", "GiBy.h", usd),
        ("OnDemand", "h", json!({ "currencyCode": "IDR", "units": "327" })),
        ("OnDemand", "h", json!({ "units": "1" })),
        ("OnDemand", "h", json!({ "currencyCode": "USD" })),
        ("OnDemand", "h", json!({ "currencyCode": "USD", "units": "0", "nanos": 0 })),
        ("OnDemand", "h", json!({ "currencyCode": "USD", "units": "much" })),
        ("OnDemand", "h", json!({ "currencyCode": "USD", "units": "-1" })),
        ("OnDemand", "h", json!({ "currencyCode": "USD", "units": "1e308" })),
        ("OnDemand", "h", json!({ "currencyCode": "USD", "units": "inf" })),
        ("OnDemand", "h", Value::Null),
    ] {
        assert_eq!(price(&one(words, group, usage, unit, &money)), None, "{usage} {unit} {money}");
    }
    for broken in [json!(null), json!([]), json!({ "skus": 3 }), json!({ "skus": [null, 1, {}] })] {
        assert_eq!(price(&broken), None, "{broken}");
    }
    let rupiah = prices(&skus("asia-southeast1"));
    assert_eq!(rupiah.machine("t2d-standard-4", "asia-southeast1", PriceModel::OnDemand), None);
}

#[test]
fn of_two_skus_for_a_thing_the_dearer_one_counts() {
    let mut skus = Skus::new("us-central1");
    for (id, nanos) in [("A", 350_000_000), ("B", 351_000_000), ("C", 349_000_000)] {
        let money = json!({ "currencyCode": "USD", "nanos": nanos });
        let mut page = one("Nvidia Tesla T4 GPU running in Iowa", "GPU", "OnDemand", "h", &money);
        page["skus"][0]["skuId"] = json!(id);
        skus.add_page(&page);
    }
    assert_eq!(skus.gpu("nvidia-tesla-t4", false), Some(0.351));
}

#[test]
fn the_list_is_a_price_file() {
    let all = skus("us-central1");
    let text = all.price_file("2026-11-30", "Cloud Billing");
    let read = Prices::parse(&text).unwrap();
    assert_eq!((read.date(), read.is_list()), ("2026-11-30", false));
    assert_eq!(read.origin(), super::super::Origin::Source("Cloud Billing".to_owned()));
    assert!(text.contains("\nmachine\te2-standard-4\t0.13402284\n"), "{text}");
    assert!(text.contains("\nmachine\ta4-highgpu-8g\t\n") && text.len() < 32 * 1024, "{}", text.len());
    assert!(!all.is_empty() && skus("moon-east1").is_empty());
}

#[test]
fn prices_of_a_billing_account_replace_those_of_the_list() {
    let mut skus = skus("us-central1");
    skus.expect_contract_prices();
    assert!(!skus.is_complete());
    skus.add_contract_prices(&page(ACCOUNT));
    let live = prices(&skus);
    let machine = live.machine("e2-standard-4", "us-central1", PriceModel::OnDemand).unwrap();
    assert!((machine - (4.0 * 0.02 + 16.0 * 0.0025)).abs() < 1e-6, "{machine}");
    assert_eq!(live.fee("us-central1"), Some(0.08));
    assert_eq!(live.gpu("nvidia-tesla-t4", "us-central1", PriceModel::OnDemand), Some(0.3));
    let disk = |kind| live.disk(kind, 1, "us-central1").map(|hour| format!("{:.3}", hour * 730.0));
    assert_eq!(disk("pd-standard").as_deref(), Some("0.030"), "the first tier is free");
    // Another currency, and a SKU that the account does not have.
    assert_eq!(live.machine("n1-standard-4", "us-central1", PriceModel::OnDemand), None);
    assert_eq!(disk("pd-ssd"), None);
}

#[test]
fn an_account_has_three_groups_of_six() {
    let account = BillingAccount::parse("billingAccounts/012345-6789AB-CDEF01").unwrap();
    assert_eq!(
        (account.id(), account.to_string().as_str()),
        ("012345-6789AB-CDEF01", "billingAccounts/012345-6789AB-CDEF01")
    );
    for bad in [
        "012345-6789AB-CDEF01",
        "billingAccounts/",
        "billingAccounts/01234-6789AB-CDEF01",
        "billingAccounts/012345-6789AB-CDEF0G",
        "billingAccounts/012345-6789AB-CDEF01/skus",
    ] {
        assert_eq!(BillingAccount::parse(bad), None, "{bad}");
    }
}
