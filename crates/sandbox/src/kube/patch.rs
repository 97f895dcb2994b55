//! JSON patch (RFC 6902) and the strategic merge patch of built-in kinds.

use serde_json::{Map, Value};

use super::status::Status;
use model::schema::{Schema, Type};

/// RFC 6902, on a copy: either all operations hold or nothing changes.
pub fn json(target: &mut Value, patch: &Value) -> Result<(), Status> {
    let operations = patch.as_array().ok_or_else(|| {
        Status::bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        )
    })?;
    let mut copy = target.clone();
    for operation in operations {
        one(&mut copy, operation)?;
    }
    *target = copy;
    Ok(())
}

fn one(target: &mut Value, operation: &Value) -> Result<(), Status> {
    let string = |name: &str| operation.get(name).and_then(Value::as_str);
    let op = string("op").unwrap_or_default();
    let path = string("path").unwrap_or_default();
    // The server does not say more than this.
    let refused = || {
        let mut status =
            Status::bad_request("the server rejected our request due to an error in our request");
        status.code = 422;
        "Invalid".clone_into(&mut status.reason);
        status
    };
    let missing = refused;
    let value = || operation.get("value").cloned().ok_or_else(refused);
    match op {
        "add" => insert(target, path, value()?).ok_or_else(missing),
        "remove" => take(target, path).map(drop).ok_or_else(missing),
        "replace" => {
            let place = target.pointer_mut(path).ok_or_else(missing)?;
            *place = value()?;
            Ok(())
        }
        "move" => {
            let moved = take(target, string("from").unwrap_or_default()).ok_or_else(missing)?;
            insert(target, path, moved).ok_or_else(missing)
        }
        "copy" => {
            let copied = target.pointer(string("from").unwrap_or_default()).cloned().ok_or_else(missing)?;
            insert(target, path, copied).ok_or_else(missing)
        }
        "test" => {
            let wanted = operation.get("value").unwrap_or(&Value::Null);
            match target.pointer(path).unwrap_or(&Value::Null) == wanted {
                true => Ok(()),
                false => Err(refused()),
            }
        }
        _ => Err(refused()),
    }
}

/// The container of a pointer and the last token, unescaped.
fn parent<'v>(target: &'v mut Value, path: &str) -> Option<(&'v mut Value, String)> {
    let (head, last) = path.rsplit_once('/')?;
    Some((target.pointer_mut(head)?, last.replace("~1", "/").replace("~0", "~")))
}

fn insert(target: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *target = value;
        return Some(());
    }
    match parent(target, path)? {
        (Value::Object(fields), name) => {
            fields.insert(name, value);
        }
        (Value::Array(items), index) => {
            let at = if index == "-" { items.len() } else { index.parse().ok()? };
            if at > items.len() {
                return None;
            }
            items.insert(at, value);
        }
        _ => return None,
    }
    Some(())
}

fn take(target: &mut Value, path: &str) -> Option<Value> {
    match parent(target, path)? {
        (Value::Object(fields), name) => fields.remove(&name),
        (Value::Array(items), index) => {
            let at: usize = index.parse().ok()?;
            (at < items.len()).then(|| items.remove(at))
        }
        _ => None,
    }
}

/// The strategic merge patch: like a merge patch, but lists that declare a merge key (or `merge` for
/// scalars) are merged, and `$patch`, `$deleteFromPrimitiveList/…`, `$setElementOrder/…` and
/// `$retainKeys` are directives.
pub fn strategic(target: &mut Value, patch: &Value, schema: Option<&Schema>) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if patch.get("$patch").is_some_and(|directive| directive == "replace") {
        let kept = patch.iter().filter(|(name, _)| !name.starts_with('$'));
        *target = Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect());
        return;
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(fields) = target.as_object_mut() else { return };
    let before = fields.clone();
    if patch.get("$patch").is_some_and(|directive| directive == "delete") {
        fields.clear();
        return;
    }
    if let Some(kept) = patch.get("$retainKeys").and_then(Value::as_array) {
        fields.retain(|name, _| kept.iter().any(|key| key == name));
    }
    for (name, value) in patch {
        let list = name.strip_prefix("$deleteFromPrimitiveList/").and_then(|list| fields.get_mut(list));
        if let (Some(items), Some(gone)) = (list.and_then(Value::as_array_mut), value.as_array()) {
            items.retain(|item| !gone.contains(item));
        }
        if name.starts_with('$') {
            continue;
        }
        if value.is_null() {
            fields.remove(name);
            continue;
        }
        let below = schema.and_then(|schema| schema.property(name).or_else(|| schema.values()));
        match fields.get_mut(name) {
            Some(place) if same_sort(place, value) => merge_field(place, value, below.as_ref()),
            // Directives mean nothing where there is nothing to direct.
            _ => match without_directives(value) {
                Some(value) => drop(fields.insert(name.clone(), value)),
                None => drop(fields.remove(name)),
            },
        }
    }
    set_orders(fields, patch, &before, schema);
}

/// Puts lists into the order that the patch asks for; `before` are the fields as they were.
fn set_orders(
    fields: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    before: &Map<String, Value>,
    schema: Option<&Schema>,
) {
    for (name, order) in patch {
        let Some(list) = name.strip_prefix("$setElementOrder/") else { continue };
        let below = schema.and_then(|schema| schema.property(list));
        let key = below.as_ref().and_then(Schema::patch_merge_key).map(str::to_owned);
        let server = before.get(list).and_then(Value::as_array).cloned().unwrap_or_default();
        let items = fields.get_mut(list).and_then(Value::as_array_mut);
        if let (Some(items), Some(order)) = (items, order.as_array()) {
            reorder(items, order, &server, key.as_deref());
        }
    }
}

fn same_sort(a: &Value, b: &Value) -> bool {
    matches!((a, b), (Value::Object(_), Value::Object(_)) | (Value::Array(_), Value::Array(_)))
}

/// A value that is new in the object; `None` when it is nothing but a directive (`removeDirectives`).
fn without_directives(value: &Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key("$patch") => None,
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, value)| !name.starts_with('$') && !value.is_null());
            let kept = kept.filter_map(|(name, value)| Some((name.clone(), without_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.iter().filter_map(without_directives).collect())),
        scalar => Some(scalar.clone()),
    }
}

fn merge_field(place: &mut Value, value: &Value, schema: Option<&Schema>) {
    let merges = schema.is_some_and(|schema| schema.patch_strategies().iter().any(|name| name == "merge"));
    match (value, schema) {
        (Value::Object(_), _) => strategic(place, value, schema),
        (Value::Array(items), Some(schema)) if merges && schema.ty() == Type::List => {
            let Some(list) = place.as_array_mut() else { return };
            let server = list.clone();
            let key = schema.patch_merge_key();
            match key {
                Some(key) => merge_list(list, items, key, schema.items().as_ref()),
                None => {
                    for item in items {
                        if !list.contains(item) {
                            list.push(item.clone());
                        }
                    }
                }
            }
            reorder(list, items, &server, key);
        }
        _ => *place = value.clone(),
    }
}

fn merge_list(list: &mut Vec<Value>, patch: &[Value], key: &str, items: Option<&Schema>) {
    if patch.iter().any(|item| item["$patch"] == "replace") {
        list.clear();
    }
    for item in patch {
        let directive = item.get("$patch").and_then(Value::as_str);
        let at = list.iter().position(|known| known.get(key).is_some() && known.get(key) == item.get(key));
        match (directive, at) {
            (Some("replace"), _) if item.get(key).is_none() => {}
            (Some("delete"), Some(at)) => drop(list.remove(at)),
            (Some("delete"), None) => {}
            (_, Some(at)) => strategic(&mut list[at], item, items),
            (_, None) => {
                let mut fresh = Value::Object(Map::new());
                strategic(&mut fresh, item, items);
                list.push(fresh);
            }
        }
    }
}

/// Items that the order names come in it, the others as they stood on the server; where neither says
/// who is first, those of the order are (`normalizeElementOrder` and `mergeSortedSlice` of apimachinery).
fn reorder(items: &mut Vec<Value>, order: &[Value], server: &[Value], key: Option<&str>) {
    let place = |list: &[Value], item: &Value| match key {
        Some(key) => list.iter().position(|known| known.get(key) == item.get(key)),
        None => list.iter().position(|known| known == item),
    };
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        std::mem::take(items).into_iter().partition(|item| place(order, item).is_some());
    named.sort_by_key(|item| place(order, item));
    others.sort_by_key(|item| place(server, item));
    let mut named = named.into_iter().peekable();
    for other in others {
        let rank = place(server, &other);
        let goes_first = |named: &Value| match (rank, place(server, named)) {
            (Some(other), Some(named)) => other < named,
            _ => false,
        };
        while let Some(next) = named.next_if(|next| !goes_first(next)) {
            items.push(next);
        }
        items.push(other);
    }
    items.extend(named);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use model::schema;

    #[test]
    fn json_patches_hold_wholly_or_not_at_all() {
        let start = json!({"a": {"b/c": 1}, "l": [1, 2]});
        let mut value = start.clone();
        let patch = json!([
            {"op": "test", "path": "/a/b~1c", "value": 1},
            {"op": "replace", "path": "/a/b~1c", "value": 2},
            {"op": "add", "path": "/l/-", "value": 3},
            {"op": "remove", "path": "/l/0"},
            {"op": "copy", "from": "/a", "path": "/d"},
            {"op": "move", "from": "/l", "path": "/m"},
        ]);
        json(&mut value, &patch).unwrap();
        assert_eq!(value, json!({"a": {"b/c": 2}, "d": {"b/c": 2}, "m": [2, 3]}));
        let mut value = start.clone();
        let patch = json!([{"op": "remove", "path": "/l"}, {"op": "remove", "path": "/nothing"}]);
        assert_eq!(json(&mut value, &patch).unwrap_err().code, 422);
        assert_eq!(value, start);
    }

    #[test]
    fn strategic_patches_merge_lists_by_key() {
        let schema = schema::builtin("apps", "v1", "Deployment").unwrap();
        let mut value = json!({"spec": {"template": {"spec": {
            "containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}],
            "tolerations": [{"key": "k"}]}}}});
        let patch = json!({"spec": {"template": {"spec": {
            "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
            "containers": [{"name": "a", "image": "z"}, {"name": "b", "$patch": "delete"}, {"name": "c"}],
            "tolerations": []}}}});
        strategic(&mut value, &patch, Some(&schema));
        assert_eq!(
            value,
            json!({"spec": {"template": {"spec": {
                "containers": [{"name": "c"}, {"name": "a", "image": "z"}], "tolerations": []}}}})
        );
    }
}
