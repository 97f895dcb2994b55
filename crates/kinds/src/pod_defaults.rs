//! Values that sections add to the pods they create: [`security_defaults`] and [`driver_path`].

use serde_json::Value;

use crate::{driver_path, security_defaults};

/// Removes the values from every pod in `value`, for bodies that are compared by their text or digest.
pub fn remove(value: &mut Value) {
    security_defaults::remove(value);
    driver_path::remove(value);
}

/// Removes values that the live object lacks. It was created by a version without these defaults and is not recreated to add
/// them.
pub fn remove_absent_in_live(desired: &mut Value, live: &Value) {
    security_defaults::remove_absent_in_live(desired, live);
    driver_path::remove_absent_in_live(desired, live);
}
