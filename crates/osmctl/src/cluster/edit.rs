//! Reads and writes objects of any kind, within the time limit of the flags. A write names the version of the object that was read, so that
//! it never overwrites or deletes what another program has changed since.

use std::fmt;

use anyhow::Result;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{
    DeleteParams, DynamicObject, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions,
    PropagationPolicy,
};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use osm_api::rbac::ClusterKind;
use serde_json::{Value, json};

use super::Flags;
use super::connect;
use super::failure::{Cause, Failure};
use super::list::{self, Failed, List, Reader};
use crate::output;
use crate::progress::Progress;

/// Most objects of a page of metadata.
const PAGE: u32 = 500;

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

    pub fn uid(&self) -> &str {
        self.text("/metadata/uid")
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

/// A permission.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    pub verb: &'static str,
    pub group: &'static str,
    pub resource: &'static str,
    /// `None`: in all namespaces, or of a kind without namespaces.
    pub namespace: Option<String>,
}

/// `verb resource.group in namespace x`.
impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => Ok(()),
        }
    }
}

/// Reads and writes objects of one cluster.
pub struct Editor<'a> {
    reader: Reader<'a>,
    client: Client,
    progress: &'a Progress,
    /// URL of the API server.
    pub server: String,
    /// Context of the kubeconfig.
    pub context: Option<String>,
}

impl<'a> Editor<'a> {
    /// An editor of the cluster that the flags select.
    ///
    /// # Errors
    /// A kubeconfig that is missing or invalid.
    pub async fn connect(flags: &Flags, progress: &'a Progress) -> Result<Self> {
        let connection = connect::management(flags).await?;
        Ok(Self {
            reader: Reader::new(&connection, flags.request_timeout, progress),
            client: connection.client,
            progress,
            server: connection.server,
            context: connection.context,
        })
    }

    /// Shows on a terminal what goes on, if it takes long.
    pub fn show(&self, what: &str) {
        self.progress.show(what);
    }

    /// Writes to standard output.
    ///
    /// # Errors
    /// An output that can't be written.
    pub fn print(&self, text: &str) -> Result<()> {
        self.progress.clear();
        output::print(text)
    }

    fn api(&self, kind: Kind, namespace: Option<&str>) -> Api<DynamicObject> {
        let (client, resource) = (self.client.clone(), kind.resource());
        match namespace.filter(|_| kind.is_namespaced) {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        }
    }

    async fn request<T>(
        &self,
        action: &'static str,
        what: String,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Failure> {
        let shown = format!("{action} {what}");
        match self.reader.request(action, &what, &shown, request).await {
            Ok(answer) => Ok(answer),
            Err(Failed::For(failure)) => Err(failure),
            Err(Failed::Expired) => {
                let cause = Cause::Conflict;
                Err(Failure {
                    cluster: ClusterKind::Management,
                    action,
                    what,
                    cause,
                })
            }
        }
    }

    /// Whether the cluster has kinds of a group.
    pub async fn has_group(&self, group: &str) -> Result<bool, Failure> {
        let what = "API groups".to_owned();
        let groups = self.request("list", what, self.client.list_api_groups()).await?;
        Ok(groups.groups.iter().any(|known| known.name == group))
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

    /// The metadata of objects. Of Secrets, their content is not requested.
    pub async fn list_metadata(
        &self,
        kind: Kind,
        namespace: &str,
        params: ListParams,
    ) -> Result<Vec<Object>, Failure> {
        let (api, mut params, mut objects) =
            (self.api(kind, Some(namespace)), params.limit(PAGE), Vec::new());
        loop {
            let what = list::what(&kind.resource(), Some(namespace));
            let page = self.request("list", what, api.list_metadata(&params)).await?;
            let items = page.items.into_iter();
            objects.extend(items.map(|item| Object::new(kind, json!({"metadata": item.metadata}))));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(objects),
            }
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
        let found = self.request("get", one(kind, namespace, name), api.get_opt(name));
        Ok(found.await?.map(|object| decoded(kind, object)))
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
        let found = self.request("get", one(kind, namespace, name), found).await?;
        Ok(found.map(|item| Object::new(kind, json!({"metadata": item.metadata}))))
    }

    /// Creates an object.
    pub async fn create(&self, object: &Object) -> Result<Object, Failure> {
        let params = PostParams::default();
        self.post(object, &params).await
    }

    /// Whether the API server would create an object; otherwise its refusal.
    pub async fn would_create(&self, object: &Object) -> Result<Result<(), String>, Failure> {
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        match self.post(object, &params).await {
            Ok(_) => Ok(Ok(())),
            Err(Failure {
                cause: Cause::Other(message),
                ..
            }) => Ok(Err(message)),
            // It is not about a webhook.
            Err(Failure {
                cause: Cause::Conflict | Cause::NoSuchKind | Cause::Forbidden,
                ..
            }) => Ok(Ok(())),
            Err(failure) => Err(failure),
        }
    }

    /// Whether the user has the permission to create an object like this one, which may depend on its content. It is not created.
    pub async fn may_create(&self, object: &Object) -> Result<bool, Failure> {
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        match self.post(object, &params).await {
            // What a binding permits is unknown if its Role does not exist.
            Err(failure) if failure.is_forbidden() || failure.is_not_found() => Ok(false),
            // Another refusal is not about permissions.
            Ok(_)
            | Err(Failure {
                cause: Cause::Conflict | Cause::Other(_),
                ..
            }) => Ok(true),
            Err(failure) => Err(failure),
        }
    }

    async fn post(&self, object: &Object, params: &PostParams) -> Result<Object, Failure> {
        let (kind, namespace, name) = (object.kind, object.namespace(), object.name());
        let api = self.api(kind, namespace);
        let body = encoded(object, "create")?;
        let created = self.request("create", one(kind, namespace, name), api.create(params, &body));
        Ok(decoded(kind, created.await?))
    }

    /// Replaces an object that was read.
    pub async fn replace(&self, object: &Object) -> Result<Object, Failure> {
        let (kind, namespace, name) = (object.kind, object.namespace(), object.name());
        let (api, params) = (self.api(kind, namespace), PostParams::default());
        let body = encoded(object, "update")?;
        let replaced = api.replace(name, &params, &body);
        let replaced = self.request("update", one(kind, namespace, name), replaced);
        Ok(decoded(kind, replaced.await?))
    }

    /// Sets the number of replicas of an object that was read.
    pub async fn scale(&self, object: &Object, replicas: i64) -> Result<Object, Failure> {
        let (kind, namespace, name) = (object.kind, object.namespace(), object.name());
        let patch = json!({
            "metadata": {"resourceVersion": object.text("/metadata/resourceVersion")},
            "spec": {"replicas": replicas},
        });
        let (api, params, patch) = (
            self.api(kind, namespace),
            PatchParams::default(),
            Patch::Merge(&patch),
        );
        let patched = api.patch(name, &params, &patch);
        let patched = self.request("patch", one(kind, namespace, name), patched);
        Ok(decoded(kind, patched.await?))
    }

    /// Deletes an object that was read. One that is gone is no failure.
    pub async fn delete(&self, object: &Object) -> Result<(), Failure> {
        let (kind, namespace, name) = (object.kind, object.namespace(), object.name());
        let version = object.text("/metadata/resourceVersion");
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid: Some(object.uid().to_owned()),
                resource_version: Some(version.to_owned()),
            }),
            ..DeleteParams::default()
        };
        let api = self.api(kind, namespace);
        let deleted = self.request("delete", one(kind, namespace, name), api.delete(name, &params));
        match deleted.await {
            Ok(_) => Ok(()),
            Err(failure) if failure.is_not_found() => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Whether the user has a permission.
    pub async fn may(&self, right: &Right) -> Result<bool, Failure> {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(right.verb.to_owned()),
                    group: Some(right.group.to_owned()),
                    resource: Some(right.resource.to_owned()),
                    namespace: right.namespace.clone(),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let (api, params) = (
            Api::<SelfSubjectAccessReview>::all(self.client.clone()),
            PostParams::default(),
        );
        let what = "selfsubjectaccessreviews.authorization.k8s.io".to_owned();
        let answer = self.request("create", what, api.create(&params, &review)).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}

fn one(kind: Kind, namespace: Option<&str>, name: &str) -> String {
    let resource = kind.resource();
    match namespace {
        Some(namespace) => format!("{} {name} in namespace {namespace}", resource.plural),
        None => format!("{} {name}", resource.plural),
    }
}

fn decoded(kind: Kind, object: DynamicObject) -> Object {
    // What was decoded from JSON has a JSON form.
    Object::new(kind, serde_json::to_value(object).unwrap_or_default())
}

fn encoded(object: &Object, action: &'static str) -> Result<DynamicObject, Failure> {
    serde_json::from_value(object.value.clone()).map_err(|_| Failure {
        cluster: ClusterKind::Management,
        action,
        what: object.to_string(),
        cause: Cause::Other("it is not an object of Kubernetes".to_owned()),
    })
}
