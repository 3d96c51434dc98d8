//! The runbook of each reason: the page in `docs/runbooks` that covers it, and what to look at there.
//!
//! A new reason is one line in [`Reason::section`]. `cargo xtask reasons` writes the sections of the pages and their list from it.
//! It fails if a page does not exist, or has no place for sections.

use strum::{EnumIter, IntoEnumIterator, IntoStaticStr};

use crate::Reason;

/// A page in `docs/runbooks`. Each alert has a page of its name; reasons share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Runbook {
    AdmissionCertificateExpires,
    ApiErrors,
    CredentialsExpireSoon,
    CredentialsNotRenewed,
    JoiningDenied,
    JoiningOpen,
    JoiningOpenUnknown,
    MachineApprovedAgain,
    MachinesDoNotJoin,
    MachinesWaitToJoin,
    ObjectUndecodable,
    Panic,
    PoolNotPublished,
    PoolNotRendered,
    ProfileNotAccepted,
    ReconcilesFail,
    ReplicasDisagree,
    ServiceDown,
    ServiceNotReady,
    SettingsInvalid,
    UserDataNearLimit,
}

impl Runbook {
    /// Every page, in alphabetical order.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::iter()
    }

    /// Name of the file, without `.md`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Name of the alert that the page is for.
    pub fn alert(self) -> String {
        format!("OSM{self:?}")
    }
}

/// Where a reason is covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// The page. The section has the reason as its heading.
    pub runbook: Runbook,
    /// What to look at, in Markdown.
    pub look_at: &'static str,
}

const PROFILE: &str = "`kubectl describe osp` shows the message of a profile, and `osmctl status POOL` that of a pool. \
    `osmctl lint` finds the same in the file of the profile.";
const LATE_BOUND: &str =
    "The message names the document and the late-bound value, but never the value itself.";
const CUSTOM_PROFILE: &str =
    "`kubectl describe customoperatingsystemprofiles -A` shows the Event with the message.";
const MACHINE_DEPLOYMENT: &str =
    "`osmctl status POOL` shows the message. Compare its path with the MachineDeployment.";
const BOTH_NAMES: &str = "The Event on the MachineDeployment names both MachineDeployments.";
const OF_POOL: &str =
    "`kubectl describe machinedeployments.cluster.k8s.io` shows the Event with the message.";
const SOURCE: &str = "The message of `Published` names the field, the object and its key.";
const MACHINES: &str = "Compare `kubectl get csr` with `kubectl get machines.cluster.k8s.io -A -o wide`.";
const REQUESTER: &str =
    "`kubectl get csr -o wide` shows the requester, which is the ServiceAccount of a pool.";
const WRITERS: &str = "`kubectl get --show-managed-fields -o yaml` lists the clients that wrote an object.";
const READINESS: &str =
    "The log of the service and its `/readyz` name what is missing, and in which cluster.";
const NOTHING: &str = "Nothing.";

impl Reason {
    /// The section of a runbook that covers this reason.
    pub fn section(self) -> Section {
        use Runbook as R;
        let (runbook, look_at) = match self {
            Self::Accepted => (R::ProfileNotAccepted, NOTHING),
            Self::ParentNotFound | Self::ParentNotAccepted | Self::ExtendsInvalid => (
                R::ProfileNotAccepted,
                "`kubectl get osp -A` shows the profile that the message names, and whether it is accepted.",
            ),
            Self::ContentTooLarge
            | Self::ModulesInvalid
            | Self::ProfileInvalid
            | Self::ReservedText
            | Self::TemplateFailed
            | Self::TemplateInvalid
            | Self::UserDataInvalid => (R::ProfileNotAccepted, PROFILE),
            Self::LateBoundValueMissing | Self::LateBoundValueNotRaw | Self::UnknownMarker => {
                (R::ProfileNotAccepted, LATE_BOUND)
            }
            Self::CustomProfileCopied
            | Self::CustomProfileInvalid
            | Self::CustomProfileNameTaken
            | Self::CustomProfileVersionUnchanged => (R::ProfileNotAccepted, CUSTOM_PROFILE),
            Self::DefaultProfileRestored => (
                R::ProfileNotAccepted,
                "`kubectl describe osp` shows the Event with the version that osp-controller replaced.",
            ),
            Self::ValidationPanicked => (
                R::ProfileNotAccepted,
                "The log of osp-controller has the place of the defect.",
            ),

            Self::Rendered => (
                R::PoolNotRendered,
                "`osmctl status POOL` shows the message, which also contains warnings and refused edits.",
            ),
            Self::Retired => (R::PoolNotRendered, NOTHING),
            Self::WaitingForRevision => (
                R::PoolNotRendered,
                "The Deployment, the pods and the log of machine-controller.",
            ),
            Self::WaitingForThread => (
                R::PoolNotRendered,
                "The log of osc-controller names the pools whose reconciles exceed their time limit.",
            ),
            Self::WaitingForProfile | Self::ProfileNotAccepted => (
                R::PoolNotRendered,
                "`kubectl get osp -A` shows whether the newest version of the profile is accepted.",
            ),
            Self::ProfileNotFound => (
                R::PoolNotRendered,
                "Compare the message with `kubectl get osp -A` and with the annotations of the MachineDeployment.",
            ),
            Self::UnsupportedCloudProvider
            | Self::UnsupportedOperatingSystem
            | Self::UnsupportedProvisioningUtility => (
                R::PoolNotRendered,
                "The message names what the profile supports, and what the pool has.",
            ),
            Self::HostNameUnpredictable | Self::InvalidKubeletSettings => (
                R::PoolNotRendered,
                "The message names the field of the settings. `osmctl lint` checks a settings document.",
            ),
            Self::InvalidAnnotation
            | Self::InvalidKubeletVersion
            | Self::InvalidOperatingSystemSpec
            | Self::InvalidProviderSpec
            | Self::UnknownCloudProvider
            | Self::UnknownOperatingSystem
            | Self::UnsupportedNetwork => (R::PoolNotRendered, MACHINE_DEPLOYMENT),
            Self::PoolSettingsInvalid | Self::PoolSettingsMissing => (
                R::PoolNotRendered,
                "The annotation `operatingsystemmanager.k8c.io/settings` of the MachineDeployment, and the ConfigMap that it names.",
            ),
            Self::TooManySources => (
                R::PoolNotRendered,
                "`containerd.registries` in the settings of the installation and of the pool.",
            ),
            Self::EndpointUnknown => (
                R::PoolNotRendered,
                "`kubectl get configmap cluster-info -n kube-public` and the EndpointSlices of the Service `kubernetes`.",
            ),
            Self::ClusterChanged => (
                R::PoolNotRendered,
                "Compare the uid in the message with `kubectl get namespace kube-system -o yaml` of both clusters.",
            ),
            Self::NamespaceNotServed | Self::NameTooLong | Self::FinalizerLeftBehind => {
                (R::PoolNotRendered, OF_POOL)
            }
            Self::NameConflict => (R::PoolNotRendered, BOTH_NAMES),
            Self::TooManyMachineDeployments => (
                R::PoolNotRendered,
                "`kubectl get machinedeployments.cluster.k8s.io -A` lists all MachineDeployments.",
            ),

            Self::Published | Self::Deleted => (R::PoolNotPublished, NOTHING),
            Self::WaitingForRendering | Self::NotAdopted => (
                R::PoolNotPublished,
                "The condition `Rendered` of the same object. `osmctl status POOL` shows it.",
            ),
            Self::ContentModified | Self::RepeatedlyModified => (R::PoolNotPublished, WRITERS),
            Self::ForeignSecret => (
                R::PoolNotPublished,
                "The labels of the Secret that the message names, and the clients that wrote it.",
            ),
            Self::GoImplementationRunning => (
                R::PoolNotPublished,
                "`kubectl get lease operating-system-manager --namespace kube-system` shows who holds the Lease, and when it was renewed.",
            ),
            Self::NamespaceMissing => (
                R::PoolNotPublished,
                "`kubectl get namespace cloud-init-settings` in the worker cluster.",
            ),
            Self::NodePermissionMissing => (
                R::PoolNotPublished,
                "The Roles, the RoleBindings and the ServiceAccounts in `cloud-init-settings`.",
            ),
            Self::BootstrapTokenForbidden | Self::JoiningConflict => (
                R::PoolNotPublished,
                "`credentials.nodeBootstrap.kind` in the settings, and the values of the release.",
            ),
            Self::SourceIncomplete
            | Self::SourceMissing
            | Self::SourceNotAllowed
            | Self::SourceUnreadable => (R::PoolNotPublished, SOURCE),
            Self::TooManyDocuments => (
                R::PoolNotPublished,
                "The log of secret-syncer has one line for each publication, with its cause.",
            ),
            Self::NonExpiringToken => (
                R::JoiningOpen,
                "`kubectl get events -n cloud-init-settings` shows the Secret and whether machines still need it.",
            ),

            Self::UserDataTooLarge => (
                R::UserDataNearLimit,
                "The message has the size and the limit. `osmctl show` lists the files of the bootstrap document.",
            ),
            Self::SettingsMissing => (R::SettingsInvalid, READINESS),
            Self::NodeclientBindingFound => (
                R::JoiningOpen,
                "The command in the message lists the bindings to look at.",
            ),
            Self::ObjectUnreadable => (
                R::ObjectUndecodable,
                "The message has the path of the field that cannot be read.",
            ),
            Self::DefinitionsOutdated | Self::FieldsDropped => (
                R::ServiceNotReady,
                "The log names the CustomResourceDefinition and the fields that it lacks.",
            ),
            Self::Forbidden => (R::ApiErrors, READINESS),
            Self::RequestFailed => (
                R::ApiErrors,
                "The message has the request and its error. `osm_api_requests_total` counts requests by code.",
            ),
            Self::Conflict => (R::ReconcilesFail, NOTHING),
            Self::Timeout => (R::ReconcilesFail, "The log of the service names the object."),
            Self::Panic => (
                R::Panic,
                "The log of the service has the object, and the place of the defect.",
            ),

            Self::PoolMachine => (R::MachinesWaitToJoin, NOTHING),
            Self::AddressNotRecorded
            | Self::AlreadyApproved
            | Self::MachineDeleting
            | Self::MachineHasNode
            | Self::MachineNotFound
            | Self::MachineNotUnique
            | Self::RequestOlderThanMachine
            | Self::RequestOrderUnknown => (R::MachinesWaitToJoin, MACHINES),
            Self::MachineNotInPool => (
                R::MachinesWaitToJoin,
                "The owner references of the Machine and of its MachineSet.",
            ),
            Self::NodeExists => (
                R::MachinesWaitToJoin,
                "`kubectl get nodes` shows the Node. A Node without a Machine is left from a former machine.",
            ),
            Self::NodeNameUnverified => (
                R::MachinesWaitToJoin,
                "`kubectl get csr` shows the name in the request. Compare it with your machines.",
            ),
            Self::PoolNotFound => (R::MachinesWaitToJoin, REQUESTER),
            Self::ApprovedAgain => (
                R::MachineApprovedAgain,
                "`kubectl get csr` shows both requests for about an hour.",
            ),
            Self::ForeignMachine
            | Self::RequestUnreadable
            | Self::SubjectNotAllowed
            | Self::UsagesNotAllowed => (R::JoiningDenied, REQUESTER),
        };
        Section { runbook, look_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_name_of_its_alert() {
        assert_eq!(Runbook::PoolNotPublished.name(), "pool-not-published");
        assert_eq!(Runbook::PoolNotPublished.alert(), "OSMPoolNotPublished");
        let names: Vec<&str> = Runbook::all().map(Runbook::name).collect();
        assert!(names.is_sorted(), "{names:?}");
    }
}
