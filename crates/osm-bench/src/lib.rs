//! What rendering is measured with: a pool of each of the usual kinds, plain and with everything set.
//!
//! A crate of its own, so that measuring needs no release build of what tests need.

use osm_api::profile::{CloudProvider, OperatingSystemProfileSpec};
use osm_api::{Pool, Settings};
use osm_render::ClusterEndpoint;

/// Something to render.
pub struct Case {
    /// Such as `osp-ubuntu/aws/everything`.
    pub name: String,
    /// The profile as it is written.
    pub profile: OperatingSystemProfileSpec,
    /// The pool.
    pub pool: Pool,
    /// The settings.
    pub settings: Settings,
    /// The cluster.
    pub cluster: ClusterEndpoint,
}

/// The cases that are measured.
pub fn cases() -> Vec<Case> {
    let chosen = [
        ("osp-ubuntu", CloudProvider::Openstack),
        ("osp-ubuntu", CloudProvider::Aws),
        ("osp-flatcar", CloudProvider::Openstack),
        ("osp-flatcar", CloudProvider::Aws),
    ];
    let defaults = osm_render::defaults();
    let of = |(name, cloud): (&str, CloudProvider)| {
        let profile = defaults.iter().find(|(known, _)| known == name).map(|(_, profile)| profile)?;
        let plain = osm_render::sample_pools(profile).into_iter();
        let (_, plain) = plain.into_iter().find(|(_, pool)| pool.cloud_provider == cloud)?;
        let (full, settings) = osm_render::full_sample(profile, cloud)?;
        let case = |label: &str, pool: Pool, settings: Settings| Case {
            name: format!("{name}/{cloud}/{label}"),
            profile: profile.clone(),
            pool,
            settings,
            cluster: osm_render::stand_in_cluster(),
        };
        Some([case("plain", plain, Settings::default()), case("everything", full, settings)])
    };
    chosen.into_iter().filter_map(of).flatten().collect()
}
