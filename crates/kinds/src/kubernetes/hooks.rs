//! Hooks of Helm's charts: objects with the annotation `helm.sh/hook`, and their order. Helm runs hooks before and after its own
//! commands. Here there are no such commands, only an order of objects, so a hook is an object in that order, or it is refused.
//! Source: helm.sh/docs/topics/charts_hooks; `pkg/release/v1/hook.go` of Helm 4.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::json::text;
use model::address::{Address, FieldPath, Segment};
use model::resource::Resource;

/// Ways to treat a chart's hooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Hooks {
    /// Hooks of an installation are created in their order, before or after the other objects, and a Job among them runs once. Jobs
    /// that Helm runs at each upgrade or deletion are refused. Tests are left out.
    #[default]
    Ordered,
    /// As `ordered`, and a Job that Helm runs at each upgrade runs once too, and again when its own text changes; what
    /// Helm runs at a deletion is left out.
    Once,
    /// All are left out.
    None,
}

impl Hooks {
    /// Returns true for the default, which `skip_serializing_if` leaves out.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Positions of a chart's object in the order of an apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookPlacement<'a> {
    /// It is not a hook.
    Plain,
    /// Before objects that are not hooks, in the order of the weights.
    Before(i64),
    /// After objects that are not hooks, in the order of the weights.
    After(i64),
    LeftOut,
    /// It has no position, because Helm runs it at this event.
    Refused(&'a str),
}

/// The annotation that makes an object a hook.
pub const HOOK: &str = "helm.sh/hook";
const WEIGHT: &str = "helm.sh/hook-weight";

/// Returns the position of a chart's object in the order of an apply, from its annotations.
pub fn placement(object: &Value, hooks: Hooks) -> HookPlacement<'_> {
    let annotations = &object["metadata"]["annotations"];
    let Some(events) = annotations[HOOK].as_str() else { return HookPlacement::Plain };
    // There is no rollback here, and tests are what `check` is for.
    let idle = |event: &str| event.is_empty() || event.starts_with("test") || event.ends_with("-rollback");
    let events: Vec<&str> = events.split(',').map(str::trim).filter(|event| !idle(event)).collect();
    if hooks == Hooks::None || events.is_empty() {
        return HookPlacement::LeftOut;
    }
    // Of Helm 2: a definition, which has its place anyway.
    if events == ["crd-install"] {
        return HookPlacement::Plain;
    }
    let weight = annotations[WEIGHT].as_str().and_then(|weight| weight.trim().parse().ok()).unwrap_or(0);
    let at = |event: &str| events.contains(&event);
    let deletes = events.iter().find(|event| event.ends_with("-delete"));
    let repeats = events.iter().find(|event| event.ends_with("-upgrade"));
    let refused = if runs(object) { deletes.or(repeats) } else { None };
    if let Some(event) = refused.filter(|_| hooks == Hooks::Ordered) {
        return HookPlacement::Refused(event);
    }
    if at("pre-install") || at("pre-upgrade") {
        HookPlacement::Before(weight)
    } else if at("post-install") || at("post-upgrade") {
        HookPlacement::After(weight)
    } else {
        HookPlacement::LeftOut
    }
}

/// Returns true if an object runs to completion. Only for such objects does it matter how often they are created.
fn runs(object: &Value) -> bool {
    matches!(text(&object["kind"]), "Job" | "Pod")
}

/// Returns true if an object of a chart is created once: a hook that runs to completion.
pub fn runs_once(object: &Value) -> bool {
    runs(object) && !object["metadata"]["annotations"][HOOK].is_null()
}

/// Puts the hooks of a chart before and after its other objects. Objects that a hook needs do not wait for it.
pub fn order(hooks: Hooks, section: &FieldPath, values: &[Value], resources: &mut [Resource]) {
    let objects = section.key("objects");
    let own: Vec<(usize, HookPlacement<'_>)> = resources
        .iter()
        .enumerate()
        .filter(|(_, resource)| objects.contains(&resource.origin))
        .filter_map(|(index, resource)| match resource.origin.segments().last() {
            Some(Segment::Index(object)) => Some((index, placement(values.get(*object)?, hooks))),
            _ => None,
        })
        .collect();
    let addresses = |chosen: &dyn Fn(HookPlacement<'_>) -> bool| -> Vec<Address> {
        let chosen = own.iter().filter(|(_, placement)| chosen(*placement));
        chosen.map(|(index, _)| resources[*index].address.clone()).collect()
    };
    let before = addresses(&|placement| matches!(placement, HookPlacement::Before(_)));
    let first = needed_by(&before, resources);
    let more: Vec<(usize, Vec<Address>)> = own
        .iter()
        .map(|(index, placement)| {
            let depends_on = match *placement {
                HookPlacement::Plain if first.contains(&resources[*index].address) => Vec::new(),
                HookPlacement::Plain => before.clone(),
                HookPlacement::Before(weight) => {
                    addresses(&|other| matches!(other, HookPlacement::Before(lower) if lower < weight))
                }
                HookPlacement::After(weight) => addresses(&|other| match other {
                    HookPlacement::Plain | HookPlacement::Before(_) => true,
                    HookPlacement::After(lower) => lower < weight,
                    HookPlacement::LeftOut | HookPlacement::Refused(_) => false,
                }),
                HookPlacement::LeftOut | HookPlacement::Refused(_) => Vec::new(),
            };
            (*index, depends_on)
        })
        .collect();
    for (index, depends_on) in more {
        resources[index].depends_on.extend(depends_on);
    }
}

/// Returns everything that these depend on, directly or indirectly.
fn needed_by(addresses: &[Address], resources: &[Resource]) -> BTreeSet<Address> {
    let mut needed = BTreeSet::new();
    let mut of: BTreeMap<&Address, Vec<&Resource>> = BTreeMap::new();
    for resource in resources {
        of.entry(&resource.address).or_default().push(resource);
    }
    let mut open: Vec<&Address> = addresses.iter().collect();
    while let Some(address) = open.pop() {
        let depends_on = of.get(address).into_iter().flatten();
        for next in depends_on.flat_map(|resource| &resource.depends_on) {
            if needed.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    needed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hook(kind: &str, events: &str, weight: &str) -> Value {
        json!({ "kind": kind, "metadata": { "annotations": { HOOK: events, WEIGHT: weight } } })
    }

    #[test]
    fn hooks_of_an_installation_have_a_place_and_others_do_not() {
        let job = |events: &str| hook("Job", events, "-5");
        let ordered = [
            ("pre-install", HookPlacement::Before(-5)),
            ("post-install", HookPlacement::After(-5)),
            ("pre-install,pre-rollback", HookPlacement::Before(-5)),
            ("pre-install, pre-upgrade", HookPlacement::Refused("pre-upgrade")),
            ("post-install,post-upgrade,pre-delete", HookPlacement::Refused("pre-delete")),
            ("post-delete", HookPlacement::Refused("post-delete")),
            ("test", HookPlacement::LeftOut),
            ("test-success", HookPlacement::LeftOut),
            ("post-rollback", HookPlacement::LeftOut),
            ("crd-install", HookPlacement::Plain),
        ];
        for (events, desired) in ordered {
            assert_eq!(placement(&job(events), Hooks::Ordered), desired, "{events}");
            assert_eq!(placement(&job(events), Hooks::None), HookPlacement::LeftOut, "{events}");
        }
        let once = [
            ("pre-install, pre-upgrade", HookPlacement::Before(-5)),
            ("post-upgrade", HookPlacement::After(-5)),
            ("post-install,pre-delete", HookPlacement::After(-5)),
            ("post-delete", HookPlacement::LeftOut),
        ];
        for (events, desired) in once {
            assert_eq!(placement(&job(events), Hooks::Once), desired, "{events}");
        }
        // Hooks that do not run, such as a ConfigMap, are part of every upgrade.
        assert_eq!(
            placement(&hook("ConfigMap", "pre-install,pre-upgrade", "x"), Hooks::Ordered),
            HookPlacement::Before(0)
        );
        assert_eq!(
            placement(&hook("ServiceAccount", "pre-delete", ""), Hooks::Ordered),
            HookPlacement::LeftOut
        );
        assert_eq!(placement(&json!({ "kind": "Job" }), Hooks::None), HookPlacement::Plain);
    }
}
