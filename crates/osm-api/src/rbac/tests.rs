//! Checks what the table as a whole permits, and never permits.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::PolicyRule;

use super::*;
use crate::names::CLOUD_INIT_SETTINGS;

fn everything() -> Installation {
    Installation {
        id: "osm".to_owned(),
        profiles_in: None,
        worker_namespace: None,
        profile_namespaces: vec!["profiles".to_owned()],
        fallback_profile_namespace: Some("shared".to_owned()),
        pool_settings_namespaces: vec!["machines".to_owned()],
        machine_deployment_namespaces: vec!["machines".to_owned()],
        go_finalizers: true,
        custom_profiles: true,
        ..Installation::default()
    }
}

fn fleet() -> Installation {
    Installation {
        fleet: true,
        ..everything()
    }
}

/// Whether a rule permits a service to follow its kubeconfigs of the clusters of a fleet, and nothing else.
fn is_on_own_kubeconfigs(service: Service, rule: &PolicyRule) -> bool {
    let is = |list: &Option<Vec<String>>, one: &str| list.as_deref() == Some(&[one.to_owned()]);
    let name = format!("worker-{}", service.name());
    is(&rule.resources, "secrets") && is(&rule.resource_names, &name) && rule.verbs == ["list", "watch"]
}

/// Every rule of every service, with its place.
fn rules(installation: &Installation) -> Vec<(Service, ClusterKind, Option<String>, PolicyRule)> {
    let mut found = Vec::new();
    for service in Service::ALL {
        for Grant {
            cluster,
            namespace,
            rights,
        } in service.grants(installation)
        {
            let rules = rights.into_iter().map(|right| right.rule);
            found.extend(rules.map(|rule| (service, cluster, namespace.clone(), rule)));
        }
    }
    found
}

fn is_on(rule: &PolicyRule, resource: &str) -> bool {
    rule.resources.iter().flatten().any(|one| one == resource)
}

fn allows(rule: &PolicyRule, verb: &str) -> bool {
    rule.verbs.iter().any(|one| one == verb)
}

#[test]
fn only_secret_syncer_has_a_right_on_secrets() {
    for installation in [Installation::default(), everything(), fleet()] {
        for (service, .., rule) in rules(&installation) {
            let mut resources = rule.resources.iter().flatten();
            let is_secret = |one: &String| one.starts_with("secrets") || one.starts_with("serviceaccounts");
            let may = service == Service::SecretSyncer
                || installation.fleet && is_on_own_kubeconfigs(service, &rule);
            assert!(may || !resources.any(is_secret), "{service:?}");
        }
    }
}

/// The right to approve or to sign gives the credentials of any node, and what is bound to `nodeclient` is
/// approved without a question.
#[test]
fn one_service_may_approve_certificates_of_these_signers_and_none_may_sign() {
    let decides = |rule: &PolicyRule| {
        let resources = rule.resources.iter().flatten();
        let mut resources = resources.map(|resource| resource.rsplit('/').next().unwrap_or_default());
        let mut groups = rule.api_groups.iter().flatten();
        ["approve", "sign", "*"].iter().any(|verb| allows(rule, verb))
            || resources.any(|one| ["signers", "approval", "status", "nodeclient", "*"].contains(&one))
                && groups.any(|group| ["certificates.k8s.io", "*"].contains(&group.as_str()))
    };
    let found = |installation: &Installation| -> Vec<String> {
        let rules = rules(installation).into_iter().filter(|(.., rule)| decides(rule));
        let text =
            |(service, cluster, namespace, rule): (Service, ClusterKind, Option<String>, PolicyRule)| {
                let list = |items: Option<Vec<String>>| items.unwrap_or_default().join(",");
                format!(
                    "{}, {}, {}: {} {} {}",
                    service.name(),
                    cluster.name(),
                    namespace.unwrap_or_default(),
                    rule.verbs.join(","),
                    list(rule.resources),
                    list(rule.resource_names)
                )
            };
        rules.map(text).collect()
    };
    let expected = [
        "patch certificatesigningrequests/approval ",
        "approve signers kubernetes.io/kube-apiserver-client-kubelet",
    ]
    .map(|right| format!("csr-approver, worker, : {right}"));
    for installation in [Installation::default(), everything(), fleet()] {
        assert_eq!(found(&installation), expected);
    }
}

/// It belongs to another installation, and several may have the same.
#[test]
fn profiles_of_the_fallback_namespace_are_read_by_one_service_and_written_by_none() {
    let mut here = rules(&everything());
    here.retain(|(_, _, namespace, _)| namespace.as_deref() == Some("shared"));
    let [(Service::OscController, .., rule)] = &here[..] else {
        panic!("{here:#?}")
    };
    assert!(is_on(rule, "operatingsystemprofiles"));
    assert_eq!(rule.verbs, ["get", "list", "watch"]);
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
    for (service, installation) in Service::ALL
        .into_iter()
        .flat_map(|service| [(service, everything()), (service, fleet())])
    {
        let grants = service.grants(&installation);
        let places: BTreeSet<_> = grants.iter().map(|one| (one.cluster, &one.namespace)).collect();
        assert_eq!(places.len(), grants.len(), "{grants:#?}");
        let roles = service.rules(&installation, &ClusterKind::ALL);
        let namespaces: BTreeSet<_> = roles.iter().map(|(namespace, _)| namespace).collect();
        assert_eq!(namespaces.len(), roles.len(), "{roles:#?}");
        let expected = places.into_iter().map(|(_, namespace)| namespace).collect();
        assert_eq!(namespaces, expected);
        for (_, rules) in &roles {
            let mut numbered = rules.iter().enumerate();
            let differ = numbered.all(|(at, rule)| !rules[..at].contains(rule));
            assert!(differ, "{rules:#?}");
        }
    }
    let grants = Service::OscController.grants(&Installation::default());
    let in_kube_system = |one: &&Grant| one.namespace.as_deref() == Some("kube-system");
    let of_kube_system = grants.iter().filter(in_kube_system);
    assert!(of_kube_system.map(|one| one.cluster).eq(ClusterKind::ALL));
}

#[test]
fn a_service_has_rights_where_it_has_a_kubeconfig_and_nowhere_else() {
    for service in Service::ALL {
        let grants = service.grants(&Installation::default());
        for cluster in ClusterKind::ALL {
            let granted = grants.iter().any(|grant| grant.cluster == cluster);
            let has_kubeconfig = service.clusters().contains(&cluster);
            assert_eq!(has_kubeconfig, granted, "{service:?} {cluster:?}");
        }
    }
}

#[test]
fn machine_deployments_are_patched_by_one_service_and_only_where_that_is_wanted() {
    let writes = |installation: &Installation| -> Vec<(Service, String)> {
        let mut on_pools = rules(installation);
        on_pools.retain(|(.., rule)| is_on(rule, "machinedeployments"));
        let verbs = |(service, .., rule): (Service, _, _, PolicyRule)| {
            rule.verbs.into_iter().map(move |verb| (service, verb))
        };
        let mut found: Vec<_> = on_pools.into_iter().flat_map(verbs).collect();
        found.retain(|(_, verb)| !["get", "list", "watch"].contains(&verb.as_str()));
        found
    };
    assert_eq!(writes(&Installation::default()), []);
    let expected = [(Service::OscController, "patch".to_owned())];
    assert_eq!(writes(&everything()), expected);
}

/// What a release and its WorkerClusters have is in other namespaces, which a tenant may write.
#[test]
fn a_fleet_has_only_what_belongs_to_a_cluster_in_all_namespaces() {
    for service in Service::ALL {
        let mut everywhere = BTreeSet::new();
        for grant in service.grants(&fleet()) {
            if (grant.cluster, &grant.namespace) == (ClusterKind::Management, &None) {
                let rules = grant.rights.into_iter().map(|right| right.rule);
                everywhere.extend(rules.filter_map(|rule| rule.resources).flatten());
            }
        }
        let everywhere: Vec<&str> = everywhere.iter().map(String::as_str).collect();
        let cluster = ["secrets", "workerclusters", "workerclusters/status"];
        let configs = [
            "leases",
            "operatingsystemconfigs",
            "operatingsystemconfigs/status",
        ];
        let expected = match service {
            Service::OspController => vec![],
            Service::OscController => [&configs[..], &cluster].concat(),
            Service::SecretSyncer => [&["events"], &configs[..], &cluster].concat(),
            Service::CsrApprover => cluster.to_vec(),
        };
        assert_eq!(everywhere, expected, "{service:?}");
    }
}

/// A Role grants nothing outside its namespace.
#[test]
fn no_service_reads_secrets_or_binds_roles_outside_the_namespace_of_user_data() {
    let all = [Installation::default(), fleet()]
        .into_iter()
        .flat_map(|it| rules(&it));
    for (service, cluster, namespace, rule) in all {
        assert!(!allows(&rule, "*") && !allows(&rule, "escalate"));
        let binds = allows(&rule, "bind");
        assert!(!binds || rule.resources == Some(vec!["roles".to_owned()]));
        if is_on_own_kubeconfigs(service, &rule) {
            assert_eq!((cluster, namespace), (ClusterKind::Management, None));
        } else if binds || is_on(&rule, "secrets") {
            let place = (cluster, namespace.as_deref());
            assert_eq!(place, (ClusterKind::Worker, Some(CLOUD_INIT_SETTINGS)));
        }
    }
}
