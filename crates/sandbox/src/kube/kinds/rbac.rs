//! Roles and their bindings. Source: `pkg/apis/rbac/v1/defaults.go`, `printRoleBinding` in
//! `pkg/printers/internalversion/printers.go`, `ValidateRoleBindingUpdate` in `pkg/apis/rbac/validation`; names,
//! `path.ValidatePathSegmentName`. Cluster roles and their bindings are compared with kube-apiserver 1.36.

use serde_json::{Value, json};

use super::super::names::bad_segment;
use super::super::object::{list, text};
use super::super::status::Cause;
use super::super::strategy::Cell::Of;
use super::super::strategy::{AGE, CREATED_AT, Column, NAME, Strategy, column, each, put, wide};

const GROUP: &str = "rbac.authorization.k8s.io";

const BINDING: &[Column] = &[
    NAME,
    column(
        "Role",
        Of(|binding| format!("{}/{}", text(binding, "/roleRef/kind"), text(binding, "/roleRef/name"))),
    ),
    AGE,
    wide("Users", Of(|binding| subjects(binding, "User"))),
    wide("Groups", Of(|binding| subjects(binding, "Group"))),
    wide("ServiceAccounts", Of(|binding| subjects(binding, "ServiceAccount"))),
];

pub const STRATEGIES: &[Strategy] =
    &[role("ClusterRole"), role("Role"), binding("ClusterRoleBinding"), binding("RoleBinding")];

const fn role(kind: &'static str) -> Strategy {
    Strategy { columns: &[NAME, CREATED_AT], bad_name: bad_segment, ..Strategy::of(GROUP, kind) }
}

const fn binding(kind: &'static str) -> Strategy {
    Strategy {
        columns: BINDING,
        defaults,
        bad_name: bad_segment,
        validate_update: |live, binding, causes| {
            if live["roleRef"] != binding["roleRef"] {
                causes.push(Cause::invalid("roleRef", &binding["roleRef"], "cannot change roleRef"));
            }
        },
        ..Strategy::of(GROUP, kind)
    }
}

fn defaults(binding: &mut Value) {
    if let Some(role) = binding.get_mut("roleRef") {
        put(role, "apiGroup", json!(GROUP));
    }
    for subject in each(binding, "subjects") {
        if matches!(text(subject, "/kind"), "User" | "Group") {
            put(subject, "apiGroup", json!(GROUP));
        }
    }
}

fn subjects(binding: &Value, kind: &str) -> String {
    let subjects = list(binding, "/subjects").iter().filter(|subject| subject["kind"] == kind);
    let names = subjects.map(|subject| match text(subject, "/namespace") {
        "" => text(subject, "/name").to_owned(),
        namespace => format!("{namespace}/{}", text(subject, "/name")),
    });
    names.collect::<Vec<_>>().join(", ")
}
