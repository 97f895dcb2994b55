use super::*;

/// Rows of `golden.tsv`: sort, name, region, on demand and Spot.
fn golden() -> impl Iterator<Item = Vec<&'static str>> {
    let lines = include_str!("golden.tsv").lines();
    lines.filter(|line| !line.starts_with(['#', 'w'])).map(|line| line.split('\t').collect())
}

/// More than one in a hundred apart.
fn is_far(found: Option<f64>, expected: &str) -> bool {
    let expected: f64 = expected.parse().unwrap();
    found.is_none_or(|found| (found - expected).abs() > expected / 100.0)
}

#[test]
fn forty_prices_of_three_regions_are_those_of_the_source() {
    let prices = Prices::list();
    let mut regions = BTreeSet::new();
    let (mut count, mut far) = (0, Vec::new());
    for row in golden() {
        let (what, name, region) = (row[0], row[1], row[2]);
        regions.insert(region);
        count += 1;
        let wrong = match what {
            "machine" => {
                is_far(prices.machine(name, region, PriceModel::OnDemand), row[3])
                    || is_far(prices.machine(name, region, PriceModel::Spot), row[4])
            }
            // A GiB for a month.
            _ => is_far(prices.disk(name, 1, region).map(|hour| hour * HOURS_OF_A_MONTH), row[3]),
        };
        if wrong {
            far.push(row);
        }
    }
    assert_eq!((far, regions.len()), (Vec::new(), 3));
    assert!(count >= 40, "{count}");
}

#[test]
fn the_list_has_the_regions_of_the_world_and_its_date() {
    let prices = Prices::list();
    assert_eq!((prices.date(), prices.is_list()), ("2026-07-30", true));
    assert!(prices.regions().count() >= 40, "{}", prices.regions().count());
    assert!(include_str!("../../../../schemas/gcp-prices.tsv").len() < 64 * 1024, "it is in every binary");
    let mut without_machines = 0;
    for region in prices.regions() {
        if prices.machine("e2-standard-4", region, PriceModel::OnDemand).is_none() {
            without_machines += 1;
            continue;
        }
        assert_eq!(prices.fee(region), Some(0.10), "{region}");
        for disk in ["pd-standard", "pd-balanced", "pd-ssd"] {
            let price = prices.disk(disk, 100, region);
            assert!(price.is_some_and(|price| price > 0.003), "{disk} in {region}: {price:?}");
        }
        for machine in ["e2-standard-4", "n1-standard-4", "n2-standard-8"] {
            let each = [PriceModel::OnDemand, PriceModel::Spot].map(|it| prices.machine(machine, region, it));
            // New regions lack the oldest series.
            let is_sold = machine == "e2-standard-4" || each[0].is_some();
            assert!(!is_sold || each[0] > each[1] && each[1].is_some(), "{machine} in {region}: {each:?}");
        }
    }
    assert!(without_machines < 4, "{without_machines}");
    // Every zone that GPUs are known in has prices.
    for zone in crate::catalog::zones() {
        let region = crate::catalog::region_of(zone).unwrap();
        assert!(prices.regions().any(|known| known == region), "{region}");
    }
}

/// The program knows the machines that have a price, or a size of their family.
#[test]
fn every_line_is_of_something_that_the_program_can_use() {
    let known: Vec<&str> = crate::catalog::machines().map(|machine| &*machine.name).collect();
    for name in Prices::list().names("machine") {
        let (before, after) = name.split_once('*').unwrap_or((name, ""));
        let fits = |machine: &&str| machine.starts_with(before) && machine.ends_with(after);
        assert!(known.iter().any(fits), "{name}");
    }
    for gpu in Prices::list().names("gpu") {
        assert!(crate::catalog::accelerator(gpu).is_some(), "{gpu}");
    }
}

#[test]
fn a_price_that_no_number_can_hold_is_unknown() {
    let largest = "1".to_owned() + &"0".repeat(308);
    let text =
        format!("date\t2026-01-02\nwhat\tname\ta\nmachine\te2-standard-*\t{largest}\ndisk\td\t{largest}\n");
    let prices = Prices::parse(&text).unwrap();
    assert!(prices.machine("e2-standard-1", "a", PriceModel::OnDemand).is_some());
    assert_eq!(prices.machine("e2-standard-4", "a", PriceModel::OnDemand), None);
    assert_eq!(prices.disk("d", 100, "a"), None);
    let mut sum = Sum { usd: f64::MAX, ..Sum::default() }.times(3);
    sum += &sum.clone();
    sum.add(Some(f64::MAX), || unreachable!());
    assert!(sum.usd.is_finite());
}

#[test]
fn prices_are_looked_up_by_name_and_by_family() {
    let text = "# mine\ndate\t2026-01-02\n\nwhat\tname\ta\tb\tc\n\
                machine\te2-standard-*\t0.03/0.01\t0.04\t/0.02\nmachine\te2-standard-8\t1\nmachine\ta2-highgpu-*g\t\t3.5\n\
                gpu\tnvidia-tesla-t4\t0.35\ndisk\tpd-balanced\t0.073\nfee\tcluster\t0.2\t0.1\n";
    let prices = Prices::parse(text).unwrap();
    let find = |name: &str, region: &str| {
        [PriceModel::OnDemand, PriceModel::Spot]
            .map(|capacity| prices.machine(name, region, capacity).map(|price| format!("{price:.2}")))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(find("e2-standard-4", "a"), [some("0.12"), some("0.04")]);
    assert_eq!(find("e2-standard-4", "b"), [some("0.16"), None]);
    assert_eq!(find("e2-standard-4", "c"), [None, some("0.08")]);
    assert_eq!(find("e2-standard-4", "d"), [None, None]);
    // A machine with a line of its own has no other price.
    assert_eq!(find("e2-standard-8", "a"), [some("1.00"), None]);
    assert_eq!(find("e2-standard-8", "b"), [None, None]);
    assert_eq!(find("a2-highgpu-2g", "b"), [some("7.00"), None]);
    assert_eq!(find("n1-standard-4", "a"), [None, None]);
    assert_eq!(prices.gpu("nvidia-tesla-t4", "a", PriceModel::OnDemand), Some(0.35));
    assert_eq!(prices.disk("pd-balanced", 100, "a").map(|price| format!("{price:.4}")), some("0.0100"));
    assert_eq!((prices.fee("a"), prices.fee("c"), prices.is_list()), (Some(0.2), None, false));
    let again: Prices = serde_json::from_str(&serde_json::to_string(&prices).unwrap()).unwrap();
    assert_eq!(again, prices);
}

#[test]
fn a_line_that_is_no_price_is_named() {
    let head = "date\t2026-01-02\nwhat\tname\ta\n";
    for (text, line, why) in [
        ("", 1, "no line `date`"),
        ("date\t2026-01-02\n", 1, "no line of `what`"),
        ("date\tyesterday\n", 1, "`yesterday` is not a date"),
        ("machine\te2-standard-4\t1\n", 1, "the line of regions comes first"),
        (&format!("{head}machine\te2-standard-4\tcheap\n"), 3, "`cheap` is not a price"),
        (&format!("{head}machine\te2-standard-4\t-1\n"), 3, "`-1` is not a price"),
        (&format!("{head}machine\te2-standard-4\tNaN\n"), 3, "`NaN` is not a price"),
        (&format!("{head}machine\te2-standard-4\t1\t2\n"), 3, "2 prices for 1 regions"),
        (&format!("{head}machine\tx\t1\nmachine\tx\t2\n"), 4, "a second line of machine `x`"),
        (&format!("{head}boat\tx\t1\n"), 3, "a line begins with"),
        (&format!("{head}machine\n"), 3, "a line begins with"),
    ] {
        let bad = Prices::parse(text).unwrap_err();
        assert!((bad.line, bad.why.starts_with(why)) == (line, true), "{text:?}: {bad:?}");
    }
}

#[test]
fn sums_name_what_they_lack() {
    let mut sum = Sum::default();
    sum.add(Some(1.5), || unreachable!());
    assert!(sum.is_known());
    sum.add(None, || "quantum".to_owned());
    assert_eq!(
        (sum.is_known(), sum.clone().times(2).usd, sum.clone().times(0)),
        (false, 3.0, Sum::default())
    );
    let spot = Sum { usd: 0.5, spot: true, ..Sum::default() };
    let both: Sum = [&sum, &spot].into_iter().sum();
    assert_eq!((both.usd, both.spot, both.unknown.len()), (2.0, true, 1));
}
