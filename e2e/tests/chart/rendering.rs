//! What the chart renders, and which values it rejects.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use osm_api::definitions;
use osm_api::rbac::{ClusterKind, Installation, Service};
use osm_testkit::helm::{Helm, chart, ci_values};
use osm_testkit::process::ScratchDir;
use osm_testkit::{ControlPlane, Options, installation};
use serde_json::{Value, json};

use crate::page::{Person, blocks, read};

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> Result<&'a Value> {
    let found = objects
        .iter()
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.with_context(|| format!("{kind} {name}"))
}

/// Renders release `one` in namespace `osm`.
async fn render(helm: &Helm, values: &[&str]) -> Result<Vec<Value>> {
    helm.template("one", "osm", values).await
}

const FLEET: &str = "--set=topology=fleet";

/// A fleet with kubeconfigs that a CronJob renews.
const RENEWAL: &str = "--set=topology=fleet,fleet.clusterSelector=a=b,image.registry=r,image.tag=v1,\
    workerCluster.renewal.enabled=true,workerCluster.renewal.release=there,workerCluster.renewal.duration=24h,\
    workerCluster.renewal.schedule=@hourly";

#[tokio::test]
async fn helm_finds_no_fault_in_the_chart() -> Result<()> {
    let (helm, chart) = (Helm::without_cluster().await?, chart().display().to_string());
    for values in ci_values()? {
        let values = values.display().to_string();
        helm.run(["lint", "--strict", &chart, "--values", &values])
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

/// The permission to read these Secrets.
fn may_read(names: &[&str]) -> String {
    sorted(
        &json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": names, "verbs": ["get", "list", "watch"]}),
    )
}

#[tokio::test]
async fn secret_syncer_may_read_exactly_the_secrets_that_the_settings_list() -> Result<()> {
    let helm = Helm::without_cluster().await?;
    let account = |namespace: &str| json!({"kind": "ServiceAccount", "name": "one-secret-syncer", "namespace": namespace});
    let more = async |base: &[&str], values: &[&str], namespace: &str| -> Result<Rules> {
        let (base, all) = (base.to_vec(), [base, values].concat());
        let account = account(namespace);
        let with = helm.template("one", namespace, &all).await?;
        let without = helm.template("one", namespace, &base).await?;
        let with = granted(&with, Service::SecretSyncer, &account)?;
        let without = granted(&without, Service::SecretSyncer, &account)?;
        ensure!(without.is_subset(&with), "{without:?}");
        Ok(with.difference(&without).cloned().collect())
    };
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
    let wanted = [("team", "vpn"), ("other", "agent")];
    let wanted = wanted.map(|(namespace, name)| (namespace.to_owned(), may_read(&[name])));
    assert_eq!(more(&[], &values, "osm").await?, Rules::from(wanted));
    // They are in the user clusters.
    assert_eq!(more(&[FLEET], &values, "osm").await?, Rules::new());

    Ok(())
}

/// What a release with these values serves, in a cluster that plays these parts.
type Case = (
    &'static [&'static str],
    fn(&mut Installation),
    &'static [ClusterKind],
);

const CASES: &[Case] = &[
    (&[], |_| (), &ClusterKind::ALL),
    (
        &["--set=topology=worker"],
        |it| it.fleet = true,
        &[ClusterKind::Worker],
    ),
    (
        &["--set=topology=fleet,customProfiles=true"],
        |it| (it.fleet, it.custom_profiles) = (true, true),
        &[ClusterKind::Management],
    ),
    (
        &["--set=removeUpstreamFinalizers=true"],
        |it| it.go_finalizers = true,
        &ClusterKind::ALL,
    ),
    (
        &[
            "--set=profileNamespaces={osm,team,team},fallbackProfileNamespace=shared,poolSettingsNamespaces={kube-system,osm},settingsConfigMap.name=mine",
        ],
        |it| {
            it.profile_namespaces = ["osm", "team", "team"].map(str::to_owned).to_vec();
            it.fallback_profile_namespace = Some("shared".to_owned());
            it.pool_settings_namespaces = ["kube-system", "osm"].map(str::to_owned).to_vec();
            it.settings = "mine".to_owned();
        },
        &ClusterKind::ALL,
    ),
    (
        // The certificate of the webhook takes no permission.
        CERT_MANAGER,
        |_| (),
        &ClusterKind::ALL,
    ),
    (
        // What is taken away is the default again.
        &["--set=poolSettingsNamespaces=null,profileNamespaces=null,settings=null"],
        |_| (),
        &ClusterKind::ALL,
    ),
];

#[tokio::test]
async fn roles_are_what_the_table_says_and_nothing_else() -> Result<()> {
    let helm = Helm::without_cluster().await?;
    for (values, change, parts) in CASES {
        let mut installation = Installation {
            namespace: "osm".to_owned(),
            ..Installation::default()
        };
        change(&mut installation);
        let objects = render(&helm, values).await?;
        let mut known = BTreeSet::new();
        for service in Service::ALL {
            let account = json!({"kind": "ServiceAccount", "name": format!("one-{}", service.name()), "namespace": "osm"});
            let granted = granted(&objects, service, &account)?;
            let wanted = in_table(service, &installation, parts)?;
            let more: Vec<_> = granted.difference(&wanted).collect();
            let less: Vec<_> = wanted.difference(&granted).collect();
            assert!(
                more.is_empty() && less.is_empty(),
                "{values:?} {service:?}: more {more:#?}, less {less:#?}"
            );
            known.insert(account.to_string());
        }
        // The group that may ask for certificates of nodes is bound as well.
        known.insert(group().to_string());
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

fn group() -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts:cloud-init-settings"})
}

/// The policy restricts the subjects that RBAC lets bind Roles, as the values name them.
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

/// The policy restricts whom RBAC lets write Leases: in each cluster, as which subjects services write there.
#[tokio::test]
async fn the_policy_about_leases_names_every_service_and_its_leases() -> Result<()> {
    let helm = Helm::without_cluster().await?;
    let of = |service: &str, user: &str, group: Option<&str>| {
        let mut names = vec![format!("{service}-")];
        if service == "csr-approver" {
            names.push("osm-join-".to_owned());
        }
        json!({"groups": Vec::from_iter(group), "names": names, "users": [user]})
    };
    let account = |service: &str| of(service, &format!("system:serviceaccount:osm:one-{service}"), None);
    let (osp, csr) = (account("osp-controller"), account("csr-approver"));
    let (osc, syncer) = (account("osc-controller"), account("secret-syncer"));
    const OSC: &str = "workerCluster.subjects.oscController";
    let subjects =
        format!("topology=worker,{OSC}[0].kind=User,{OSC}[0].name=a'b,{OSC}[1].kind=Group,{OSC}[1].name=g");
    for (values, expected) in [
        ("topology=single", json!([csr, osc, osp, syncer])),
        ("topology=fleet", json!([csr, osc, osp, syncer])),
        ("topology=single,joining=static", json!([osc, osp, syncer])),
        (
            &subjects,
            json!([csr, of("osc-controller", "a'b", Some("g")), syncer]),
        ),
    ] {
        let objects = helm.template("one", "osm", &[&format!("--set={values}")]).await?;
        let policy = named(&objects, "ValidatingAdmissionPolicy", "osm.osm.one.leases")?;
        for place in ["/matchConditions/0/expression", "/validations/0/expression"] {
            let expression = text(policy["spec"].pointer(place).unwrap());
            let services: Value = serde_json::from_str(expression.split(".exists(service").next().unwrap())?;
            assert_eq!(services, expected, "{values} {place}");
        }
        named(&objects, "ValidatingAdmissionPolicyBinding", "osm.osm.one.leases")?;
    }
    Ok(())
}

/// In one mode kube-controller-manager approves, and csr-approver runs in the other. A policy leaves both to
/// the tokens of pools.
#[tokio::test]
async fn the_mode_decides_who_approves() -> Result<()> {
    const ASK: &str = "system:node-bootstrapper";
    const APPROVED: &str = "system:certificates.k8s.io:certificatesigningrequests:nodeclient";
    let helm = Helm::without_cluster().await?;
    for (values, expected) in [
        ("joining=approved", &[ASK][..]),
        ("joining=static", &[ASK, APPROVED]),
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
            let expected: Vec<_> = expected.iter().map(|role| (*role, json!([group()]))).collect();
            assert_eq!(bound, expected, "{set}");
            let policies = objects
                .iter()
                .filter(|object| object["kind"] == "ValidatingAdmissionPolicy");
            assert_eq!(policies.count(), 3, "{set}");
            let approvers = objects.iter().filter(|object| {
                object["kind"] == "Deployment" && object["metadata"]["name"] == "one-csr-approver"
            });
            let runs = topology == "single" && values == "joining=approved";
            assert_eq!(approvers.count(), usize::from(runs), "{set}");
        }
    }
    Ok(())
}

const ADMISSION: &[&str] = &[
    "--set=admission.enabled=true,profileNamespaces={team}",
    "--set=admission.certificate.source=secret,admission.certificate.secretName=pair,admission.certificate.caBundle=Q0E=",
];
const CERT_MANAGER: &[&str] = &["--set=admission.enabled=true,admission.certificate.source=cert-manager"];

/// Values, and what they lead to: kind and name of an object, a path in it, and what is there. `null` stands
/// for nothing. Or a page of `docs/`, and what it says about that.
///
/// One row for each rule of the templates that does more than copy a value.
const ROWS: &[(&[&str], &[&str])] = &[
    (
        // The services fit on nodes of a control plane, also before a cloud has initialized them: a new
        // cluster has no others.
        &[],
        &[
            r#"Deployment one-csr-approver /spec/template/spec/tolerations [{"effect":"NoSchedule","key":"node-role.kubernetes.io/control-plane","operator":"Exists"},{"effect":"NoSchedule","key":"node.cloudprovider.kubernetes.io/uninitialized","operator":"Exists"}]"#,
            r#"Deployment one-csr-approver /spec/template/spec/nodeSelector {"kubernetes.io/os":"linux"}"#,
            "Deployment one-csr-approver /spec/template/spec/affinity null",
        ],
    ),
    (
        // The name is added to that of the release, unless it is part of it. osmctl finds the services by
        // another label.
        &["--set=nameOverride=nodes"],
        &[
            r#"Deployment one-nodes-osc-controller /spec/selector/matchLabels/app.kubernetes.io~1name "nodes""#,
            r#"Deployment one-nodes-osc-controller /metadata/labels/app.kubernetes.io~1part-of "operating-system-manager""#,
        ],
    ),
    (
        &["--set=nameOverride=on"],
        &[r#"Deployment one-osc-controller /spec/selector/matchLabels/app.kubernetes.io~1name "on""#],
    ),
    (
        // A name that is cut doesn't end with `-`, which no object's name may.
        &["--set=networkPolicy.enabled=true,fullnameOverride=a123456789b123456789c123456789d123456789e1---f"],
        &[
            r#"NetworkPolicy a123456789b123456789c123456789d123456789e1 /spec/podSelector/matchLabels/app.kubernetes.io~1instance "one""#,
        ],
    ),
    (
        &["--set=networkPolicy.enabled=true", ADMISSION[0], ADMISSION[1]],
        &[
            "NetworkPolicy one /spec/egress/0/to null",
            "NetworkPolicy one /spec/ingress/0/from null",
            r#"NetworkPolicy one /spec/ingress/1 {"ports":[{"port":"admission"}]}"#,
            "production.md: without which it restricts only ports",
            "admission.md: A NetworkPolicy of your own must allow port 9443. That of the chart does.",
            "security.md: The chart's NetworkPolicy allows it from everywhere",
        ],
    ),
    (
        &[
            "--set=networkPolicy.enabled=true,networkPolicy.apiServerCIDRs={10.0.0.0/8}",
            "--set=networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.a=b",
        ],
        &[
            r#"NetworkPolicy one /spec/egress/0/to [{"ipBlock":{"cidr":"10.0.0.0/8"}}]"#,
            r#"NetworkPolicy one /spec/ingress/0/from [{"namespaceSelector":{"matchLabels":{"a":"b"}}}]"#,
            "production.md: `networkPolicy.enabled`, and `.apiServerCIDRs` and `.metricsFrom`",
        ],
    ),
    (
        &["--set=topology=crds"],
        &[
            r#"ClusterRole osm:osm:one:view /rules/0/resources ["operatingsystemprofiles"]"#,
            "../charts/operating-system-manager/README.md: | `crds` | the CustomResourceDefinitions, and ClusterRoles of users",
        ],
    ),
    (
        // Fields that a service has not replaced stay.
        &[
            "--set=resources.requests.cpu=20m,oscController.resources.limits.memory=1Gi,oscController.image.tag=next",
        ],
        &[
            r#"Deployment one-osc-controller /spec/template/spec/containers/0/resources/requests/cpu "20m""#,
            r#"Deployment one-osc-controller /spec/template/spec/containers/0/image "registry.example.com/osm/osc-controller:next""#,
            r#"Deployment one-osc-controller /spec/template/spec/containers/0/imagePullPolicy "IfNotPresent""#,
        ],
    ),
    (
        // Values win, but not over the labels by which the chart selects.
        &[
            r"--set-string=podLabels.team=nodes,podLabels.app\.kubernetes\.io/component=other",
            "--set=commonLabels.release=all",
        ],
        &[
            r#"Deployment one-osc-controller /spec/template/metadata/labels/team "nodes""#,
            r#"Deployment one-osc-controller /spec/selector/matchLabels/team null"#,
            r#"Deployment one-osc-controller /metadata/labels/release "all""#,
        ],
    ),
    (
        // An object's own annotations win.
        &[
            r"--set=commonAnnotations.helm\.sh/resource-policy=delete,commonAnnotations.a=all",
            "--set=serviceAccountAnnotations.a=own",
        ],
        &[
            r#"Namespace cloud-init-settings /metadata/annotations/helm.sh~1resource-policy "keep""#,
            r#"ServiceAccount one-osc-controller /metadata/annotations/a "own""#,
            "Deployment one-osc-controller /spec/template/metadata/annotations/a null",
        ],
    ),
    (
        // A profile runs as root on nodes.
        &["--set=rbac.aggregateToEdit=true"],
        &[
            r#"ClusterRole osm:osm:one:edit /metadata/labels/rbac.authorization.k8s.io~1aggregate-to-view null"#,
            "production.md: `rbac.aggregateToEdit`",
        ],
    ),
    (
        // Settings that are refused make every replica unready. Nodes can be drained all the same.
        &["--set=oscController.podDisruptionBudget.maxUnavailable=0"],
        &[
            "PodDisruptionBudget one-osc-controller /spec/maxUnavailable 0",
            "PodDisruptionBudget one-secret-syncer /spec/maxUnavailable 1",
            r#"PodDisruptionBudget one-osc-controller /spec/unhealthyPodEvictionPolicy "AlwaysAllow""#,
        ],
    ),
    (
        // The CronJob may renew exactly the kubeconfigs that the services use, and its own, which it may read.
        &[RENEWAL],
        &[
            r#"ClusterRole osm:osm:one:renewal /rules/0 {"apiGroups":["operatingsystemmanager.k8c.io"],"resources":["workerclusters"],"verbs":["list"]}"#,
            r#"ClusterRole osm:osm:one:renewal /rules/1 {"apiGroups":[""],"resourceNames":["worker-renewal"],"resources":["secrets"],"verbs":["get"]}"#,
            r#"ClusterRole osm:osm:one:renewal /rules/2 {"apiGroups":[""],"resourceNames":["worker-csr-approver","worker-osc-controller","worker-secret-syncer","worker-renewal"],"resources":["secrets"],"verbs":["patch"]}"#,
            "permissions.md: a CronJob may also list WorkerClusters, `get` the Secrets `worker-renewal`",
            "security.md: | CronJob of `workerCluster.renewal` | replace kubeconfigs; act as each service",
            r#"CronJob one-renewal /spec/schedule "@hourly""#,
            r#"CronJob one-renewal /spec/jobTemplate/spec/template/spec/containers/0/image "r/osmctl:v1""#,
            "CronJob one-renewal /spec/jobTemplate/spec/activeDeadlineSeconds 19800",
            r#"CronJob one-renewal /spec/jobTemplate/spec/template/spec/containers/0/args ["kubeconfigs","--all","--cluster-selector=a=b","--spread=300m","--release=there","--services=csr-approver,osc-controller,secret-syncer","--duration=24h"]"#,
        ],
    ),
    (
        // Its pod has the values of all pods, and an image of its own.
        &[
            RENEWAL,
            "--set=podLabels.a=b,podAnnotations.c=d,resources.limits.memory=1Gi,workerCluster.renewal.image.registry=own",
            "--set=extraVolumes[0].name=ca,extraVolumeMounts[0].name=ca,extraVolumeMounts[0].mountPath=/ca,dnsPolicy=Default",
        ],
        &[
            r#"CronJob one-renewal /spec/jobTemplate/spec/template/metadata/labels/a "b""#,
            r#"CronJob one-renewal /spec/jobTemplate/spec/template/metadata/annotations/c "d""#,
            r#"CronJob one-renewal /spec/jobTemplate/spec/template/spec/containers/0/resources/limits/memory "1Gi""#,
            r#"CronJob one-renewal /spec/jobTemplate/spec/template/spec/containers/0/image "own/osmctl:v1""#,
            r#"CronJob one-renewal /spec/jobTemplate/spec/template/spec/containers/0/volumeMounts/0/mountPath "/ca""#,
            r#"CronJob one-renewal /spec/jobTemplate/spec/template/spec/volumes/0/name "ca""#,
            r#"CronJob one-renewal /spec/jobTemplate/spec/template/spec/dnsPolicy "Default""#,
        ],
    ),
    (
        // In a user cluster, it may request exactly their tokens.
        &["--set=topology=worker,workerCluster.renewal.enabled=true,joining=static"],
        &[
            r#"Role one-renewal /rules [{"apiGroups":[""],"resourceNames":["one-osc-controller","one-secret-syncer","one-renewal"],"resources":["serviceaccounts/token"],"verbs":["create"]}]"#,
        ],
    ),
    (
        // The API server trusts the Secret of the operator, and connects by a cluster IP.
        ADMISSION,
        &[
            r#"Deployment one-osp-controller /spec/template/spec/volumes/0/secret/secretName "pair""#,
            "Deployment one-osp-controller /spec/template/spec/volumes/0/secret/optional true",
            "Service one-osp-admission /spec/clusterIP null",
            r#"ValidatingWebhookConfiguration operating-system-manager.osm.profiles /webhooks/0/clientConfig/caBundle "Q0E=""#,
            r#"ValidatingWebhookConfiguration operating-system-manager.osm.profiles /webhooks/0/namespaceSelector/matchExpressions/0/values ["osm","team"]"#,
            // A webhook that is away refuses nothing, and it isn't asked about deletions.
            r#"ValidatingWebhookConfiguration operating-system-manager.osm.profiles /webhooks/0/failurePolicy "Ignore""#,
            r#"ValidatingWebhookConfiguration operating-system-manager.osm.profiles /webhooks/0/rules/0/operations ["CREATE","UPDATE"]"#,
            // What pods have by default, and the time in which reviews still arrive.
            "Deployment one-osp-controller /spec/template/spec/terminationGracePeriodSeconds 40",
            "Deployment one-osp-controller /spec/template/spec/containers/0/lifecycle/preStop/sleep/seconds 10",
            "Deployment one-osc-controller /spec/template/spec/terminationGracePeriodSeconds null",
        ],
    ),
    (
        // cert-manager writes the Secret and caBundle.
        CERT_MANAGER,
        &[
            r#"Certificate one-admission /spec/secretName "one-admission""#,
            r#"Certificate one-admission /spec/dnsNames ["one-osp-admission.osm.svc"]"#,
            r#"Certificate one-admission /spec/issuerRef {"kind":"Issuer","name":"one-admission"}"#,
            r#"Deployment one-osp-controller /spec/template/spec/volumes/0/secret/secretName "one-admission""#,
            "ValidatingWebhookConfiguration operating-system-manager.osm.profiles /webhooks/0/clientConfig/caBundle null",
            r#"ValidatingWebhookConfiguration operating-system-manager.osm.profiles /metadata/annotations/cert-manager.io~1inject-ca-from "osm/one-admission""#,
        ],
    ),
];

#[tokio::test]
async fn values_are_placed_where_they_belong() -> Result<()> {
    let helm = Helm::without_cluster().await?;
    for (values, rows) in ROWS {
        let objects = render(&helm, values).await?;
        for row in *rows {
            if let Some((page, sentence)) = row.split_once(".md: ") {
                ensure!(read(&format!("{page}.md"))?.contains(sentence), "{row}");
                continue;
            }
            let [kind, name, path, wanted] = row.split(' ').collect::<Vec<_>>()[..] else {
                anyhow::bail!("{row}: not four words")
            };
            let found = named(&objects, kind, name)?.pointer(path).unwrap_or(&Value::Null);
            assert_eq!(*found, serde_json::from_str::<Value>(wanted)?, "{row}");
        }
    }
    Ok(())
}

/// osmctl finds the services by this label, which must not follow the name that a chart gives to its
/// dependency.
#[tokio::test]
async fn a_dependency_with_another_name_keeps_the_label_of_osmctl() -> Result<()> {
    let folder = ScratchDir::new("osm-parent-")?;
    let charts = folder.path().join("charts");
    std::fs::create_dir(&charts)?;
    std::os::unix::fs::symlink(chart().canonicalize()?, charts.join("osm"))?;
    let parent = json!({"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": [
        {"name": "operating-system-manager", "version": "*", "alias": "nodes"},
    ]});
    std::fs::write(folder.path().join("Chart.yaml"), parent.to_string())?;
    let path = folder.path().display().to_string();
    let helm = Helm::without_cluster().await?;
    let rendered = helm
        .run(["template", "one", &path, "--set=global.imageRegistry=r"])
        .await?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(&rendered)?;
    let labels = &named(&objects, "Deployment", "one-osc-controller")?["metadata"]["labels"];
    assert_eq!(labels["app.kubernetes.io/part-of"], "operating-system-manager");
    Ok(())
}

/// The arguments of a service.
fn arguments(objects: &[Value], service: &str) -> Result<Vec<String>> {
    let deployment = named(objects, "Deployment", &format!("one-{service}"))?;
    let arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array();
    Ok(arguments
        .context("arguments")?
        .iter()
        .map(|argument| text(argument).to_owned())
        .collect())
}

#[tokio::test]
async fn only_osp_controller_has_the_flags_of_the_webhook() -> Result<()> {
    let helm = Helm::without_cluster().await?;
    for topology in [&[][..], &[FLEET]] {
        let objects = render(&helm, &[ADMISSION, topology].concat()).await?;
        for service in Service::ALL {
            let flags = arguments(&objects, service.name())?;
            let serves = flags.iter().any(|flag| flag == "--admission-listen=0.0.0.0:9443");
            assert_eq!(serves, service == Service::OspController, "{flags:?}");
        }
        let configurations = objects
            .iter()
            .filter(|object| object["kind"] == "ValidatingWebhookConfiguration");
        assert_eq!(configurations.count(), 1);
    }
    Ok(())
}

/// Values, and the sentence with which a template refuses them. What `values.schema.json` says alone is not
/// repeated here.
const REFUSED: &[(&str, &str)] = &[
    // The schema is in force, also that of the settings.
    ("replicas=2", "replicas"),
    ("settings.pauseImge=x", "pauseImge"),
    (
        "metrics.prometheusRule.alerts.OSMNone.for=1m",
        "additional properties 'OSMNone' not allowed",
    ),
    (
        "metrics.prometheusRule.additionalRuleLabels.severity=x",
        "each alert has its own: set metrics.prometheusRule.alerts.NAME.severity",
    ),
    ("strategy.type=x", "at '/strategy/type'"),
    ("securityContext.fsGroup=1", "set podSecurityContext.fsGroup"),
    ("global.imagePullSecrets={pull}", "imagePullSecrets"),
    (
        "metrics.prometheusRule.alerts.OSMPanic.threshold=1",
        "OSMPanic.threshold is set, but this alert has no threshold: leave it out",
    ),
    (
        "admission.enabled=true",
        "nothing makes the certificate of the webhook: set admission.certificate.source to cert-manager, or to secret",
    ),
    (
        "admission.enabled=true,admission.certificate.source=secret",
        "admission.certificate.caBundle",
    ),
    (
        "admission.machineDeployments.url=https://a.example",
        "additional properties 'machineDeployments' not allowed",
    ),
    (
        "admission.enabled=true,topology=worker",
        "admission.enabled is set, but topology is worker",
    ),
    (
        "admission.enabled=true,topology=crds",
        "admission.enabled is set, but topology is crds",
    ),
    (
        "workerCluster.renewal.enabled=true",
        "it is for the clusters of a fleet, with topology fleet or worker",
    ),
    (
        "topology=worker,workerCluster.renewal.enabled=true,serviceAccountNames.oscController=x",
        "osc-controller has a ServiceAccount or a subject with a name of its own",
    ),
    (
        "workerCluster.subjects.secretSyncer[0].kind=User,workerCluster.subjects.secretSyncer[0].name=x",
        "subjects belong to the release in the user cluster, with topology worker",
    ),
    (
        "topology=fleet,admissionPolicy.enabled=true",
        "machineDeploymentNamespaces is empty, which allows all",
    ),
    (
        "settingsConfigMap.create=false,settings.pauseImage=x",
        "write them to that ConfigMap, or let the chart create it",
    ),
    (
        "topology=worker,settings.pauseImage=x",
        "belong to the release in the seed",
    ),
    (
        "topology=worker,profileNamespaces={team}",
        "profileNamespaces is set",
    ),
    (
        "topology=worker,metrics.prometheusRule.enabled=true",
        "metrics.prometheusRule.enabled is set, but topology is worker",
    ),
    (
        "topology=worker,networkPolicy.enabled=true",
        "networkPolicy.enabled is set, but topology is worker",
    ),
    (
        r"commonLabels.app\.kubernetes\.io/name=x",
        "commonLabels has app.kubernetes.io/name",
    ),
    (
        "image.registry=,oscController.image.registry=x",
        "no registry is known for the images of csr-approver, osp-controller, secret-syncer: set image.registry",
    ),
    (
        "image.registry=,topology=fleet,workerCluster.renewal.enabled=true",
        "secret-syncer, osmctl: set image.registry",
    ),
    (
        "podDisruptionBudget.maxUnavailable=1,oscController.podDisruptionBudget.minAvailable=1",
        "are both set for osc-controller",
    ),
    (
        "serviceAccountNames.oscController=one-secret-syncer",
        "secret-syncer and osc-controller would have the same ServiceAccount",
    ),
    (
        "topology=fleet,workerCluster.renewal.enabled=true,serviceAccountNames.oscController=one-renewal",
        "osc-controller and the renewal of kubeconfigs would have the same ServiceAccount",
    ),
    (
        "fleet.clusterSelector=a",
        "topology is single: set topology to fleet, or leave the selector out",
    ),
    (
        "topology=fleet,fleet.kkp.enabled=true",
        "set topology to fleet, removeUpstreamFinalizers to true and joining to approved",
    ),
    (
        "topology=fleet,removeUpstreamFinalizers=true,fleet.kkp.enabled=true,serviceAccountNames.oscController=one-kkp",
        "osc-controller and the CronJob for KKP would have the same ServiceAccount",
    ),
    (
        "topology=fleet,installation=a",
        "set spec.installation of the WorkerCluster",
    ),
    (
        "topology=crds,crds.enabled=false",
        "the release would be empty: set crds.enabled to true",
    ),
    (
        "topology=worker,fallbackProfileNamespace=shared",
        "fallbackProfileNamespace is set",
    ),
    (
        "topology=crds,metrics.dashboard.enabled=true",
        "which has only CustomResourceDefinitions: set it in the releases of the services",
    ),
];

#[tokio::test]
async fn values_that_make_no_sense_are_refused_with_what_to_change() -> Result<()> {
    let helm = Helm::without_cluster().await?;
    let set: Vec<_> = REFUSED
        .iter()
        .map(|(values, sentence)| (format!("--set={values}"), *sentence))
        .collect();
    let mut cases: Vec<(Vec<&str>, &str)> = set
        .iter()
        .map(|(values, sentence)| (vec![values.as_str()], *sentence))
        .collect();
    let policy = "--set=admissionPolicy.enabled=true,machineDeploymentNamespaces={x}";
    cases.extend([
        (
            vec![policy, "--api-versions=apps/v1/Deployment"],
            "does not serve ValidatingAdmissionPolicy",
        ),
        (
            vec!["--namespace=cloud-init-settings"],
            "install into another, such as kube-system",
        ),
        (
            vec!["--kube-version=1.32.9"],
            "the API server is older than Kubernetes 1.33",
        ),
        (vec![FLEET, "--kube-version=1.28.15"], "kubeVersion: >=1.30.0-0"),
    ]);
    for (values, sentence) in cases {
        let refused = render(&helm, &values).await.err();
        let error = format!(
            "{:#}",
            refused.with_context(|| format!("{values:?} is rendered"))?
        );
        ensure!(
            error.contains(sentence),
            "{values:?}: {sentence:?} is not in {error}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn every_object_has_the_common_labels_and_annotations() -> Result<()> {
    let helm = Helm::without_cluster().await?;
    for values in ci_values()? {
        let values = format!("--values={}", values.display());
        let common = "--set=commonLabels.a=b,commonAnnotations.c=d,extraObjects=null";
        for object in render(&helm, &[&values, common]).await? {
            let metadata = &object["metadata"];
            let has = metadata["labels"]["a"] == "b" && metadata["annotations"]["c"] == "d";
            assert!(has, "{values}: {object}");
        }
    }
    Ok(())
}

/// As the page and the example show them.
#[tokio::test]
async fn settings_that_the_services_take_are_taken() -> Result<()> {
    let helm = Helm::without_cluster().await?;
    let shown = blocks(&read("settings.md")?, "yaml").into_iter().next();
    let air_gapped = std::fs::read_to_string(chart().join("../../examples/settings-air-gapped.yaml"))?;
    for document in [shown.context("an example")?, air_gapped] {
        let settings: Value = serde_saphyr::from_str(&document)?;
        osm_api::Settings::parse(&document)?;
        render(&helm, &[&format!("--set-json=settings={settings}")]).await?;
    }
    Ok(())
}

/// Every cluster with profiles has the definitions of this version, unless another release has them.
#[tokio::test]
async fn the_definitions_are_those_of_this_version_and_are_kept() -> Result<()> {
    let helm = Helm::without_cluster().await?;
    let rendered = async |values: &[&str]| -> Result<Vec<Value>> {
        let mut objects = render(&helm, values).await?;
        objects.retain(|object| object["kind"] == "CustomResourceDefinition");
        Ok(objects)
    };
    // In the order of the names of the files.
    let ours = [
        definitions::CONFIGS,
        definitions::PROFILES,
        definitions::WORKER_CLUSTERS,
    ]
    .map(definitions::parse);
    for (values, keep) in [
        ("single", true),
        ("crds", true),
        ("fleet", true),
        ("single,crds.keep=false", false),
    ] {
        let found = rendered(&[&format!("--set=topology={values}")]).await?;
        assert_eq!(found.len(), ours.len(), "{values}");
        for (found, ours) in found.iter().zip(&ours) {
            assert_eq!(found["spec"], ours["spec"], "{values}");
            for (label, value) in ours["metadata"]["labels"].as_object().context("labels")? {
                assert_eq!(found["metadata"]["labels"][label], *value, "{values}");
            }
            let policy = &found["metadata"]["annotations"]["helm.sh/resource-policy"];
            assert_eq!(*policy == "keep", keep, "{values}");
        }
    }
    for values in [&["--set=crds.enabled=false"][..], &["--set=topology=worker"]] {
        let found = rendered(values).await?;
        ensure!(found.is_empty(), "{values:?}");
    }
    let all = render(&helm, &["--set=topology=crds"]).await?;
    for object in &all {
        let kind = text(&object["kind"]);
        ensure!(
            ["CustomResourceDefinition", "ClusterRole"].contains(&kind),
            "{object}"
        );
    }
    Ok(())
}

/// Every object of every set of values, as the real API server would take it, with field names that it knows.
/// It warns of pods that break the restricted standard, which counts as a refusal.
#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_would_take_every_object() -> Result<()> {
    const APPLY: &str =
        "kubectl --warnings-as-errors apply --server-side --force-conflicts --dry-run=server -f objects.yaml";
    let (control_plane, helm) = (
        ControlPlane::start(Options::default()).await?,
        Helm::without_cluster().await?,
    );
    let strict = json!({"pod-security.kubernetes.io/warn": "restricted", "pod-security.kubernetes.io/warn-version": "latest"});
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": strict}});
    let namespaces = [
        "osm",
        "456",
        "team",
        "shared",
        "machines",
        "1e3",
        "2e3",
        "cloud-init-settings",
    ];
    installation::apply(&control_plane, &namespaces.map(namespace)).await?;
    installation::apply(&control_plane, &["ServiceMonitor", "PrometheusRule"].map(monitor)).await?;
    let person = Person::new(vec![("cluster", &control_plane)]).await?;
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
    cases.push((&longest, "456", LIKE_NUMBERS.to_vec()));
    cases.push((&longest, "456", vec![RENEWAL]));
    for (release, namespace, values) in cases {
        let mut objects = helm.template(release, namespace, &values).await?;
        // There already.
        objects.retain(|object| object["kind"] != "Namespace");
        // Not as a List, whose items kubectl would validate by itself.
        let documents: Vec<String> = objects.iter().map(Value::to_string).collect();
        std::fs::write(
            person.folder.path().join("objects.yaml"),
            documents.join("\n---\n"),
        )?;
        let applied = person.run(APPLY).await;
        applied.with_context(|| format!("{release} in {namespace}: {values:?}"))?;
    }
    Ok(())
}

const LIKE_NUMBERS: &[&str] = &[
    "--set-string=settingsConfigMap.name=007,imagePullSecrets[0].name=123,image.tag=1e3,priorityClassName=true,installation=1",
    "--set-json=log.filter=\"info: # x\"",
    "--set-string=profileNamespaces={1e3},fallbackProfileNamespace=2e3,poolSettingsNamespaces={1e3},commonLabels.team=true,commonAnnotations.a=1e3,podAnnotations.a=1e3,podLabels.a=1e3",
    "--set-string=serviceAccountAnnotations.a=true,extraEnv[0].name=A,extraEnv[0].value=1e3",
    "--set-string=machineDeploymentNamespaces={1e3,true}",
    "--set-string=nodeSelector.a=true,networkPolicy.apiServerCIDRs={::/0}",
    "--set-string=metrics.prometheusRule.alerts.OSMPanic.severity=true",
    "--set=networkPolicy.enabled=true,metrics.serviceMonitor.enabled=true,metrics.prometheusRule.enabled=true",
    "--set=secretSyncer.replicas=2",
];

/// A definition of the Prometheus Operator, without its schema.
fn monitor(kind: &str) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.monitoring.coreos.com")},
        "spec": {
            "group": "monitoring.coreos.com", "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}
