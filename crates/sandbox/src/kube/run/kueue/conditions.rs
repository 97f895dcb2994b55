//! The conditions that Kueue writes into the status of its objects, and its names.

use serde_json::{Value, json};

use super::super::super::object::{list, set_condition};
use super::super::round::Run;

/// The field manager of Kueue.
pub const KUEUE: &str = "kueue";
pub const GROUP: &str = "kueue.x-k8s.io";
pub const MANAGED: &str = "kueue.x-k8s.io/managed";

/// Conditions of one object, on their way to its status.
pub struct Conditions<'a> {
    object: &'a Value,
    all: Vec<Value>,
}

impl<'a> Conditions<'a> {
    pub fn of(object: &'a Value) -> Self {
        Self { object, all: list(object, "/status/conditions").to_vec() }
    }

    pub fn set(&mut self, run: &Run<'_>, ty: &str, holds: bool, (reason, message): (&str, &str)) {
        let known = self.all.iter().find(|known| known["type"] == ty);
        let status = if holds { "True" } else { "False" };
        let same = |known: &Value| {
            known["status"] == status && known["reason"] == reason && known["message"] == message
        };
        if known.is_some_and(same) {
            return;
        }
        let condition = json!({"type": ty, "status": status, "reason": reason, "message": message});
        set_condition(&mut self.all, condition, run.now);
    }

    /// The object's status with them.
    pub fn status(self) -> Value {
        let mut status = match &self.object["status"] {
            Value::Object(_) => self.object["status"].clone(),
            _ => json!({}),
        };
        status["conditions"] = Value::Array(self.all);
        status
    }
}
