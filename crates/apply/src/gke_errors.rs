//! Reasons why GKE cannot create nodes: one table with their remedies. They are recognized by codes: those of conditions, of
//! `ErrorInfo`, and of Compute Engine's errors in brackets. Words of the message are used only if there is no code. Pure. Source
//! of the codes: googleapis `cluster_service.proto`, `StatusCondition.Code`, and Compute Engine's errors of instances; each row
//! has its source, and tests/data/gke-troubles.json has the texts.

use serde_json::Value;

struct Row {
    /// Codes, of which any matches.
    codes: &'static [&'static str],
    /// Lists of words, of which one must occur completely. In a row with codes, both must match.
    words: &'static [&'static [&'static str]],
    /// The problem, in words.
    what: &'static str,
    /// The remedy. `PROJECT` stands for the project.
    next: &'static str,
}

const QUOTAS: &[&str] = &["GCE_QUOTA_EXCEEDED", "QUOTA_EXCEEDED"];
const STOCK_OUTS: &[&str] = &[
    "GCE_STOCKOUT",
    "STOCKOUT",
    "ZONE_RESOURCE_POOL_EXHAUSTED",
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
    "resource_availability",
];
const ADDRESSES: &[&[&str]] = &[&["in_use_addresses"]];
/// Words of messages about a reservation without free machines, or in another zone.
const RESERVATIONS: &[&[&str]] = &[
    &["specific reservation", "insufficient"],
    &["specified reservation", "does not have available resources"],
    &["reservation", "not found for node pool"],
];

/// The table. The first row that matches counts.
const ROWS: &[Row] = &[
    // hashicorp-education/learn-terraform-provision-gke-cluster 8, GoogleCloudPlatform/cluster-toolkit 3507
    Row {
        codes: &[],
        words: &[&["constraints/compute.requireshieldedvm"]],
        what: "the organization policy compute.requireShieldedVm forbids nodes without secure boot",
        next: "set `secure_boot = true` for the pool, then apply again",
    },
    // The form of the former.
    Row {
        codes: &[],
        words: &[&["constraints/compute.vmexternalipaccess"]],
        what: "the organization policy compute.vmExternalIpAccess forbids nodes with external addresses",
        next: "set `private_nodes = true` under `[cluster]`, then apply again",
    },
    // The form of the former.
    Row {
        codes: &[],
        words: &[&["constraints/gcp.resourcelocations"]],
        what: "the organization policy gcp.resourceLocations forbids this location",
        next: "gcloud org-policies describe gcp.resourceLocations --project PROJECT --effective lists those that it allows",
    },
    // terraform-google-modules/terraform-google-kubernetes-engine 2344
    Row {
        codes: &[],
        words: &[&["constraints/gcp.restrictnoncmekservices"]],
        what: "the organization policy gcp.restrictNonCmekServices asks for keys of your own",
        next: "set `boot_disk_key` for each pool and `secrets_key` under `[cluster]`, then apply again",
    },
    Row {
        codes: &[],
        words: &[&["constraint", "constraints/", "violated"]],
        what: "an organization policy forbids it",
        next: "gcloud org-policies list --project PROJECT lists the policies; an administrator of the organization can change them",
    },
    // hashicorp/terraform-cdk 1964, cloud-foundation-fabric 1644; with details: Privatehive/gcp-hosted-github-runner 7
    Row {
        codes: &["IP_SPACE_EXHAUSTED", "IP_SPACE_EXHAUSTED_WITH_DETAILS"],
        words: &[&["ip space of", "exhausted"]],
        what: "a range of the subnetwork has no addresses left for nodes or Pods",
        next: "gcloud compute networks subnets list --project PROJECT shows the ranges: use a larger one (`pods_range`), or a \
               smaller `max_pods_per_node`",
    },
    // gruntwork-io/terraform-google-gke 62
    Row {
        codes: &[],
        words: &[&["aliasipranges"]],
        what: "the Pods' range is too small for a node",
        next: "use a larger `pods_range`, or a smaller `max_pods_per_node`",
    },
    // fabianlee/gcp-gke-clusters-ingress 2
    Row {
        codes: &[],
        words: &[&["secondary range", "not found"]],
        what: "the subnetwork has no secondary range of this name",
        next: "gcloud compute networks subnets list --project PROJECT --format 'value(name,secondaryIpRanges)' lists them; \
               `pods_range` and `services_range` name one each",
    },
    // gitpod-io/gitpod-gke-guide 21
    Row {
        codes: &[],
        words: &[&["network \"", "does not exist"], &["no route to the default internet gateway"]],
        what: "the network does not exist, or has no route to the internet",
        next: "gcloud compute networks list --project PROJECT lists networks; `network` and `subnetwork` name them",
    },
    // kubernetes-sigs/sig-storage-local-static-provisioner 526
    Row {
        codes: QUOTAS,
        words: ADDRESSES,
        what: "the quota of external addresses of the region is used up",
        next: "set `private_nodes = true`, which needs none, or request more: \
               https://console.cloud.google.com/iam-admin/quotas?project=PROJECT",
    },
    // fastai/course-v3 165
    Row {
        codes: QUOTAS,
        words: &[&["gpus_all_regions"]],
        what: "the project's quota of GPUs in all regions is used up; new projects have 0",
        next: "request more: gcloud beta quotas preferences create --service compute.googleapis.com --project PROJECT \
               --quota-id GPUS-ALL-REGIONS-per-project --preferred-value N, or at \
               https://console.cloud.google.com/iam-admin/quotas?project=PROJECT",
    },
    Row {
        codes: QUOTAS,
        words: &[&["quota", "exceeded"], &["insufficient", "quota"]],
        what: "a quota does not suffice",
        next: "request more quota at https://console.cloud.google.com/iam-admin/quotas?project=PROJECT, or use another region \
               or machine type",
    },
    // GoogleCloudPlatform/gsutil 1000, skypilot-org/skypilot 2352, GoogleCloudPlatform/cluster-toolkit 5043
    Row {
        codes: &[],
        words: RESERVATIONS,
        what: "the reservation has no machines left for this pool, or is not in this zone",
        next: "gcloud compute reservations list --project PROJECT lists reservations with their zones, machines and use",
    },
    // hashicorp/terraform-provider-google 6287; the words of zones: GoogleCloudPlatform/ai-on-gke 849
    Row {
        codes: STOCK_OUTS,
        words: &[&["does not have enough resources available"]],
        what: "the zone is out of these machines",
        next: "use another zone or `spot = true`, or apply again later",
    },
    // GoogleCloudPlatform's StatusCondition.Code; jenkinsci/google-kubernetes-engine-plugin 95
    Row {
        codes: &["GKE_SERVICE_ACCOUNT_DELETED"],
        words: &[&["gke_service_account_deleted"]],
        what: "GKE's own service agent was deleted, or lost its role",
        next: "gcloud services enable container.googleapis.com --project PROJECT brings it back; it needs \
               roles/container.serviceAgent",
    },
    // gruntwork-io/terraform-google-gke 56 (the default account was deleted), viya4-iac-gcp 148
    Row {
        codes: &[],
        words: &[&["service account", "does not exist"]],
        what: "the nodes' service account does not exist; without `service_account` it is the default account of Compute Engine",
        next: "gcloud iam service-accounts list --project PROJECT lists accounts; `service_account` of the pool names one. A new \
               account takes a minute to be known",
    },
    // The role: GKE's page on permissions; the words are from memory.
    Row {
        codes: &["SERVICE_ACCOUNT_ACCESS_DENIED"],
        words: &[
            &["not have access to service account"],
            &["iam.serviceaccounts.actas"],
            &["iam.serviceaccountuser"],
        ],
        what: "these credentials may not use the nodes' service account",
        next: "gcloud iam service-accounts add-iam-policy-binding ACCOUNT --project PROJECT --member user:YOU --role \
               roles/iam.serviceAccountUser",
    },
    Row {
        codes: &["NODE_SERVICE_ACCOUNT_MISSING_PERMISSIONS"],
        words: &[&["node service account is missing permissions"]],
        what: "the nodes' service account lacks its role",
        next: "gcloud projects add-iam-policy-binding PROJECT --member serviceAccount:ACCOUNT --role \
               roles/container.defaultNodeServiceAccount",
    },
    // hashicorp/terraform-provider-google 15415
    Row {
        codes: &["CLOUD_KMS_KEY_ERROR", "CLOUD_KMS_KEY_DESTROYED"],
        words: &[&["cloudkms.cryptokeyversions"], &["kms", "key", "not accessible"]],
        what: "GKE or Compute Engine may not use the key, or the key is disabled or destroyed",
        next: "gcloud kms keys add-iam-policy-binding KEY --keyring RING --location LOCATION --member \
               serviceAccount:service-NUMBER@compute-system.iam.gserviceaccount.com --role \
               roles/cloudkms.cryptoKeyEncrypterDecrypter; for `secrets_key` \
               service-NUMBER@container-engine-robot.iam.gserviceaccount.com",
    },
    // hashicorp/terraform-provider-google 16559
    Row {
        codes: &["PERMISSIONS_ERROR"],
        words: &[],
        what: "the nodes' service account is disabled, or Google's service agent may not create machines",
        next: "gcloud iam service-accounts list --project PROJECT shows disabled accounts; `service_account` of each pool names \
               another one",
    },
    // terraform-google-modules/terraform-google-kubernetes-engine 649
    Row {
        codes: &[],
        words: &[&["nodes out of", "have registered"]],
        what: "machines run, but are no nodes of the cluster: they do not reach its control plane, or cannot pull GKE's images",
        next: "private nodes need Private Google Access on the subnetwork, and Cloud NAT for images from elsewhere; gcloud compute \
               instances get-serial-port-output shows what a machine says",
    },
    // hashicorp/terraform-provider-google 4180
    Row {
        codes: &[],
        words: &[&["deploypatch failed"]],
        what: "GKE could not update the control plane",
        next: "apply again; if it fails again, ask Google's support",
    },
];

/// GKE's message about something that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GkeError {
    pub text: String,
    pub codes: Vec<String>,
}

impl GkeError {
    /// Creates the error from a message, with the codes in it.
    pub fn from_text(text: impl Into<String>) -> Self {
        let text = text.into();
        let codes = bracketed(&text);
        Self { text, codes }
    }

    /// Adds the codes in the JSON of an operation, an error, a cluster or a pool.
    #[must_use]
    pub fn with_codes_of(mut self, gke_error: &Value) -> Self {
        let lists = ["conditions", "clusterConditions", "nodepoolConditions"].map(|list| &gke_error[list]);
        let details = [&gke_error["details"], &gke_error["error"]["details"]];
        let listed = |list: &Value, key: &str| -> Vec<String> {
            let entries = list.as_array().into_iter().flatten();
            entries.filter_map(|entry| entry[key].as_str()).map(str::to_owned).collect()
        };
        self.codes.extend(lists.iter().flat_map(|list| listed(list, "code")));
        self.codes.extend(details.iter().flat_map(|list| listed(list, "reason")));
        self
    }

    /// Returns true if another capacity option or another zone may have machines: these are out of stock, or a quota of machines
    /// is exceeded. A quota of addresses applies to all options.
    pub fn lacks_machines(&self) -> bool {
        let Some(Row { codes, words, .. }) = find(self) else { return false };
        let of_machines = *codes == QUOTAS && *words != ADDRESSES;
        *codes == STOCK_OUTS || *words == RESERVATIONS || of_machines
    }
}

/// Returns Compute Engine's error codes in a text: `[GCE_STOCKOUT]`.
fn bracketed(text: &str) -> Vec<String> {
    let inside = text.split('[').skip(1).filter_map(|rest| rest.split_once(']'));
    let is_code = |word: &&str| {
        !word.is_empty()
            && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    };
    inside.map(|(word, _)| word).filter(is_code).map(str::to_owned).collect()
}

/// Returns the cause and the next command as one text.
pub fn remedy(gke_error: &GkeError, project: &str) -> Option<String> {
    let Row { what, next, .. } = find(gke_error)?;
    Some(format!("{what}: {}", next.replace("PROJECT", project)))
}

fn find(gke_error: &GkeError) -> Option<&'static Row> {
    let text = gke_error.text.to_ascii_lowercase();
    let all = |words: &&&[&str]| words.iter().all(|word| text.contains(word));
    let coded = |row: &&Row| row.codes.iter().any(|code| gke_error.codes.iter().any(|found| found == code));
    // A narrower row stands above, so a code with the words of one comes before the code alone.
    let narrow =
        |row: &&Row| coded(row) && (row.words.is_empty() || row.words.iter().any(|words| all(&words)));
    let worded = |row: &&Row| row.words.iter().any(|words| all(&words));
    let by_code = || ROWS.iter().filter(|row| !row.codes.is_empty());
    by_code().find(narrow).or_else(|| ROWS.iter().find(worded)).or_else(|| by_code().rfind(coded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_has_its_cause_and_its_command() {
        let rows: Vec<Value> =
            serde_json::from_str(include_str!("../../../tests/data/gke-troubles.json")).unwrap();
        let mut met = std::collections::BTreeSet::new();
        for row in &rows {
            let text = |key: &str| row[key].as_str().unwrap();
            let gke_error = GkeError::from_text(text("text")).with_codes_of(&row["told"]);
            let found = remedy(&gke_error, "p-1").unwrap_or_default();
            assert!(found.contains(text("what")), "{}: {found}", text("why"));
            assert!(found.contains(text("next")), "{}: {found}", text("why"));
            met.extend(find(&gke_error).map(|row| row.what));
        }
        let without: Vec<&str> = ROWS.iter().map(|row| row.what).filter(|what| !met.contains(what)).collect();
        assert!(without.is_empty(), "rows without a case: {without:?}");
        assert_eq!(remedy(&GkeError::from_text("Internal error."), "p"), None);
    }

    #[test]
    fn another_way_helps_where_machines_are_lacking() {
        let cases = [
            ("Current errors: [GCE_STOCKOUT]: Instance 'i' creation failed", true),
            ("The zone 'z' does not have enough resources available to fulfill the request.", true),
            ("Insufficient regional quota to satisfy request: resource \"NVIDIA_T4_GPUS\"", true),
            ("[GCE_QUOTA_EXCEEDED]: Quota 'GPUS_ALL_REGIONS' exceeded.  Limit: 0.0 globally.", true),
            (
                "Specified reservation 'projects/1/reservations/r' does not have available resources for the request.",
                true,
            ),
            ("Google Compute Engine: reservation \"r\" not found for node pool \"np\" at zone \"z\".", true),
            ("[GCE_QUOTA_EXCEEDED]: Quota 'IN_USE_ADDRESSES' exceeded.  Limit: 8.0 in region R.", false),
            ("[IP_SPACE_EXHAUSTED]: no addresses", false),
            ("DeployPatch failed", false),
            ("Internal error.", false),
        ];
        for (text, lacks) in cases {
            assert_eq!(GkeError::from_text(text).lacks_machines(), lacks, "{text}");
        }
    }
}
