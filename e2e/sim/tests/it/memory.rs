//! The API server in memory answers as a real one does: the tests send the same requests to both, and compare
//! the outcomes.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
    ValidationDirective, WatchEvent, WatchParams,
};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use osm_api::config::OperatingSystemConfig;
use osm_api::names::CLOUD_INIT_SETTINGS;
use osm_api::rbac::Installation;
use osm_api::{OperatingSystemProfile, definitions};
use osm_runtime::{error, read, status};
use osm_sim::memory::{Link, Server, User};
use osm_testkit::{ControlPlane, Options, fixtures, installation, wait_for};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The real server may need time until its authorizers know.
const DEADLINE: Duration = Duration::from_secs(180);

/// What became of each request.
#[derive(Default)]
struct Outcomes {
    outcomes: Vec<(&'static str, String)>,
    /// The messages of those that failed. They name versions and times, so they are never compared.
    messages: Vec<(&'static str, String)>,
}

impl Outcomes {
    fn note<T>(&mut self, what: &'static str, result: Result<T, kube::Error>) -> Option<T> {
        let (outcome, value) = match result {
            Ok(value) => ("ok".to_owned(), Some(value)),
            Err(kube::Error::Api(status)) => {
                self.messages.push((what, status.message));
                let about = status
                    .details
                    .map(|details| format!("{}/{}", details.kind, details.name));
                (
                    format!("{} {} {}", status.code, status.reason, about.unwrap_or_default()),
                    None,
                )
            }
            Err(other) => (format!("{other:?}"), None),
        };
        self.outcomes.push((what, outcome));
        value
    }

    fn see(&mut self, what: &'static str, value: impl Into<Value>) {
        self.outcomes.push((what, value.into().to_string()));
    }
}

fn object<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

async fn secrets(client: &Client, seen: &mut Outcomes) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let elsewhere: Api<Secret> = Api::namespaced(client.clone(), "missing");
    let checked = || osm_runtime::Api::<Secret>::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let (new, patch) = (PostParams::default(), PatchParams::default());
    let secret = |name: &str| -> Secret {
        object(json!({"metadata": {"name": name, "labels": {"set": "yes"}}, "data": {"a": "QQ=="}}))
    };
    let stored = seen
        .note("create", secrets.create(&new, &secret("a")).await)
        .context("a Secret")?;
    seen.see("type is defaulted", stored.type_.clone());
    seen.note("create once more", secrets.create(&new, &secret("a")).await);
    seen.note(
        "create in a namespace that is missing",
        elsewhere.create(&new, &secret("a")).await,
    );
    seen.note("get what is missing", secrets.get("missing").await);
    seen.note(
        "read what is missing",
        read::get(&checked(), "missing", drop, |_| ())
            .await
            .map(|found| found.is_none()),
    );
    seen.note(
        "read",
        read::get(&checked(), "a", drop, |_| ())
            .await
            .map(|found| found.is_some()),
    );

    let mut changed = stored.clone();
    changed
        .data
        .as_mut()
        .unwrap()
        .insert("b".into(), k8s_openapi::ByteString(b"B".to_vec()));
    let replaced = seen
        .note("replace", secrets.replace("a", &new, &changed).await)
        .context("replaced")?;
    seen.see(
        "a new version",
        replaced.resource_version() != stored.resource_version(),
    );
    seen.note(
        "replace what has changed",
        secrets.replace("a", &new, &changed).await,
    );
    let again = seen
        .note("replace by the same", secrets.replace("a", &new, &replaced).await)
        .context("same")?;
    seen.see(
        "no new version",
        again.resource_version() == replaced.resource_version(),
    );
    let mut other = replaced.clone();
    other.metadata.uid = Some("another".into());
    seen.note("replace another", secrets.replace("a", &new, &other).await);
    let mut unfenced = replaced.clone();
    unfenced.metadata.resource_version = None;
    seen.note(
        "replace whatever stands",
        secrets.replace("a", &new, &unfenced).await,
    );
    seen.note(
        "replace what is missing",
        secrets.replace("missing", &new, &secret("missing")).await,
    );
    let mut typed = replaced.clone();
    typed.metadata.resource_version = None;
    typed.type_ = Some("other/type".into());
    seen.note("another type", secrets.replace("a", &new, &typed).await);

    let marked =
        |version: Option<&str>| json!({"metadata": {"resourceVersion": version, "annotations": {"x": "1"}}});
    let stale = Patch::Merge(marked(stored.resource_version().as_deref()));
    seen.note("patch what has changed", secrets.patch("a", &patch, &stale).await);
    let patched = seen
        .note(
            "patch",
            secrets.patch("a", &patch, &Patch::Merge(marked(None))).await,
        )
        .context("patched")?;
    let same = seen.note(
        "patch by the same",
        secrets.patch("a", &patch, &Patch::Merge(marked(None))).await,
    );
    seen.see(
        "no new version",
        same.context("same")?.resource_version() == patched.resource_version(),
    );
    seen.note(
        "patch what is missing",
        secrets
            .patch("missing", &patch, &Patch::Merge(marked(None)))
            .await,
    );

    let mut immutable = secret("fixed");
    immutable.immutable = Some(true);
    seen.note("create immutable", secrets.create(&new, &immutable).await);
    for (what, content) in [
        ("data of an immutable one", json!({"data": {"a": "Qg=="}})),
        ("text of an immutable one", json!({"stringData": {"a": "C"}})),
        ("an immutable one made mutable", json!({"immutable": null})),
        (
            "annotations of an immutable one",
            json!({"metadata": {"annotations": {"y": "1"}}}),
        ),
    ] {
        seen.note(what, secrets.patch("fixed", &patch, &Patch::Merge(content)).await);
    }

    let only = |uid: Option<&str>, version: Option<&str>| {
        DeleteParams::default().preconditions(Preconditions {
            uid: uid.map(str::to_owned),
            resource_version: version.map(str::to_owned),
        })
    };
    let (uid, version) = (patched.uid(), patched.resource_version());
    let stale = stored.resource_version();
    seen.note(
        "delete another",
        secrets.delete("a", &only(Some("another"), None)).await,
    );
    seen.note(
        "delete what has changed",
        secrets.delete("a", &only(uid.as_deref(), stale.as_deref())).await,
    );
    seen.note(
        "delete",
        secrets
            .delete("a", &only(uid.as_deref(), version.as_deref()))
            .await,
    );
    seen.note(
        "delete what is gone",
        secrets.delete("a", &only(uid.as_deref(), None)).await,
    );
    seen.note(
        "delete without conditions",
        secrets.delete("fixed", &DeleteParams::default()).await,
    );
    Ok(())
}

async fn watches(client: &Client, seen: &mut Outcomes) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let (new, patch) = (PostParams::default(), PatchParams::default());
    let secret = |name: &str, label: &str| -> Secret {
        object(json!({"metadata": {"name": name, "labels": {"watched": label}}}))
    };
    for (name, label) in [("one", "yes"), ("two", "no"), ("three", "yes")] {
        secrets.create(&new, &secret(name, label)).await?;
    }
    for selector in ["watched=yes", "watched!=yes,watched", "watched", "watched=maybe"] {
        let found = secrets.list(&ListParams::default().labels(selector)).await?;
        let names: Vec<String> = found.items.iter().map(ResourceExt::name_any).collect();
        seen.see("found by label", names);
    }
    let named = secrets
        .list(&ListParams::default().fields("metadata.name=two"))
        .await?;
    seen.see(
        "found by name",
        named.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(),
    );
    let version = secrets
        .list(&ListParams::default())
        .await?
        .metadata
        .resource_version
        .unwrap();
    let events = secrets
        .watch(&WatchParams::default().labels("watched=yes"), &version)
        .await?;
    let label = |value: &str| Patch::Merge(json!({"metadata": {"labels": {"watched": value}}}));
    for (name, value) in [("two", "yes"), ("one", "no"), ("two", "maybe"), ("one", "yes")] {
        secrets.patch(name, &patch, &label(value)).await?;
    }
    let marked = Patch::Merge(json!({"metadata": {"annotations": {"x": "1"}}}));
    secrets.patch("three", &patch, &marked).await?;
    secrets.create(&new, &secret("four", "yes")).await?;
    for name in ["one", "two", "three", "four"] {
        secrets.delete(name, &DeleteParams::default()).await?;
    }
    let mut versions = Vec::new();
    let shown: Vec<String> = events
        .take(9)
        .map_ok(|event| {
            let (what, object) = match &event {
                WatchEvent::Added(object) => ("added", object),
                WatchEvent::Modified(object) => ("modified", object),
                WatchEvent::Deleted(object) => ("deleted", object),
                other => panic!("{other:?}"),
            };
            versions.push(object.resource_version().unwrap().parse::<u64>().unwrap());
            format!("{what} {} {}", object.name_any(), object.labels()["watched"])
        })
        .try_collect()
        .await?;
    seen.see("shown", shown);
    seen.see("in order", versions.is_sorted());
    Ok(())
}

async fn tokens(client: &Client, anonymous: &Client, seen: &mut Outcomes) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let new = PostParams::default();
    let secret: Secret = object(json!({"metadata": {"name": "document"}, "data": {"a": "QQ=="}}));
    let secret = secrets.create(&new, &secret).await?;
    let account: ServiceAccount = object(json!({"metadata": {"name": "node"}}));
    accounts.create(&new, &account).await?;
    let request = |name: &str, uid: &str, seconds: i64| -> TokenRequest {
        let bound = json!({"kind": "Secret", "apiVersion": "v1", "name": name, "uid": uid});
        object(json!({"spec": {"audiences": [], "expirationSeconds": seconds, "boundObjectRef": bound}}))
    };
    let uid = secret.uid().unwrap();
    let ask = async |account: &str, request: TokenRequest| {
        accounts.create_token_request(account, &new, &request).await
    };
    seen.note(
        "a token of nobody",
        ask("nobody", request("document", &uid, 3600)).await,
    );
    seen.note(
        "a token bound to nothing",
        ask("node", request("missing", &uid, 3600)).await,
    );
    seen.note(
        "a token bound to another",
        ask("node", request("document", "another", 3600)).await,
    );
    seen.note(
        "a token for seconds",
        ask("node", request("document", &uid, 10)).await,
    );
    let issued = seen
        .note("a token", ask("node", request("document", &uid, 3600)).await)
        .context("a token")?;
    seen.see("granted", issued.spec.expiration_seconds);
    let token = issued.status.context("a token")?.token;

    let may = async |name: &str| -> Result<bool, kube::Error> {
        let attributes =
            json!({"namespace": CLOUD_INIT_SETTINGS, "verb": "get", "resource": "secrets", "name": name});
        let review = json!({"spec": {"resourceAttributes": attributes}})
            .to_string()
            .into_bytes();
        let request = http::Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {token}"))
            .body(review)
            .unwrap();
        let answer: SelfSubjectAccessReview = anonymous.request(request).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    };
    seen.see("may before it has a Role", may("document").await?);
    let roles: Api<Role> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let rule =
        json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["document"], "verbs": ["get"]});
    roles
        .create(
            &new,
            &object(json!({"metadata": {"name": "node"}, "rules": [rule]})),
        )
        .await?;
    let binding = |role: &str| -> RoleBinding {
        object(json!({"metadata": {"name": "node"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "node", "namespace": CLOUD_INIT_SETTINGS}]}))
    };
    bindings.create(&new, &binding("node")).await?;
    seen.note(
        "another role for a binding",
        bindings.replace("node", &new, &binding("other")).await,
    );
    wait_for("the Role to count", DEADLINE, async || {
        osm_testkit::check(may("document").await?)
    })
    .await?;
    seen.see("may get another", may("another").await?);
    secrets.delete("document", &DeleteParams::default()).await?;
    wait_for("the token to die", DEADLINE, async || {
        osm_testkit::check(
            may("document")
                .await
                .is_err_and(|error| error::is_code(&error, 401)),
        )
    })
    .await?;
    seen.note("the token of what is gone", may("document").await);
    Ok(())
}

async fn configs(client: &Client, seen: &mut Outcomes) -> Result<()> {
    let configs: Api<OperatingSystemConfig> = Api::namespaced(client.clone(), "osm");
    let checked = || osm_runtime::Api::<OperatingSystemConfig>::namespaced(client.clone(), "osm");
    let new = PostParams::default();
    let config: OperatingSystemConfig = object(json!({"metadata": {"name": "c"},
        "spec": {"osName": "ubuntu", "osVersion": "one"}, "status": {"rendered": {"digest": "x"}}}));
    let created = seen
        .note("create", configs.create(&new, &config).await)
        .context("a config")?;
    seen.see("generation", created.metadata.generation);
    seen.see("its status does not count", created.status.is_none());

    let condition = |type_: &str, reason: &str| json!({"type": type_, "status": "True", "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let one = |digest: &str, revision: Option<&str>| json!({"conditions": [condition("Rendered", "R")], "rendered": {"digest": digest, "revision": revision}});
    let two = json!({"conditions": [condition("Published", "P")],
        "published": {"digest": "d", "revision": "1", "bootstrapSecret": "b", "provisioningSecret": "p", "credentialExpirationTime": "e"}});
    let apply = async |manager: &str, name: &str, content: &Value| {
        let version = configs.get("c").await?.resource_version().unwrap_or_default();
        let applied = status::apply(&checked(), manager, name, &version, content).await;
        applied.map(|config| config.expect("a config that can be decoded"))
    };
    for (what, manager, content) in [
        ("status of one manager", "one", one("1", Some("1"))),
        ("status of another", "two", two.clone()),
        ("less of the first", "one", one("2", None)),
        ("nothing of the second", "two", json!({})),
        ("and again", "two", two),
    ] {
        let applied = seen
            .note(what, apply(manager, "c", &content).await)
            .context("applied")?;
        seen.see("generation", applied.metadata.generation);
        seen.see("status", serde_json::to_value(&applied.status)?);
    }
    let before = configs.get("c").await?;
    let same = seen
        .note("status by the same", apply("one", "c", &one("2", None)).await)
        .context("same")?;
    seen.see(
        "no new version",
        same.resource_version() == before.resource_version(),
    );
    seen.note(
        "status of nothing",
        apply("one", "missing", &one("3", None)).await,
    );

    // Only its resourceVersion keeps a status from being written to another state, or another object of that
    // name.
    let fenced = async |metadata: Value| {
        let patch = json!({"apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemConfig",
            "metadata": metadata, "status": one("2", None)});
        configs
            .patch_status("c", &PatchParams::apply("one").force(), &Patch::Apply(&patch))
            .await
    };
    let stale = created.resource_version();
    seen.note(
        "another uid",
        fenced(json!({"name": "c", "uid": "another"})).await,
    );
    seen.note(
        "a stale version",
        fenced(json!({"name": "c", "resourceVersion": stale})).await,
    );
    seen.note(
        "its version",
        fenced(json!({"name": "c", "resourceVersion": before.resource_version()})).await,
    );

    let mut next = configs.get("c").await?;
    next.spec.os_version = "two".into();
    next.status = None;
    let replaced = seen
        .note("replace", configs.replace("c", &new, &next).await)
        .context("replaced")?;
    seen.see("generation", replaced.metadata.generation);
    seen.see("its status stays", replaced.status == before.status);
    seen.note(
        "replace what has changed",
        configs.replace("c", &new, &next).await,
    );
    let mut unfenced = replaced.clone();
    unfenced.metadata.resource_version = None;
    seen.note(
        "replace without a version",
        configs.replace("c", &new, &unfenced).await,
    );
    let patch = |spec: Value| Patch::Merge(json!({"spec": spec}));
    let params = PatchParams::default();
    let pool = |uid: &str| json!({"apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment", "namespace": "n", "name": "m", "uid": uid});
    for (what, spec) in [
        (
            "another content",
            json!({"bootstrapConfig": {"userSSHKeys": ["key"]}}),
        ),
        ("a pool besides", json!({"poolRef": pool("u")})),
        (
            "nothing else",
            json!({"osName": null, "osVersion": null, "bootstrapConfig": null}),
        ),
        ("another pool", json!({"poolRef": {"uid": "v"}})),
        ("no pool any more", json!({"poolRef": null})),
    ] {
        seen.note(what, configs.patch("c", &params, &patch(spec)).await);
    }
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    let labelled = seen.note(
        "labels",
        configs.patch("c", &params, &Patch::Merge(labelled)).await,
    );
    seen.see("generation", labelled.context("labelled")?.metadata.generation);
    seen.note("delete", configs.delete("c", &DeleteParams::default()).await);
    let recreated = seen
        .note("create anew", configs.create(&new, &config).await)
        .context("a config")?;
    seen.see("another uid", recreated.uid() != created.uid());
    let version = before.resource_version().unwrap();
    seen.note(
        "status of the one before",
        status::apply(&checked(), "one", "c", &version, &one("3", None))
            .await
            .map(|config| config.expect("a config that can be decoded")),
    );
    Ok(())
}

/// Two managers send the same conditions, and one of them a document besides.
async fn managers(client: &Client, seen: &mut Outcomes) -> Result<()> {
    let configs: Api<OperatingSystemConfig> = Api::namespaced(client.clone(), "osm");
    let checked = osm_runtime::Api::<OperatingSystemConfig>::namespaced(client.clone(), "osm");
    let config: OperatingSystemConfig = object(json!({"metadata": {"name": "m"}, "spec": {}}));
    let created = configs.create(&PostParams::default(), &config).await?;
    let condition = |type_: &str, message: &str| json!({"type": type_, "status": "True", "reason": "R", "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let content = |conditions: Value| json!({"conditions": conditions, "rendered": {"digest": "d"}});
    let only = |conditions: Value| json!({"conditions": conditions});
    let (rendered, other) = (condition("Rendered", "1"), condition("Rendered", "2"));
    let current = |message: &str| condition("Current", message);
    for (what, manager, status) in [
        (
            "both conditions with a document",
            "content",
            content(json!([rendered, current("1")])),
        ),
        ("one changes", "condition", only(json!([other, current("1")]))),
        (
            "the other changes",
            "condition",
            only(json!([other, current("2")])),
        ),
        (
            "left out by the one that owns all of it",
            "condition",
            only(json!([other])),
        ),
        (
            "left out by the one that owns a part of it",
            "content",
            content(json!([rendered])),
        ),
        (
            "and by the one that owns all of it",
            "condition",
            only(json!([other])),
        ),
        (
            "both once more",
            "content",
            content(json!([rendered, current("3")])),
        ),
        ("the same", "condition", only(json!([rendered, current("3")]))),
        ("left out", "condition", only(json!([rendered]))),
        (
            "the same again",
            "condition",
            only(json!([rendered, current("3")])),
        ),
        ("another", "content", content(json!([rendered, current("4")]))),
        (
            "left out with the document",
            "content",
            content(json!([rendered])),
        ),
    ] {
        let version = configs.get("m").await?.resource_version().unwrap_or_default();
        let applied = status::apply(&checked, manager, "m", &version, &status).await;
        seen.note(what, applied);
        seen.see("status", serde_json::to_value(configs.get("m").await?.status)?);
    }
    let stored = configs.get("m").await?;
    let mut kept = stored.status.clone().context("a status")?.conditions;
    kept.retain(|condition| condition.type_ != "Current");
    for (version, is_stale) in [
        (created.resource_version(), true),
        (stored.resource_version(), false),
    ] {
        let version = version.unwrap_or_default();
        let replaced = status::replace_conditions(&checked, "m", &version, &kept).await;
        let replaced = seen.note("left out by a merge", replaced).flatten();
        anyhow::ensure!(replaced.is_none() == is_stale, "only a stale version is refused");
        seen.see(
            "status",
            serde_json::to_value(replaced.map(|config| config.status))?,
        );
    }
    for manager in ["condition", "content"] {
        let version = configs.get("m").await?.resource_version().unwrap_or_default();
        let status = only(json!([rendered]));
        let applied = status::apply(&checked, manager, "m", &version, &status).await;
        let applied = seen.note("left out by all", applied).flatten();
        seen.see(
            "status",
            serde_json::to_value(applied.map(|config| config.status))?,
        );
    }
    Ok(())
}

/// What does not fit the schema.
async fn profiles(client: &Client, seen: &mut Outcomes) -> Result<()> {
    let kind = ApiResource::erase::<OperatingSystemProfile>(&());
    let profiles: Api<DynamicObject> = Api::namespaced_with(client.clone(), "osm", &kind);
    let profile = |name: &str, change: Value| {
        let mut profile = fixtures::profile("osm", name, "v1.0.0", "text");
        json_patch::merge(&mut profile, &json!({"spec": change}));
        object::<DynamicObject>(profile)
    };
    let new = PostParams::default();
    let file = |file: Value| json!({"bootstrapConfig": {"files": [file]}});
    for (what, change) in [
        ("a profile without a field", json!({"osName": null})),
        (
            "a profile with another value of an enumeration",
            json!({"osName": "beos"}),
        ),
        ("a profile with another type", json!({"osVersion": 12})),
        (
            "a profile with a list for an object",
            json!({"bootstrapConfig": []}),
        ),
        (
            "a profile with a version against the pattern",
            json!({"version": "1"}),
        ),
        (
            "a profile with a file without a path",
            file(json!({"content": {"inline": {"data": "a"}}})),
        ),
        (
            "a profile with several mistakes",
            json!({"osName": null, "osVersion": null, "version": true}),
        ),
    ] {
        let refused = profiles.create(&new, &profile("a", change)).await;
        if let Err(kube::Error::Api(status)) = &refused {
            let mut causes: Vec<String> = status
                .details
                .iter()
                .flat_map(|details| &details.causes)
                // A real server says here that it has not checked rules.
                .filter(|cause| cause.field != "<nil>")
                .map(|cause| format!("{} {}", cause.reason, cause.field))
                .collect();
            causes.sort();
            seen.see(what, causes);
        }
        seen.note(what, refused);
    }
    let unknown = json!({"osNme": "ubuntu", "templateEngine": null,
        "bootstrapConfig": {"files": [{"path": "/a", "permissions": 644, "content": {"inline": {"data": "a"}}}]},
        "supportedCloudProviders": [{"name": "aws", "more": {"a": 1}}]});
    let created = profiles.create(&new, &profile("a", unknown)).await;
    let created = seen
        .note("a profile with fields that are not known", created)
        .context("a profile")?;
    let mut spec = created.data["spec"].clone();
    spec.sort_all_objects();
    seen.see("defaults and pruned fields", spec);
    let mut changed = created.clone();
    changed.data["spec"]["osVersion"] = json!("1");
    seen.note(
        "a profile changes without its version",
        profiles.replace("a", &new, &changed).await,
    );
    changed.data["spec"]["version"] = json!("v1.0.1");
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    seen.note(
        "a profile changes with its version, as a trial",
        profiles.replace("a", &dry_run, &changed).await,
    );
    seen.see(
        "that changes nothing",
        profiles.get("a").await?.data["spec"]["version"].clone(),
    );
    seen.note(
        "a profile changes with its version",
        profiles.replace("a", &new, &changed).await,
    );
    let strict = PatchParams {
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({"spec": {"osNme": "ubuntu", "version": "v1.0.2"}}));
    seen.note(
        "a profile with a field that is not known, strictly",
        profiles.patch("a", &strict, &patch).await,
    );
    let by_path =
        serde_json::from_value(json!([{"op": "replace", "path": "/spec/version", "value": "v1.0.3"}]))?;
    seen.note(
        "a profile changes by a JSON patch",
        profiles
            .patch("a", &PatchParams::default(), &Patch::<()>::Json(by_path))
            .await,
    );
    let strategic = Patch::Strategic(json!({"spec": {"version": "v1.0.4"}}));
    seen.note(
        "a profile changes by a strategic merge patch",
        profiles.patch("a", &PatchParams::default(), &strategic).await,
    );
    Ok(())
}

async fn all(client: &Client, anonymous: &Client) -> Result<Outcomes> {
    let mut seen = Outcomes::default();
    secrets(client, &mut seen).await?;
    watches(client, &mut seen).await?;
    tokens(client, anonymous, &mut seen).await?;
    Box::pin(configs(client, &mut seen)).await?;
    Box::pin(managers(client, &mut seen)).await?;
    Box::pin(profiles(client, &mut seen)).await?;
    Ok(seen)
}

fn installation() -> Installation {
    Installation {
        namespace: "osm".to_owned(),
        ..Installation::default()
    }
}

async fn in_memory() -> Result<Outcomes> {
    let server = Server::new(Timestamp::from_second(1_800_000_000)?);
    server.load(&[definitions::PROFILES, definitions::CONFIGS].map(definitions::parse))?;
    server.load(&installation::manifests(&installation()))?;
    let outcomes = all(&server.admin(), &server.client(User::Nobody, &Link::default())).await?;
    assert_eq!(server.unsupported(), Vec::<String>::new());
    Ok(outcomes)
}

/// The outcomes that differ on a real server, with what it says of failures.
async fn differences() -> Result<Option<String>> {
    let plane = ControlPlane::start(Options::default()).await?;
    plane.install_crds(&installation::crds()).await?;
    installation::apply(&plane, &installation::manifests(&installation())).await?;
    let kubeconfig = Kubeconfig::read_from(plane.admin_kubeconfig_path())?;
    let mut nobody = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    nobody.auth_info = AuthInfo::default();
    let real = all(&plane.admin()?, &Client::try_from(nobody)?).await?;
    let memory = Box::pin(in_memory()).await?;
    assert_eq!(real.outcomes.len(), memory.outcomes.len());
    let outcomes = memory.outcomes.iter().zip(&real.outcomes);
    let differ: Vec<_> = outcomes.filter(|(memory, real)| memory != real).collect();
    let messages = &real.messages;
    Ok((!differ.is_empty())
        .then(|| format!("in memory, and really: {differ:#?}\nthe real server says: {messages:#?}")))
}

/// Once in about thirty runs, the real server answers 409 to a status that is applied with the version just
/// read. Nobody knows why yet, so only a difference that two servers have counts.
#[tokio::test]
async fn the_real_server_answers_the_same() -> Result<()> {
    let Some(first) = Box::pin(differences()).await? else {
        return Ok(());
    };
    eprintln!("{first}");
    assert_eq!(Box::pin(differences()).await?, None, "before: {first}");
    Ok(())
}
