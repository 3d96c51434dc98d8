//! Every reason that a condition, an Event or a metric may carry: one closed table.
//!
//! A new reason is one variant and one row. `cargo xtask reasons` writes `docs/reasons.md` and the sections of the runbooks.

use std::fmt;

use strum::{EnumIter, IntoEnumIterator, IntoStaticStr};

use crate::names::{ACCEPTED, PUBLISHED, RENDERED};
use crate::rbac::Service;

/// Why an object is in the state that a condition, an Event or a metric reports. Users and alerts depend on the names, so a
/// variant is never renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EnumIter, IntoStaticStr)]
#[allow(missing_docs)]
pub enum Reason {
    Accepted,
    AddressNotRecorded,
    AlreadyApproved,
    ApprovedAgain,
    BootstrapTokenForbidden,
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
    JoiningConflict,
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

/// Where users meet a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Carrier {
    /// A condition, by its type. A change of it also emits an Event with the same reason.
    Condition(&'static str),
    /// Only an Event, on an object of this kind.
    Event(Service, &'static str),
    /// The label `reason` of csr-approver's metrics, and the condition of a CertificateSigningRequest that it has decided.
    Request,
    /// Only logs and the label `reason` of `osm_reconciles_total`, of these services.
    Log(&'static [Service]),
}

/// What the table holds about a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Where users meet it.
    pub carriers: &'static [Carrier],
    /// What it means, in Markdown.
    pub means: &'static str,
    /// What to do, in Markdown; empty where nothing is to be done.
    pub remedy: &'static str,
}

const PROFILE: Carrier = Carrier::Condition(ACCEPTED);
const CONFIG: Carrier = Carrier::Condition(RENDERED);
const SECRETS: Carrier = Carrier::Condition(PUBLISHED);
const LOG: Carrier = Carrier::Log(&[
    Service::OspController,
    Service::OscController,
    Service::SecretSyncer,
    Service::CsrApprover,
]);
const CUSTOM_PROFILE: Carrier = Carrier::Event(Service::OspController, "CustomOperatingSystemProfile");
const REQUEST: Carrier = Carrier::Request;
const JOINING: Carrier = Carrier::Event(Service::CsrApprover, "MachineDeployment");
const OF_POOL: Carrier = Carrier::Event(Service::OscController, "MachineDeployment");

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
        let row = |carriers, means, remedy| Row {
            carriers,
            means,
            remedy,
        };
        match self {
            Self::Accepted => row(
                &[PROFILE],
                "All templates of the profile compile. They render for sample pools of each cloud provider, kubelet range and IP family that the profile supports.",
                "",
            ),
            Self::AddressNotRecorded => row(
                &[REQUEST],
                "A node requests a serving certificate for an address that machine-controller has not recorded for its Machine.",
                "Compare the request with `status.addresses` of the Machine, and approve it by hand: `kubectl certificate approve`.",
            ),
            Self::AlreadyApproved => row(
                &[REQUEST, JOINING],
                "Another request for the same machine was approved less than ten minutes ago.",
                "If no machine of that name joins, csr-approver approves the next request after ten minutes. Two requests at once may be an attack; see [joining](joining.md#attacks).",
            ),
            Self::ApprovedAgain => row(
                &[REQUEST, Carrier::Event(Service::CsrApprover, "Machine"), JOINING],
                "A second request for the same machine was approved, although the machine has no Node ten minutes after the first approval. Two keys now have a certificate for one node.",
                "If the machine was not restarted or reinstalled, an attacker may have the first certificate. Delete the Machine, and follow [joining](joining.md#a-machine-was-approved-twice).",
            ),
            Self::BootstrapTokenForbidden => row(
                &[SECRETS],
                "The settings request [bootstrap tokens](settings.md#bootstrap-tokens), but secret-syncer may not create them.",
                "Grant secret-syncer `create` on Secrets in `kube-system`, or set `credentials.nodeBootstrap.kind` to `serviceAccountToken`.",
            ),
            Self::ClusterChanged => row(
                &[CONFIG, SECRETS, OF_POOL],
                "The object belongs to a cluster whose namespace `kube-system` has another uid. The services change nothing for it.",
                "Correct the kubeconfig, then restart osc-controller and secret-syncer; see [kubeconfigs and clusters](operations.md#kubeconfigs-and-clusters).",
            ),
            Self::Conflict => row(
                &[LOG],
                "Another client changed the object first, so the service reads it again and retries.",
                "",
            ),
            Self::ContentModified => row(
                &[SECRETS],
                "Another client has modified the documents in `status.rendered`. They are not published. What is published is kept and renewed.",
                "osc-controller writes the documents again. Find out which clients may write the status of OperatingSystemConfigs, because such a client decides what new nodes run.",
            ),
            Self::ContentTooLarge => row(
                &[PROFILE, CONFIG],
                "The profile or the rendered configuration is larger than 512 KiB, which is the most that the services store.",
                "Shorten the profile and give it a new `spec.version`, or shorten the settings.",
            ),
            Self::CustomProfileCopied => row(
                &[CUSTOM_PROFILE],
                "osp-controller copied the [custom profile](templates.md#custom-profiles-of-kkp) after a problem.",
                "",
            ),
            Self::CustomProfileInvalid => row(
                &[CUSTOM_PROFILE],
                "The spec of the [custom profile](templates.md#custom-profiles-of-kkp) is invalid. The OperatingSystemProfile keeps its spec.",
                "Correct the fields that the message names.",
            ),
            Self::CustomProfileNameTaken => row(
                &[CUSTOM_PROFILE],
                "The [custom profile](templates.md#custom-profiles-of-kkp) has the name of a default profile, or of an OperatingSystemProfile that another author created.",
                "Create the custom profile under another name, or delete the OperatingSystemProfile.",
            ),
            Self::CustomProfileVersionUnchanged => row(
                &[CUSTOM_PROFILE],
                "The spec of the [custom profile](templates.md#custom-profiles-of-kkp) changed without a new version. The OperatingSystemProfile keeps its spec.",
                "Give the custom profile a new `spec.version`.",
            ),
            Self::DefaultProfileRestored => row(
                &[Carrier::Event(Service::OspController, "OperatingSystemProfile")],
                "A default profile was edited, and osp-controller restored it.",
                "[Extend](templates.md#change-one-thing-extends) or copy the profile under another name.",
            ),
            Self::DefinitionsOutdated => row(
                &[SECRETS, Carrier::Log(&[Service::OscController])],
                "The CustomResourceDefinitions are older than the service, and the API server would drop fields. osc-controller writes nothing, and secret-syncer publishes no new content. What is published is kept and renewed.",
                "Apply the CustomResourceDefinitions of this version.",
            ),
            Self::Deleted => row(
                &[SECRETS],
                "The pool is deleted, and so is everything that was created for it. osc-controller deletes the config next.",
                "",
            ),
            Self::EndpointUnknown => row(
                &[CONFIG],
                "osc-controller cannot find the address and the CA of the API server that new nodes connect to.",
                "Set `cluster.apiServer` and `cluster.caBundle` in the settings.",
            ),
            Self::ExtendsInvalid => row(
                &[PROFILE],
                "The profile cannot be put together with the profile that it [extends](templates.md#change-one-thing-extends). Either both set the same thing, or it replaces or removes what the other does not have.",
                "Correct the profile as the message describes, and give it a new `spec.version`.",
            ),
            Self::FieldsDropped => row(
                &[Carrier::Log(&[Service::OspController])],
                "The API server dropped fields of a default profile, because its CustomResourceDefinition is older than osp-controller.",
                "Apply the CustomResourceDefinitions of this version.",
            ),
            Self::FinalizerLeftBehind => row(
                &[OF_POOL],
                "The deletion of the MachineDeployment waits for the Go implementation to remove its finalizer.",
                "If the Go implementation no longer runs, remove the finalizer as the message describes; see [migration](migration.md#4-finalizers).",
            ),
            Self::Forbidden => row(
                &[SECRETS, LOG],
                "The API server refused a request, because the service lacks a permission.",
                "Apply the RBAC of this version; [permissions](rights.md) lists it. `/readyz` of the service names what is missing.",
            ),
            Self::ForeignMachine => row(
                &[REQUEST, JOINING],
                "A request with the token of one pool names a machine of another pool. csr-approver denies it. On AWS it stays pending, because instances reuse addresses.",
                "An attacker may have the token, or a machine was copied. Find out who has the token; see [joining](joining.md#attacks).",
            ),
            Self::ForeignSecret => row(
                &[SECRETS],
                "A Secret with the required name belongs to another program, and secret-syncer does not touch it.",
                "Delete the Secret. Its owner can create it again under another name. secret-syncer checks again every minute.",
            ),
            Self::GoImplementationRunning => row(
                &[SECRETS, Carrier::Log(&[Service::OscController])],
                "The Go implementation renews its Lease `kube-system/operating-system-manager`, so it runs in the same cluster. \
                 osc-controller and secret-syncer start nothing new. What is published is kept and renewed.",
                "Stop the Go implementation with the script that `osmctl migrate script` prints; see [migration](migration.md#with-osmctl). \
                 To keep it instead, remove the release of OSM.",
            ),
            Self::HostNameUnpredictable => row(
                &[CONFIG],
                "The settings give nodes the host names of their machines, but csr-approver cannot predict these host names.",
                "Remove `kubelet.hostnameOverride` from the settings of the pool, or correct what the message names.",
            ),
            Self::InvalidAnnotation => row(
                &[CONFIG],
                "An annotation of the MachineDeployment is invalid: a kubelet setting, the name of a profile, or the revision.",
                "Correct the annotation.",
            ),
            Self::InvalidKubeletSettings => row(
                &[CONFIG],
                "The kubelet of the pool would exit because of `kubelet.featureGates` or `kubelet.configuration` in the settings.",
                "Correct the [settings](settings.md#the-kubelets-configuration). The message lists each error with its path.",
            ),
            Self::InvalidKubeletVersion => row(
                &[CONFIG],
                "The MachineDeployment names no kubelet version, or an invalid one.",
                "Correct `spec.template.spec.versions.kubelet`.",
            ),
            Self::InvalidOperatingSystemSpec => row(
                &[CONFIG],
                "The `operatingSystemSpec` of the MachineDeployment is invalid.",
                "Correct the MachineDeployment. The message lists each error with its path.",
            ),
            Self::InvalidProviderSpec => row(
                &[CONFIG],
                "The `providerSpec` of the MachineDeployment is missing or invalid.",
                "Correct the MachineDeployment. The message lists each error with its path.",
            ),
            Self::JoiningConflict => row(
                &[SECRETS],
                "secret-syncer runs with `--joining=approved`, but the settings require bootstrap tokens. csr-approver approves no request of a bootstrap token. secret-syncer keeps what it has published and renews its credentials, but publishes no new content.",
                "Set `credentials.nodeBootstrap.kind` to `serviceAccountToken`, or the chart's value `joining` to `static`.",
            ),
            Self::LateBoundValueMissing => row(
                &[PROFILE, CONFIG, SECRETS],
                "A document needs a late-bound value that does not exist.",
                "See [late-bound values](templates.md#late-bound-values).",
            ),
            Self::LateBoundValueNotRaw => row(
                &[PROFILE, CONFIG, SECRETS],
                "A late-bound value contains characters that its place in the template does not allow.",
                "Name the encoding in the template; see [late-bound values](templates.md#late-bound-values).",
            ),
            Self::MachineDeleting => row(
                &[REQUEST, JOINING],
                "A machine requests a certificate while its Machine is being deleted.",
                "Nothing, if the deletion is intended.",
            ),
            Self::MachineHasNode => row(
                &[REQUEST, JOINING],
                "A request names a Machine that already has a Node. A node renews its certificate with its current one, so this request comes from a reinstalled machine or an attacker.",
                "If the machine was reinstalled, delete its Machine. machine-controller then creates another one.",
            ),
            Self::MachineNotFound => row(
                &[REQUEST, JOINING],
                "No Machine has the node name in the request. machine-controller may not have recorded the addresses of the machine yet.",
                "If the request stays pending, compare the name with `kubectl get machines -A`, and check that machine-controller runs.",
            ),
            Self::MachineNotInPool => row(
                &[REQUEST, JOINING],
                "The Machine does not belong to a MachineDeployment that exists, by the uids of its owner references.",
                "Create machines with a MachineDeployment, or approve the request by hand: `kubectl certificate approve`.",
            ),
            Self::MachineNotUnique => row(
                &[REQUEST, JOINING],
                "Several Machines or edge pools have the name that the request is for. Only machines of the pool of the oldest one may join under it. None may if two were created in the same second.",
                "Delete the others, and create them under other names if you need them. `kubectl get machines -A` shows the names and ages.",
            ),
            Self::ModulesInvalid => row(
                &[PROFILE],
                "cloud-init would reject the field `modules` of the profile.",
                "Correct the profile and give it a new `spec.version`. The message lists each error with its path.",
            ),
            Self::NameConflict => row(
                &[OF_POOL],
                "Two MachineDeployments, such as `a-b` in namespace `c` and `a` in `b-c`, need the same bootstrap Secret. The older one keeps it. \
                 machine-controller finds the Secret by its name alone and compares the revision, which is 1 for a new MachineDeployment. \
                 So machines of the younger one boot with the user data of the older one, including its credentials, while both have the \
                 same revision.",
                "Delete one of the two, and create it under another name if you need both. Create no machines of the younger one until then. \
                 See [names that run together](security.md#names-that-run-together) for how to prevent this.",
            ),
            Self::NameTooLong => row(
                &[OF_POOL],
                "The name of the bootstrap Secret, which machine-controller prescribes, would exceed 253 characters.",
                "Shorten the name of the MachineDeployment.",
            ),
            Self::NamespaceMissing => row(
                &[SECRETS, Carrier::Log(&[Service::SecretSyncer])],
                "The namespace `cloud-init-settings` does not exist, or is being deleted.",
                "Create the namespace and apply the RBAC of the installation in it. secret-syncer then restores everything in it.",
            ),
            Self::NamespaceNotServed => row(
                &[CONFIG, OF_POOL],
                "The flag `--machine-deployment-namespaces` of osc-controller does not list the namespace of the MachineDeployment. \
                 If the pool was published before, it stays published and its credentials are renewed, but osc-controller renders nothing new for it. \
                 Otherwise, the pool gets no OperatingSystemConfig.",
                "Add the namespace to the value `machineDeploymentNamespaces` of the chart, \
                 or create the MachineDeployment in a namespace of that list.",
            ),
            Self::NodeExists => row(
                &[REQUEST, JOINING],
                "A Node of that name exists. A request for its name waits until the Node is deleted.",
                "If the old machine is gone, delete its Node.",
            ),
            Self::NodeNameUnverified => row(
                &[REQUEST, JOINING],
                "The request is for the node NAME. No object in the cluster records the names of nodes of this cloud provider, so csr-approver cannot verify NAME.",
                "Verify the name with the cloud provider, then approve the request by hand with `kubectl certificate approve`.",
            ),
            Self::NodePermissionMissing => row(
                &[SECRETS],
                "A token that secret-syncer just issued lacks a permission that a node needs, so it is not published.",
                "Apply the Roles and bindings of this version; [permissions](rights.md#other-permissions) lists those of nodes.",
            ),
            Self::NodeclientBindingFound => row(
                &[SECRETS, Carrier::Event(Service::SecretSyncer, "ServiceAccount")],
                "User data is published. A binding of another owner lets kube-controller-manager approve the certificate of *any* node for the tokens of all pools, or of one.",
                "Find the binding with the command in the message, and remove it; see [who may join](security.md#who-may-join).",
            ),
            Self::NonExpiringToken => row(
                &[Carrier::Event(Service::SecretSyncer, "Secret")],
                "A Secret of another program in `cloud-init-settings` holds a token that never expires.",
                "Follow the message, which reports whether machines still need the token; see [migration](migration.md#5-delete-the-non-expiring-token).",
            ),
            Self::NotAdopted => row(
                &[SECRETS],
                "The Go implementation created the config, and osc-controller has not rendered it. New machines boot with the old user data until its bootstrap token expires.",
                "Correct what the condition `Rendered` of the same object reports; see [migration](migration.md#before).",
            ),
            Self::ObjectUnreadable => row(
                &[PROFILE, CONFIG, SECRETS],
                "The object is nested too deeply, is too large, or has a value that this version does not know. \
                 An OperatingSystemConfig may also name the pool of another one, which only another client writes. Other objects are not affected.",
                "Correct the field that the message names. If a newer version wrote it, upgrade to that version again.",
            ),
            Self::Panic => row(
                &[LOG],
                "A defect in the service aborted the reconcile of one object. The service retries it, and other objects are not affected.",
                "Report the defect, together with the log.",
            ),
            Self::ParentNotAccepted => row(
                &[PROFILE],
                "osp-controller refused a profile that this one [extends](templates.md#change-one-thing-extends). The last accepted version stays in use.",
                "Correct the profile that the message names; its condition `Accepted` reports what is wrong. This profile is then validated again.",
            ),
            Self::ParentNotFound => row(
                &[PROFILE],
                "A profile that this one [extends](templates.md#change-one-thing-extends) does not exist. The last accepted version stays in use.",
                "Create the profile that the message names, or correct `spec.extends`.",
            ),
            Self::PoolMachine => row(
                &[REQUEST],
                "The request is for a Machine of the pool that has not joined yet. csr-approver approved it.",
                "",
            ),
            Self::PoolNotFound => row(
                &[REQUEST],
                "The ServiceAccount belongs to no MachineDeployment that exists. csr-approver leaves the request pending.",
                "Nothing, if the deletion of the MachineDeployment is intended.",
            ),
            Self::PoolSettingsInvalid => row(
                &[CONFIG],
                "The settings in the annotation or the ConfigMap of the MachineDeployment are invalid.",
                "Correct each field that the message lists; see [settings of one pool](settings.md#settings-of-one-pool).",
            ),
            Self::PoolSettingsMissing => row(
                &[CONFIG],
                "osc-controller cannot read the ConfigMap that the settings annotation of the MachineDeployment names.",
                "Create the ConfigMap, or correct the annotation; see [settings of one pool](settings.md#settings-of-one-pool).",
            ),
            Self::ProfileInvalid => row(
                &[PROFILE, CONFIG],
                "A field of the profile is invalid. The message has its path.",
                NEW_VERSION,
            ),
            Self::ProfileNotAccepted => row(
                &[CONFIG],
                "osp-controller has never accepted the profile, so there is no version to render.",
                "Correct what the condition `Accepted` of the profile reports. If it has no condition, check whether osp-controller runs.",
            ),
            Self::ProfileNotFound => row(
                &[CONFIG],
                "The profile does not exist, or osc-controller does not read its namespace.",
                "Create the profile, correct the annotation `k8c.io/operating-system-profile`, or add the namespace to `--profile-namespaces`.",
            ),
            Self::Published => row(
                &[SECRETS],
                "The user data is published, so new machines can join. The message names when the credentials expire.",
                "",
            ),
            Self::Rendered => row(
                &[CONFIG],
                "The config is up to date with the profile, the MachineDeployment and the settings. The message also lists warnings and refused edits; the last valid version stays in use.",
                "If the message names errors, correct the [settings](settings.md) or the profile.",
            ),
            Self::RepeatedlyModified => row(
                &[SECRETS],
                "Another program repeatedly changes objects that secret-syncer published.",
                "Find the program that changes Secrets, Roles or ServiceAccounts in `cloud-init-settings`, such as a mutating webhook. `kubectl get --show-managed-fields -o yaml` lists the writers of an object.",
            ),
            Self::RequestFailed => row(
                &[SECRETS, LOG],
                "Requests to the API server fail. The condition reports it after ten seconds.",
                "Check the API server and the network. The service retries until a request succeeds.",
            ),
            Self::RequestOlderThanMachine => row(
                &[REQUEST, JOINING],
                "A request was created before the Machine that it names. A machine boots after its Machine is created, so another program guessed the name, or the Machine was restored from a backup.",
                "No action is required for the machine, because a kubelet that still waits sends a new request. If many requests have this reason, an attacker may have the user data of the pool; see [joining](joining.md#attacks).",
            ),
            Self::RequestOrderUnknown => row(
                &[REQUEST, JOINING],
                "Several requests for the same machine wait, and it is not certain that this one came first. The times and the resourceVersions of the requests contradict each other, or another requester came first. csr-approver approves none of those whose order is unknown.",
                "Compare the requests with `kubectl get csr`. Delete those that no machine of yours has sent, or all of them: a kubelet sends a new one within 15 minutes. Two requests at once may be an attack; see [joining](joining.md#attacks).",
            ),
            Self::RequestUnreadable => row(
                &[REQUEST, JOINING],
                "The text, the attributes or the size of the request differ from those that a kubelet sends. csr-approver denied the request.",
                "A kubelet sends no such request, so find out which program has the token; see [joining](joining.md#attacks).",
            ),
            Self::ReservedText => row(
                &[PROFILE, CONFIG],
                "The profile or the MachineDeployment contains text that is reserved for markers of late-bound values or machine names.",
                "Remove that text.",
            ),
            Self::Retired => row(
                &[CONFIG],
                "The MachineDeployment is deleted, and secret-syncer deletes everything that was created for it.",
                "",
            ),
            Self::SettingsMissing => row(
                &[CONFIG, SECRETS],
                "The settings document is missing, or it is invalid and the service has read no valid one since its start.",
                "Look at `/readyz` of the service that reports it, and correct the [settings](settings.md).",
            ),
            Self::SourceIncomplete => row(
                &[SECRETS],
                "A Secret or ConfigMap that the settings or the MachineDeployment refer to lacks the value.",
                "Add the value to the object.",
            ),
            Self::SourceMissing => row(
                &[SECRETS],
                "A Secret or ConfigMap that the settings or the MachineDeployment refer to does not exist.",
                "Create the object, or remove the reference.",
            ),
            Self::SourceNotAllowed => row(
                &[SECRETS],
                "The MachineDeployment or the profile refers to an object that the settings do not allow.",
                "Add an object of a MachineDeployment to `credentials.allowedSources`, and a Secret of a profile to `credentials.profileSecrets`.",
            ),
            Self::SourceUnreadable => row(
                &[SECRETS],
                "secret-syncer cannot read an object that the settings or the MachineDeployment refer to.",
                "Grant secret-syncer `get`, `list` and `watch` on the object.",
            ),
            Self::SubjectNotAllowed => row(
                &[REQUEST, JOINING],
                "The subject of the request is not that of a node. csr-approver denied the request.",
                "A kubelet sends no such request, so an attacker may have the token. Find out who has the token; see [joining](joining.md#attacks).",
            ),
            Self::TemplateFailed => row(
                &[PROFILE, CONFIG],
                "A template fails for the pool, or for the sample pool that the message names.",
                NEW_VERSION,
            ),
            Self::TemplateInvalid => row(
                &[PROFILE, CONFIG],
                "A template has a syntax error. The message has the template, the line and the column.",
                NEW_VERSION,
            ),
            Self::Timeout => row(
                &[LOG],
                "The reconcile of one object exceeded its time limit. The service cancelled it and retries.",
                "If it lasts, check the latency of the API server. `osm_api_request_duration_seconds` measures it.",
            ),
            Self::TooManyDocuments => row(
                &[SECRETS],
                "The content of the pool changes so often that too many provisioning documents are kept at once. Valid tokens may still fetch them, so none is deleted.",
                "Find out what changes the content. New content is published once a document has expired; see [limits](limits.md).",
            ),
            Self::TooManyMachineDeployments => row(
                &[OF_POOL],
                "The installation already has as many OperatingSystemConfigs as `limits.machineDeployments` in its settings allows, or as many MachineDeployments as osc-controller keeps. OSM continues to maintain the pools that have a config.",
                "Delete MachineDeployments that you do not need, or raise `limits.machineDeployments`; see [limits](limits.md#number-of-pools).",
            ),
            Self::TooManySources => row(
                &[CONFIG],
                "The registries and the subscription of the pool refer to more than 100 different Secrets and ConfigMaps.",
                "Let several registries use the same Secret, or remove registries from the settings of the pool; see [limits](limits.md#objects).",
            ),
            Self::UnknownCloudProvider => row(
                &[CONFIG],
                "The MachineDeployment names a cloud provider that machine-controller does not know.",
                "Correct `cloudProvider` in its `providerSpec`.",
            ),
            Self::UnknownMarker => row(
                &[PROFILE, CONFIG, SECRETS],
                "A document contains a marker of a late-bound value that is unknown or damaged.",
                "See [late-bound values](templates.md#late-bound-values).",
            ),
            Self::UnknownOperatingSystem => row(
                &[CONFIG],
                "The MachineDeployment names an unknown operating system.",
                "Correct `operatingSystem` in its `providerSpec`.",
            ),
            Self::UnsupportedCloudProvider => row(
                &[CONFIG],
                "The profile does not support the cloud provider of the pool.",
                "Select another profile, or add the provider to `supportedCloudProviders`.",
            ),
            Self::UnsupportedNetwork => row(
                &[CONFIG],
                "The static network of the MachineDeployment is incomplete, or not possible with its operating system or profile.",
                "Correct or remove `network.cidr`, `network.gateway` and `network.dns`.",
            ),
            Self::UnsupportedOperatingSystem => row(
                &[CONFIG],
                "The profile is for another operating system than the pool's.",
                "Select another profile.",
            ),
            Self::UnsupportedProvisioningUtility => row(
                &[CONFIG],
                "The profile is for another provisioning utility than the pool's.",
                "Select another profile, or change `provisioningUtility` of the MachineDeployment.",
            ),
            Self::UsagesNotAllowed => row(
                &[REQUEST, JOINING],
                "The request has usages that a kubelet does not need. csr-approver denied the request.",
                "A kubelet sends no such request, so find out which program has the token; see [joining](joining.md#attacks).",
            ),
            Self::UserDataInvalid => row(
                &[PROFILE, CONFIG, SECRETS],
                "The user data cannot be encoded, or Ignition would refuse it.",
                NEW_VERSION,
            ),
            Self::UserDataTooLarge => row(
                &[PROFILE, CONFIG, SECRETS],
                "The bootstrap document is larger than the cloud provider allows, or the values that a pool refers to are larger than a Secret can be.",
                "Move files from `bootstrapConfig` to `provisioningConfig`, or shorten them, and give the profile a new `spec.version`. Refer to smaller values.",
            ),
            Self::ValidationPanicked => row(
                &[PROFILE],
                "A bug in osp-controller made the validation of the profile panic or exceed its time limit.",
                "Please report it, together with the profile and the log of osp-controller.",
            ),
            Self::WaitingForProfile => row(
                &[CONFIG],
                "A new revision waits up to 10 seconds for osp-controller to validate an edited profile.",
                "If it recurs, check whether osp-controller runs and what its log reports.",
            ),
            Self::WaitingForRendering => row(
                &[SECRETS],
                "secret-syncer waits for osc-controller to render the config.",
                "If it lasts longer than a minute, look at the condition `Rendered` of the same object.",
            ),
            Self::WaitingForRevision => row(
                &[CONFIG, SECRETS],
                "The MachineDeployment is new, or its template was edited. The services wait for machine-controller to stamp the revision; the last user data stays in use.",
                "If it lasts longer than a minute, check whether machine-controller runs.",
            ),
            Self::WaitingForThread => row(
                &[CONFIG],
                "A pool has waited for more than a minute until osc-controller renders it, because profiles of other pools take too long. The last user data stays in use.",
                "Look for reconciles that exceeded their time limit in the log of osc-controller, and correct or remove the profiles of these pools. The metric `osm_render_wait_seconds` shows how long the pool has waited that waits the longest.",
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
            assert!(!row.carriers.is_empty(), "{reason}");
            assert!(row.means.ends_with('.'), "{reason}");
            assert!(row.remedy.is_empty() || row.remedy.ends_with('.'), "{reason}");
            for sentence in [row.means, row.remedy]
                .into_iter()
                .flat_map(|text| text.split_inclusive(". "))
            {
                assert!(sentence.split_whitespace().count() <= 25, "{reason}: {sentence}");
            }
        }
    }

    #[test]
    fn reasons_are_in_alphabetical_order() {
        let names: Vec<&str> = Reason::all().map(Reason::as_str).collect();
        assert!(names.is_sorted(), "{names:?}");
    }
}
