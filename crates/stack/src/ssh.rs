//! `[ssh]`: hosts on which Dask runs as processes, reached by the system's OpenSSH.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use kinds::short_forms::{host_names, text_or_table};
use model::resource::{Host, HostConnection};

/// Hosts at the other end of SSH. Scheduler and workers are processes there, which outlive the connection; what is known of
/// them is kept on each host below `~/.local/state/dask-infra`. The system's `ssh` is used, with its configuration, agent,
/// known hosts and jump hosts; keys of hosts are checked, and nobody is asked for a password. Linux hosts with Python 3.8 or
/// later as `python3`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ssh {
    /// The hosts: names as `ssh` takes them, or tables. `gpu[1-4]` is `gpu1` to `gpu4`.
    pub hosts: Vec<SshHost>,
    /// The host that keeps the record and the lock of the stack, and the scheduler where nothing else is said. Default the
    /// first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
    /// Hosts that left `hosts` and no longer exist. What the stack had there is given up. Otherwise the next apply empties a host
    /// that leaves, and has to reach it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<String>,
    /// Encrypts what schedulers, workers and clients of Dask send, and lets only those with the certificates of their Dask cluster connect. Default `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<bool>,
}

/// A host, or several of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SshHost {
    pub name: String,
    pub address: Option<String>,
    pub user: Option<String>,
    pub port: Option<u16>,
    pub identity: Option<String>,
    pub python: Option<String>,
    pub prologue: Vec<String>,
}

/// A host in full.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SshHostTable")]
struct Table {
    /// The name of the host here and, without `address`, in SSH: one name, or several as `gpu[1-4]`.
    name: String,
    /// The target of `ssh`: a host name, an address, or a `Host` of its configuration. Default the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    /// The user there. Default as SSH is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    /// The port. Default as SSH is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    port: Option<u16>,
    /// The file of the key, as `ssh -i` takes it: `/…` or `~/…`. Default as SSH is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
    /// The Python 3.8 or later there that dask-infra runs with, as an absolute path: `/…` or `~/…`. Default the `python3` on the `PATH`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    python: Option<String>,
    /// Lines of bash before it, in a login shell: `["module load cuda"]`. Processes get the `PATH` and the `LD_LIBRARY_PATH` that they set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    prologue: Vec<String>,
}

impl Ssh {
    /// Returns all hosts, the home first.
    pub fn all(&self) -> Vec<Host> {
        let mut all: Vec<Host> = self.hosts.iter().flat_map(SshHost::all).collect();
        // Stable: the others stay in their order.
        all.sort_by_key(|host| self.home.as_ref().is_some_and(|home| *home != host.name));
        all
    }

    /// Returns the names of hosts that no longer exist, one by one.
    pub fn gone(&self) -> Vec<String> {
        self.gone.iter().flat_map(|name| host_names(name)).collect()
    }
}

impl SshHost {
    /// Returns each of them.
    pub fn all(&self) -> Vec<Host> {
        let of = |name: String| {
            let address = self.address.clone().unwrap_or_else(|| name.clone());
            let Self { name: _, address: _, user, port, identity, python, prologue } = self.clone();
            let connection = HostConnection::Ssh { address, user, port, identity, python, prologue };
            Host { name, connection, slurm: false }
        };
        host_names(&self.name).into_iter().map(of).collect()
    }
}

impl Serialize for SshHost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if *self == (Self { name: self.name.clone(), ..Self::default() }) {
            return serializer.serialize_str(&self.name);
        }
        let Self { name, address, user, port, identity, python, prologue } = self.clone();
        Table { name, address, user, port, identity, python, prologue }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for SshHost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let short = |name: &str| Self { name: name.to_owned(), ..Self::default() };
        text_or_table(deserializer, "the name of a host or a table with `name`", short, |table: Table| {
            let Table { name, address, user, port, identity, python, prologue } = table;
            Self { name, address, user, port, identity, python, prologue }
        })
    }
}

impl JsonSchema for SshHost {
    fn schema_name() -> Cow<'static, str> {
        "SshHost".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A host: its name as `ssh` takes it, or a table.",
            "oneOf": [{ "type": "string" }, generator.subschema_for::<Table>()],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_stands_for_several_hosts() {
        for (text, hosts) in [
            ("node", &["node"][..]),
            ("gpu[1-3]", &["gpu1", "gpu2", "gpu3"]),
            ("gpu[09-11].lab", &["gpu09.lab", "gpu10.lab", "gpu11.lab"]),
            ("gpu[3-1]", &["gpu[3-1]"]),
            ("gpu[1-2000]", &["gpu[1-2000]"]),
            ("gpu[1", &["gpu[1"]),
        ] {
            assert_eq!(host_names(text), hosts, "{text}");
        }
    }

    #[test]
    fn the_home_comes_first() {
        let ssh = Ssh {
            hosts: vec![SshHost { name: "n[1-3]".to_owned(), ..SshHost::default() }],
            home: Some("n2".to_owned()),
            ..Ssh::default()
        };
        let names: Vec<String> = ssh.all().into_iter().map(|host| host.name).collect();
        assert_eq!(names, ["n2", "n1", "n3"]);
    }
}
