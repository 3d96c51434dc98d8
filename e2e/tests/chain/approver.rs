//! Which machines join through csr-approver, and which requests get nothing. kube-controller-manager only
//! signs here: whatever is approved, csr-approver has approved.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, ResourceExt};
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::{Installation, Service};
use osm_api::{MachineDeployment, PoolRef};
use osm_testkit::{Options, check, installation, wait_for};
use serde_json::{Value, json};

use crate::joining::{KUBELET_SIGNER, Wish, join, node_wish, wish};
use crate::world::{self, DEADLINE, NAMESPACE, World, machine_deployment};

const CLUSTER: &str = "cluster.k8s.io";

/// A pool without secret-syncer: its ServiceAccount is made by hand.
pub struct Pool {
    name: String,
    /// Owner references to its MachineSet.
    set: Value,
    pub token: String,
}

/// The ServiceAccounts of pools may ask for certificates.
pub async fn let_pools_ask(world: &World) -> Result<()> {
    let rbac = "rbac.authorization.k8s.io";
    let group = format!("system:serviceaccounts:{CLOUD_INIT_SETTINGS}");
    world
        .apply(&json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "pools-may-ask"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "system:node-bootstrapper"},
            "subjects": [{"apiGroup": rbac, "kind": "Group", "name": group}]}))
        .await
}

async fn world(installation: Installation) -> Result<World> {
    let options = Options {
        controllers: vec!["csrsigning"],
        ..Options::default()
    };
    let world = World::start_as_without_services(options, installation).await?;
    let_pools_ask(&world).await?;
    // What the policy refuses is for csr-approver to decide here. It may not rely on the policy.
    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(world.client.clone());
    bindings
        .delete(installation::REQUESTS_POLICY, &DeleteParams::default())
        .await?;
    Ok(world)
}

#[tokio::test(flavor = "multi_thread")]
async fn csr_approver_decides_who_joins() -> Result<()> {
    let mut world = world(world::installation()).await?;
    world.installed.start(Service::CsrApprover).await?;
    world.installed.ready(DEADLINE).await?;
    a_token_opens_machines_of_its_pool_that_have_not_joined_and_nothing_else(&world).await
}

fn owned_by(owner: &DynamicObject, kind: &str) -> Value {
    json!([{"apiVersion": format!("{CLUSTER}/v1alpha1"), "kind": kind, "controller": true, "blockOwnerDeletion": true,
        "name": owner.name_any(), "uid": owner.uid()}])
}

impl World {
    fn of_kind(&self, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(CLUSTER, "v1alpha1", kind));
        Api::namespaced_with(self.client.clone(), "kube-system", &resource)
    }

    async fn account(&self, name: &str) -> Result<String> {
        self.apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": CLOUD_INIT_SETTINGS}}))
            .await?;
        self.plane.token(CLOUD_INIT_SETTINGS, name).await
    }

    pub async fn pool_of(&self, name: &str) -> Result<Pool> {
        self.apply(&machine_deployment(name, "osp-tiny")).await?;
        let md: MachineDeployment = self.pools().get(name).await?;
        let account = names::pool_account(&PoolRef::from(&md).id());
        let token = self.account(&account).await?;
        self.with_set(name, token).await
    }

    /// A pool that exists, and whose machines have this token.
    pub async fn with_set(&self, name: &str, token: String) -> Result<Pool> {
        let md = self.of_kind("MachineDeployment").get(name).await?;
        let set = json!({"apiVersion": format!("{CLUSTER}/v1alpha1"), "kind": "MachineSet", "spec": {},
            "metadata": {"name": format!("{name}-set"), "namespace": "kube-system",
                "ownerReferences": owned_by(&md, "MachineDeployment")}});
        self.apply(&set).await?;
        let set = self.of_kind("MachineSet").get(&format!("{name}-set")).await?;
        Ok(Pool {
            name: name.to_owned(),
            set: owned_by(&set, "MachineSet"),
            token,
        })
    }

    pub async fn machine_of(&self, pool: &Pool, name: &str) -> Result<()> {
        self.apply(
            &json!({"apiVersion": format!("{CLUSTER}/v1alpha1"), "kind": "Machine",
            "metadata": {"name": name, "namespace": "kube-system", "ownerReferences": pool.set},
            "spec": {"metadata": {"name": name}, "providerSpec": {"value": {"cloudProvider": "openstack"}}}}),
        )
        .await
    }

    pub async fn delete_machine(&self, name: &str) -> Result<()> {
        self.delete(&self.of_kind("Machine"), name).await
    }

    async fn node(&self, name: &str) -> Result<()> {
        self.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}))
            .await
    }

    fn requests(&self) -> Api<CertificateSigningRequest> {
        Api::all(self.client.clone())
    }

    async fn ask(&self, token: &str, Wish { request, .. }: Wish) -> Result<String> {
        let requests = Api::<CertificateSigningRequest>::all(self.plane.client(token)?);
        // The API server learns a little later that the policy is gone.
        wait_for("the request to be taken", DEADLINE, async || {
            requests.create(&PostParams::default(), &request).await?;
            Ok(Some(()))
        })
        .await?;
        Ok(request.name_any())
    }

    /// Asks for a node, in a request of another name.
    pub async fn ask_as(&self, token: &str, request: &str, node: &str) -> Result<String> {
        self.ask(
            token,
            wish(
                request,
                KUBELET_SIGNER,
                &format!("system:node:{node}"),
                "system:nodes",
                &[],
            )?,
        )
        .await
    }

    /// Waits until csr-approver counts as many pending requests with this reason.
    pub async fn pending(&self, reason: &str, count: usize) -> Result<()> {
        let line = format!("osm_joining_requests_pending{{reason=\"{reason}\"}} {count}\n");
        wait_for(&line, DEADLINE, async || {
            let (_, metrics) = self.installed.get(Service::CsrApprover, "/metrics").await?;
            let of_reason = |line: &&str| line.starts_with("osm_joining_requests_pending");
            ensure!(
                metrics.contains(&line),
                "{:#?}",
                metrics.lines().filter(of_reason).collect::<Vec<_>>()
            );
            Ok(Some(()))
        })
        .await
        .map_err(|error| error.context(self.installed.logs()))
    }

    pub async fn certified(&self, request: &str) -> Result<()> {
        wait_for(&format!("the certificate of {request}"), DEADLINE, async || {
            let status = self.requests().get(request).await?.status.unwrap_or_default();
            check(status.certificate.is_some())
        })
        .await
        .map_err(|error| error.context(self.installed.logs()))
    }

    pub async fn claims(&self) -> Result<Vec<Lease>> {
        let of_claims = ListParams::default().labels(&format!("{}=join-claim", names::ROLE));
        Ok(self.api::<Lease>(NAMESPACE).list(&of_claims).await?.items)
    }

    /// As if the request for this node had been approved hours ago: kube-controller-manager has deleted it,
    /// and its claim has expired.
    pub async fn let_an_approval_expire(&self, request: &str, node: &str) -> Result<()> {
        let claims: Api<Lease> = self.api(NAMESPACE);
        let all = self.claims().await?;
        let mut found = all
            .iter()
            .filter(|claim| claim.annotations()[names::NODE_NAME] == node);
        let name = found.next().context("the claim")?.name_any();
        let past = Patch::Merge(json!({"spec": {"acquireTime": "2026-01-01T00:00:00.000000Z"}}));
        claims.patch(&name, &PatchParams::default(), &past).await?;
        // The requester asks again at once, and claims are not looked at again before a minute has passed.
        self.requests().delete(request, &DeleteParams::default()).await?;
        Ok(())
    }

    /// `Approved`, `Denied` with the reason, or nothing.
    pub async fn decision(&self, request: &str) -> Result<Option<(String, String)>> {
        let status = self.requests().get(request).await?.status.unwrap_or_default();
        let condition = status.conditions.unwrap_or_default().into_iter().next();
        Ok(condition.map(|condition| (condition.type_, condition.reason.unwrap_or_default())))
    }

    pub async fn denied(&self, request: &str, reason: &str) -> Result<()> {
        wait_for(&format!("{request} to be denied"), DEADLINE, async || {
            self.decision(request).await.map(|decision| {
                decision
                    .filter(|decision| *decision == ("Denied".to_owned(), reason.to_owned()))
                    .map(drop)
            })
        })
        .await
        .map_err(|error| error.context(self.installed.logs()))
    }
}

/// With other usages.
fn with_usages(name: &str, node: &str, usages: &[&str]) -> Result<Wish> {
    let mut wish = wish(
        name,
        KUBELET_SIGNER,
        &format!("system:node:{node}"),
        "system:nodes",
        &[],
    )?;
    wish.request.spec.usages = Some(usages.iter().map(|usage| (*usage).to_owned()).collect());
    Ok(wish)
}

async fn a_token_opens_machines_of_its_pool_that_have_not_joined_and_nothing_else(
    world: &World,
) -> Result<()> {
    let (a, b) = (world.pool_of("a").await?, world.pool_of("b").await?);
    let retired = world.pool_of("retired").await?;
    world.machine_of(&a, "a-1").await?;
    let who = join(world, &a.token, "a-1")
        .await
        .map_err(|error| error.context(world.installed.logs()))?;
    assert_eq!(who, "system:node:a-1 of system:nodes");

    // What can never become right. The table of csr-approver has every other reason.
    for machine in ["a-2", "a-5"] {
        world.machine_of(&a, machine).await?;
    }
    world.machine_of(&b, "b-1").await?;
    let more = with_usages(
        "more",
        "a-2",
        &["digital signature", "client auth", "server auth"],
    )?;
    for (wish, reason) in [(more, "UsagesNotAllowed"), (node_wish("b-1")?, "ForeignMachine")] {
        let name = world.ask(&a.token, wish).await?;
        world.denied(&name, reason).await?;
    }
    let note = world.event("kube-system", &a.name, "ForeignMachine").await?;
    ensure!(
        note.contains("CertificateSigningRequest b-1: b-1 is a machine of another pool"),
        "{note}"
    );

    // What waits, until it becomes right.
    world.node("a-2").await?;
    world.delete(&world.pools(), "retired").await?;
    world.ask_as(&a.token, "for-unknown", "a-9").await?;
    world.pending("MachineNotFound", 1).await?;
    world.ask_as(&a.token, "for-node", "a-2").await?;
    world.pending("NodeExists", 1).await?;
    world.ask_as(&a.token, "again", "a-1").await?;
    world.pending("AlreadyApproved", 1).await?;
    world.ask_as(&retired.token, "of-retired", "a-5").await?;
    world.pending("PoolNotFound", 1).await?;
    world
        .delete(
            &Api::<k8s_openapi::api::core::v1::Node>::all(world.client.clone()),
            "a-2",
        )
        .await?;
    world.certified("for-node").await?;

    for request in ["for-unknown", "again", "of-retired"] {
        assert_eq!(world.decision(request).await?, None, "{request}");
    }
    Ok(())
}
