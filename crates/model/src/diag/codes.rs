//! The codes of all messages, in one table. `explain` and `docs/diagnostics.md` are written from it. A code keeps its meaning
//! forever: codes that are no longer used are not used again.
//!
//! `00xx` usage and target, `01xx` syntax and shape of the stack file, `02xx` its meaning, `03xx` plans and
//! refusals, `04xx` apply, `05xx` sandbox, `06xx` credentials and APIs, `07xx` hosts.

use std::fmt;

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub code: Code,
    /// The printed code: `DI0102`.
    pub id: &'static str,
    /// A few words.
    pub title: &'static str,
    /// The meaning of the message, its causes and its remedy.
    pub text: &'static str,
    /// An example with its remedy; each line is shown as it stands.
    pub example: Option<&'static str>,
}

macro_rules! codes {
    ($($name:ident $id:literal $title:literal $text:literal $(=> $example:literal)?)*) => {
        /// A stable code of a message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $title] $name,)*
        }

        const TABLE: &[Entry] = &[
            $(Entry { code: Code::$name, id: $id, title: $title, text: $text, example: first(&[$($example)?]) },)*
        ];
    };
}

const fn first(examples: &[&'static str]) -> Option<&'static str> {
    match examples {
        [example, ..] => Some(example),
        [] => None,
    }
}

impl Code {
    /// Returns the whole table, in the order of the printed codes.
    pub fn all() -> &'static [Entry] {
        TABLE
    }

    /// Returns the row of this code.
    pub fn entry(self) -> &'static Entry {
        // The macro writes variants and rows in one order; a test holds it.
        &TABLE[self as usize]
    }

    /// Returns true if the lines that its messages point at contain secrets.
    pub fn is_about_secrets(self) -> bool {
        matches!(self, Self::SecretInFile | Self::LiteralSecret)
    }

    /// Returns the printed code: `DI0102`.
    pub fn as_str(self) -> &'static str {
        self.entry().id
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Parses the printed form, case-insensitively: `DI0102`, `di0102`.
impl std::str::FromStr for Code {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        TABLE.iter().find(|entry| entry.id.eq_ignore_ascii_case(text)).map(|entry| entry.code).ok_or(())
    }
}

codes! {
    StackNotFound "DI0001" "no stack file"
    "The stack file does not exist. Without `--stack` it is `stack.toml` in the current folder. Give the file \
     or its folder with `--stack PATH`, or start from a ready stack: `dask-infra init` lists them."
    => "dask-infra init --from rapids-gke\ndask-infra --stack stacks/rapids plan"

    StackNotReadable "DI0002" "the stack file cannot be read"
    "The file exists but cannot be read, or it is not a file. The message gives the operating system's reason; \
     fix the permissions or give another path with `--stack PATH`."

    PriceFile "DI0008" "the price file cannot be used"
    "The file of `--prices` cannot be read, or a line of it is not in the format of price files: a line `date`, a line of \
     `what`, `name` and the regions, and a line for each machine, GPU, disk or fee, with tabs between. It is used in place of the \
     built-in list: what it lacks has no price."
    => "date\t2026-07-30\nwhat\tname\tus-central1\tus-east1\nfee\tcluster\t0.1\t0.1\nmachine\te2-standard-*\t0.0335/0.0201\t0.0335\ndisk\tpd-balanced\t0.1\t0.1"

    Usage "DI0009" "the program cannot run"
    "The operating system or an option prevents the program from starting: a signal handler or a thread that \
     cannot be created, an endpoint that is not on this machine. The message says which."

    AlreadyThere "DI0010" "file already exists"
    "`init` never overwrites a file. Nothing was written. Choose another folder with `--stack FOLDER`, or move \
     the existing file away."
    => "dask-infra --stack rapids-2 init --from rapids-gke"

    CannotWrite "DI0011" "file cannot be written"
    "The operating system cannot write the file; the message gives its reason. The folder must exist and be \
     writable, and the disk must have free space."
    => "mkdir -p plans\ndask-infra plan --out plans/rapids.plan"

    UnknownReadyStack "DI0012" "no ready stack of this name"
    "`init --from NAME` takes the name of a built-in ready stack. Without a name it lists them."
    => "dask-infra init                        lists them\ndask-infra init --from rapids-gke      writes one"

    NothingToExplain "DI0013" "nothing to explain under this name"
    "`explain` takes the code of a message, or the path of a key in the stack file. The name of a pool or \
     cluster may be left out of the path."
    => "dask-infra explain DI0206\ndask-infra explain node_pool.nodes"

    Syntax "DI0101" "not TOML"
    "The text breaks TOML's own rules, so what follows may be misread, too: a string without its closing \
     quote, text without quotes, a key without a value. Fix the marked place; all errors that can be told \
     apart are listed in one run."
    => "name = \"rapids        # wrong: no closing quote\nname = \"rapids\"       # right"

    UnknownKey "DI0102" "unknown key"
    "The section has no key of this name, and nothing is ignored silently. Usually it is a typo or a key of another section; the help names either when it can. \
     `docs/stack-reference.md` lists all keys."
    => "[node_pool.a100]\nmachine = \"a2-highgpu-1g\"        # wrong\nmachine_type = \"a2-highgpu-1g\"   # right"

    DuplicateKey "DI0103" "the same key twice"
    "TOML and YAML allow a key once, and TOML a table header. Keep one of the two marked places. kubectl takes such YAML, and \
     silently drops the first of the two values; here it is an error, as one of them is not what was meant."

    WrongType "DI0104" "wrong type of value"
    "The value has the wrong type: a number where text is expected, a list instead of one value, a number in \
     quotes. The message says what is expected and the help shows an example."
    => "nodes = \"2\"   # wrong: text\nnodes = 2     # right"

    MissingKey "DI0105" "missing key"
    "The section requires this key; there is no sensible default. The marked place is the section's header; \
     add the key below it."
    => "[node_pool.a100]\nmachine_type = \"a2-highgpu-1g\"   # without this line: DI0105"

    OutOfRange "DI0106" "number out of range"
    "The number is smaller or larger than the key allows. The message gives the limits."

    NotOneOf "DI0107" "not one of the allowed words"
    "The key accepts only certain words, spelled exactly. The help lists them."

    NotText "DI0108" "the stack file is not UTF-8"
    "TOML files are UTF-8. The marked byte is not: the file is binary, or was saved in another encoding \
     (usually UTF-16 or Latin-1). Save it as UTF-8."

    UnknownVariable "DI0109" "unknown variable"
    "`${var.NAME}` names a variable that `[vars]` does not declare. Add it there or fix the name. `--var` only \
     sets variables that `[vars]` declares."
    => "[vars]\nworkers = 2\n\n[dask_cluster.rapids]\nworker = { replicas = \"${var.workers}\" }"

    MissingEnvironment "DI0110" "missing environment variable"
    "`${env.NAME}` names an environment variable that is not set. Set it before the command: \
     `export NAME=value`."
    => "export GOOGLE_CLOUD_PROJECT=my-project\ndask-infra plan"

    EnvironmentNotHere "DI0111" "reference where none is read"
    "`${env.NAME}` works only in `[vars]` and `[gke]`, so that the top of the file shows all its inputs. Put \
     it into `[vars]` and use `${var.NAME}` here. `env:NAME` is read in `{ secret = \"env:NAME\" }` and in the data of a \
     Secret in a manifest, and YAML files have no `${…}` of the stack. Elsewhere it would be applied as text."

    BadReference "DI0112" "invalid reference"
    "`${` starts a reference: `${var.NAME}` or `${env.NAME}`, closed by `}`. Write `$${` for a literal `${`."

    VariableInVariable "DI0113" "variable defined by another variable"
    "Values in `[vars]` may use `${env.NAME}` but not `${var.NAME}`, so their order does not matter and there \
     are no cycles. Write the value out, or combine the variables where they are used."

    BadOverride "DI0114" "value of --var has the wrong type"
    "`--var NAME=VALUE` keeps the type that the variable has in `[vars]`: a number stays a number, a boolean \
     stays a boolean. Give a value of the same type, or declare the variable as text."

    NoBase "DI0115" "the extended file cannot be read"
    "`extends` names a file that does not exist or cannot be read. Its path is relative to the folder of the \
     file that has `extends`; a folder means the `stack.toml` in it."

    ExtendsCircle "DI0116" "files that extend each other"
    "A file extends itself, directly or through others, so no order of overlays exists. Remove one `extends`."

    NothingToTake "DI0117" "nothing to remove"
    "`unset` or `enabled = false` removes what an extended file sets, but no extended file sets it: a typo, or \
     the extended file has changed. `unset` paths start in the section that contains them."

    BadForm "DI0118" "a value in the wrong form"
    "Some values are text in a form that GKE checks: times of day and dates of maintenance, recurrences (RFC 5545), \
     ranges of addresses, versions, network tags. A disk or an image that is not known here is a warning: GKE may have new \
     ones."
    => "[cluster.maintenance]\ndaily = \"03:00\"   # in UTC"

    NotRead "DI0119" "the checked stack cannot be parsed"
    "The file passed its schema check but could not be parsed: a bug in dask-infra, not an error in your file. \
     Please report it with the file and the message."

    NotOnHost "DI0120" "a section that hosts do not have"
    "Under `[local]`, `[ssh]` and `[slurm]`, Dask runs as processes on hosts. There is no Kubernetes there, so there are no nodes, \
     namespaces, manifests, charts or operators. Move such sections to the stack of a cluster. Several stacks can share the \
     rest: each `extends` one base and adds its own target."
    => "# cloud.toml\nextends = \"base.toml\"\n\n[gke]\nproject = \"my-project\"\nlocation = \"us-central1-a\"\n\n# laptop.toml\nextends = \"base.toml\"\n\n[local]"

    KeyNotOnHost "DI0121" "a key that has no meaning on a host"
    "The key is about Pods, images or Services, which a host does not have, or about something that is not supported on \
     hosts (GPUs of schedulers, autoscaling, secrets, queues). A warning marks a key that is ignored. The message says what to use instead."

    OnlyOnHost "DI0122" "a section or key for hosts only"
    "`[environment.NAME]`, `environment`, and `host`, `port` and `dashboard_port` of a scheduler describe processes on a \
     host (`[local]`, `[ssh]`, `[slurm]`); `on` and `hosts` are for `[ssh]` only, `slurm` for `[slurm]`. On Kubernetes the image is the environment, and a \
     Service exposes the scheduler."

    NoEnvironment "DI0123" "no environment for a Dask cluster"
    "On a host, scheduler and workers run in an `[environment.NAME]`. If the file has one, it is used; with several, set \
     `environment` of the Dask cluster or the group."
    => "[environment.main]\npackages = [\"dask[distributed]\"]"

    EnvironmentSource "DI0124" "an environment with no source, or two"
    "An environment is an existing Python (`path`), an image (`container`), or created from `packages`, `requirements`, `pyproject` or \
     `conda`. Give one of them."
    => "[environment.main]\npath = \"/opt/dask/bin/python\""

    CheckCluster "DI0125" "the Dask cluster of a check"
    "`run = \"dask-sum\"` and `run = \"bandwidth\"`, on hosts also `run = \"cuda-vectoradd\"`, use a Dask cluster of the file: the \
     one that `cluster` names, or the only one. `min` is the least bandwidth of `bandwidth`, in bytes a second."
    => "[check.sum]\nrun = \"dask-sum\"\ncluster = \"rapids\""

    PortTwice "DI0126" "a port that is used twice"
    "On a host each scheduler needs two ports of its own, `port` (default 8786) and `dashboard_port` (default 8787)."
    => "[dask_cluster.second]\nscheduler = { port = 8788, dashboard_port = 8789 }"

    NoHost "DI0127" "a host that is not in the stack"
    "`home` of `[ssh]`, `on` of a scheduler and `hosts` of workers name hosts in the list `hosts` of `[ssh]`, which needs \
     at least one. `gpu[1-4]` in the list means `gpu1` to `gpu4`."
    => "[ssh]\nhosts = [\"node1\", \"gpu[1-4]\"]\nhome = \"node1\""

    SlurmTerms "DI0128" "what is asked of SLURM"
    "`partition`, `account`, `qos`, `reservation`, `constraint`, `time_limit` and `directives` become lines `#SBATCH` of the script of each \
     worker, `prologue` lines of shell before it starts. What has a key of its own, or is how jobs are found again, is not for `directives`."
    => "[slurm]\npartition = \"cpu\"\ntime_limit = \"8h\"\ndirectives = [\"--exclusive\"]"

    WorkerProcess "DI0129" "how a worker runs"
    "Keys for the processes of workers contradict each other, or the target cannot follow them. On a host `cpu` is a number \
     of threads as `threads` is. `dask cuda worker` starts one process for each GPU, with a nanny; it refuses some \
     combinations of `rmm`, and ignores others. On Kubernetes a worker is one process in one Pod and speaks TCP."
    => "worker = { replicas = 4, threads = 2, memory = \"8Gi\", nanny = { spill = 0.7, terminate = false } }"

    PipInstall "DI0130" "packages that running workers install"
    "`pip_install` has Dask's plugin PipInstall run pip in each worker before it takes work. That is for prototypes, while it is not clear \
     which packages are needed: it takes time at each start, and without the index no worker starts. What stays belongs in `packages`. \
     A Python of `path` is never written, and one scheduler has all of its workers install the same."
    => "[environment.main]\npackages = [\"dask[distributed]==2026.8.0\"]\npip_install = [\"scikit-learn\"]"

    Container "DI0131" "the container of an environment"
    "`container` names an image by which scheduler and workers run on a host: with podman or docker by its name, with apptainer or \
     singularity also by the path of a file. `mounts` are absolute paths, `options` are those of `podman run`, `docker run` or `apptainer exec` \
     but for those by which a container is found again. Workers that are jobs of SLURM need a runtime without a daemon."
    => "[environment.main]\ncontainer = { image = \"ghcr.io/dask/dask:2026.8.0-py3.12\", runtime = \"podman\", mounts = [\"/data\"] }"

    OpenScheduler "DI0139" "a scheduler on the network without TLS"
    "Dask has no passwords. Without TLS, anyone who reaches a scheduler runs code on its workers, as the user of \
     the hosts. `[ssh]` and `[slurm]` speak TLS by default: each Dask cluster has an authority and certificates of its own, and \
     a client without them cannot connect. `tls = true` gives `[local]` the same. `ucx` has no TLS."
    => "[local]\ntls = true"

    Target "DI0201" "no target, or two targets"
    "A stack needs exactly one target: `[gke]` with project and location, `[kubernetes]` with an existing cluster, `[local]` for \
     processes on this machine, `[ssh]` for processes on other hosts, or `[slurm]` for jobs. With two of them nothing else in the \
     file is checked."

    SectionNeedsSection "DI0202" "a section needs another section"
    "Node pools belong to a GKE cluster and a GKE cluster to a project: `[node_pool.NAME]` needs \
     `[cluster]`, both and `[budget]` need `[gke]`, and `install = \"daemonset\"` or a check with `pool` needs node pools. \
     Add the missing section, or remove this one."

    UnknownPool "DI0203" "unknown node pool"
    "`pool` and `prefer_pool` name a `[node_pool.NAME]` section of this file, by its key. Fix the name or add \
     the section."
    => "[node_pool.a100]\nmachine_type = \"a2-highgpu-1g\"\n\n[dask_cluster.rapids]\nworker = { gpus = 1, pool = \"a100\" }   # the key of the section above"

    UnknownMachineType "DI0204" "unknown machine type"
    "The machine type is not in dask-infra's table of Compute Engine machine types. The table is complete for \
     families with GPUs, so an unknown name there is an error; elsewhere it is a warning, and Google decides."

    UnknownAccelerator "DI0205" "unknown GPU type"
    "GKE does not offer an accelerator type of this name. Names are GKE's own and start with the vendor: \
     `nvidia-tesla-t4`, `nvidia-l4`."

    AcceleratorDoesNotFit "DI0206" "GPUs do not fit the machine type"
    "A2, A3, A4, G2 and G4 machines have their GPUs built in: type and number follow from the machine type. \
     T4, V100, P100 and P4 are attached to N1 machines in fixed numbers, with an upper limit of vCPUs and \
     memory for each number. No other combination exists, and Google would refuse it after minutes."
    => "machine_type = \"n1-standard-2\"\naccelerator = \"nvidia-tesla-a100\"                     # wrong: A100s are built into A2 machines\naccelerator = { type = \"nvidia-tesla-t4\", count = 3 } # wrong: 1, 2 or 4\naccelerator = \"nvidia-tesla-t4\"                       # right"

    UnknownZone "DI0207" "unknown zone or region"
    "The name is not a Google Cloud zone (`us-central1-c`) or region (`us-central1`). A name very close to a \
     known one is an error; any other is a warning, because Google opens new zones."

    GpuNotSeenInZone "DI0208" "GPU type not known in the zone"
    "According to dask-infra's table, the zone does not offer this GPU type. The table may be out of date, so \
     this is a warning. A listed GPU type may still have no free capacity."
    => "[gke]\nlocation = \"us-east4-a\"             # DI0208: no A100 there, but in us-central1-c\n\n[node_pool.workers]\nmachine_type = \"a2-highgpu-1g\""

    NodesNotDivisible "DI0209" "nodes do not divide evenly among the zones"
    "GKE keeps the same number of nodes in each zone of a pool, and `nodes` is the total. Use one of the two \
     nearest multiples, or set `zones` of the pool."
    => "[gke]\nlocation = \"us-central1\"   # a region: three zones\n\n[node_pool.workers]\nnodes = 4                  # wrong: 3 or 6"

    Limits "DI0210" "minimum above maximum"
    "`min` must not be larger than `max`. `max = 0` never runs a node."

    SameName "DI0211" "two sections with one live name"
    "The live name is the key of the section, or `name` where it is given. Two sections of one kind cannot \
     share it: both would define the same object."

    BadName "DI0212" "not a valid name"
    "Names in GKE and Kubernetes are lower-case letters, digits and `-`, begin with a letter (in Kubernetes \
     also a digit), end with a letter or digit, and have a maximum length: 40 for clusters and node pools, \
     63 for namespaces, 53 for a DaskCluster, because the operator adds `-scheduler`."
    => "[dask_cluster.My_Cluster]   # wrong\n[dask_cluster.my-cluster]   # right"

    LongName "DI0213" "long DaskCluster name"
    "The operator adds `-default-worker-` and ten digits to the name. With more than 37 characters, worker \
     Deployments get names longer than 63 characters, and the names and labels of their Pods are truncated."

    BadLabel "DI0214" "not a valid label"
    "Kubernetes labels: an optional DNS prefix and `/`, then at most 63 letters, digits, `-`, `_`, `.`, \
     beginning and ending with a letter or digit; values likewise, or empty. Google Cloud labels: \
     lower-case letters, digits, `-` and `_`, at most 63, the key beginning with a letter."

    BadTaint "DI0215" "not a valid taint"
    "Key and value of a taint follow the rules of Kubernetes labels, and a pool may have each key and effect once."

    AutoUpgradeUnderChannel "DI0216" "auto_upgrade = false under a release channel"
    "In a release channel GKE upgrades the nodes itself and rejects pools that opt out. Remove the key, or set \
     `release_channel = \"none\"` on the cluster and upgrade by hand."

    DriverTwice "DI0217" "two ways to install the driver"
    "`driver = …` on a pool asks GKE to install the NVIDIA driver, `[gpu_driver] install = \"daemonset\"` \
     turns that off. Remove one of them."

    NoGpuThere "DI0218" "more GPUs than the pool's nodes have"
    "The Pod requests more GPUs than one node of its pool has. With `pool` it can never be scheduled, an \
     error. With `prefer_pool` it never runs in the preferred pool, a warning. Request fewer GPUs or name \
     another pool."

    MoreGpusThanPool "DI0219" "more GPUs than the whole pool has"
    "The Pods of the pool together request more GPUs than it has at its maximum size, or more at once than fit \
     on its nodes. The message says how many Pods can never be scheduled; they stay pending until the pool \
     grows: raise `nodes`, or lower `replicas`. It is a warning because the two numbers may be changed one \
     after the other (`scale` grows the live pool before the file), and because a plan that only deletes must \
     not be blocked."

    OperatorMissing "DI0220" "no Dask operator"
    "A DaskCluster does nothing until the Dask operator acts on it. A cluster that the stack creates has no \
     operator: add `[dask_operator] version = \"2026.3.0\"`. On an existing cluster it may already be \
     installed, so it is a warning."
    => "[dask_operator]\nversion = \"2026.3.0\""

    NamespaceNotDeclared "DI0221" "namespace not in the stack"
    "The namespace is neither `default` nor a `[namespace.NAME]` section. If it does not exist, apply fails \
     there. Add the section, or continue if it is created elsewhere."

    CheckNeedsGpu "DI0222" "a GPU check without GPUs"
    "The check runs on one GPU and its pool has none. Name a pool with GPUs."

    DriverImage "DI0223" "driver and node image do not match"
    "The driver's DaemonSet and `driver = \"latest\"` are for Container-Optimized OS (`COS_CONTAINERD`). On \
     Ubuntu nodes use `[gpu_driver] install = \"gke\"` with `driver = \"default\"`, or change the image."

    UnknownAddress "DI0224" "unknown address"
    "`depends_on` takes the addresses of sections of this file: `cluster`, `node_pool.NAME`, `gpu_driver`, \
     `dask_cluster.NAME`, `check.NAME`. A section cannot depend on itself."

    OperatorVersion "DI0225" "unknown operator version"
    "dask-infra includes the RBAC rules and custom resource definitions of the operator's release 2026.3.0. \
     Any other release is installed with those; they have not changed since 2025.7.0, but other releases may \
     differ."

    BadQuantity "DI0226" "not a Kubernetes quantity"
    "`cpu` and `memory` are Kubernetes quantities in quotes: a number, then nothing, `m`, or one of `Ki`, \
     `Mi`, `Gi`, `Ti`, `k`, `M`, `G`, `T`: `\"2\"`, `\"500m\"`, `\"8Gi\"`. `\"8GB\"` is not one; write \
     `\"8G\"` or `\"8Gi\"`."
    => "memory = \"8GB\"   # wrong\nmemory = \"8G\"    # right"

    OldCommand "DI0227" "command missing in newer images"
    "`dask-scheduler` and `dask-worker` were removed in distributed 2026.6.0, which RAPIDS images include from \
     26.08 on. The two-word forms `dask scheduler`, `dask worker` and `dask cuda worker` work in every image. \
     Omit `args` to get them."

    BadPartition "DI0228" "GPU partition does not exist"
    "A partition size (MIG) belongs to a GPU type: `1g.5gb` exists on an A100 with 40 GB, not on one with \
     80 GB, and T4, L4, V100 and P100 have none. The help lists the sizes of the type."

    OneGpuShared "DI0229" "more than one shared GPU per container"
    "A node with shared GPUs gives a container at most one of them: GKE rejects Pods that request more. Set \
     `gpus = 1`, or remove `sharing`."

    ZoneOutside "DI0230" "zone outside the cluster's region"
    "A GKE cluster lives in one region, and so do its nodes. `zones` of the cluster and of its pools are zones \
     of the region of `[gke] location`."

    BuiltIn "DI0231" "a built-in namespace"
    "`default`, `kube-…` and dask-infra's own namespace exist without the stack. With a section for one, \
     removing that section would delete the namespace and everything in it. Remove the section; `namespace = \
     \"…\"` of other sections works without it."

    NotThere "DI0232" "an external resource does not exist"
    "The section has `manage = false`: the resource is managed elsewhere, and the stack relies on it. It does \
     not exist under this name. Have its owner create it first, fix the name, or remove `manage = false` so \
     that the stack creates it."

    OthersDiffer "DI0233" "an external resource differs from the stack file"
    "The section has `manage = false` and a value that differs from the live one. Nothing is changed: its \
     owner decides. Set the live value in the section, or remove the key; keys that are not set are not \
     compared."

    NotUsable "DI0234" "an external resource cannot be used yet"
    "The resource exists, but it is being created, being deleted or broken. A stack does not wait for what is \
     managed elsewhere: ask its owner, and plan again when it is running."

    OthersTaint "DI0235" "an undeclared taint"
    "Nodes of an external pool have a taint that its section does not declare, so the stack's Pods do not \
     tolerate it and would stay pending. Declare the taint in the section: `taints = [{ key = …, effect = … \
     }]`; it is compared, never written."

    OthersZones "DI0236" "the live cluster has other zones"
    "`nodes` of a pool is the total of all zones, and the external cluster has its nodes in other zones than \
     the stack file sets or GKE would choose. Set `zones` of the cluster to the actual ones, or `zones` of the \
     pool."

    Twice "DI0237" "listed twice"
    "The list has an entry twice. It would count twice, for example where nodes are spread over zones. Keep \
     one of the two."

    OwnZone "DI0238" "the cluster's own zone is missing"
    "A cluster whose `location` is a zone has its control plane there, and GKE requires that zone in `zones`. \
     Add it, or use a region as `location`."

    NoSurge "DI0239" "an upgrade that cannot proceed"
    "With `max_surge = 0` and `max_unavailable = 0` no node may be added before another is removed, or removed \
     before another is added. GKE rejects that. Set one of them to 1."

    NotTrusted "DI0240" "the stack refers to something outside its repository"
    "A stack is untrusted input: it may come from somebody else, in a pull request. The files that it names \
     must be inside its repository (the nearest parent folder with `.git`; without one, the stack's own \
     folder), links included, and a kubeconfig in the repository must not run programs (`exec`, `cmd-path`). \
     If you trust its author, `--trust-stack` or DASK_INFRA_TRUST_STACK=1 allows both."

    FileNotRead "DI0241" "a named file cannot be read"
    "`file`, `definitions` and `pod` take paths relative to the folder of the stack file. The file does not \
     exist, is a folder, is not UTF-8 text, or cannot be read. URLs are not read: download the file, so that \
     what is applied does not change by itself."

    NotYaml "DI0242" "not YAML"
    "The text breaks YAML's own rules at the marked place. Usual causes: a tab or one space too few in front of a \
     line, a quote or bracket that is not closed, an unrendered template (`{{ … }}`)."

    YamlTrap "DI0243" "a value that YAML reads differently"
    "Without quotes `yes`, `no`, `on` and `off` are true or false, `0755` is the octal number 493 and `1_000` is \
     1000. dask-infra reads them as kubectl does, and warns. Write what you mean: `true`, `493`, or the text \
     in quotes."

    NotAnObject "DI0244" "not a Kubernetes object"
    "Each document of a manifest is an object with `apiVersion`, `kind` and `metadata.name`, or a `List` of them. \
     Kustomize overlays and Helm values are not: use the output of `kubectl kustomize` or `helm template`."

    UnknownKind "DI0245" "unknown kind"
    "This kind is unknown: it is not built into Kubernetes, is not Dask's, and the stack's manifests have no \
     CustomResourceDefinition for it. Fix `apiVersion` and `kind`, or add the file of the definition to \
     `file`, or to `definitions` if it is installed elsewhere."

    SameObject "DI0246" "one object defined twice"
    "Two places in the stack define the same object: kind, namespace and name are the same. Remove one of them."

    EmptyField "DI0247" "a field without a value"
    "`key:` without a value is `null`, which Kubernetes drops. The RAPIDS guide has such an `env:`. Remove the \
     line, or give it a value."

    NoSuchNodeLabel "DI0248" "no node has the label"
    "The Pod selects nodes by a label that no node pool of the stack sets. If the label is required, the Pod \
     can never be scheduled; if preferred, it silently runs anywhere, possibly on a more expensive GPU. Fix \
     the value on either side."

    IdleInstaller "DI0249" "a driver installer without nodes"
    "The DaemonSet that installs the NVIDIA driver selects only nodes on which GKE does not install it. GKE does so \
     by default, so the DaemonSet runs nowhere. Remove it, or set `[gpu_driver] install = \"daemonset\"`, \
     which adds the same installer and turns GKE's off."

    SaidTwice "DI0250" "set by both a key and `pod` or `api`"
    "A key of the section and its `pod` or `api` set the same field. Remove the key or the field. An `image` in `pod` overrides that of the cluster, with a warning: scheduler, workers and clients should \
     have the same."

    SecretInFile "DI0251" "a Secret with its value in a manifest"
    "Values of Secrets would appear in plans, in the record and in output. Create the Secret by other means \
     (`kubectl create secret`, External Secrets) and refer to it by name; or put an environment variable in \
     place of each value, which is read when the stack is applied."
    => "stringData: { password: \"env:HUB_PASSWORD\" }"

    DaskService "DI0252" "the Service does not select the scheduler"
    "The Dask operator uses the Service of a DaskCluster as written: it adds no selector, and looks up the \
     ports `tcp-comm` and `http-dashboard` by name. An error shows only when clients cannot connect and \
     scaling fails."

    ServersFields "DI0253" "fields that the API server writes"
    "`kubectl get -o yaml` prints fields that only the server writes: `uid`, `resourceVersion`, `managedFields`, \
     `status`. They are not applied. Remove them from the file."

    LiteralSecret "DI0254" "a secret in plain text"
    "Values in `env`, `args`, annotations or a chart's `values` appear in plans, in the cluster's objects and on terminals. A name such as `HF_TOKEN` or `DB_PASSWORD`, or the shape of a value (a private key, a token of a known service, \
     a URL with a password), says that it is a secret. Put it into a Kubernetes Secret (`kubectl create secret \
     generic NAME \
     --from-literal=KEY=…`, External Secrets) and refer to that, or have it read from the environment when the \
     stack is applied. Allow what is not secret, or may be public, with a reason."
    => "[dask_cluster.rapids]\nworker = { env = { HF_TOKEN = { secret = \"hugging-face\", key = \"token\" } } }\n\n\
        [allow.literal_secrets]\n\"dask_cluster.rapids.scheduler.env.DEMO_TOKEN\" = \"the demo's public token\""

    GpuOfImage "DI0255" "an image that may not run on its GPU"
    "CUDA 13 runs on GPUs of compute capability 7.5 and higher with driver 580 and newer, RAPIDS 24.02 and later on 7.0 and higher. The \
     versions are those that the image's tag names; an image whose tag says nothing is not checked. `[check.NAME] run = \"cudf\"` tries \
     the workers' image on a node before the workers are created."
    => "[node_pool.l4]\nmachine_type = \"g2-standard-8\"\ndriver = \"latest\"\n\n[dask_cluster.rapids]\nimage = \
        \"nvcr.io/nvidia/rapidsai/base:26.04-cuda13-py3.13\""

    OneWriter "DI0256" "a number with no single owner"
    "The number of workers has one owner. `replicas = 2`: the file; other changes are reverted. \
     `replicas = { min = 0, max = 8 }`: the Dask operator's autoscaler, on hosts an adapter; both set the number of the default group only. \
     `replicas = { start = 2 }`: notebooks (`KubeCluster.scale` and `adapt`), after the initial number."

    UnknownCluster "DI0257" "unknown Dask cluster"
    "`like` names a `[dask_cluster.NAME]` section of this file, by its key. Groups, jobs and autoscalers in manifests name \
     a DaskCluster of their own namespace: the operator looks nowhere else. Fix the name or add the section."

    ImageVersion "DI0258" "image without a version"
    "An image without a tag means `latest`, and each node pulls what that is on the day. Scheduler, workers and clients then \
     differ without an edit of the file. Write the tag, or a digest."
    => "[dask_cluster.rapids]\nimage = \"rapidsai/base\"                       # DI0258\nimage = \"rapidsai/base:26.04-cuda12-py3.13\"   # a version"

    ChildName "DI0259" "a name that the operator needs"
    "The operator creates objects of its own and derives their names: the default group `NAME-default`, \
     workers and their labels, the cluster of a job under the job's name. The name is used by one of those, or \
     is too long to derive them. Choose another `name`."

    OthersCluster "DI0260" "an external Dask cluster"
    "With `manage = false` a `[dask_cluster.NAME]` is only read: groups of this stack join it. What its \
     section sets is compared with what is live; groups without an `image` use its `image`, so one of \
     the two must be there. `ttl` and `idle_stop` have no effect on it: a cluster of others is theirs to delete."
    => "[dask_cluster.shared]\nmanage = false\nimage = \"nvcr.io/nvidia/rapidsai/base:26.04-cuda12-py3.13\"\n\n[dask_cluster.shared.group.mine]\nreplicas = 2"

    ImagesDiffer "DI0261" "images of different versions"
    "Scheduler, workers and clients exchange pickles of Dask and Python objects, which other versions may not \
     be able to read. The versions are taken from the tags of RAPIDS and Dask images. Use one image for the \
     whole cluster."

    SeveralProcesses "DI0262" "several worker processes in an autoscaled Pod"
    "The operator's autoscaler retires a worker by the name of its Pod. With `--nworkers 2`, and with `gpus = 2`, for which \
     `dask cuda worker` starts a process for each GPU, the processes have other names, so nothing is retired: Pods are deleted \
     while they compute. Use one process and more `--nthreads`, one GPU for each worker, or more workers."

    RestartsForEver "DI0263" "a job that never fails"
    "With `restart = \"on-failure\"` the program of a job is started again each time it fails, and the job is never \
     `Failed`: its workers keep their GPUs until it is deleted. Omit `restart` unless the program is known to \
     succeed eventually."

    NotChecked "DI0264" "kind whose fields are not checked"
    "GKE installs the definition of this kind in its clusters and publishes no file of it, so a mistake in its fields is \
     found by the server. The object is applied after the cluster, as others are. Add the definition to `definitions` \
     to have it checked before."

    JobTemplate "DI0265" "the cluster of a job"
    "A job has its own Dask cluster. It either copies one from the file (`like = \"NAME\"`) or describes its \
     own (`image`, `scheduler`, `worker`)."

    GkeSetsField "DI0266" "a field that GKE alone sets"
    "`api` of a cluster or a node pool takes fields of the GKE API. Some of them are answers only: states, addresses, \
     versions that run. Node pools are sections of their own and no field of the cluster."

    DiskDoesNotFit "DI0267" "a disk type that the machine type does not take"
    "N4, C4, C4A, C4D, G4, A3 Ultra, A4 and A4X machines take Hyperdisk only. Without `disk_type` GKE chooses a type that fits."
    => "[node_pool.cpu]\nmachine_type = \"n4-standard-4\"\ndisk_type = \"pd-balanced\"   # DI0267: remove it, or use \"hyperdisk-balanced\""

    NoFirstPool "DI0268" "no pool that the cluster can be created with"
    "GKE creates a cluster with one node pool, which has a node from the start. A pool with `nodes = 0`, one that is smaller at most \
     than its number of zones, and one whose nodes are queued for or started when they are needed (`queued`, `flex_start`) \
     cannot be it. A cluster that is there already may have its pools scaled to nothing."
    => "[node_pool.system]              # a small pool without GPUs\nmachine_type = \"e2-standard-2\"\nnodes = 1"

    KeysClash "DI0269" "keys that need or exclude each other"
    "Some keys of a cluster or node pool go only with others: GKE would refuse the request, or do something else than was \
     meant. A queued pool is scaled from 0 and uses no reservation; flex-start and Spot are two ways to buy the same machines."
    => "[node_pool.queue]\nmachine_type = \"a2-highgpu-1g\"\nnodes = { min = 0, max = 4 }\nqueued = true\nreservation = \"none\"      # without this line: DI0269"

    HelmMissing "DI0270" "helm cannot be run"
    "Charts are rendered by the `helm` program, version 3.8 or later, or 4: the one in `--helm PATH` or \
     DASK_INFRA_HELM, else the one on the PATH. A stack cannot choose it. Helm writes no release and needs no \
     extra permissions. Get it from https://helm.sh/docs/intro/install; it is one file. Where a machine that deletes \
     stacks has no `helm`, save the plan on another one: `plan --destroy --out FILE` there, `apply FILE` here."
    => "dask-infra --helm tools/helm plan"

    ChartNotFound "DI0271" "no such chart"
    "A chart is a folder with `Chart.yaml` or a `.tgz` file, relative to the folder of the file that names it; an `oci://` address; or a name in the repository given by `repo`. Names from `helm repo add` exist on one machine only and are not looked up. For a registry that needs a login, `helm registry login`; from a repository that needs one, fetch the \
     chart yourself (`helm pull`) and name its file."
    => "[helm_release.rapids]\nchart = \"dask\"\nrepo = \"https://helm.dask.org\"\nversion = \"2024.1.1\""

    ChartNotRendered "DI0272" "a chart that does not render"
    "`helm template` failed; its message follows, and the marked place is the value named in it, if any. `helm \
     show values` prints the values of a chart, `helm lint` checks the chart itself."

    ChartNotSteady "DI0273" "a chart that renders differently each time"
    "Charts are rendered twice. What differs is generated: a password, a certificate, the time. Each plan \
     would change it again. Set the value yourself, or create the Secret by other means and give the chart its \
     name."

    ChartVersion "DI0274" "a chart without its exact version"
    "What is applied must not change by itself, so a chart from a repository or registry needs its exact \
     version, not a range such as `^2`. `helm show chart` prints the latest version. The version of a folder \
     is the one in its `Chart.yaml`."

    OutsideNamespace "DI0275" "a chart's object outside its namespace"
    "The chart creates an object outside the release's namespace. Usually a value is missing; if it is \
     intended, `other_namespaces = [\"NAME\"]` allows it."

    HookHasNoPlace "DI0276" "a hook that a plan cannot run"
    "Helm runs this Job or Pod at each upgrade, or when a release is deleted. dask-infra does not upgrade or delete releases as a whole: objects are created, updated and deleted one by one, as planned. `hooks = \"once\"` runs it once, and again \
     when its own text changes; `hooks = \"none\"` leaves all hooks out. Most charts have a value that turns \
     the hook off."

    HookLeftOut "DI0277" "a chart's test hook is skipped"
    "Test hooks are run by `helm test` and are not applied. `hooks = \"none\"` skips all hooks without this \
     warning; `[check.NAME]` tests GPUs."

    JupyterPassword "DI0278" "a well-known password"
    "The Dask chart starts Jupyter with the password `dask` when none is set. Anyone who can reach it runs programs with the permissions of its account. Set the hash of your own (`python -c 'from jupyter_server.auth import passwd; \
     print(passwd())'`), or turn Jupyter off."
    => "[helm_release.rapids.values]\njupyter = { enabled = false }"

    TakenForUnset "DI0279" "a value that the chart treats as unset"
    "The Dask chart merges each of `additional_worker_groups` over `worker` with a function that treats 0, an \
     empty string and `false` as unset, so the group gets the value of `worker`. For a group without workers, \
     remove it from the list."

    StoredVersion "DI0280" "a definition lacks a stored version"
    "Objects of the kind may still be stored in a version that the new definition no longer has; the API \
     server refuses that, since they could no longer be read. Keep the version (`served: false` is enough), \
     migrate the objects, and remove it from `status.storedVersions`."
    => "kubectl get crd daskclusters.kubernetes.dask.org -o jsonpath='{.status.storedVersions}'"

    RemovedInDefinition "DI0281" "a definition with fewer fields than the live one"
    "The new definition no longer serves a version, or no longer has a field. The API server drops such fields \
     from objects on their next write, and clients of the version fail. An older release is the usual cause."

    ChartLooksUp "DI0282" "a chart that uses `lookup`"
    "`lookup` in a template queries the live cluster, but charts are rendered without it: `lookup` finds \
     nothing, as in `helm template`. Charts use it to keep a generated password, or to skip what already \
     exists. Set such values yourself."

    ChartNotAskedFor "DI0283" "chart keys without `source = \"chart\"`"
    "`chart`, `repo`, `values` and `values_files` of `[dask_operator]` configure its chart, which is used with \
     `source = \"chart\"` only."

    NotOnDemand "DI0284" "a machine type that is not sold on demand"
    "Compute Engine has these machines by reservation, as Spot, or by flex-start only: a pool that asks for them without one of \
     these keys stays without nodes."
    => "[node_pool.h100]\nmachine_type = \"a3-highgpu-1g\"\nspot = true"

    PublicScheduler "DI0285" "a scheduler on the internet"
    "Dask has no passwords: anyone who can reach a scheduler can run code on its workers, with the permissions \
     of their pods. A load balancer is therefore internal to the VPC network unless `public = true` is set, \
     which gives this warning. `dask-infra connect` goes through the API server and needs no load balancer."
    => "[dask_cluster.rapids]\nservice = \"LoadBalancer\"        # internal to the VPC network\n# dask-infra connect rapids      # from anywhere, with your own permissions"

    NotebookPassword "DI0286" "a notebook without a password"
    "Anyone who opens a notebook can run code in the cluster, so Jupyter always requires a password, and there \
     is no default. Its value is in a Secret of the notebook's namespace, created outside the stack; the stack \
     names the Secret and the key, never the value."
    => "kubectl create secret generic jupyter --from-literal=password=\"$(openssl rand -hex 16)\"\n\n[notebook.lab]\npassword = { secret = \"jupyter\", key = \"password\" }"

    NotebookImage "DI0287" "the image of a notebook"
    "A notebook needs an image with Jupyter in it. `like` names a Dask cluster of the file and uses the \
     notebook image that matches its workers' image, `rapidsai/notebooks` for `rapidsai/base`, so that \
     versions agree; `image` names any other."
    => "[notebook.lab]\nlike = \"rapids\"\npassword = { secret = \"jupyter\", key = \"password\" }"

    Autopilot "DI0288" "an Autopilot cluster"
    "GKE makes the nodes of an Autopilot cluster and installs the GPU driver, so its stack has no `[node_pool]` and no \
     `[gpu_driver]`; Pods choose machines by `accelerator`, `spot` and `compute_class`. It is regional: `location` is a region."
    => "[gke]\nproject = \"my-project\"\nlocation = \"us-central1\"\n\n[cluster]\nname = \"dask\"\nautopilot = true"

    BadDuration "DI0289" "not a duration"
    "A duration is a number with a unit: `7d`, `12h`, `30m`, `45s`, or several (`1h30m`). Nodes last for 7 days at most."

    PoolWaits "DI0290" "a waiting pool that departs from Google's guide"
    "GKE accepts queued and flex-start pools that work badly. Google's guide to the Dynamic Workload Scheduler recommends \
     `location_policy = \"any\"`, no automatic repair, GPU machines, at most 1,000 machines per request, another pool that \
     does not wait, and no upgrades while work runs. Settings that GKE rejects are an error of their own (DI0269)."
    => "[node_pool.queue]\nmachine_type = \"a2-highgpu-1g\"\nnodes = { min = 0, max = 4 }\nqueued = true\nreservation = \"none\"\nlocation_policy = \"any\"\nauto_repair = false"

    BadNetwork "DI0291" "not a network"
    "A network is an address and its prefix length: `10.0.0.0/8`. A single address is `192.0.2.7/32`."

    MachinesOfPool "DI0292" "machines given next to a node pool"
    "`pool` selects the nodes that Pods run on, and so do `accelerator`, `spot` and `compute_class`; of a pool's machines, \
     its own section decides these. Use one or the other. An Autopilot cluster has no pools to select."
    => "[dask_cluster.rapids]\nimage = \"nvcr.io/nvidia/rapidsai/base:26.04-cuda12-py3.13\"\nworker = { gpus = 1, accelerator = \"nvidia-l4\", spot = true }"

    NoQueue "DI0293" "a queue that does not exist"
    "`queue` names a `[queue.NAME]` of the stack. Queues need Kueue: `[kueue]` installs it, or declares with `manage = \
     false` that it is managed elsewhere. Objects of manifests name flavors, admission checks and ClusterQueues: of one that \
     the stack does not have, where it installs Kueue itself, a warning says that the queue stays inactive."
    => "[kueue]\nversion = \"0.15.0\"\n\n[queue.research]\npool = \"a100\"\ngpus = 8\n\n[dask_cluster.rapids]\nqueue = \"research\""

    BadQueue "DI0294" "an invalid queue"
    "A queue hands out the GPUs of `pool`, or of several `pools` with a number each. A quota larger than what the pools can \
     have only makes work wait for nodes that never come. `max_run_duration` and `retries` are for pools with `queued = \
     true`. Kueue before 0.15 does not serve the API version that dask-infra writes."

    CannotBeGang "DI0295" "work that cannot start together"
    "Work with `queue` starts either completely or not at all: Kueue counts its pods before it admits any. The number must \
     therefore be set in the file: Kueue deletes each pod that an autoscaler or a notebook adds, and the Dask operator \
     recreates it, endlessly. With the label `kueue.x-k8s.io/queue-name` alone, each pod is admitted separately and a \
     cluster starts in part. A request for queued nodes takes one kind of GPU pod. Kueue must also manage plain Pods: its \
     default configuration lacks `pod` in `integrations.frameworks`; the default values of `[kueue]` add it."
    => "[dask_cluster.rapids]\nqueue = \"research\"\nworker = { replicas = 8, gpus = 1, pool = \"a100\" }   # DI0295: { min = 0, max = 8 }"

    OlderKueue "DI0296" "a Kueue object in an old version"
    "The object uses kueue.x-k8s.io/v1beta1, as many guides do, and is written as v1beta2. Under server-side apply v1beta1 \
     never settles: Kueue's webhook converts `admissionChecks` of a ClusterQueue to `admissionChecksStrategy` at once. With \
     v1beta2 and the old field, the queue would have no check at all. The message names the fields that change."
    => "spec:\n  admissionChecksStrategy:\n    admissionChecks:\n    - name: dws-prov"

    AutopilotOwns "DI0297" "a key that Autopilot decides"
    "In an Autopilot cluster GKE decides this, and rejects or ignores other settings. Remove the key, or create a cluster \
     without `autopilot`."

    GpuOfPod "DI0298" "the GPU type of a Pod"
    "On Autopilot, a Pod with GPUs must say which type: GKE creates the node for it, and rejects Pods that do not say. \
     `accelerator` is the type, and needs `gpus`. On other clusters `accelerator` and `spot` choose among the existing \
     pools; if none matches, the Pod is never scheduled."
    => "[dask_cluster.rapids]\nimage = \"nvcr.io/nvidia/rapidsai/base:26.04-cuda12-py3.13\"\nworker = { gpus = 1, accelerator = \"nvidia-l4\" }"

    AutopilotRequests "DI0299" "requests that Autopilot fills in"
    "On Autopilot a Pod gets, and costs, what it requests. Where a Pod does not set `cpu` or `memory`, Autopilot fills in \
     its defaults: 0.5 vCPU and 2 GiB for a container without GPUs, too little for most workers."
    => "[dask_cluster.rapids]\nimage = \"ghcr.io/dask/dask:2026.3.0\"\nworker = { cpu = \"4\", memory = \"16Gi\" }"

    Cycle "DI0301" "dependency cycle"
    "Each of the named resources waits for the next, so none can be created. Remove one `depends_on` from the \
     cycle; dependencies that follow from references cannot form a cycle by themselves."

    NotOurs "DI0302" "already exists, owned by others"
    "A live resource of this name was not created by this stack. Nothing is adopted silently: choose another \
     name, delete it if it is not needed, or adopt it with `--allow take:ADDRESS`."
    => "error[DI0302]: Namespace team already exists and does not belong to this stack: its field manager is `kubectl-create`\n  kubectl get namespace team --show-managed-fields -o yaml    # who created it"

    Unreadable "DI0303" "live state cannot be read"
    "An API that the plan depends on did not respond or denied access. What cannot be read is not assumed to \
     be absent, so nothing is planned. Fix the access named in the message, or plan without live state with \
     `--offline`."
    => "dask-infra doctor            # what is missing\ndask-infra plan --offline    # what a first apply would do"

    UnknownEffect "DI0304" "the effect of a change is unknown"
    "The field differs, and dask-infra does not know what changing it does. Where GKE takes the change, the plan has it and asks for \
     approval: `--allow update:ADDRESS`. Else change it by other means, or replace the resource with `--replace ADDRESS`."

    Protected "DI0305" "protected"
    "The section has `protect = true`, but the plan would delete or replace what it created. Remove `protect` \
     first to allow that."
    => "[cluster]\nprotect = true   # remove this line, then plan again"

    ApprovalRequired "DI0306" "approval required"
    "Deleting, replacing and adopting need approval: type the address at the prompt, or give `--allow \
     VERB:ADDRESS`."
    => "dask-infra plan                                                # lists the approvals that it needs\ndask-infra apply --allow replace:dask_cluster.rapids"

    PlanFile "DI0307" "not a usable plan file"
    "The file is not a plan, was changed after it was written, or was written by another version of \
     dask-infra. Create it again with `dask-infra plan --out FILE`."

    Stale "DI0308" "the plan is stale"
    "Something that the plan relies on changed between plan and apply. Nothing was started. Plan again and \
     review what changed."
    => "dask-infra plan --out rapids.plan\ndask-infra apply rapids.plan     # stale if something changed in between: plan again"

    Schema "DI0309" "invalid under its schema"
    "The object that the section produces does not match the schema of its Kubernetes kind, so the API server \
     would reject it. The message names the field."

    Retarget "DI0310" "the stack exists at another location"
    "A GKE cluster with this stack's labels exists in the project under another name or location than the file says, \
     or the stack was last applied to another target from this folder. Applying would create a second one. \
     Restore the old name and location, or give `--retarget` if you want a second one. Only clusters of the \
     same project that you can list are found."

    VersionNotServed "DI0312" "an API version that is not served"
    "The object is live, but the API server serves another version than the one in the file: API versions are \
     retired over time, and a definition lists its served versions. Use the version named in the message and \
     check whether its fields are the same."
    => "kubectl api-versions                       # what this cluster serves\nkubectl explain horizontalpodautoscaler --api-version=autoscaling/v2"

    GoesAlong "DI0313" "a needed resource would be deleted with another"
    "The API server deletes a namespace with its contents, a definition with the objects of its kind, and an \
     owner with what it owns. The plan would delete one of these, and with it something that the stack still \
     needs, which the next apply would create again, empty. Keep what would be deleted, or remove both from \
     the file. To hand a namespace to another owner, keep its section with `manage = false`."
    => "[namespace.team]\nmanage = false   # it is kept, and no longer belongs to this stack"

    NeverFits "DI0321" "work that its queue can never start"
    "The work requests more than its queue's quota, so it would wait forever. A gang needs the quota of all of its pods at \
     once: scheduler, workers and, for a Dask job, the program. Raise the quota, request less, or split the workers: groups \
     are gangs of their own."

    RequestPods "DI0322" "the pods of a provisioning request"
    "A `[provisioning_request]` either names a `job` of the file or describes pods with `count` and the keys of pods. A job \
     has at most one request, since its pods name one."
    => "[provisioning_request.gpus]\njob = \"train\"\n\n[provisioning_request.others]\ncount = 8\ngpus = 1\npool = \"a100\""

    RequestPool "DI0323" "a request and its node pool"
    "GKE creates the nodes of a provisioning request in pools with `queued = true`, which need `reservation = \"none\"` and \
     autoscaling from 0. Pods of a queued pool without a request or a queue wait for nodes forever, as the autoscaler \
     creates none for them. Name such a pool with `pool`, or remove the request and use a pool without `queued`."
    => "[node_pool.a100]\nmachine_type = \"a2-highgpu-1g\"\nnodes = { min = 0, max = 8 }\nqueued = true\nreservation = \"none\"\n\n[provisioning_request.gpus]\ncount = 8\ngpus = 1\npool = \"a100\""

    RequestTooLarge "DI0324" "a request that can never be met"
    "All nodes of a request are created at once, in one zone, and within the limits of its pool: at most 1,000 machines, \
     and at most the maximum of the pool's `nodes`. A larger request fails. Split it, raise the maximum, or use machines \
     with more GPUs."

    RequestAffinity "DI0325" "pods of a request with anti-affinity"
    "The autoscaler ignores anti-affinity between pods when it creates the nodes of a request, so pods can be left without \
     a node. Remove the rule: pods that use all GPUs of a node are spread without it."

    RequestManifest "DI0326" "a ProvisioningRequest that does not work as written"
    "Google's guide to the Dynamic Workload Scheduler has manifests that no API server accepts today, or that have no \
     effect: `apiVersion: v10` of the PodTemplate is `v1`; `autoscaling.x-k8s.io/v1beta1` is `v1`; annotations of pods \
     begin with `autoscaling.x-k8s.io/`, not with `cluster-autoscaler.kubernetes.io/`; parameters are strings; GKE takes \
     one pod set and a run of at most 7 days."

    JobUnknown "DI0327" "no such job"
    "A `[provisioning_request]` names a `[job]` that is not in the file, or that is in another namespace: pods can only use \
     nodes of requests in their own namespace."

    LabelOfOperator "DI0328" "a label that the Dask operator sets"
    "The operator sets labels with `dask.org/` and `sidecar.istio.io/inject` itself and overwrites what the section says. \
     Use another key."

    QueuedWorkers "DI0329" "workers that nodes cannot be requested for"
    "With `capacity = \"queued\"` the nodes of all workers are requested at once, so their number must be set in the file \
     and be at least 1, and `queue` cannot be used as well. `max_run_duration` says how long such nodes last. To add \
     workers, add a `group` with its own `capacity`."
    => "[dask_cluster.rapids]\ncapacity = \"queued\"\nmax_run_duration = \"1d\"\nworker = { replicas = 8, gpus = 1, pool = \"a100\" }   # DI0329: { min = 0, max = 8 }"

    UserFiles "DI0330" "files that cannot be copied"
    "`files` takes files and folders with your own code, relative to the folder of the stack file. They are read when the stack is \
     loaded, and copied with the apply. A file that does not exist, cannot be read, or is a pipe or a device is an error, and so are two \
     files with one path. On Kubernetes the files are a ConfigMap, which has at most 1 MiB. For more, put the code into the image, \
     onto a PersistentVolumeClaim, or into a bucket that GKE mounts by Cloud Storage FUSE; packages from an index need no files. On \
     hosts the limit is 16 MiB. Data does not belong in `files`."
    => "[dask_cluster.rapids]\nfiles = [\"train.py\", \"lib/\"]"

    CapacityBeside "DI0331" "a key that `capacity` replaces"
    "`capacity` lists the ways to buy the machines of a pool, and each way sets what it needs. `spot`, `flex_start` and \
     `queued` cannot be set on such a pool, and `reservation` only names the reservation for the way \"reservation\"."
    => "[node_pool.gpu]\nmachine_type = \"a2-highgpu-1g\"\nnodes = 2\nreservation = { name = \"r\" }\ncapacity = [\"reservation\", \"on-demand\", \"spot\"]"

    CapacityOrder "DI0332" "a way of `capacity` that is never tried"
    "Ways are tried in the order of the list, each once. With \"flex-start\" and \"queued\" the pool is created without \
     nodes and waits for machines, so creating it always succeeds, and a way after it that does not wait is never tried."
    => "capacity = [\"on-demand\", \"spot\", \"flex-start\"]"

    CapacityNeeds "DI0333" "a way of `capacity` that lacks something"
    "The way \"reservation\" needs the name of the reservation. And a shortage of machines shows only when nodes are \
     created: in a pool that starts without nodes, the first way would always succeed."
    => "[node_pool.gpu]\nmachine_type = \"a2-highgpu-1g\"\nnodes = { min = 1, max = 4 }   # `min = 0` tries nothing\ncapacity = [\"on-demand\", \"spot\"]"

    NetworkPolicyIdle "DI0334" "a network policy that does not do what it says"
    "`network_policy` of a Dask cluster becomes a NetworkPolicy. Kubernetes keeps it, but only a network that enforces such policies \
     follows it: on GKE with `dataplane_v2 = true` or `network_policy = true` in `[cluster]`, and on Autopilot. And it admits no clients from outside \
     the Kubernetes cluster unless `from` names their addresses, so a load balancer or a port of the nodes leads nowhere."
    => "[cluster]\nname = \"rapids\"\ndataplane_v2 = true\n\n[dask_cluster.rapids]\nnetwork_policy = { from = [{ ipBlock = { cidr = \"10.0.0.0/8\" } }] }\nservice = \"LoadBalancer\""

    NodeAccount "DI0335" "pods that are the node's Google account"
    "Whoever reaches a Dask scheduler runs code in its pods. On nodes without Workload Identity the metadata server gives these pods tokens of the \
     node's service account, which by default may do much in the project. `workload_identity = true` in `[cluster]` makes pods accounts \
     of their own, to which you grant what the work needs. On a cluster that runs, each pool is recreated for it, or a pool names a \
     `service_account` with few permissions."
    => "[cluster]\nname = \"rapids\"\nworkload_identity = true"

    NoNodeForPod "DI0336" "a Pod that no node takes"
    "No node that the stack's pools can have takes the Pod, by the rules of kube-scheduler, so it would wait forever. The message \
     shows what the Pod asks for and what a new node of the pool has: GKE keeps a part of each machine for itself, and its own Pods \
     on every node take some more. GKE taints nodes with GPUs, so they take only Pods that ask for some. It is a warning for \
     Pods of manifests and charts, which others may change before they are scheduled, for jobs, which may have run already, where only \
     GKE's taint of GPU nodes is in the way, which a live pool may lack, and where only a label is missing that somebody may set by hand. \
     Where the cluster has nodes that the file does not describe, only Pods that name a pool of the file are judged. Pods in a queue of \
     the stack are judged with each of its flavors, those in other queues are not."
    => "[node_pool.t4]\nmachine_type = \"n1-standard-8\"   # an n1-standard-4 leaves about 3.5 CPUs\naccelerator = \"nvidia-tesla-t4\"\nnodes = 1\n\n[dask_cluster.c.worker]\ngpus = 1\ncpu = \"4\"\npool = \"t4\""

    PodNearLimit "DI0337" "a Pod that may be too large"
    "The Pod asks for about as much as a new node of its pool has, or several Pods for about as much as all nodes of the pool. What GKE keeps for itself and what its own Pods take differs between \
     releases by about 1 %, and more where network policies are on, so only a node that runs tells. Ask for a little less."

    PoolTooSmall "DI0338" "more Pods than the pool's nodes take"
    "The Pods that no other pool takes need more nodes than the pool can have, by the CPU, memory, disk and ports that they ask for: each Pod is put on \
     the first node that takes it, the largest first. The message says how many stay pending until the pool grows: raise `nodes`, take a \
     larger machine type, or lower `replicas`. Jobs and checks end and are not counted. It is a warning for the reasons of DI0219."

    NoDriverPath "DI0339" "a container that may not find the NVIDIA driver"
    "GKE mounts the libraries of its NVIDIA driver at /usr/local/nvidia/lib64, and the loader in the container looks there only if \
     `LD_LIBRARY_PATH` says so. Images of CUDA up to 12.8.0 set the path; later ones do not, and `import cudf` fails in them although the \
     Pod has a GPU. Pods of sections get the path. With NVIDIA's GPU Operator, `[gpu_driver] install = \"none\"` says that none is needed."
    => "env:\n  - { name: LD_LIBRARY_PATH, value: /usr/local/nvidia/lib64 }"

    NothingToStop "DI0340" "nothing to stop"
    "`stop` deletes what costs money and can be recreated automatically: Dask clusters, their groups and autoscalers, \
     running Dask jobs, notebooks, Pods, and the nodes of node pools. The address names none of these. What the others \
     depend on stays: the GKE cluster, namespaces, the operator, checks and manifests."
    => "dask-infra stop dask_cluster.rapids\ndask-infra stop node_pool.a100"

    NotStopped "DI0341" "nothing to start"
    "`start` recreates what `stop` deleted, and Dask clusters that `ttl`, `idle_stop` or `idle_timeout` deleted. The record in the \
     cluster has nothing of that kind under this address. If it is missing for another reason, `apply` creates it."

    TtlValue "DI0342" "an invalid ttl or idle_stop"
    "`ttl` is how long a Dask cluster lives after it is created, or after its queue admits it, or a stack after it is created or \
     started, and `idle_stop` how long without work: `45m`, `8h`, `2d`, `1h 30m`. The minimum is 10 minutes, as it is checked every five, and the maximum 365 days."
    => "ttl = \"8h\"\nidle_stop = \"30m\""

    TtlProtected "DI0343" "ttl or idle_stop together with protect"
    "`ttl` and `idle_stop` delete the Dask cluster when its time is over, and `protect = true` says that it is never deleted. \
     Remove one of the two."

    TtlName "DI0344" "a name too long for its ttl or idle_stop"
    "The CronJobs of `ttl` and `idle_stop` have the name of their Dask cluster with `-ttl` or `-idle` appended, and Kubernetes \
     limits that to 52 characters. Give the Dask cluster a `name` of at most 48 or 47 characters."

    TtlRemake "DI0345" "ttl together with remake"
    "A Dask cluster whose `ttl` is over stays deleted until it is started, whereas `idle_timeout = { …, remake = true }` \
     has the next apply recreate it. Remove one of the two."

    TtlWaits "DI0346" "a ttl that counts while workers wait for machines"
    "Flex-start machines come when Google has some, which may take days, and the `ttl` of a Dask cluster without `queue` \
     counts from its creation: the cluster may be deleted before its workers have run. In a queue it counts from the moment \
     the queue admits it, and the time of `idle_stop` begins with the first worker."
    => "ttl = \"2d\""

    IdleTwice "DI0347" "idle_stop together with idle_timeout"
    "Both delete a Dask cluster that has no work: `idle_timeout` has the Dask operator do it, `idle_stop` a CronJob of the stack, \
     which also knows a cluster that waits for its workers. One is enough. Remove `idle_timeout`, unless the cluster is to be \
     recreated by the next apply (`remake = true`)."
    => "idle_stop = \"30m\""

    OverBudget "DI0348" "the stack costs more than its budget"
    "`[budget]` of the stack file, or `--budget` of the command, limits what the stack may cost: `max_per_hour` with autoscaled \
     pools at their maximum, `idle_per_day` with them at their minimum. The plan exceeds a limit, or contains something without a \
     known price, which the message names. Nothing was done. `--allow budget` exceeds the budget for one apply. It is a warning where \
     the plan changes nothing, or where the stack costs no more after it than now."
    => "[budget]\nmax_per_hour = 20\nidle_per_day = 8"

    CheckProgram "DI0349" "the program of a check"
    "`run` of a check may be the words of a program. As a client it runs once the Dask cluster is ready; with `as = \"worker\"` it runs \
     before the workers are created, in a Pod with their image, resources and nodes, so `pool` and the other keys of the place are \
     those of the workers. On hosts it is a program of Python and a client. `resources` are what each task of a client takes: a worker or a \
     group of its Dask cluster declares all of them."
    => "[check.torch]\nrun = [\"python\", \"-c\", \"import torch; assert torch.cuda.is_available()\"]\nas = \"worker\""

    CodeKeys "DI0350" "a key for code that cannot work"
    "`files` are the code of processes that the stack starts: not of a Dask cluster with `manage = false`, and not of a built-in check. They are the \
     first place of `PYTHONPATH`; a value of the section comes after it, so it must be text. `working_dir` is an absolute path, or one below `files`."
    => "[dask_job.train]\nlike = \"rapids\"\nfiles = [\"train.py\"]\nworking_dir = \"/data\"\nargs = [\"python\", \"/opt/dask-infra/files/train.py\"]"

    GpuPoolFirst "DI0351" "the first pool has GPUs"
    "GKE sets its `nvidia.com/gpu` taint on GPU pools only if the cluster already has a pool without GPUs. In \
     a cluster of GPU pools alone, system pods run on GPU nodes. A small pool without GPUs avoids it."

    UnknownSize "DI0352" "the live size of a pool is unknown"
    "GKE does not report a node pool's number of nodes, and neither its instance groups nor the Node objects \
     could be read. No change of size is planned. Grant read access to Compute Engine instance groups."

    CheckAmongWorkers "DI0353" "a check needs a GPU that workers use"
    "The check runs on a pool where the workers of a Dask cluster keep running, and the pool at its maximum has no room for the check beside \
     all of them, or their number is not known from the file. \
     The check waits for a free GPU until its deadline. Allow the pool one more node, scale the workers down first, or give \
     `cuda-vectoradd` or `cudf` `as = \"client\"` in place of `pool`: each worker then computes on the GPU that it has."

    PoolInTrouble "DI0354" "a node pool has too few nodes"
    "GKE could not create all nodes of the pool, usually for lack of GPUs in the zone or of quota, and keeps \
     trying. Wait, choose another zone or machine type, or replace the pool with `--replace ADDRESS`."

    UnusedApproval "DI0355" "an unused --allow"
    "`--allow` names an address that the plan neither deletes nor replaces, so it does nothing. Check for a \
     typo; the plan lists the approvals that it needs. It is not an error: a pipeline may give the same \
     `--allow` again after the change is done."

    OperatorStays "DI0356" "the operator is not deleted"
    "The plan would delete the Dask operator, but Dask clusters, jobs or worker groups outside this stack need \
     it to work and to be deleted. It is kept with its definitions until those are deleted."

    ForeignUnlisted "DI0357" "resources outside this stack could not be listed"
    "A namespace or a cluster would be deleted with everything in it, and a kind of object in it cannot be \
     listed: a permission is missing, or the API server of the kind does not respond. Objects of that kind \
     outside this stack are not named, so deleting them needs its own approval, `--allow \
     delete:others.unseen`. Check them by other means before you approve."

    PlaceUnknown "DI0358" "other locations of the stack are unknown"
    "There is no cluster at the stack's target, and the project's other clusters cannot be listed, so the \
     stack may already exist elsewhere. Grant `container.clusters.list`, try again when GKE lists all zones, \
     or give `--retarget` if the name and location in the file are right."

    RecordLost "DI0359" "the record is lost"
    "Objects of this stack are live, but its record in the namespace `dask-infra` is missing. The plan uses \
     live state, so it is right about what it reads: resources removed from the file are found by their label \
     in every kind and namespace. What only the record knew is lost: passes of checks, which jobs have run, \
     labels and taints set on node pools. The next apply writes a new record. Kinds that cannot be listed are \
     named: resources of those kinds that were removed from the file remain until somebody with permission \
     plans, or deletes them by hand."

    StartHasNoEffect "DI0361" "a start that has no effect"
    "`replicas = { start = … }` sets the number of workers at creation. From then on the number belongs to \
     notebooks, and changing `start` has no effect. Scale in the notebook, or set `replicas = 4` to return the \
     number to the file."

    TwoWriters "DI0362" "one number with two owners"
    "The file owns the number of workers, but an autoscaler outside this stack sets it, too: \
     `KubeCluster.adapt` in a notebook creates one. Each apply reverts the number and the autoscaler changes \
     it again. Delete the autoscaler, or leave the number to it with `replicas = { start = 2 }`."

    IdleGone "DI0363" "a cluster deleted when idle"
    "A Dask cluster that has been idle for so long is deleted, with its groups and autoscaler: with `idle_timeout` by the \
     operator, with `idle_stop` by a CronJob in the cluster. That is not drift, and apply does not recreate it by itself. \
     `dask-infra start ADDRESS` recreates it, and so do `--replace ADDRESS` and a change of the section; with `idle_timeout = { \
     seconds = 3600, remake = true }` every apply does. If `idle_stop` is added to an existing Dask cluster, it counts from the \
     moment when its work ended, so the cluster may be deleted within minutes."

    JobEnded "DI0364" "a job that does not run again by itself"
    "A job runs once. It failed, or it ran and was deleted since. Apply runs it again only if its section \
     changes or with `--replace ADDRESS`."

    FirstPool "DI0365" "the cluster's first pool is not as the file says at first"
    "GKE creates a cluster with one node pool, which has a node from the start. dask-infra takes a pool without GPUs and with \
     nodes; where there is none, one that is autoscaled from 0 begins with one node in each zone, which the autoscaler \
     removes again when nothing runs on it. Spot machines as the first pool can be missing when the cluster is created."

    AutopilotNodes "DI0366" "nodes of an Autopilot cluster"
    "An Autopilot cluster begins without nodes. GKE makes them for Pods that wait, within minutes, and takes them away when \
     nothing runs on them. It raises requests that are below the minimum of the machines, and bills what Pods request as long as \
     they run, beside the cluster's fee. What it raised in an object is shown as a difference by later plans: write at least the \
     minimum."

    GoneButThere "DI0367" "workers on a host that the stack does not look at"
    "`gone` of `[ssh]` says that a host no longer exists: nothing is looked for there, and what the stack had on it is \
     given up. But the scheduler of a Dask cluster still has workers there. They go on computing until their scheduler ends, and what \
     the stack keeps on the host stays. If the host exists, remove it from `gone` before an apply: that apply empties it. If you have already \
     applied, add it to `hosts`, apply, remove it and apply again. It can take a scheduler some minutes to notice that a host has lost \
     its power or its network."
    => "[ssh]\nhosts = [\"node1\"]   # gpu1 left it, and is emptied: it is not in `gone`"

    HostMoved "DI0368" "the name of a host leads elsewhere"
    "The record knows another address, user or port for a host of `[ssh]` than the stack file, and nothing of the stack is where the name \
     leads now. If it is another machine, what the stack has on the first is no longer looked at: workers there go on until their \
     scheduler ends, and files stay. Give the new machine a name of its own and remove the old name from `hosts`: the next apply empties \
     the old machine. If the old one no longer exists, nothing is to be done."
    => "[ssh]\nhosts = [\"node1\", { name = \"gpu1b\", address = \"10.0.0.8\" }]   # gpu1, at 10.0.0.7, is emptied"

    NoWorkersLeft "DI0369" "a Dask cluster without workers"
    "The change ends the last workers of a Dask cluster, so nobody takes over what they hold. Results in their memory are computed \
     again once there are workers, as long as a client waits for them; data that a client has scattered is lost. Save it first, or leave \
     a worker until the work is done."

    DeletedUnread "DI0370" "the contents of the cluster are unknown"
    "The GKE cluster is running, but its Kubernetes API server does not respond: the authorized networks \
     exclude this machine, or the control plane is broken. `destroy --allow delete:unseen` deletes the cluster \
     anyway, with resources outside this stack and running work that cannot be listed. Load balancers and \
     disks created by its controllers may remain and cost money: check the project afterwards."

    OutOfReach "DI0371" "resources on GKE that the stack no longer reads"
    "The record names a GKE cluster or node pools, and the stack file has `[kubernetes]` in place of `[gke]`: such a stack sends no \
     requests to GKE. They remain in the record until a file with `[gke]` finds them. To delete them, go back to `[gke]` and run \
     `destroy`; node pools are also deleted when their sections are removed. To keep them without this stack, go back to `[gke]`, set \
     `manage = false` in their sections, apply, and then change the target: the plan shows what removing the stack's labels from a node \
     pool does."
    => "[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n\n[cluster]\nname = \"c\"\nmanage = false      # apply; then use [kubernetes]"

    CertificatesEnd "DI0372" "certificates that end soon"
    "The certificates of a Dask cluster on hosts end within two months, or their files are gone and `protect` keeps the Dask cluster. \
     Dask loads certificates when it starts, so renewing them is a replacement: the scheduler and all workers are started again, and what \
     they hold in memory is lost. Choose a moment without work. When the certificates have ended, new clients and workers cannot connect, \
     and the plan replaces the Dask cluster."
    => "dask-infra apply --replace dask_cluster.work --allow replace:dask_cluster.work"

    Unready "DI0380" "a resource is not ready"
    "It would not be changed, but it is not ready. If the record says that it has not been ready since an \
     apply created or changed it, the next apply waits for it and exits with 6 when it is not ready in time. \
     Apply does not wait for what was ready before, as it cannot fix it. `dask-infra why ADDRESS` shows what \
     is wrong."

    IdlePool "DI0381" "nodes that outlive their Dask cluster"
    "With `idle_timeout`, `idle_stop` or `ttl` a Dask cluster is deleted, but not its nodes: a pool of fixed size, or with a \
     minimum above 0, keeps costing. Bounds, `nodes = { min = 0, max = 4 }`, let GKE's autoscaler remove idle nodes."

    Impaired "DI0382" "a resource that works, with a problem"
    "The server reports a problem with the resource, but it still works: the control plane of a DEGRADED cluster responds. \
     Plan and apply continue. Fix what the message says soon: a node service account without its role writes no logs, and \
     an expired certificate ends access."
    => "gcloud container clusters describe NAME --format 'value(status, conditions)'"

    QueueInUse "DI0383" "a queue in use"
    "Work from outside this stack waits or runs in a queue that the plan deletes. Waiting work would wait forever, and \
     Kueue keeps the queue until running work has ended. Each piece of work is named and needs its own approval. For the \
     same reason `--replace` of a queue is refused: Kueue would keep it, and the apply would wait until its deadline. Edits \
     of a queue are made in place."
    => "kubectl get workloads --all-namespaces    # whose it is\ndask-infra apply --allow delete:ADDRESS"

    RequestsWait "DI0384" "requests that would wait forever for a deleted pool"
    "A ProvisioningRequest that GKE has accepted waits for machines of a node pool. When the pool is deleted or replaced, \
     GKE does not fail the request: it stays accepted, and whatever waits for it waits forever. Delete the request first \
     (with Kueue: the work that it belongs to, as Kueue recreates the request), and request again when the new pool exists."
    => "kubectl get provisioningrequests --all-namespaces\nkubectl -n NAMESPACE delete provisioningrequest NAME"

    Stopped "DI0385" "a section that is stopped"
    "`dask-infra stop` deleted it, and the record in the cluster says who and when. The stack file still has it, and plans \
     leave it stopped: that is not drift, and edits of its section take effect when it is started. `dask-infra start \
     ADDRESS` recreates it, `apply --start` everything that is stopped."
    => "dask-infra start dask_cluster.rapids"

    CapacityFallback "DI0386" "a pool is not on its first way"
    "The first way of `capacity` had no machines when the pool was created, so they are bought in another way, perhaps at \
     another price. It stays so, as another way means another pool with new nodes. `apply --retry-capacity` replaces the \
     pool and tries the ways from the first again; if no earlier way has machines, it may end up on this one again, or on a \
     later one."
    => "dask-infra apply --retry-capacity --allow replace:node_pool.gpu"

    RequestEnded "DI0387" "a request that is not repeated automatically"
    "A provisioning request is created once. It failed, its nodes were not used within 10 minutes or were removed, or it \
     was deleted. Apply requests the nodes again only if its section or its job changes, or with `--replace ADDRESS`: \
     unused nodes cost money."
    => "dask-infra status provisioning_request.gpus\ndask-infra apply --replace provisioning_request.gpus --allow replace:provisioning_request.gpus"

    CapacityNext "DI0388" "a pool is still being created by one of its ways"
    "An apply ended while it tried the ways of `capacity`, and GKE is still creating the pool. The next apply waits for it. \
     If there are no machines, it deletes the pool and tries the remaining ways, without approval, as nothing ever ran on \
     it."

    TtlGone "DI0389" "a Dask cluster with a ttl"
    "With `ttl`, a CronJob in the cluster deletes a Dask cluster, with its groups and autoscaler, that long after it was \
     created or admitted by its queue. That is not drift, and apply does not recreate it. `dask-infra start ADDRESS` \
     recreates it, and so does a change to its section. If `ttl` is added to an existing Dask cluster, it counts from the \
     same moment, so the cluster may be deleted within minutes."

    SecretOfOthers "DI0390" "a Secret that must be created"
    "A container that the plan creates takes a variable from a Kubernetes Secret that is not in the stack, and \
     does not start until the Secret has that key. If the same apply creates the cluster or the namespace, \
     create the Secret as soon as the namespace exists; apply waits for it."
    => "kubectl -n default create secret generic jupyter --from-literal=password=\"$(cat password)\""

    PricesUnread "DI0391" "prices cannot be read"
    "`--prices live` and `--prices billingAccounts/ID` read prices of Google's Cloud Billing API. The message says why that failed; nothing \
     was planned. List prices need only a project in which the API is enabled; those of a billing account also need the permission \
     `billing.billingAccountPrices.list` on it. Prices are kept for a week in `~/.cache/dask-infra` (`$XDG_CACHE_HOME`). It is a warning \
     where the network failed and older prices are kept: the cost is then counted with those of the day that the message names. A \
     sandbox has no prices, and `--offline` reads none."
    => "gcloud services enable cloudbilling.googleapis.com\ndask-infra plan --prices live"

    StreamedImages "DI0392" "image streaming without an image that GKE streams"
    "With `image_streaming`, a container starts while its image is still being pulled, but GKE streams images of Artifact Registry only, \
     from a repository in the region of the nodes or in its multi-region (`us`, `europe`, `asia`). None of the stack's Pods on the pool \
     has such an image: nodes pull images of nvcr.io, docker.io and other regions whole, and image streaming has no effect. A remote repository of Artifact Registry in the region of the cluster pulls them through: \
     the message has the command that creates it, and the name of the image behind it. Otherwise turn image streaming off. \
     Nodes need the role `roles/artifactregistry.reader` on the repository, and the project the Container File System API."
    => "gcloud services enable containerfilesystem.googleapis.com\ngcloud artifacts repositories create nvcr-io --location=us-central1 --repository-format=docker \\\n    --mode=remote-repository --remote-docker-repo=https://nvcr.io"

    NodesLast "DI0394" "nodes that go after a time"
    "Nodes that are requested all at once last for 7 days at most, or as long as `max_run_duration` says. Then GKE takes them away, \
     and the workers on them are lost; apply does not ask again by itself. Another number of workers, or another text of them, is \
     another request: it is made while the old workers run, so the pool needs room for both, or the old ones go first."
    => "dask-infra status dask_cluster.rapids      # when the nodes go\ndask-infra apply --replace dask_cluster.rapids --allow replace:dask_cluster.rapids"

    ClaimSize "DI0396" "a claim whose size cannot change"
    "A PersistentVolumeClaim asks for less storage than its volume has, or for another size before it has a volume. Kubernetes \
     makes volumes larger, never smaller, and changes the size of bound claims only: it would reject the change in the middle \
     of an apply. Keep the size, or create a claim of another name and copy the data. A claim without a volume can be replaced."

    SpotScheduler "DI0397" "a scheduler on Spot machines"
    "Google takes Spot machines away at any time, with a notice of 30 seconds. A scheduler has the tasks and the places of all results in \
     memory only: when it goes, everything that its workers have computed is lost, and clients get an error. Workers may be on Spot \
     machines: what a lost worker had is computed again. Select a pool with on-demand machines by `pool` of the scheduler."
    => "[dask_cluster.rapids]\nscheduler = { pool = \"system\" }                        # on demand\nworker = { pool = \"spot\", replicas = { min = 0, max = 8 } }"

    Refused "DI0401" "a request was rejected as invalid"
    "An API rejected the request as invalid; its message follows. The cause is often a limit of the project or \
     a version that the plan cannot see. Change the section named in the message, then apply again."

    OperationFailed "DI0402" "a GKE operation failed"
    "GKE accepted the request but could not complete it: no capacity in the zone, no quota, or an error of its \
     own. A pool that could not be created remains in an error state and is planned again. Fix the cause, then \
     apply again."

    NotReady "DI0403" "it will not become ready"
    "What was created reports a state that does not recover by itself: an image that cannot be pulled, a \
     container that crashes, a failed pool. Apply stopped waiting for it. Fix the cause, then apply again."

    CheckFailed "DI0404" "a check failed"
    "The check ran, but its log lacks the line that marks a pass; the end of the log is shown. What depends on \
     the check was not created. Apply again to run it again."

    MadeByOthers "DI0405" "created by somebody else in the meantime"
    "A resource of this name did not exist when the plan was made, but exists now, and this stack did not \
     create it. It was not changed. Choose another name or delete it, then plan again."

    ChangedByOthers "DI0406" "changed or owned by somebody else"
    "Another field manager owns a field that the plan sets, or the object is not the one that was planned. It \
     was not overwritten. Plan again to see what is live."

    RecordNotWritten "DI0407" "the record could not be written"
    "Before its first write, apply records in the cluster what it is about to do. That failed, so nothing else \
     was written, except the cluster itself if this apply created it. Grant write access to ConfigMaps of the \
     namespace `dask-infra`, or fix what the message names."

    Missing "DI0408" "something that the plan relies on is missing"
    "It existed when the plan was made, or an earlier step should have created it. Plan again."

    WrongPlan "DI0409" "the plan cannot be applied"
    "A change waits for itself or for a kind that this version does not know. Create the plan again with this \
     version of dask-infra."

    Locked "DI0411" "another apply of the stack is running"
    "Two applies of one stack at the same time would undo each other's work, so an apply holds a lock beside the stack's \
     record while it runs. The message says who holds it and since when. Wait until it finishes. The lock of a \
     killed apply does not block: it is taken over at once on the same machine, and within seconds from \
     another. `--force-unlock` breaks the lock of an apply that is no longer running. A plan that is made meanwhile shows what that apply has not done \
     yet, and says so."

    Interrupted "DI0412" "interrupted before the first change"
    "A signal (Ctrl-C or SIGTERM) arrived while apply waited for the stack's lock or planned again under it. \
     No change was started, nothing was written but the lock, and the lock was released: there is nothing to \
     clean up. Run the command again to apply."

    NoNode "DI0413" "no node comes for a pod"
    "For two minutes the cluster's autoscaler added no node for a pod: GKE has no machines or no quota for one, a new \
     node of its pool would not take it, or the pool has its largest size. The message has GKE's own words, and what \
     to change. Apply waits for ten minutes where the pod names no pool, and for pods from before it. Nothing is \
     undone: when a node comes later, the pod runs."
    => "dask-infra why dask_cluster.rapids\ndask-infra apply                        # again, when the cause is fixed"

    DaskConfig "DI0420" "Dask's configuration"
    "A key of `config` cannot be one of Dask's configuration, or a value is set twice. Keys are lowercase words with `-` between them; a \
     `.` leads into a table, and nested tables mean the same. Processes get each value as a variable, `DASK_` and the key in upper case \
     with `__` for the dots; `env` of a scheduler, of workers or of a group overrides it there. A table with other keys, such as \
     `pre-spawn-environ`, is one value."
    => "[dask_cluster.rapids]\nconfig = { \"distributed.adaptive.target-duration\" = \"10s\", \"distributed.scheduler.work-stealing\" = false }"

    NoAnswerThere "DI0421" "nothing to connect to yet"
    "The target of `connect` or `logs` does not exist or is not ready yet. The message says why: not applied, \
     no pod, or a pending pod and its reason. `dask-infra status` shows the rest of the stack."
    => "dask-infra status\ndask-infra apply"

    WhichDoor "DI0422" "no such target to connect to"
    "Dask clusters, their jobs while they run, notebooks, and Services with the ports of a scheduler or of Jupyter can be \
     connected to. If a stack has several of them, give the address."
    => "dask-infra connect dask_cluster.rapids\ndask-infra connect rapids               # any unique ending works"

    NothingReal "DI0423" "the sandbox runs no programs"
    "The sandbox imitates GKE and Kubernetes: its pods have a state but run no programs, so there is nothing \
     to connect to. A sandbox served in front of a real API server has real pods; without `--sandbox`, \
     `connect` uses the cloud."
    => "dask-infra sandbox serve --kubernetes lab.kubeconfig     # a real API server on this machine\neval \"$(dask-infra sandbox env)\"; dask-infra connect"

    PortInUse "DI0424" "a port of this machine is in use"
    "`--port` and `--dashboard-port` are ports of this machine, and another program uses one of them. Without \
     these options a free port is used and printed."
    => "dask-infra connect                      # uses free ports\nlsof -i :8786                           # who uses it"

    MayNotForward "DI0425" "port-forward denied"
    "A connection goes through the API server and needs permission to `create` (before Kubernetes 1.35 also `get`) the subresource `pods/portforward` in the namespace. The role roles/container.developer on GKE, and `edit` of Kubernetes, \
     have it; `view` does not."
    => "kubectl auth can-i create pods/portforward --namespace default"

    NoConnection "DI0426" "the connection failed"
    "The API server was reached, but the pod was not: nothing listens on the port, or the node does not \
     respond. The message has the error of the server or the node. A scheduler takes a moment to start."

    NoLog "DI0427" "no log"
    "Only pods have logs: those of a Dask cluster, a worker group, a job, a check, a notebook, the operator, \
     the driver's DaemonSet, and whatever a manifest runs. Node pools, Services and the like have none."
    => "dask-infra logs dask_cluster.rapids\ndask-infra logs dask_operator --since 10m"

    NotRunnable "DI0428" "not a job and not a check"
    "`run` runs jobs and checks again. Everything else is updated by `apply`, and replaced by `apply --replace \
     ADDRESS`."
    => "dask-infra run check.cuda\ndask-infra run dask_job.train"

    NodeShare "DI0429" "no share of a node"
    "`cpu = \"fit\"` and `memory = \"fit\"` of workers are the worker's share of a node of its `pool`: what is free beside DaemonSets, \
     divided by the workers on a node, rounded down. Workers are counted by their GPUs, or by the other amount if that is a quantity; \
     else one worker has the node. The nodes need a taint that keeps other Pods off; GKE gives one to GPU pools, unless the first pool has \
     GPUs. The share is worked out from the file: the stack must create the cluster and the pool, of a machine type of known size. \
     Elsewhere write amounts."
    => "[dask_cluster.rapids]\nworker = { gpus = 1, pool = \"a100\", cpu = \"fit\", memory = \"fit\" }"

    NotKept "DI0430" "a number that differs from the stack file"
    "`scale` changes a live number immediately. If the stack file has another one, the next apply restores it: \
     `--write` writes the new number to the file. A number that belongs to notebooks (`{ start = 2 }`), or to \
     nothing in the stack, stays until it is changed there."
    => "dask-infra scale dask_cluster.rapids 5 --write"

    NothingToScale "DI0431" "nothing that can be scaled"
    "`scale` changes the number of workers of a Dask cluster or of one of its groups, of nodes of a pool, of pods of a \
     Deployment or StatefulSet from a manifest. It must exist and belong to the stack. `dask-infra status -v` \
     lists the \
     addresses."

    NumberOfOthers "DI0432" "the number is an autoscaler's"
    "A number has one owner. With bounds (`{ min = 0, max = 8 }`) it is the autoscaler, which would restore \
     its own number within seconds. Change the bounds and apply, or replace them with a number and apply."
    => "[dask_cluster.rapids]\nworker = { replicas = { min = 4, max = 8 } }   # at least four from the next apply on"

    CannotKeep "DI0433" "the number cannot be written into the stack file"
    "`scale --write` edits one value of a TOML file and nothing else. A value that comes from a variable, from \
     a YAML file or from a file that cannot be written must be edited by hand: the message says where it is. \
     Nothing was changed."

    ChosenWorkers "DI0434" "workers chosen for deletion"
    "A Dask scheduler that retires workers chooses among those of all groups, so scaling down one group can \
     remove workers of another (dask-kubernetes issue 914). For a cluster with several groups, the plan \
     therefore names the workers of this group to delete: those that are not ready first, then the youngest. \
     The scheduler is not asked, and Dask recomputes what they held."

    NodesDrained "DI0435" "Pods on nodes that are recreated or deleted"
    "Some changes of a node pool (machine type, disk, image, GPUs, tags, taints, resource labels) make GKE \
     recreate its nodes: it cordons and drains some at a time and evicts their Pods. A pool that is replaced or deleted loses all of its nodes at once, one \
     with fewer nodes those that GKE chooses. Pods of a Deployment, a \
     Job or another controller are recreated on other nodes without what they held in memory: Dask recomputes \
     what its workers held. A Pod without a controller is lost. The plan names them, as far as Pods and Nodes \
     can be listed, except Pods of DaemonSets and of the system. `surge` of the pool sets how many nodes are \
     replaced at a time."

    DryRunRefused "DI0436" "the API server refuses a change"
    "`plan` and `apply` send the creates and updates of Kubernetes objects as dry runs, which store nothing. The API server \
     refused this one, as it would in the middle of an apply: an admission webhook, a policy, a ResourceQuota, a field that \
     cannot change, or a name that is not valid. Apply stops before the first write. Change what the message names. If the \
     reason ends before the apply, `--skip-dry-run` leaves the dry runs out."
    => "dask-infra plan --skip-dry-run"

    ServerWarning "DI0437" "the API server warns"
    "The API server accepted a dry run and warned: the API version or a field is deprecated, a policy is in its warning \
     mode, or a webhook warns. The apply goes on. Each warning is shown once, with the number of objects that it is about."

    StackExpiry "DI0438" "a ttl or idle_stop of the stack that cannot work"
    "A CronJob in the cluster stops the stack: it deletes Dask clusters, jobs, notebooks and Pods, and empties the node pools or \
     deletes the GKE cluster. It changes node pools with the identity of its ServiceAccount, so the cluster needs \
     `workload_identity = true`, and it needs a node at any time. `idle_stop` asks the schedulers of the stack's Dask clusters."
    => "[stack]\nname = \"rapids\"\nttl = \"8h\"\n\n[cluster]\nworkload_identity = true"

    StackExpiryRights "DI0439" "a right that the CronJob of a ttl or idle_stop needs"
    "The CronJob of the stack's `ttl` or `idle_stop` changes node pools through GKE's API, and the stack cannot grant that right, because \
     it is one of the project. `dask-infra permissions` prints the commands: a role with the three permissions that it needs, and a binding \
     of its own account. Until then its looks fail, and `status` says so."
    => "dask-infra permissions"

    NoSuchCluster "DI0440" "no such GKE cluster"
    "The cluster to import does not exist in the project, is being created or deleted, or several match. The \
     message lists the clusters of the project."
    => "gcloud container clusters list --project my-project\ndask-infra import --project my-project --location us-central1-c --cluster rapids"

    LeftOut "DI0441" "an imported stack is incomplete"
    "Some live resources have no section in the stack that `import` wrote: their name is not valid there, no \
     key fits, they contain a secret, or they could not be read. Comments in the file list each with its \
     reason. The stack does not change them."
    => "grep '^#' stack.toml"

    NotAdoptable "DI0442" "it cannot be adopted"
    "`adopt` adopts live resources as they are. It refuses what does not exist, what would be replaced, what \
     belongs to another stack, and what needs other changes first; nothing was done. Make the stack file match \
     what is live, or apply the other changes, then adopt."
    => "dask-infra plan\ndask-infra adopt node_pool.gpu"

    AdoptionChanges "DI0443" "adopting it would change it"
    "The section differs from what is live, so adopting it would write other values, and may recreate nodes or \
     Pods. The message lists them. Set the live values in the section, or accept the changes with \
     `--with-changes`."
    => "dask-infra adopt gpu_driver --with-changes"

    KeptByOthers "DI0444" "managed by another tool"
    "Helm, Argo CD or Flux applies this object and will apply it again. Two tools would revert each other's \
     values. Remove the object from the other tool as well, or leave it there with `manage = false`. Adopting \
     it needs `--allow take:ADDRESS`."
    => "dask-infra adopt dask_operator --allow take:dask_operator"

    CannotEdit "DI0445" "the stack file cannot be edited"
    "`adopt` removes the line `manage = false` from a section. If a variable or another file sets it, or the \
     file cannot be written, edit it by hand: the message says where."

    SchedulerNotAsked "DI0460" "whether the scheduler is idle is unknown"
    "With `--when-idle` a change that removes Dask workers asks their scheduler for its number of tasks, \
     through the proxy of the Kubernetes API (`services/proxy`), and waits until there are none. The \
     scheduler's Service does not exist, its `/json/counts.json` is turned off, or the permission to use the \
     proxy is missing; the message says which. Nothing was changed. Fix it, or apply without `--when-idle` \
     when nobody uses the cluster."

    Sandbox "DI0501" "the sandbox cannot be used"
    "The folder of the sandbox cannot be read or written, or is not being served. The message names the folder \
     and the cause. `dask-infra sandbox reset` deletes its state."
    => "dask-infra doctor          # shows who uses the folder\ndask-infra sandbox reset"

    FaultsFile "DI0502" "an error in the faults file"
    "`faults.toml` in the sandbox folder, or the file given with `--faults`, has something that the sandbox \
     does not know. Nothing was started. The keys are in docs/sandbox.md under Faults."

    SandboxInUse "DI0503" "the folder of the sandbox is in use"
    "Another process uses it: a running command or a `sandbox serve`, whose process ID is in the message. Wait \
     for it, stop it, or choose another folder. A served sandbox can be used by many commands at once."

    SandboxDamaged "DI0504" "the folder of the sandbox is damaged"
    "Its state is not what the sandbox wrote: truncated, overwritten, or written by a newer version. Nothing \
     in it is irreplaceable: `dask-infra sandbox reset` deletes it."

    Credentials "DI0601" "no valid credentials"
    "The API does not accept the credentials. For Google: `gcloud auth application-default login`, or \
     `GOOGLE_APPLICATION_CREDENTIALS` with a key or a workload identity file. For `[kubernetes]`: the \
     kubeconfig's user."
    => "gcloud auth application-default login\n# or, for a machine:\nexport GOOGLE_APPLICATION_CREDENTIALS=/path/of/key.json"

    Denied "DI0602" "a permission is missing"
    "The credentials are valid but lack a permission. The message names it; an administrator of the project or \
     the cluster can grant it."
    => "gcloud projects add-iam-policy-binding my-project \\\n  --member user:ada@example.org --role roles/container.admin"

    Quota "DI0603" "quota exceeded"
    "More GPUs, CPUs, disks or addresses are needed than the project's quota allows, in the region or in all regions \
     together. `plan` and `apply` compare need, limit and usage before the first write: what does not suffice for the \
     first nodes is an error, what does not suffice for the most that an autoscaler may add, or for the extra nodes of \
     an upgrade, a warning. GPUS_ALL_REGIONS is 0 in new projects: request more of it, as no other region helps."
    => "gcloud beta quotas preferences create --service compute.googleapis.com --project my-project \\\n  --quota-id GPUS-ALL-REGIONS-per-project --preferred-value 2\n# or: https://console.cloud.google.com/iam-admin/quotas?project=my-project"

    NoAnswer "DI0604" "an API did not handle the request"
    "It did not respond, returned an error of its own, or was busy for too long. Nothing is lost: plan again \
     to see what is live, then apply again."

    ApiDisabled "DI0605" "an API is not enabled in the project"
    "A Google Cloud project must enable the APIs that it uses, once. GKE needs `container.googleapis.com`, \
     which includes Compute Engine. A newly enabled API takes a minute or two to respond."
    => "gcloud services enable container.googleapis.com --project my-project"

    NoProject "DI0606" "the project does not exist, or is not accessible"
    "No project has this ID, or the credentials have no access to it; Google Cloud does not distinguish the \
     two. A project has an ID, a name and a number: `[gke] project` is the ID."
    => "gcloud projects list\ngcloud config list account"

    Kubeconfig "DI0607" "the kubeconfig cannot be used"
    "A stack of `[kubernetes]` reaches its cluster as kubectl does: by `kubeconfig` of the section, else \
     `$KUBECONFIG`, else `~/.kube/config`, and by `context`, else the current one. The file does not exist, is \
     not YAML, or has no such context, cluster or user."
    => "[kubernetes]\nkubeconfig = \"kubeconfig.yaml\"   # relative to the folder of the stack\ncontext = \"lab\"                 # kubectl config get-contexts"

    Interception "DI0608" "TLS or proxy error"
    "The server's certificate is not trusted, or a proxy refused the connection. Behind a company proxy, \
     HTTPS_PROXY names it and NO_PROXY lists what bypasses it; the certificate of a proxy that intercepts TLS \
     must be in the system's store (or in SSL_CERT_FILE)."
    => "export HTTPS_PROXY=http://proxy.example:3128\nexport NO_PROXY=127.0.0.1,localhost"

    QuotaProject "DI0609" "no quota project, or no access to it"
    "Google charges requests of user credentials to a quota project: the one in GOOGLE_CLOUD_QUOTA_PROJECT, else \
     `quota_project_id` of the credentials file. It must have the API enabled, and the credentials need \
     roles/serviceusage.serviceUsageConsumer on it. Service accounts need none."
    => "gcloud auth application-default set-quota-project my-project\n# or, for this shell:\nexport GOOGLE_CLOUD_QUOTA_PROJECT=my-project"

    Billing "DI0610" "billing is not enabled for the project"
    "GKE creates nothing in a project without a billing account. An account is linked once; it takes a minute \
     until the APIs know it."
    => "gcloud billing accounts list\ngcloud billing projects link my-project --billing-account 0X0X0X-0X0X0X-0X0X0X"

    NotOffered "DI0611" "a zone does not have the machine type or GPU"
    "Not every zone has every machine type, and GPUs are in few. `plan` and `apply` ask Compute Engine before the first \
     write. Use a zone that has it, for the cluster or as `zones` of the pool, or another machine type."
    => "gcloud compute accelerator-types list --filter name=nvidia-tesla-t4\ngcloud compute machine-types list --filter name=a2-highgpu-1g"

    OrgPolicy "DI0612" "an organization policy forbids it"
    "An administrator of the organization restricts what projects may create: machines with external addresses \
     (compute.vmExternalIpAccess), machines without secure boot (compute.requireShieldedVm) or without OS Login \
     (compute.requireOsLogin), locations (gcp.resourceLocations) and more. Change the stack so that it complies, or ask for an exception."
    => "[cluster]\nprivate_nodes = true    # compute.vmExternalIpAccess\n\n[node_pool.workers]\nsecure_boot = true      # compute.requireShieldedVm"

    NotLookedAt "DI0613" "something was not looked at before the first write"
    "`plan` and `apply` read quotas, permissions, machine types and organization policies before the first write of \
     nodes. What could not be read is named with the reason; nothing is assumed about it, and the apply goes on. \
     roles/compute.viewer and roles/orgpolicy.policyViewer are enough to read them. `--skip-preflight` leaves all of it \
     out."
    => "gcloud services enable orgpolicy.googleapis.com --project my-project"

    HostAgent "DI0701" "the agent of a host cannot run"
    "A stack of `[local]`, `[ssh]` or `[slurm]` is read and changed by a small Python program, which dask-infra gives to the `python3` of \
     each host for as long as a command runs; `ssh HOST true` must work without a question. It needs Linux, Python 3.8 or later and the folder \
     `~/.local/state/dask-infra` (`$XDG_STATE_HOME/dask-infra`). What runs on the host goes on when it cannot run."
    => "export DASK_INFRA_PYTHON=/usr/bin/python3.12"
}
