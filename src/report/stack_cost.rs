//! The cost of a stack: what its sections cost now, and what they have cost since they were created. A table for people, one JSON
//! object for programs.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::cost::{HourlySum, dollars};
use super::human::cost::{amount, counted_with, in_hours, money, with_unknown};
use super::human::style::{Tint, paint, push_line, wrap};
use model::accrued_cost::{AccruedCost, CostRange};
use model::prices::{HOURS_OF_A_MONTH, Sum};
use model::resource::{Owner, Target};
use plan::{Bill, SectionCost};

/// The hours of a day.
const HOURS_OF_A_DAY: f64 = 24.0;
/// Clocks of machines that are set by the network are closer than that.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(5);

/// The cost of a stack.
#[derive(Clone, Debug)]
pub struct StackCost {
    pub owner: Owner,
    pub target: Target,
    /// The cost of its sections; `None` where Google bills nothing of the stack.
    pub bill: Option<Bill>,
    /// False if the stack cannot be planned, so that the bill has only what exists.
    pub is_planned: bool,
    /// The cost so far, up to the time of the command.
    pub accrued: Option<AccruedCost>,
    /// True if the cluster has a record of the stack.
    pub has_record: bool,
    /// The time of the command.
    pub now: Timestamp,
}

/// The cost of a stack, as `cost --json` prints it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CostDocument {
    /// The name of the stack.
    stack: String,
    /// The place of the stack.
    target: String,
    /// True in a sandbox.
    simulated: bool,
    /// The cost per hour; absent where Google bills nothing of the stack.
    #[serde(skip_serializing_if = "Option::is_none")]
    hourly: Option<HourlyCost>,
    /// The cost since the stack was created; absent where the cluster has no record with costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<CostSince>,
}

/// The cost per hour: clusters, nodes and their boot disks, without traffic.
#[derive(Debug, Serialize, JsonSchema)]
struct HourlyCost {
    /// The region whose prices count.
    region: String,
    /// The day of the prices.
    prices_of: String,
    /// The origin of the prices: `list` for those of the program, `file` for a file of `--prices`, or the source that the prices
    /// name, such as `Cloud Billing`.
    prices_from: String,
    /// The day of the Spot prices, which move; only if some are in the sums.
    #[serde(skip_serializing_if = "Option::is_none")]
    spot_snapshot: Option<String>,
    /// True if anything of the stack exists that Google bills.
    exists: bool,
    /// The sums of all sections.
    total: SectionHourlyCost,
    /// The cost of each section that has a cluster or nodes.
    sections: BTreeMap<String, SectionHourlyCost>,
}

/// The cost of a section per hour.
#[derive(Debug, Serialize, JsonSchema)]
struct SectionHourlyCost {
    /// The cost now, with the nodes that are there.
    now: HourlySum,
    /// The cost of what is there with autoscaled pools at their minimum.
    idle: HourlySum,
    /// The cost of what is there with autoscaled pools at their maximum.
    most: HourlySum,
    /// The cost once the stack file is applied; absent where no plan is possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    planned: Option<PlannedHourlyCost>,
}

/// The cost per hour once the stack file is applied.
#[derive(Debug, Serialize, JsonSchema)]
struct PlannedHourlyCost {
    /// The cost with the nodes that the stack's Pods need.
    after: HourlySum,
    /// The cost with autoscaled pools at their minimum.
    idle: HourlySum,
    /// The cost with autoscaled pools at their maximum.
    most: HourlySum,
}

/// The cost since the stack was created, at the prices of the commands that changed it.
#[derive(Debug, Serialize, JsonSchema)]
struct CostSince {
    /// RFC 3339 time from which costs are counted.
    time: String,
    /// RFC 3339 time up to which costs are counted: now. A later time is that of the record, written by a machine whose clock was ahead.
    until: String,
    /// False if the stack existed before `time`, without costs in its record.
    from_creation: bool,
    /// US dollars of what certainly existed.
    usd_at_least: f64,
    /// US dollars of all that may have existed and has a price.
    usd_at_most: f64,
    /// Names of parts without a price; then the cost may exceed `usd_at_most`.
    unknown: Vec<String>,
    /// The day of the prices at the last change of the stack; absent where nothing has been billed.
    #[serde(skip_serializing_if = "Option::is_none")]
    prices_of: Option<String>,
    /// The origin of these prices, as in `hourly`.
    #[serde(skip_serializing_if = "Option::is_none")]
    prices_from: Option<String>,
}

/// Returns the schema of the object, draft-07.
pub fn schema() -> Value {
    let generator = schemars::generate::SchemaSettings::draft07().into_generator();
    generator.into_root_schema_for::<CostDocument>().to_value()
}

impl StackCost {
    /// Returns the cost of a stack of which nothing has a price.
    pub fn of_nothing(owner: Owner, target: Target, now: Timestamp) -> Self {
        Self { owner, target, bill: None, is_planned: true, accrued: None, has_record: false, now }
    }

    /// Returns the JSON for programs.
    pub fn json(&self) -> Value {
        let Self { owner, target, bill, is_planned, accrued, has_record: _, now: _ } = self;
        let document = CostDocument {
            stack: owner.stack.clone(),
            target: target.to_string(),
            simulated: target.simulated,
            hourly: bill.as_ref().map(|bill| HourlyCost::of(bill, *is_planned)),
            since: accrued.as_ref().map(CostSince::of),
        };
        serde_json::to_value(document).unwrap_or_default()
    }

    /// Returns the text for people.
    pub fn text(&self, width: usize) -> String {
        let Self { owner, target, bill, is_planned, accrued, has_record, now } = self;
        let mut text = wrap("", &format!("Stack {} on {target} — {}", owner.stack, target.label()), width);
        text.push('\n');
        match bill {
            Some(bill) => text.push_str(&bill_text(bill, *is_planned, width)),
            None => text.push_str(&wrap("", without_bill(target), width)),
        }
        // Of a stack that has never had anything with a price, zero is no news.
        let is_told = bill.is_some() || accrued.as_ref().is_some_and(|accrued| !accrued.is_zero());
        let accrued = accrued.as_ref().filter(|_| is_told);
        let since = since_line(accrued, *has_record && is_told);
        for line in since.into_iter().chain(accrued.and_then(|accrued| clock_line(accrued, *now))) {
            text.push_str(&wrap("", &line, width));
        }
        text
    }
}

impl HourlyCost {
    fn of(bill: &Bill, is_planned: bool) -> Self {
        let sections = bill.sections.iter();
        let hourly = |cost: &SectionCost| SectionHourlyCost::of(cost, is_planned);
        Self {
            region: bill.region.clone(),
            prices_of: bill.date.clone(),
            prices_from: bill.origin().as_str().to_owned(),
            spot_snapshot: bill.has_spot().then(|| bill.date.clone()),
            exists: exists(bill),
            total: hourly(&bill.total()),
            sections: sections.map(|(address, cost)| (address.to_string(), hourly(cost))).collect(),
        }
    }
}

impl SectionHourlyCost {
    fn of(cost: &SectionCost, is_planned: bool) -> Self {
        let SectionCost { before, after, idle, most, certain_idle: _, live_idle, live_most, live_certain: _ } =
            cost;
        Self {
            now: HourlySum::of(before),
            idle: HourlySum::of(live_idle),
            most: HourlySum::of(live_most),
            planned: is_planned.then(|| PlannedHourlyCost {
                after: HourlySum::of(after),
                idle: HourlySum::of(idle),
                most: HourlySum::of(most),
            }),
        }
    }
}

impl CostSince {
    fn of(accrued: &AccruedCost) -> Self {
        let AccruedCost { since, from_creation, until, total, rates } = accrued;
        let time = |time: &Timestamp| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        Self {
            time: time(since),
            until: time(until),
            from_creation: *from_creation,
            usd_at_least: dollars(total.least),
            usd_at_most: dollars(total.most),
            unknown: total.unknown.iter().cloned().collect(),
            prices_of: rates.prices_of.clone(),
            prices_from: rates.prices_from.clone(),
        }
    }
}

/// Returns true if anything exists that Google bills.
fn exists(bill: &Bill) -> bool {
    let SectionCost { before, live_idle, live_most, .. } = bill.total();
    [before, live_idle, live_most].iter().any(|sum| !sum.is_zero())
}

/// The sentence in place of the table, for a stack of which nothing has a price.
fn without_bill(target: &Target) -> &'static str {
    match target.is_on_hosts() {
        true => "Hosts have no price: `cost` counts nothing for this stack.",
        false => {
            "Nothing of this stack is counted: it manages no GKE cluster and no node pools, and other clusters have \
             no price."
        }
    }
}

/// The table of the sections with its prices: of what exists, else of what the stack file plans.
fn bill_text(bill: &Bill, is_planned: bool, width: usize) -> String {
    let exists = exists(bill);
    if !exists && !is_planned {
        return wrap("", &format!("Nothing that has a price exists yet. {UNPLANNED}"), width);
    }
    let shown = |cost: &SectionCost| match exists {
        true => [cost.before.clone(), cost.live_idle.clone(), cost.live_most.clone()],
        false => [cost.after.clone(), cost.idle.clone(), cost.most.clone()],
    };
    let total = bill.total();
    let mut text = String::new();
    if !exists {
        text.push_str("Nothing that has a price exists yet. Once the stack is applied, it costs:\n\n");
    }
    let sections = bill.sections.iter();
    let sections: Vec<(String, [Sum; 3])> =
        sections.map(|(address, cost)| (address.to_string(), shown(cost))).collect();
    text.push_str(&table(if exists { "now" } else { "as planned" }, &sections, &shown(&total)));
    text.push('\n');
    let unknown = shown(&total).into_iter().flat_map(|sum| sum.unknown).collect();
    let prices = counted_with(&bill.region, &bill.date, &bill.origin(), bill.has_spot());
    text.push_str(&wrap("", &with_unknown(format!("Counted with {prices}"), &unknown), width));
    let planned = if is_planned { planned_line(&total) } else { Some(UNPLANNED.to_owned()) };
    if let Some(planned) = planned.filter(|_| exists) {
        text.push_str(&wrap("", &planned, width));
    }
    text
}

/// The line in place of the cost after the next apply.
const UNPLANNED: &str =
    "No plan is possible, so the cost after the next apply is unknown; `plan` shows the errors.";

/// `After the next apply: …`, where the stack file costs something else than what exists. `None` where it does not.
fn planned_line(total: &SectionCost) -> Option<String> {
    let SectionCost { idle, most, live_idle, live_most, .. } = total;
    let is_other = amount(idle) != amount(live_idle) || amount(most) != amount(live_most);
    is_other.then(|| {
        let (idle, most) = (amount(idle), amount(most));
        format!("After the next apply: {idle} idle, {most} at maximum; `plan` shows the changes")
    })
}

/// Writes amounts in columns, the first one under `first`: a line for each section, then the sums by hour, day and month.
fn table(first: &str, sections: &[(String, [Sum; 3])], total: &[Sum; 3]) -> String {
    let cells = |sums: &[Sum; 3], shown: &dyn Fn(&Sum) -> String| sums.each_ref().map(shown);
    let heading = (String::new(), [first, "idle", "maximum"].map(str::to_owned));
    let mut rows = vec![heading];
    rows.extend(sections.iter().map(|(name, sums)| (name.clone(), cells(sums, &amount))));
    let sums = rows.len();
    rows.push(("total".to_owned(), cells(total, &amount)));
    rows.push(("a day".to_owned(), cells(total, &|sum| in_hours(sum, HOURS_OF_A_DAY))));
    let month = format!("a month of {HOURS_OF_A_MONTH} h");
    rows.push((month, cells(total, &|sum| in_hours(sum, HOURS_OF_A_MONTH))));
    let name = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    let widths = [0, 1, 2].map(|at| rows.iter().map(|(_, cells)| cells[at].len()).max().unwrap_or_default());
    let mut text = String::new();
    for (at, (label, cells)) in rows.iter().enumerate() {
        let [one, two, three] = cells;
        let [a, b, c] = widths;
        let line = format!("  {label:name$}  {one:>a$}  {two:>b$}  {three:>c$}");
        let line = if at == 0 || at == sums { paint(Tint::Bold, &line) } else { line };
        push_line(&mut text, &line);
    }
    text
}

/// `Since 2026-11-01 09:12 UTC (29 d 4 h): between $612 and $2,310; the record does not know exactly what ran in between`.
/// `None` where there is no record to ask.
fn since_line(accrued: Option<&AccruedCost>, has_record: bool) -> Option<String> {
    let Some(AccruedCost { since, from_creation, until, total, rates: _ }) = accrued else {
        let none =
            "The record of this stack has no costs. The next command that changes the stack begins to count.";
        return has_record.then(|| none.to_owned());
    };
    let (begin, time) = (since.strftime("%Y-%m-%d %H:%M UTC"), elapsed(until.duration_since(*since)));
    let line = match from_creation {
        true => format!("Since {begin} ({time}): {}", range_text(total)),
        false => {
            let range = range_text(total);
            format!("Counted since {begin} ({time}); earlier costs are not in the record: {range}")
        }
    };
    Some(with_unknown(line, &total.unknown))
}

/// The line for a record that is from the future: until then, its cost does not grow.
fn clock_line(AccruedCost { until, .. }: &AccruedCost, now: Timestamp) -> Option<String> {
    let time = until.strftime("%Y-%m-%d %H:%M UTC");
    let is_ahead = until.duration_since(now) > CLOCKS_DIFFER;
    is_ahead.then(|| {
        format!(
            "The record was written at {time} by a machine whose clock was ahead; its cost stays the same until then."
        )
    })
}

/// `$612`, `between $612 and $2,310; …`, `at least $612`.
fn range_text(CostRange { least, most, unknown }: &CostRange) -> String {
    let (least, most) = (money(*least), money(*most));
    let range = match (unknown.is_empty(), least == most) {
        (true, true) => return most,
        (false, true) => return format!("at least {least}"),
        (true, false) => format!("between {least} and {most}"),
        (false, false) => format!("at least {least}, up to {most} for what has a price"),
    };
    format!("{range}; the record does not know exactly what ran in between")
}

/// `29 d 4 h`, `4 h 12 min`, `12 min`.
fn elapsed(time: SignedDuration) -> String {
    let minutes = time.as_mins();
    let (days, hours, minutes) = (minutes / (24 * 60), minutes / 60 % 24, minutes % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes} min"),
        (0, hours) => format!("{hours} h {minutes} min"),
        (days, hours) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::accrued_cost::CostRates;
    use model::address::Address;

    fn sum(usd: f64) -> Sum {
        Sum { usd, ..Sum::default() }
    }

    fn section(live: [f64; 3], planned: [f64; 3]) -> SectionCost {
        let ([before, live_idle, live_most], [after, idle, most]) = (live.map(sum), planned.map(sum));
        SectionCost { before, after, idle, most, live_idle, live_most, ..SectionCost::default() }
    }

    fn bill(workers: SectionCost) -> Bill {
        let fee = if workers.live_most.is_zero() { 0.0 } else { 0.1 };
        let cluster = section([fee; 3], [0.1; 3]);
        let sections = [(Address::new("cluster"), cluster), (Address::new("node_pool.workers"), workers)];
        let (region, date) = ("us-central1".to_owned(), "2026-07-30".to_owned());
        Bill { region, date, prices: None, is_live_known: true, sections: sections.into() }
    }

    fn accrued(least: f64, most: f64, unknown: &[&str]) -> AccruedCost {
        let since: Timestamp = "2026-11-01T09:12:40Z".parse().unwrap();
        let unknown = unknown.iter().map(|name| (*name).to_owned()).collect();
        let total = CostRange { least, most, unknown };
        let until = "2026-11-30T13:30:00Z".parse().unwrap();
        AccruedCost { since, from_creation: true, until, total, rates: CostRates::default() }
    }

    fn text(bill: Option<Bill>, accrued: Option<AccruedCost>) -> String {
        let owner = Owner { stack: "s".to_owned(), id: "i".to_owned() };
        let target = Target { context: Some("lab".to_owned()), simulated: true, ..Target::default() };
        let has_record = accrued.is_some();
        let now = accrued.as_ref().map_or(Timestamp::UNIX_EPOCH, |accrued| accrued.until);
        let cost = StackCost { owner, target, bill, is_planned: true, accrued, has_record, now };
        anstream::adapter::strip_str(&cost.text(80)).to_string()
    }

    #[test]
    fn the_page_has_each_section_the_sums_and_the_cost_so_far() {
        let workers = section([7.46, 0.0, 14.92], [7.46, 0.0, 22.38]);
        let shown = text(Some(bill(workers)), Some(accrued(612.4, 2310.0, &[])));
        let expected = "Stack s on context lab of the kubeconfig — SIMULATED\n\n\
            \x20                        now     idle   maximum\n\
            \x20 cluster            $0.10/h  $0.10/h   $0.10/h\n\
            \x20 node_pool.workers  $7.46/h  $0.00/h  $14.92/h\n\
            \x20 total              $7.56/h  $0.10/h  $15.02/h\n\
            \x20 a day                 $181    $2.40      $360\n\
            \x20 a month of 730 h    $5,519      $73   $10,965\n\
            \nCounted with list prices of us-central1, 2026-07-30, with boot disks, without\n\
            traffic\n\
            After the next apply: $0.10/h idle, $22.48/h at maximum; `plan` shows the\n\
            changes\n\
            Since 2026-11-01 09:12 UTC (29 d 4 h): between $612 and $2,310; the record does\n\
            not know exactly what ran in between\n";
        assert_eq!(shown, expected);
    }

    #[test]
    fn before_the_first_apply_the_plan_is_shown() {
        let shown = text(Some(bill(section([0.0; 3], [7.46, 0.0, 14.92]))), None);
        assert!(shown.contains("Nothing that has a price exists yet."), "{shown}");
        assert!(shown.contains("as planned") && shown.contains("total                 $7.56/h"), "{shown}");
        assert!(!shown.contains("Since") && !shown.contains("After the next apply"), "{shown}");
    }

    #[test]
    fn without_a_plan_only_what_exists_is_shown() {
        let unplanned = |live: [f64; 3]| {
            let (owner, target) = (Owner { stack: "s".to_owned(), id: "i".to_owned() }, Target::default());
            let accrued = Some(accrued(5.0, 5.0, &[]));
            let now = Timestamp::UNIX_EPOCH;
            let bill = Some(bill(section(live, [9.0; 3])));
            StackCost { bill, accrued, is_planned: false, ..StackCost::of_nothing(owner, target, now) }
        };
        let cost = unplanned([7.46, 0.0, 14.92]);
        let shown = anstream::adapter::strip_str(&cost.text(200)).to_string();
        assert!(shown.contains("$7.46/h") && shown.contains("): $5.00"), "{shown}");
        assert!(shown.contains("No plan is possible") && !shown.contains("$9.10"), "{shown}");
        let json = cost.json();
        let sections = &json["hourly"]["sections"];
        assert_eq!(sections["node_pool.workers"]["now"]["usd_per_hour"], 7.46);
        assert_eq!(sections["node_pool.workers"].get("planned"), None, "{json}");
        let shown = anstream::adapter::strip_str(&unplanned([0.0; 3]).text(200)).to_string();
        assert!(shown.contains("No plan is possible") && !shown.contains("as planned"), "{shown}");
    }

    #[test]
    fn a_record_from_the_future_is_named_with_its_time() {
        let accrued = accrued(5.0, 5.0, &[]);
        let at = |minutes| accrued.until - SignedDuration::from_mins(minutes);
        assert_eq!((clock_line(&accrued, at(5)), clock_line(&accrued, at(-9))), (None, None));
        let line = clock_line(&accrued, at(6)).unwrap();
        let expected = "The record was written at 2026-11-30 13:30 UTC by a machine whose clock was ahead;";
        assert!(line.starts_with(expected), "{line}");
    }

    #[test]
    fn a_stack_that_never_had_a_price_shows_no_zero() {
        assert!(!text(None, Some(accrued(0.0, 0.0, &[]))).contains("Since"));
        assert!(text(None, Some(accrued(0.0, 3.0, &[]))).contains("Since"));
        let json = serde_json::to_value(CostSince::of(&accrued(0.0, 0.0, &[]))).unwrap();
        assert_eq!(json.get("prices_of"), None, "{json}");
    }

    #[test]
    fn what_has_no_price_is_named() {
        let mut workers = section([1.0; 3], [1.0; 3]);
        for sum in [&mut workers.before, &mut workers.live_most, &mut workers.most] {
            sum.add(None, || "a9-giga".to_owned());
        }
        let shown = text(Some(bill(workers)), Some(accrued(5.0, 5.0, &["a9-giga"])));
        assert!(shown.contains("at least $1.10/h  $1.10/h  at least $1.10/h"), "{shown}");
        assert!(shown.contains("(29 d 4 h): at least $5.00; price unknown: a9-giga"), "{shown}");
        let hosts = text(None, None);
        assert!(hosts.contains("Nothing of this stack is counted"), "{hosts}");
    }

    #[test]
    fn the_cost_so_far_says_what_it_knows() {
        let line = |accrued: AccruedCost| since_line(Some(&accrued), true).unwrap();
        assert_eq!(line(accrued(5.0, 5.0, &[])), "Since 2026-11-01 09:12 UTC (29 d 4 h): $5.00");
        let later = AccruedCost { from_creation: false, ..accrued(5.0, 5.0, &[]) };
        let expected =
            "Counted since 2026-11-01 09:12 UTC (29 d 4 h); earlier costs are not in the record: $5.00";
        assert_eq!(line(later), expected);
        let wide = line(accrued(5.0, 60.0, &["a9-giga"]));
        assert!(wide.contains("at least $5.00, up to $60 for what has a price;"), "{wide}");
        assert!(since_line(None, true).unwrap().contains("begins to count"));
        assert_eq!(since_line(None, false), None);
        for (minutes, text) in [(0, "0 min"), (59, "59 min"), (252, "4 h 12 min"), (42_000, "29 d 4 h")] {
            assert_eq!(elapsed(SignedDuration::from_mins(minutes)), text);
        }
    }
}
