//! Runs the commands of the page on KKP, on a seed and a user cluster. Only KKP's part of them is played
//! here. What the services do then is in the chain's test `kkp`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use osm_api::names::CLOUD_INIT_SETTINGS;
use osm_api::rbac::Service;
use osm_testkit::{ControlPlane, Options, check, installation, wait_for};
use serde_json::{Value, json};

use crate::page::{DEADLINE, FIXTURES, Person, read, section_blocks};

/// What the Deployment of KKP runs once the API server answers.
const COMMAND: &str = r#"{"command":"/usr/local/bin/osm-controller","args":["-kubeconfig","/etc/kubernetes/kubeconfig/kubeconfig","-namespace","kube-system","-cluster-dns","169.254.20.10"]}"#;

/// The number of the NodePort of the user cluster's API server.
const NODE_PORT: u16 = 30_443;

/// KKP's definition of user clusters, cut down, the user cluster `x7k2`, its Deployment of the upstream OSM,
/// and the Service of its API server, whose pods listen on the number of the NodePort (kubermatic/kubermatic
/// 2.31, pkg/resources/apiserver/service.go).
fn seed() -> [Value; 6] {
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let labels = json!({"app": "operating-system-manager"});
    let container = json!({"name": "operating-system-manager", "image": "registry.example/operating-system-manager:v1.11.3",
        "command": ["/http-prober-bin/http-prober"], "args": ["-command", COMMAND]});
    [
        namespace("kubermatic"),
        namespace("cluster-x7k2"),
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "clusters.kubermatic.k8c.io"},
            "spec": {"group": "kubermatic.k8c.io", "scope": "Cluster",
                "names": {"kind": "Cluster", "plural": "clusters", "singular": "cluster"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "operating-system-manager", "namespace": "cluster-x7k2"},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "apiserver-external", "namespace": "cluster-x7k2"},
            "spec": {"type": "NodePort", "ports": [{"name": "secure", "port": 443, "targetPort": NODE_PORT, "nodePort": NODE_PORT}]}}),
        json!({"apiVersion": "kubermatic.k8c.io/v1", "kind": "Cluster", "metadata": {"name": "x7k2"}, "spec": {}}),
    ]
}

/// What KKP's webhook does on create and update if the Seed's `defaultComponentSettings` or default cluster
/// template has two replicas of the upstream OSM. It merges with mergo, which takes 0 for empty
/// (kubermatic/kubermatic 2.26 to 2.31, `DefaultClusterSpec` in pkg/defaulting/cluster.go, called by
/// pkg/webhook/cluster/mutation/mutator.go; dario.cat/mergo 1.0.2).
const DEFAULTS_OF_THE_SEED: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: defaults-of-the-seed}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [kubermatic.k8c.io], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [clusters]}]
  matchConditions:
    - name: is-empty
      expression: object.spec.?componentsOverride.?operatingSystemManager.?replicas.orValue(0) == 0
  reinvocationPolicy: Never
  mutations:
    - patchType: JSONPatch
      jsonPatch:
        expression: "[JSONPatch{op: 'add', path: '/spec/componentsOverride', value: {'operatingSystemManager': {'replicas': 2}}}]"
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: defaults-of-the-seed}
spec: {policyName: defaults-of-the-seed}
"#;

/// Waits until KKP makes this of 0 replicas.
async fn wait_for_default(clusters: &Api<DynamicObject>, wanted: u64) -> Result<()> {
    let none = json!({"spec": {"componentsOverride": {"operatingSystemManager": {"replicas": 0}}}});
    let dry_run = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    wait_for("the defaults of the Seed", DEADLINE, async || {
        let cluster = clusters.patch("x7k2", &dry_run, &Patch::Merge(&none)).await?;
        check(replicas(&cluster) == Some(wanted))
    })
    .await
}

/// The replicas of the upstream OSM that a user cluster asks for.
fn replicas(cluster: &DynamicObject) -> Option<u64> {
    let found = cluster
        .data
        .pointer("/spec/componentsOverride/operatingSystemManager/replicas");
    found.and_then(Value::as_u64)
}

fn clusters(client: &Client) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kubermatic.k8c.io", "v1", "Cluster"));
    Api::all_with(client.clone(), &kind)
}

/// KKP's controller of the seed: the Deployment has the replicas that the user cluster asks for.
async fn reconcile(client: Client) -> Result<()> {
    let clusters = clusters(&client);
    let deployments: Api<Deployment> = Api::namespaced(client, "cluster-x7k2");
    loop {
        let cluster = clusters.get("x7k2").await?;
        let patch = json!({"spec": {"replicas": replicas(&cluster).unwrap_or(1)}});
        deployments
            .patch(
                "operating-system-manager",
                &PatchParams::default(),
                &Patch::Merge(&patch),
            )
            .await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_page_on_kkp_does_what_it_says() -> Result<()> {
    let page = read("kkp.md")?;
    let (seed_plane, user) = tokio::try_join!(
        ControlPlane::start(Options::default()),
        ControlPlane::start(Options::default())
    )?;
    let theirs = std::fs::read_to_string(format!("{FIXTURES}/go-shaped.yaml"))?;
    user.apply_yaml(&theirs).await?;
    user.install_machine_deployment_crd().await?;
    wait_for("definitions to be served", DEADLINE, async || {
        check(installation::apply(&seed_plane, &seed()).await.is_ok())
    })
    .await?;
    let person = Person::new(vec![("seed", &seed_plane), ("user", &user)]).await?;
    let client = seed_plane.admin()?;
    let blocks = section_blocks(&page, "A pilot", "sh")?;
    let [before @ .., stop_and_install, status, clean_up, back] = &blocks[..] else {
        anyhow::bail!("other commands")
    };

    let checked = person.run(&before.join("\n")).await?;
    ensure!(
        checked.contains("169.254.20.10") && checked.contains("defaultComponentSettings"),
        "{checked}"
    );
    let kkp = tokio::spawn(reconcile(client.clone()));
    let deployments = |namespace: &str| Api::<Deployment>::namespaced(client.clone(), namespace);
    let ours = ListParams::default().labels("app.kubernetes.io/part-of=operating-system-manager");

    let user_clusters = clusters(&client);
    seed_plane.apply_yaml(DEFAULTS_OF_THE_SEED).await?;
    wait_for_default(&user_clusters, 2).await?;
    let refused = person.run(stop_and_install).await.err();
    let refused = refused
        .context("the step goes on while the upstream OSM runs")?
        .to_string();
    let advice = "Remove operatingSystemManager.replicas from the Seed's defaults";
    ensure!(refused.contains(advice), "{refused}");
    let installed = deployments("cluster-x7k2").list(&ours).await?;
    ensure!(installed.items.is_empty(), "{refused}");
    person
        .run("kubectl delete mutatingadmissionpolicies --all --context seed")
        .await?;
    wait_for_default(&user_clusters, 0).await?;

    person.run(stop_and_install).await?;
    let shared = deployments("kubermatic").list(&ours).await?;
    let shared: Vec<String> = shared.iter().map(ResourceExt::name_any).collect();
    assert_eq!(shared, ["osm-profiles-osp-controller"]);
    let of_cluster = deployments("cluster-x7k2").list(&ours).await?;
    assert_eq!(of_cluster.items.len(), Service::ALL.len());
    let osc_controller = deployments("cluster-x7k2").get("osm-osc-controller").await?;
    let spec = serde_json::to_string(&osc_controller.spec)?;
    ensure!(
        spec.contains("--fallback-profile-namespace=kubermatic") && spec.contains("worker-osc-controller"),
        "{spec}"
    );
    let secrets = Api::<Secret>::namespaced(client.clone(), "cluster-x7k2");
    let secret = secrets.get("worker-osc-controller").await?;
    let kubeconfig = secret.data.context("data")?.remove("kubeconfig");
    let kubeconfig = String::from_utf8(kubeconfig.context("a kubeconfig")?.0)?;
    ensure!(kubeconfig.contains("apiserver-external.cluster-x7k2"));
    person.run(status).await?;
    // KKP deletes the namespace with the user cluster, and with it the Secret by which Helm finds what the
    // release has elsewhere.
    let scoped = "kubectl get clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,\
        validatingwebhookconfigurations --context seed -o name -l app.kubernetes.io/part-of=operating-system-manager";
    let scoped = person.run(scoped).await?;
    // The page says how to delete the one that is named there.
    let is_expected = |line: &str| {
        let (_, name) = line.rsplit_once('/').unwrap_or_default();
        name.replace('.', ":").starts_with("osm:kubermatic:osm-profiles:")
            || page.contains(&format!(" {name} "))
    };
    ensure!(!scoped.is_empty() && scoped.lines().all(is_expected), "{scoped}");
    let egress = "helm template osm charts/operating-system-manager -f values.yaml -f cluster.yaml --set networkPolicy.enabled=true \
        -s templates/network-policy.yaml";
    let egress = person.run(egress).await?;
    ensure!(egress.contains(&format!("port: {NODE_PORT}")), "{egress}");

    let secret = |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": CLOUD_INIT_SETTINGS}});
    let of_a_pool = "pool-kube-system-bootstrap-config";
    let secrets = ["cloud-init-getter-token", of_a_pool].map(secret);
    installation::apply(&user, &secrets).await?;
    person.run(clean_up).await?;
    person.run(back).await?;
    let left = Api::<Secret>::namespaced(user.admin()?, CLOUD_INIT_SETTINGS)
        .list(&ListParams::default())
        .await?;
    ensure!(left.items.is_empty(), "{left:?}");
    wait_for("KKP to start the upstream OSM", DEADLINE, async || {
        let go = deployments("cluster-x7k2")
            .get("operating-system-manager")
            .await?;
        check(go.spec.and_then(|spec| spec.replicas) == Some(1))
    })
    .await?;
    kkp.abort();
    Ok(())
}
