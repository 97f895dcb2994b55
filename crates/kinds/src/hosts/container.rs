//! Images of environments, and the runtimes that run them.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::short_forms::text_or_table;

/// An image: its name, or a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// As the runtime names it, or the path of a file on the host.
    pub image: String,
    /// `None` for the first one that works on a host.
    pub runtime: Option<Runtime>,
    /// True if processes see the user's home folder.
    pub home: bool,
    /// Folders of the host beside the home.
    pub mounts: Vec<String>,
    /// More options of the runtime's command.
    pub options: Vec<String>,
}

/// The program that runs containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Runtime {
    Podman,
    Docker,
    Apptainer,
    Singularity,
}

impl Runtime {
    /// Returns true if its images are files.
    pub fn has_files(self) -> bool {
        match self {
            Self::Apptainer | Self::Singularity => true,
            Self::Podman | Self::Docker => false,
        }
    }
}

/// A container in full.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ContainerTable")]
struct Table<'a> {
    /// The image: `"ghcr.io/dask/dask:2026.8.0-py3.12"`, with a digest (`…@sha256:…`) the same one everywhere; for apptainer also the
    /// absolute path of a `.sif` file or of an unpacked image.
    image: Cow<'a, str>,
    /// The program that runs it. Default the first of podman, docker, apptainer and singularity that is on the `PATH` of a host
    /// and answers; with `[slurm]` the first of apptainer, singularity and podman.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    runtime: Option<Runtime>,
    /// With `false` processes don't see the home folder of the user, for an image that you don't trust with it. They run in `/`
    /// then, and see only `local_directory`, their certificates and `mounts` of the host's files.
    #[serde(default = "sees_home", skip_serializing_if = "is_true")]
    home: bool,
    /// Folders of the host that processes see beside the home, by absolute paths: `"/data"`, `"/data:/mnt/data"`, `"/data:/data:ro"`.
    #[serde(default, skip_serializing_if = "<[String]>::is_empty")]
    mounts: Cow<'a, [String]>,
    /// More options of `podman run`, `docker run` or `apptainer exec`, each word by itself: `["--init", "--ulimit", "nofile=65536"]`.
    #[serde(default, skip_serializing_if = "<[String]>::is_empty")]
    options: Cow<'a, [String]>,
}

fn sees_home() -> bool {
    true
}

fn is_true(home: &bool) -> bool {
    *home
}

impl Container {
    fn table(&self) -> Table<'_> {
        let Self { image, runtime, home, mounts, options } = self;
        Table {
            image: Cow::Borrowed(image),
            runtime: *runtime,
            home: *home,
            mounts: Cow::Borrowed(mounts),
            options: Cow::Borrowed(options),
        }
    }

    /// Returns true if only its image is set, which a file writes without a table.
    pub fn is_short(&self) -> bool {
        let Self { image: _, runtime, home, mounts, options } = self;
        runtime.is_none() && *home && mounts.is_empty() && options.is_empty()
    }

    /// Returns true if the image is a file or folder of the host.
    pub fn is_path(&self) -> bool {
        self.image.starts_with(['/', '~'])
    }

    /// Returns `spec.container`.
    pub fn body(&self) -> Value {
        json!(self.table())
    }
}

impl Serialize for Container {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.is_short() {
            return serializer.serialize_str(&self.image);
        }
        self.table().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Container {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let short = |image: &str| Self {
            image: image.to_owned(),
            runtime: None,
            home: sees_home(),
            mounts: Vec::new(),
            options: Vec::new(),
        };
        text_or_table(
            deserializer,
            "the name of an image or a table with `image`",
            short,
            |table: Table<'static>| {
                let Table { image, runtime, home, mounts, options } = table;
                Self {
                    image: image.into_owned(),
                    runtime,
                    home,
                    mounts: mounts.into_owned(),
                    options: options.into_owned(),
                }
            },
        )
    }
}

impl JsonSchema for Container {
    fn schema_name() -> Cow<'static, str> {
        "Container".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An image: its name, or a table.",
            "oneOf": [{ "type": "string" }, generator.subschema_for::<Table<'static>>()],
        })
    }
}
