//! Objects as the API server sent them, for `migrate` alone.

use std::fmt;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, PartialObjectMeta};
use kube::core::ApiResource;
use kube::{Api, Resource};
use serde_json::Value;

use super::Flags;
use super::connect::Connection;
use super::failure::Failure;
use super::list::{List, Reader};

/// An object of any kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    pub kind: ApiResource,
    pub value: Value,
}

impl Object {
    pub fn new<K: Resource<DynamicType = ()>>(value: Value) -> Self {
        let kind = ApiResource::erase::<K>(&());
        Self { kind, value }
    }

    /// The text at a JSON pointer; empty if there is none.
    pub fn text(&self, pointer: &str) -> &str {
        let text = self.value.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_default()
    }

    /// The list at a JSON pointer.
    pub fn items(&self, pointer: &str) -> &[Value] {
        let list = self.value.pointer(pointer).and_then(Value::as_array);
        list.map(Vec::as_slice).unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    pub fn namespace(&self) -> Option<&str> {
        self.value.pointer("/metadata/namespace").and_then(Value::as_str)
    }
}

/// `Kind name`, or `Kind namespace/name`.
impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind.kind)?;
        if let Some(namespace) = self.namespace() {
            write!(f, "{namespace}/")?;
        }
        f.write_str(self.name())
    }
}

/// Which cluster is read.
#[derive(Clone, Debug)]
pub struct Target {
    /// URL of the API server.
    pub server: String,
    /// Context of the kubeconfig; absent in a pod.
    pub context: Option<String>,
    /// The kubeconfig, if a flag names it.
    pub kubeconfig: Option<PathBuf>,
}

impl Target {
    pub(super) fn new(connection: &Connection, flags: &Flags) -> Self {
        let kubeconfig = flags.kubeconfig.as_ref();
        Self {
            server: connection.server.clone(),
            context: connection.context.clone(),
            kubeconfig: kubeconfig.map(|file| file.canonicalize().unwrap_or_else(|_| file.clone())),
        }
    }
}

impl Reader {
    /// All objects of a kind; none if the cluster does not have the kind.
    ///
    /// # Errors
    /// A request that failed.
    pub async fn objects<K: Resource<DynamicType = ()>>(
        &self,
        namespace: Option<&str>,
    ) -> Result<Vec<Object>, Failure> {
        let kind = ApiResource::erase::<K>(&());
        let list = match namespace {
            Some(namespace) => List::within(&kind, namespace),
            None => List::everywhere(&kind),
        };
        match self.list::<Value>(&list).await {
            Ok(listed) => Ok(listed.objects.into_iter().map(Object::new::<K>).collect()),
            Err(failure) if failure.is_not_found() => Ok(Vec::new()),
            Err(failure) => Err(failure),
        }
    }

    /// Metadata of the Secrets of a type. What is in them is not read.
    ///
    /// # Errors
    /// A request that failed.
    pub async fn secrets_of_type(
        &self,
        namespace: &str,
        type_: &str,
    ) -> Result<Vec<PartialObjectMeta<Secret>>, Failure> {
        let secrets: Api<Secret> = self.namespaced(namespace);
        let params = ListParams::default().fields(&format!("type={type_}"));
        let what = format!("secrets in namespace {namespace}");
        let listed = self
            .request("list", &what, secrets.list_metadata(&params))
            .await?;
        Ok(listed.items)
    }
}
