//! The codes of all messages, in one table. `explain` and `docs/diagnostics.md` are written from it. A code
//! keeps its meaning for ever: one that is no longer used stays unused.
//!
//! `00xx` usage and target, `01xx` syntax and shape of the stack file, `02xx` its meaning, `03xx` plans and
//! refusals, `04xx` apply, `05xx` sandbox, `06xx` credentials and APIs.

use std::fmt;

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub code: Code,
    /// The printed code: `DI0102`.
    pub id: &'static str,
    /// A few words.
    pub title: &'static str,
    /// What it means, what causes it and how it is mended.
    pub text: &'static str,
    /// What it looks like, and what mends it; each line is shown as it stands.
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
    /// The whole table, in the order of the printed codes.
    pub fn all() -> &'static [Entry] {
        TABLE
    }

    /// The row of this code.
    pub fn entry(self) -> &'static Entry {
        // The macro writes variants and rows in one order; a test holds it.
        &TABLE[self as usize]
    }

    /// Whether the lines that it points at hold what nobody else should see.
    pub fn is_about_secrets(self) -> bool {
        matches!(self, Self::SecretInFile | Self::LiteralSecret)
    }

    /// The printed code: `DI0102`.
    pub fn as_str(self) -> &'static str {
        self.entry().id
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The printed form, in any case: `DI0102`, `di0102`.
impl std::str::FromStr for Code {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        TABLE.iter().find(|entry| entry.id.eq_ignore_ascii_case(text)).map(|entry| entry.code).ok_or(())
    }
}

codes! {
    StackNotFound "DI0001" "no stack file"
    "The stack file that was asked for does not exist. Without `--stack` it is `stack.toml` in the current \
     folder. Give the file or its folder with `--stack PATH`, or start from a ready stack: `dask-infra init` lists them."
    => "dask-infra init --from rapids-gke\ndask-infra --stack stacks/rapids plan"

    StackNotReadable "DI0002" "the stack file cannot be read"
    "The file is there and the operating system refuses to hand it out, or it is no file. The message \
     repeats its reason; mend the permissions or give another path with `--stack PATH`."

    Usage "DI0009" "the program cannot run like this"
    "The operating system or an option stands in the way, before anything was looked at: a signal or a thread \
     that cannot be had, an endpoint that is not on this machine. The message says what."

    AlreadyThere "DI0010" "a file is already there"
    "`init` writes new files and never over old ones. Nothing was written. Choose another folder with \
     `--stack FOLDER`, or move the old file away."
    => "dask-infra --stack rapids-2 init --from rapids-gke"

    CannotWrite "DI0011" "a file cannot be written"
    "The operating system refuses to write the file; the message repeats its reason. The folder must exist and be \
     writable, and a disk must have room."
    => "mkdir -p plans\ndask-infra plan --out plans/rapids.plan"

    UnknownReadyStack "DI0012" "no ready stack of this name"
    "`init --from NAME` takes the name of a ready stack that the program carries. Without a name it lists them."
    => "dask-infra init                        lists them\ndask-infra init --from rapids-gke      writes one"

    NothingToExplain "DI0013" "nothing to explain under this name"
    "`explain` takes a code that a message carries, or a key of the stack file by its path. The name of a pool or \
     cluster may be left out of the path."
    => "dask-infra explain DI0206\ndask-infra explain node_pool.nodes"

    Syntax "DI0101" "not TOML"
    "The text breaks TOML's own rules, so what follows may not be understood either: a string without its \
     closing quote, a text without quotes, a key without a value. Mend the marked place; all places that \
     could be told apart are listed in one run."
    => "name = \"rapids        # wrong: no closing quote\nname = \"rapids\"       # right"

    UnknownKey "DI0102" "unknown key"
    "The section has no key of this name, and nothing is ignored silently. Mostly it is a slip of the \
     finger or a key of another section; the help names both when it can. \
     `docs/stack-reference.md` lists all keys."
    => "[node_pool.a100]\nmachine = \"a2-highgpu-1g\"        # wrong\nmachine_type = \"a2-highgpu-1g\"   # right"

    DuplicateKey "DI0103" "the same key twice"
    "TOML allows a key or a table header once. Keep one of the two marked places."

    WrongType "DI0104" "wrong type of value"
    "The key takes another type of value: a number where text is expected, a list where one value is, a \
     number in quotes. The message says what is expected and the help shows an example."
    => "nodes = \"2\"   # wrong: text\nnodes = 2     # right"

    MissingKey "DI0105" "missing key"
    "The section must have this key and there is no sensible default. The marked place is the section's \
     header; add the key below it."
    => "[node_pool.a100]\nmachine_type = \"a2-highgpu-1g\"   # without this line: DI0105"

    OutOfRange "DI0106" "number out of range"
    "The number is smaller or larger than the key allows. The message names the limits."

    NotOneOf "DI0107" "not one of the allowed words"
    "The key takes one of a few words, written exactly so. The help lists them."

    NotText "DI0108" "the stack file is not UTF-8"
    "TOML files are UTF-8. The marked byte is not: the file is binary, or it was saved in another encoding \
     (UTF-16 and Latin-1 are the usual ones). Save it as UTF-8."

    UnknownVariable "DI0109" "unknown variable"
    "`${var.NAME}` names a variable that `[vars]` does not have. Add it there or mend the name. `--var` sets \
     variables that `[vars]` declares, it does not add any."
    => "[vars]\nworkers = 2\n\n[dask_cluster.rapids]\nworker = { replicas = \"${var.workers}\" }"

    MissingEnvironment "DI0110" "missing environment variable"
    "`${env.NAME}` names an environment variable that is not set. Set it before the command: \
     `export NAME=value`."
    => "export GOOGLE_CLOUD_PROJECT=my-project\ndask-infra plan"

    EnvironmentNotHere "DI0111" "environment variable outside [vars] and [gke]"
    "`${env.NAME}` works only in `[vars]` and `[gke]`, so that one look at the top of the file shows what it \
     takes from outside. Put it into `[vars]` and use `${var.NAME}` here."

    BadReference "DI0112" "reference that cannot be read"
    "`${` begins a reference: `${var.NAME}` or `${env.NAME}`, closed by `}`. Text that shall contain `${` \
     itself is written `$${`."

    VariableInVariable "DI0113" "variable made from another variable"
    "Values in `[vars]` may use `${env.NAME}` but not `${var.NAME}`: their order does not matter and there \
     are no circles. Write the value out, or combine the variables where they are used."

    BadOverride "DI0114" "value of --var does not fit"
    "`--var NAME=VALUE` keeps the type that the variable has in `[vars]`: a number stays a number, true or \
     false stays that. Give a value of the same type, or declare the variable as text."

    NoBase "DI0115" "the extended file cannot be read"
    "`extends` names a file that is not there or cannot be read. Its path begins in the folder of the file that \
     says `extends`; a folder means the `stack.toml` in it."

    ExtendsCircle "DI0116" "files that extend each other"
    "A file extends, directly or over others, itself. Nobody can say then which of them lies over which. Take one \
     `extends` out."

    NothingToTake "DI0117" "nothing to take away"
    "`unset` or `enabled = false` takes away what an extended file says, and no extended file says it: a slip of \
     the finger, or the file below has moved on. `unset` paths begin in the section that they stand in."

    NotRead "DI0119" "the stack was checked and still not understood"
    "The check of the file against its schema passed and reading it failed: a mistake in dask-infra, not in \
     your file. Please report it with the file and the message."

    Target "DI0201" "no target, or two"
    "A stack says where it goes: `[gke]` with project and location, or `[kubernetes]` with an existing \
     cluster. It needs exactly one of them."

    SectionNeedsSection "DI0202" "a section needs another one"
    "Node pools belong to a GKE cluster and a GKE cluster to a project: `[node_pool.NAME]` needs \
     `[cluster]`, both need `[gke]`, and `install = \"daemonset\"` or a check with `pool` needs node pools. \
     Add the missing section, or take this one away."

    UnknownPool "DI0203" "unknown node pool"
    "`pool` and `prefer_pool` name a `[node_pool.NAME]` section of this file, by its key. Mend the name or \
     add the section."
    => "[node_pool.a100]\nmachine_type = \"a2-highgpu-1g\"\n\n[dask_cluster.rapids]\nworker = { gpus = 1, pool = \"a100\" }   # the key of the section above"

    UnknownMachineType "DI0204" "unknown machine type"
    "The machine type is not in dask-infra's table of Compute Engine machine types. Of families with GPUs \
     the table is complete, so an unknown name there is an error; elsewhere it is a warning, and Google \
     decides."

    UnknownAccelerator "DI0205" "unknown GPU type"
    "The accelerator type is not one that GKE offers under this name. Names are GKE's own, with the vendor \
     in front: `nvidia-tesla-t4`, `nvidia-l4`."

    AcceleratorDoesNotFit "DI0206" "GPUs do not fit the machine type"
    "A2, A3, A4, G2 and G4 machines have their GPUs built in: type and number follow from the machine type. \
     T4, V100, P100 and P4 are attached to N1 machines in fixed numbers, with an upper limit of vCPUs and \
     memory for each number. No other combination exists, and Google would refuse it after minutes."
    => "machine_type = \"n1-standard-2\"\naccelerator = \"nvidia-tesla-a100\"                     # wrong: A100s are built into A2 machines\naccelerator = { type = \"nvidia-tesla-t4\", count = 3 } # wrong: 1, 2 or 4\naccelerator = \"nvidia-tesla-t4\"                       # right"

    UnknownZone "DI0207" "unknown zone or region"
    "The name is not a Google Cloud zone (`us-central1-c`) or region (`us-central1`). A name very close to a \
     known one is an error; another one is a warning, because Google opens new zones."

    GpuNotSeenInZone "DI0208" "GPU type not seen in the zone"
    "As far as dask-infra's table knows, the zone does not offer this GPU type. The table ages: it is a \
     warning. Being offered says nothing about free capacity either."

    NodesNotDivisible "DI0209" "nodes do not divide over the zones"
    "GKE keeps the same number of nodes in each zone of a pool, and `nodes` counts all of them together. \
     Take one of the two neighbouring multiples, or set `zones` of the pool."
    => "[gke]\nlocation = \"us-central1\"   # a region: three zones\n\n[node_pool.workers]\nnodes = 4                  # wrong: 3 or 6"

    Limits "DI0210" "least is more than most"
    "`min` must not be larger than `max`. `max = 0` would never run a node."

    SameName "DI0211" "two sections with one live name"
    "The live name is the key of the section, or `name` where it is given. Two sections of one kind cannot \
     share it: they would be one object with two wills."

    BadName "DI0212" "not a valid name"
    "Names in GKE and Kubernetes are lower-case letters, digits and `-`, begin with a letter (in Kubernetes \
     also a digit), end with a letter or digit, and have a greatest length: 40 for clusters and node pools, \
     63 for namespaces, 53 for a DaskCluster, because the operator adds `-scheduler`."
    => "[dask_cluster.My_Cluster]   # wrong\n[dask_cluster.my-cluster]   # right"

    LongName "DI0213" "long DaskCluster name"
    "The operator adds `-default-worker-` and ten digits to the name. Above 37 characters the Deployments of \
     workers get names of more than 63 characters, and the names and labels of their Pods are cut."

    BadLabel "DI0214" "not a valid label"
    "Kubernetes labels: an optional DNS prefix and `/`, then at most 63 letters, digits, `-`, `_`, `.`, \
     beginning and ending with a letter or digit; values likewise, or empty. Google Cloud labels: \
     lower-case letters, digits, `-` and `_`, at most 63, the key beginning with a letter."

    BadTaint "DI0215" "not a valid taint"
    "Key and value of a taint follow the rules of Kubernetes labels, and one key and effect may be given \
     once for a pool."

    AutoUpgradeUnderChannel "DI0216" "auto_upgrade = false under a release channel"
    "In a release channel GKE upgrades the nodes itself and refuses pools that say no. Take the key away, or \
     set `release_channel = \"none\"` on the cluster and move versions by hand."

    DriverTwice "DI0217" "two ways to install the driver"
    "`driver = …` on a pool asks GKE to install the NVIDIA driver, `[gpu_driver] install = \"daemonset\"` says \
     that GKE shall not. Take one of them away."

    NoGpuThere "DI0218" "more GPUs than the pool's nodes have"
    "The Pod asks for more GPUs than one node of its pool has. With `pool` it could never be scheduled: an \
     error. With `prefer_pool` it would never run where it is wanted: a warning. Ask for fewer GPUs or name \
     another pool."

    MoreGpusThanPool "DI0219" "more GPUs than the whole pool has"
    "All that must run in the pool asks for more GPUs than it has at its largest, or for so many at once that they do not fit \
     onto its nodes. The message says how many Pods can never be scheduled; they stay pending until the pool grows: raise \
     `nodes`, or lower `replicas`. It is a warning and no error because the two numbers are also changed one after the other: \
     `scale` grows the live pool first and the file follows, and a plan that only takes things away must not be held up."

    OperatorMissing "DI0220" "no Dask operator"
    "A DaskCluster is only a record until the Dask operator acts on it. On a cluster that the stack makes \
     itself nobody else brings the operator: add `[dask_operator] version = \"2026.3.0\"`. On an existing \
     cluster it may be there already: a warning."
    => "[dask_operator]\nversion = \"2026.3.0\""

    NamespaceNotDeclared "DI0221" "namespace not in the stack"
    "The namespace is neither `default` nor a `[namespace.NAME]` section. If it does not exist yet the apply \
     fails there. Add the section, or go on if others make it."

    CheckNeedsGpu "DI0222" "a GPU check where there are no GPUs"
    "The check runs on one GPU and its pool has none. Name a pool with GPUs."

    DriverImage "DI0223" "driver and node image do not fit"
    "The driver's DaemonSet and `driver = \"latest\"` are for Container-Optimized OS (`COS_CONTAINERD`). On \
     Ubuntu nodes use `[gpu_driver] install = \"gke\"` with `driver = \"default\"`, or change the image."

    UnknownAddress "DI0224" "unknown address"
    "`depends_on` names sections of this file as they are addressed everywhere: `cluster`, \
     `node_pool.NAME`, `gpu_driver`, `dask_cluster.NAME`, `check.NAME`. A section cannot depend on itself."

    OperatorVersion "DI0225" "operator version not known"
    "dask-infra carries the rights and custom resource definitions of the operator's release 2026.3.0. \
     Another release is installed with those; they have been the same since 2025.7.0, but that is not \
     certain for every release."

    BadQuantity "DI0226" "not a Kubernetes quantity"
    "`cpu` and `memory` are Kubernetes quantities in quotes: a number, then nothing, `m`, or one of `Ki`, \
     `Mi`, `Gi`, `Ti`, `k`, `M`, `G`, `T`: `\"2\"`, `\"500m\"`, `\"8Gi\"`. `\"8GB\"` is none; write `\"8G\"` or \
     `\"8Gi\"`."
    => "memory = \"8GB\"   # wrong\nmemory = \"8Gi\"   # right"

    OldCommand "DI0227" "command that newer images do not have"
    "`dask-scheduler` and `dask-worker` were removed from distributed 2026.6.0, which RAPIDS images have \
     from 26.08 on. The two-word forms `dask scheduler`, `dask worker` and `dask cuda worker` work in every \
     image. Leave `args` away to get them."

    BadPartition "DI0228" "GPU partition does not exist"
    "A partition size (MIG) belongs to a GPU type: `1g.5gb` exists on an A100 with 40 GB, not on one with \
     80 GB, and T4, L4, V100 and P100 have none. The help lists the sizes of the type."

    OneGpuShared "DI0229" "more than one shared GPU for a container"
    "A node with shared GPUs gives a container at most one of them: GKE refuses Pods that ask for more. Set \
     `gpus = 1`, or take `sharing` away."

    ZoneOutside "DI0230" "zone outside the cluster's region"
    "A GKE cluster lives in one region, and so do its nodes. `zones` of the cluster and of its pools are zones \
     of the region of `[gke] location`."

    BuiltIn "DI0231" "a namespace that every cluster has"
    "`default`, `kube-…` and dask-infra's own namespace exist without the stack. A section for one would make \
     its removal from the file the deletion of all that is in it. Take the section away; \
     `namespace = \"…\"` of other sections works without it."

    NotThere "DI0232" "what others own is not there"
    "The section says `manage = false`: others own the thing, and the stack relies on it without making it. It does \
     not exist under this name. Have its owner make it first, mend the name, or take `manage = false` away so that \
     the stack makes it."

    OthersDiffer "DI0233" "what others own differs from the stack file"
    "The section says `manage = false` and gives a value that is not the live one. Nothing is changed: its owner \
     decides. Write the live value into the section, or take the key away; keys that are not given are not compared."

    NotUsable "DI0234" "what others own cannot be used yet"
    "The thing is there, and it is being made, being deleted or broken. A stack does not wait for what others make: \
     look at what its owner does, and plan again when it runs."

    OthersTaint "DI0235" "a taint that keeps Pods away"
    "Nodes of a pool that others own have a taint that its section does not give, so the Pods that the stack wants \
     there do not tolerate it and would stay pending. Give the taint in the section: `taints = [{ key = …, \
     effect = … }]`; it is compared, never written."

    OthersZones "DI0236" "the live cluster has other zones"
    "`nodes` of a pool counts all zones together, and the cluster, which others own, has its nodes in other zones \
     than the stack file says or than GKE would take. Give `zones` of the cluster as they are, or `zones` of the pool."

    Twice "DI0237" "twice in a list"
    "The list names one thing twice. It would count twice, for example where nodes are spread over zones. Keep one \
     of the two."

    OwnZone "DI0238" "the cluster's own zone is missing"
    "A cluster whose `location` is a zone has its control plane there, and GKE wants that zone among `zones`. Add it, \
     or give a region as `location`."

    NoSurge "DI0239" "an upgrade that cannot go on"
    "With `max_surge = 0` and `max_unavailable = 0` no node may come before another goes, and none may go before \
     another comes. GKE refuses that. Set one of them to 1."

    NotTrusted "DI0240" "the stack leads where it may not"
    "A stack is input: it may come from somebody else, in a pull request. Files that it names are read inside its repository \
     (the nearest folder upwards with `.git`; without one, the stack's own folder), links included, and a kubeconfig in \
     there must not run programs (`exec`, `cmd-path`). When you know who wrote it, `--trust-stack` or \
     DASK_INFRA_TRUST_STACK=1 allows both."

    FileNotRead "DI0241" "a named file cannot be read"
    "`file`, `definitions` and `pod` name files from the folder of the stack file on. The file is not there, is a \
     folder, is not UTF-8 text, or may not be read. Addresses on the web are not read: download the file, so that \
     what is applied does not change by itself."

    NotYaml "DI0242" "not YAML"
    "The text breaks YAML's own rules at the marked place. Usual causes: a tab or one space too few in front of a \
     line, a quote or bracket that is not closed, a template (`{{ … }}`) that was not rendered."

    YamlTrap "DI0243" "a value that YAML reads as something else"
    "Without quotes `yes`, `no`, `on` and `off` are true or false, `0755` is the octal number 493 and `1_000` is \
     1000. dask-infra reads them as kubectl does, and says so. Write what is meant: `true`, `493`, or the text in \
     quotes."

    NotAnObject "DI0244" "not a Kubernetes object"
    "Each document of a manifest is an object with `apiVersion`, `kind` and `metadata.name`, or a `List` of them. \
     Overlays of kustomize and values of Helm are not: give what `kubectl kustomize` or `helm template` makes of \
     them."

    UnknownKind "DI0245" "unknown kind"
    "Nothing says how the API serves this kind: it is not built into Kubernetes, is not Dask's, and no \
     CustomResourceDefinition of it is in the stack's manifests. Mend `apiVersion` and `kind`, add the file of the \
     definition to `file`, or to `definitions` when others install it."

    SameObject "DI0246" "one object wanted twice"
    "Two places of the stack ask for the same object: kind, namespace and name are the same. Only one can have its \
     way; take one of them out."

    EmptyField "DI0247" "a field without a value"
    "`key:` with nothing behind it is `null`, which Kubernetes drops. The RAPIDS guide has such an `env:`. Take the \
     line away, or give it a value."

    NoSuchNodeLabel "DI0248" "no node has the label"
    "The Pod asks for nodes with a label that no node pool of the stack gives its nodes. Demanded, it can never be \
     scheduled; preferred, it runs anywhere, silently, mostly on a dearer GPU. Mend the value on one of the two \
     sides."

    IdleInstaller "DI0249" "a driver installer with nothing to do"
    "The DaemonSet that installs the NVIDIA driver selects only nodes on which GKE does not install it. GKE does so \
     by default, so the DaemonSet runs nowhere. Leave it away, or say `[gpu_driver] install = \"daemonset\"`, which \
     brings the same installer and turns GKE's off."

    SaidTwice "DI0250" "said by a key and by `pod` or `api`"
    "A key of the section and its `pod` or `api` set the same field. One of them must give way: take the key or the field \
     out. An `image` in `pod` wins over that of the cluster, with a warning: scheduler, workers and clients should \
     have the same."

    SecretInFile "DI0251" "a Secret with its value in a manifest"
    "Values of Secrets would stand in plans, in the record and in outputs. Make the Secret by other means \
     (`kubectl create secret`, External Secrets) and refer to it by name; or name a variable of the environment in the place of \
     each value, and it is written when the stack is applied."
    => "stringData: { password: \"env:HUB_PASSWORD\" }"

    DaskService "DI0252" "the Service does not lead to the scheduler"
    "The Dask operator takes the Service of a DaskCluster as it is written: it fills in no selector, and looks the \
     ports `tcp-comm` and `http-dashboard` up by name. A wrong one is noticed only when clients cannot connect and \
     scaling fails."

    ServersFields "DI0253" "fields that the API server writes"
    "`kubectl get -o yaml` prints fields that only the server writes: `uid`, `resourceVersion`, `managedFields`, \
     `status`. They are left out of what is applied. Take them out of the file."

    LiteralSecret "DI0254" "a secret written out"
    "What stands in `env`, `args`, annotations or a chart's `values` is in plans, in the cluster's objects and in everybody's \
     terminal. A name such as `HF_TOKEN` or `DB_PASSWORD`, or the shape of a value (a private key, a token of a known service, \
     a URL with a password), says that it is a secret. Put it into a Kubernetes Secret (`kubectl create secret generic NAME \
     --from-literal=KEY=…`, External Secrets) and name that, or have it taken from the environment when the stack is applied. What \
     is no secret, or may be seen, is allowed with a reason."
    => "[dask_cluster.rapids]\nworker = { env = { HF_TOKEN = { secret = \"hugging-face\", key = \"token\" } } }\n\n\
        [allow.literal_secrets]\n\"dask_cluster.rapids.scheduler.env.DEMO_TOKEN\" = \"the demo's public token\""

    OneWriter "DI0256" "a number without one writer"
    "The number of workers has one writer. `replicas = 2`: the file; what others change is taken back. \
     `replicas = { min = 0, max = 8 }`: the Dask operator's autoscaler, which knows the default group only. \
     `replicas = { start = 2 }`: notebooks (`KubeCluster.scale` and `adapt`), after as many at the beginning."

    UnknownCluster "DI0257" "unknown Dask cluster"
    "`like` names a `[dask_cluster.NAME]` section of this file, by its key. Groups, jobs and autoscalers in manifests name \
     a DaskCluster of their own namespace: the operator looks nowhere else. Mend the name or add the section."

    ChildName "DI0259" "no name for what the operator makes"
    "The operator makes things of its own beside what the stack asks for and derives their names: the default group \
     `NAME-default`, workers and their labels, the cluster of a job under the job's name. The name is taken by one of \
     those, or leaves no room for them. Choose another `name`."

    OthersCluster "DI0260" "a Dask cluster that others own"
    "With `manage = false` a `[dask_cluster.NAME]` is read and relied on: groups of this stack join it. What its section \
     says is compared with what is live; `image` is what groups take that name none. Here neither says one."
    => "[dask_cluster.shared]\nmanage = false\nimage = \"nvcr.io/nvidia/rapidsai/base:26.04-cuda12-py3.13\"\n\n[dask_cluster.shared.group.mine]\nreplicas = 2"

    ImagesDiffer "DI0261" "images of different versions"
    "Scheduler, workers and clients speak to each other in pickles of Dask and Python, which other versions may not be able \
     to read. The versions are those that the tags of RAPIDS' and Dask's images name. Give all of a cluster one image."

    RestartsForEver "DI0263" "a job that never fails"
    "With `restart = \"on-failure\"` the program of a job is started again each time it fails, and the job is never \
     `Failed`: its workers and their GPUs are kept until somebody deletes it. Leave `restart` away unless the program \
     is known to succeed at last."

    JobTemplate "DI0265" "what the cluster of a job is made of"
    "A job brings its own Dask cluster. Either it copies one of the file (`like = \"NAME\"`) or it describes its own \
     (`image`, `scheduler`, `worker`)."

    GkeSetsField "DI0266" "a field that GKE alone sets"
    "`api` of a cluster or a node pool takes fields of the GKE API. Some of them are answers only: states, addresses, \
     versions that run. Node pools are sections of their own and no field of the cluster."

    HelmMissing "DI0270" "helm cannot be run"
    "Charts are rendered by the `helm` program, version 3.8 or later, or 4: that of `--helm PATH` or \
     DASK_INFRA_HELM, else that of the PATH. A stack does not choose it. Nothing else of Helm is needed: no release is written, and no rights beyond those of any apply. Get it \
     from https://helm.sh/docs/intro/install; it is one file."
    => "dask-infra --helm tools/helm plan"

    ChartNotFound "DI0271" "no such chart"
    "A chart is a folder with `Chart.yaml` or a `.tgz` file, from the folder of the file that names it on; an `oci://` \
     address; or a name in the repository that `repo` gives. Names of `helm repo add` are known to one machine only and \
     are not looked up. For a registry that needs a login, `helm registry login`; from a repository that needs one, fetch the \
     chart yourself (`helm pull`) and name its file."
    => "[helm_release.rapids]\nchart = \"dask\"\nrepo = \"https://helm.dask.org\"\nversion = \"2024.1.1\""

    ChartNotRendered "DI0272" "a chart that does not render"
    "`helm template` ended with an error; its own words follow, and the place is the value that they name, when they name \
     one. `helm show values` prints what a chart takes, `helm lint` looks at the chart itself."

    ChartNotSteady "DI0273" "a chart that makes something else each time"
    "Charts are rendered twice. What differs is made up: a password, a certificate, the time. Each plan would change it \
     again. Give the value yourself, or make the Secret by other means and name it to the chart."

    ChartVersion "DI0274" "a chart without its exact version"
    "What is applied must not change by itself, so a chart of a repository or registry is named with its exact version; \
     ranges like `^2` are none. `helm show chart` says which versions there are. The version of a folder is what its \
     `Chart.yaml` says."

    OutsideNamespace "DI0275" "a chart's object outside its namespace"
    "The chart makes an object in another namespace than the release's. Mostly a value that was not thought of; where it \
     is meant, `other_namespaces = [\"NAME\"]` allows it."

    HookHasNoPlace "DI0276" "a hook that has no place in a plan"
    "Helm runs this Job or Pod at each upgrade, or when a release is deleted. Here nothing is upgraded or deleted as a \
     whole: objects are made, changed and deleted one by one, as the plan says. `hooks = \"once\"` runs it once, and again \
     when its own text changes; `hooks = \"none\"` leaves all hooks out. Most charts have a value that turns it off."

    HookLeftOut "DI0277" "a chart's test that is left out"
    "A test hook is run by `helm test` and belongs to nothing that is applied. `hooks = \"none\"` leaves out all hooks \
     without a word; `[check.NAME]` tests GPUs."

    JupyterPassword "DI0278" "a password that everybody knows"
    "The Dask chart starts Jupyter with the password `dask` when none is given. Who reaches it runs programs with the \
     rights of its account. Give the hash of your own (`python -c 'from jupyter_server.auth import passwd; \
     print(passwd())'`), or turn Jupyter off."
    => "[helm_release.rapids.values]\njupyter = { enabled = false }"

    TakenForUnset "DI0279" "a value that the chart takes for unset"
    "The Dask chart lays each of `additional_worker_groups` over `worker` with a function that takes 0, an empty text and \
     `false` for nothing said, so the group gets what `worker` has. A group without workers is one that is not in the list."

    StoredVersion "DI0280" "a definition without a version that objects are stored in"
    "Objects of the kind may still be stored in a version that the new definition no longer has; the API server refuses \
     that, since nobody could read them any more. Keep the version (`served: false` is enough), migrate the objects, and \
     take it out of `status.storedVersions`."
    => "kubectl get crd daskclusters.kubernetes.dask.org -o jsonpath='{.status.storedVersions}'"

    RemovedInDefinition "DI0281" "a definition that knows less than the live one"
    "The new definition no longer serves a version, or no longer has a field. The API server drops such fields from objects \
     when they are next written, and clients of the version fail. An older release is the usual cause."

    ChartLooksUp "DI0282" "a chart that asks the cluster"
    "`lookup` in a template asks the live cluster, and a plan is made without it: `lookup` finds nothing, as in `helm \
     template`. Charts use it to keep a password that they made up, or to leave out what is there already. Give such values \
     yourself."

    ChartNotAskedFor "DI0283" "a chart that is not asked for"
    "`chart`, `repo`, `values` and `values_files` of `[dask_operator]` are those of its chart, which makes its objects with \
     `source = \"chart\"` only."

    PublicScheduler "DI0285" "a scheduler on the internet"
    "Dask has no passwords: whoever reaches a scheduler runs code on its workers, with the rights of their pods. A load \
     balancer is therefore inside the VPC network unless `public = true` says otherwise, and that is warned of. \
     `dask-infra connect` goes through the API server and needs no load balancer."
    => "[dask_cluster.rapids]\nservice = \"LoadBalancer\"        # inside the VPC network\n# dask-infra connect rapids      # from anywhere, with your own rights"

    NotebookPassword "DI0286" "a notebook without a password"
    "Whoever opens a notebook runs code in the cluster. So Jupyter always asks for a password, and there is no default. \
     Its value is in a Secret of the notebook's namespace, which others make; the stack names the Secret and the key, and \
     never holds the value."
    => "kubectl create secret generic jupyter --from-literal=password=\"$(openssl rand -hex 16)\"\n\n[notebook.lab]\npassword = { secret = \"jupyter\", key = \"password\" }"

    NotebookImage "DI0287" "what a notebook runs"
    "A notebook needs an image with Jupyter in it. `like` names a Dask cluster of the file and takes the image that belongs \
     to its workers' one, `rapidsai/notebooks` for `rapidsai/base`, so that versions agree; `image` names any other."
    => "[notebook.lab]\nlike = \"rapids\"\npassword = { secret = \"jupyter\", key = \"password\" }"

    Cycle "DI0301" "a circle of dependencies"
    "Each of the named things waits for the next, so none can be made. One of the `depends_on` in the circle \
     must go; edges that follow from references cannot form a circle by themselves."

    NotOurs "DI0302" "it exists and belongs to others"
    "Something of this name is live and this stack did not make it. Nothing is taken over silently: choose \
     another name, or delete it if nobody needs it."
    => "error[DI0302]: Namespace team exists already and is not of this stack: its field manager is `kubectl-create`\n  kubectl get namespace team --show-managed-fields -o yaml    # who made it"

    Unreadable "DI0303" "live state cannot be read"
    "A place that the plan depends on did not answer or refused. What cannot be seen is not taken for absent, \
     so nothing is planned. Mend the access that the message names, or plan with `--offline` against an empty \
     world."
    => "dask-infra doctor            # what stands in the way\ndask-infra plan --offline    # what a first apply would do"

    UnknownEffect "DI0304" "the effect of a change is not known"
    "The field differs and dask-infra has no rule that says what changing it does. Change it by other means, \
     or have the thing made anew with `--replace ADDRESS`."

    Protected "DI0305" "protected"
    "The section says `protect = true` and the plan would delete or replace what it made. Take `protect` out \
     first if that is meant."
    => "[cluster]\nprotect = true   # take this line out, then plan again"

    Consent "DI0306" "consent is missing"
    "Replacing and deleting need consent by address: type it at the prompt or give `--allow VERB:ADDRESS`."
    => "dask-infra plan                                                # lists the consents that it needs\ndask-infra apply --allow replace:dask_cluster.rapids"

    PlanFile "DI0307" "not a usable plan file"
    "The file is no plan, was changed after it was written, or was written by another version of dask-infra. \
     Make it again with `dask-infra plan --out FILE`."

    Stale "DI0308" "the plan is stale"
    "Between plan and apply something that the plan relies on moved. Nothing was started. Plan again and look \
     at what changed."
    => "dask-infra plan --out rapids.plan\ndask-infra apply rapids.plan     # stale when something moved in between: plan again"

    Schema "DI0309" "it would be refused by its schema"
    "What the section becomes does not fit the schema of its Kubernetes kind, so the API server would refuse \
     it. The message names the field."

    Retarget "DI0310" "the stack is at another place"
    "A GKE cluster with this stack's labels exists in the project under another name or location than the file says, \
     or the stack was last applied to another target from this folder. Applying would make a second one beside it. Put \
     the old name and location back, or give `--retarget` if a second one is meant. Only clusters of the same project \
     that may be listed are found."

    VersionNotServed "DI0312" "a version of an API that is not served"
    "The object is live and the API server does not serve the version that the file asks for, but another one: versions of \
     an API are retired over time, and a definition says itself which of its versions are served. Write the version that \
     the message names and look whether its fields are the same ones."
    => "kubectl api-versions                       # what this cluster serves\nkubectl explain horizontalpodautoscaler --api-version=autoscaling/v2"

    GoesAlong "DI0313" "it would go along and is still wanted"
    "A server deletes what is in a namespace, of the kind of a definition, or owned by a thing together with it. The plan \
     would delete such a thing, and the stack still wants something that would go along, so the next apply would make \
     it again, empty. Keep what would be deleted, or take both out of the file. A namespace that others are to own from now \
     on keeps its section, with `manage = false`."
    => "[namespace.team]\nmanage = false   # it stays, and is no longer this stack's"

    GpuPoolFirst "DI0351" "the first pool has GPUs"
    "GKE puts its `nvidia.com/gpu` taint on GPU pools only when the cluster has a pool without GPUs before \
     them. In a cluster of GPU pools alone, system pods run on GPU nodes. A small pool without GPUs avoids it."

    UnknownSize "DI0352" "the live size of a pool is not known"
    "A node pool's own description does not say how many nodes it has; instance groups and Node objects could \
     not be read either. No change of size is planned. Give read access to Compute Engine instance groups."

    CheckAmongWorkers "DI0353" "a check needs a GPU that workers hold"
    "The check runs on a pool where the workers of a Dask cluster stay, and they may hold every GPU of it. The \
     check waits for a free one until its deadline. Scale the workers down first, or run the check alone."

    PoolInTrouble "DI0354" "a node pool has fewer nodes than it should"
    "GKE could not make all nodes of the pool, mostly for lack of GPUs in the zone or of quota, and goes on \
     trying. Wait, choose another zone or machine type, or make the pool anew with `--replace ADDRESS`."

    IdleConsent "DI0355" "a consent that fits nothing"
    "`--allow` names an address that the plan neither deletes nor replaces, so the consent does nothing. Look for a \
     slip of the finger; the plan lists the consents that it needs. It is no error: a pipeline may give the same consent \
     again after what it allowed is done."

    OperatorStays "DI0356" "the operator stays"
    "The Dask operator would go and others still have Dask clusters, jobs or worker groups in the cluster, which could \
     neither work nor be deleted without it. It stays with its definitions until those are gone."

    OthersUnseen "DI0357" "things of others could not be looked at"
    "A namespace or a cluster would go with everything in it, and a kind of object in it cannot be listed: a permission \
     is missing, or the API server behind the kind does not answer. What others have of that kind is not named, so that \
     it goes needs a consent of its own, `--allow delete:others.unseen`. Look at it by other means before you consent."

    PlaceUnknown "DI0358" "other places of the stack are not known"
    "There is no cluster at the stack's target, and the project's other clusters cannot be listed, so it cannot be told \
     whether the stack is somewhere else already. Grant `container.clusters.list`, try again when \
     GKE lists all zones, or give `--retarget` when the name and location in the file are meant."

    RecordLost "DI0359" "the record is lost"
    "Objects of this stack are live and its record in the namespace `dask-infra` is not. Live state is the state, so the \
     plan is right about what it sees: what left the file is found by its label in every kind and namespace. What only the \
     record knew is lost: passes of checks, which jobs have run, labels and taints that were set on node pools. The next \
     apply writes a new record. Kinds that may not be listed are named: what of them left the file stays until somebody \
     who may list them plans, or deletes it by hand."

    StartHasNoEffect "DI0361" "a start that has no effect"
    "`replicas = { start = … }` says how many workers there are when the thing is made. From then on the number belongs \
     to notebooks, and a changed `start` changes nothing. Scale in the notebook, or write `replicas = 4` to take the \
     number back."

    TwoWriters "DI0362" "two writers of one number"
    "The file owns the number of workers, and an autoscaler that others made for the same cluster writes it, too: \
     `KubeCluster.adapt` in a notebook makes one. Each apply takes the number back and the autoscaler changes it \
     again. Delete the autoscaler, or give the number away with `replicas = { start = 2 }`."

    IdleGone "DI0363" "a cluster that went for want of work"
    "With `idle_timeout` the operator deletes a Dask cluster that has had no work for so long, its groups and autoscaler \
     with it. That is no drift, and no apply makes it again by itself. `--replace ADDRESS` makes it again; a changed \
     section does, too; `idle_timeout = { seconds = 3600, remake = true }` has every apply do it."

    JobEnded "DI0364" "a job that will not run again by itself"
    "A job runs once. It failed, or it ran and its object was deleted since. No apply runs it again unless its section \
     changes or `--replace ADDRESS` asks for it."

    DeletedUnseen "DI0370" "what is in the cluster is not known"
    "The GKE cluster runs and its Kubernetes API server does not answer: an authorised network leaves this machine out, or \
     the control plane is broken. With `destroy --allow delete:unseen` the cluster is deleted all the same, with things of \
     others and running work in it that nobody can name. What its controllers made outside of it, such as load balancers \
     and disks, may stay and cost: look for them in the project afterwards."

    Unready "DI0380" "what is there is not ready"
    "Nothing of it would be changed, and it does not do what it is for. Where the record says that an apply made it and \
     none has seen it ready since, the next apply waits for it and ends with 6 when it is not ready in time. What was ready \
     before is not waited for, as nothing that an apply would do can mend it. `dask-infra why ADDRESS` says what is wrong."

    IdlePool "DI0381" "nodes that stay when their cluster goes"
    "`idle_timeout` has the operator delete a Dask cluster that has no work. Its nodes are GKE's: a pool of a fixed size \
     stays and costs as before. Bounds, `nodes = { min = 0, max = 4 }`, let GKE's autoscaler take idle nodes away."

    SecretOfOthers "DI0390" "a Secret that somebody must make"
    "A container that the plan creates takes a variable from a Kubernetes Secret that is not in the stack, and waits until \
     the Secret has that key. Where the cluster or the namespace is made by the same apply, make the Secret as soon as the \
     namespace is there; the apply waits for it."
    => "kubectl -n default create secret generic jupyter --from-literal=password=\"$(cat password)\""

    Refused "DI0401" "a request was refused as wrong"
    "An API took the request for invalid; its own words follow. What the plan could not see beforehand is often \
     a limit of the project or a version. Change the section that the message names, then apply again."

    OperationFailed "DI0402" "a GKE operation ended with an error"
    "GKE took the request and failed to do it: no capacity in the zone, no quota, or a fault of its own. A pool \
     that could not be made stays behind with an error and is planned again. Mend the cause, then apply again."

    NotReady "DI0403" "it will not become ready"
    "What was made says that it cannot go on without help: an image that cannot be pulled, a container that \
     crashes, a failed pool. Waiting ended early because of it. Mend the cause, then apply again."

    CheckFailed "DI0404" "a check did not pass"
    "The check ran and its log lacks the line that says it passed; the log's end is shown. What depends on the \
     check was not made. Apply again to run it again."

    MadeByOthers "DI0405" "somebody else made it meanwhile"
    "Something of this name was not there when the plan was made and is there now, and this stack did not make \
     it. It was not touched. Choose another name or delete it, then plan again."

    ChangedByOthers "DI0406" "somebody else changed or owns it"
    "Another field manager owns a field that the plan sets, or the object is not the one that was planned. It \
     was not overwritten. Plan again to see what is live."

    RecordNotWritten "DI0407" "the record could not be written"
    "Before the first write, dask-infra notes in the cluster what it is about to do. That failed, so nothing else \
     was written, but for the cluster itself where this apply made it. Give write access to ConfigMaps of the namespace \
     `dask-infra`, or mend what the message names."

    Missing "DI0408" "something that the plan relies on is not there"
    "It was there when the plan was made, or should have been made by an earlier step. Plan again."

    WrongPlan "DI0409" "the plan cannot be applied"
    "A change waits for itself or for a kind that this program does not know. Make the plan again with this \
     version of dask-infra."

    Locked "DI0411" "another apply of the stack is under way"
    "Two applies of one stack at the same time would undo each other's work, so an apply holds a lock beside the stack's \
     record while it runs. The message says who holds it and since when. Wait until it ends. An apply that was killed \
     holds nobody up: its lock is taken over at once on the same machine, and within seconds from another. \
     `--force-unlock` breaks a lock whose holder is known not to run."

    Interrupted "DI0412" "interrupted before anything was begun"
    "A signal (Ctrl-C, or one that asks for an end) came while the lock of the stack was waited for or the plan was made again \
     under it. No change was begun, nothing was written but the lock, and that was given back: there is nothing to go on with \
     or to clean up. Type the command again when it is meant."

    NoAnswerThere "DI0421" "nothing answers there"
    "What is to be connected to, or whose log is wanted, is not there or not ready yet. The message says how far it is: \
     not applied, without a pod, or with a pod that waits, and for what. `dask-infra status` shows the rest of the stack."
    => "dask-infra status\ndask-infra apply"

    WhichDoor "DI0422" "what to connect to"
    "Dask clusters, their jobs while they run, notebooks, and Services with the ports of a scheduler or of Jupyter can be \
     connected to. Where a stack has several of them, the address says which."
    => "dask-infra connect dask_cluster.rapids\ndask-infra connect rapids               # a unique ending is enough"

    NothingReal "DI0423" "the sandbox runs no programs"
    "The sandbox imitates GKE and Kubernetes: its pods have states and no programs, so nothing answers in them. A sandbox \
     that is served in front of a real API server leads to real pods; without `--sandbox` the cloud is meant."
    => "dask-infra sandbox serve --kubernetes lab.kubeconfig     # a real API server on this machine\neval \"$(dask-infra sandbox env)\"; dask-infra connect"

    PortInUse "DI0424" "a port of this machine is in use"
    "`--port` and `--dashboard-port` name ports of this machine, and another program has one of them. Without them a free \
     one is taken and told."
    => "dask-infra connect                      # takes free ports\nlsof -i :8786                           # who has it"

    MayNotForward "DI0425" "a port-forward is refused"
    "A connection goes through the API server, which asks whether you may `create` (before Kubernetes 1.35 also `get`) the \
     subresource `pods/portforward` in the namespace. The role roles/container.developer on GKE, and `edit` of Kubernetes, \
     have it; `view` does not."
    => "kubectl auth can-i create pods/portforward --namespace default"

    NoConnection "DI0426" "the connection is not made"
    "The API server was reached and the pod behind it was not: nobody listens on the port, or the node does not answer. \
     The message has the words of whoever refused. A scheduler that is starting takes a moment."

    NoLog "DI0427" "no log"
    "Logs are written by pods: those of a Dask cluster, a worker group, a job, a check, a notebook, the operator, the \
     driver's DaemonSet, and whatever a manifest runs. Node pools, Services and the like have none."
    => "dask-infra logs dask_cluster.rapids\ndask-infra logs dask_operator --since 10m"

    NotRunnable "DI0428" "not a job and not a check"
    "`run` starts once more what runs to an end. What stays is changed by `apply`, and made anew by \
     `apply --replace ADDRESS`."
    => "dask-infra run check.cuda\ndask-infra run dask_job.train"

    NotKept "DI0430" "a number that the stack file does not say"
    "`scale` changes a live number at once. Where the stack file says another one, the next apply puts the file's back: \
     `--write` puts the new number into the file. A number that belongs to notebooks (`{ start = 2 }`), or that nobody \
     says, stays until somebody changes it."
    => "dask-infra scale dask_cluster.rapids 5 --write"

    NothingToScale "DI0431" "nothing that can be scaled"
    "`scale` changes the number of workers of a Dask cluster or of one of its groups, of nodes of a pool, of pods of a \
     Deployment or StatefulSet from a manifest. It must be there, and be the stack's. `dask-infra status -v` lists the \
     addresses."

    NumberOfOthers "DI0432" "the number is an autoscaler's"
    "A number has one writer. With bounds (`{ min = 0, max = 8 }`) it is the autoscaler, which would put its own number \
     back within seconds. Change the bounds and apply, or write a number in their place and apply."
    => "[dask_cluster.rapids]\nworker = { replicas = { min = 4, max = 8 } }   # at least four from the next apply on"

    CannotKeep "DI0433" "the number cannot be written into the stack file"
    "`scale --write` edits one value of a TOML file and nothing else of it. A value that comes from a variable, from a \
     YAML file or from a file that cannot be written is left to you: the message says where it stands. Nothing was \
     changed."

    ChosenWorkers "DI0434" "workers that are chosen by us"
    "A Dask scheduler that is told to let some workers go chooses among those of all groups, so that a smaller number of \
     one group costs another one its workers (dask-kubernetes issue 914). Where a cluster has several groups, the plan \
     therefore names the workers of this group that go: those that are not ready first, then the youngest. The scheduler \
     is not asked, and Dask computes again what they held."

    NodesDrained "DI0435" "Pods on nodes that are made anew"
    "Some changes of a node pool (machine type, disk, image, GPUs, tags, taints, resource labels) have GKE make its nodes \
     anew: it cordons and drains some at a time and evicts what runs on them. Pods of a Deployment, a Job or another \
     controller come back on other nodes without what they held in memory: Dask computes again what its workers held. A \
     Pod without a controller is lost. The plan names them, as far as Pods and Nodes can be listed; Pods of DaemonSets and \
     of the system are left out. `surge` of the pool says how many nodes go at a time."

    NoSuchCluster "DI0440" "there is no such GKE cluster"
    "`import` was asked to read a cluster that the project does not have, that is being made or deleted, or that it \
     cannot tell from others. The message names the clusters that there are."
    => "gcloud container clusters list --project my-project\ndask-infra import --project my-project --location us-central1-c --cluster rapids"

    LeftOut "DI0441" "an imported stack does not say everything"
    "Some of what is live has no section in the stack that `import` wrote: its name cannot be one, no key fits it, it \
     holds a secret, or it could not be read. The comments of the file name each with its reason. Nothing of it is \
     changed by the stack."
    => "grep '^#' stack.toml"

    NotAdoptable "DI0442" "it cannot be adopted"
    "`adopt` takes over what is there, as it is. What is not there, what would be made anew, what another stack has, and what \
     needs other changes first is refused; nothing was done. Say in the stack file what is live, or apply the other \
     changes, and adopt then."
    => "dask-infra plan\ndask-infra adopt node_pool.gpu"

    AdoptionChanges "DI0443" "adopting it would change it"
    "What the section says is not what is live, so that taking it over would write other values, and may roll nodes or \
     Pods. The message lists them. Write the live values into the section, or agree with `--with-changes`."
    => "dask-infra adopt gpu_driver --with-changes"

    KeptByOthers "DI0444" "another tool keeps it"
    "Helm, Argo CD or Flux apply this object and will do so again. With two writers each puts its own values back. Take the \
     object out of the other tool as well, or leave it there with `manage = false`. Taking it over needs \
     `--allow take:ADDRESS`."
    => "dask-infra adopt dask_operator --allow take:dask_operator"

    CannotEdit "DI0445" "the stack file cannot be edited"
    "`adopt` takes the line `manage = false` out of a section. Where a variable or another file says it, or the file cannot \
     be written, the edit is left to you: the message says where."

    SchedulerNotAsked "DI0460" "a scheduler that cannot be asked whether it is idle"
    "With `--when-idle` a change that takes Dask workers away asks their scheduler for its count of tasks, through the \
     proxy of the Kubernetes API (`services/proxy`), and waits until there are none. The scheduler's Service is gone, its \
     `/json/counts.json` is switched off, or the right to use the proxy is missing; the message says which. Nothing was \
     changed. Mend it, or apply without `--when-idle` when nobody uses the cluster."

    Sandbox "DI0501" "the sandbox cannot be used"
    "The folder of the sandbox cannot be read or written, or is not being served. The message names the folder \
     and the cause. `dask-infra sandbox reset` deletes its state."
    => "dask-infra doctor          # says who uses the folder\ndask-infra sandbox reset"

    FaultsFile "DI0502" "a mistake in the file of faults"
    "`faults.toml` in the folder of the sandbox, or the file of `--faults`, asks for something that the sandbox \
     does not know. Nothing was started. The keys are in docs/sandbox.md under Faults."

    SandboxInUse "DI0503" "the folder of the sandbox is in use"
    "Another process has it: a command that still runs, or a `sandbox serve`, whose number the message names. \
     Wait for it, stop it, or choose another folder. What is served can be used by many commands at once."

    SandboxDamaged "DI0504" "the folder of the sandbox is damaged"
    "Its state is not what the sandbox wrote: cut off, overwritten, or written by a newer version. There is \
     nothing in it that cannot be made again: `dask-infra sandbox reset` deletes it."

    Credentials "DI0601" "no valid credentials"
    "The API does not know who asks. For Google: `gcloud auth application-default login`, or \
     `GOOGLE_APPLICATION_CREDENTIALS` with a key or a workload identity file. For `[kubernetes]`: the \
     kubeconfig's user."
    => "gcloud auth application-default login\n# or, for a machine:\nexport GOOGLE_APPLICATION_CREDENTIALS=/path/of/key.json"

    Denied "DI0602" "a permission is missing"
    "The API knows who asks and does not allow it. The message names the permission; an administrator of the \
     project or the cluster grants it."
    => "gcloud projects add-iam-policy-binding my-project \\\n  --member user:ada@example.org --role roles/container.admin"

    Quota "DI0603" "the quota does not suffice"
    "The project may not have as many GPUs, CPUs or addresses in the region as the request needs. Ask for more \
     in the console under IAM, Quotas, or use another region or machine type."

    NoAnswer "DI0604" "an API did not take the request"
    "It did not answer, answered with an error of its own, or was busy for longer than is waited for. Nothing is \
     lost: plan again to see what is live, then apply again."

    ApiDisabled "DI0605" "an API is not enabled in the project"
    "Each project of Google Cloud enables the APIs that it uses, once. GKE needs `container.googleapis.com`, which \
     brings Compute Engine along. It takes a minute or two until an API that was enabled answers."
    => "gcloud services enable container.googleapis.com --project my-project"

    NoProject "DI0606" "the project is not there, or not for you"
    "Google Cloud knows no project of this id, or the credentials may not see it; it does not tell the two apart. A \
     project has an id, a name and a number: `[gke] project` is the id."
    => "gcloud projects list\ngcloud config list account"

    Kubeconfig "DI0607" "the kubeconfig cannot be used"
    "A stack of `[kubernetes]` reaches its cluster as kubectl does: by `kubeconfig` of the section, else \
     `$KUBECONFIG`, else `~/.kube/config`, and by `context`, else the current one. The file is not there, is not \
     YAML, or has no such context, cluster or user."
    => "[kubernetes]\nkubeconfig = \"kubeconfig.yaml\"   # from the folder of the stack on\ncontext = \"lab\"                 # kubectl config get-contexts"

    Interception "DI0608" "TLS or a proxy stands in the way"
    "The connection was made and not trusted, or a proxy refused it. Behind a company's proxy, HTTPS_PROXY names it \
     and NO_PROXY what goes around it; a proxy that opens TLS needs its certificate in the system's store \
     (SSL_CERT_FILE names another one)."
    => "export HTTPS_PROXY=http://proxy.example:3128\nexport NO_PROXY=127.0.0.1,localhost"
}
