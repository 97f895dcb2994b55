//! A plan as Terraform's users know it: one line for each section of the stack, what differs under it, what
//! to know, how many, how to go on.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::cost;
use super::fallbacks;
use super::steps::{is_new, is_shown_whole, steps};
use super::stop_text;
use super::style::{Tint, columns, paint, push_line, strip_controls, symbol, wrap};
use super::values;
use crate::report::{Next, View, count, dry_run, quoted, words};
use model::address::Address;
use model::diag::Code;
use model::resource::{ByIdentity, Effect, FieldChange, Identity, Lane, by_identity, manager_text};
use model::source::Sources;
use plan::{
    Action, Approval, ApprovalVerb, Change, CriticalPath, ExternalRead, Mode, Note, Partial, Plan, Selection,
};

/// How much is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// One line for each sort of section, and nothing under it.
    Summary,
    /// One line for each section, and what differs.
    Sections,
    /// Every object with its body and its calls.
    Objects,
}

/// Settings of the text that do not come from the plan.
pub struct Options<'a> {
    /// Columns to fill at most.
    pub width: usize,
    /// How much is shown.
    pub detail: Detail,
    /// How the program was called, up to the command: `dask-infra --sandbox`.
    pub program: &'a str,
}

/// Lines shown before and after those that differ.
const AROUND: usize = 3;

/// Returns the whole text, with colors, each line ended.
pub fn render(plan: &Plan, view: &View<'_>, options: &Options<'_>) -> String {
    let mut text = header(plan, options.width);
    let sections = sections(plan);
    if !sections.is_empty() || !plan.reads.is_empty() {
        text.push('\n');
        let desired = by_identity(&plan.desired);
        let page =
            Page { plan, desired, view, options, column: address_column(&sections, plan, options.width) };
        if options.detail == Detail::Summary {
            text.push_str(&type_lines(&sections, options.width));
        } else {
            page.reads(&mut text);
            for section in &sections {
                page.section(&mut text, section);
            }
        }
    }
    if !plan.notes.is_empty() {
        text.push('\n');
        text.push_str(&stop_text::stopped(plan, options.width));
        for note in plan.notes.iter().filter(|note| note.code != Code::Stopped.as_str()) {
            text.push_str(&note_text(note, options.width));
        }
    }
    text.push('\n');
    text.push_str(&wrap("", &footer(plan, &sections), options.width));
    text.push_str(&dry_run::text(plan).map(|line| wrap("", &line, options.width)).unwrap_or_default());
    text.push_str(&approvals(plan, options));
    text.push_str(&next_step(plan, view.next, options));
    text
}

/// Returns the heading, which names stack and target: `Plan for stack rapids on p / l / c — LIVE`.
fn header(plan: &Plan, width: usize) -> String {
    let Plan { target, owner, mode, offline, partial, .. } = plan;
    let what = match mode {
        Mode::Apply if plan.stop_state.is_stop() => "Plan to stop",
        Mode::Apply => "Plan for",
        Mode::Destroy => "Plan to destroy",
    };
    let line = format!(
        "{what} stack {} on {target} — {}",
        owner.stack,
        if *offline { "OFFLINE" } else { target.label() }
    );
    let mut text = wrap("", &paint_words(Tint::Bold, &line), width);
    if *offline {
        text.push_str(&wrap("", "offline: no live state was read; planned as a first apply", width));
    }
    let part = partial.as_ref().map(|partial| match plan.stop_state.is_stop() {
        true => stop_text::stopping(partial, width),
        false if stop_text::is_start(plan) => stop_text::starting(partial, width),
        false => partial_text(partial, *mode, width),
    });
    text.push_str(&part.unwrap_or_default());
    text.push_str(&cost::plan_cost(plan).map(|line| wrap("", &line, width)).unwrap_or_default());
    if *mode == Mode::Apply {
        text.push_str(&time(plan).map(|line| wrap("", &line, width)).unwrap_or_default());
    }
    text
}

/// `Time: usually 5–16 min (cluster 3–9 min, then node_pool.workers 2–7 min)`. The sandbox takes seconds for it.
fn time(plan: &Plan) -> Option<String> {
    let unknown = match plan.unknown_pulls.as_slice() {
        [] => None,
        [image] => Some(format!("the pull of {image}, whose size is not known")),
        [image, rest @ ..] => {
            Some(format!("the pulls of {image} and {} more, whose sizes are not known", rest.len()))
        }
    };
    let Some(CriticalPath { estimate: usual, changes }) = plan.critical_path() else {
        return unknown.map(|unknown| format!("Time: not known: it includes {unknown}"));
    };
    let each = match changes.as_slice() {
        [only] => only.address.to_string(),
        several => {
            let each =
                several.iter().filter_map(|change| Some(format!("{} {}", change.address, change.estimate?)));
            each.collect::<Vec<_>>().join(", then ")
        }
    };
    let on = if plan.target.simulated { " on GKE" } else { "" };
    let without = unknown.map(|unknown| format!(", without {unknown}")).unwrap_or_default();
    Some(format!("Time: usually {usual}{on} ({each}){without}"))
}

/// `partial: only gpu_driver and what it needs; 3 sections are left out: …`
fn partial_text(partial: &Partial, mode: Mode, width: usize) -> String {
    let Partial { selection: Selection { targets, excludes }, left_out, unrecorded: _, replicas: _ } =
        partial;
    let mut limits = Vec::new();
    // A create needs its dependencies; a delete also deletes its dependents.
    let (with, without) = match mode {
        Mode::Apply => ("what that needs", "what needs that"),
        Mode::Destroy => ("what needs that", "what that needs"),
    };
    if !targets.is_empty() {
        limits.push(format!("only {} and {with}", targets.join(", ")));
    }
    if !excludes.is_empty() {
        limits.push(format!("without {} and {without}", excludes.join(", ")));
    }
    let mut sections: Vec<&str> = Vec::new();
    for (address, _) in left_out {
        if !sections.contains(&address.section()) {
            sections.push(address.section());
        }
    }
    let names = match sections.as_slice() {
        [] => "nothing is left out".to_owned(),
        few if few.len() <= 6 => format!("left out: {}", few.join(", ")),
        many => format!("left out: {} and {} more", many[..5].join(", "), many.len() - 5),
    };
    wrap(&format!("{} ", paint(Tint::Change, "partial:")), &format!("{}; {names}", limits.join(", ")), width)
}

/// The gravest first.
const ORDER: [Action; 7] = [
    Action::Replace,
    Action::Delete,
    Action::Update,
    Action::Create,
    Action::Forget,
    Action::Run,
    Action::Keep,
];

/// Lines of a summary: `  + node_pool  create 2: default-pool, scheduler-pool`.
fn type_lines(sections: &[Section<'_>], width: usize) -> String {
    let mut sorts: Vec<(&str, Vec<&Section<'_>>)> = Vec::new();
    for section in sections {
        let sort = section.name.split('.').next().unwrap_or_default();
        match sorts.iter_mut().find(|(name, _)| *name == sort) {
            Some((_, all)) => all.push(section),
            None => sorts.push((sort, vec![section])),
        }
    }
    let column = sorts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for (sort, all) in &sorts {
        for action in ORDER {
            let these: Vec<&&Section<'_>> = all.iter().filter(|section| section.action() == action).collect();
            if these.is_empty() {
                continue;
            }
            let verb = match action {
                Action::Keep => "no effect on",
                Action::Forget => "leave",
                action => words(action).verb,
            };
            let names: Vec<&str> = these
                .iter()
                .filter_map(|section| section.name.split_once('.'))
                .map(|(_, name)| name)
                .collect();
            let said = match names.as_slice() {
                [] => verb.to_owned(),
                few if few.len() <= 4 => format!("{verb} {}: {}", these.len(), few.join(", ")),
                many => format!("{verb} {}: {}, …", these.len(), many[..3].join(", ")),
            };
            let first = format!(
                "{} {}{}  ",
                symbol(action),
                paint(Tint::Bold, sort),
                " ".repeat(column - sort.chars().count())
            );
            text.push_str(&wrap(&first, &said, width));
        }
    }
    text
}

/// Paints word by word, so that the text can still be broken.
fn paint_words(tint: Tint, text: &str) -> String {
    text.split(' ').map(|word| paint(tint, word)).collect::<Vec<_>>().join(" ")
}

/// One section of the stack and what is shown of it.
struct Section<'p> {
    name: &'p str,
    changes: Vec<&'p Change>,
}

impl Section<'_> {
    /// Returns the gravest action in the section.
    fn action(&self) -> Action {
        let gravity = |action: &Action| match action {
            Action::Keep => 0,
            Action::Run => 1,
            Action::Forget => 2,
            Action::Create => 3,
            Action::Update => 4,
            Action::Delete => 5,
            Action::Replace => 6,
        };
        self.changes.iter().map(|change| change.action).max_by_key(gravity).unwrap_or(Action::Keep)
    }
}

/// Returns the changes, and the edits without effect, grouped by section in the plan's order.
fn sections(plan: &Plan) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    let shown =
        plan.changes.iter().filter(|change| change.action != Action::Keep || !change.fields.is_empty());
    for change in shown {
        let name = change.address.section();
        let place = *known.entry(name).or_insert_with(|| {
            sections.push(Section { name, changes: Vec::new() });
            sections.len() - 1
        });
        sections[place].changes.push(change);
    }
    sections
}

/// Returns where the second column begins; long addresses may reach into it.
fn address_column(sections: &[Section<'_>], plan: &Plan, width: usize) -> usize {
    let reads = plan.reads.iter().map(|read| read.address.section());
    let names = sections.iter().map(|section| section.name).chain(reads);
    let longest = names.map(|name| name.chars().count()).max().unwrap_or_default();
    longest.min(width / 2)
}

struct Page<'a> {
    plan: &'a Plan,
    desired: ByIdentity<'a>,
    view: &'a View<'a>,
    options: &'a Options<'a>,
    column: usize,
}

impl Page<'_> {
    /// `  <= cluster  read: RUNNING, 1.33.4 (stack.toml:10:1)`: what others own, one line for each section, with
    /// `-v` one for each object.
    fn reads(&self, text: &mut String) {
        let Self { plan, desired: _, view, options, column } = self;
        let mut rows: Vec<(&str, Vec<&ExternalRead>)> = Vec::new();
        for read in &plan.reads {
            let name = match options.detail {
                Detail::Summary | Detail::Sections => read.address.section(),
                Detail::Objects => read.address.as_str(),
            };
            match rows.iter_mut().find(|(known, _)| *known == name) {
                Some((_, reads)) => reads.push(read),
                None => rows.push((name, vec![read])),
            }
        }
        for (name, reads) in rows {
            let verb = match plan.mode {
                Mode::Apply => "read",
                Mode::Destroy => "not managed, kept",
            };
            // The last read is the running part, which says more than the CRDs before it.
            let found = reads.iter().rev().find_map(|read| read.found.as_deref());
            let more = match reads.len() {
                0 | 1 => String::new(),
                number => format!(", and {}", count(number - 1, "object")),
            };
            let place = reads.iter().find_map(|read| read.location.as_deref());
            let found = strip_controls(found.unwrap_or("not read, offline"));
            let row = Row {
                symbol: paint(Tint::Run, " <="),
                title: name,
                what: &format!("{verb}: {found}{more}"),
                place: place.map(|place| place_name(place, view)),
            };
            row.write(text, *column, options.width);
        }
    }

    fn section(&self, text: &mut String, section: &Section<'_>) {
        let location = section.changes.iter().find_map(|change| change.location.as_deref());
        let location = location.map(|location| place_name(location, self.view));
        let said = match section.changes.as_slice() {
            [change] => action_of(change, section.name, self.about(change)),
            changes => action_text(totals(changes), None, self.about_one_of(changes)),
        };
        let gravest = symbol(section.action());
        let row = Row { symbol: gravest, title: section.name, what: &said, place: location };
        row.write(text, self.column, self.options.width);
        if let [change] = section.changes.as_slice() {
            self.details(text, change, 6);
            return;
        }
        if let Some(why) =
            shared_cascade_reason(&section.changes).filter(|_| self.options.detail != Detail::Objects)
        {
            text.push_str(&wrap("      # ", &strip_controls(&why), self.options.width));
            return;
        }
        for change in &section.changes {
            if self.options.detail == Detail::Objects || needs_own_lines(change) {
                let short = change.address.as_str().strip_prefix(section.name).unwrap_or_default();
                let name =
                    if short.is_empty() { change.address.as_str() } else { short.trim_start_matches('/') };
                let line = format!(
                    "    {} {name}  {}",
                    symbol(change.action),
                    action_of(change, change.address.as_str(), Vec::new())
                );
                push_line(text, &line);
                self.details(text, change, 10);
            }
        }
    }

    /// Describes a thing that will be created or run. For a thing that exists, the plan shows the fields that differ.
    fn about(&self, change: &Change) -> Vec<String> {
        match change.action {
            Action::Create | Action::Run => {
                let resource = self.desired.get(&change.identity);
                let about = resource.map(|resource| (kinds::of(resource.kind).plan_summary)(resource));
                let price = match &change.identity {
                    Identity::NodePool { .. } => self.plan.bill(),
                    _ => None,
                };
                let price = price.and_then(|bill| bill.sections.get(&change.address)).and_then(cost::shown);
                about.into_iter().flatten().chain(price).filter(|about| !about.is_empty()).collect()
            }
            Action::Keep | Action::Update | Action::Replace | Action::Delete | Action::Forget => Vec::new(),
        }
    }

    /// Returns what `about` returns for the only change of a section with such a text; empty if several have one.
    fn about_one_of(&self, changes: &[&Change]) -> Vec<String> {
        let mut said = changes.iter().map(|change| self.about(change)).filter(|about| !about.is_empty());
        let one = said.next().unwrap_or_default();
        if said.next().is_none() { one } else { Vec::new() }
    }

    /// Appends the lines below a change: its reason and fields and, in full detail, its body and calls.
    fn details(&self, text: &mut String, change: &Change, indent: usize) {
        let blank = " ".repeat(indent);
        if let Some(reason) = change.why() {
            text.push_str(&wrap(&format!("{blank}# "), &strip_controls(&reason), self.options.width));
        }
        for field in &change.fields {
            self.field(text, change, field, indent);
        }
        if self.options.detail == Detail::Objects {
            self.body(text, change, indent);
            calls(text, change, indent, self.options.width);
            self.filled_in(text, change, indent);
        }
    }

    /// Appends the fields that are not sent, with the values that the server is expected to fill in.
    fn filled_in(&self, text: &mut String, change: &Change, indent: usize) {
        let Some(resource) = self.desired.get(&change.identity).filter(|_| is_new(change)) else { return };
        let filled = (kinds::of(resource.kind).server_defaults)(resource);
        let filled: Vec<String> =
            filled.iter().map(|(path, value)| format!("{path}: {}", values::inline(value))).collect();
        if !filled.is_empty() {
            let line = format!("not set; GKE's defaults are expected: {}", filled.join(", "));
            text.push_str(&wrap(
                &format!("{}# ", " ".repeat(indent)),
                &strip_controls(&line),
                self.options.width,
            ));
        }
    }

    /// `~ spec.worker.replicas: 2 -> 4  # forces replacement (stack.toml:40:12)`
    fn field(&self, text: &mut String, change: &Change, field: &FieldChange, indent: usize) {
        let path = &field.path;
        let (before, after) = field.shown();
        let (sign, values) = match (&before, &after) {
            (None, Some(after)) => (paint(Tint::Add, "+"), values::inline(after)),
            (Some(before), None) => (paint(Tint::Remove, "-"), values::inline(before)),
            (before, after) => {
                let show =
                    |value: &Option<Value>| value.as_ref().map_or_else(|| "null".to_owned(), values::inline);
                (paint(Tint::Change, "~"), format!("{} -> {}", show(before), show(after)))
            }
        };
        let blank = " ".repeat(indent);
        let location = self.view.location(self.desired.get(&change.identity).copied(), field);
        // The row of the change says where it stands.
        let location = location.filter(|place| change.location.as_ref() != Some(place));
        let comment = comment(change, field, location.map(|place| place_name(&place, self.view).to_owned()));
        let line = format!("{blank}{sign} {path}: {}", strip_controls(&values));
        if columns(&line) + 2 + columns(&comment) <= self.options.width {
            push_line(text, &format!("{line}  {}", paint(Tint::Dim, &comment)));
            return;
        }
        if columns(&line) <= self.options.width {
            push_line(text, &line);
        } else {
            push_line(text, &format!("{blank}{sign} {path}:"));
            match (&before, &after) {
                (Some(before), Some(after)) => differing_lines(text, indent + 4, before, after),
                (before, after) => {
                    side(text, indent + 4, Tint::Remove, "-", before.as_ref());
                    side(text, indent + 4, Tint::Add, "+", after.as_ref());
                }
            }
        }
        if !comment.is_empty() {
            text.push_str(&wrap(
                &format!("{blank}    "),
                &paint_words(Tint::Dim, &comment),
                self.options.width,
            ));
        }
    }

    fn body(&self, text: &mut String, change: &Change, indent: usize) {
        if !is_shown_whole(change) {
            return;
        }
        let Some(resource) = self.desired.get(&change.identity) else { return };
        for line in values::folded(&resource.body) {
            push_line(
                text,
                &format!("{}{} {}", " ".repeat(indent), paint(Tint::Add, "+"), strip_controls(&line)),
            );
        }
    }
}

/// A line of the table: `  + cluster  create: zonal      stack.toml:10:1`.
struct Row<'a> {
    symbol: String,
    title: &'a str,
    what: &'a str,
    place: Option<&'a str>,
}

impl Row<'_> {
    /// The place stands at the right where there is room, else it ends the text; what does not fit beside the address stands
    /// below it.
    fn write(&self, text: &mut String, column: usize, width: usize) {
        let Self { symbol, title, what, place } = self;
        let pad = " ".repeat(column.saturating_sub(title.chars().count()));
        let first = format!("{symbol} {}{pad}  ", paint(Tint::Bold, title));
        let place = place.map(|place| paint(Tint::Dim, &format!("({place})"))).unwrap_or_default();
        let used = columns(&first) + columns(what) + 2 + columns(&place);
        if used <= width {
            push_line(text, format!("{first}{what}  {}{place}", " ".repeat(width - used)).trim_end());
            return;
        }
        let line = format!("{what} {place}");
        let beside = wrap(&first, &line, width);
        if beside.lines().count() <= 2 {
            text.push_str(&beside);
        } else {
            push_line(text, &first);
            text.push_str(&wrap("      ", &line, width));
        }
    }
}

/// `create`, `create: zonal`, `create: GKE cluster other, zonal`.
fn action_text(verb: String, noun: Option<String>, about: Vec<String>) -> String {
    let said: Vec<String> = noun.into_iter().chain(about).collect();
    if said.is_empty() { verb } else { format!("{verb}: {}", said.join(", ")) }
}

/// The lines in which two values differ, with a few of those around them.
fn differing_lines(text: &mut String, indent: usize, before: &Value, after: &Value) {
    let blank = " ".repeat(indent);
    let (before, after) = (values::lines(before), values::lines(after));
    let groups = similar::capture_diff_slices(similar::Algorithm::Myers, &before, &after);
    for (place, group) in similar::group_diff_ops(groups, AROUND).into_iter().enumerate() {
        if place > 0 {
            push_line(text, &format!("{blank}{}", paint(Tint::Dim, "...")));
        }
        for change in group.iter().flat_map(|part| part.iter_changes(&before, &after)) {
            let sign = match change.tag() {
                // A mark, too: a line of GitHub's log that begins with `::` after blanks is a command to its runner.
                similar::ChangeTag::Equal => paint(Tint::Dim, "|"),
                similar::ChangeTag::Delete => paint(Tint::Remove, "-"),
                similar::ChangeTag::Insert => paint(Tint::Add, "+"),
            };
            push_line(text, format!("{blank}{sign} {}", strip_controls(change.value_ref())).trim_end());
        }
    }
}

/// One side of a field whose values do not fit beside each other.
fn side(text: &mut String, indent: usize, tint: Tint, sign: &str, value: Option<&Value>) {
    for line in value.map(values::lines).unwrap_or_default() {
        push_line(text, &format!("{}{} {}", " ".repeat(indent), paint(tint, sign), strip_controls(&line)));
    }
}

/// Returns the action of a change in words, with the name of the resource if the address does not contain it.
fn action_of(change: &Change, title: &str, about: Vec<String>) -> String {
    let rolling = change.fields.iter().any(|field| field.effect == Effect::Rolling);
    let verb = match change.action {
        Action::Keep => "no change: the edit has no effect",
        Action::Update if rolling => &format!("update, {}", kinds::of(change.kind).rolling_effect),
        Action::Update => "update in place",
        Action::Run => "run the check",
        Action::Forget => "release it",
        action @ (Action::Create | Action::Replace | Action::Delete) => words(action).verb,
    };
    let name = match &change.identity {
        Identity::Cluster(cluster) => cluster.cluster.as_str(),
        Identity::NodePool { pool, .. } => pool.as_str(),
        Identity::Object(object) => object.name.as_str(),
        Identity::Check(address) => address.as_str(),
    };
    // The address of an object inside a section ends with the same name as the section's main one.
    let main = change.address.as_str() == title;
    let told = (main && Address::new(title).ends_with(name)) || change.action == Action::Keep;
    action_text(verb.to_owned(), (!told).then(|| change.identity.to_string()), about)
}

/// `create 9 objects`, `update 1 object, create 2 objects`.
fn totals(changes: &[&Change]) -> String {
    let parts = ORDER.into_iter().filter_map(|action| {
        let number = changes.iter().filter(|change| change.action == action).count();
        let part = || match action {
            Action::Run => format!("run {}", count(number, "check")),
            Action::Forget => format!("release {}", count(number, "object")),
            Action::Keep => format!("no effect on {}", count(number, "object")),
            action => format!("{} {}", words(action).verb, count(number, "object")),
        };
        (number > 0).then(part)
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// Returns why a whole section of ours goes without a deletion of its own, when it does for one reason.
fn shared_cascade_reason(changes: &[&Change]) -> Option<String> {
    let reasons = &changes.first()?.reasons;
    let along = |change: &&Change| {
        let deleted = change.action == Action::Delete && !change.foreign;
        deleted && change.steps.is_empty() && change.reasons == *reasons
    };
    changes.iter().all(along).then(|| changes.first()?.why()).flatten()
}

/// Returns true if a change among many of its section needs its own lines.
fn needs_own_lines(change: &Change) -> bool {
    let Change { action, fields, .. } = change;
    !fields.is_empty() || change.has_reason() || matches!(action, Action::Update | Action::Replace)
}

/// `# forces replacement: why (stack.toml:40:12)`; drift says who and when.
fn comment(change: &Change, field: &FieldChange, location: Option<String>) -> String {
    let FieldChange { effect, note, drift, path: _, before: _, after: _, secret: _ } = field;
    let word = match effect {
        Effect::InPlace => None,
        // Of what is replaced as a whole nothing rolls.
        Effect::Rolling if change.action == Action::Replace => None,
        Effect::Rolling => Some("rolling".to_owned()),
        Effect::Replace => Some("forces replacement".to_owned()),
        Effect::Ignored => Some("has no effect".to_owned()),
        Effect::Unknown if change.lane == Lane::Kubernetes => {
            Some(format!("effect unknown, needs --replace {}", change.address))
        }
        Effect::Unknown => Some("effect unknown".to_owned()),
    };
    let rolls = *effect == Effect::Rolling && change.action == Action::Replace;
    let note = note.clone().filter(|_| !rolls);
    let why = [word, note].into_iter().flatten().collect::<Vec<_>>().join(": ");
    let drift = drift
        .as_ref()
        .map(|(manager, time)| format!("changed by {} at {time}, will be reverted", manager_text(manager)));
    let words: Vec<String> =
        [Some(why), drift].into_iter().flatten().filter(|word| !word.is_empty()).collect();
    let place = location.map(|place| format!("({place})"));
    let comment = (!words.is_empty()).then(|| format!("# {}", strip_controls(&words.join("; "))));
    [comment, place].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// `stack.toml:12:5` of `/home/me/stacks/rapids/stack.toml:12:5`: in a column of places a long way from the root is only
/// noise, as long as the stack has no two files of one name. Diagnostics and JSON have it. A path from the folder where
/// the command was typed stays whole: terminals and editors open it.
fn place_name<'l>(location: &'l str, view: &View<'_>) -> &'l str {
    let name = |path: &'l str| path.rsplit('/').next().unwrap_or(path);
    let file = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let files: Vec<String> = view.sources.into_iter().flat_map(Sources::names).map(file).collect();
    let twice = files.iter().enumerate().any(|(place, name)| files[..place].contains(name));
    if twice || !location.starts_with('/') { location } else { name(location) }
}

/// The program of a change, in words, with what is sent.
fn calls(text: &mut String, change: &Change, indent: usize, width: usize) {
    steps(text, change, &change.steps, indent, width);
    fallbacks::calls(text, change, indent, width);
}

fn note_text(note: &Note, width: usize) -> String {
    let Note { code, address, message } = note;
    let first = format!("{} ", paint(Tint::Change, "Warning:"));
    let body =
        format!("{} {}", strip_controls(message), paint_words(Tint::Dim, &format!("({address}, {code})")));
    wrap(&first, &body, width)
}

/// `Plan: 14 to add, 1 check to run, in 7 sections.`
fn footer(plan: &Plan, sections: &[Section<'_>]) -> String {
    if plan.is_empty() {
        let unready: BTreeSet<&str> = plan.unready().map(Address::section).collect();
        let what = match plan.mode {
            Mode::Apply if !unready.is_empty() => {
                let verb = if unready.len() == 1 { "is" } else { "are" };
                let what = format!(
                    "Live resources match the stack, and {} {verb} not ready.",
                    count(unready.len(), "section")
                );
                return format!("{} {what}", paint(Tint::Bold, "No changes."));
            }
            Mode::Apply if stop_text::nothing(plan).is_some() => stop_text::nothing(plan).unwrap_or_default(),
            _ if plan.partial.is_some() => "This part of the stack is up to date.",
            Mode::Apply => "The stack is up to date.",
            Mode::Destroy => "Nothing to destroy.",
        };
        return format!("{} {what}", paint(Tint::Bold, "No changes."));
    }
    let sections = sections.iter().filter(|section| section.action() != Action::Keep).count();
    let objects = plan.changes.iter().filter(|change| change.action != Action::Keep).count();
    let rows =
        if sections == objects { String::new() } else { format!(", in {}", count(sections, "section")) };
    format!("{} {}{rows}.", paint(Tint::Bold, "Plan:"), counts_text(plan))
}

/// `14 to add, 1 check to run`.
pub(crate) fn counts_text(plan: &Plan) -> String {
    let plan::Counts { add, change, replace, destroy, forget, run } = plan.counts();
    let objects = [
        (add, "to add"),
        (change, "to change"),
        (replace, "to replace"),
        (destroy, "to destroy"),
        (forget, "to release"),
    ];
    sum(&objects, (run, "to run")).unwrap_or_else(|| "no changes".to_owned())
}

/// Numbers of objects and of checks with what becomes of them. Zeros are left out.
pub(super) fn sum(objects: &[(usize, &str)], checks: (usize, &str)) -> Option<String> {
    let objects =
        objects.iter().filter(|(number, _)| *number > 0).map(|(number, verb)| format!("{number} {verb}"));
    let (number, verb) = checks;
    let checks = (number > 0).then(|| format!("{} {verb}", count(number, "check")));
    let said: Vec<String> = objects.chain(checks).collect();
    (!said.is_empty()).then(|| said.join(", "))
}

/// Returns the text about approval beyond `yes`: the same words in a plan, at the prompt and in a refusal.
pub fn approval_needed(approvals: &[Approval]) -> String {
    let verbs: BTreeSet<&str> = approvals
        .iter()
        .map(|approval| match approval.verb {
            ApprovalVerb::Replace => "replacing",
            ApprovalVerb::Delete => "deleting",
            ApprovalVerb::Adopt => "adopting",
            ApprovalVerb::Update => "changing with unknown effects",
            ApprovalVerb::Budget => "exceeding the budget",
        })
        .collect();
    match Vec::from_iter(verbs).as_slice() {
        [one] => format!("{one} needs approval by address"),
        [first @ .., last] => format!("{} and {last} need approval by address", first.join(", ")),
        [] => String::new(),
    }
}

/// Returns the approvals that are needed beyond `yes`, and those that were given.
fn approvals(plan: &Plan, options: &Options<'_>) -> String {
    let mut text = String::new();
    let missing = plan.missing_approvals(&[]);
    if !missing.is_empty() {
        text.push('\n');
        let command = if plan.mode == Mode::Destroy { "destroy" } else { "apply" };
        let mut intro =
            format!("{}: type it at the prompt of `{command}`, or give", approval_needed(&missing));
        intro[..1].make_ascii_uppercase();
        text.push_str(&wrap("", &intro, options.width));
        for approval in &missing {
            push_line(&mut text, &format!("  --allow {}", approval_text(approval)));
        }
    }
    // Unused approvals have a warning of their own.
    let idle = plan.unused_approvals();
    let given: Vec<&Approval> = plan.approved.iter().filter(|approval| !idle.contains(approval)).collect();
    if !given.is_empty() {
        text.push_str("\nApproved:\n");
        for approval in given {
            push_line(&mut text, &format!("  {}", approval_text(approval)));
        }
    }
    text
}

/// `replace:dask_cluster.rapids`, as `--allow` takes it.
pub fn approval_text(approval: &Approval) -> String {
    match approval.verb {
        ApprovalVerb::Budget => approval.verb.as_str().to_owned(),
        verb => format!("{}:{}", verb.as_str(), approval.address),
    }
}

/// Returns the requests beside the stack file, as options of the next command, which plans again. A `--replace` that
/// is done is not repeated.
pub(super) fn repeated_options(plan: &Plan, is_done: impl Fn(usize) -> bool) -> String {
    let mut words: Vec<String> = Vec::new();
    let selection = plan.partial.iter().map(|partial| &partial.selection);
    words.extend(stop_text::repeated_options(plan));
    for selection in selection.filter(|_| !plan.stop_state.is_stop() && !stop_text::is_start(plan)) {
        words.extend(selection.targets.iter().map(|target| format!("--target {target}")));
        words.extend(selection.excludes.iter().map(|exclude| format!("--exclude {exclude}")));
    }
    let asked =
        plan.changes.iter().enumerate().filter(|(place, change)| change.is_requested() && !is_done(*place));
    words.extend(asked.map(|(_, change)| format!("--replace {}", change.address)));
    words.extend(fallbacks::repeated_options(plan, &is_done));
    if plan.allow_retarget && plan.mode == Mode::Apply {
        words.push("--retarget".to_owned());
    }
    // Unused approvals have a warning and are not repeated in the command.
    let idle = plan.unused_approvals();
    let given = plan.approved.iter().filter(|approval| !idle.contains(approval));
    words.extend(given.map(|approval| format!("--allow {}", approval_text(approval))));
    words.iter().map(|word| format!(" {word}")).collect()
}

fn next_step(plan: &Plan, next: Next<'_>, options: &Options<'_>) -> String {
    if plan.is_empty() {
        return String::new();
    }
    let program = options.program;
    let again = repeated_options(plan, |_| false);
    let verb = match plan.mode {
        Mode::Apply if plan.stop_state.is_stop() => "stop",
        Mode::Apply if stop_text::is_start(plan) => "start",
        Mode::Apply => "apply",
        Mode::Destroy => "destroy",
    };
    match next {
        Next::Nothing => String::new(),
        Next::Apply => format!("\nNext:\n  {program} {verb}{again}\n"),
        Next::ApplyFile(file) => {
            let file = file.display().to_string();
            format!("\nSaved to {file}. To apply exactly this plan:\n  {program} apply {}\n", quoted(&file))
        }
        Next::PlanOnline => {
            let destroy = if plan.mode == Mode::Destroy { " --destroy" } else { "" };
            format!("\nTo plan against live state:\n  {program} plan{destroy}{again}\n")
        }
    }
}
