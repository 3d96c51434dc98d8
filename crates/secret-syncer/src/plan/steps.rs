//! The plan: what `apply` does, or why there is no plan. `apply` fills in only what it has yet to read, by
//! pure functions of `plan`.

use std::sync::Arc;
use std::time::Duration;

use osm_api::Reason;
use osm_api::condition::Verdict;
use osm_api::config::Published;

use crate::model::existing::ExistingObjects;
use crate::model::existing::Ownership;
use crate::model::record::Record;
use crate::model::view::SecretView;
use crate::plan::content::Wanted;
use crate::plan::findings::Finding;

pub struct Plan {
    /// For the pool of the config.
    pub step: Step,
    /// For pools whose config does not exist.
    pub orphans: Vec<Orphan>,
    /// What belongs to another cluster and is therefore left alone.
    pub foreign_cluster: Option<String>,
    /// Replaces the verdict of every status that this plan writes.
    pub degraded: Option<Verdict>,
    /// Requeue after this time, though nothing changes.
    pub requeue_after: Option<Duration>,
}

impl Plan {
    /// For the pool of the config alone.
    pub fn of(step: Step, requeue_after: Option<Duration>) -> Self {
        Self {
            step,
            orphans: Vec::new(),
            foreign_cluster: None,
            degraded: None,
            requeue_after,
        }
    }
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(
        "published objects are altered repeatedly ({}); look for what changes Secrets, Roles or ServiceAccounts in cloud-init-settings, such as a mutating webhook", .0.message
    )]
    RepeatedlyModified(Finding),
    /// New content is held back, and nothing is published.
    #[error("{}", .0.message)]
    Held(Verdict),
}

impl PlanError {
    /// Reason for conditions, Events and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::RepeatedlyModified(_) => Reason::RepeatedlyModified,
            Self::Held(verdict) => verdict.reason,
        }
    }
}

#[derive(Debug)]
pub enum Step {
    /// There is no config, or it is another controller's turn.
    None,
    /// The status says why nothing can be published; what was published stays.
    SetStatus(Verdict),
    /// Everything exists as it should; old documents may have to go, and the status may have to be corrected.
    Keep(Keep),
    /// Fetch the content, and publish it unless exactly this is published already.
    Publish(Box<Publish>),
    /// The pool is gone: delete everything that was ever made for this config.
    Teardown {
        /// What the watches show, by pool.
        objects: Vec<ExistingObjects>,
        /// The watches may not show all that the pool has: an object lost the label or annotation by which
        /// they find it, they lag, or the pool was never published whole. The API server is asked for all.
        is_listed: bool,
    },
}

#[derive(Debug)]
pub struct Keep {
    /// Provisioning Secrets that no living token may fetch, and the script of a pool that is no longer an
    /// edge pool: deleted.
    pub outdated: Vec<Arc<SecretView>>,
    /// The Role is to open exactly these Secrets afterwards; `None`: it does already, or there is none.
    pub opened: Option<Vec<String>>,
    /// As [`Publish::out_of_sight`].
    pub out_of_sight: Vec<String>,
    pub ownership: Ownership,
    /// `None`: the bootstrap Secret does not hold what the status needs.
    pub published: Option<Published>,
}

#[derive(Clone, Debug)]
pub struct Publish {
    pub findings: Vec<Finding>,
    pub wanted: Wanted,
    /// Publish nothing where the provisioning Secret that is recorded here holds exactly what would be
    /// published.
    pub compare: Option<Record>,
    pub ownership: Ownership,
    /// Names of Secrets that the Role opens besides the document: those that stay because a living token may
    /// fetch them, and the kubeconfig Secret that is about to be written.
    pub kept: Vec<String>,
    /// Why the pool may not get one more of them for new content.
    pub too_many_documents: Option<String>,
    /// Names of documents that the watch does not show though tokens may fetch them. Each that exists is
    /// labelled again, and everything is then gathered again.
    pub out_of_sight: Vec<String>,
}

/// What exists for a pool that has no config.
#[derive(Debug)]
pub struct Orphan {
    pub pool: String,
    pub objects: ExistingObjects,
    /// The MachineDeployment that all of them were made for; `None`: they do not say which.
    pub owner: Option<Owner>,
}

/// A MachineDeployment.
#[derive(Debug, PartialEq, Eq)]
pub struct Owner {
    pub namespace: String,
    pub name: String,
}
