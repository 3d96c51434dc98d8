//! Decides which pools have a kubeconfig Secret.
//!
//! Most machines get their tokens in the bootstrap document. Where the provisioning document has tokens, or a
//! machine fetches the kubelet's bootstrap kubeconfig after it, the pool has a Secret with that kubeconfig.

use crate::kubelet_kubeconfig::late_bound_ids;
use crate::stage::Stage;
use osm_api::config::LateBoundKind;
use osm_api::content::Content;

/// Whether the pool of this content needs one.
pub fn is_needed(spec: &Content) -> bool {
    // Most contents have these kinds in the bootstrap stage only, so the other stage is searched for them.
    let ids_of = |is_so: fn(LateBoundKind) -> bool| {
        let of_kind = spec.late_bound_values.iter().filter(move |late| is_so(late.kind));
        of_kind.map(|late| late.id.as_str())
    };
    if ids_of(|kind| kind == LateBoundKind::KubeconfigSecretName)
        .next()
        .is_some()
    {
        return true;
    }
    let in_provisioning = late_bound_ids(spec, Stage::Provisioning);
    ids_of(is_token).any(|id| in_provisioning.contains(id))
}

/// Whether a value is the token of the pool, which has two kinds of markers.
pub fn is_token(kind: LateBoundKind) -> bool {
    matches!(kind, LateBoundKind::APIToken | LateBoundKind::KubeletToken)
}

#[cfg(test)]
mod tests {
    use osm_api::config::LateBound;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_pools_whose_provisioning_stage_needs_tokens_have_one() {
        const API: (&str, LateBoundKind) = ("api/token", LateBoundKind::APIToken);
        const KUBELET: (&str, LateBoundKind) = ("kubelet/token", LateBoundKind::KubeletToken);
        const NAME: (&str, LateBoundKind) = ("a", LateBoundKind::KubeconfigSecretName);
        const PASSWORD: (&str, LateBoundKind) = ("b", LateBoundKind::RegistryPassword);
        let [registry, api, kubelet] = ["b,toml", "api/token,raw", "kubelet/token,raw"]
            .map(|marker| format!("%%osm-late{{{marker}}}%%"));
        for (what, declared, provisioning, expected) in [
            ("no markers", &[][..], "", false),
            (
                "tokens in the bootstrap",
                &[API, KUBELET, PASSWORD],
                &*registry,
                false,
            ),
            ("the API token in both", &[API], &api, true),
            ("the kubelet's token later", &[API, KUBELET], &kubelet, true),
            ("a kubeconfig that is fetched", &[API, NAME], "", true),
        ] {
            let late_bound = declared.iter().map(|(id, kind)| LateBound {
                id: (*id).into(),
                kind: *kind,
                source: None,
            });
            let files = json!({"files": [{"path": "/a", "content": {"inline": {"data": provisioning}}}]});
            let spec = Content {
                late_bound_values: late_bound.collect(),
                provisioning_config: serde_json::from_value(files).unwrap(),
                ..Content::default()
            };
            assert_eq!(is_needed(&spec), expected, "{what}");
        }
    }
}
