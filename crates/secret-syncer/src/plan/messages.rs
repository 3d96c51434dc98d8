//! The messages of the condition `Published` and of Events. Each message is `WHAT STATE; WHAT TO DO`.

use jiff::Timestamp;
use osm_api::condition::{PUBLISHED, REASON_DELETED, Verdict};
use osm_api::{Reason, names};

use crate::model::gathered::Gathered;

pub fn not_published(reason: Reason, message: impl Into<String>) -> Verdict {
    Verdict {
        type_: PUBLISHED,
        status: false,
        reason,
        message: message.into(),
    }
}

/// `expires` is when the credentials expire.
pub fn published(expires: &str) -> Verdict {
    Verdict {
        type_: PUBLISHED,
        status: true,
        reason: Reason::Published,
        message: format!(
            "user data is published; credentials expire at {expires} and are renewed before then"
        ),
    }
}

pub fn torn_down() -> Verdict {
    not_published(
        REASON_DELETED,
        "the pool is gone; everything that was published for it is deleted",
    )
}

pub fn foreign_secret(name: &str) -> String {
    format!(
        "Secret cloud-init-settings/{name} belongs to another owner and is left unchanged; delete it, and create it under another name if it is needed"
    )
}

pub fn waiting_for_rendering() -> Verdict {
    let message = "osc-controller has not rendered this config; see its condition Rendered";
    not_published(Reason::WaitingForRendering, message)
}

/// `problem`: what is wrong, and where.
pub fn unreadable(problem: &str) -> String {
    format!(
        "the OperatingSystemConfig cannot be read: {problem}. osc-controller replaces it if it can render the pool"
    )
}

/// `owner`: the config that the pool has.
pub fn pool_of_another_config(owner: &str) -> String {
    format!(
        "spec.poolRef is the pool of the OperatingSystemConfig {owner}; delete this OperatingSystemConfig"
    )
}

/// `problem`: how it is known, and what to do.
pub fn upstream_osm(problem: &str) -> String {
    format!("nothing new is published beside the upstream Operating System Manager: {problem}")
}

/// `problem`: which fields the definitions lack, and what to do.
pub fn outdated_definitions(problem: &str) -> String {
    format!("new content is not published because of the CustomResourceDefinitions: {problem}")
}

/// `expiry`: when the next document goes.
pub fn too_many_documents(documents: usize, expiry: Option<Timestamp>) -> String {
    let until = expiry
        .map(|at| format!(" (the first at {at})"))
        .unwrap_or_default();
    format!(
        "the pool has {documents} provisioning documents that valid tokens may fetch; new content waits until one of them has \
         expired{until}. Find out what changes the content so often, such as edits of the profile, the settings or an annotation"
    )
}

/// New content is held back, and what is published is renewed and restored meanwhile.
pub fn kept_and_renewed(held: &Verdict) -> Verdict {
    not_published(
        held.reason,
        format!(
            "{}. Until then the published user data is kept and its credentials are renewed",
            held.message
        ),
    )
}

/// New content is held back, and what is published can't be renewed. `expires` is when its credentials
/// expire.
pub fn kept_until(held: &Verdict, expires: &str) -> Verdict {
    not_published(
        held.reason,
        format!(
            "{}. Until then the published user data is kept, but its credentials, which expire at {expires}, can't be renewed: \
             the provisioning Secret is missing, or another version of secret-syncer wrote it",
            held.message
        ),
    )
}

pub fn waiting_for_revision() -> Verdict {
    let message = "machine-controller has not set a revision on the MachineDeployment yet; machines can't use a bootstrap Secret \
                   without it";
    not_published(Reason::WaitingForRevision, message)
}

/// The config of the upstream OSM is there, and osc-controller can't render it.
pub fn not_adopted(config: &str) -> Verdict {
    let bootstrap = names::bootstrap_secret_of(config).unwrap_or_default();
    let message = format!(
        "osc-controller has not rendered this config; see its condition Rendered. Not adopted yet: machines boot only if the upstream \
         OSM has left the Secret {bootstrap}, whose credentials are not renewed"
    );
    not_published(Reason::NotAdopted, message)
}

/// What the API server of a cluster said is worth nothing once it is another cluster.
pub fn cluster_changed(was: &str, is: &str) -> String {
    format!(
        "cluster mismatch: this OperatingSystemConfig belongs to cluster {was}, but the kubeconfig leads to cluster {is} (uids of \
         kube-system); nothing is published or deleted. Correct the kubeconfig, or delete the OperatingSystemConfigs of the other cluster \
         if it no longer exists"
    )
}

/// Only the management cluster through which something was published can know that it is no longer wanted.
pub fn published_through_another_cluster(gathered: &Gathered, pool: &str) -> String {
    format!(
        "objects in cloud-init-settings for pool {pool} were published through another management cluster than the one of \
         --kubeconfig, whose kube-system namespace has uid {}; they are left unchanged. Correct --kubeconfig; or, if that \
         cluster no longer exists, delete the Secrets, ServiceAccounts, Roles and RoleBindings with label {}={pool} there",
        gathered.clusters.management,
        names::POOL
    )
}
