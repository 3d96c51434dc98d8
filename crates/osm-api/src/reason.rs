//! Lists every reason that a condition, an Event or a metric may carry. What each means, and what to do, is
//! in `docs/reasons.md`.

use std::fmt;

use strum::{EnumIter, IntoEnumIterator, IntoStaticStr};

/// Why an object is in the state that a condition, an Event or a metric reports. Users and alerts depend on
/// the names, so a variant is never renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EnumIter, IntoStaticStr)]
#[allow(missing_docs)]
pub enum Reason {
    Accepted,
    AlreadyApproved,
    AnnotationInvalid,
    ApprovedAgain,
    AutoApproved,
    ClusterChanged,
    Conflict,
    Connecting,
    ContentModified,
    ContentTooLarge,
    CustomProfileCopied,
    CustomProfileInvalid,
    CustomProfileNameTaken,
    CustomProfileVersionUnchanged,
    DefaultProfileRestored,
    DefinitionsOutdated,
    Deleted,
    DuplicateCluster,
    EndpointUnknown,
    ExtendsInvalid,
    FieldsDropped,
    FinalizerLeftBehind,
    Forbidden,
    ForeignMachine,
    ForeignSecret,
    HostnameUnpredictable,
    KubeconfigInvalid,
    KubeconfigMissing,
    KubeletSettingsInvalid,
    KubeletVersionInvalid,
    LateBoundValueInvalid,
    LateBoundValueMissing,
    LateBoundValueUnknown,
    MachineDeleting,
    MachineHasNode,
    MachineNotFound,
    MachineNotInPool,
    MachineNotUnique,
    ModulesInvalid,
    NameCollision,
    NameTooLong,
    NamespaceNotFound,
    NamespaceNotServed,
    NodeExists,
    NodeNameUnverified,
    NodePermissionMissing,
    NodeclientBindingFound,
    NotAdopted,
    NotServed,
    ObjectUnreadable,
    OperatingSystemSpecInvalid,
    Panic,
    ParentNotAccepted,
    ParentNotFound,
    PermissionsMissing,
    PoolNotFound,
    PoolSettingsInvalid,
    PoolSettingsNotFound,
    ProfileInvalid,
    ProfileNotAccepted,
    ProfileNotFound,
    ProviderSpecInvalid,
    Published,
    Rendered,
    RepeatedlyModified,
    RequestFailed,
    RequestOlderThanMachine,
    RequestOrderUnknown,
    RequestUnreadable,
    ReservedText,
    Restarting,
    Retired,
    Serving,
    SettingsInvalid,
    Slow,
    SourceIncomplete,
    SourceNotAllowed,
    SourceNotFound,
    SourceUnreadable,
    SubjectNotAllowed,
    TemplateFailed,
    TemplateInvalid,
    Timeout,
    TokenRejected,
    TooLarge,
    TooManyDocuments,
    TooManyEvents,
    TooManyMachineDeployments,
    TooManySources,
    Unauthorized,
    UnknownCloudProvider,
    UnknownOperatingSystem,
    Unreachable,
    UnsupportedCloudProvider,
    UnsupportedNetwork,
    UnsupportedOperatingSystem,
    UnsupportedProvisioningUtility,
    UpstreamOSMRunning,
    UsagesNotAllowed,
    UserDataInvalid,
    UserDataTooLarge,
    ValidationAborted,
    WaitingForProfile,
    WaitingForRendering,
    WaitingForRevision,
    WaitingForThread,
}

impl Reason {
    /// Every reason, in alphabetical order.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::iter()
    }

    /// As written in conditions, Events and metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
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
