//! Reads objects of any kind, within the time limit of the flags.

use std::fmt;
use std::path::PathBuf;

use anyhow::Result;
use kube::api::{DynamicObject, GetParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::Flags;
use super::connect;
use super::failure::Failure;
use super::list::{List, Reader};

/// A kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub is_namespaced: bool,
}

impl Kind {
    fn resource(&self) -> ApiResource {
        let gvk = GroupVersionKind::gvk(self.group, self.version, self.kind);
        ApiResource::from_gvk_with_plural(&gvk, self.plural)
    }
}

/// An object of any kind, as the API server sent it.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    pub kind: Kind,
    /// With `apiVersion` and `kind`.
    pub value: Value,
}

impl Object {
    pub fn new(kind: Kind, mut value: Value) -> Self {
        if let Some(fields) = value.as_object_mut() {
            let version = kind.resource().api_version;
            fields.insert("apiVersion".to_owned(), json!(version));
            fields.insert("kind".to_owned(), json!(kind.kind));
        }
        Self { kind, value }
    }

    /// The text at a JSON pointer; empty if there is none.
    pub fn text(&self, pointer: &str) -> &str {
        self.value
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// The number at a JSON pointer.
    pub fn number(&self, pointer: &str) -> Option<i64> {
        self.value.pointer(pointer).and_then(Value::as_i64)
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

/// Reads objects of one cluster.
pub struct Objects {
    reader: Reader,
    client: Client,
    pub target: Target,
}

impl Objects {
    /// A reader of the cluster that the flags select.
    ///
    /// # Errors
    /// A kubeconfig that is missing or invalid.
    pub async fn connect(flags: &Flags) -> Result<Self> {
        let connection = connect::management(flags).await?;
        let kubeconfig = flags.kubeconfig.as_ref();
        Ok(Self {
            reader: Reader::new(&connection, flags.request_timeout),
            client: connection.client,
            target: Target {
                server: connection.server,
                context: connection.context,
                kubeconfig: kubeconfig.map(|file| file.canonicalize().unwrap_or_else(|_| file.clone())),
            },
        })
    }

    fn api(&self, kind: Kind, namespace: Option<&str>) -> Api<DynamicObject> {
        let (client, resource) = (self.client.clone(), kind.resource());
        match namespace.filter(|_| kind.is_namespaced) {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        }
    }

    /// All objects of a kind; none if the cluster does not have the kind.
    pub async fn list(&self, kind: Kind, namespace: Option<&str>) -> Result<Vec<Object>, Failure> {
        let resource = kind.resource();
        let list = match namespace {
            Some(namespace) => List::within(&resource, namespace),
            None => List::everywhere(&resource),
        };
        match self.reader.list::<Value>(&list).await {
            Ok(listed) => Ok(listed
                .objects
                .into_iter()
                .map(|value| Object::new(kind, value))
                .collect()),
            Err(failure) if failure.is_not_found() => Ok(Vec::new()),
            Err(failure) => Err(failure),
        }
    }

    /// One object; `None` if it does not exist.
    pub async fn get(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Object>, Failure> {
        let api = self.api(kind, namespace);
        let what = one(kind, namespace, name);
        let found = self.reader.request("get", &what, api.get_opt(name)).await?;
        // What was decoded from JSON has a JSON form.
        Ok(found.map(|object| Object::new(kind, serde_json::to_value(object).unwrap_or_default())))
    }

    /// The metadata of one object; `None` if it does not exist.
    pub async fn get_metadata(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Object>, Failure> {
        let (api, params) = (self.api(kind, namespace), GetParams::default());
        let found = api.get_metadata_opt_with(name, &params);
        let what = one(kind, namespace, name);
        let found = self.reader.request("get", &what, found).await?;
        Ok(found.map(|item| Object::new(kind, json!({"metadata": item.metadata}))))
    }
}

fn one(kind: Kind, namespace: Option<&str>, name: &str) -> String {
    let resource = kind.resource();
    match namespace {
        Some(namespace) => format!("{} {name} in namespace {namespace}", resource.plural),
        None => format!("{} {name}", resource.plural),
    }
}
