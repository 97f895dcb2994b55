//! Reasons for a change that its fields do not show.

use std::fmt;

use serde::{Deserialize, Serialize};

use model::address::Address;
use model::record::Stop;
use model::resource::Action;

/// One reason; a change may have several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// `--replace` names it.
    Requested,
    /// It is foreign, and nothing else changes.
    WouldBeAdopted,
    /// Other stacks use it, and this one joins them.
    Shared(OtherStacks),
    /// Somebody has already deleted the live resource, and it is terminating.
    BeingDeleted,
    /// It is deleted with its parent and desired again.
    RecreatedWith(Address),
    /// It is a run-once resource, and it is unknown if it has run.
    MayHaveRun(RunUnknown),
    /// GKE reports the status ERROR for a pool or a cluster, with these conditions.
    InError {
        conditions: String,
    },
    /// Objects that an operator creates for it are missing or surplus.
    #[serde(rename = "amiss")]
    Defect(String),
    CreatedWithCluster,
    DeletedWithCluster,
    DeletedWith(Address),
    /// It is deleted with its parent, although other stacks use it, too.
    TakenFromUsers {
        #[serde(rename = "users")]
        other_stacks: OtherStacks,
        with: Parent,
    },
    /// It is released: only this stack's ownership ends.
    Released(OtherStacks),
    /// The file says that it is managed elsewhere.
    #[serde(rename = "handed_over")]
    ManagedElsewhere,
    /// Other stacks have applied it, although only one can have it.
    Contested(OtherStacks),
    /// The record names it, and another tool removed this stack's field manager from it.
    #[serde(rename = "unmarked")]
    OwnershipRemoved,
    /// It is foreign, and is deleted with its parent.
    #[serde(rename = "stranger")]
    ForeignIn(Parent),
    /// A foreign namespace that is deleted with the cluster: some of its objects, and the number of the remaining ones.
    #[serde(rename = "strangers_home")]
    ForeignNamespace {
        named: Vec<String>,
        more: usize,
    },
    /// It is foreign, and attached to a DaskCluster that is deleted.
    AttachedTo {
        cluster: String,
    },
    /// Foreign work in a queue that is deleted.
    InQueue {
        queue: String,
        admitted: bool,
    },
    NoLongerInFile,
    /// Its section is in the file, and no longer creates it.
    NoLongerInSection,
    /// The request ended before its workers were created, so it is made again.
    #[serde(rename = "asked_again")]
    RequestedAgain {
        end: String,
    },
    /// The deleted workers used up the nodes of a request; the new workers need a new one.
    #[serde(rename = "nodes_used")]
    NodesConsumed,
    /// It is a request for nodes whose workers are deleted, or the PodTemplate of such a request.
    #[serde(rename = "of_workers_before")]
    FormerWorkersRequest,
    /// It is the PodTemplate of a request that is kept.
    #[serde(rename = "named_by_request")]
    TemplateOfKeptRequest,
    /// It has files that something which stays was started with.
    FilesInUse {
        by: String,
    },
    /// It has files that nothing uses after this plan.
    UnusedFiles,
    /// It is the pod of a check that was interrupted.
    LeftByEarlierRun,
    /// It belongs to the Dask operator, which a foreign Dask object still needs.
    OperatorNeeded {
        by: String,
    },
    /// It is the namespace of an operator that stays.
    HoldsNeededOperator {
        by: String,
    },
    /// The change waits for an idle Dask scheduler, at most these seconds.
    WaitsUntilIdle {
        seconds: u32,
    },
    /// It is created by the first of these options that has machines.
    #[serde(rename = "ways")]
    CapacityOrder(Vec<String>),
    /// `--retry-capacity`: tries options before its current one.
    #[serde(rename = "tries_again")]
    RetriesCapacity {
        on: String,
    },
    /// An apply was interrupted before it could try the next option: nothing has ever run on this pool.
    NoMachines {
        by: String,
    },
    /// No process of the Dask cluster runs on its hosts: they did not start, or have ended.
    NothingRuns,
    /// The file no longer has the option that it was created by.
    #[serde(rename = "other_ways")]
    CapacityOptionRemoved,
    /// Its nodes are deleted first: GKE switches queued provisioning on for an empty pool only.
    Emptied,
    /// It is stopped for now.
    Stopped(Stop),
    /// This command stops it.
    WillBeStopped,
    /// It was stopped, and this plan starts it.
    Started,
    /// A check runs again because something that it depends on changes.
    #[serde(rename = "disturbed")]
    DependencyChanged(Address, Action),
    /// The check has changed since it passed.
    CheckChanged,
    NotPassed,
    /// No record is kept if the stack manages nothing.
    PassesNotRecorded,
}

/// Other stacks that use a resource: `stack rapids`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OtherStacks(pub Vec<String>);

/// Reasons why it is unknown if a run-once resource has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunUnknown {
    Interrupted,
    RecordMissing,
}

/// Parents whose deletion deletes foreign resources, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parent {
    Cluster,
    #[serde(rename = "definition")]
    Crd,
    Namespace,
    Node,
    /// The node of a pod of a Job.
    #[serde(rename = "node_of_run")]
    NodeOfJob,
    Named(Address),
}

impl Reason {
    /// Returns true if the deletion loses no data.
    pub fn loses_no_data(&self) -> bool {
        matches!(
            self,
            Self::NoMachines { .. } | Self::RequestedAgain { .. } | Self::NodesConsumed | Self::NothingRuns
        )
    }

    /// Returns true if the object does not show that only this stack owns it: then `destroy` needs approval by address.
    pub fn has_unclear_owner(&self) -> bool {
        matches!(self, Self::Contested(_) | Self::OwnershipRemoved)
    }

    /// Returns true if the deletion follows from another change that is approved already.
    pub fn needs_no_own_approval(&self) -> bool {
        matches!(self, Self::FormerWorkersRequest | Self::UnusedFiles)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested => f.write_str("as requested"),
            Self::WouldBeAdopted => f.write_str("it would be adopted"),
            Self::Shared(other_stacks) => write!(f, "{other_stacks}; this stack shares it"),
            Self::BeingDeleted => f.write_str("it is being deleted, then recreated"),
            Self::RecreatedWith(owner) => write!(f, "deleted with {owner}, then recreated"),
            Self::MayHaveRun(why) => write!(f, "it may have run before: {why}"),
            Self::InError { conditions } => write!(f, "its status is ERROR{conditions}"),
            Self::Defect(why) => f.write_str(why),
            Self::CreatedWithCluster => f.write_str("created with the cluster"),
            Self::DeletedWithCluster => f.write_str("deleted with the cluster"),
            Self::DeletedWith(parent) => write!(f, "deleted with {parent}"),
            Self::TakenFromUsers { other_stacks, with } => {
                write!(f, "{other_stacks}, and it would be deleted with {with}")
            }
            Self::Released(other_stacks) => {
                write!(f, "{other_stacks}: it is not deleted, only released by this stack")
            }
            Self::ManagedElsewhere => {
                f.write_str("`manage = false`: it stays as it is, without this stack's marks")
            }
            Self::Contested(other_stacks) => write!(f, "{other_stacks}, and it would be deleted"),
            Self::OwnershipRemoved => {
                f.write_str("this stack created it, and others removed the stack's field manager from it")
            }
            Self::ForeignIn(parent) => {
                write!(f, "not created by this stack, and it would be deleted with {parent}")
            }
            Self::ForeignNamespace { named, more } => {
                write!(f, "{}", Self::ForeignIn(Parent::Cluster))?;
                match (named.as_slice(), more) {
                    ([], _) => Ok(()),
                    (named, 0) => write!(f, ", with {}", named.join(", ")),
                    (named, more) => write!(f, ", with {} and {more} more", named.join(", ")),
                }
            }
            Self::AttachedTo { cluster } => write!(
                f,
                "not created by this stack; attached to DaskCluster {cluster}, and it would be deleted with it"
            ),
            Self::InQueue { queue, admitted: true } => write!(
                f,
                "not created by this stack; it runs in queue {queue}, and Kueue keeps the queue until it has ended"
            ),
            Self::InQueue { queue, admitted: false } => {
                write!(f, "not created by this stack; it waits in queue {queue}, and would wait forever")
            }
            Self::NoLongerInSection => f.write_str("its section no longer asks for it"),
            Self::NoLongerInFile => f.write_str("no longer in the stack file"),
            Self::RequestedAgain { end } => {
                write!(
                    f,
                    "its nodes are requested again, at the end of the queue; before, the request ended: {end}"
                )
            }
            Self::NodesConsumed => {
                f.write_str("nodes of a request are not used twice, so they are requested anew")
            }
            Self::FormerWorkersRequest => f.write_str("of the workers before"),
            Self::TemplateOfKeptRequest => f.write_str("a request that stays was made with it"),
            Self::FilesInUse { by } => write!(f, "{by} was started with these files"),
            Self::UnusedFiles => f.write_str("nothing uses these files any more"),
            Self::LeftByEarlierRun => f.write_str("left by an earlier run"),
            Self::OperatorNeeded { by } => {
                write!(f, "{by}, which is not in this stack, needs it: not deleted")
            }
            Self::HoldsNeededOperator { by } => {
                write!(f, "the operator in it stays: {by}, which is not in this stack, needs it")
            }
            Self::WaitsUntilIdle { seconds } => {
                write!(f, "waits until it is idle, at most {}", Duration(*seconds))
            }
            Self::CapacityOrder(options) => {
                write!(f, "tried in this order until there are machines: {}", options.join(", "))
            }
            Self::RetriesCapacity { on } => {
                write!(
                    f,
                    "it has machines by {on}; --retry-capacity deletes it and begins with the first way"
                )
            }
            Self::NoMachines { by } => {
                write!(
                    f,
                    "an earlier apply ended here: there were no machines by {by}, and nothing ever ran on it"
                )
            }
            Self::CapacityOptionRemoved => {
                f.write_str("`capacity` no longer has the way that it was created by")
            }
            Self::Emptied => f.write_str(
                "all its nodes are deleted first: GKE enables queued provisioning on an empty pool only",
            ),
            Self::NothingRuns => f.write_str("nothing of it runs, so nothing is lost"),
            Self::Stopped(stop) => stop.fmt(f),
            Self::WillBeStopped => f.write_str("will be stopped"),
            Self::Started => f.write_str("stopped until now"),
            Self::DependencyChanged(address, Action::Create) => write!(f, "{address} is created"),
            Self::DependencyChanged(address, Action::Replace) => write!(f, "{address} is replaced"),
            Self::DependencyChanged(address, _) => write!(f, "{address} is updated"),
            Self::CheckChanged => f.write_str("it changed since it passed"),
            Self::NotPassed => f.write_str("it has not passed yet"),
            Self::PassesNotRecorded => f.write_str("passes are not recorded where nothing is managed"),
        }
    }
}

/// `stack a uses it too`, `stack a, stack b use it too`.
impl fmt::Display for OtherStacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.0.len() == 1 { "uses" } else { "use" };
        write!(f, "{} {verb} it too", self.0.join(", "))
    }
}

impl fmt::Display for RunUnknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interrupted => "an apply was interrupted while creating it, or the record of it is lost",
            Self::RecordMissing => "the record of earlier applies is missing",
        })
    }
}

impl fmt::Display for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("the cluster"),
            Self::Crd => f.write_str("the definition of its kind"),
            Self::Namespace => f.write_str("its namespace"),
            Self::Node => f.write_str("its node, and no controller recreates it"),
            Self::NodeOfJob => f.write_str("its node, which its Job counts as a failure"),
            Self::Named(address) => address.fmt(f),
        }
    }
}

/// `4h`, `90m`, `45s`.
struct Duration(u32);

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            seconds if seconds.is_multiple_of(3600) => write!(f, "{}h", seconds / 3600),
            seconds if seconds.is_multiple_of(60) => write!(f, "{}m", seconds / 60),
            seconds => write!(f, "{seconds}s"),
        }
    }
}
