//! What the table as a whole permits, and never permits.

use k8s_openapi::api::rbac::v1::PolicyRule;

use super::*;
use crate::Joining;
use crate::names::CLOUD_INIT_SETTINGS;

fn everything() -> Installation {
    Installation {
        profile_namespaces: vec!["profiles".to_owned()],
        fallback_profile_namespace: Some("shared".to_owned()),
        pool_settings_namespaces: vec!["machines".to_owned()],
        machine_deployment_namespaces: vec!["machines".to_owned()],
        go_finalizers: true,
        custom_profiles: true,
        serving_certificates: true,
        joining: Joining::Approved,
        ..Installation::default()
    }
}

fn resources(service: Service, installation: &Installation) -> Vec<String> {
    service
        .grants(installation)
        .into_iter()
        .flat_map(|grant| grant.rights)
        .flat_map(|right| right.rule.resources.unwrap_or_default())
        .collect()
}

#[test]
fn only_secret_syncer_has_a_right_on_secrets() {
    for installation in [Installation::default(), everything()] {
        for service in Service::ALL
            .into_iter()
            .filter(|service| *service != Service::SecretSyncer)
        {
            assert!(
                !resources(service, &installation)
                    .iter()
                    .any(|r| r.starts_with("secrets") || r.starts_with("serviceaccounts")),
                "{service:?}"
            );
        }
    }
}

/// The right to approve or to sign is worth any node, and what is bound to `nodeclient` is approved without a question.
#[test]
fn one_service_may_approve_certificates_of_these_signers_and_none_may_sign() {
    let decides = |rule: &PolicyRule| {
        let resources = rule.resources.iter().flatten();
        let mut resources = resources.map(|resource| resource.rsplit('/').next().unwrap_or_default());
        rule.verbs
            .iter()
            .any(|verb| ["approve", "sign", "*"].contains(&verb.as_str()))
            || resources
                .any(|resource| ["signers", "approval", "status", "nodeclient", "*"].contains(&resource))
                && rule
                    .api_groups
                    .iter()
                    .flatten()
                    .any(|group| ["certificates.k8s.io", "*"].contains(&group.as_str()))
    };
    let found = |installation: &Installation| -> Vec<String> {
        let mut found = Vec::new();
        for service in Service::ALL {
            for Grant {
                cluster,
                namespace,
                rights,
            } in service.grants(installation)
            {
                let place = namespace.unwrap_or_else(|| "everywhere".to_owned());
                for Right { rule, .. } in rights.into_iter().filter(|right| decides(&right.rule)) {
                    let list = |items: Option<Vec<String>>| items.unwrap_or_default().join(",");
                    found.push(format!(
                        "{}, {} cluster, {place}: {} {} {}",
                        service.name(),
                        cluster.name(),
                        rule.verbs.join(","),
                        list(rule.resources),
                        list(rule.resource_names)
                    ));
                }
            }
        }
        found
    };
    let [decision, client, serving] = [
        "patch certificatesigningrequests/approval ",
        "approve signers kubernetes.io/kube-apiserver-client-kubelet",
        "approve signers kubernetes.io/kubelet-serving",
    ]
    .map(|right| format!("csr-approver, worker cluster, everywhere: {right}"));
    assert_eq!(found(&everything()), [decision.clone(), client.clone(), serving]);
    assert_eq!(found(&Installation::default()), [decision, client]);
}

/// It belongs to another installation, and several may have the same.
#[test]
fn profiles_of_the_fallback_namespace_are_read_by_one_service_and_written_by_none() {
    for service in Service::ALL {
        let grants = service.grants(&everything()).into_iter();
        let here = grants.filter(|grant| grant.namespace.as_deref() == Some("shared"));
        let rules: Vec<PolicyRule> = here
            .flat_map(|grant| grant.rights)
            .map(|right| right.rule)
            .collect();
        if service == Service::OscController {
            let [rule] = &rules[..] else { panic!("{rules:#?}") };
            let profiles = vec!["operatingsystemprofiles".to_owned()];
            assert_eq!(rule.resources, Some(profiles));
            assert_eq!(rule.verbs, ["get", "list", "watch"]);
        } else {
            assert!(rules.is_empty(), "{service:?}: {rules:#?}");
        }
    }
}

#[test]
fn every_namespace_is_served_unless_some_are_listed() {
    let mut installation = Installation::default();
    assert!(installation.serves("anywhere"));
    installation.machine_deployment_namespaces = vec!["kube-system".to_owned(), "machines".to_owned()];
    assert!(installation.serves("machines") && !installation.serves("b-machines"));
    // What is published in the others must be renewed.
    let all = Installation::default();
    for service in Service::ALL {
        assert_eq!(service.grants(&installation), service.grants(&all));
    }
}

#[test]
fn each_namespace_has_one_grant_in_each_cluster_and_one_role_where_both_are_one() {
    let installation = Installation {
        pool_settings_namespaces: vec!["kube-system".to_owned(), "machines".to_owned()],
        ..Installation::default()
    };
    let grants = Service::OscController.grants(&installation);
    let of = |cluster: ClusterKind, namespace: &str| {
        let here = |grant: &&Grant| (grant.cluster, grant.namespace.as_deref()) == (cluster, Some(namespace));
        grants.iter().filter(here).count()
    };
    assert_eq!(ClusterKind::ALL.map(|cluster| of(cluster, "kube-system")), [1, 1]);
    assert_eq!(ClusterKind::ALL.map(|cluster| of(cluster, "machines")), [0, 1]);
    let one = Service::OscController.rules(&installation, &ClusterKind::ALL);
    let in_one = |namespace: Option<&str>| one.iter().filter(|(n, _)| n.as_deref() == namespace).count();
    assert_eq!(
        (
            in_one(Some("kube-system")),
            in_one(Some("machines")),
            in_one(None)
        ),
        (1, 1, 1)
    );
    for (_, rules) in &one {
        assert!(
            rules
                .iter()
                .enumerate()
                .all(|(at, rule)| !rules[..at].contains(rule)),
            "{rules:#?}"
        );
    }
}

#[test]
fn a_service_has_rights_where_it_has_a_kubeconfig_and_nowhere_else() {
    for service in Service::ALL {
        let grants = service.grants(&Installation::default());
        for cluster in ClusterKind::ALL {
            let granted = grants.iter().any(|grant| grant.cluster == cluster);
            assert_eq!(
                service.clusters().contains(&cluster),
                granted,
                "{service:?} {cluster:?}"
            );
        }
    }
}

#[test]
fn machine_deployments_are_patched_by_one_service_and_only_where_that_is_wanted() {
    let wanted = Installation {
        go_finalizers: true,
        ..Installation::default()
    };
    for service in Service::ALL {
        let rights = service.grants(&wanted).into_iter().flat_map(|grant| grant.rights);
        let on_pools = rights.map(|right| right.rule).filter(|rule| {
            rule.resources
                .iter()
                .flatten()
                .any(|resource| resource == "machinedeployments")
        });
        let writes: Vec<String> = on_pools
            .flat_map(|rule| rule.verbs)
            .filter(|verb| !["get", "list", "watch"].contains(&verb.as_str()))
            .collect();
        let expected: &[&str] = if service == Service::OscController {
            &["patch"]
        } else {
            &[]
        };
        assert_eq!(writes, expected);
    }
}

#[test]
fn no_service_writes_machine_deployments_or_reads_secrets_or_binds_roles_outside_its_namespace() {
    for grant in Service::ALL
        .into_iter()
        .flat_map(|service| service.grants(&Installation::default()))
    {
        for Right { rule, .. } in &grant.rights {
            let on = |name: &str| rule.resources.iter().flatten().any(|resource| resource == name);
            if on("machinedeployments") {
                assert!(
                    rule.verbs
                        .iter()
                        .all(|verb| ["get", "list", "watch"].contains(&verb.as_str()))
                );
            }
            if on("secrets") {
                let place = (grant.cluster, grant.namespace.as_deref());
                assert_eq!(place, (ClusterKind::Worker, Some(CLOUD_INIT_SETTINGS)));
            }
            let allows = |verb: &str| rule.verbs.iter().any(|other| other == verb);
            assert!(!allows("*") && !allows("escalate"));
            if allows("bind") {
                // A Role grants nothing outside its namespace.
                let place = (grant.cluster, grant.namespace.as_deref());
                assert_eq!(place, (ClusterKind::Worker, Some(CLOUD_INIT_SETTINGS)));
                assert_eq!(rule.resources.as_deref(), Some(&["roles".to_owned()][..]));
            }
        }
    }
}
