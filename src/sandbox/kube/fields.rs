//! Who owns which field: `metadata.managedFields`.

use jiff::Timestamp;
use serde_json::Value;

use super::kinds::Kind;

/// Records that `manager` has written `object` over `live`.
pub fn update(
    _kind: &Kind,
    _live: Option<&Value>,
    _object: &mut Value,
    _manager: &str,
    _subresource: &str,
    _now: Timestamp,
) {
}
