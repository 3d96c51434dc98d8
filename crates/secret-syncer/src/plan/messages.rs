//! What the condition `Published` and Events say. Each message is `WHAT STATE; WHAT TO DO`.

use osm_api::condition::{PUBLISHED, REASON_UNDONE, Verdict};
use osm_api::{Reason, names};

use crate::model::gathered::{Gathered, Inherited};
use crate::model::source::SourceError;
use crate::model::view::ConfigView;

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
    let message =
        format!("user data is published; credentials expire at {expires} and are renewed before then");
    Verdict {
        type_: PUBLISHED,
        status: true,
        reason: Reason::Published,
        message,
    }
}

pub fn torn_down() -> Verdict {
    not_published(
        REASON_UNDONE,
        "the pool is gone; everything that was published for it is deleted",
    )
}

pub fn values_of_last_time(problem: &SourceError) -> Verdict {
    not_published(
        problem.reason(),
        format!("{problem}; until then the last known values stay in use"),
    )
}

pub fn foreign_secret(name: &str) -> Verdict {
    not_published(Reason::ForeignSecret, foreign_secret_message(name))
}

pub fn foreign_secret_message(name: &str) -> String {
    format!(
        "Secret cloud-init-settings/{name} belongs to another owner and is left unchanged; delete or rename it"
    )
}

pub fn awaiting_rendering() -> Verdict {
    let message = "osc-controller has not rendered this config; see its condition Rendered";
    not_published(Reason::AwaitingRendering, message)
}

pub fn unconfirmed_generation(config: &ConfigView) -> Verdict {
    let until = match &config.status.published {
        Some(published) => {
            format!(
                "; credentials published before expire at {}",
                published.credential_expires
            )
        }
        None => String::new(),
    };
    let message = format!(
        "osc-controller has not confirmed the newest generation of this config; see its condition Rendered{until}"
    );
    not_published(Reason::AwaitingRendering, message)
}

pub fn awaiting_revision() -> Verdict {
    let message = "machine-controller has not set a revision on the MachineDeployment yet; machines can't use a bootstrap Secret \
                   without it";
    not_published(Reason::AwaitingRevision, message)
}

/// The config of the Go implementation is there, and osc-controller can't render it.
pub fn not_taken_over(inherited: Option<&Inherited>) -> Verdict {
    const SEE: &str = "osc-controller has not rendered this config; see its condition Rendered";
    let message = match inherited {
        None => format!("{SEE}. There is no bootstrap Secret, so no machine can boot"),
        Some(Inherited { name, revision }) => {
            let revision = revision
                .as_deref()
                .map(|at| format!(" at revision {at}"))
                .unwrap_or_default();
            format!(
                "{SEE}. Machines boot{revision} from Secret {name}, which another program created. It is left unchanged: \
                 its credentials are not renewed, and their expiry is unknown"
            )
        }
    };
    not_published(Reason::NotTakenOver, message)
}

/// What the API server of a cluster said is worth nothing once it is another cluster.
pub fn cluster_changed(was: &str, is: &str) -> String {
    format!(
        "this was made for another cluster (its kube-system namespace has uid {was}, this one has {is}); nothing is published or \
         deleted. Correct the kubeconfig of that cluster and restart osc-controller and secret-syncer, or delete this object if \
         that cluster is gone for good"
    )
}

/// Only the management cluster through which something was published can know that it is no longer wanted.
pub fn published_through_another_cluster(gathered: &Gathered, pool: &str) -> String {
    format!(
        "objects in cloud-init-settings for pool {pool} were published through another management cluster than the one of \
         --kubeconfig, whose kube-system namespace has uid {}; they are left unchanged. Correct --kubeconfig and restart the \
         services; or, if that cluster is gone for good, delete the Secrets, ServiceAccounts, Roles and RoleBindings with label \
         {}={pool} there",
        gathered.clusters.management,
        names::POOL
    )
}
