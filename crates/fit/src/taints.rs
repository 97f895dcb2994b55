//! Taints of nodes and tolerations of pods.
//!
//! Source: k8s.io/api v0.36.1 `core/v1/toleration.go`.

use std::fmt;

use model::address::FieldPath;
use serde_json::Value;

use crate::error::Unreadable;
use crate::json::{At, list, text};

/// The key of the taint that a cordoned node is treated as having.
pub const CORDON: &str = "node.kubernetes.io/unschedulable";

/// The effect of a taint on pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    NoSchedule,
    /// Only discourages: never a reason to refuse a node.
    PreferNoSchedule,
    /// Also evicts running pods.
    NoExecute,
}

impl Effect {
    /// Reads Kubernetes' name (`NoSchedule`) or GKE's (`NO_SCHEDULE`).
    pub fn of(text: &str) -> Option<Self> {
        Some(match text {
            "NoSchedule" | "NO_SCHEDULE" => Self::NoSchedule,
            "PreferNoSchedule" | "PREFER_NO_SCHEDULE" => Self::PreferNoSchedule,
            "NoExecute" | "NO_EXECUTE" => Self::NoExecute,
            _ => return None,
        })
    }

    /// Kubernetes' name.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: Effect,
}

impl Taint {
    /// Returns a `NoSchedule` taint.
    pub fn no_schedule(key: &str, value: &str) -> Self {
        Self { key: key.to_owned(), value: value.to_owned(), effect: Effect::NoSchedule }
    }

    /// Reads the taints of a Node; those without a known effect count as absent.
    pub fn read_all(taints: &Value) -> Vec<Self> {
        let each = |taint: &Value| {
            let effect = Effect::of(text(taint, "effect"))?;
            Some(Self { key: text(taint, "key").to_owned(), value: text(taint, "value").to_owned(), effect })
        };
        list(taints).iter().filter_map(each).collect()
    }

    /// Returns true if pods that do not tolerate the taint cannot be scheduled.
    pub fn keeps_off(&self) -> bool {
        match self.effect {
            Effect::NoSchedule | Effect::NoExecute => true,
            Effect::PreferNoSchedule => false,
        }
    }
}

impl fmt::Display for Taint {
    /// As `kubectl taint` takes it: `nvidia.com/gpu=present:NoSchedule`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, effect } = self;
        let equals = if value.is_empty() { "" } else { "=" };
        write!(f, "{key}{equals}{value}:{}", effect.name())
    }
}

/// How a toleration compares values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Match {
    Equal,
    Exists,
    /// `Lt` and `Gt`. They need the feature gate `TaintTolerationComparisonOperators`, which is off in Kubernetes 1.36, so such a
    /// toleration tolerates nothing.
    Disabled,
}

/// A toleration of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Toleration {
    /// The taint's key; empty for every key.
    key: String,
    operator: Match,
    value: String,
    /// The taint's effect; `None` for every effect.
    effect: Option<Effect>,
}

impl Toleration {
    /// Returns a toleration of a key with any value and this effect, as the admission plugin `ExtendedResourceToleration` adds
    /// for the resources that a pod requests.
    pub fn exists(key: &str, effect: Effect) -> Self {
        Self { key: key.to_owned(), operator: Match::Exists, value: String::new(), effect: Some(effect) }
    }

    /// Returns a toleration of a key with this value and this effect.
    pub fn equal(key: &str, value: &str, effect: Effect) -> Self {
        let (key, value) = (key.to_owned(), value.to_owned());
        Self { key, operator: Match::Equal, value, effect: Some(effect) }
    }

    /// Returns the toleration of everything.
    pub fn everything() -> Self {
        Self { key: String::new(), operator: Match::Exists, value: String::new(), effect: None }
    }

    /// Reads the tolerations of a pod.
    ///
    /// # Errors
    /// An operator or an effect is unknown, or a value is of another type.
    pub fn read_all(tolerations: &Value, path: &FieldPath) -> Result<Vec<Self>, Unreadable> {
        Self::at(&At::new(tolerations, path))
    }

    pub(crate) fn at(tolerations: &At<'_, '_>) -> Result<Vec<Self>, Unreadable> {
        tolerations.items()?.map(|toleration| Self::read(&toleration)).collect()
    }

    fn read(at: &At<'_, '_>) -> Result<Self, Unreadable> {
        let (operator, effect) = (at.key("operator"), at.key("effect"));
        let operator = match operator.text()? {
            "" | "Equal" => Match::Equal,
            "Exists" => Match::Exists,
            "Lt" | "Gt" => Match::Disabled,
            _ => return Err(operator.wrong("an operator of tolerations")),
        };
        let effect = match effect.text()? {
            "" => None,
            text => Some(Effect::of(text).ok_or_else(|| effect.wrong("an effect of taints"))?),
        };
        let text = |key| at.key(key).text().map(str::to_owned);
        Ok(Self { key: text("key")?, operator, value: text("value")?, effect })
    }

    /// Returns true if the toleration tolerates the taint.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|effect| effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && match self.operator {
                Match::Equal => self.value == taint.value,
                Match::Exists => true,
                Match::Disabled => false,
            }
    }
}

/// Returns the first taint that these tolerations do not tolerate.
pub fn untolerated<'t>(taints: &'t [Taint], tolerations: &[Toleration]) -> Option<&'t Taint> {
    let tolerated = |taint: &Taint| tolerations.iter().any(|toleration| toleration.tolerates(taint));
    taints.iter().filter(|taint| taint.keeps_off()).find(|taint| !tolerated(taint))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tolerations_of_every_operator() {
        let taint = Taint::no_schedule("nvidia.com/gpu", "present");
        assert_eq!(taint.to_string(), "nvidia.com/gpu=present:NoSchedule");
        for (toleration, tolerated) in [
            (json!({ "operator": "Exists" }), true),
            (json!({ "key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule" }), true),
            (json!({ "key": "nvidia.com/gpu", "value": "present" }), true),
            (json!({ "key": "nvidia.com/gpu", "operator": "Equal", "value": "absent" }), false),
            (json!({ "key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute" }), false),
            (json!({ "key": "other", "operator": "Exists" }), false),
            (json!({ "key": "nvidia.com/gpu", "operator": "Gt", "value": "1" }), false),
        ] {
            let read = Toleration::read_all(&json!([toleration]), &FieldPath::root()).unwrap();
            assert_eq!(read[0].tolerates(&taint), tolerated, "{toleration}");
        }
        let wrong = Toleration::read_all(&json!([{ "effect": "Never" }]), &FieldPath::root()).unwrap_err();
        assert_eq!(wrong.to_string(), "[0].effect: `Never` is not an effect of taints");
    }

    #[test]
    fn taints_that_only_discourage_refuse_nobody() {
        let taints = Taint::read_all(&json!([
            { "key": "a", "effect": "PreferNoSchedule" }, { "key": "b", "effect": "NoExecute" }, { "key": "c", "effect": "NO_SCHEDULE" },
        ]));
        assert_eq!(untolerated(&taints, &[]).map(|taint| taint.key.as_str()), Some("b"));
        assert_eq!(
            untolerated(&taints, &[Toleration::exists("b", Effect::NoExecute)]).map(|t| &*t.key),
            Some("c")
        );
        assert_eq!(untolerated(&taints, &[Toleration::everything()]), None);
    }
}
