//! Every reason that a condition, an Event or a metric may carry: one closed table.
//!
//! A new reason is one variant and one row. `cargo xtask reasons` writes `docs/reasons.md`.

use std::fmt;

use strum::{EnumIter, IntoEnumIterator, IntoStaticStr};

/// Why an object is in the state that a condition, an Event or a metric reports. Users and alerts depend on the names, so a
/// variant is never renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EnumIter, IntoStaticStr)]
#[allow(missing_docs)]
pub enum Reason {
    Accepted,
    AddressNotRecorded,
    AlreadyApproved,
    ApprovedAgain,
    ClusterChanged,
    Conflict,
    ContentModified,
    ContentTooLarge,
    CustomProfileCopied,
    CustomProfileInvalid,
    CustomProfileNameTaken,
    CustomProfileVersionUnchanged,
    DefaultProfileRestored,
    DefinitionsOutdated,
    Deleted,
    EndpointUnknown,
    ExtendsInvalid,
    FieldsDropped,
    FinalizerLeftBehind,
    Forbidden,
    ForeignMachine,
    ForeignSecret,
    GoImplementationRunning,
    HostNameUnpredictable,
    InvalidAnnotation,
    InvalidKubeletSettings,
    InvalidKubeletVersion,
    InvalidOperatingSystemSpec,
    InvalidProviderSpec,
    LateBoundValueMissing,
    LateBoundValueNotRaw,
    MachineDeleting,
    MachineHasNode,
    MachineNotFound,
    MachineNotInPool,
    MachineNotUnique,
    ModulesInvalid,
    NameConflict,
    NameTooLong,
    NamespaceMissing,
    NamespaceNotServed,
    NodeExists,
    NodeNameUnverified,
    NodePermissionMissing,
    NodeclientBindingFound,
    NonExpiringToken,
    NotAdopted,
    ObjectUnreadable,
    Panic,
    ParentNotAccepted,
    ParentNotFound,
    PoolMachine,
    PoolNotFound,
    PoolSettingsInvalid,
    PoolSettingsMissing,
    ProfileInvalid,
    ProfileNotAccepted,
    ProfileNotFound,
    Published,
    Rendered,
    RepeatedlyModified,
    RequestFailed,
    RequestOlderThanMachine,
    RequestOrderUnknown,
    RequestUnreadable,
    ReservedText,
    Retired,
    SettingsMissing,
    SourceIncomplete,
    SourceMissing,
    SourceNotAllowed,
    SourceUnreadable,
    SubjectNotAllowed,
    TemplateFailed,
    TemplateInvalid,
    Timeout,
    TooManyDocuments,
    TooManyMachineDeployments,
    TooManySources,
    UnknownCloudProvider,
    UnknownMarker,
    UnknownOperatingSystem,
    UnsupportedCloudProvider,
    UnsupportedNetwork,
    UnsupportedOperatingSystem,
    UnsupportedProvisioningUtility,
    UsagesNotAllowed,
    UserDataInvalid,
    UserDataTooLarge,
    ValidationPanicked,
    WaitingForProfile,
    WaitingForRendering,
    WaitingForRevision,
    WaitingForThread,
}

/// How urgent a reason is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Severity {
    /// A normal state, or one that ends by itself.
    Info,
    /// The newest change has no effect, or a machine waits. What is published stays.
    Warning,
    /// Someone may have credentials that belong to others.
    Critical,
}

/// What the table holds about a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub severity: Severity,
    /// What it means, in Markdown.
    pub means: &'static str,
    /// What to do, in Markdown; empty where nothing is to be done.
    pub remedy: &'static str,
}

const NEW_VERSION: &str = "Correct the profile and give it a new `spec.version`.";

impl Reason {
    /// Every reason, in alphabetical order.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::iter()
    }

    /// As written in conditions, Events and metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The row of this reason.
    pub fn row(self) -> Row {
        use Severity::{Critical, Info, Warning};

        let row = |severity, means, remedy| Row {
            severity,
            means,
            remedy,
        };
        match self {
            Self::Accepted => row(Info, "The profile is valid, and pools may use it.", ""),
            Self::AddressNotRecorded => row(
                Warning,
                "A node requests a serving certificate for an address that machine-controller has not recorded for its Machine.",
                "Compare the request with `status.addresses` of the Machine, and approve it by hand: `kubectl certificate approve`.",
            ),
            Self::AlreadyApproved => row(
                Warning,
                "Another request for the same machine was approved less than ten minutes ago.",
                "Wait ten minutes. Two requests at once may be [an attack](joining.md#attacks).",
            ),
            Self::ApprovedAgain => row(
                Critical,
                "A second request for the same machine was approved, because it had no Node ten minutes after the first.",
                "If the machine was not restarted or reinstalled, delete the Machine, and follow [a machine was approved twice](joining.md#a-machine-was-approved-twice).",
            ),
            Self::ClusterChanged => row(
                Warning,
                "The object belongs to a cluster whose namespace `kube-system` has another uid. Nothing is changed for it.",
                "Correct the kubeconfig, then restart osc-controller and secret-syncer; see [troubleshooting](troubleshooting.md#a-cluster-isnt-reachable).",
            ),
            Self::Conflict => row(
                Info,
                "Another client changed the object first. The service reads it again and retries.",
                "",
            ),
            Self::ContentModified => row(
                Warning,
                "Another client modified the documents in `status.rendered`, so they are not published.",
                "Find out which clients may write the status of OperatingSystemConfigs, because they decide what new nodes run.",
            ),
            Self::ContentTooLarge => row(
                Warning,
                "The profile or the rendered configuration is larger than 512 KiB.",
                "Shorten the profile and give it a new `spec.version`, or shorten the settings.",
            ),
            Self::CustomProfileCopied => row(
                Info,
                "osp-controller copied the [custom profile](kkp.md#custom-profiles) after a problem.",
                "",
            ),
            Self::CustomProfileInvalid => row(
                Warning,
                "The spec of the [custom profile](kkp.md#custom-profiles) is invalid. The copy keeps its spec.",
                "Correct the fields that the message names.",
            ),
            Self::CustomProfileNameTaken => row(
                Warning,
                "The [custom profile](kkp.md#custom-profiles) has the name of a default profile, or of an OperatingSystemProfile that someone else created.",
                "Create the custom profile under another name, or delete the OperatingSystemProfile.",
            ),
            Self::CustomProfileVersionUnchanged => row(
                Warning,
                "The spec of the [custom profile](kkp.md#custom-profiles) changed without a new version. The copy keeps its spec.",
                "Give the custom profile a new `spec.version`.",
            ),
            Self::DefaultProfileRestored => row(
                Info,
                "A default profile was edited, and osp-controller restored it.",
                "[Extend](templates.md#extends) or copy the profile under another name.",
            ),
            Self::DefinitionsOutdated => row(
                Warning,
                "The CustomResourceDefinitions are older than the service. Nothing new is rendered or published.",
                "Apply the CustomResourceDefinitions of this version.",
            ),
            Self::Deleted => row(
                Info,
                "The pool is deleted, and so is everything that was created for it.",
                "",
            ),
            Self::EndpointUnknown => row(
                Warning,
                "osc-controller can't find the address and the CA of the API server that new nodes connect to.",
                "Set `cluster.apiServer` and `cluster.caBundle` in the settings.",
            ),
            Self::ExtendsInvalid => row(
                Warning,
                "The profile doesn't fit the one that it [extends](templates.md#extends): both set the same thing, or it changes what the other doesn't have.",
                "Correct the profile as the message describes, and give it a new `spec.version`.",
            ),
            Self::FieldsDropped => row(
                Warning,
                "The API server dropped fields of a default profile, because its definition is older than osp-controller.",
                "Apply the CustomResourceDefinitions of this version.",
            ),
            Self::FinalizerLeftBehind => row(
                Warning,
                "The deletion of the MachineDeployment waits for the Go implementation to remove its finalizer.",
                "If the Go implementation no longer runs, remove the finalizer; see [migration](migration.md#4-finalizers).",
            ),
            Self::Forbidden => row(
                Warning,
                "The API server refused a request, because the service lacks a permission.",
                "Apply the RBAC of this version; see [permissions](rights.md). `/readyz` names what is missing.",
            ),
            Self::ForeignMachine => row(
                Critical,
                "A request with the token of one pool names a machine of another pool. It is denied, except on AWS.",
                "An attacker may have the token, or a machine was copied. Find out who has the token; see [attacks](joining.md#attacks).",
            ),
            Self::ForeignSecret => row(
                Warning,
                "A Secret with the required name belongs to someone else, and secret-syncer doesn't touch it.",
                "Delete the Secret, or let its owner rename it.",
            ),
            Self::GoImplementationRunning => row(
                Warning,
                "The Go implementation renews one of its [Leases](security.md#the-upstream-osm), or they can't be read yet. Nothing new is rendered or published.",
                "Stop it with the script that `osmctl migrate script` prints; see [migration](migration.md). To keep it, uninstall OSM.",
            ),
            Self::HostNameUnpredictable => row(
                Warning,
                "The settings give nodes the host names of their machines, which csr-approver can't predict here.",
                "Remove `kubelet.hostnameOverride` from the settings of the pool, or correct what the message names.",
            ),
            Self::InvalidAnnotation => row(
                Warning,
                "An annotation of the MachineDeployment is invalid: a kubelet setting, the name of a profile, or the revision.",
                "Correct the [annotation](annotations.md).",
            ),
            Self::InvalidKubeletSettings => row(
                Warning,
                "The kubelet of the pool would exit because of `kubelet.featureGates` or `kubelet.configuration` in the settings.",
                "Correct the [settings](settings.md#the-kubelets-configuration) at the paths in the message.",
            ),
            Self::InvalidKubeletVersion => row(
                Warning,
                "The MachineDeployment names no kubelet version, or an invalid one.",
                "Correct `spec.template.spec.versions.kubelet`.",
            ),
            Self::InvalidOperatingSystemSpec => row(
                Warning,
                "The `operatingSystemSpec` of the MachineDeployment is invalid.",
                "Correct the MachineDeployment at the paths in the message.",
            ),
            Self::InvalidProviderSpec => row(
                Warning,
                "The `providerSpec` of the MachineDeployment is missing or invalid.",
                "Correct the MachineDeployment at the paths in the message.",
            ),
            Self::LateBoundValueMissing => row(
                Warning,
                "A document needs a late-bound value that doesn't exist.",
                "See [late-bound values](templates.md#late-bound-values).",
            ),
            Self::LateBoundValueNotRaw => row(
                Warning,
                "A late-bound value contains characters that its place in the template doesn't allow.",
                "Name the encoding in the template; see [late-bound values](templates.md#late-bound-values).",
            ),
            Self::MachineDeleting => row(
                Info,
                "A machine requests a certificate while its Machine is being deleted.",
                "Nothing, if the deletion is intended.",
            ),
            Self::MachineHasNode => row(
                Warning,
                "A request names a Machine that already has a Node. It comes from a reinstalled machine or an attacker.",
                "If the machine was reinstalled, delete its Machine. machine-controller then creates another one.",
            ),
            Self::MachineNotFound => row(
                Warning,
                "No Machine has the node name in the request. machine-controller may not have recorded its addresses yet.",
                "If the request stays pending, compare the name with `kubectl get machines -A`, and check that machine-controller runs.",
            ),
            Self::MachineNotInPool => row(
                Warning,
                "The Machine doesn't belong to a MachineDeployment that exists.",
                "Create machines with a MachineDeployment, or approve the request by hand: `kubectl certificate approve`.",
            ),
            Self::MachineNotUnique => row(
                Warning,
                "Several Machines or edge pools have the name in the request. Only the oldest may join under it.",
                "Delete the others, and create them under other names. `kubectl get machines -A` shows names and ages.",
            ),
            Self::ModulesInvalid => row(
                Warning,
                "cloud-init would reject the field `modules` of the profile.",
                NEW_VERSION,
            ),
            Self::NameConflict => row(
                Critical,
                "Two MachineDeployments need the same bootstrap Secret. The older one keeps it. Machines of the younger one may boot with its user data and credentials.",
                "Delete one of the two, and create no machines of the younger one until then. See [name collisions](security.md#name-collisions).",
            ),
            Self::NameTooLong => row(
                Warning,
                "The name of the bootstrap Secret, which machine-controller prescribes, would exceed 253 characters.",
                "Shorten the name of the MachineDeployment.",
            ),
            Self::NamespaceMissing => row(
                Warning,
                "The namespace `cloud-init-settings` doesn't exist, or is being deleted.",
                "Create the namespace and apply the RBAC of the installation in it. secret-syncer then restores everything.",
            ),
            Self::NamespaceNotServed => row(
                Warning,
                "`--machine-deployment-namespaces` doesn't list the namespace of the MachineDeployment. Nothing new is rendered; what is published stays.",
                "Add the namespace to the value `machineDeploymentNamespaces` of the chart, or create the MachineDeployment elsewhere.",
            ),
            Self::NodeExists => row(
                Warning,
                "A Node of that name exists.",
                "If the old machine is gone, delete its Node.",
            ),
            Self::NodeNameUnverified => row(
                Warning,
                "No object in the cluster records the node names of this cloud provider, so csr-approver can't verify the name in the request.",
                "Check the name, and approve the request by hand with `kubectl certificate approve`.",
            ),
            Self::NodePermissionMissing => row(
                Warning,
                "A token that secret-syncer just issued lacks a permission that a node needs, so it is not published.",
                "Apply the Roles and bindings of this version; [permissions](rights.md#other-permissions) lists those of nodes.",
            ),
            Self::NodeclientBindingFound => row(
                Critical,
                "A binding of someone else lets kube-controller-manager approve the certificate of *any* node for the tokens of pools. User data is published nevertheless.",
                "Find the binding with the command in the message, and remove it; see [other bindings](joining.md#other-bindings).",
            ),
            Self::NonExpiringToken => row(
                Critical,
                "A Secret of another program in `cloud-init-settings` holds a token that never expires.",
                "Follow the message, which reports whether machines still need the token; see [migration](migration.md#5-delete-the-non-expiring-token).",
            ),
            Self::NotAdopted => row(
                Warning,
                "The Go implementation created the config, and osc-controller has not rendered it. Its old token still expires.",
                "Correct what the condition `Rendered` of the same object reports; see [migration](migration.md#before).",
            ),
            Self::ObjectUnreadable => row(
                Warning,
                "The object is too deep or too large, has a value that this version doesn't know, or names the pool of another config.",
                "Correct the field that the message names. If a newer version wrote it, upgrade to that version again.",
            ),
            Self::Panic => row(
                Warning,
                "A bug in the service aborted the reconcile of one object. It is retried, and other objects are not affected.",
                "Report the bug, together with the log.",
            ),
            Self::ParentNotAccepted => row(
                Warning,
                "A profile that this one [extends](templates.md#extends) is not accepted. The last accepted version stays in use.",
                "Correct the profile that the message names; its condition `Accepted` reports what is wrong.",
            ),
            Self::ParentNotFound => row(
                Warning,
                "A profile that this one [extends](templates.md#extends) doesn't exist. The last accepted version stays in use.",
                "Create the profile that the message names, or correct `spec.extends`.",
            ),
            Self::PoolMachine => row(
                Info,
                "The request is for a Machine of the pool that has not joined yet, and is approved.",
                "",
            ),
            Self::PoolNotFound => row(
                Info,
                "The ServiceAccount belongs to no MachineDeployment that exists. The request stays pending.",
                "Nothing, if the deletion of the MachineDeployment is intended.",
            ),
            Self::PoolSettingsInvalid => row(
                Warning,
                "The settings in the annotation or the ConfigMap of the MachineDeployment are invalid.",
                "Correct each field that the message lists; see [settings of one pool](settings.md#settings-of-one-pool).",
            ),
            Self::PoolSettingsMissing => row(
                Warning,
                "osc-controller can't read the ConfigMap that the settings annotation of the MachineDeployment names.",
                "Create the ConfigMap, or correct the annotation; see [settings of one pool](settings.md#settings-of-one-pool).",
            ),
            Self::ProfileInvalid => row(
                Warning,
                "A field of the profile is invalid. The message has its path.",
                NEW_VERSION,
            ),
            Self::ProfileNotAccepted => row(
                Warning,
                "osp-controller has never accepted the profile, so there is no version to render.",
                "Correct what the condition `Accepted` of the profile reports. If it has none, check that osp-controller runs.",
            ),
            Self::ProfileNotFound => row(
                Warning,
                "The profile doesn't exist, or osc-controller doesn't read its namespace.",
                "Create the profile, correct the annotation `k8c.io/operating-system-profile`, or add the namespace to `--profile-namespaces`.",
            ),
            Self::Published => row(Info, "The user data is published, so new machines can join.", ""),
            Self::Rendered => row(
                Info,
                "The config is up to date. The message also lists warnings and refused edits; the last valid version stays in use.",
                "If the message names errors, correct the [settings](settings.md) or the profile.",
            ),
            Self::RepeatedlyModified => row(
                Warning,
                "Another program repeatedly changes objects that secret-syncer published.",
                "Find that program, such as a mutating webhook. `kubectl get --show-managed-fields -o yaml` lists the writers of an object.",
            ),
            Self::RequestFailed => row(
                Warning,
                "Requests to the API server have failed for ten seconds.",
                "Check the API server and the network. The service retries until a request succeeds.",
            ),
            Self::RequestOlderThanMachine => row(
                Warning,
                "A request was created before the Machine that it names: someone guessed the name, or the Machine was restored from a backup.",
                "A kubelet that still waits sends a new request. If many requests have this reason, see [attacks](joining.md#attacks).",
            ),
            Self::RequestOrderUnknown => row(
                Warning,
                "Several requests for the same machine wait, and none is certain to be the first. csr-approver approves none of them.",
                "Delete them: a kubelet sends a new one within 15 minutes. See [attacks](joining.md#attacks).",
            ),
            Self::RequestUnreadable => row(
                Critical,
                "The text, the attributes or the size of the request differ from those that a kubelet sends. It is denied.",
                "Find out which program has the token; see [attacks](joining.md#attacks).",
            ),
            Self::ReservedText => row(
                Warning,
                "The profile or the MachineDeployment contains text that is reserved for markers of late-bound values or machine names.",
                "Remove that text.",
            ),
            Self::Retired => row(
                Info,
                "The MachineDeployment is deleted, and secret-syncer deletes everything that was created for it.",
                "",
            ),
            Self::SettingsMissing => row(
                Warning,
                "The settings document is missing, or it is invalid and the service has read no valid one since its start.",
                "Look at `/readyz` of the service, and correct the [settings](settings.md).",
            ),
            Self::SourceIncomplete => row(
                Warning,
                "A Secret or ConfigMap that the settings or the MachineDeployment refer to lacks the value.",
                "Add the value to the object.",
            ),
            Self::SourceMissing => row(
                Warning,
                "A Secret or ConfigMap that the settings or the MachineDeployment refer to doesn't exist.",
                "Create the object, or remove the reference.",
            ),
            Self::SourceNotAllowed => row(
                Warning,
                "The MachineDeployment or the profile refers to an object that the settings don't allow.",
                "Add an object of a MachineDeployment to `credentials.allowedSources`, and a Secret of a profile to `credentials.profileSecrets`.",
            ),
            Self::SourceUnreadable => row(
                Warning,
                "secret-syncer can't read an object that the settings or the MachineDeployment refer to.",
                "Grant secret-syncer `get`, `list` and `watch` on the object.",
            ),
            Self::SubjectNotAllowed => row(
                Critical,
                "The subject of the request is not that of a node. It is denied.",
                "An attacker may have the token. Find out who has it; see [attacks](joining.md#attacks).",
            ),
            Self::TemplateFailed => row(
                Warning,
                "A template fails for the pool, or for the sample pool that the message names.",
                NEW_VERSION,
            ),
            Self::TemplateInvalid => row(
                Warning,
                "A template has a syntax error. The message has the template, the line and the column.",
                NEW_VERSION,
            ),
            Self::Timeout => row(
                Warning,
                "The reconcile of one object exceeded its time limit. It is canceled and retried.",
                "If it lasts, check the latency of the API server, which `osm_api_request_duration_seconds` measures.",
            ),
            Self::TooManyDocuments => row(
                Warning,
                "The content of the pool changes so often that too many provisioning documents are kept at once.",
                "Find out what changes the content. New content is published once a document has expired; see [limits](limits.md#published-documents).",
            ),
            Self::TooManyMachineDeployments => row(
                Warning,
                "The installation has as many OperatingSystemConfigs as `limits.machineDeployments` allows. Pools with a config are still maintained.",
                "Delete MachineDeployments that you don't need, or raise `limits.machineDeployments`; see [limits](limits.md#number-of-pools).",
            ),
            Self::TooManySources => row(
                Warning,
                "The registries and the subscription of the pool refer to more than 100 Secrets and ConfigMaps.",
                "Let several registries use the same Secret, or remove registries from the settings of the pool.",
            ),
            Self::UnknownCloudProvider => row(
                Warning,
                "The MachineDeployment names a cloud provider that machine-controller doesn't know.",
                "Correct `cloudProvider` in its `providerSpec`.",
            ),
            Self::UnknownMarker => row(
                Warning,
                "A document contains a marker of a late-bound value that is unknown or damaged.",
                "See [late-bound values](templates.md#late-bound-values).",
            ),
            Self::UnknownOperatingSystem => row(
                Warning,
                "The MachineDeployment names an unknown operating system.",
                "Correct `operatingSystem` in its `providerSpec`.",
            ),
            Self::UnsupportedCloudProvider => row(
                Warning,
                "The profile doesn't support the cloud provider of the pool.",
                "Select another profile, or add the provider to `supportedCloudProviders`.",
            ),
            Self::UnsupportedNetwork => row(
                Warning,
                "The static network of the MachineDeployment is incomplete, or not possible with its operating system or profile.",
                "Correct or remove `network.cidr`, `network.gateway` and `network.dns`.",
            ),
            Self::UnsupportedOperatingSystem => row(
                Warning,
                "The profile is for another operating system than the pool's.",
                "Select another profile.",
            ),
            Self::UnsupportedProvisioningUtility => row(
                Warning,
                "The profile is for another provisioning utility than the pool's.",
                "Select another profile, or change `provisioningUtility` of the MachineDeployment.",
            ),
            Self::UsagesNotAllowed => row(
                Critical,
                "The request has usages that a kubelet doesn't need. It is denied.",
                "Find out which program has the token; see [attacks](joining.md#attacks).",
            ),
            Self::UserDataInvalid => row(
                Warning,
                "The user data can't be encoded, or Ignition would refuse it.",
                NEW_VERSION,
            ),
            Self::UserDataTooLarge => row(
                Warning,
                "The bootstrap document is larger than the cloud provider allows, or the values that a pool refers to are larger than a Secret can be.",
                "Move files from `bootstrapConfig` to `provisioningConfig`, or shorten them, and give the profile a new `spec.version`.",
            ),
            Self::ValidationPanicked => row(
                Warning,
                "The validation of the profile panicked, or exceeded its limit of 60 seconds.",
                "Report the bug, together with the profile and the log of osp-controller.",
            ),
            Self::WaitingForProfile => row(
                Info,
                "A new revision waits up to 10 seconds for osp-controller to validate an edited profile.",
                "If it recurs, check that osp-controller runs and what its log reports.",
            ),
            Self::WaitingForRendering => row(
                Info,
                "secret-syncer waits for osc-controller to render the config.",
                "If it lasts longer than a minute, look at the condition `Rendered` of the same object.",
            ),
            Self::WaitingForRevision => row(
                Info,
                "The MachineDeployment is new, or its template was edited. The services wait for machine-controller to set the revision.",
                "If it lasts longer than a minute, check that machine-controller runs.",
            ),
            Self::WaitingForThread => row(
                Warning,
                "The pool has waited for more than a minute to be rendered, because profiles of other pools take too long.",
                "Correct the profiles of pools whose reconciles exceed their time limit in the log of osc-controller.",
            ),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PartialEq<str> for Reason {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Reason {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sentences() {
        for reason in Reason::all() {
            let row = reason.row();
            assert!(row.means.ends_with('.'), "{reason}");
            assert!(row.remedy.is_empty() || row.remedy.ends_with('.'), "{reason}");
            for sentence in [row.means, row.remedy]
                .into_iter()
                .flat_map(|text| text.split_inclusive(". "))
            {
                assert!(sentence.split_whitespace().count() <= 35, "{reason}: {sentence}");
            }
        }
    }

    #[test]
    fn reasons_are_in_alphabetical_order() {
        let names: Vec<&str> = Reason::all().map(Reason::as_str).collect();
        assert!(names.is_sorted(), "{names:?}");
    }
}
