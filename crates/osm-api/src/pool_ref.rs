//! Identifies a pool, wherever it was read from.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine_deployment::MachineDeployment;
use crate::names;

/// The object that defines a pool.
// It holds nothing that can change during the life of that object.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub struct PoolRef {
    /// API group and version, such as `cluster.k8s.io/v1alpha1`.
    #[schemars(length(max = 253))]
    pub api_version: Cow<'static, str>,
    /// Kind, such as `MachineDeployment`.
    #[schemars(length(max = 63))]
    pub kind: Cow<'static, str>,
    /// Namespace of the object.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Name of the object.
    #[schemars(length(max = 253))]
    pub name: String,
    /// uid of the object. An object that is recreated under the same name is another pool.
    #[schemars(length(max = 64))]
    pub uid: String,
}

impl PoolRef {
    /// Identity of a MachineDeployment, given by its parts.
    pub fn machine_deployment(
        namespace: impl Into<String>,
        name: impl Into<String>,
        uid: impl Into<String>,
    ) -> Self {
        Self {
            api_version: MachineDeployment::api_version(&()),
            kind: MachineDeployment::kind(&()),
            namespace: namespace.into(),
            name: name.into(),
            uid: uid.into(),
        }
    }

    /// Id of the pool in names and labels of objects; see [`names::pool_id`].
    pub fn id(&self) -> String {
        names::pool_id(&self.namespace, &self.name, &self.uid)
    }

    /// Name of its OperatingSystemConfig. Two pools can claim the same name; see [`names::config_name`].
    pub fn config_name(&self) -> String {
        names::config_name(&self.name, &self.namespace)
    }
}

impl From<&MachineDeployment> for PoolRef {
    fn from(md: &MachineDeployment) -> Self {
        Self::machine_deployment(
            md.namespace().unwrap_or_default(),
            md.name_any(),
            md.uid().unwrap_or_default(),
        )
    }
}

impl From<&PoolRef> for ObjectReference {
    fn from(pool: &PoolRef) -> Self {
        Self {
            api_version: Some(pool.api_version.clone().into_owned()),
            kind: Some(pool.kind.clone().into_owned()),
            namespace: Some(pool.namespace.clone()),
            name: Some(pool.name.clone()),
            uid: Some(pool.uid.clone()),
            ..Self::default()
        }
    }
}

/// `namespace/name`.
impl fmt::Display for PoolRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
