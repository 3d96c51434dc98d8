//! The kinds of objects that a check reads.

use crate::cluster::Kind;

const fn namespaced(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> Kind {
    Kind {
        group,
        version,
        kind,
        plural,
        is_namespaced: true,
    }
}

const fn of_cluster(group: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind {
        group,
        version: "v1",
        kind,
        plural,
        is_namespaced: false,
    }
}

const ADMISSION: &str = "admissionregistration.k8s.io";

pub const VALIDATING: Kind = of_cluster(
    ADMISSION,
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
);
pub const MUTATING: Kind = of_cluster(
    ADMISSION,
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
);
pub const DEPLOYMENT: Kind = namespaced("apps", "v1", "Deployment", "deployments");
pub const SECRET: Kind = namespaced("", "v1", "Secret", "secrets");

pub const CONFIG_MAP: Kind = namespaced("", "v1", "ConfigMap", "configmaps");
pub const CONFIG: Kind = namespaced(
    osm_api::names::GROUP,
    "v1alpha1",
    "OperatingSystemConfig",
    "operatingsystemconfigs",
);
