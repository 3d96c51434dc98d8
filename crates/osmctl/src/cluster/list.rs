//! Reads objects within a time limit: all of a kind, or one.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Request;
use http::header::ACCEPT;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DynamicObject, ListParams, LogParams};
use kube::core::{ApiResource, GroupVersionKind, Status};
use kube::{Api, Client, Resource, ResourceExt};
use osm_api::names::KUBE_SYSTEM;
use osm_api::rbac::{ClusterKind, RENEWAL, Service};
use osm_api::strict;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::connect::Connection;
use super::failure::{Cause, Failure};

/// Asks for what `kubectl get` prints.
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

/// Which objects to list.
pub struct List<'k> {
    kind: &'k ApiResource,
    /// `None`: all namespaces.
    namespace: Option<String>,
    params: ListParams,
}

/// The objects of a list.
pub struct Listed<K> {
    pub objects: Vec<K>,
    /// Objects that can't be decoded: which, why, and the next step.
    pub problems: Vec<String>,
}

impl<'k> List<'k> {
    pub fn everywhere(kind: &'k ApiResource) -> Self {
        Self {
            kind,
            namespace: None,
            params: ListParams::default(),
        }
    }

    pub fn within(kind: &'k ApiResource, namespace: &str) -> Self {
        Self {
            namespace: Some(namespace.to_owned()),
            ..Self::everywhere(kind)
        }
    }

    pub fn labels(self, selector: &str) -> Self {
        Self {
            params: self.params.labels(selector),
            ..self
        }
    }

    pub fn fields(self, selector: impl AsRef<str>) -> Self {
        Self {
            params: self.params.fields(selector.as_ref()),
            ..self
        }
    }

    /// As RBAC names a resource: with its group, and where.
    fn what(&self) -> String {
        let resource = match self.kind.group.as_str() {
            "" => self.kind.plural.clone(),
            group => format!("{}.{group}", self.kind.plural),
        };
        match &self.namespace {
            Some(namespace) => format!("{resource} in namespace {namespace}"),
            None => format!("{resource} in all namespaces"),
        }
    }
}

/// Reads from one cluster.
#[derive(Clone)]
pub struct Reader {
    cluster: ClusterKind,
    client: Client,
    timeout: Duration,
}

impl Reader {
    pub fn new(connection: &Connection, timeout: Duration) -> Self {
        Self {
            cluster: connection.kind,
            client: connection.client.clone(),
            timeout,
        }
    }

    /// All objects of a list. One that can't be decoded does not hide the others.
    ///
    /// # Errors
    /// A request that failed.
    pub async fn list<K: DeserializeOwned>(&self, list: &List<'_>) -> Result<Listed<K>, Failure> {
        let api = self.of_kind(list.kind, list.namespace.as_deref());
        let mut listed = Listed {
            objects: Vec::new(),
            problems: Vec::new(),
        };
        let objects = self.request("list", &list.what(), api.list(&list.params)).await?;
        for object in objects.items {
            listed.take(object, list.kind);
        }
        Ok(listed)
    }

    /// One object; `None` if it does not exist.
    ///
    /// # Errors
    /// A request that failed.
    pub async fn get<K>(&self, namespace: &str, name: &str) -> Result<Option<K>, Failure>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let api: Api<K> = self.namespaced(namespace);
        let kind = ApiResource::erase::<K>(&());
        let what = format!("{} {name} in namespace {namespace}", kind.plural);
        self.request("get", &what, api.get_opt(name)).await
    }

    fn of_kind(&self, kind: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, kind),
            None => Api::all_with(self.client.clone(), kind),
        }
    }

    /// Where an object with apiVersion and kind belongs, and its name.
    pub(super) fn place_of(&self, object: &Value) -> (Api<DynamicObject>, ApiResource, String) {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
        let (version, kind) = (text("/apiVersion"), text("/kind").unwrap_or_default());
        let (group, version) = version
            .and_then(|text| text.split_once('/'))
            .unwrap_or(("", "v1"));
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api = self.of_kind(&kind, text("/metadata/namespace"));
        (api, kind, text("/metadata/name").unwrap_or_default().to_owned())
    }

    /// Whether a read by name says that there is no such cluster-scoped object. An API server that does not
    /// have the kind answers with 404 as well, and then nothing is known.
    ///
    /// # Errors
    /// A request that failed, or did not ask for this kind.
    pub async fn is_gone(&self, kind: &ApiResource, name: &str) -> Result<bool, Failure> {
        let (api, what) = (
            self.of_kind(kind, None),
            format!("{}.{} {name}", kind.plural, kind.group),
        );
        let names = |status: &Status| status.details.as_ref().is_some_and(|about| about.name == name);
        let read = async {
            match api.get_metadata(name).await {
                Err(kube::Error::Api(status)) if status.code == 404 && names(&status) => Ok(true),
                other => other.map(|_| false),
            }
        };
        self.request("get", &what, read).await
    }

    /// The newest lines of the logs of a service's pod, by the names of the pod and the container, without sidecars. If a
    /// container was restarted, also those of the one before.
    pub async fn logs(&self, pod: &Pod, lines: i64) -> Vec<(String, Result<String, Failure>)> {
        let (pods, name) = (
            self.namespaced::<Pod>(&pod.namespace().unwrap_or_default()),
            pod.name_any(),
        );
        let statuses = pod
            .status
            .iter()
            .flat_map(|status| status.container_statuses.iter().flatten());
        let is_ours = |name: &str| {
            [RENEWAL, "kkp"].contains(&name) || Service::ALL.iter().any(|service| service.name() == name)
        };
        let mut logs = Vec::new();
        for status in statuses.filter(|status| is_ours(&status.name)) {
            for previous in [false, true]
                .into_iter()
                .take(1 + usize::from(status.restart_count > 0))
            {
                let params = LogParams {
                    container: Some(status.name.clone()),
                    tail_lines: Some(lines),
                    limit_bytes: Some(1 << 20),
                    previous,
                    ..LogParams::default()
                };
                let what = format!("logs of pod {name}");
                let log = self.request("get", &what, pods.logs(&name, &params)).await;
                let previous = if previous { "-previous" } else { "" };
                logs.push((format!("{name}-{}{previous}", status.name), log));
            }
        }
        logs
    }

    /// What `kubectl get --all-namespaces` shows of a kind: the namespace of each object, and its cells by the
    /// names of their columns. No object is sent.
    /// <https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables>
    ///
    /// # Errors
    /// A request that failed.
    pub async fn table<K>(&self) -> Result<Vec<(String, BTreeMap<String, String>)>, Failure>
    where
        K: Resource<DynamicType = ()>,
    {
        // From the memory of the API server.
        let uri = format!("{}?resourceVersion=0", K::url_path(&(), None));
        let request = Request::get(uri).header(ACCEPT, TABLE).body(Vec::new());
        let answer = async {
            self.client
                .request(request.map_err(kube::Error::HttpError)?)
                .await
        };
        let what = List::everywhere(&ApiResource::erase::<K>(&())).what();
        let table: Value = self.request("list", &what, answer).await?;
        let text = |value: &Value, at: &str| {
            let found = value.pointer(at).and_then(Value::as_str);
            found.unwrap_or_default().to_owned()
        };
        let items = |value: &Value, field: &str| {
            value
                .get(field)
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default()
        };
        let columns = items(&table, "columnDefinitions");
        let rows = items(&table, "rows").into_iter().map(|row| {
            let names = columns.iter().map(|column| text(column, "/name"));
            let cells = items(&row, "cells").into_iter().map(|cell| text(&cell, ""));
            (
                text(&row, "/object/metadata/namespace"),
                names.zip(cells).collect(),
            )
        });
        Ok(rows.collect())
    }

    pub(super) fn namespaced<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// What identifies the cluster: the uid of its namespace `kube-system`.
    ///
    /// # Errors
    /// A request that failed.
    pub(super) async fn cluster_uid(&self) -> Result<Option<String>, Failure> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let found = namespaces.get_metadata_opt(KUBE_SYSTEM);
        let found = self.request("get", "namespace kube-system", found).await?;
        Ok(found.and_then(|namespace| namespace.metadata.uid))
    }

    /// Sends a request.
    pub(super) async fn request<T>(
        &self,
        action: &'static str,
        what: &str,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Failure> {
        let request = tokio::time::timeout(self.timeout, request);
        let cause = match request.await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => Cause::of(&error),
            Err(_) => Cause::Timeout(self.timeout),
        };
        Err(Failure {
            cluster: self.cluster,
            action,
            what: what.to_owned(),
            cause,
        })
    }
}

impl<K: DeserializeOwned> Listed<K> {
    fn take(&mut self, object: DynamicObject, kind: &ApiResource) {
        let name = match object.namespace() {
            Some(namespace) => format!("{namespace}/{}", object.name_any()),
            None => object.name_any(),
        };
        // What was decoded from JSON has a JSON form.
        match strict::decode(serde_json::to_value(object).unwrap_or_default()) {
            Ok(object) => self.objects.push(object),
            Err(problems) => self.problems.push(format!(
                "{} {name} cannot be read: {}; correct it, or use the osmctl of the release that wrote it",
                kind.kind,
                problems.join("; ")
            )),
        }
    }
}
