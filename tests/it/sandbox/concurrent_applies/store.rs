//! A Kubernetes API that holds namespaces and the ConfigMaps of records: what a race over lock and record is about, and
//! nothing else. Versions, uids, preconditions and owners of fields are those of the real one.

use std::collections::BTreeMap;

use live::{ApiError, ErrorClass, Request};
use model::resource::Method;
use serde_json::{Value, json};

/// The annotation of the lock.
const LOCK: &str = "dask-infra.dev/lock";
/// The record of the stack.
pub const RECORD: &str = "/api/v1/namespaces/dask-infra/configmaps/dask-infra-s";

/// Objects by path.
#[derive(Clone, Default)]
pub struct Store {
    objects: BTreeMap<String, Value>,
    version: u64,
}

impl Store {
    /// Does a request.
    pub fn answer(&mut self, request: &Request) -> Result<Value, ApiError> {
        let path = request.path.split('?').next().unwrap().to_owned();
        match request.method {
            Method::Get => self.get(request, &path),
            Method::Patch => self.apply(request, &path),
            Method::Delete => self.delete(request, &path),
            Method::Post | Method::Put | Method::Merge => {
                Err(request.failed(ErrorClass::Invalid, "nothing here is made so"))
            }
        }
    }

    /// Returns the holder of the lock: the process in its entry.
    pub fn holder(&self) -> Option<u64> {
        let entry = self.objects.get(RECORD)?["metadata"]["annotations"][LOCK].as_str()?;
        serde_json::from_str::<Value>(entry).unwrap()["holder"]["pid"].as_u64()
    }

    /// An object.
    pub fn at(&self, path: &str) -> Option<&Value> {
        self.objects.get(path)
    }

    /// Puts an object of somebody else.
    pub fn put(&mut self, path: &str, mut object: Value) {
        self.version += 1;
        object["metadata"]["uid"] = json!(format!("u{}", self.version));
        object["metadata"]["resourceVersion"] = json!((self.version + 1000).to_string());
        self.objects.insert(path.to_owned(), object);
    }

    /// The namespaces of the stack, with what stands in them.
    pub fn stack_objects(&self) -> BTreeMap<String, Value> {
        let ours = self.objects.iter().filter(|(_, object)| is_by(object, "dask-infra/s"));
        ours.map(|(path, object)| (path.clone(), object["metadata"]["labels"]["said"].clone())).collect()
    }

    /// Everything that carries any mark of the program.
    pub fn marked_objects(&self) -> Vec<&String> {
        let by_us = |object: &Value| {
            let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
            entries.filter_map(|entry| entry["manager"].as_str()).any(|who| who.starts_with("dask-infra"))
        };
        self.objects.iter().filter(|(_, object)| by_us(object)).map(|(path, _)| path).collect()
    }

    fn get(&self, request: &Request, path: &str) -> Result<Value, ApiError> {
        match path {
            "/apis" => return Ok(json!({ "kind": "APIGroupList", "groups": [] })),
            "/api/v1" => {
                let kind = |name: &str, kind: &str, namespaced: bool| json!({ "name": name, "kind": kind, "namespaced": namespaced, "verbs": ["list", "get"] });
                let kinds = [
                    kind("configmaps", "ConfigMap", true),
                    kind("secrets", "Secret", true),
                    kind("namespaces", "Namespace", false),
                ];
                return Ok(json!({ "kind": "APIResourceList", "groupVersion": "v1", "resources": kinds }));
            }
            _ => {}
        }
        if let Some(object) = self.objects.get(path) {
            return Ok(object.clone());
        }
        let last = path.rsplit('/').next().unwrap();
        if !matches!(last, "namespaces" | "configmaps" | "secrets" | "customresourcedefinitions") {
            return Err(missing(request, path));
        }
        let within =
            |other: &str| other.strip_prefix(path).is_some_and(|rest| rest.matches('/').count() == 1);
        let items: Vec<&Value> =
            self.objects.iter().filter(|(other, _)| within(other)).map(|(_, object)| object).collect();
        let metadata = json!({ "resourceVersion": self.version.to_string() });
        Ok(json!({ "apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items }))
    }

    fn apply(&mut self, request: &Request, path: &str) -> Result<Value, ApiError> {
        let body = request.body.clone().unwrap();
        let manager = request.path.split("fieldManager=").nth(1).unwrap().split('&').next().unwrap();
        let manager = manager.replace("%2F", "/");
        let (place, _) = path.rsplit_once('/').unwrap();
        let within = place.strip_suffix("/configmaps");
        if within.is_some_and(|namespace| !self.objects.contains_key(namespace)) {
            return Err(missing(request, within.unwrap()));
        }
        let said = |name: &str| body["metadata"][name].as_str().map(str::to_owned);
        let live = self.objects.get(path);
        if let Some(live) = live {
            let other = |name: &str| said(name).is_some_and(|said| live["metadata"][name] != *said);
            if other("uid") || other("resourceVersion") {
                return Err(request.failed(ErrorClass::Conflict, "the object has been modified"));
            }
        } else if said("uid").is_some() {
            return Err(request.failed(ErrorClass::Conflict, "uid mismatch: no existing object was found"));
        }
        let before = live.cloned().unwrap_or(json!({ "metadata": {} }));
        let mut object = before.clone();
        let mine = leaves(&body);
        let entries = before["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let (own, mut others): (Vec<Value>, Vec<Value>) =
            entries.into_iter().partition(|entry| entry["manager"] == *manager);
        for leaf in own.iter().flat_map(|entry| leaves_of(&entry["fieldsV1"])) {
            if !mine.iter().any(|(path, _)| *path == leaf) {
                remove(&mut object, &leaf);
            }
        }
        for (path, value) in &mine {
            set(&mut object, path, value.clone());
        }
        let mut fields = json!({});
        for (path, _) in &mine {
            let path: Vec<String> = path.iter().map(|key| format!("f:{key}")).collect();
            set(&mut fields, &path, json!({}));
        }
        others.push(json!({
            "manager": manager, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields,
        }));
        object["metadata"]["managedFields"] = json!(others);
        for name in ["apiVersion", "kind"] {
            object[name] = body[name].clone();
        }
        for name in ["name", "namespace"] {
            if let Some(said) = said(name) {
                object["metadata"][name] = json!(said);
            }
        }
        if body["kind"] == "Namespace" {
            object["status"] = json!({ "phase": "Active" });
        }
        if live.is_none() {
            object["metadata"]["uid"] = json!(format!("u{}", self.version + 1));
        }
        if object != before {
            self.version += 1;
            // Never "1": no live object has that version.
            object["metadata"]["resourceVersion"] = json!((self.version + 1000).to_string());
        }
        self.objects.insert(path.to_owned(), object.clone());
        Ok(object)
    }

    fn delete(&mut self, request: &Request, path: &str) -> Result<Value, ApiError> {
        let Some(live) = self.objects.get(path) else { return Err(missing(request, path)) };
        let conditions = request.body.as_ref().map(|body| body["preconditions"].clone()).unwrap_or_default();
        for name in ["uid", "resourceVersion"] {
            let asked = &conditions[name];
            if !asked.is_null() && *asked != live["metadata"][name] {
                return Err(request.failed(ErrorClass::Conflict, "the precondition does not match"));
            }
        }
        let inside = format!("{path}/");
        self.objects.retain(|other, _| other != path && !other.starts_with(&inside));
        Ok(json!({ "kind": "Status", "status": "Success" }))
    }
}

fn missing(request: &Request, path: &str) -> ApiError {
    let name = path.rsplit('/').next().unwrap();
    ApiError { status: Some(404), ..request.failed(ErrorClass::NotFound, format!("{name:?} not found")) }
}

fn is_by(object: &Value, manager: &str) -> bool {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries.into_iter().any(|entry| entry["manager"] == manager && entry["operation"] == "Apply")
}

/// The fields of a body that a manager owns, with their values.
fn leaves(body: &Value) -> Vec<(Vec<String>, Value)> {
    fn walk(value: &Value, at: &mut Vec<String>, found: &mut Vec<(Vec<String>, Value)>) {
        let Some(fields) = value.as_object().filter(|fields| !fields.is_empty()) else {
            found.push((at.clone(), value.clone()));
            return;
        };
        for (key, value) in fields {
            let nobodys = match at.as_slice() {
                [] => ["apiVersion", "kind"].contains(&key.as_str()),
                [first] if first == "metadata" => {
                    ["name", "namespace", "uid", "resourceVersion"].contains(&key.as_str())
                }
                _ => false,
            };
            if !nobodys {
                at.push(key.clone());
                walk(value, at, found);
                at.pop();
            }
        }
    }
    let mut found = Vec::new();
    walk(body, &mut Vec::new(), &mut found);
    found.retain(|(_, value)| *value != json!({}));
    found
}

fn leaves_of(fields: &Value) -> Vec<Vec<String>> {
    let named = leaves_raw(fields, &mut Vec::new());
    named
        .into_iter()
        .map(|path| path.iter().map(|key| key.trim_start_matches("f:").to_owned()).collect())
        .collect()
}

fn leaves_raw(fields: &Value, at: &mut Vec<String>) -> Vec<Vec<String>> {
    let Some(inner) = fields.as_object().filter(|inner| !inner.is_empty()) else { return vec![at.clone()] };
    let mut found = Vec::new();
    for (key, value) in inner {
        at.push(key.clone());
        found.extend(leaves_raw(value, at));
        at.pop();
    }
    found
}

fn set(object: &mut Value, path: &[String], value: Value) {
    let mut at = object;
    for key in path {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[key.as_str()];
    }
    *at = value;
}

fn remove(object: &mut Value, path: &[String]) {
    let Some((last, way)) = path.split_last() else { return };
    let mut at = object;
    for key in way {
        match at.get_mut(key) {
            Some(next) => at = next,
            None => return,
        }
    }
    if let Some(fields) = at.as_object_mut() {
        fields.remove(last);
    }
}
