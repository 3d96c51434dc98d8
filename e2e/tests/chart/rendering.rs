//! What the chart renders, and which values it rejects.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::discovery::{self, Scope};
use osm_api::Joining;
use osm_api::definitions;
use osm_api::rbac::{AdmissionObjects, ClusterKind, Installation, Service};
use osm_runtime::drain::DRAIN_TIME;
use osm_testkit::helm::{Helm, chart, ci_values, kubeconform};
use osm_testkit::process::ScratchDir;
use osm_testkit::{ControlPlane, Options};
use serde_json::{Value, json};

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> Result<&'a Value> {
    let found = objects
        .iter()
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.with_context(|| format!("{kind} {name}"))
}

#[tokio::test]
async fn helm_has_nothing_to_complain_of() -> Result<()> {
    let (helm, chart) = (Helm::without_cluster().await?, chart().display().to_string());
    for values in ci_values()? {
        helm.run([
            "lint",
            "--strict",
            &chart,
            "--values",
            &values.display().to_string(),
        ])
        .await?;
    }
    Ok(())
}

/// (namespace, rule): of a Role, or with an empty namespace of a ClusterRole.
type Rules = BTreeSet<(String, String)>;

fn in_table(service: Service, installation: &Installation, parts: &[ClusterKind]) -> Result<Rules> {
    let mut rules = Rules::new();
    for (namespace, all) in service.rules(installation, parts) {
        for rule in all {
            rules.insert((
                namespace.clone().unwrap_or_default(),
                serde_json::to_value(&rule)?.to_string(),
            ));
        }
    }
    Ok(rules)
}

/// What a subject of a service is granted: by following the bindings, as the API server does.
fn granted(objects: &[Value], service: Service, subject: &Value) -> Result<Rules> {
    let mut rules = Rules::new();
    for binding in objects
        .iter()
        .filter(|object| text(&object["kind"]).ends_with("RoleBinding"))
    {
        let bound = binding["subjects"].as_array().context("subjects")?;
        if !bound.contains(subject) {
            continue;
        }
        ensure!(bound.len() == 1, "{binding}");
        ensure!(
            text(&binding["metadata"]["name"]).ends_with(service.name()),
            "{binding}"
        );
        let namespace = text(&binding["metadata"]["namespace"]);
        let role = objects.iter().find(|object| {
            object["kind"] == binding["roleRef"]["kind"]
                && object["metadata"]["name"] == binding["roleRef"]["name"]
                && text(&object["metadata"]["namespace"]) == namespace
        });
        for rule in role.context("a binding without its Role")?["rules"]
            .as_array()
            .context("rules")?
        {
            rules.insert((namespace.to_owned(), sorted(rule)));
        }
    }
    Ok(rules)
}

/// In the order of fields that the table has.
fn sorted(rule: &Value) -> String {
    let rule: k8s_openapi::api::rbac::v1::PolicyRule = serde_json::from_value(rule.clone()).unwrap();
    serde_json::to_value(&rule).unwrap().to_string()
}

#[tokio::test]
async fn secret_syncer_may_read_exactly_the_listed_secrets_of_profiles() -> Result<()> {
    let helm = Helm::without_cluster().await?;
    let secret = |i: usize, namespace: &str, name: &str, key: &str| {
        let at = format!("settings.credentials.profileSecrets[{i}]");
        format!("--set={at}.namespace={namespace},{at}.name={name},{at}.key={key}")
    };
    let values = [
        secret(0, "team", "vpn", "user"),
        secret(1, "team", "vpn", "password"),
        secret(2, "other", "agent", "token"),
        secret(3, "cloud-init-settings", "own", "key"),
    ];
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let objects = helm.template("one", "osm", &values).await?;
    let account = json!({"kind": "ServiceAccount", "name": "one-secret-syncer", "namespace": "osm"});
    let found = granted(&objects, Service::SecretSyncer, &account)?;
    let without = granted(
        &helm.template("one", "osm", &[]).await?,
        Service::SecretSyncer,
        &account,
    )?;
    let rule = |name: &str| {
        sorted(
            &json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": [name], "verbs": ["get", "list", "watch"]}),
        )
    };
    let more: Rules = found.difference(&without).cloned().collect();
    let wanted = [
        ("team".to_owned(), rule("vpn")),
        ("other".to_owned(), rule("agent")),
    ];
    assert_eq!(more, Rules::from(wanted));
    assert!(without.is_subset(&found));

    let secrets = ["oscController", "secretSyncer", "csrApprover"]
        .map(|service| format!("--set=workerCluster.kubeconfigs.{service}.secret=x"));
    let management = ["--set=topology=management", &secrets[0], &secrets[1], &secrets[2]];
    let objects = helm
        .template("one", "osm", &[&management[..], &values[..]].concat())
        .await?;
    let found = granted(&objects, Service::SecretSyncer, &account)?;
    assert!(
        !found.iter().any(|(namespace, _)| namespace == "team"),
        "{found:?}"
    );
    Ok(())
}

#[tokio::test]
async fn roles_are_what_the_table_says_and_nothing_else() -> Result<()> {
    let helm = Helm::without_cluster().await?;
    let secrets = ["oscController", "secretSyncer", "csrApprover"]
        .map(|service| format!("--set=workerCluster.kubeconfigs.{service}.secret=x"));
    let management = ["--set=topology=management", &secrets[0], &secrets[1], &secrets[2]];
    let mut management_with_admission = management.to_vec();
    management_with_admission.push("--set=admission.enabled=true,admission.certificate.secretName=pair");
    let base = || Installation {
        namespace: "osm".to_owned(),
        // The default of the chart.
        joining: Joining::Approved,
        ..Installation::default()
    };
    let with_home = || Installation {
        home: Some("osm".to_owned()),
        ..base()
    };
    let at_home = at_home();
    let namespaces = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let cases: Vec<(Vec<&str>, Installation, &[ClusterKind])> = vec![
        (vec![], base(), &ClusterKind::ALL),
        (management.to_vec(), base(), &[ClusterKind::Management]),
        (vec!["--set=topology=worker"], base(), &[ClusterKind::Worker]),
        (
            at_home.iter().map(String::as_str).collect(),
            with_home(),
            &[ClusterKind::Home],
        ),
        (
            vec!["--set=topology=user,customProfiles=true,profileNamespaces={team}"],
            Installation {
                custom_profiles: true,
                profile_namespaces: vec!["team".to_owned()],
                ..with_home()
            },
            &ClusterKind::BUT_HOME,
        ),
        (
            vec!["--set=settings.credentials.nodeBootstrap.kind=bootstrapToken,joining=static"],
            Installation {
                bootstrap_tokens: true,
                joining: Joining::Static,
                ..base()
            },
            &ClusterKind::ALL,
        ),
        (
            vec!["--set=csrApprover.approveServing=true"],
            Installation {
                serving_certificates: true,
                ..base()
            },
            &ClusterKind::ALL,
        ),
        (
            vec!["--set=topology=worker,bootstrapTokens=true,joining=static"],
            Installation {
                bootstrap_tokens: true,
                joining: Joining::Static,
                ..base()
            },
            &[ClusterKind::Worker],
        ),
        (
            vec!["--set=removeGoFinalizers=true"],
            Installation {
                go_finalizers: true,
                ..base()
            },
            &ClusterKind::ALL,
        ),
        (
            vec!["--set=customProfiles=true,profileNamespaces={team}"],
            Installation {
                custom_profiles: true,
                profile_namespaces: namespaces(&["team"]),
                ..base()
            },
            &ClusterKind::ALL,
        ),
        (
            vec![
                "--set=profileNamespaces={osm,team,team,other}",
                "--set=settingsConfigMap.name=mine",
            ],
            Installation {
                profile_namespaces: namespaces(&["osm", "team", "team", "other"]),
                settings: "mine".to_owned(),
                ..base()
            },
            &ClusterKind::ALL,
        ),
        (
            vec!["--set=poolSettingsNamespaces={kube-system,machines,osm}"],
            Installation {
                pool_settings_namespaces: namespaces(&["kube-system", "machines", "osm"]),
                ..base()
            },
            &ClusterKind::ALL,
        ),
        (
            vec!["--set=admission.enabled=true"],
            Installation {
                admission: Some(admission_objects("one-admission", true)),
                ..base()
            },
            &ClusterKind::ALL,
        ),
        (
            // Another program makes the certificate.
            vec!["--set=admission.enabled=true,admission.certificate.source=cert-manager"],
            base(),
            &ClusterKind::ALL,
        ),
        (
            management_with_admission.to_vec(),
            Installation {
                admission: Some(admission_objects("pair", false)),
                ..base()
            },
            &[ClusterKind::Management],
        ),
        (
            vec![
                "--set=topology=worker,admission.enabled=true",
                "--set=admission.machineDeployments.url=https://osc.example.com",
            ],
            Installation {
                admission: Some(admission_objects("", true)),
                ..base()
            },
            &[ClusterKind::Worker],
        ),
        (
            // What is taken away is the default again.
            vec!["--set=poolSettingsNamespaces=null,profileNamespaces=null,settings=null"],
            base(),
            &ClusterKind::ALL,
        ),
    ];
    for (values, installation, parts) in cases {
        let objects = helm.template("one", "osm", &values).await?;
        let (before, objects): (Vec<_>, Vec<_>) = objects
            .into_iter()
            .partition(|object| object["metadata"]["annotations"]["helm.sh/hook"].is_string());
        // The Job before a release may do this, and only where the definitions are.
        let roles = before
            .iter()
            .filter(|object| text(&object["kind"]).ends_with("Role"));
        let rules: Vec<_> = roles.map(|role| role["rules"].clone()).collect();
        let names = definitions::all().map(|definition| definition.metadata.name);
        let rule = json!([{"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"],
            "resourceNames": names, "verbs": ["get", "create", "patch"]}]);
        let wanted = if parts.contains(&ClusterKind::Management) && installation.home.is_none() {
            vec![rule]
        } else {
            vec![]
        };
        assert_eq!(rules, wanted, "{values:?}");
        let mut known = BTreeSet::new();
        for service in Service::ALL {
            let account = json!({"kind": "ServiceAccount", "name": format!("one-{}", service.name()), "namespace": "osm"});
            let (granted, wanted) = (
                granted(&objects, service, &account)?,
                in_table(service, &installation, parts)?,
            );
            let more: Vec<_> = granted.difference(&wanted).collect();
            let less: Vec<_> = wanted.difference(&granted).collect();
            assert!(
                more.is_empty() && less.is_empty(),
                "{values:?} {service:?}: more {more:#?}, less {less:#?}"
            );
            known.insert(account.to_string());
        }
        // Whoever else is bound is who may ask for certificates of nodes.
        known.extend([node_account().to_string(), group().to_string()]);
        for object in objects
            .iter()
            .filter(|object| text(&object["kind"]).ends_with("RoleBinding"))
        {
            for subject in object["subjects"].as_array().context("subjects")? {
                assert!(known.contains(&subject.to_string()), "{values:?}: {object}");
            }
        }
    }
    Ok(())
}

/// The objects of the release in namespace `osm`.
fn admission_objects(secret: &str, has_pools: bool) -> AdmissionObjects {
    let webhook = |of: &str| format!("operating-system-manager.osm.{of}");
    AdmissionObjects {
        secret: secret.to_owned(),
        profiles: Some(webhook("profiles")),
        machine_deployments: has_pools.then(|| webhook("machine-deployments")),
    }
}

fn container<'a>(objects: &'a [Value], service: &str) -> Result<(&'a Value, Vec<&'a str>)> {
    let pod = &named(objects, "Deployment", &format!("one-{service}"))?["spec"]["template"]["spec"];
    let arguments = pod["containers"][0]["args"].as_array().context("arguments")?;
    Ok((pod, arguments.iter().map(text).collect()))
}

#[tokio::test]
async fn an_admission_webhook_fails_open_and_is_never_asked_about_a_deletion() -> Result<()> {
    let helm = Helm::without_cluster().await?;
    let objects = helm
        .template(
            "one",
            "osm",
            &["--set=admission.enabled=true,profileNamespaces={team}"],
        )
        .await?;
    let webhooks = ["profiles", "machine-deployments"].map(|of| format!("operating-system-manager.osm.{of}"));
    for name in &webhooks {
        let webhook = &named(&objects, "ValidatingWebhookConfiguration", name)?["webhooks"][0];
        assert_eq!(webhook["failurePolicy"], "Ignore");
        assert_eq!(webhook["sideEffects"], "None");
        assert_eq!(webhook["timeoutSeconds"], 2);
        assert_eq!(webhook["rules"][0]["operations"], json!(["CREATE", "UPDATE"]));
        let service = text(&webhook["clientConfig"]["service"]["name"]);
        let service = named(&objects, "Service", service)?;
        assert_eq!(service["spec"]["ports"][0]["targetPort"], "admission");
        // The Service of metrics has no cluster IP, by which an API server would connect.
        assert!(service["spec"]["clusterIP"].is_null());
    }
    let of_profiles = named(&objects, "ValidatingWebhookConfiguration", &webhooks[0])?;
    let selected = &of_profiles["webhooks"][0]["namespaceSelector"]["matchExpressions"][0]["values"];
    assert_eq!(*selected, json!(["osm", "team"]));

    let secret = named(&objects, "Secret", "one-admission")?;
    assert!(
        secret["data"].is_null(),
        "an upgrade would take the key pair away"
    );
    for service in ["osp-controller", "osc-controller"] {
        let (pod, arguments) = container(&objects, service)?;
        assert!(arguments.contains(&"--admission-listen=0.0.0.0:9443"));
        let volume = &pod["volumes"][0]["secret"];
        assert_eq!(
            (&volume["secretName"], &volume["optional"]),
            (&json!("one-admission"), &json!(true))
        );
        // What pods have by default, and the time in which reviews still arrive.
        let grace = pod["terminationGracePeriodSeconds"].as_u64();
        assert_eq!(grace, Some(30 + DRAIN_TIME.as_secs()));
    }
    let (pod, arguments) = container(&objects, "secret-syncer")?;
    assert!(pod["terminationGracePeriodSeconds"].is_null());
    let hosts = "--admission-hosts=one-osp-admission.osm.svc,one-osc-admission.osm.svc";
    assert!(arguments.contains(&hosts), "{arguments:?}");
    Ok(())
}

#[tokio::test]
async fn in_two_clusters_the_webhook_for_machine_deployments_needs_a_url() -> Result<()> {
    let helm = Helm::without_cluster().await?;
    let secrets = ["oscController", "secretSyncer", "csrApprover"]
        .map(|service| format!("--set=workerCluster.kubeconfigs.{service}.secret=x"));
    let mut values = vec![
        "--set=topology=management,admission.enabled=true,workerCluster.namespace=kube-system",
        &secrets[0],
        &secrets[1],
        &secrets[2],
    ];
    let objects = helm.template("one", "osm", &values).await?;
    let (_, arguments) = container(&objects, "osc-controller")?;
    assert!(
        !arguments
            .iter()
            .any(|argument| argument.starts_with("--admission"))
    );

    let url = "--set=admission.machineDeployments.url=https://osc.example.com:8443/";
    values.push(url);
    let objects = helm.template("one", "osm", &values).await?;
    let (_, arguments) = container(&objects, "osc-controller")?;
    assert!(arguments.contains(&"--admission-listen=0.0.0.0:9443"));
    let name = "operating-system-manager.kube-system.machine-deployments";
    assert!(named(&objects, "ValidatingWebhookConfiguration", name).is_err());
    let (_, arguments) = container(&objects, "secret-syncer")?;
    let flag = format!("--admission-machine-deployments-webhook={name}");
    assert!(arguments.contains(&flag.as_str()), "{arguments:?}");
    assert!(
        arguments
            .iter()
            .any(|argument| argument.ends_with(",osc.example.com"))
    );

    let worker = ["--set=topology=worker,admission.enabled=true", url];
    let objects = helm.template("two", "kube-system", &worker).await?;
    let webhook = &named(&objects, "ValidatingWebhookConfiguration", name)?["webhooks"][0];
    assert_eq!(
        webhook["clientConfig"]["url"],
        "https://osc.example.com:8443/validate"
    );
    Ok(())
}

fn node_account() -> Value {
    json!({"kind": "ServiceAccount", "name": "osm-node-bootstrap", "namespace": "cloud-init-settings"})
}

fn group() -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts:cloud-init-settings"})
}

/// The policy restricts whom RBAC lets bind Roles, whoever the values say that is.
#[tokio::test]
async fn the_policy_about_bindings_names_the_subjects_of_secret_syncer() -> Result<()> {
    const SUBJECT: &str = "workerCluster.subjects.secretSyncer";
    let helm = Helm::without_cluster().await?;
    let user = format!("{SUBJECT}[0].kind=User,{SUBJECT}[0].name=a'b");
    let others = format!(
        "{SUBJECT}[0].kind=Group,{SUBJECT}[0].name=g,{SUBJECT}[1].kind=ServiceAccount,{SUBJECT}[1].name=s,{SUBJECT}[1].namespace=n"
    );
    for (values, users, groups) in [
        (
            "topology=single",
            r#"["system:serviceaccount:osm:one-secret-syncer"]"#,
            "[]",
        ),
        (
            "topology=single,serviceAccountNames.secretSyncer=x",
            r#"["system:serviceaccount:osm:x"]"#,
            "[]",
        ),
        (&format!("topology=worker,{user}"), r#"["a'b"]"#, "[]"),
        (
            &format!("topology=worker,{others}"),
            r#"["system:serviceaccount:n:s"]"#,
            r#"["g"]"#,
        ),
    ] {
        let objects = helm.template("one", "osm", &[&format!("--set={values}")]).await?;
        let policy = named(&objects, "ValidatingAdmissionPolicy", "osm.osm.one.bindings")?;
        let of_service = text(&policy["spec"]["matchConditions"][0]["expression"]);
        let expected = format!(
            "request.userInfo.username in {users} || (has(request.userInfo.groups) && request.userInfo.groups.exists(group, group in {groups}))"
        );
        assert_eq!(of_service, expected, "{values}");
        named(
            &objects,
            "ValidatingAdmissionPolicyBinding",
            "osm.osm.one.bindings",
        )?;
    }
    Ok(())
}

/// kube-controller-manager approves for one account, in one mode. A group is never bound to that.
#[tokio::test]
async fn the_mode_decides_who_may_ask_and_what_is_approved() -> Result<()> {
    const ASK: &str = "system:node-bootstrapper";
    const APPROVED: &str = "system:certificates.k8s.io:certificatesigningrequests:nodeclient";
    let helm = Helm::without_cluster().await?;
    let (all, only) = ((ASK, group()), (ASK, node_account()));
    let own = (APPROVED, node_account());
    for (values, expected) in [
        ("joining=approved", vec![all.clone()]),
        ("joining=static", vec![all.clone(), own.clone()]),
        ("joining=static,csrApprover.enabled=false", vec![only, own]),
    ] {
        for topology in ["single", "worker"] {
            let set = format!("--set=topology={topology},{values}");
            let objects = helm.template("one", "osm", &[&set]).await?;
            let of_nodes = objects.iter().filter(|object| {
                object["kind"] == "ClusterRoleBinding"
                    && text(&object["roleRef"]["name"]).starts_with("system:")
            });
            let bound: Vec<_> = of_nodes
                .map(|binding| (text(&binding["roleRef"]["name"]), binding["subjects"].clone()))
                .collect();
            let expected: Vec<_> = expected
                .iter()
                .map(|(role, subject)| (*role, json!([subject])))
                .collect();
            assert_eq!(bound, expected, "{set}");
            let policies = objects
                .iter()
                .filter(|object| object["kind"] == "ValidatingAdmissionPolicy");
            assert_eq!(policies.count(), 2, "{set}");
            let (mode, _) = values.split_once(',').unwrap_or((values, ""));
            let flags = objects
                .iter()
                .flat_map(|object| object["spec"]["template"]["spec"]["containers"][0]["args"].as_array())
                .flatten()
                .filter(|argument| **argument == format!("--{mode}"))
                .count();
            assert_eq!(
                flags,
                usize::from(topology == "single"),
                "{set}: secret-syncer's flag"
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn values_that_make_no_sense_are_refused_with_what_to_change() -> Result<()> {
    let helm = Helm::without_cluster().await?;
    let cases: &[(&[&str], &[&str])] = &[
        (&["--set=replicas=2"], &["replicas"]),
        (&["--set=topology=two"], &["topology", "management"]),
        (&["--set=settings.pauseImge=x"], &["pauseImge"]),
        (
            &["--set=settings.credentials.tokenLifetimeHours=many"],
            &["tokenLifetimeHours"],
        ),
        (&["--set=ospController.replicas=-1"], &["/ospController/replicas"]),
        (
            &["--set-json=poolSettingsNamespaces=[]"],
            &["/poolSettingsNamespaces"],
        ),
        (&["--set=limits.concurrency=1000"], &["/limits/concurrency"]),
        (&["--set=ospController.digest=latest"], &["/ospController/digest"]),
        (&["--set=runAsUser=0"], &["/runAsUser"]),
        (
            &["--set=settings.proxy.http=proxy:3128"],
            &["/settings/proxy/http"],
        ),
        (
            &["--set=settings.credentials.tokenLifetimeHours=0"],
            &["/settings/credentials/tokenLifetimeHours"],
        ),
        (
            &["--set=networkPolicy.apiServerCIDRs={300.0.0.0/8}"],
            &["/networkPolicy/apiServerCIDRs/0"],
        ),
        (
            &["--set=networkPolicy.apiServerCIDRs={::1/129}"],
            &["/networkPolicy/apiServerCIDRs/0"],
        ),
        (
            &["--set=networkPolicy.apiServerCIDRs={10.0.0.1}"],
            &["/networkPolicy/apiServerCIDRs/0"],
        ),
        (
            &["--set=networkPolicy.metricsFrom[0].ipBlock.cidr=any"],
            &["/networkPolicy/metricsFrom/0/ipBlock/cidr"],
        ),
        (
            &[
                "--set=topology=worker",
                "--set-json=workerCluster.subjects.oscController=[{\"kind\":\"ServiceAccount\",\"name\":\"x\"}]",
            ],
            &["/workerCluster/subjects/oscController/0", "namespace"],
        ),
        (
            &["--set=admission.enabled=true,admission.certificate.source=secret"],
            &[
                "admission.certificate.caBundle",
                "admission.certificate.secretName",
            ],
        ),
        (
            &["--set=admission.enabled=true,topology=worker"],
            &["admission.machineDeployments.url"],
        ),
        (
            &["--set=admission.enabled=true,topology=user"],
            &["there are no admission webhooks"],
        ),
        (
            &["--set=admission.machineDeployments.url=http://osc.example.com"],
            &["/admission/machineDeployments/url"],
        ),
        // All that is wrong at once.
        (
            &["--set=topology=management"],
            &[
                "workerCluster.kubeconfigs.oscController.secret",
                "set workerCluster.kubeconfigs.secretSyncer.secret",
                "set workerCluster.kubeconfigs.csrApprover.secret",
            ],
        ),
        (
            &["--set=workerCluster.kubeconfigs.oscController.secret=x"],
            &["set topology to management or home, or leave the Secret out"],
        ),
        (
            &["--set=topology=home"],
            &[
                "topology is home: set workerCluster.kubeconfigs.ospController.secret to the Secret with its kubeconfig of the user cluster",
                "set workerCluster.kubeconfigs.csrApprover.secret",
            ],
        ),
        (
            &["--set=topology=management,workerCluster.kubeconfigs.ospController.secret=x"],
            &["set topology to home, or leave the Secret out"],
        ),
        (
            &["--set=topology=user,settings.pauseImage=x,networkPolicy.enabled=true"],
            &[
                "belong to the release in the home cluster",
                "which has no pods: set it in the release in the home cluster",
            ],
        ),
        (
            &["--set=topology=home,admissionPolicy.enabled=true,machineDeploymentNamespaces={x}"],
            &["set it in the release in the user cluster"],
        ),
        (
            &[
                "--set=workerCluster.subjects.secretSyncer[0].kind=User,workerCluster.subjects.secretSyncer[0].name=x",
            ],
            &["subjects belong to the release in the worker cluster, with topology worker or user"],
        ),
        (
            &["--set=machineDeploymentNamespaces={Machines}"],
            &["/machineDeploymentNamespaces/0"],
        ),
        (
            &["--set=topology=management,admissionPolicy.enabled=true"],
            &[
                "machineDeploymentNamespaces is empty, which allows all",
                "set it in the release in the worker cluster",
            ],
        ),
        (
            &[
                "--set=admissionPolicy.enabled=true,machineDeploymentNamespaces={x}",
                "--api-versions=apps/v1/Deployment",
            ],
            &[
                "does not serve ValidatingAdmissionPolicy",
                "set admissionPolicy.enabled to false",
            ],
        ),
        (
            &["--set=settingsConfigMap.create=false,settings.pauseImage=x"],
            &["write them to that ConfigMap, or let the chart create it"],
        ),
        (
            &["--set=topology=worker,settings.pauseImage=x"],
            &["belong to the release in the management cluster"],
        ),
        (&["--set=joining=open"], &["/joining", "static"]),
        (
            &["--set=csrApprover.enabled=false"],
            &["so no machine could join: enable csr-approver, or set joining to static"],
        ),
        (
            &["--set=settings.credentials.nodeBootstrap.kind=bootstrapToken"],
            &["joining is approved", "set joining to static"],
        ),
        (
            &["--set=topology=worker,bootstrapTokens=true"],
            &["bootstrapTokens is set, but joining is approved"],
        ),
        (
            &["--namespace=cloud-init-settings"],
            &["install into another, such as kube-system"],
        ),
        (
            &["--set=commonLabels.app\\.kubernetes\\.io/name=x"],
            &["commonLabels has app.kubernetes.io/name"],
        ),
        (
            &["--set=metrics.podMonitor.labels.app\\.kubernetes\\.io/name=x"],
            &["metrics.podMonitor.labels has app.kubernetes.io/name"],
        ),
        (
            &["--set=limits.requestTimeout=70"],
            &["limits.requestTimeout is greater than limits.reconcileTimeout"],
        ),
        (
            &["--set=metrics.serviceMonitor.labels.app\\.kubernetes\\.io/name=x"],
            &["metrics.serviceMonitor.labels has app.kubernetes.io/name"],
        ),
        (
            &["--set=metrics.rules.labels.app\\.kubernetes\\.io/name=x"],
            &["metrics.rules.labels has app.kubernetes.io/name"],
        ),
        (
            &["--set=metrics.rules.alertLabels.namespace=x"],
            &["invalid propertyName 'namespace'"],
        ),
        (
            &["--set=metrics.rules.alerts.OSMNone.for=1m"],
            &["invalid propertyName 'OSMNone'"],
        ),
        (
            &["--set=metrics.rules.alerts.OSMPanic.threshold=many"],
            &["/metrics/rules/alerts/OSMPanic/threshold"],
        ),
        (
            &["--set=metrics.podMonitor.create=always,metrics.serviceMonitor.create=always"],
            &["scraped twice: set one of them to never"],
        ),
        (
            &["--set=serviceAccountNames.oscController=x,serviceAccountNames.secretSyncer=x"],
            &[
                "secret-syncer and osc-controller would have the same ServiceAccount",
                "set serviceAccountNames.secretSyncer",
            ],
        ),
        (
            &["--set=serviceAccountNames.oscController=one-secret-syncer"],
            &["secret-syncer and osc-controller would have the same ServiceAccount"],
        ),
        (
            &["--set=serviceAccountNames.oscController=one-upgrade-crds"],
            &[
                "osc-controller and the Job that upgrades the CustomResourceDefinitions",
                "set serviceAccountNames.oscController",
            ],
        ),
        (
            &[
                "--set=topology=worker,serviceAccountNames.oscController=x",
                "--set=workerCluster.subjects.oscController[0].kind=User,workerCluster.subjects.oscController[0].name=x",
            ],
            &["workerCluster.subjects.oscController and serviceAccountNames.oscController are both set"],
        ),
        (
            &["--kube-version=1.32.9"],
            &[
                "topology is single, but the API server is older than Kubernetes 1.33",
                "upgrade the cluster first",
            ],
        ),
        (
            &["--set=topology=worker", "--kube-version=1.32.9"],
            &["topology is worker, but the API server is older than Kubernetes 1.33"],
        ),
        (&["--kube-version=1.28.15"], &["kubeVersion: >=1.29.0-0"]),
        (
            &[
                "--set=topology=worker,networkPolicy.enabled=true,profileNamespaces={team},installation=x",
                "--set=metrics.podMonitor.create=always,metrics.serviceMonitor.create=always",
                "--set=metrics.rules.kind=ConfigMap,metrics.dashboard.enabled=true",
                "--set=serviceAccountNames.ospController=x",
            ],
            &[
                "metrics.rules.kind is set, but topology is worker",
                "metrics.dashboard.enabled is set",
                "metrics.serviceMonitor.create=always is set",
                "serviceAccountNames.ospController is set, but topology is worker",
                "networkPolicy.enabled is set, but topology is worker",
                "profileNamespaces is set",
                "installation is set",
                "metrics.podMonitor.create=always is set",
            ],
        ),
    ];
    for (values, words) in cases {
        let error = match helm.template("one", "osm", values).await {
            Ok(_) => panic!("{values:?} is rendered"),
            Err(error) => format!("{error:#}"),
        };
        for word in *words {
            assert!(error.contains(word), "{values:?}: {word:?} is not in {error}");
        }
    }
    Ok(())
}

/// What is taken away is the default again, is nothing, or is asked for by its name.
#[tokio::test]
async fn no_template_stumbles_over_a_value_that_is_null() -> Result<()> {
    fn paths(values: &Value, above: &str, all: &mut Vec<String>) {
        for (name, value) in values.as_object().into_iter().flatten() {
            let path = format!("{above}{name}");
            paths(value, &format!("{path}."), all);
            all.push(path);
        }
    }
    let helm = Helm::without_cluster().await?;
    let mut all = Vec::new();
    paths(
        &serde_saphyr::from_str(&std::fs::read_to_string(chart().join("values.yaml"))?)?,
        "",
        &mut all,
    );
    let (mut taken, mut refused) = (0, 0);
    for path in &all {
        match helm
            .template("one", "osm", &[&format!("--set-json={path}=null")])
            .await
        {
            Ok(objects) => {
                taken += 1;
                let deployments = objects.iter().filter(|object| object["kind"] == "Deployment");
                for container in
                    deployments.map(|object| &object["spec"]["template"]["spec"]["containers"][0])
                {
                    let arguments = container["args"].as_array().context("arguments")?;
                    ensure!(
                        !arguments.iter().any(|argument| text(argument).ends_with('=')),
                        "{path}: {arguments:?}"
                    );
                }
            }
            Err(error) => {
                refused += 1;
                let (error, name) = (format!("{error:#}"), path.rsplit('.').next().unwrap_or_default());
                ensure!(
                    error.contains(&format!("missing property '{name}'")),
                    "{path}: {error}"
                );
            }
        }
    }
    assert!(taken > 10 && refused > 20, "{taken} taken, {refused} refused");
    Ok(())
}

/// As the page and the example show them.
#[tokio::test]
async fn settings_that_the_services_take_are_taken() -> Result<()> {
    let helm = Helm::without_cluster().await?;
    let root = chart().join("../..");
    let page = std::fs::read_to_string(root.join("docs/settings.md"))?;
    let shown = page
        .split("```yaml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .context("an example")?;
    let air_gapped = std::fs::read_to_string(root.join("examples/settings-air-gapped.yaml"))?;
    for document in [shown, &air_gapped] {
        let settings: Value = serde_saphyr::from_str(document)?;
        osm_api::Settings::parse(document)?;
        // The page shows every setting, of which one is for this mode.
        let values = [
            &*format!("--set-json=settings={settings}"),
            "--set=joining=static",
        ];
        helm.template("one", "osm", &values).await?;
    }
    for network in [
        "0.0.0.0/0",
        "192.0.2.255/32",
        "::/0",
        "2001:db8::/32",
        "1:2:3:4:5:6:7:8/128",
        "fd00::1/64",
    ] {
        helm.template(
            "one",
            "osm",
            &[&format!("--set=networkPolicy.apiServerCIDRs={{{network}}}")],
        )
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn values_win_where_the_chart_sets_the_same_field() -> Result<()> {
    let helm = Helm::without_cluster().await?;
    let values = [
        "--set-string=podAnnotations.prometheus\\.io/scrape=false",
        "--set=commonLabels.release=all,metrics.podMonitor.create=always,metrics.podMonitor.labels.release=prometheus",
        "--set=networkPolicy.enabled=true,networkPolicy.dnsPorts={5353}",
    ];
    // The reader takes no name twice.
    let objects = helm.template("one", "osm", &values).await?;
    let of = |kind: &str| {
        objects
            .iter()
            .find(|object| object["kind"] == kind)
            .context("an object")
    };
    let annotations = &of("Deployment")?["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations["prometheus.io/scrape"], "false");
    assert!(annotations["prometheus.io/port"].is_null(), "not scraped twice");
    let annotated = helm.template("one", "osm", &values[..1]).await?;
    let deployment = annotated.iter().find(|object| object["kind"] == "Deployment");
    let annotations = &deployment.context("one")?["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations["prometheus.io/scrape"], "false");
    assert_eq!(annotations["prometheus.io/port"], "8080");
    assert_eq!(of("PodMonitor")?["metadata"]["labels"]["release"], "prometheus");
    assert_eq!(of("ConfigMap")?["metadata"]["labels"]["release"], "all");
    let dns = json!([{"port": 5353, "protocol": "UDP"}, {"port": 5353, "protocol": "TCP"}]);
    assert_eq!(of("NetworkPolicy")?["spec"]["egress"][1]["ports"], dns);
    Ok(())
}

/// A cluster that only holds the objects needs what they need, and no kubelet of a profile joins it.
#[tokio::test]
async fn an_older_management_cluster_is_enough() -> Result<()> {
    let helm = Helm::without_cluster().await?;
    let secrets = ["oscController", "secretSyncer", "csrApprover"]
        .map(|service| format!("--set=workerCluster.kubeconfigs.{service}.secret=x"));
    let management = ["--set=topology=management", &secrets[0], &secrets[1], &secrets[2]];
    helm.template(
        "one",
        "osm",
        &[&management[..], &["--kube-version=1.29.0"]].concat(),
    )
    .await?;
    helm.template("one", "osm", &["--kube-version=1.33.0-eks-1"])
        .await?;
    Ok(())
}

/// Artifact Hub shows what these annotations say, and scans these images.
#[tokio::test]
async fn artifact_hub_is_told_what_the_chart_installs() -> Result<()> {
    let about: Value = serde_saphyr::from_str(&std::fs::read_to_string(chart().join("Chart.yaml"))?)?;
    let listed = |name: &str, field: &str| -> Result<BTreeSet<String>> {
        let list = text(&about["annotations"][format!("artifacthub.io/{name}")]);
        let list: Vec<Value> = serde_saphyr::from_str(list)?;
        Ok(list.iter().map(|entry| text(&entry[field]).to_owned()).collect())
    };
    let objects = Helm::without_cluster().await?.template("one", "osm", &[]).await?;
    let images: BTreeSet<String> = objects
        .iter()
        .flat_map(|object| object["spec"]["template"]["spec"]["containers"].as_array())
        .flatten()
        .map(|container| text(&container["image"]).to_owned())
        .collect();
    assert_eq!(listed("images", "image")?, images);
    let names: Vec<_> = definitions::all()
        .into_iter()
        .filter_map(|definition| definition.metadata.name)
        .collect();
    assert_eq!(listed("crds", "name")?, names.into_iter().collect());
    Ok(())
}

/// By a PodMonitor, a ServiceMonitor or annotations: never by two of them.
#[tokio::test]
async fn nothing_is_scraped_twice() -> Result<()> {
    const POD: &str = "--api-versions=monitoring.coreos.com/v1/PodMonitor";
    const SERVICE: &str = "--api-versions=monitoring.coreos.com/v1/ServiceMonitor";
    let helm = Helm::without_cluster().await?;
    let cases: &[(&[&str], Option<&str>)] = &[
        (&[], None),
        (&[POD], Some("PodMonitor")),
        (&[SERVICE], Some("ServiceMonitor")),
        (&[POD, SERVICE], Some("PodMonitor")),
        (&[POD, SERVICE, "--set=metrics.podMonitor.create=never"], None),
        (
            &[POD, SERVICE, "--set=metrics.serviceMonitor.create=always"],
            Some("ServiceMonitor"),
        ),
        (&["--set=metrics.podMonitor.create=always"], Some("PodMonitor")),
        (
            &[
                POD,
                SERVICE,
                "--set=metrics.podMonitor.create=never,metrics.serviceMonitor.create=never",
            ],
            None,
        ),
        (
            &["--set=metrics.serviceMonitor.create=always,metrics.serviceMonitor.labels.release=prometheus"],
            Some("ServiceMonitor"),
        ),
    ];
    for (values, expected) in cases {
        let objects = helm.template("one", "osm", values).await?;
        let monitors: Vec<&Value> = objects
            .iter()
            .filter(|object| text(&object["kind"]).ends_with("Monitor"))
            .collect();
        let kinds: Vec<&str> = monitors.iter().map(|monitor| text(&monitor["kind"])).collect();
        assert_eq!(kinds, expected.iter().copied().collect::<Vec<_>>(), "{values:?}");
        let annotated = objects.iter().any(|object| {
            object["spec"]["template"]["metadata"]["annotations"]["prometheus.io/scrape"].is_string()
        });
        assert_eq!(annotated, expected.is_none(), "{values:?}");
        if let Some(monitor) = monitors
            .iter()
            .find(|monitor| monitor["kind"] == "ServiceMonitor")
        {
            assert_eq!(monitor["spec"]["endpoints"][0]["port"], "http");
            // The ports of the Services have this name.
            let services = objects.iter().filter(|object| object["kind"] == "Service");
            for service in services {
                assert_eq!(service["spec"]["ports"][0]["name"], "http", "{service}");
                for (label, value) in monitor["spec"]["selector"]["matchLabels"]
                    .as_object()
                    .context("labels")?
                {
                    assert_eq!(&service["metadata"]["labels"][label], value, "{service}");
                }
            }
        }
    }
    Ok(())
}

/// A policy of the site may need labels, an identity of the cloud annotations, and support a flag that has no value of its own.
#[tokio::test]
async fn pods_take_what_a_site_adds_and_run_on_new_clusters() -> Result<()> {
    let helm = Helm::without_cluster().await?;
    let values = [
        "--set-string=podLabels.team=nodes,podLabels.app\\.kubernetes\\.io/component=other",
        "--set-string=serviceAccountAnnotations.role=1e3,extraEnv[0].name=TZ,extraEnv[0].value=1",
        "--set-string=oscController.extraArgs={--listen=127.0.0.1:9}",
    ];
    let objects = helm.template("one", "osm", &values).await?;
    for service in [
        "osp-controller",
        "osc-controller",
        "secret-syncer",
        "csr-approver",
    ] {
        let name = format!("one-{service}");
        let template = &named(&objects, "Deployment", &name)?["spec"]["template"];
        let labels = &template["metadata"]["labels"];
        assert_eq!(
            (&labels["team"], &labels["app.kubernetes.io/component"]),
            (&json!("nodes"), &json!(service))
        );
        let container = &template["spec"]["containers"][0];
        let environment = container["env"].as_array().context("env")?;
        assert_eq!(environment.last(), Some(&json!({"name": "TZ", "value": "1"})));
        let arguments = container["args"].as_array().context("args")?;
        let is_added = arguments.contains(&json!("--listen=127.0.0.1:9"));
        assert_eq!(is_added, service == "osc-controller");
        assert_eq!(
            named(&objects, "ServiceAccount", &name)?["metadata"]["annotations"]["role"],
            "1e3"
        );
        let tolerated: Vec<&str> = template["spec"]["tolerations"]
            .as_array()
            .context("tolerations")?
            .iter()
            .filter_map(|toleration| toleration["key"].as_str())
            .collect();
        let taints = [
            "node-role.kubernetes.io/control-plane",
            "node.cloudprovider.kubernetes.io/uninitialized",
        ];
        assert_eq!(tolerated, taints);
    }
    Ok(())
}

/// A site may name objects and accounts itself, and keep one service on other nodes than the rest.
#[tokio::test]
async fn names_and_scheduling_of_each_service_can_be_set() -> Result<()> {
    let helm = Helm::without_cluster().await?;
    let values = [
        "--set=nameOverride=nodes,serviceAccountNames.oscController=renderer,nodeSelector.pool=infra",
        "--set-json=oscController.scheduling={\"nodeSelector\":{},\"priorityClassName\":\"high\",\"tolerations\":[]}",
    ];
    let objects = helm.template("one", "osm", &values).await?;
    let pod = |name: &str| -> Result<Value> {
        Ok(named(&objects, "Deployment", name)?["spec"]["template"]["spec"].clone())
    };
    let (own, other) = (pod("nodes-osc-controller")?, pod("nodes-secret-syncer")?);
    assert_eq!(own["serviceAccountName"], "renderer");
    assert_eq!(other["serviceAccountName"], "nodes-secret-syncer");
    named(&objects, "ServiceAccount", "renderer")?;
    named(&objects, "ServiceAccount", "nodes-secret-syncer")?;
    let binding = objects
        .iter()
        .filter(|object| text(&object["kind"]).ends_with("RoleBinding"))
        .filter(|object| text(&object["metadata"]["name"]).ends_with("osc-controller"));
    for binding in binding {
        assert_eq!(binding["subjects"][0]["name"], "renderer", "{binding}");
    }
    assert!(
        own["nodeSelector"].is_null() && own["tolerations"].is_null(),
        "{own}"
    );
    assert_eq!(own["priorityClassName"], "high");
    let placed = [
        "--set=nodeSelector.pool=infra",
        "--set-json=ospController.scheduling={\"nodeSelector\":{\"pool\":\"other\"}}",
    ];
    let with_job = helm.template("one", "osm", &placed).await?;
    let job = with_job
        .iter()
        .find(|object| object["kind"] == "Job")
        .context("a Job")?;
    // It runs the image of osp-controller, where that may run.
    assert_eq!(
        job["spec"]["template"]["spec"]["nodeSelector"],
        json!({"pool": "other"})
    );
    assert_eq!(other["nodeSelector"], json!({"pool": "infra"}));
    assert!(
        other["priorityClassName"] != "high" && other["tolerations"].is_array(),
        "{other}"
    );
    Ok(())
}

/// Settings that are refused make every replica unready; nodes can be drained all the same.
#[tokio::test]
async fn replicas_go_one_at_a_time_unless_they_are_not_ready() -> Result<()> {
    let helm = Helm::without_cluster().await?;
    let objects = helm
        .template(
            "one",
            "osm",
            &["--set=oscController.replicas=3,secretSyncer.replicas=2"],
        )
        .await?;
    let budgets: Vec<_> = objects
        .iter()
        .filter(|object| object["kind"] == "PodDisruptionBudget")
        .collect();
    assert_eq!(budgets.len(), 2);
    for budget in budgets {
        assert_eq!(budget["spec"]["maxUnavailable"], 1);
        assert_eq!(budget["spec"]["unhealthyPodEvictionPolicy"], "AlwaysAllow");
    }
    Ok(())
}

#[tokio::test]
async fn two_releases_have_no_name_in_common_outside_their_namespaces() -> Result<()> {
    let helm = Helm::without_cluster().await?;
    let mut names = BTreeMap::<String, Vec<String>>::new();
    for (release, namespace) in [("one", "a"), ("one", "b"), ("two", "a")] {
        for object in helm
            .template(
                release,
                namespace,
                &["--set=topology=single,admissionPolicy.enabled=true,machineDeploymentNamespaces={x}"],
            )
            .await?
        {
            let metadata = &object["metadata"];
            let own = text(&metadata["namespace"]) == namespace;
            // What any number of releases in a cluster share, and only one of them owns.
            let shared = object["kind"] == "Namespace" || metadata["name"] == "osm-node-bootstrap";
            if !own && !shared {
                let name = format!(
                    "{} {} {}",
                    object["kind"], metadata["namespace"], metadata["name"]
                );
                names
                    .entry(name)
                    .or_default()
                    .push(format!("{release} in {namespace}"));
            }
        }
    }
    assert!(names.len() > 20, "{names:#?}");
    names.retain(|_, releases| releases.len() > 1);
    assert!(names.is_empty(), "{names:#?}");
    Ok(())
}

/// The arguments of topology `home`.
fn at_home() -> [String; 5] {
    let secret = |service: &str| format!("--set=workerCluster.kubeconfigs.{service}.secret=kubeconfig");
    let [osp, osc, syncer, approver] = Service::ALL.map(|service| secret(service.values_key()));
    ["--set=topology=home".to_owned(), osp, osc, syncer, approver]
}

/// Two releases: the pods with settings and Leases at home, and everything else in the user cluster.
#[tokio::test]
async fn at_home_are_the_pods_the_settings_and_the_secrets_that_they_name() -> Result<()> {
    let helm = Helm::without_cluster().await?;
    let at_home = at_home();
    let home = |more: &[&str]| {
        at_home
            .iter()
            .map(String::as_str)
            .chain(more.iter().copied())
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let render = async |values: Vec<String>, namespace: &str| {
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        helm.template("one", namespace, &values).await
    };
    let objects = render(home(&["--set=workerCluster.namespace=kube-system"]), "cluster-a").await?;
    // Nothing of the cluster as a whole, and nothing in another namespace.
    for object in &objects {
        assert_eq!(object["metadata"]["namespace"], "cluster-a", "{object}");
    }
    named(&objects, "ConfigMap", "osm-settings")?;
    for service in Service::ALL {
        let pod =
            &named(&objects, "Deployment", &format!("one-{}", service.name()))?["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let arguments = container["args"].as_array().context("arguments")?;
        for argument in [
            "--namespace=kube-system",
            "--home-namespace=cluster-a",
            "--kubeconfig=/etc/osm/worker-cluster/kubeconfig",
        ] {
            assert!(arguments.contains(&json!(argument)), "{argument}: {arguments:?}");
        }
        assert!(
            !arguments
                .iter()
                .any(|argument| text(argument).contains("worker-cluster-kubeconfig"))
        );
        assert_eq!(pod["volumes"][0]["secret"]["secretName"], "kubeconfig");
        let names: Vec<&str> = container["env"]
            .as_array()
            .context("env")?
            .iter()
            .map(|variable| text(&variable["name"]))
            .collect();
        assert_eq!(names, ["POD_NAME", "POD_UID"], "the pod owns its Lease");
    }

    let account = json!({"kind": "ServiceAccount", "name": "one-secret-syncer", "namespace": "cluster-a"});
    let named_secrets = [
        "--set=settings.containerd.registries[0].host=r.example,settings.containerd.registries[0].credentials.namespace=cluster-a",
        "--set=settings.containerd.registries[0].credentials.name=registry,settings.containerd.registries[1].host=s.example",
        "--set=settings.proxy.http=http://proxy.example:3128,settings.proxy.credentials.namespace=cluster-a,settings.proxy.credentials.name=proxy",
        "--set=settings.credentials.profileSecrets[0].namespace=cluster-a,settings.credentials.profileSecrets[0].name=vpn",
        "--set=settings.credentials.profileSecrets[0].key=password",
        "--set=settings.credentials.allowedSources[0].namespace=cluster-a,settings.credentials.allowedSources[0].secrets={mine}",
    ];
    let before = granted(&objects, Service::SecretSyncer, &account)?;
    let objects = render(home(&named_secrets), "cluster-a").await?;
    let after = granted(&objects, Service::SecretSyncer, &account)?;
    let rule = json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["vpn", "registry", "proxy"],
        "verbs": ["get", "list", "watch"]});
    let more: Vec<_> = after.difference(&before).cloned().collect();
    assert_eq!(more, [("cluster-a".to_owned(), sorted(&rule))]);
    let elsewhere = render(home(&named_secrets), "cluster-b").await;
    let error = format!("{:#}", elsewhere.expect_err("Secrets of another namespace"));
    for name in ["registry", "proxy", "vpn"] {
        let sentence = format!("the settings name the Secret {name} in namespace cluster-a");
        assert!(error.contains(&sentence), "{error}");
    }

    let objects = helm
        .template("one", "kube-system", &["--set=topology=user"])
        .await?;
    for kind in ["Deployment", "Service", "Job", "ConfigMap"] {
        assert!(!objects.iter().any(|object| object["kind"] == kind), "{kind}");
    }
    for service in Service::ALL {
        named(&objects, "ServiceAccount", &format!("one-{}", service.name()))?;
    }
    named(&objects, "Namespace", "cloud-init-settings")?;
    Ok(())
}

/// Every object of every set of values, as the real API server would take it, with field names that it knows; pods are held to the
/// restricted standard. And by kubeconform, with the schemas of that API server.
#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_would_take_every_object() -> Result<()> {
    let (control_plane, helm) = (
        ControlPlane::start(Options::default()).await?,
        Helm::without_cluster().await?,
    );
    let client = control_plane.admin()?;
    control_plane.apply_yaml(MONITORS).await?;
    for namespace in ["team", "machines", "1e3", "cloud-init-settings"] {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        control_plane.apply_yaml(&object.to_string()).await?;
    }
    for namespace in ["osm", "456"] {
        let strict = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {
            "pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest"}}});
        control_plane.apply_yaml(&strict.to_string()).await?;
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}});
        control_plane.apply_yaml(&account.to_string()).await?;
    }
    let priority = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "true"}, "value": 1});
    control_plane.apply_yaml(&priority.to_string()).await?;
    let schemas = Schemas::of(&client).await?;
    // Server-side apply refuses fields that the schema has not.
    let dry_run = PatchParams {
        dry_run: true,
        ..PatchParams::apply("test").force()
    };
    let files: Vec<String> = ci_values()?
        .iter()
        .map(|values| format!("--values={}", values.display()))
        .collect();
    let mut cases: Vec<_> = files
        .iter()
        .map(|file| ("one", "osm", vec![file.as_str()]))
        .collect();
    // Names that YAML would take for something else than a text, and the longest of a release.
    let longest = "9".repeat(53);
    cases.push(("123", "456", LIKE_NUMBERS.to_vec()));
    cases.push((
        "true",
        "456",
        [LIKE_NUMBERS, LIKE_NUMBERS_WITH_TWO_CLUSTERS].concat(),
    ));
    cases.push(("1.9", "456", LIKE_NUMBERS_IN_A_WORKER_CLUSTER.to_vec()));
    cases.push((&longest, "456", LIKE_NUMBERS.to_vec()));
    for (release, namespace, values) in cases {
        let mut objects = helm.template(release, namespace, &values).await?;
        let values = format!("{release} in {namespace}: {values:?}");
        ensure!(
            objects.iter().all(whole),
            "{values}: a number that is written as a fraction or with an exponent"
        );
        schemas.check(&objects).await.context(values.clone())?;
        let pods = objects
            .iter()
            .filter(|object| object["spec"]["template"].is_object())
            .map(|owner| {
                let mut pod = owner["spec"]["template"].clone();
                pod["apiVersion"] = json!("v1");
                pod["kind"] = json!("Pod");
                pod["metadata"]["name"] = owner["metadata"]["name"].clone();
                pod["metadata"]["namespace"] = json!(namespace);
                // Admission wants the account to be there.
                pod["spec"]["serviceAccountName"] = json!("default");
                pod
            });
        let pods: Vec<Value> = pods.collect();
        objects.extend(pods);
        for object in objects {
            let kind = object["kind"].as_str().context("kind")?.to_owned();
            // There already.
            if kind == "Namespace" {
                continue;
            }
            let object: DynamicObject = serde_json::from_value(object)?;
            let types = object.types.as_ref().context("types")?;
            let (resource, capabilities) = discovery::pinned_kind(&client, &types.try_into()?).await?;
            let api: Api<DynamicObject> = match (capabilities.scope, object.metadata.namespace.as_deref()) {
                (Scope::Namespaced, Some(namespace)) => {
                    Api::namespaced_with(client.clone(), namespace, &resource)
                }
                (Scope::Cluster, None) => Api::all_with(client.clone(), &resource),
                other => anyhow::bail!("{kind}: {other:?}"),
            };
            let name = object.metadata.name.clone().unwrap_or_default();
            let applied = api.patch(&name, &dry_run, &Patch::Apply(&object)).await;
            applied.with_context(|| format!("{values}: {kind} {name}"))?;
        }
    }
    Ok(())
}

/// Whether all its numbers are whole, as those of the chart are: Helm reads a file's as floating point, and writes large ones so.
fn whole(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_i64(),
        Value::Array(values) => values.iter().all(whole),
        Value::Object(fields) => fields.values().all(whole),
        _ => true,
    }
}

const LIKE_NUMBERS: &[&str] = &[
    "--set-string=settingsConfigMap.name=007,image.pullSecrets={123},image.tag=1e3,priorityClassName=true,installation=1",
    "--set-json=log.filter=\"info: # x\"",
    "--set-string=profileNamespaces={1e3},poolSettingsNamespaces={1e3},commonLabels.team=true,podAnnotations.a=1e3,podLabels.a=1e3",
    "--set-string=serviceAccountAnnotations.a=true,extraEnv[0].name=A,extraEnv[0].value=1e3",
    "--set-string=machineDeploymentNamespaces={1e3,true}",
    "--set-string=nodeSelector.a=true,metrics.podMonitor.create=always,networkPolicy.apiServerCIDRs={::/0}",
    "--set-string=metrics.rules.kind=PrometheusRule,metrics.rules.alertLabels.team=1e3,metrics.rules.alerts.OSMPanic.severity=true",
    "--set=networkPolicy.enabled=true",
    "--set=secretSyncer.replicas=2",
];

const LIKE_NUMBERS_WITH_TWO_CLUSTERS: &[&str] = &[
    "--set=topology=management",
    "--set-string=workerCluster.kubeconfigs.oscController.secret=123,workerCluster.kubeconfigs.oscController.key=1",
    "--set-string=workerCluster.kubeconfigs.secretSyncer.secret=1e3,workerCluster.kubeconfigs.secretSyncer.key=true",
    "--set-string=workerCluster.kubeconfigs.csrApprover.secret=1e3,workerCluster.namespace=1e3",
];

const LIKE_NUMBERS_IN_A_WORKER_CLUSTER: &[&str] = &[
    "--set=topology=worker",
    "--set-string=poolSettingsNamespaces={1e3},machineDeploymentNamespaces={1e3,true},commonLabels.team=true",
    "--set=admissionPolicy.enabled=true",
    "--set-string=workerCluster.subjects.oscController[0].kind=ServiceAccount",
    "--set-string=workerCluster.subjects.oscController[0].name=1e3,workerCluster.subjects.oscController[0].namespace=456",
];

/// Of the Prometheus Operator, without their schemas.
const MONITORS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: podmonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: PodMonitor, plural: podmonitors, singular: podmonitor}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: servicemonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: ServiceMonitor, plural: servicemonitors, singular: servicemonitor}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: prometheusrules.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: PrometheusRule, plural: prometheusrules, singular: prometheusrule}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
";

/// kubeconform, with schemas as the API server publishes them, but strict: no field that they don't name.
struct Schemas {
    program: std::path::PathBuf,
    directory: ScratchDir,
}

impl Schemas {
    async fn of(client: &kube::Client) -> Result<Self> {
        let program = kubeconform(|line| eprintln!("{line}")).await?;
        let directory = ScratchDir::new("osm-schemas-")?;
        let request = http::Request::get("/openapi/v2").body(Vec::new())?;
        let mut all: Value = client.request(request).await?;
        let definitions = all.get_mut("definitions").context("definitions")?;
        for (_, definition) in definitions.as_object_mut().context("definitions")?.iter_mut() {
            let fields = definition.as_object_mut().context("a definition")?;
            if fields.contains_key("properties")
                && !fields.contains_key("x-kubernetes-preserve-unknown-fields")
            {
                fields.insert("additionalProperties".to_owned(), json!(false));
            }
        }
        // Either kind of value, which OpenAPI 2 can't say.
        definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] =
            json!({"type": ["integer", "string"]});
        for (name, definition) in definitions.as_object().context("definitions")? {
            for kind in definition["x-kubernetes-group-version-kind"]
                .as_array()
                .into_iter()
                .flatten()
            {
                // As kubeconform calls them; for it, the core group is one with the name of its version.
                let version = match (text(&kind["group"]), text(&kind["version"])) {
                    ("", version) => format!("{version}_{version}"),
                    (group, version) => format!("{group}_{version}"),
                };
                let schema = json!({"$ref": format!("#/definitions/{name}"), "definitions": definitions});
                let file = format!("{}_{version}.json", text(&kind["kind"]).to_lowercase());
                if WANTED.contains(&text(&kind["kind"])) {
                    std::fs::write(directory.path().join(file), schema.to_string())?;
                }
            }
        }
        Ok(Self { program, directory })
    }

    async fn check(&self, objects: &[Value]) -> Result<()> {
        let file = self.directory.path().join("objects.yaml");
        let documents: Vec<String> = objects.iter().map(Value::to_string).collect();
        std::fs::write(&file, documents.join("\n---\n"))?;
        let location = self.directory.path().display();
        let location =
            format!("{location}/{{{{ .ResourceKind }}}}_{{{{ .Group }}}}_{{{{ .ResourceAPIVersion }}}}.json");
        let output = tokio::process::Command::new(&self.program)
            .args(["-strict", "-summary", "-schema-location", &location])
            .arg(&file)
            .kill_on_drop(true)
            .output()
            .await?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success(),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let checked = format!("Valid: {},", objects.len());
        ensure!(said.contains(&checked), "{said}: not {checked}");
        Ok(())
    }
}

/// The kinds that the chart has.
const WANTED: &[&str] = &[
    "ClusterRole",
    "ClusterRoleBinding",
    "ConfigMap",
    "Deployment",
    "Job",
    "Namespace",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "PodMonitor",
    "PrometheusRule",
    "Role",
    "RoleBinding",
    "Secret",
    "Service",
    "ServiceAccount",
    "ServiceMonitor",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
];
