//! The user's code in pods: a ConfigMap with the files, and a volume of it.
//!
//! A ConfigMap must not change under running pods, so it is immutable and its name has the digest of its content: other content is
//! another ConfigMap. The one before is deleted once nothing uses it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::code::{Code, PYTHON_PATH, SourceFiles, is_absolute};
use crate::env::{Env, Variable};
use crate::json::{append, text};
use crate::kubernetes::object::gvk;
use crate::scope::Scope;
use model::address::{Address, FieldPath, Segment};
use model::resource::{Identity, KindId, ObjectId, Recreation, Resource};

/// The folder of the files in containers.
pub const FOLDER: &str = "/opt/dask-infra/files";

/// The name of the volume.
const VOLUME: &str = "dask-infra-files";

/// The label of ConfigMaps with code.
const LABEL: &str = "dask-infra.dev/files";

/// The number of characters of the digest in the name of a ConfigMap.
const DIGEST: usize = 10;

/// The largest size of all files in bytes. A ConfigMap has at most 1 MiB of data (`MaxSecretSize` in
/// `pkg/apis/core/validation/validation.go` of Kubernetes), without its keys. In base64 and with the list of its fields it must also
/// fit into a request to etcd, 1.5 MiB.
pub const MAX_BYTES: usize = 976 * 1024;

/// The largest size in bytes of the lists of files in the volumes of an object's pods. The Dask operator keeps the spec of each object
/// in an annotation, and annotations have 256 KiB at most (`TotalAnnotationSizeLimitB` in `pkg/api/validation/objectmeta.go` of
/// Kubernetes' apimachinery; kopf issue 1087).
pub const MAX_LISTING: usize = 180 * 1024;

/// The code of a section, for its pods.
pub struct PodCode<'a> {
    code: Code<'a>,
    /// The ConfigMap; `None` without files.
    config_map: Option<ObjectId>,
}

impl<'a> PodCode<'a> {
    /// Creates the code for pods in a namespace; `name` is the live name of what they belong to.
    pub fn new(name: &str, namespace: &str, code: Code<'a>) -> Self {
        let config_map = code.digest().map(|digest| ObjectId {
            gvk: gvk("", "v1", "ConfigMap", "configmaps"),
            namespace: Some(namespace.to_owned()),
            name: format!("{name}-files-{}", &digest[..DIGEST]),
        });
        Self { code, config_map }
    }

    /// Returns the ConfigMap of a section; `None` without files.
    pub fn resource(&self, section: &Address, scope: &Scope) -> Option<Resource> {
        let object = self.config_map.clone()?;
        let (files, origin) = &self.code.files;
        let namespace = object.namespace.clone().unwrap_or_default();
        let mut labels = scope.labels();
        labels[LABEL] = json!("true");
        let mut body = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": object.name, "namespace": namespace, "labels": labels },
            "immutable": true,
        });
        for (key, (_, file)) in keys(files).zip(files.iter()) {
            match String::from_utf8(file.bytes()) {
                Ok(text) => body["data"][key] = json!(text),
                Err(_) => body["binaryData"][key] = json!(file.base64()),
            }
        }
        Some(Resource {
            address: Address::object(section.as_str(), &object.gvk.kind, Some(&namespace), &object.name),
            identity: Identity::Object(object),
            kind: KindId::Object,
            body,
            create_only: Value::Null,
            origin: origin.clone(),
            provenance: Vec::new(),
            depends_on: scope.namespace_dependencies(&namespace),
            protect: false,
            recreation: Recreation::Always,
        })
    }

    /// Adds the files and the working folder to a pod with one container, whose own variables are `env`. `working_dir` is the folder of
    /// this pod, if it has one of its own.
    pub fn add_to(&self, pod: &mut Value, env: &Env, working_dir: Option<&str>) {
        let folder = working_dir.or(self.code.folder());
        let folder = match folder {
            Some(folder) if is_absolute(folder) => Some(folder.to_owned()),
            Some(folder) => Some(format!("{FOLDER}/{folder}")),
            None => self.config_map.as_ref().map(|_| FOLDER.to_owned()),
        };
        if let Some(folder) = folder {
            pod["containers"][0]["workingDir"] = json!(folder);
        }
        let Some(object) = &self.config_map else { return };
        let container = &mut pod["containers"][0];
        append(container, "volumeMounts", vec![mount()]);
        match env.get(PYTHON_PATH).and_then(Variable::text) {
            Some(own) => {
                let variables = container["env"].as_array_mut().into_iter().flatten();
                for variable in variables.filter(|variable| text(&variable["name"]) == PYTHON_PATH) {
                    variable["value"] = json!(format!("{FOLDER}:{own}"));
                }
            }
            None => append(container, "env", vec![json!({ "name": PYTHON_PATH, "value": FOLDER })]),
        }
        let items = keys(self.code.files.0).zip(self.code.files.0.iter()).map(|(key, (path, file))| {
            let mut item = json!({ "key": key, "path": path });
            if file.executable {
                item["mode"] = json!(0o755);
            }
            item
        });
        let items: Vec<Value> = items.collect();
        let volume = json!({ "name": VOLUME, "configMap": { "name": object.name, "items": items } });
        append(pod, "volumes", vec![volume]);
    }

    /// Returns the provenance of what was added to a pod; `pod` is its path in the body, `made` the pod. `working_dir` is the path of
    /// the working folder of this pod, if it has one of its own.
    pub fn provenance(
        &self,
        made: &Value,
        pod: &FieldPath,
        working_dir: Option<FieldPath>,
    ) -> Vec<(FieldPath, FieldPath)> {
        let (_, files) = &self.code.files;
        let container = pod.key("containers").index(0);
        let named = self.code.working_dir.as_ref().map(|(_, path)| path.clone());
        let folder = working_dir.or(named);
        let folder = folder.or_else(|| self.config_map.as_ref().map(|_| files.clone()));
        let mut provenance: Vec<(FieldPath, FieldPath)> =
            folder.into_iter().map(|folder| (container.key("workingDir"), folder)).collect();
        if self.config_map.is_none() {
            return provenance;
        }
        // Others may stand in the same lists.
        for (list, path, name) in [
            (&made["containers"][0]["volumeMounts"], container.key("volumeMounts"), VOLUME),
            (&made["volumes"], pod.key("volumes"), VOLUME),
            (&made["containers"][0]["env"], container.key("env"), PYTHON_PATH),
        ] {
            let items = list.as_array().into_iter().flatten().enumerate();
            let own = items.filter(|(_, item)| text(&item["name"]) == name);
            provenance.extend(own.map(|(index, _)| (path.index(index), files.clone())));
        }
        provenance
    }
}

fn mount() -> Value {
    json!({ "name": VOLUME, "mountPath": FOLDER, "readOnly": true })
}

/// Returns the keys of files in a ConfigMap, which cannot have `/`. Source: `IsConfigMapKey` in
/// `staging/src/k8s.io/apimachinery/pkg/util/validation/validation.go` of Kubernetes.
fn keys(files: &SourceFiles) -> impl Iterator<Item = String> {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    files.iter().enumerate().map(move |(index, (path, _))| {
        let name: String = path.chars().map(plain).collect();
        let start = name.len().saturating_sub(200);
        // The number tells `a/b` and `a_b` apart.
        format!("{index:03}.{}", &name[start..])
    })
}

/// Returns true for a live ConfigMap with the code of a section.
pub fn has_code(object: &ObjectId, live: &Value) -> bool {
    object.gvk.group.is_empty()
        && object.gvk.kind == "ConfigMap"
        && live["metadata"]["labels"][LABEL] == "true"
}

/// Returns the volume with the code in a PodSpec.
pub fn volume(pod: &Value) -> Option<&Value> {
    pod["volumes"].as_array()?.iter().find(|volume| text(&volume["name"]) == VOLUME)
}

/// Returns the modes and contents of the files of a volume, by path; `config_map` is the one that it names.
pub fn contents<'v>(volume: &'v Value, config_map: &'v Value) -> BTreeMap<&'v str, (&'v Value, &'v Value)> {
    let items = volume["configMap"]["items"].as_array().into_iter().flatten();
    let content = |item: &'v Value| {
        let key = text(&item["key"]);
        let content = config_map["data"].get(key).or_else(|| config_map["binaryData"].get(key))?;
        Some((text(&item["path"]), (&item["mode"], content)))
    };
    items.filter_map(content).collect()
}

/// Returns true for what the files add to a list of a pod: the variable with their folder, the volume, and its mount.
pub(crate) fn is_item(item: &Value) -> bool {
    let name = text(&item["name"]);
    name == VOLUME || name == PYTHON_PATH && own_path(item).is_some()
}

/// Returns the section's own path in the variable, which is empty if it has none.
fn own_path(variable: &Value) -> Option<&str> {
    let rest = text(&variable["value"]).strip_prefix(FOLDER)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix(':') }
}

/// Removes the item at this path, and from a variable with a path of the section's own only the folder, for bodies that are compared
/// without the code.
pub(crate) fn remove_item(body: &mut Value, path: &FieldPath) {
    let own = path.find(body).and_then(own_path).map(str::to_owned).unwrap_or_default();
    if !own.is_empty() {
        return path.key("value").put(body, json!(own));
    }
    let (Some(list), Some(Segment::Index(index))) = (path.parent(), path.segments().last()) else { return };
    let mut items = list.find(body).and_then(Value::as_array).cloned().unwrap_or_default();
    if *index < items.len() {
        items.remove(*index);
    }
    // Without the code there would be no list.
    list.put(body, if items.is_empty() { Value::Null } else { json!(items) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{CodeKeys, SourceFile};

    fn code() -> CodeKeys {
        let mut contents = SourceFiles::default();
        assert!(contents.add("train.py".to_owned(), SourceFile::new(false, b"print()")));
        assert!(contents.add("lib/run".to_owned(), SourceFile::new(true, b"\xff")));
        CodeKeys { contents, ..CodeKeys::default() }
    }

    fn pod(env: &Value) -> Value {
        json!({ "containers": [{ "name": "worker", "env": env }] })
    }

    #[test]
    fn the_variable_is_added_and_removed() {
        let keys = code();
        let code = PodCode::new("d", "default", keys.at(&FieldPath::keys(["dask_cluster", "d"])));
        let own = Env::from([(PYTHON_PATH.to_owned(), Variable::Text("/own".to_owned()))]);
        for (env, list) in [
            (Env::new(), json!([{ "name": "A", "value": "1" }])),
            (own, json!([{ "name": PYTHON_PATH, "value": "/own" }])),
        ] {
            let mut made = pod(&list);
            code.add_to(&mut made, &env, None);
            let variables = made["containers"][0]["env"].as_array().unwrap();
            let path = variables.iter().find(|one| one["name"] == PYTHON_PATH).unwrap();
            assert!(text(&path["value"]).starts_with(FOLDER), "{path}");
            assert_eq!(made["containers"][0]["workingDir"], FOLDER);
            let items = &made["volumes"][0]["configMap"]["items"];
            assert_eq!(items[0], json!({ "key": "000.lib_run", "path": "lib/run", "mode": 493 }));
            assert_eq!(items[1], json!({ "key": "001.train.py", "path": "train.py" }));
            let path = FieldPath::keys(["containers"]).index(0).key("env").index(variables.len() - 1);
            assert!(is_item(path.find(&made).unwrap()));
            remove_item(&mut made, &path);
            assert_eq!(made["containers"][0]["env"], list);
        }
    }

    #[test]
    fn a_working_folder_is_absolute_or_below_the_files() {
        let keys = code();
        for (own, expect) in [
            (None, "/opt/dask-infra/files"),
            (Some("lib"), "/opt/dask-infra/files/lib"),
            (Some("/data"), "/data"),
        ] {
            let code = PodCode::new("d", "default", keys.at(&FieldPath::root()));
            let mut made = pod(&json!([]));
            code.add_to(&mut made, &Env::new(), own);
            assert_eq!(made["containers"][0]["workingDir"], expect);
        }
        let none = CodeKeys::default();
        let mut made = pod(&json!([]));
        PodCode::new("d", "default", none.at(&FieldPath::root())).add_to(&mut made, &Env::new(), None);
        assert_eq!(made, pod(&json!([])));
    }
}
