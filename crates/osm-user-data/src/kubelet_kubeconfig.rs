//! Extracts from a rendered configuration what a kubeconfig Secret needs: the kubelet's bootstrap kubeconfig,
//! and the stages in which credentials are.

use std::collections::BTreeSet;

use osm_api::content::Content;

use crate::error::UserDataError;
use crate::late_bound::{self, Filling, LateValues, Room};
use crate::stage::Stage;

/// The kubelet's bootstrap kubeconfig with `values` for its late-bound values; `None` where the configuration
/// has none.
///
/// # Errors
/// A late-bound value that is missing, that can't be written where its marker is, or that the configuration
/// does not declare.
pub fn kubelet_kubeconfig(spec: &Content, values: &LateValues) -> Result<Option<String>, UserDataError> {
    let text = spec.kubelet_kubeconfig.as_ref();
    text.map(|text| {
        late_bound::fill(
            text,
            &"kubeletKubeconfig",
            &spec.late_bound_values,
            Filling::Values(values),
            &Room::default(),
        )
    })
    .transpose()
}

/// Ids of the late-bound values that a stage refers to. It is empty where a reference is damaged:
/// [`crate::user_data()`] refuses such a stage.
pub fn late_bound_ids(spec: &Content, stage: Stage) -> BTreeSet<String> {
    // JSON escapes no character of a marker.
    let text = serde_json::to_string(stage.of_content(spec)).unwrap_or_default();
    let markers = late_bound::markers(&text).unwrap_or_default();
    markers.into_iter().map(|marker| marker.id).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec() -> Content {
        let file = |data: &str| json!({"path": "/a", "content": {"inline": {"data": data}}});
        serde_json::from_value(json!({
            "bootstrapConfig": {
                "files": [file("%%osm-late{api/token,raw}%%\n\"quoted\" %%osm-late{a[0]/b:c-d,shell}%%")],
            },
            "provisioningConfig": {
                "units": [{"name": "u.service", "content": "%%osm-late{unit,raw}%%",
                    "dropIns": [{"name": "d.conf", "content": "%%osm-late{drop-in,raw}%%"}]}],
                "modules": {"runcmd": ["%%osm-late{module,yaml}%%"]},
            },
            "lateBoundValues": [{"id": "kubelet/token", "kind": "KubeletToken"}],
        }))
        .unwrap()
    }

    #[test]
    fn each_stage_has_its_own_references_wherever_they_are() {
        let ids = |spec: &Content, stage| {
            late_bound_ids(spec, stage)
                .into_iter()
                .collect::<Vec<_>>()
                .join(" ")
        };
        let mut spec = spec();
        assert_eq!(ids(&spec, Stage::Bootstrap), "a[0]/b:c-d api/token");
        assert_eq!(ids(&spec, Stage::Provisioning), "drop-in module unit");
        spec.provisioning_config.units[0].content = Some("%%osm-late{cut".into());
        assert_eq!(ids(&spec, Stage::Provisioning), "", "damaged");
        assert_eq!(ids(&Content::default(), Stage::Bootstrap), "");
    }

    #[test]
    fn a_kubeconfig_is_filled_like_a_document() {
        let mut spec = spec();
        let values = LateValues::from([("kubelet/token".to_owned(), "t0k3n".to_owned())]);
        assert_eq!(kubelet_kubeconfig(&spec, &values), Ok(None));
        spec.kubelet_kubeconfig = Some("token: %%osm-late{kubelet/token,yaml}%%\n".into());
        let expected = Ok(Some("token: \"t0k3n\"\n".into()));
        assert_eq!(kubelet_kubeconfig(&spec, &values), expected);
        let wanted = Err(UserDataError::MissingValue("kubelet/token".into()));
        assert_eq!(kubelet_kubeconfig(&spec, &LateValues::new()), wanted);
        spec.late_bound_values.clear();
        assert!(matches!(
            kubelet_kubeconfig(&spec, &values),
            Err(UserDataError::LateBoundValueUnknown { place }) if place == "kubeletKubeconfig"
        ));
    }
}
