//! Labels, and what selects them: `nodeSelector`, node affinity and label selectors.
//!
//! Source: k8s.io/apimachinery v0.36.1 `pkg/labels/selector.go`; k8s.io/component-helpers v0.36.1
//! `scheduling/corev1/nodeaffinity`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use model::address::FieldPath;
use serde_json::Value;

use crate::error::Unreadable;
use crate::json::At;

/// Labels of a node, a pod or a namespace.
pub type Labels = BTreeMap<String, String>;

/// Reads the labels of a live object. Values that are not strings are skipped.
pub fn labels(value: &Value) -> Labels {
    let pairs = value.as_object().into_iter().flatten();
    pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// The operator of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    /// Compares whole numbers; for nodes only.
    Gt,
    /// Compares whole numbers; for nodes only.
    Lt,
}

/// One requirement: `key operator values`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    pub values: Vec<String>,
}

impl Requirement {
    /// Returns true if the labels meet the requirement. Nothing meets `Gt` and `Lt` unless they have one value, a whole number.
    pub fn is_met(&self, labels: &Labels) -> bool {
        self.is_met_by(labels.get(&self.key).map(String::as_str))
    }

    fn is_met_by(&self, found: Option<&str>) -> bool {
        let listed = |found: &str| self.values.iter().any(|value| value == found);
        match self.operator {
            Operator::In => found.is_some_and(listed),
            Operator::NotIn => found.is_none_or(|found| !listed(found)),
            Operator::Exists => found.is_some(),
            Operator::DoesNotExist => found.is_none(),
            Operator::Gt => self.integers(found).is_some_and(|(found, bound)| found > bound),
            Operator::Lt => self.integers(found).is_some_and(|(found, bound)| found < bound),
        }
    }

    fn integers(&self, found: Option<&str>) -> Option<(i64, i64)> {
        let [bound] = self.values.as_slice() else { return None };
        Some((found?.parse().ok()?, bound.parse().ok()?))
    }

    fn read(at: &At<'_, '_>) -> Result<Self, Unreadable> {
        let operator = at.key("operator");
        let operator = match operator.text()? {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => Operator::Gt,
            "Lt" => Operator::Lt,
            _ => return Err(operator.wrong("an operator of selectors")),
        };
        Ok(Self { key: at.key("key").text()?.to_owned(), operator, values: at.key("values").texts()? })
    }

    fn read_all(at: &At<'_, '_>) -> Result<Vec<Self>, Unreadable> {
        at.items()?.map(|one| Self::read(&one)).collect()
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, operator, values } = self;
        match (operator, values.as_slice()) {
            (Operator::In, [value]) => write!(f, "{key}={value}"),
            (Operator::NotIn, [value]) => write!(f, "{key}!={value}"),
            (Operator::In, values) => write!(f, "{key} in ({})", values.join(", ")),
            (Operator::NotIn, values) => write!(f, "{key} not in ({})", values.join(", ")),
            (Operator::Exists, _) => write!(f, "{key}"),
            (Operator::DoesNotExist, _) => write!(f, "no {key}"),
            (Operator::Gt, values) => write!(f, "{key} > {}", values.join(", ")),
            (Operator::Lt, values) => write!(f, "{key} < {}", values.join(", ")),
        }
    }
}

/// A label selector: labels must meet all requirements. `None`, an absent selector, selects nothing; an empty selector selects
/// everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelSelector(Option<Vec<Requirement>>);

impl LabelSelector {
    /// Reads a `LabelSelector` of Kubernetes.
    ///
    /// # Errors
    /// An operator is unknown, or a value has the wrong type.
    pub fn read(value: &Value, path: &FieldPath) -> Result<Self, Unreadable> {
        Self::at(&At::new(value, path))
    }

    pub(crate) fn at(at: &At<'_, '_>) -> Result<Self, Unreadable> {
        if !at.is_object()? {
            return Ok(Self(None));
        }
        let pairs = at.key("matchLabels").labels()?.into_iter();
        let exact = |(key, value)| Requirement { key, operator: Operator::In, values: vec![value] };
        let mut all: Vec<Requirement> = pairs.map(exact).collect();
        all.extend(Requirement::read_all(&at.key("matchExpressions"))?);
        Ok(Self(Some(all)))
    }

    /// Returns true if the selector selects these labels.
    pub fn selects(&self, labels: &Labels) -> bool {
        self.0.as_ref().is_some_and(|all| all.iter().all(|one| one.is_met(labels)))
    }

    /// Returns true if the selector is empty, which selects everything.
    pub fn is_everything(&self) -> bool {
        self.0.as_ref().is_some_and(Vec::is_empty)
    }

    /// Adds one requirement for each key that the labels have, as the API server does with `matchLabelKeys` (`In`) and
    /// `mismatchLabelKeys` (`NotIn`). An absent selector stays absent.
    pub fn merge(&mut self, keys: &[String], operator: Operator, labels: &Labels) {
        let Some(all) = &mut self.0 else { return };
        for key in keys {
            if let Some(value) = labels.get(key) {
                all.push(Requirement { key: key.clone(), operator, values: vec![value.clone()] });
            }
        }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_deref() {
            None => f.write_str("no pod"),
            Some([]) => f.write_str("any pod"),
            Some(all) => {
                let all: Vec<String> = all.iter().map(ToString::to_string).collect();
                write!(f, "pods with {}", all.join(", "))
            }
        }
    }
}

/// One term of a node selector. Terms without requirements select no node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeTerm {
    /// Requirements on the node's labels (`matchExpressions`).
    pub expressions: Vec<Requirement>,
    /// Requirements on `metadata.name`, the only supported field, with the operators `In` and `NotIn` and one value
    /// (`matchFields`).
    pub fields: Vec<Requirement>,
}

impl NodeTerm {
    /// Reads one `NodeSelectorTerm`.
    ///
    /// # Errors
    /// An operator is unknown, or a value has the wrong type.
    pub fn read(value: &Value, path: &FieldPath) -> Result<Self, Unreadable> {
        Self::at(&At::new(value, path))
    }

    pub(crate) fn at(at: &At<'_, '_>) -> Result<Self, Unreadable> {
        Ok(Self {
            expressions: Requirement::read_all(&at.key("matchExpressions"))?,
            fields: Requirement::read_all(&at.key("matchFields"))?,
        })
    }

    /// Reads the terms of a `NodeSelector`; `None` if the selector is absent.
    pub(crate) fn read_all(selector: &At<'_, '_>) -> Result<Option<Vec<Self>>, Unreadable> {
        if !selector.is_object()? {
            return Ok(None);
        }
        selector
            .key("nodeSelectorTerms")
            .items()?
            .map(|term| Self::at(&term))
            .collect::<Result<_, _>>()
            .map(Some)
    }

    /// Returns the node names that the term allows; `None` if it has no requirement on the name.
    pub(crate) fn names(&self) -> Option<BTreeSet<&str>> {
        let by_name = |one: &&Requirement| one.key == "metadata.name" && one.operator == Operator::In;
        let mut sets = self
            .fields
            .iter()
            .filter(by_name)
            .map(|one| one.values.iter().map(String::as_str).collect::<BTreeSet<_>>());
        let first = sets.next()?;
        Some(sets.fold(first, |left, right| left.intersection(&right).copied().collect()))
    }

    /// Checks that the term selects a node. The error has the first requirement that the node does not meet, and its list and
    /// index in the term. It has `None` if the term has no requirements, and therefore selects no node.
    ///
    /// # Errors
    /// The node is not selected.
    pub fn check(
        &self,
        labels: &Labels,
        name: &str,
    ) -> Result<(), Option<(&Requirement, &'static str, usize)>> {
        if self.expressions.is_empty() && self.fields.is_empty() {
            return Err(None);
        }
        let failed = |list: &'static str, all: &'_ [Requirement], met: &dyn Fn(&Requirement) -> bool| {
            all.iter().position(|one| !met(one)).map(|at| (list, at))
        };
        let of_labels = failed("matchExpressions", &self.expressions, &|one| one.is_met(labels));
        // A volume's terms are compared with labels alone.
        let named = |one: &Requirement| {
            name.is_empty() || one.is_met_by((one.key == "metadata.name").then_some(name))
        };
        let of_fields = || failed("matchFields", &self.fields, &named);
        match of_labels.map(|at| (at, &self.expressions)).or_else(|| of_fields().map(|at| (at, &self.fields)))
        {
            None => Ok(()),
            Some(((list, at), all)) => Err(Some((&all[at], list, at))),
        }
    }
}

/// Returns true if one of the terms selects the node. An empty list selects no node.
pub fn any_term(terms: &[NodeTerm], labels: &Labels, name: &str) -> bool {
    terms.iter().any(|term| term.check(labels, name).is_ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read<T>(from: fn(&Value, &FieldPath) -> Result<T, Unreadable>, value: &Value) -> T {
        from(value, &FieldPath::root()).unwrap()
    }

    #[test]
    fn requirements_of_every_operator() {
        let labels = labels(&json!({ "pool": "a100", "size": "7" }));
        for (wanted, met) in [
            (json!({ "key": "pool", "operator": "In", "values": ["a100", "t4"] }), true),
            (json!({ "key": "pool", "operator": "NotIn", "values": ["a100"] }), false),
            (json!({ "key": "none", "operator": "NotIn", "values": ["a100"] }), true),
            (json!({ "key": "pool", "operator": "Exists" }), true),
            (json!({ "key": "pool", "operator": "DoesNotExist" }), false),
            (json!({ "key": "size", "operator": "Gt", "values": ["6"] }), true),
            (json!({ "key": "size", "operator": "Lt", "values": ["7"] }), false),
            (json!({ "key": "size", "operator": "Lt", "values": ["8", "9"] }), false),
            (json!({ "key": "size", "operator": "Gt", "values": ["six"] }), false),
            (json!({ "key": "pool", "operator": "Gt", "values": ["6"] }), false),
            (json!({ "key": "none", "operator": "Lt", "values": ["6"] }), false),
        ] {
            let root = FieldPath::root();
            let read = Requirement::read(&At::new(&wanted, &root)).unwrap();
            assert_eq!(read.is_met(&labels), met, "{wanted}");
        }
        let unknown = json!({ "key": "pool", "operator": "Like", "values": ["a"] });
        let told = Requirement::read(&At::new(&unknown, &FieldPath::keys(["a"]))).unwrap_err().to_string();
        assert_eq!(told, "a.operator: `Like` is not an operator of selectors");
    }

    #[test]
    fn selectors_that_are_absent_or_empty() {
        let labels = labels(&json!({ "app": "dask", "part": "worker" }));
        for (selector, selects, text) in [
            (json!(null), false, "no pod"),
            (json!({}), true, "any pod"),
            (json!({ "matchLabels": { "app": "dask" } }), true, "pods with app=dask"),
            (
                json!({ "matchLabels": { "app": "dask" }, "matchExpressions": [{ "key": "part", "operator": "NotIn", "values": ["worker"] }] }),
                false,
                "pods with app=dask, part!=worker",
            ),
        ] {
            let selector = read(LabelSelector::read, &selector);
            assert_eq!((selector.selects(&labels), selector.to_string()), (selects, text.to_owned()));
        }
    }

    #[test]
    fn label_keys_are_merged_where_there_is_a_selector() {
        let labels = labels(&json!({ "app": "dask", "part": "worker" }));
        let keys = ["part".to_owned(), "none".to_owned()];
        let mut selector = read(LabelSelector::read, &json!({ "matchLabels": { "app": "dask" } }));
        selector.merge(&keys, Operator::In, &labels);
        assert_eq!(selector.to_string(), "pods with app=dask, part=worker");
        let mut absent = LabelSelector::default();
        absent.merge(&keys, Operator::In, &labels);
        assert!(!absent.selects(&labels));
    }

    #[test]
    fn node_terms() {
        let labels = labels(&json!({ "pool": "a100" }));
        let pool = |value: &str| json!({ "key": "pool", "operator": "In", "values": [value] });
        let name = |operator: &str, value: &str| json!({ "key": "metadata.name", "operator": operator, "values": [value] });
        for (term, selects) in [
            (json!({}), false),
            (json!({ "matchExpressions": [pool("a100")] }), true),
            (json!({ "matchExpressions": [pool("a100"), pool("t4")] }), false),
            (json!({ "matchFields": [name("In", "n1")] }), true),
            (json!({ "matchFields": [name("In", "n2")] }), false),
            (json!({ "matchFields": [name("NotIn", "n2")], "matchExpressions": [pool("a100")] }), true),
        ] {
            let read = read(NodeTerm::read, &term);
            assert_eq!(any_term(std::slice::from_ref(&read), &labels, "n1"), selects, "{term}");
        }
        assert!(!any_term(&[], &labels, "n1"));
    }
}
