//! Maps each flag to its equivalent.

use serde_json::json;

use super::command_line::{boolean, listed, with_scheme};
use super::mapped::Mapped;
use super::registries::registry_mirrors;

/// The Secret that the settings name if a proxy has a user and a password.
pub(super) const PROXY_SECRET: &str = "osm-proxy";

/// The flag that names the Secret with the credentials of registries.
pub const REGISTRY_SECRET: &str = "node-registry-credentials-secret";

/// What becomes of a flag.
pub(super) enum Row {
    /// It has no counterpart, for this reason.
    NotNeeded(&'static str),
    Bool(fn(&mut Mapped, bool)),
    Text(fn(&mut Mapped, &str)),
    /// A file in the pod. A person has to write its text into this field of the settings.
    File(&'static str),
}

/// What becomes of the flag of this name; `None`: it is unknown.
pub(super) fn row(flag: &str) -> Option<Row> {
    use Row::{Bool, File, NotNeeded, Text};
    Some(match flag {
        "kubeconfig" | "worker-cluster-kubeconfig" => {
            NotNeeded("`osmctl kubeconfigs` creates the kubeconfigs of OSM")
        }
        // A check compares it.
        "namespace" => Text(|_, _| {}),
        "worker-count" => Text(worker_count),
        "container-runtime" => NotNeeded("OSM supports only containerd"),
        "external-cloud-provider" => {
            Bool(|mapped, on| mapped.set("/cluster/externalCloudProvider", json!(on)))
        }
        "cluster-dns" => Text(|mapped, text| mapped.set("/cluster/dnsIPs", json!(listed(text)))),
        "pause-image" => Text(|mapped, text| mapped.set("/pauseImage", json!(text))),
        "initial-taints" => Text(initial_taints),
        "node-kubelet-feature-gates" => Text(feature_gates),
        "node-http-proxy" => Text(http_proxy),
        "node-no-proxy" => Text(|mapped, text| {
            mapped.set("/proxy/noProxy", json!(listed(text).join(",")));
        }),
        "node-insecure-registries" => Text(|mapped, text| {
            listed(text).into_iter().for_each(|host| mapped.insecure(host));
        }),
        "node-registry-mirrors" => Text(registry_mirrors),
        "node-containerd-registry-mirrors" => Text(|mapped, text| match text.split_once('=') {
            Some((registry, url)) => mapped.mirror("node-containerd-registry-mirrors", registry, url),
            None => mapped.malformed("node-containerd-registry-mirrors", "REGISTRY=URL"),
        }),
        "device-ownership-from-security-context" => Bool(|mapped, on| {
            mapped.set("/containerd/deviceOwnershipFromSecurityContext", json!(on));
        }),
        REGISTRY_SECRET => Text(|mapped, _| mapped.credentials(REGISTRY_SECRET)),
        "kubernetes-ca-bundle" => File("cluster.caBundle"),
        "host-ca-bundle" => File("hostCABundle"),
        "ca-bundle" => NotNeeded("it has no effect in the upstream OSM"),
        "override-bootstrap-kubelet-apiserver" => Text(|mapped, text| {
            mapped.set("/cluster/apiServer", json!(with_scheme("https", text)));
            mapped.notes.push(
                "the flag -override-bootstrap-kubelet-apiserver becomes cluster.apiServer; nodes use this address for all requests to the API server"
                    .to_owned(),
            );
        }),
        "bootstrap-token-service-account-name" => NotNeeded("all tokens of pools expire"),
        "disable-default-osps" => Bool(|mapped, on| {
            if on {
                mapped.set("/defaultProfiles/enabled", json!(false));
            }
        }),
        "health-probe-address"
        | "metrics-address"
        | "worker-health-probe-address"
        | "worker-metrics-address" => NotNeeded("the chart sets one port for probes and metrics"),
        "leader-elect" => NotNeeded("replicas share the work"),
        "log-debug" => Bool(|mapped, on| {
            if on {
                mapped.value("log", "filter", json!("debug"));
            }
        }),
        "log-format" => Text(|mapped, text| match text.to_ascii_lowercase().as_str() {
            "json" => mapped.value("log", "format", json!("json")),
            _ => mapped.value("log", "format", json!("text")),
        }),
        "v" | "vmodule" | "logtostderr" | "alsologtostderr" | "stderrthreshold" => {
            NotNeeded("the value log.filter of the chart decides what is logged")
        }
        _ => return None,
    })
}

fn worker_count(mapped: &mut Mapped, text: &str) {
    match text.parse::<u32>() {
        Ok(count) if count > 0 => mapped.value("controller", "concurrency", json!(count)),
        _ => mapped.malformed("worker-count", "a number"),
    }
}

fn initial_taints(mapped: &mut Mapped, text: &str) {
    let mut taints = Vec::new();
    for part in listed(text) {
        let Some((key, effect)) = part.rsplit_once(':') else {
            return mapped.malformed("initial-taints", "KEY=VALUE:EFFECT");
        };
        taints.push(match key.split_once('=') {
            Some((key, value)) => json!({"key": key, "value": value, "effect": effect}),
            None => json!({"key": key, "effect": effect}),
        });
    }
    mapped.set("/initialTaints", json!(taints));
}

fn feature_gates(mapped: &mut Mapped, text: &str) {
    const ROTATE: &str = "RotateKubeletServerCertificate";
    for part in listed(text) {
        match part.split_once('=').map(|(gate, on)| (gate.trim(), boolean(on.trim()))) {
            Some((ROTATE, Some(true))) => {}
            Some((ROTATE, Some(false))) => mapped.by_hand(
                "node-kubelet-feature-gates",
                "the gate RotateKubeletServerCertificate is always on; write only the other gates into kubelet.featureGates of a settings document",
            ),
            Some((gate, Some(on))) => mapped.set("/kubelet/featureGates", json!({gate: on})),
            _ => mapped.malformed("node-kubelet-feature-gates", "GATE=true or GATE=false"),
        }
    }
}

fn http_proxy(mapped: &mut Mapped, text: &str) {
    let url = with_scheme("http", text);
    let url = url.trim_end_matches('/');
    match url.rsplit_once('@').zip(url.split_once("://")) {
        Some(((_, host), (scheme, _))) => {
            mapped.set("/proxy/http", json!(format!("{scheme}://{host}")));
            mapped.set("/proxy/credentials", json!({"name": PROXY_SECRET}));
            mapped.secrets.push(PROXY_SECRET.to_owned());
        }
        None => mapped.set("/proxy/http", json!(url)),
    }
}
