//! Tests of the control plane itself: rights, kinds, interruptions, and that nothing remains.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Secret};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, ResourceExt};
use osm_testkit::control_plane::ADVERTISED_ADDRESS;
use osm_testkit::machine_controller::{self, NotReady, machine_deployment};
use osm_testkit::{ControlPlane, Options, check, wait_for};
use serde_json::json;

const DEADLINE: Duration = Duration::from_secs(30);

fn status_code<T>(result: Result<T, kube::Error>) -> Option<u16> {
    match result {
        Err(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

#[tokio::test]
async fn a_service_account_can_do_what_rbac_gives_it_and_nothing_else() -> Result<()> {
    let control_plane = ControlPlane::shared().await?;
    control_plane
        .apply_yaml(
            "
apiVersion: v1
kind: Namespace
metadata: {name: rights}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: rights}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: rights}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: rights}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: rights}]
",
        )
        .await?;
    let path = control_plane.identity("rights", "reader").await?;
    assert_eq!(mode(&path)?, 0o600);
    let kubeconfig = Kubeconfig::read_from(&path)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let reader = Client::try_from(config)?;
    let own = Api::<ConfigMap>::namespaced(reader.clone(), "rights");
    wait_for("RBAC to be seen", DEADLINE, async || {
        Ok(Some(own.list(&ListParams::default()).await?))
    })
    .await?;
    let map = ConfigMap {
        metadata: kube::core::ObjectMeta {
            name: Some("x".into()),
            ..Default::default()
        },
        ..Default::default()
    };
    assert_eq!(
        status_code(own.create(&PostParams::default(), &map).await),
        Some(403)
    );
    let secrets = Api::<Secret>::namespaced(reader.clone(), "rights");
    assert_eq!(status_code(secrets.list(&ListParams::default()).await), Some(403));
    let foreign = Api::<ConfigMap>::namespaced(reader, "default");
    assert_eq!(status_code(foreign.list(&ListParams::default()).await), Some(403));

    let stranger = Api::<ConfigMap>::namespaced(control_plane.client("no-such-token")?, "rights");
    assert_eq!(
        status_code(stranger.list(&ListParams::default()).await),
        Some(401)
    );
    let error = control_plane.identity("rights", "nobody").await.unwrap_err();
    assert!(
        error.to_string().contains("ServiceAccount rights/nobody"),
        "{error:#}"
    );
    Ok(())
}

#[tokio::test]
async fn a_machine_deployment_is_stored_stamped_and_waited_for() -> Result<()> {
    let control_plane = ControlPlane::shared().await?;
    control_plane.install_machine_deployment_crd().await?;
    let applied = control_plane
        .apply_yaml(
            "
apiVersion: v1
kind: Namespace
metadata: {name: cloud-init-settings}
---
apiVersion: cluster.k8s.io/v1alpha1
kind: MachineDeployment
metadata: {name: pool, namespace: default}
spec:
  template: {spec: {versions: {kubelet: 1.34.4}, providerSpec: {value: {cloudProvider: aws, anything: [1, {a: b}]}}}}
",
        )
        .await?;
    let md = applied.get(1).context("the MachineDeployment")?;
    let any = md
        .data
        .pointer("/spec/template/spec/providerSpec/value/anything/1/a");
    assert_eq!(any.and_then(|value| value.as_str()), Some("b"));

    let admin = control_plane.admin()?;
    let md = machine_controller::stamp_revision(&admin, md, 1).await?;
    assert_eq!(
        md.annotations()
            .get(machine_controller::REVISION_ANNOTATION)
            .map(String::as_str),
        Some("1")
    );
    let error = machine_controller::fetch_user_data(&admin, &md, "1", "machine")
        .await
        .unwrap_err();
    assert!(matches!(error, NotReady::Unreadable { .. }), "{error}");

    control_plane
        .apply_yaml(
            "
apiVersion: v1
kind: Secret
metadata:
  name: pool-default-bootstrap-config
  namespace: cloud-init-settings
  annotations: {k8c.io/machine-deployment-revision: '1'}
stringData: {cloud-config: 'hostname: <MACHINE_NAME>'}
",
        )
        .await?;
    assert_eq!(
        machine_controller::fetch_user_data(&admin, &md, "1", "machine").await?,
        "hostname: machine"
    );
    let error = machine_controller::fetch_user_data(&admin, &md, "2", "machine")
        .await
        .unwrap_err();
    assert!(matches!(error, NotReady::Revision { .. }), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_manifest_that_the_server_refuses_is_named() -> Result<()> {
    let control_plane = ControlPlane::shared().await?;
    let bad = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Not_A_Name}\n";
    let error = format!("{:#}", control_plane.apply_yaml(bad).await.unwrap_err());
    assert!(
        error.contains("ConfigMap Not_A_Name") && error.contains("RFC 1123"),
        "{error}"
    );
    Ok(())
}

#[tokio::test]
async fn the_kubernetes_endpoint_is_there() -> Result<()> {
    let slices = Api::<EndpointSlice>::namespaced(ControlPlane::shared().await?.admin()?, "default");
    let slice = wait_for("EndpointSlice", DEADLINE, async || {
        Ok(slices.get_opt("kubernetes").await?)
    })
    .await?;
    let addresses: Vec<_> = slice
        .endpoints
        .into_iter()
        .flat_map(|endpoint| endpoint.addresses)
        .collect();
    assert_eq!(addresses, [osm_testkit::control_plane::ADVERTISED_ADDRESS]);
    Ok(())
}

#[tokio::test]
async fn the_api_server_comes_back_with_its_data_and_nothing_is_left_after_the_end() -> Result<()> {
    let longest = Duration::from_secs(3600);
    let options = Options {
        service_account_max_token_expiration: Some(longest),
        audit: true,
        ..Default::default()
    };
    let started = Instant::now();
    let control_plane = ControlPlane::start(options).await?;
    eprintln!(
        "control plane ready after {:.1} s",
        started.elapsed().as_secs_f64()
    );
    let directory = directory(&control_plane)?;
    assert!(
        processes(&directory)?.len() >= 3,
        "etcd, kube-apiserver, their watchers"
    );

    control_plane
        .apply_yaml("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: short, namespace: default}\n")
        .await?;
    let token = control_plane.token("default", "short").await?;
    assert!(
        life(&token)? <= longest,
        "the server's maximum, not the 24 h asked for"
    );

    let url = control_plane.url();
    let namespaces = Api::<Namespace>::all(control_plane.admin()?);
    control_plane.stop_apiserver().await?;
    control_plane.stop_apiserver().await?;
    assert!(
        namespaces.list(&ListParams::default()).await.is_err(),
        "nobody answers"
    );
    let started = Instant::now();
    control_plane.start_apiserver().await?;
    eprintln!(
        "kube-apiserver ready again after {:.1} s",
        started.elapsed().as_secs_f64()
    );
    assert_eq!(control_plane.url(), url);
    wait_for("the old client to work again", DEADLINE, async || {
        Ok(Some(namespaces.get("kube-system").await?))
    })
    .await?;
    let own = Api::<Namespace>::all(control_plane.client(&token)?);
    assert_eq!(
        status_code(own.list(&ListParams::default()).await),
        Some(403),
        "the token is still known"
    );

    let events = control_plane.audit_events()?;
    let of = |user: &str, verb: &str| {
        let mut events = events
            .iter()
            .filter(|event| event.user == user && event.verb == verb);
        events.next().map(|event| {
            (
                event.resource.clone(),
                event.name.clone(),
                event.code,
                event.is_write(),
            )
        })
    };
    let short = "system:serviceaccount:default:short";
    assert_eq!(
        of(short, "list"),
        Some(("namespaces".to_owned(), String::new(), 403, false))
    );
    assert_eq!(
        of("admin", "create"),
        Some(("serviceaccounts/token".to_owned(), "short".to_owned(), 201, true))
    );

    drop(control_plane);
    assert!(!directory.exists());
    assert_eq!(processes(&directory)?, Vec::<String>::new());
    Ok(())
}

/// Starts the program `owner.rs`, and returns the process with the directory of its control plane.
async fn start_owner(mode: &str, scratch: &Path) -> Result<(Child, PathBuf)> {
    let report = scratch.join(mode);
    let mut child = Command::new(env!("CARGO_BIN_EXE_control-plane-owner"))
        .args([report.as_os_str(), mode.as_ref()])
        .stdout(Stdio::null())
        .spawn()?;
    let directory = wait_for("the owner's control plane", Duration::from_secs(90), async || {
        if let Some(status) = child.try_wait()?.filter(|status| !status.success()) {
            return Ok(Some(Err(status)));
        }
        Ok(report
            .exists()
            .then(|| fs::read_to_string(&report))
            .transpose()?
            .map(Ok))
    });
    match directory.await? {
        Ok(directory) => Ok((child, directory.into())),
        Err(status) => bail!("the owner failed ({status})"),
    }
}

#[tokio::test]
async fn nothing_is_left_when_the_owner_is_killed() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let (mut owner, directory) = start_owner("stays", scratch.path()).await?;
    assert!(processes(&directory)?.len() >= 3);
    owner.kill()?; // SIGKILL: no destructor runs
    owner.wait()?;
    wait_for("the end of its processes", DEADLINE, async || {
        check(processes(&directory)?.is_empty())
    })
    .await?;
    assert!(!directory.exists());
    Ok(())
}

#[tokio::test]
async fn nothing_is_left_when_a_process_with_a_shared_control_plane_ends() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let (mut owner, directory) = start_owner("ends", scratch.path()).await?;
    assert!(owner.wait()?.success());
    wait_for("the end of its processes", DEADLINE, async || {
        check(processes(&directory)?.is_empty())
    })
    .await?;
    assert!(!directory.exists());
    Ok(())
}

#[tokio::test]
async fn the_controller_manager_signs_node_certificates_and_empties_namespaces() -> Result<()> {
    let controllers = vec!["csrapproving", "csrsigning", "namespace"];
    let control_plane = ControlPlane::start(Options {
        controllers,
        ..Default::default()
    })
    .await?;
    control_plane
        .apply_yaml(
            "
apiVersion: v1
kind: Namespace
metadata: {name: ends}
---
apiVersion: v1
kind: Secret
metadata: {name: ends, namespace: ends}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: node-bootstrap, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: bootstrap}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: 'system:node-bootstrapper'}
subjects: [{kind: ServiceAccount, name: node-bootstrap, namespace: default}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: approve}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: 'system:certificates.k8s.io:certificatesigningrequests:nodeclient'}
subjects: [{kind: ServiceAccount, name: node-bootstrap, namespace: default}]
",
        )
        .await?;
    let node = control_plane.client_as("default", "node-bootstrap").await?;
    let csr = csr(
        "n1",
        "kubernetes.io/kube-apiserver-client-kubelet",
        "client auth",
        &[],
    )?;
    let requests = Api::<CertificateSigningRequest>::all(node);
    requests.create(&PostParams::default(), &csr).await?;
    wait_for("the certificate", DEADLINE, async || {
        Ok(requests
            .get("n1")
            .await?
            .status
            .and_then(|status| status.certificate))
    })
    .await?;

    let namespaces = Api::<Namespace>::all(control_plane.admin()?);
    namespaces.delete("ends", &DeleteParams::default()).await?;
    wait_for("the namespace's end", DEADLINE, async || {
        check(namespaces.get_opt("ends").await?.is_none())
    })
    .await
}

#[tokio::test]
async fn where_machines_join_there_is_all_that_they_need() -> Result<()> {
    // Nobody else has this address, so that only the certificate's being valid for it can be seen here.
    let address = ADVERTISED_ADDRESS.parse()?;
    let control_plane = ControlPlane::start(Options {
        nodes: Some(address),
        ..Default::default()
    })
    .await?;
    let admin = control_plane.admin()?;
    let node = |name: &str| {
        let room = json!({"cpu": "1", "memory": "1Gi", "pods": "9"});
        let address = json!({"type": "InternalIP", "address": "10.217.0.10"});
        let status = json!({"capacity": room, "allocatable": room, "addresses": [address]});
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status})
    };
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"},
        "spec": {
            "tolerations": [{"operator": "Exists"}], // nobody says that the node is ready
            "containers": [{"name": "pause", "image": "pause"}],
        },
    });
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "later"}});
    for object in [&pod, &namespace] {
        control_plane.apply_yaml(&object.to_string()).await?;
    }
    let nodes = Api::<Node>::all(admin.clone());
    for name in ["n1", "n2"] {
        nodes
            .create(&PostParams::default(), &serde_json::from_value(node(name))?)
            .await?;
    }

    let pods = Api::<Pod>::default_namespaced(admin.clone());
    let scheduled = wait_for("the scheduler", DEADLINE, async || {
        Ok(pods.get("pod").await?.spec.and_then(|spec| spec.node_name))
    });
    assert!(["n1", "n2"].contains(&scheduled.await?.as_str()));
    let network = wait_for("the node's part of the pod network", DEADLINE, async || {
        Ok(nodes.get("n1").await?.spec.and_then(|spec| spec.pod_cidr))
    });
    assert!(network.await?.starts_with("10.244."));
    let config_maps = Api::<ConfigMap>::namespaced(admin.clone(), "later");
    let bundle = wait_for("the CA in a new namespace", DEADLINE, async || {
        Ok(config_maps
            .get_opt("kube-root-ca.crt")
            .await?
            .and_then(|bundle| bundle.data))
    });
    assert_eq!(
        bundle.await?.get("ca.crt").map(String::as_str),
        Some(control_plane.ca_pem())
    );

    // As the kubelet of n1, at the address that machines know.
    let mut config = kube::Config::new(control_plane.url().parse()?);
    let kubeconfig = Kubeconfig::read_from(control_plane.admin_kubeconfig_path())?;
    let as_admin = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.root_cert = as_admin.root_cert;
    config.auth_info = as_admin.auth_info;
    config.auth_info.impersonate = Some("system:node:n1".to_owned());
    config.auth_info.impersonate_groups = Some(vec!["system:nodes".to_owned()]);
    config.tls_server_name = Some(ADVERTISED_ADDRESS.to_owned());
    let kubelet = Client::try_from(config)?;
    let label = Patch::Merge(json!({"metadata": {"labels": {"touched": "yes"}}}));
    let as_kubelet = Api::<Node>::all(kubelet.clone());
    as_kubelet.patch("n1", &PatchParams::default(), &label).await?;
    let error = as_kubelet
        .patch("n2", &PatchParams::default(), &label)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("is not allowed to modify node"), "{error}");

    let approver = tokio::spawn(machine_controller::approve_serving_certificates(admin.clone()));
    let requests = Api::<CertificateSigningRequest>::all(kubelet);
    for (name, sans) in [("greedy", ["n1", "n2"]), ("modest", ["n1", "10.217.0.10"])] {
        let request = csr(name, "kubernetes.io/kubelet-serving", "server auth", &sans)?;
        requests.create(&PostParams::default(), &request).await?;
    }
    wait_for("the serving certificate", DEADLINE, async || {
        Ok(requests
            .get("modest")
            .await?
            .status
            .and_then(|status| status.certificate))
    })
    .await?;
    let greedy = requests.get("greedy").await?.status.unwrap_or_default();
    assert_eq!(greedy.conditions, None);
    approver.abort();

    let output = Command::new(control_plane.kubectl()?)
        .arg(format!(
            "--kubeconfig={}",
            control_plane.admin_kubeconfig_path().display()
        ))
        .args(["get", "nodes", "--output=name"])
        .output()?;
    assert_eq!(String::from_utf8(output.stdout)?, "node/n1\nnode/n2\n");
    let logs = control_plane.log_files()?;
    let logs: Vec<_> = logs
        .iter()
        .filter_map(|path| path.file_stem()?.to_str())
        .collect();
    assert_eq!(
        logs,
        [
            "etcd",
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler"
        ]
    );
    let key = rcgen::KeyPair::from_pem(&control_plane.ca_key_pem()?)?;
    assert!(rcgen::Issuer::from_ca_cert_pem(control_plane.ca_pem(), key).is_ok());
    rcgen::KeyPair::from_pem(&control_plane.service_account_key_pem()?)?;
    Ok(())
}

#[tokio::test]
async fn a_namespace_stays_terminating_until_it_is_finished() -> Result<()> {
    let control_plane = ControlPlane::shared().await?;
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: ending}\n";
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: inside, namespace: ending}\n";
    control_plane
        .apply_yaml(&format!("{namespace}---\n{secret}"))
        .await?;
    let secrets = Api::<Secret>::namespaced(control_plane.admin()?, "ending");
    assert!(
        control_plane.finish_namespace("ending").await.is_err(),
        "nobody deleted it"
    );
    secrets.get("inside").await?;

    let namespaces = Api::<Namespace>::all(control_plane.admin()?);
    namespaces.delete("ending", &DeleteParams::default()).await?;
    let phase = namespaces
        .get("ending")
        .await?
        .status
        .and_then(|status| status.phase);
    assert_eq!(phase.as_deref(), Some("Terminating"));
    let another = secret.replace("inside", "another");
    let error = format!("{:#}", control_plane.apply_yaml(&another).await.unwrap_err());
    assert!(error.contains("because it is being terminated"), "{error}");

    control_plane.finish_namespace("ending").await?;
    assert!(namespaces.get_opt("ending").await?.is_none());
    control_plane.apply_yaml(namespace).await?;
    assert_eq!(secrets.list(&ListParams::default()).await?.items, []);
    Ok(())
}

#[tokio::test]
async fn machine_deployments_are_a_kind_of_their_own() -> Result<()> {
    let control_plane = ControlPlane::shared().await?;
    control_plane.install_machine_deployment_crd().await?;
    let api = Api::<DynamicObject>::all_with(control_plane.admin()?, &machine_deployment());
    api.list(&ListParams::default()).await?;
    Ok(())
}

/// What the kubelet of node `n1` asks for.
fn csr(name: &str, signer: &str, usage: &str, sans: &[&str]) -> Result<CertificateSigningRequest> {
    let sans = sans.iter().map(|san| (*san).to_owned()).collect::<Vec<_>>();
    let mut params = rcgen::CertificateParams::new(sans)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(rcgen::DnType::OrganizationName, "system:nodes");
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "system:node:n1");
    let request = params.serialize_request(&rcgen::KeyPair::generate()?)?.pem()?;
    Ok(serde_json::from_value(json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {
            "signerName": signer, "usages": ["digital signature", usage],
            "request": k8s_openapi::ByteString(request.into_bytes()),
        },
    }))?)
}

fn directory(control_plane: &ControlPlane) -> Result<PathBuf> {
    Ok(control_plane
        .admin_kubeconfig_path()
        .parent()
        .context("directory")?
        .to_owned())
}

/// The command lines of running processes that mention `directory`; the watchers' do as well.
fn processes(directory: &Path) -> Result<Vec<String>> {
    let directory = directory.display().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let command = fs::read(entry?.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        if command.contains(&directory) {
            found.push(command);
        }
    }
    Ok(found)
}

fn mode(path: &Path) -> Result<u32> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::metadata(path)?.permissions().mode() & 0o777)
}

/// From "issued at" to "expires" in a ServiceAccount token.
fn life(token: &str) -> Result<Duration> {
    use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
    let payload = token.split('.').nth(1).context("a JWT")?;
    let claims: serde_json::Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(payload)?)?;
    let time = |name| {
        claims
            .get(name)
            .and_then(serde_json::Value::as_u64)
            .context("a time")
    };
    Ok(Duration::from_secs(time("exp")? - time("iat")?))
}
