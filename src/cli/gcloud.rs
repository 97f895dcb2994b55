//! The project and zone that are set in the user's gcloud, read from its files as gcloud reads them. gcloud itself is not run.
//! Source: `gcloud topic configurations`, and the Cloud SDK's `properties.py` for names and order.

use std::fs;
use std::path::PathBuf;

use live::credentials::adc::folder;
use live::environment::Env;

/// A property, with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    pub value: String,
    /// `CLOUDSDK_CORE_PROJECT`, or a file.
    pub from: String,
}

/// The active configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gcloud {
    /// The folder of all configurations, if the user has a home folder.
    pub folder: Option<PathBuf>,
    /// The name of the active configuration.
    pub configuration: String,
    /// `core/project`.
    pub project: Option<Property>,
    /// `compute/zone`.
    pub zone: Option<Property>,
    /// `core/account`.
    pub account: Option<Property>,
}

/// Reads the active configuration. A missing file or property sets nothing.
pub fn read(env: Env<'_>) -> Gcloud {
    let folder = folder(env);
    let text = |path: &str| fs::read_to_string(folder.as_ref()?.join(path)).ok();
    let named = env("CLOUDSDK_ACTIVE_CONFIG_NAME");
    let configuration = named
        .or_else(|| text("active_config").map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()))
        .unwrap_or_else(|| "default".to_owned());
    // The file of a configuration, and the one from before there were configurations.
    let files = [format!("configurations/config_{configuration}"), "properties".to_owned()];
    let files: Vec<(String, String)> =
        files.into_iter().filter_map(|file| Some((text(&file)?, file))).collect();
    let find = |variable: &str, section: &str, key: &str| {
        let said = env(variable).map(|value| Property { value, from: variable.to_owned() });
        said.or_else(|| {
            files.iter().find_map(|(text, file)| {
                let from = folder.as_ref()?.join(file).display().to_string();
                Some(Property { value: property(text, section, key)?, from })
            })
        })
    };
    Gcloud {
        project: find("CLOUDSDK_CORE_PROJECT", "core", "project"),
        zone: find("CLOUDSDK_COMPUTE_ZONE", "compute", "zone"),
        account: find("CLOUDSDK_CORE_ACCOUNT", "core", "account"),
        configuration,
        folder,
    }
}

/// Returns a key of an INI file.
fn property(text: &str, section: &str, key: &str) -> Option<String> {
    let mut here = "";
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            here = name.trim();
        } else if let Some((name, value)) = line.split_once('=')
            && here == section
            && name.trim() == key
            && !value.trim().is_empty()
        {
            return Some(value.trim().to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn env<'a>(pairs: &'a BTreeMap<&str, String>) -> impl Fn(&str) -> Option<String> + 'a {
        |name| pairs.get(name).cloned()
    }

    #[test]
    fn the_active_configuration_is_read_and_variables_count_more() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".config/gcloud");
        fs::create_dir_all(folder.join("configurations")).unwrap();
        fs::write(folder.join("active_config"), "lab\n").unwrap();
        let text = "[core]\naccount = ada@example.org\nproject = lab-1\n\n[compute]\nzone = europe-west4-b\nregion =\n";
        fs::write(folder.join("configurations/config_lab"), text).unwrap();
        fs::write(folder.join("configurations/config_default"), "[core]\nproject = other\n").unwrap();
        let mut pairs = BTreeMap::from([("HOME", home.path().display().to_string())]);
        let said = |found: &Option<Property>| found.as_ref().map(|property| property.value.clone());
        let found = read(&env(&pairs));
        assert_eq!(found.configuration, "lab");
        assert_eq!(said(&found.project).as_deref(), Some("lab-1"));
        assert_eq!(said(&found.zone).as_deref(), Some("europe-west4-b"));
        assert_eq!(said(&found.account).as_deref(), Some("ada@example.org"));
        pairs.insert("CLOUDSDK_CORE_PROJECT", "from-variable".to_owned());
        pairs.insert("CLOUDSDK_ACTIVE_CONFIG_NAME", "default".to_owned());
        let found = read(&env(&pairs));
        assert_eq!(said(&found.project).as_deref(), Some("from-variable"));
        assert_eq!(found.zone, None);
    }

    #[test]
    fn nothing_is_found_where_nothing_is() {
        let none = BTreeMap::new();
        assert_eq!(read(&env(&none)), Gcloud { configuration: "default".to_owned(), ..Gcloud::default() });
    }
}
