//! The runbooks: a page in `docs/runbooks` for each alert, and the one for each reason.

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
    ObjectsIgnored,
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

impl Reason {
    /// The runbook of the alert that reports this reason, or what follows from it.
    pub fn runbook(self) -> Runbook {
        use Runbook as R;
        match self {
            Self::Forbidden | Self::RequestFailed => R::ApiErrors,
            Self::ForeignMachine
            | Self::RequestUnreadable
            | Self::SubjectNotAllowed
            | Self::UsagesNotAllowed => R::JoiningDenied,
            Self::NodeclientBindingFound | Self::NonExpiringToken => R::JoiningOpen,
            Self::ApprovedAgain => R::MachineApprovedAgain,
            Self::AddressNotRecorded
            | Self::AlreadyApproved
            | Self::MachineDeleting
            | Self::MachineHasNode
            | Self::MachineNotFound
            | Self::MachineNotInPool
            | Self::MachineNotUnique
            | Self::NodeExists
            | Self::NodeNameUnverified
            | Self::PoolMachine
            | Self::PoolNotFound
            | Self::RequestOlderThanMachine
            | Self::RequestOrderUnknown => R::MachinesWaitToJoin,
            Self::ObjectUnreadable => R::ObjectUndecodable,
            Self::Panic => R::Panic,
            Self::ContentModified
            | Self::Deleted
            | Self::ForeignSecret
            | Self::GoImplementationRunning
            | Self::NamespaceMissing
            | Self::NodePermissionMissing
            | Self::NotAdopted
            | Self::Published
            | Self::RepeatedlyModified
            | Self::SourceIncomplete
            | Self::SourceMissing
            | Self::SourceNotAllowed
            | Self::SourceUnreadable
            | Self::TooManyDocuments
            | Self::WaitingForRendering => R::PoolNotPublished,
            Self::ClusterChanged
            | Self::EndpointUnknown
            | Self::FinalizerLeftBehind
            | Self::HostNameUnpredictable
            | Self::InvalidAnnotation
            | Self::InvalidKubeletSettings
            | Self::InvalidKubeletVersion
            | Self::InvalidOperatingSystemSpec
            | Self::InvalidProviderSpec
            | Self::NameConflict
            | Self::NameTooLong
            | Self::NamespaceNotServed
            | Self::PoolSettingsInvalid
            | Self::PoolSettingsMissing
            | Self::ProfileNotAccepted
            | Self::ProfileNotFound
            | Self::Rendered
            | Self::Retired
            | Self::TooManyMachineDeployments
            | Self::TooManySources
            | Self::UnknownCloudProvider
            | Self::UnknownOperatingSystem
            | Self::UnsupportedCloudProvider
            | Self::UnsupportedNetwork
            | Self::UnsupportedOperatingSystem
            | Self::UnsupportedProvisioningUtility
            | Self::WaitingForProfile
            | Self::WaitingForRevision
            | Self::WaitingForThread => R::PoolNotRendered,
            Self::Accepted
            | Self::ContentTooLarge
            | Self::CustomProfileCopied
            | Self::CustomProfileInvalid
            | Self::CustomProfileNameTaken
            | Self::CustomProfileVersionUnchanged
            | Self::DefaultProfileRestored
            | Self::ExtendsInvalid
            | Self::LateBoundValueMissing
            | Self::LateBoundValueNotRaw
            | Self::ModulesInvalid
            | Self::ParentNotAccepted
            | Self::ParentNotFound
            | Self::ProfileInvalid
            | Self::ReservedText
            | Self::TemplateFailed
            | Self::TemplateInvalid
            | Self::UnknownMarker
            | Self::UserDataInvalid
            | Self::ValidationPanicked => R::ProfileNotAccepted,
            Self::Conflict | Self::Timeout => R::ReconcilesFail,
            Self::DefinitionsOutdated | Self::FieldsDropped => R::ServiceNotReady,
            Self::SettingsMissing => R::SettingsInvalid,
            Self::UserDataTooLarge => R::UserDataNearLimit,
        }
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
