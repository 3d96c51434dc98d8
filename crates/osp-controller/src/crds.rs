//! `osp-controller upgrade-crds`: brings CustomResourceDefinitions that something else has installed to this version. The chart runs it before a
//! release, where it finds such; those that the chart has installed itself need none of this.

use anyhow::Context as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, CustomResourceExt, ResourceExt};
use osm_api::{OperatingSystemConfig, OperatingSystemProfile};
use semver::Version;

/// Field manager of what is written, and name of what is installed.
const NAME: &str = "operating-system-manager";

/// Label with the version that a definition is of. Others than ours may well carry one, hence [`PART_LABEL`].
const VERSION_LABEL: &str = "app.kubernetes.io/version";

const PART_LABEL: &str = "app.kubernetes.io/name";

/// Applies the definitions over those that are there, unless they are newer; one that is missing stays missing. What others have
/// written besides, such as to whom the objects belong, stays.
///
/// # Errors
/// When the server can't be reached or refuses.
pub async fn upgrade(client: Client) -> anyhow::Result<()> {
    let api = Api::<CustomResourceDefinition>::all(client);
    for mut ours in [OperatingSystemProfile::crd(), OperatingSystemConfig::crd()] {
        let name = ours.name_any();
        let there = api.get_opt(&name).await.with_context(|| format!("reading {name}"))?;
        let Some(there) = there else {
            tracing::info!(name, "is not there: nothing to upgrade");
            continue;
        };
        if let Some(newer) = newer(&there)? {
            tracing::info!(name, version = newer, "is newer, and stays");
            continue;
        }
        ours.labels_mut().insert(PART_LABEL.to_owned(), NAME.to_owned());
        ours.labels_mut().insert(VERSION_LABEL.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        // It is ours by its group, whoever has installed it: two writers of one schema can't both be right.
        let params = PatchParams::apply(NAME).force();
        api.patch(&name, &params, &Patch::Apply(&ours)).await.with_context(|| format!("writing {name}"))?;
        tracing::info!(name, version = env!("CARGO_PKG_VERSION"), "upgraded");
    }
    Ok(())
}

/// The version of a definition of ours, if it is newer than this program.
fn newer(there: &CustomResourceDefinition) -> anyhow::Result<Option<&str>> {
    let labels = there.labels();
    let version =
        labels.get(VERSION_LABEL).filter(|_| labels.get(PART_LABEL).is_some_and(|part| part == NAME));
    let this = Version::parse(env!("CARGO_PKG_VERSION"))?;
    let is_newer = |text: &&String| Version::parse(text).is_ok_and(|version| version > this);
    Ok(version.filter(is_newer).map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_newer_ones_of_ours_stay() {
        let of = |part: &str, version: &str| {
            let mut crd = OperatingSystemProfile::crd();
            crd.labels_mut().insert(PART_LABEL.to_owned(), part.to_owned());
            crd.labels_mut().insert(VERSION_LABEL.to_owned(), version.to_owned());
            newer(&crd).unwrap().map(str::to_owned)
        };
        assert_eq!(of(NAME, "99.0.0").as_deref(), Some("99.0.0"));
        assert_eq!(of(NAME, env!("CARGO_PKG_VERSION")), None);
        assert_eq!(of(NAME, "0.0.1"), None);
        assert_eq!(of(NAME, "not a version"), None);
        assert_eq!(of("somebody-else", "99.0.0"), None);
        assert_eq!(newer(&OperatingSystemProfile::crd()).unwrap(), None);
    }
}
