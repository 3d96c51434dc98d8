//! How long one pool takes: `warm` with a compiled profile and one of eight pools in turn, as a controller renders them all day;
//! `cold` from the profile as it is written. Run it by `cargo bench -p osm-render`.
//!
//! Each is a pool of one of the usual kinds, plain and with everything set.

#![allow(clippy::expect_used, clippy::indexing_slicing, missing_docs)]

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use osm_api::profile::{CloudProvider, OperatingSystemProfileSpec};
use osm_api::{Pool, Settings};
use osm_render::{ClusterEndpoint, Profile, Rendered, compile, resolve};

struct Case {
    /// Such as `osp-ubuntu/aws/everything`.
    name: String,
    profile: OperatingSystemProfileSpec,
    pool: Pool,
    settings: Settings,
    cluster: ClusterEndpoint,
}

fn cases() -> Vec<Case> {
    let chosen = [
        ("osp-ubuntu", CloudProvider::Openstack),
        ("osp-ubuntu", CloudProvider::Aws),
        ("osp-flatcar", CloudProvider::Openstack),
        ("osp-flatcar", CloudProvider::Aws),
    ];
    let defaults = osm_render::defaults();
    let of = |(name, cloud): (&str, CloudProvider)| {
        let profile = defaults
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, profile)| profile)?;
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
        Some([
            case("plain", plain, Settings::default()),
            case("everything", full, settings),
        ])
    };
    let with_default = chosen.into_iter().filter_map(of).flatten();
    with_default.chain(in_go_templates()).collect()
}

/// A profile in Go's template language, about as large as those in the field.
fn in_go_templates() -> Vec<Case> {
    let manifest = osm_render::yaml::read(include_str!("go-profile.yaml"))
        .expect("YAML")
        .remove(0);
    let profile: OperatingSystemProfileSpec =
        serde_json::from_value(manifest["spec"].clone()).expect("a profile");
    let cloud = CloudProvider::Openstack;
    let (_, plain) = osm_render::sample_pools(&profile).remove(0);
    let (full, settings) = osm_render::full_sample(&profile, cloud).expect("the profile is for this cloud");
    let case = |label: &str, pool: Pool, settings: Settings| Case {
        name: format!("go-profile/{cloud}/{label}"),
        profile: profile.clone(),
        pool,
        settings,
        cluster: osm_render::stand_in_cluster(),
    };
    vec![
        case("plain", plain, Settings::default()),
        case("everything", full, settings),
    ]
}

fn compiled(case: &Case) -> Profile {
    compile(&resolve(&case.profile).expect("a default profile resolves")).expect("a default profile compiles")
}

fn render(profile: &Profile, pool: &Pool, case: &Case) -> Rendered {
    profile
        .render(pool, &case.settings, &case.cluster)
        .expect("a default profile renders")
}

/// Pools of one kind, with names, keys and limits of their own.
fn neighbours(pool: &Pool) -> Vec<Pool> {
    let one = |number: i32| {
        let mut one = pool.clone();
        one.name = format!("pool-{number}");
        one.ssh_public_keys = vec![format!("ssh-ed25519 {number}")];
        one.kubelet.max_pods = Some(100 + number);
        one
    };
    (0..8).map(one).collect()
}

fn benches(criterion: &mut Criterion) {
    for case in cases() {
        let profile = compiled(&case);
        let mut in_turn = neighbours(&case.pool).into_iter().cycle();
        criterion.bench_function(&format!("warm/{}", case.name), |b| {
            b.iter_batched_ref(
                || in_turn.next().expect("it never ends"),
                |pool| render(&profile, pool, &case),
                BatchSize::SmallInput,
            );
        });
        criterion.bench_function(&format!("cold/{}", case.name), |b| {
            b.iter(|| render(&compiled(&case), &case.pool, &case));
        });
    }
}

criterion_group!(rendering, benches);
criterion_main!(rendering);
